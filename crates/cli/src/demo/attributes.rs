//! A catalogue with attributes: each kind of product has fields of its own, and one index answers for all of them.

use anyhow::{Context, Result};
use kilim_bson::{Document, RawValue, doc};
use kilim_client::{Client, whole};

use super::{BY_HAND, DECLARED};
use crate::connect::explained;
use crate::output::say;
use crate::text::grouped;

const PRODUCTS: i32 = 600;
const KINDS: i32 = 20;

/// Asks both catalogues for two attributes at once; whether the declared one finds what there is.
pub(super) fn show(client: &mut Client) -> Result<bool> {
    client.run(DECLARED, declaration()).map_err(explained)?;
    let products: Vec<Document> = (0..PRODUCTS).map(product).collect();
    for database in [BY_HAND, DECLARED] {
        client.run(database, doc! {"insert": "gear", "documents": products.clone()})?;
    }
    let asked = doc! {"specs.color": "blue", "specs.load_3": {"$gte": 100}};
    let right = products.iter().filter(|product| is_asked_for(product)).count() as i64;
    let (plain, declared) = (looked_at(client, BY_HAND, &asked)?, looked_at(client, DECLARED, &asked)?);
    say!(
        "A catalogue of {} products with {} attributes, a few each. {{color: blue, load_3: ≥ 100}} finds {}.\n\
         Without an index an attribute, {} documents are looked at; declared, with one index for all: {}.\n",
        grouped(i64::from(PRODUCTS)),
        grouped(i64::from(KINDS * 2 + 1)),
        grouped(declared.0),
        grouped(plain.1),
        grouped(declared.1),
    )?;
    Ok(declared.0 == right && plain.0 == right)
}

fn declaration() -> Document {
    doc! {"createPattern": "gear", "name": "specs",
    "attribute": {"paths": ["specs.*"], "as": "specsKv", "store": "flat"}}
}

/// Each has a color, and two attributes that only its kind has.
fn product(id: i32) -> Document {
    let kind = id % KINDS;
    let mut specs = doc! {"color": ["black", "blue", "red"][(id / KINDS) as usize % 3]};
    specs.push(&format!("load_{kind}"), 50 + id % 170);
    specs.push(&format!("width_{kind}"), 10 + id % 90);
    doc! {"_id": id, "name": format!("Product {id}"), "specs": specs}
}

fn is_asked_for(product: &Document) -> bool {
    let specs = product.get("specs").and_then(RawValue::as_document);
    specs.is_some_and(|specs| {
        specs.get("color").and_then(RawValue::as_str) == Some("blue")
            && whole(specs.get("load_3")).is_some_and(|load| load >= 100)
    })
}

/// How many documents a filter finds, and how many were looked at for that.
fn looked_at(client: &mut Client, database: &str, filter: &Document) -> Result<(i64, i64)> {
    let find = doc! {"find": "gear", "filter": filter.clone()};
    let told = client.run(database, doc! {"explain": find, "verbosity": "executionStats"});
    let told = told.map_err(explained)?;
    let stats =
        told.get("executionStats").and_then(RawValue::as_document).context("explain tells nothing")?;
    let number = |name: &str| whole(stats.get(name)).with_context(|| format!("explain tells no {name}"));
    Ok((number("nReturned")?, number("totalDocsExamined")?))
}
