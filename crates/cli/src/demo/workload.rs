//! What the clients do. By hand they send the recipes after their own writes; where patterns are declared,
//! only their own writes.
//!
//! Each client draws from its own generator, and draws the same in both shops: the same reviews, the same
//! renames, the same deaths.

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result, anyhow};
use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_client::{Client, Fault, Uri, whole};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::by_hand::{self, update};
use super::{BY_HAND, DECLARED, shop};

/// How often a client dies between two writes of one operation: one in so many.
const DEATH: u32 = 200;
/// Orders that are still open, and shared: several people add to them.
const OPEN_ORDERS: i32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeping {
    ByHand,
    Declared,
}

pub(super) struct Workload {
    pub(super) uri: Uri,
    pub(super) clients: u32,
    pub(super) operations: u32,
    pub(super) seed: u64,
}

/// Counts while the clients work.
#[derive(Default)]
pub(super) struct Done {
    operations: AtomicI64,
    commands: AtomicI64,
    deaths: AtomicI64,
}

impl Done {
    pub(super) fn operations(&self) -> i64 {
        self.operations.load(Ordering::Relaxed)
    }
}

pub(super) struct Told {
    pub(super) commands: i64,
    pub(super) deaths: i64,
}

impl Workload {
    pub(super) fn run(&self, keeping: Keeping, round: u32, done: &Done) -> Result<Told> {
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients)
                .map(|number| scope.spawn(move || self.work(number, keeping, round, done)))
                .collect();
            for client in clients {
                client.join().map_err(|_| anyhow!("a client panicked"))??;
            }
            Ok(Told {
                commands: done.commands.load(Ordering::Relaxed),
                deaths: done.deaths.load(Ordering::Relaxed),
            })
        })
    }

    fn work(&self, number: u32, keeping: Keeping, round: u32, done: &Done) -> Result<()> {
        let seed = self.seed.wrapping_mul(1_000_003) + u64::from(round) * 1000 + u64::from(number);
        // Identifiers of this client in this round, out of the way of all others.
        let first = 10_000_000 * round as i32 + 100_000 * number as i32;
        let mut person = Person {
            client: Client::open(&self.uri).context("a client cannot connect")?,
            keeping,
            database: if keeping == Keeping::ByHand { BY_HAND } else { DECLARED },
            random: SmallRng::seed_from_u64(seed),
            next: first,
            done,
        };
        for _ in 0..self.operations {
            if person.act()? == Fate::Dies {
                done.deaths.fetch_add(1, Ordering::Relaxed);
                person.client = Client::open(&self.uri).context("a client cannot connect")?;
            }
            done.operations.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lives,
    /// After its first write.
    Dies,
}

struct Person<'d> {
    client: Client,
    keeping: Keeping,
    database: &'static str,
    random: SmallRng,
    next: i32,
    done: &'d Done,
}

