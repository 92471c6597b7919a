//! Readings of a sensor, sixty to a bucket: a hundred come within an hour, and the lowest of them turns out to be wrong.
//!
//! By hand, an hour of a sensor is a document with an array, a count and the lowest value, as the recipes have it. Declared,
//! a reading is a document, and the database packs them.

use anyhow::{Context, Result};
use kilim_bson::{Document, RawValue, Value, doc};
use kilim_client::{Client, whole};

use super::{BY_HAND, DECLARED};
use crate::connect::explained;
use crate::output::say;

const READINGS: i64 = 100;
const CAP: i64 = 60;
/// An hour of 2026.
const HOUR: i64 = 1_794_909_600_000;
/// The reading that is corrected, from the lowest value of all.
const WRONG: i64 = 7;

/// Sends the readings to both, corrects one, and compares the lowest value; whether the declared one is right.
pub(super) fn show(client: &mut Client) -> Result<bool> {
    let bucket = doc! {"timeField": "at", "metaField": "sensor", "maxCount": CAP, "stats": {"temp": ["min"]}};
    client
        .run(DECLARED, doc! {"createPattern": "readings", "name": "hours", "bucket": bucket})
        .map_err(explained)?;
    let (mut refused_by_hand, mut refused) = (0, 0);
    for number in 0..READINGS {
        refused_by_hand += i64::from(!accepts(client, BY_HAND, by_hand(number))?);
        let insert = doc! {"insert": "readings", "documents": [reading(number)]};
        refused += i64::from(!accepts(client, DECLARED, insert)?);
    }
    let correct =
        doc! {"q": {"readings.number": WRONG}, "u": {"$set": {"readings.$.temp": temperature(WRONG + 1)}}};
    client.run(BY_HAND, doc! {"update": "hours", "updates": [correct]})?;
    let correct = doc! {"q": {"number": WRONG}, "u": {"$set": {"temp": temperature(WRONG + 1)}}};
    client.run(DECLARED, doc! {"update": "readings", "updates": [correct]})?;

    let lowest_by_hand =
        client.all(BY_HAND, doc! {"find": "hours"})?.iter().filter_map(|hour| whole(hour.get("min"))).min();
    let stats = doc! {"$group": {"_id": Value::Null, "min": {"$min": "$stats.temp.min"}, "count": {"$sum": "$count"}}};
    let told = client
        .all(DECLARED, doc! {"aggregate": "readings.buckets", "pipeline": [stats], "cursor": {}})
        .map_err(explained)?;
    let told = told.first().context("the buckets tell nothing")?;
    let (lowest, kept) = (whole(told.get("min")), whole(told.get("count")));
    let truth = (0..READINGS).filter(|number| *number != WRONG).map(temperature).min();
    say!(
        "A sensor sends {READINGS} readings within an hour, {CAP} to a bucket, and the lowest of them is corrected. By hand, {} are \
         refused,\nand the lowest is said to be {}. Declared: {} are refused, and it is {}, as it should be.\n",
        refused_by_hand,
        shown(lowest_by_hand),
        refused,
        shown(lowest),
    )?;
    Ok(refused == 0 && kept == Some(READINGS) && lowest == truth)
}

fn temperature(number: i64) -> i64 {
    if number == WRONG { -40 } else { 15 + number * 7 % 11 }
}

fn reading(number: i64) -> Document {
    let at = Value::DateTime(HOUR + number * 30_000);
    doc! {"sensor": 1, "at": at, "number": number, "temp": temperature(number)}
}

/// The recipe: the hour's document takes the reading unless it is full, and is made where there is none.
fn by_hand(number: i64) -> Document {
    let update = doc! {
        "q": {"_id": {"sensor": 1, "hour": Value::DateTime(HOUR)}, "n": {"$lt": CAP}},
        "u": {
            "$push": {"readings": reading(number)}, "$inc": {"n": 1}, "$min": {"min": temperature(number)},
        },
        "upsert": true,
    };
    doc! {"update": "hours", "updates": [update]}
}

/// Whether a write was done.
fn accepts(client: &mut Client, database: &str, command: Document) -> Result<bool> {
    let reply = client.reply(database, command.as_raw())?;
    Ok(reply.get("writeErrors").and_then(RawValue::as_array).is_none_or(|errors| errors.is_empty()))
}

fn shown(number: Option<i64>) -> String {
    number.map_or("unknown".to_owned(), |number| number.to_string())
}
