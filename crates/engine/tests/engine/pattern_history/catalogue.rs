//! Attributes and variants in random histories: what is declared, what writers do, and what must hold.

use std::collections::HashSet;

use kilim_bson::{Document, RawValue, Value, array, doc};

use super::world::{Dice, Statement};
use crate::support::{Db, Updating, filter, ids, number};

/// Declared before anything is written and never paused: what is written meanwhile would stay as it is.
pub const ALWAYS: [&str; 2] = ["goods", "items"];

fn store(seed: u64) -> &'static str {
    ["flat", "kv", "both"][(seed % 3) as usize]
}

pub fn declarations(seed: u64) -> Vec<(&'static str, Document)> {
    vec![
        (
            "goods",
            doc! {"name": "specs", "attribute": {"paths": ["specs.*"], "as": "kv", "store": store(seed)}},
        ),
        (
            "items",
            doc! {"name": "variants", "polymorphic": {
                "discriminator": "type",
                "base": {"required": ["title"], "properties": {"title": {"bsonType": "string"}}},
                "variants": {
                    "book": {
                        "required": ["isbn"], "properties": {"isbn": {"bsonType": "string"}},
                        "indexes": [{"key": {"isbn": 1}, "unique": true}],
                    },
                    "ebook": {"extends": "book", "properties": {"format": {"enum": ["epub", "pdf"]}}},
                    "dvd": {
                        "required": ["minutes"], "properties": {"minutes": {"bsonType": "int"}},
                        "indexes": [{"key": {"minutes": 1}}],
                    },
                },
            }},
        ),
    ]
}

fn value(dice: &mut Dice) -> Value {
    match dice.roll(6) {
        0 => Value::Null,
        1 => Value::from("x"),
        2 => Value::Array(array![dice.roll(4), dice.roll(4)]),
        _ => Value::Int32(dice.roll(4)),
    }
}

fn good(dice: &mut Dice, id: i32) -> Document {
    let mut specs = Document::new();
    for name in ["a", "b", "c"] {
        if dice.roll(2) == 0 {
            specs.push(name, value(dice));
        }
    }
    doc! {"_id": id, "specs": specs, "price": dice.roll(9)}
}

fn item(dice: &mut Dice, id: i32) -> Document {
    let mut item = doc! {"_id": id, "type": dice.one(&["book", "ebook", "dvd", "toy"])};
    if dice.roll(6) > 0 {
        item.push("title", "t");
    }
    if dice.roll(2) == 0 {
        item.push("isbn", dice.one(&["1", "2", "3", "4"]));
    }
    if dice.roll(2) == 0 {
        item.push("minutes", dice.roll(3));
    }
    item
}

pub fn statement(dice: &mut Dice) -> Statement {
    let id = dice.roll(8);
    let one = |at, update| Statement::Update(at, doc! {"_id": id}, update, Updating::One);
    match dice.roll(12) {
        0 | 1 => Statement::Insert("goods", good(dice, id)),
        2 => one("goods", good(dice, id)),
        3 => one("goods", doc! {"$set": {"specs.a": value(dice)}}),
        4 => {
            let asked = doc! {"specs.a": value(dice)};
            Statement::Update("goods", asked, doc! {"$inc": {"price": 1}}, Updating::Many)
        }
        5 => Statement::Delete("goods", doc! {"specs.b": value(dice)}),
        6..=8 => Statement::Insert("items", item(dice, id)),
        9 => one("items", item(dice, id)),
        10 => one("items", doc! {"$set": {"type": dice.one(&["book", "ebook", "dvd"]), "isbn": "5"}}),
        _ => Statement::Delete("items", doc! {"_id": id}),
    }
}

/// A document with its attributes as fields, whichever form is stored.
fn flat(document: &Document) -> Document {
    let Some(pairs) = document.get("kv").and_then(RawValue::as_array) else { return document.clone() };
    let pairs = pairs.iter().filter_map(RawValue::as_document);
    let text = |pair: kilim_bson::RawDocument<'_>| pair.get("k").unwrap().as_str().unwrap().to_owned();
    let pairs: Vec<(String, Value)> =
        pairs.map(|pair| (text(pair), pair.get("v").unwrap().to_value())).collect();
    let specs: Document = pairs.iter().map(|(name, value)| (&**name, value.clone())).collect();
    let mut made: Document = document
        .iter()
        .filter(|(name, _)| !["specs", "kv"].contains(name))
        .map(|(name, value)| (name, value.to_value()))
        .collect();
    made.push("specs", specs);
    made
}

/// What is not as it should be, in words.
pub fn faults(db: &Db, seed: u64) -> Vec<String> {
    let mut faults = Vec::new();
    let goods = db.find("goods", doc! {});
    for good in &goods {
        let (has_flat, has_pairs) = (good.get("specs").is_some(), good.get("kv").is_some());
        let is_right = match store(seed) {
            "flat" => has_flat && !has_pairs,
            "kv" => has_pairs && !has_flat,
            _ => {
                has_flat && has_pairs && {
                    let made = flat(good);
                    let bytes = |document: &Document| {
                        document.get("specs").unwrap().as_document().unwrap().as_bytes().to_vec()
                    };
                    bytes(&made) == bytes(good)
                }
            }
        };
        if !is_right {
            faults.push(format!("the forms of {good:?}, stored {}", store(seed)));
        }
    }
    let asked = [
        doc! {"specs.a": 1},
        doc! {"specs.a": null},
        doc! {"specs.a": {"$gte": 2}, "specs.b": {"$exists": true}},
        doc! {"specs.b": 2, "specs.c": {"$in": [1, "x", null]}},
    ];
    for asked in asked {
        let mut found = ids(&db.find("goods", asked.clone()));
        found.sort_unstable();
        let condition = filter(asked.clone());
        let mut expected: Vec<i64> = goods
            .iter()
            .filter(|good| condition.matches(flat(good).as_raw()).unwrap())
            .map(|good| number(good, "_id"))
            .collect();
        expected.sort_unstable();
        if found != expected {
            faults.push(format!("{asked:?} finds {found:?}, not {expected:?}"));
        }
    }
    let mut isbns = HashSet::new();
    for item in db.find("items", doc! {}) {
        let text = |name: &str| item.get(name).and_then(RawValue::as_str);
        let is_right = text("title").is_some()
            && match text("type") {
                Some("book" | "ebook") => text("isbn").is_some_and(|isbn| isbns.insert(isbn.to_owned())),
                Some("dvd") => matches!(item.get("minutes"), Some(RawValue::Int32(_))),
                _ => false,
            };
        if !is_right {
            faults.push(format!("{item:?} breaks the rules of its variant"));
        }
    }
    faults
}
