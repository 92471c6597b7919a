//! The world of random histories: what is declared, and what writers may do.

use kilim_bson::{Array, Document, RawValue, Value, array, doc};
use kilim_engine::unit::Unit;
use kilim_engine::write::{self, MoveRequest};
use kilim_error::{Error, Result};
use kilim_patterns::Position;

use super::{catalogue, forest};
use crate::support::{Updating, delete, find_and_modify, insert, ns, update_with};

/// Numbers from a seed.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn roll(&mut self, sides: i32) -> i32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % sides as u64) as i32
    }

    pub fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.roll(of.len() as i32) as usize]
    }
}

pub const PATTERNS: [(&str, &str); 21] = [
    ("products", "stats"),
    ("products", "recent"),
    ("products", "brand"),
    ("products", "label"),
    ("reviews", "product"),
    ("orders", "lines"),
    ("orders", "frozen"),
    ("orders", "apart"),
    ("orders", "flat"),
    ("ratings", "byRating"),
    ("kinds", "byKind"),
    ("tags", "byTag"),
    ("bills", "total"),
    ("accounts", "spent"),
    ("spending", "byAccount"),
    ("levels", "bySpending"),
    ("folders", "tree"),
    ("lines", "tree"),
    ("places", "tree"),
    ("goods", "specs"),
    ("items", "variants"),
];

/// Collections, sources and targets.
pub const COLLECTIONS: [&str; 17] = [
    "brands", "products", "reviews", "orders", "ratings", "kinds", "tags", "entries", "bills", "accounts",
    "spending", "levels", "folders", "lines", "places", "goods", "items",
];

/// What is declared: of each kind one or more, in chains, and not in the order of the chains. The subset reads what a
/// later pattern maintains. In every second history much of it is left to jobs.
pub fn declarations(seed: u64) -> Vec<(&'static str, Document)> {
    let declared = [
        (
            "products",
            doc! {"name": "stats", "computed": {"from": "reviews", "pipeline": [
                {"$match": {"hidden": {"$ne": true}}},
                {"$group": {
                    "_id": "$productId", "count": {"$count": {}}, "average": {"$avg": "$rating"},
                    "best": {"$max": "$rating"}, "worst": {"$min": "$rating"}, "spread": {"$stdDevPop": "$rating"},
                    "first": {"$first": "$rating"}, "last": {"$last": "$rating"}, "all": {"$push": "$rating"},
                    "top": {"$maxN": {"input": "$rating", "n": 2}},
                }},
                {"$set": {"share": {"$divide": [1, "$count"]}}},
            ]}},
        ),
        (
            "products",
            doc! {"name": "recent", "subset": {
                "from": "reviews", "foreignField": "productId", "as": "recent", "sort": {"at": -1}, "limit": 3,
                "match": {"hidden": {"$ne": true}}, "fields": {"rating": 1, "brand": "$product.brand"},
            }},
        ),
        (
            "products",
            doc! {"name": "brand", "extendedReference": {
                "from": "brands", "localField": "brandId", "as": "brand", "fields": {"name": 1},
                "onSourceDelete": "unset",
            }},
        ),
        (
            "products",
            doc! {"name": "label", "computed": {"set": {
                "label": {"$concat": [{"$ifNull": ["$brand.name", "?"]}, "-", {"$toString": "$_id"}]},
            }}},
        ),
        (
            "reviews",
            doc! {"name": "product", "extendedReference": {
                "from": "products", "localField": "productId", "as": "product",
                "fields": {"label": 1, "brand": "$brand.name"}, "onSourceDelete": "null",
            }},
        ),
        (
            "orders",
            doc! {"name": "lines", "extendedReference": {
                "from": "products", "localField": "items.p", "as": "items.product", "fields": {"label": 1},
            }},
        ),
        (
            "orders",
            doc! {"name": "frozen", "extendedReference": {
                "from": "brands", "localField": "brandIds", "as": "brands", "fields": {"name": 1},
                "while": {"open": true}, "onSourceDelete": "null",
            }},
        ),
        (
            "orders",
            doc! {"name": "apart", "extendedReference": {
                "from": "products", "localField": "items.p", "as": "apart", "fields": {"label": 1},
                "onSourceDelete": "null",
            }},
        ),
        (
            "orders",
            doc! {"name": "flat", "extendedReference": {
                "from": "brands", "localField": "brandIds", "as": null, "fields": {"brandNames": "$name"},
                "onSourceDelete": "null",
            }},
        ),
        // It reads nothing but which documents another pattern makes.
        (
            "kinds",
            doc! {"name": "byKind", "computed": {
                "from": "ratings", "whenNotMatched": "insert",
                "pipeline": [{"$group": {"_id": "$_id.isNumber", "groups": {"$count": {}}}}],
            }},
        ),
        (
            "ratings",
            doc! {"name": "byRating", "computed": {
                "from": "reviews", "whenNotMatched": "insert",
                "pipeline": [{"$group": {
                    "_id": {"rest": {"$mod": ["$rating", 3]}, "isNumber": {"$isNumber": "$rating"}},
                    "count": {"$count": {}}, "sum": {"$sum": "$rating"},
                }}],
            }},
        ),
        (
            "tags",
            doc! {"name": "byTag", "computed": {
                "from": "reviews", "whenNotMatched": "insert",
                "pipeline": [{"$unwind": "$tags"}, {"$group": {"_id": "$tags", "count": {"$count": {}}}}],
            }},
        ),
        (
            "bills",
            doc! {"name": "total", "computed": {"from": "entries", "pipeline": [
                {"$group": {"_id": "$bill", "total": {"$sum": "$sum"}, "best": {"$max": "$sum"}}},
            ]}},
        ),
        (
            "accounts",
            doc! {"name": "spent", "computed": {"from": "bills", "pipeline": [
                {"$group": {"_id": "$account", "spent": {"$sum": "$total"}, "best": {"$max": "$best"}}},
            ]}},
        ),
        (
            "spending",
            doc! {"name": "byAccount", "computed": {
                "from": "bills", "whenNotMatched": "insert",
                "pipeline": [
                    {"$group": {"_id": {"of": "$account"}, "total": {"$sum": "$total"}, "count": {"$count": {}}}},
                ],
            }},
        ),
        (
            "levels",
            doc! {"name": "bySpending", "computed": {
                "from": "spending", "whenNotMatched": "insert",
                "pipeline": [{"$group": {
                    "_id": {"rest": {"$mod": ["$total", 3]}}, "total": {"$sum": "$total"}, "count": {"$count": {}},
                }}],
            }},
        ),
    ];
    let mut declared: Vec<_> = declared.into_iter().collect();
    declared.extend(forest::declarations(seed));
    declared.extend(catalogue::declarations(seed));
    for (_, declaration) in declared.iter_mut().filter(|_| is_late(seed)) {
        let options = match declaration.get("name").and_then(RawValue::as_str) {
            Some("stats" | "recent" | "spent") => doc! {"mode": "async"},
            Some("lines") => doc! {"maxSync": 0, "backfill": {"batch": 2}},
            Some("frozen") => doc! {"maxSync": 1, "backfill": {"batch": 1, "throttleMs": 1}},
            Some("byTag") => doc! {"mode": "async", "whenBehind": "serve"},
            _ => continue,
        };
        options.iter().for_each(|(name, value)| declaration.push(name, value.to_value()));
    }
    declared
}

