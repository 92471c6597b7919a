//! What is stored beside what is true, computed here from the base documents.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kilim_bson::{Document, RawDocument, RawValue};
use kilim_client::{Client, whole};

use super::shop;
use crate::text::grouped;

/// Sums are compared as a page shows them, to a tenth of a cent: the recipes are not blamed for rounding.
const SHOWN: f64 = 0.001;

/// One maintained field, over all documents that have it.
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) stored: String,
    pub(super) true_value: String,
    pub(super) wrong: i64,
    pub(super) of: i64,
    /// A document that is wrong, in words.
    pub(super) example: Option<String>,
}

pub(super) struct Truth {
    pub(super) rows: Vec<Row>,
}

impl Truth {
    pub(super) fn of(client: &mut Client, database: &str) -> Result<Truth> {
        let products = shop::all(client, database, "products")?;
        let reviews = shop::all(client, database, "reviews")?;
        let customers = shop::all(client, database, "customers")?;
        let orders = shop::all(client, database, "orders")?;
        let mut by_product: BTreeMap<i64, Vec<&Document>> = BTreeMap::new();
        for review in &reviews {
            by_product.entry(id(review, "productId")?).or_default().push(review);
        }
        for reviews in by_product.values_mut() {
            reviews.sort_by_key(|review| (std::cmp::Reverse(date(review)), whole(review.get("_id"))));
        }
        let none = Vec::new();
        let reviews_of =
            |product: &Document| by_product.get(&whole(product.get("_id")).unwrap_or(-1)).unwrap_or(&none);
        Ok(Truth {
            rows: vec![
                counts(&products, reviews_of),
                averages(&products, reviews_of),
                subsets(&products, reviews_of),
                copies(&orders, &customers)?,
                totals(&orders),
            ],
        })
    }

    pub(super) fn wrong(&self) -> i64 {
        self.rows.iter().map(|row| row.wrong).sum()
    }

    pub(super) fn all_drifted(&self) -> bool {
        self.rows.iter().all(|row| row.wrong > 0)
    }
}

/// Counts the documents that are wrong, and keeps words for the first.
#[derive(Default)]
struct Tally {
    wrong: i64,
    of: i64,
    example: Option<String>,
}

impl Tally {
    fn judge(&mut self, right: bool, words: impl FnOnce() -> String) {
        self.of += 1;
        if !right {
            self.wrong += 1;
            self.example.get_or_insert_with(words);
        }
    }

    fn row(self, what: &'static str, stored: String, true_value: String) -> Row {
        Row { what, stored, true_value, wrong: self.wrong, of: self.of, example: self.example }
    }
}

fn counts<'d>(products: &'d [Document], reviews: impl Fn(&Document) -> &'d Vec<&'d Document>) -> Row {
    let (mut tally, mut stored, mut truth) = (Tally::default(), 0, 0);
    for product in products {
        let (found, right) = (whole(product.get("reviewCount")), reviews(product).len() as i64);
        stored += found.unwrap_or(0);
        truth += right;
        tally.judge(found == Some(right), || {
            format!("{} counts {}, there are {right}", name(product), found.unwrap_or(0))
        });
    }
    tally.row("review counts", grouped(stored), grouped(truth))
}

fn averages<'d>(products: &'d [Document], reviews: impl Fn(&Document) -> &'d Vec<&'d Document>) -> Row {
    let (mut tally, mut stored, mut truth) = (Tally::default(), Mean::default(), Mean::default());
    for product in products {
        let ratings: Vec<f64> =
            reviews(product).iter().filter_map(|review| double(review.get("rating"))).collect();
        let right = (!ratings.is_empty()).then(|| ratings.iter().sum::<f64>() / ratings.len() as f64);
        let found = double(product.get("avgRating"));
        stored.add(found);
        truth.add(right);
        tally.judge(close(found, right), || {
            let shown = |value: Option<f64>| value.map_or("none".to_owned(), |value| format!("{value:.3}"));
            format!("{} averages {}, truly {}", name(product), shown(found), shown(right))
        });
    }
    tally.row("average ratings", stored.shown(), truth.shown())
}

