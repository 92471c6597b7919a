//! A catalogue of variants: items that come from several sellers, some of them malformed.
//!
//! The shop that is kept by hand takes whatever comes. The declared one refuses what breaks the rules of its variant and says
//! why. What is wrong is counted here, from the documents.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use kilim_bson::{Document, RawValue, doc};
use kilim_client::{Client, whole};

use super::{BY_HAND, DECLARED, shop};
use crate::connect::explained;
use crate::output::say;
use crate::text::grouped;

const ITEMS: i32 = 300;

/// Fills both catalogues from the same offers; whether the declared one has nothing wrong.
pub(super) fn show(client: &mut Client) -> Result<bool> {
    client.run(DECLARED, declaration()).map_err(explained)?;
    let by_hand = fill(client, BY_HAND)?;
    let declared = fill(client, DECLARED)?;
    ensure!(by_hand.refused == 0, "a catalogue without rules refused an item");
    let wrong = wrong(&shop::all(client, DECLARED, "items")?);
    say!(
        "A catalogue of books, ebooks and DVDs, {} offers. Without rules: {} wrong items are in it.\n\
         Declared: {} were refused, {} wrong items are in it. For example:\n  {}",
        grouped(i64::from(ITEMS)),
        grouped(by_hand.wrong),
        grouped(declared.refused),
        grouped(wrong),
        declared.example.as_deref().unwrap_or("none was refused")
    )?;
    let mut asked = declaration();
    asked.push("dryRun", true);
    let told = client.run(BY_HAND, asked).map_err(explained)?;
    let found = whole(told.get("wrong")).unwrap_or(-1);
    say!(
        "createPattern with dryRun lists the items of the other one that break a schema: {}.\n",
        grouped(found)
    )?;
    Ok(wrong == 0 && declared.refused == by_hand.wrong)
}

struct Filled {
    refused: i64,
    wrong: i64,
    example: Option<String>,
}

fn fill(client: &mut Client, database: &str) -> Result<Filled> {
    let mut filled = Filled { refused: 0, wrong: 0, example: None };
    for id in 0..ITEMS {
        let insert = doc! {"insert": "items", "documents": [offer(id)]};
        let reply = client.run(database, insert);
        if let Err(fault) = reply {
            filled.refused += 1;
            filled.example.get_or_insert_with(|| fault.to_string());
        }
    }
    filled.wrong = wrong(&shop::all(client, database, "items")?);
    Ok(filled)
}

/// What sellers send: one in ten forgets a field, gives a number for a text, or a number that is taken.
fn offer(id: i32) -> Document {
    let mut item = doc! {"_id": id, "title": format!("Item {id}")};
    item.push("type", ["book", "ebook", "dvd"][id as usize % 3]);
    let number = match id % 30 {
        27 if id > 30 => id - 3,
        _ => id,
    };
    match (id % 3, id % 10) {
        (_, 7) if id % 30 != 27 => {}
        (2, 9) => item.push("minutes", "long"),
        (2, _) => item.push("minutes", 60 + id % 90),
        _ => item.push("isbn", format!("978-{number:06}")),
    }
    item
}

fn declaration() -> Document {
    doc! {"createPattern": "items", "name": "variants", "polymorphic": {
        "discriminator": "type",
        "base": {"required": ["title"], "properties": {"title": {"bsonType": "string"}}},
        "variants": {
            "book": {
                "required": ["isbn"], "properties": {"isbn": {"bsonType": "string"}},
                "indexes": [{"key": {"isbn": 1}, "unique": true}],
            },
            "ebook": {"extends": "book"},
            "dvd": {"required": ["minutes"], "properties": {"minutes": {"bsonType": "int"}}},
        },
    }}
}

/// How many items break the rules, told as simply as they can be.
fn wrong(items: &[Document]) -> i64 {
    let mut taken = BTreeSet::new();
    let mut wrong = 0;
    for item in items {
        let fine = match item.get("type").and_then(RawValue::as_str) {
            Some("dvd") => matches!(item.get("minutes"), Some(RawValue::Int32(_))),
            Some(_) => {
                item.get("isbn").and_then(RawValue::as_str).is_some_and(|isbn| taken.insert(isbn.to_owned()))
            }
            None => false,
        };
        wrong += i64::from(!fine);
    }
    wrong
}