pub fn is_late(seed: u64) -> bool {
    seed.is_multiple_of(2)
}

fn rating(dice: &mut Dice) -> Value {
    match dice.roll(9) {
        0 => Value::Null,
        8 => Value::Array(array![dice.roll(3), dice.roll(3)]),
        1 => Value::from("text"),
        2 => Value::Double(0.1 + f64::from(dice.roll(5))),
        3 => Value::Int64(1 << 40),
        _ => Value::Int32(dice.roll(6)),
    }
}

fn review(dice: &mut Dice, id: i32) -> Document {
    let mut review = doc! {"_id": id, "rating": rating(dice), "at": dice.roll(6)};
    match dice.roll(9) {
        0 => {}
        // Beside another array, more than a user's index over both would take.
        8 => review.push("productId", array![dice.roll(5), dice.roll(5)]),
        _ => review.push("productId", dice.roll(5)),
    }
    if dice.roll(3) == 0 {
        let tags: Array = (0..dice.roll(4)).map(|_| Value::Int32(dice.roll(3))).collect();
        review.push("tags", tags);
    }
    review
}

fn product(dice: &mut Dice, id: i32) -> Document {
    doc! {"_id": id, "brandId": dice.roll(4), "count": 99, "title": "t"}
}

fn order(dice: &mut Dice, id: i32) -> Document {
    let items: Array = (0..dice.roll(4)).map(|_| Value::Document(doc! {"p": dice.roll(6)})).collect();
    let brands: Array = (0..dice.roll(3)).map(|_| Value::Int32(dice.roll(4))).collect();
    doc! {"_id": id, "items": items, "brandIds": brands, "open": dice.roll(2) == 0}
}