fn subsets<'d>(products: &'d [Document], reviews: impl Fn(&Document) -> &'d Vec<&'d Document>) -> Row {
    let (mut tally, mut stored, mut truth) = (Tally::default(), 0, 0);
    for product in products {
        let right: Vec<Document> =
            reviews(product).iter().take(shop::RECENT as usize).map(|review| shop::in_page(review)).collect();
        let found = product.get("recentReviews").and_then(RawValue::as_array);
        let found: Vec<Document> = found
            .iter()
            .flat_map(|list| list.iter())
            .filter_map(RawValue::as_document)
            .map(RawDocument::to_document)
            .collect();
        stored += found.len() as i64;
        truth += right.len() as i64;
        tally.judge(same_elements(&found, &right), || {
            let same = found.len() == right.len();
            let how = if same {
                "others or older ones".to_owned()
            } else {
                format!("{} of {}", found.len(), right.len())
            };
            format!("{} shows {how} although {} exist", name(product), reviews(product).len())
        });
    }
    tally.row("newest reviews", grouped(stored), grouped(truth))
}

/// The same fields with the same values: their order within an element is nobody's promise.
fn same_elements(found: &[Document], right: &[Document]) -> bool {
    found.len() == right.len()
        && found.iter().zip(right).all(|(found, right)| {
            found.iter().count() == right.iter().count()
                && right.iter().all(|(name, value)| {
                    found.get(name).is_some_and(|own| kilim_bson::compare(own, value).is_eq())
                })
        })
}

fn copies(orders: &[Document], customers: &[Document]) -> Result<Row> {
    let mut by_id = BTreeMap::new();
    for customer in customers {
        by_id.insert(id(customer, "_id")?, customer);
    }
    let mut tally = Tally::default();
    for order in orders {
        let customer = by_id.get(&id(order, "customerId")?).context("an order without its customer")?;
        let copy = order.get("customer").and_then(RawValue::as_document);
        let right = ["name", "email", "tier"].into_iter().all(|field| {
            let own = copy.and_then(|copy| copy.get(field)).and_then(RawValue::as_str);
            own.is_some() && own == customer.get(field).and_then(RawValue::as_str)
        });
        tally.judge(right, || {
            let shown = copy.and_then(|copy| copy.get("name")).and_then(RawValue::as_str).unwrap_or("nobody");
            let id = whole(order.get("_id")).unwrap_or(0);
            format!("order {id} says {shown:?}, the customer is {:?}", name(customer))
        });
    }
    let right = grouped(tally.of - tally.wrong);
    let of = grouped(tally.of);
    Ok(tally.row("customer copies", right, of))
}

fn totals(orders: &[Document]) -> Row {
    let (mut tally, mut stored, mut truth) = (Tally::default(), 0.0, 0.0);
    for order in orders {
        let subtotal = subtotal(order.as_raw());
        let right = subtotal + subtotal * shop::TAX;
        let found = double(order.get("total"));
        stored += found.unwrap_or(0.0);
        truth += right;
        tally.judge(close(found, Some(right)), || {
            let id = whole(order.get("_id")).unwrap_or(0);
            format!("order {id} says {:.2}, its items cost {right:.2}", found.unwrap_or(0.0))
        });
    }
    // Without cents, the table fits a terminal of 80 columns.
    let money = |sum: f64| grouped(sum.round() as i64);
    tally.row("order totals", money(stored), money(truth))
}

/// What an order's items cost.
fn subtotal(order: RawDocument<'_>) -> f64 {
    let items = order.get("items").and_then(RawValue::as_array);
    let items = items.iter().flat_map(|items| items.iter()).filter_map(RawValue::as_document);
    items.filter_map(|item| Some(double(item.get("qty"))? * double(item.get("price"))?)).sum()
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1.0;
        }
    }

    fn shown(&self) -> String {
        format!("{:.3}", self.sum / self.count.max(1.0))
    }
}

fn close(found: Option<f64>, right: Option<f64>) -> bool {
    match (found, right) {
        (Some(found), Some(right)) => (found - right).abs() < SHOWN,
        (None, None) => true,
        _ => false,
    }
}

pub(super) fn double(value: Option<RawValue<'_>>) -> Option<f64> {
    match value? {
        RawValue::Double(value) => Some(value),
        RawValue::Int32(value) => Some(value.into()),
        RawValue::Int64(value) => Some(value as f64),
        _ => None,
    }
}

fn date(review: &Document) -> i64 {
    match review.get("date") {
        Some(RawValue::DateTime(date)) => date,
        _ => i64::MIN,
    }
}

fn name(document: &Document) -> String {
    document.get("name").and_then(RawValue::as_str).unwrap_or_default().to_owned()
}

fn id(document: &Document, field: &str) -> Result<i64> {
    whole(document.get(field)).with_context(|| format!("a document without {field}"))
}