impl Person<'_> {
    fn act(&mut self) -> Result<Fate> {
        let fate = if self.random.random_range(0..DEATH) == 0 { Fate::Dies } else { Fate::Lives };
        let what = self.random.random_range(0..100);
        // Drawn in every case, so that the two shops draw alike whatever they find.
        let (product, customer) =
            (self.random.random_range(0..shop::PRODUCTS), self.random.random_range(0..shop::CUSTOMERS));
        let (rating, chance) = (self.random.random_range(1..=5), self.random.random_range(0..1_000_000));
        self.next += 1;
        match what {
            0..40 => self.review(product, customer, rating, fate),
            40..50 => self.edit_review(product, rating, fate),
            50..60 => (0..=chance % 3).try_for_each(|_| self.delete_newest(product, fate)),
            60..82 => self.order(customer, product, fate),
            82..88 => self.rename(customer, fate),
            _ => self.add_item(chance % OPEN_ORDERS, product, fate),
        }?;
        Ok(fate)
    }

    fn review(&mut self, product: i32, user: i32, rating: i32, fate: Fate) -> Result<()> {
        let date = shop::OPENED + 1_000_000_000 + i64::from(self.next);
        let review = shop::review(self.next, product, user, rating, date);
        self.run(doc! {"insert": "reviews", "documents": [Value::Document(review.clone())]})?;
        self.by_hand(fate, || {
            vec![
                by_hand::count_review(product, rating),
                by_hand::show_review(product, shop::in_page(&review)),
            ]
        })
    }

    fn edit_review(&mut self, product: i32, rating: i32, fate: Fate) -> Result<()> {
        let Some(found) = self.one(newest(product, 3))? else { return Ok(()) };
        let id = number(&found, "_id")?;
        let text = format!("{rating} of 5, edited");
        let set = doc! {"$set": {"rating": rating, "text": &*text}};
        // The image from before says what has to be taken out of the average.
        let before = self.run(doc! {"findAndModify": "reviews", "query": {"_id": id}, "update": set})?;
        let Some(before) = before.get("value").and_then(RawValue::as_document) else { return Ok(()) };
        let change = rating - number(&before.to_document(), "rating")?;
        self.by_hand(fate, || {
            vec![
                by_hand::recount_review(product, change),
                by_hand::edit_shown_review(product, id, rating, &text),
            ]
        })
    }

    fn delete_newest(&mut self, product: i32, fate: Fate) -> Result<()> {
        let Some(found) = self.one(newest(product, 1))? else { return Ok(()) };
        let id = number(&found, "_id")?;
        let gone = self.run(doc! {"findAndModify": "reviews", "query": {"_id": id}, "remove": true})?;
        let Some(gone) = gone.get("value").and_then(RawValue::as_document) else { return Ok(()) };
        let rating = number(&gone.to_document(), "rating")?;
        self.by_hand(fate, || {
            vec![by_hand::uncount_review(product, rating), by_hand::hide_review(product, id)]
        })
    }

    fn order(&mut self, customer: i32, product: i32, fate: Fate) -> Result<()> {
        let mut order = doc! {"_id": self.next, "customerId": customer};
        if self.keeping == Keeping::ByHand {
            let found = self.one(doc! {"find": "customers", "filter": {"_id": customer}, "limit": 1})?;
            let found = found.context("a customer is missing")?;
            let copy: Document = ["name", "email", "tier"]
                .into_iter()
                .filter_map(|field| Some((field, found.get(field)?.to_value())))
                .collect();
            order.push("customer", copy);
        }
        let item = shop::item(product, 2);
        order.push("items", Value::Array([Value::Document(item)].into_iter().collect()));
        if self.keeping == Keeping::ByHand {
            let subtotal = 2.0 * shop::price(product);
            order.push("subtotal", subtotal);
            order.push("tax", subtotal * shop::TAX);
            order.push("total", subtotal + subtotal * shop::TAX);
        }
        self.run(doc! {"insert": "orders", "documents": [Value::Document(order)]})?;
        self.by_hand(fate, Vec::new)
    }

    fn rename(&mut self, customer: i32, fate: Fate) -> Result<()> {
        let inc = doc! {"findAndModify": "customers", "query": {"_id": customer}, "update": {"$inc": {"renamed": 1}}};
        let before = self.run(inc)?;
        let before = before.get("value").and_then(RawValue::as_document).context("a customer is missing")?;
        let renamed = whole(before.get("renamed")).unwrap_or(0) as i32 + 1;
        let old_email = before.get("email").and_then(RawValue::as_str).unwrap_or_default().to_owned();
        let (name, email) = (shop::name(customer, renamed), shop::email(customer, renamed));
        let set = Value::Document(doc! {"$set": {"name": &*name, "email": &*email}});
        self.run(update("customers", doc! {"_id": customer}, set, false))?;
        self.by_hand(fate, || vec![by_hand::rename_copies(&old_email, &name, &email)])
    }

    /// One more item for an order: by hand, the totals are computed from what was read.
    fn add_item(&mut self, order: i32, product: i32, fate: Fate) -> Result<()> {
        let item = shop::item(product, 1);
        let mut change = doc! {"$push": {"items": item}};
        if self.keeping == Keeping::ByHand {
            let found = self.one(doc! {"find": "orders", "filter": {"_id": order}, "limit": 1})?;
            let found = found.context("an order is missing")?;
            let before =
                super::truth::double(found.get("subtotal")).context("an order without a subtotal")?;
            let subtotal = before + shop::price(product);
            let tax = subtotal * shop::TAX;
            change.push("$set", doc! {"subtotal": subtotal, "tax": tax, "total": subtotal + tax});
        }
        self.run(update("orders", doc! {"_id": order}, Value::Document(change), false))?;
        self.by_hand(fate, Vec::new)
    }

    /// What the recipe wants after the first write, unless the client dies first.
    fn by_hand(&mut self, fate: Fate, recipe: impl FnOnce() -> Vec<Document>) -> Result<()> {
        if self.keeping == Keeping::ByHand && fate == Fate::Lives {
            for command in recipe() {
                self.run(command)?;
            }
        }
        Ok(())
    }

    fn one(&mut self, find: Document) -> Result<Option<Document>, Fault> {
        self.done.commands.fetch_add(1, Ordering::Relaxed);
        Ok(self.client.all(self.database, find)?.pop())
    }

    fn run(&mut self, command: Document) -> Result<Document, Fault> {
        self.done.commands.fetch_add(1, Ordering::Relaxed);
        self.client.run(self.database, command)
    }
}

/// The newest review of a product, or one close to it.
fn newest(product: i32, skip_below: i32) -> Document {
    doc! {"find": "reviews", "filter": {"productId": product}, "sort": {"date": -1}, "limit": 1, "skip": skip_below - 1}
}

fn number(document: &Document, name: &str) -> Result<i32> {
    let document: RawDocument<'_> = document.as_raw();
    let number = whole(document.get(name)).with_context(|| format!("a document without {name}"))?;
    Ok(i32::try_from(number)?)
}