/// One statement, which can be repeated.
#[derive(Debug, Clone)]
pub enum Statement {
    Insert(&'static str, Document),
    Update(&'static str, Document, Document, Updating),
    Modify(&'static str, Document, Document),
    Delete(&'static str, Document),
    Move(&'static str, i32, Option<Value>, Position),
}

use Statement::{Delete, Insert, Modify, Move, Update};

impl Statement {
    /// A statement of a history; every third is about trees more than about all else.
    pub fn of(seed: u64, dice: &mut Dice) -> Statement {
        match seed % 3 == 1 && dice.roll(4) > 0 {
            true => forest::statement(dice),
            false => Statement::any(dice),
        }
    }

    pub fn any(dice: &mut Dice) -> Statement {
        let id = dice.roll(12);
        let one = |at, id: i32, update| Update(at, doc! {"_id": id}, update, Updating::One);
        match dice.roll(34) {
            0..=3 => Insert("reviews", review(dice, id)),
            4 => one("reviews", id, doc! {"$set": {"rating": rating(dice)}}),
            5 => {
                let (from, to) = (doc! {"productId": id % 5}, doc! {"$set": {"productId": dice.roll(5)}});
                Update("reviews", from, to, Updating::Many)
            }
            6 => one("reviews", id, doc! {"$set": {"hidden": dice.roll(2) == 0, "at": dice.roll(6)}}),
            7 => {
                let mut whole = review(dice, id);
                whole.push("product", "mine");
                Update("reviews", doc! {"_id": id}, whole, Updating::Upsert)
            }
            8 | 9 => Delete("reviews", doc! {"_id": id}),
            10 => one("reviews", id, doc! {"$addToSet": {"tags": dice.roll(3)}}),
            11 | 12 => Insert("products", product(dice, id % 5)),
            13 => one("products", id % 5, product(dice, id % 5)),
            14 => Delete("products", doc! {"_id": id % 5}),
            15 => {
                let name = doc! {"$set": {"name": dice.one(&["a", "b", "c"])}};
                Update("brands", doc! {"_id": id % 4}, name, Updating::Upsert)
            }
            16 => Delete("brands", doc! {"_id": id % 4}),
            17 => Insert("orders", order(dice, id)),
            18 => {
                let item = doc! {"p": dice.roll(6)};
                one("orders", id, doc! {"$push": {"items": item}, "$set": {"open": dice.roll(2) == 0}})
            }
            19 => one("orders", id, doc! {"$set": {"brandIds": array![dice.roll(4), dice.roll(4)]}}),
            20 => Modify("reviews", doc! {"productId": id % 5}, doc! {"$set": {"productId": dice.roll(5)}}),
            21 => {
                let brand = doc! {"$set": {"brandId": dice.roll(4)}};
                Update("products", doc! {}, brand, Updating::Many)
            }
            22..=25 => Statement::in_chain(dice),
            26..=30 => forest::statement(dice),
            _ => catalogue::statement(dice),
        }
    }

    /// A statement that moves something in a chain of groups, from one parent to another or in and out of existence.
    pub fn in_chain(dice: &mut Dice) -> Statement {
        let (entry, bill, account) = (dice.roll(8), dice.roll(4), dice.roll(4));
        let one = |at, id: i32, update| Update(at, doc! {"_id": id}, update, Updating::One);
        match dice.roll(12) {
            0..=2 => Insert("entries", doc! {"_id": entry, "bill": bill, "sum": dice.roll(9)}),
            3 => one("entries", entry, doc! {"$set": {"bill": bill}}),
            4 => Update("entries", doc! {"bill": bill}, doc! {"$inc": {"sum": 1}}, Updating::Many),
            5 => Delete("entries", doc! {"_id": entry}),
            6 => Insert("bills", doc! {"_id": bill, "account": account}),
            7 | 8 => one("bills", bill, doc! {"$set": {"account": account}}),
            9 => Delete("bills", doc! {"_id": bill}),
            10 => Insert("accounts", doc! {"_id": account}),
            _ => Delete("accounts", doc! {"_id": account}),
        }
    }

    /// Whether a client may send it again with its number.
    pub fn is_retryable(&self) -> bool {
        !matches!(self, Update(_, _, _, Updating::Many))
    }

    pub fn run(&self, unit: &mut Unit<'_>) -> Result<()> {
        let done = match self.clone() {
            Insert(at, document) => insert(unit, at, &[document], true).map(drop),
            Update(at, filter, update, how) => update_with(unit, at, filter, update, how).map(drop),
            Modify(at, filter, update) => {
                find_and_modify(unit, at, filter, update, Some(doc! {"_id": 1})).map(drop)
            }
            Delete(at, filter) => delete(unit, at, filter, true).map(drop),
            Move(at, id, to, position) => match unit.engine.pattern(&ns(at), "tree") {
                Ok(pattern) if pattern.is_maintained() => {
                    let request =
                        MoveRequest { pattern: &pattern, id: Value::Int32(id), to, position, statement: 0 };
                    write::move_node(unit, &ns(at), &request).map(drop)
                }
                _ => Ok(()),
            },
        };
        match done {
            // Two upserts of one document, or an array where there is none: an answer like any other.
            Err(Error::User(user)) if [2, 11000].contains(&user.code.0) => Ok(()),
            done => done,
        }
    }
}
