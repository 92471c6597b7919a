//! Dumps carried from Kilim to mongod and back: documents, indexes and options arrive as they were.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::{Document, RawValue, Value, doc, parse_extended_json};
use kilim_client::Client;

use crate::oracle::Oracle;
use crate::subject::{Running, Storage, Subject};

const DATABASE: &str = "carried";

/// A document with every type that both sides store.
const ALL_TYPES: &str = r#"{"_id": {"$oid": "5f5e1b1c2d3e4f5061728394"}, "double": 0.1, "nan": {"$numberDouble": "NaN"},
    "minus zero": {"$numberDouble": "-0.0"}, "text": "grüße\u0000\uD83D\uDE00", "empty": {}, "list": [1, [2, {"a": []}], null],
    "binary": {"$binary": {"base64": "AAEC/w==", "subType": "80"}}, "uuid": {"$uuid": "c8edabc3-f738-4ca3-b68d-ab92a91478a3"},
    "yes": true, "date": {"$date": {"$numberLong": "-62135596800001"}}, "none": null, "pattern": {"$regularExpression":
    {"pattern": "a/b", "options": "im"}}, "code": {"$code": "x"}, "scoped": {"$code": "x", "$scope": {"y": 1}},
    "symbol": {"$symbol": "s"}, "int": 1, "long": {"$numberLong": "9007199254740993"}, "decimal": {"$numberDecimal": "1.10E+3"},
    "stamp": {"$timestamp": {"t": 4294967295, "i": 1}}, "min": {"$minKey": 1}, "max": {"$maxKey": 1}}"#;

/// Runs the round trip; what it did.
pub fn check(binary: &Path, tools: &Path) -> Result<String> {
    let mongod = Oracle::start(tools)?;
    let (first, second) = (start(binary, Storage::Memory)?, start(binary, Storage::Disk)?);
    let folder = tempfile::tempdir()?;
    let mut kilim = first.connect()?;
    load(&mut kilim)?;
    let mut original = contents(&mut kilim)?;

    let there = folder.path().join("there");
    run(binary, &["dump", "--gzip", "--uri", &first.uri(), "--db", DATABASE, "--out", &path(&there)])?;
    run(binary, &["restore", "--uri", &mongod.uri(), &path(&there)])?;
    let mut oracle = Client::connect(mongod.address())?;
    same(&original, &contents(&mut oracle)?, "from Kilim to mongod")?;

    oracle.run(DATABASE, doc! {"insert": "orders", "documents": [{"_id": "from mongod", "n": -1}]})?;
    oracle.run(DATABASE, doc! {"insert": "measured", "documents": measurements(3000..6000)})?;
    let compressed = doc! {"find": "system.buckets.measured", "filter": {"control.version": 2}};
    ensure!(!oracle.all(DATABASE, compressed)?.is_empty(), "mongod has compressed no bucket");
    original = contents(&mut oracle)?;
    let back = folder.path().join("back");
    run(binary, &["dump", "--uri", &mongod.uri(), "--db", DATABASE, "--out", &path(&back)])?;
    run(binary, &["restore", "--uri", &second.uri(), &path(&back)])?;
    let mut other = second.connect()?;
    same(&original, &contents(&mut other)?, "from mongod to Kilim")?;

    // The same once more in place of what is there, and as text.
    run(binary, &["restore", "--drop", "--uri", &second.uri(), &path(&back)])?;
    same(&original, &contents(&mut other)?, "restored twice")?;
    let text = folder.path().join("orders.json");
    let uri = format!("{}/{DATABASE}", second.uri().trim_end_matches('/'));
    for array in [&["--json-array"][..], &[]] {
        let export = [
            "export",
            "--uri",
            &uri,
            "--collection",
            "orders",
            "--json-format",
            "canonical",
            "--out",
            &path(&text),
        ];
        run(binary, &[&export[..], array].concat())?;
        run(binary, &["import", "--uri", &uri, "--collection", "copied", "--drop", &path(&text)])?;
        let documents = |client: &mut Client, name: &str| {
            client.all(DATABASE, doc! {"find": name, "sort": {"_id": 1}}).context("cannot read back")
        };
        let copied = documents(&mut other, "copied")?;
        ensure!(
            copied == documents(&mut other, "orders")?,
            "documents change when they are exported and imported"
        );
    }
    let count: usize = original.iter().map(|collection| collection.documents.len()).sum();
    Ok(format!("{} collections, {count} documents, there and back", original.len()))
}

fn start(binary: &Path, storage: Storage) -> Result<Running> {
    Subject::for_tests(binary, storage)?.start()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

fn run(binary: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new(binary).args(arguments).output()?;
    if !output.status.success() {
        bail!("kilim {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn load(client: &mut Client) -> Result<()> {
    let mut run = |command: Document| client.run(DATABASE, command);
    run(doc! {"insert": "types", "documents": [parse_extended_json(ALL_TYPES)?]})?;
    let order =
        |n: i32| doc! {"_id": n, "customer": {"name": format!("c{}", n % 7)}, "tags": [n % 3, n % 5], "n": n};
    let orders: Vec<kilim_bson::Value> = (0..2500).map(|n| order(n).into()).collect();
    run(doc! {"insert": "orders", "documents": kilim_bson::Array::from_iter(orders)})?;
    let indexes = [
        doc! {"key": {"n": 1}, "name": "n_1", "unique": true},
        doc! {"key": {"customer.name": 1, "tags": -1}, "name": "by customer"},
        doc! {"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 3600, "sparse": true},
        doc! {"key": {"tags": 1}, "name": "tags_1", "partialFilterExpression": {"n": {"$gt": 5}}, "hidden": true},
    ];
    let indexes = kilim_bson::Array::from_iter(indexes.map(kilim_bson::Value::from));
    run(doc! {"createIndexes": "orders", "indexes": indexes})?;
    run(doc! {"insert": "odd/name %41 ü", "documents": [{"_id": 1}]})?;
    run(doc! {"create": "nothing in it"})?;
    // An index of the simple collation must not come back with the collection's.
    run(doc! {"create": "words", "collation": {"locale": "en", "strength": 2}})?;
    let indexes = [
        doc! {"key": {"t": 1}, "name": "t"},
        doc! {"key": {"t": 1}, "name": "t_simple", "collation": {"locale": "simple"}},
        doc! {"key": {"u": (-1)}, "name": "u", "unique": true, "collation": {"locale": "fr_CA", "numericOrdering": true}},
    ];
    let indexes = kilim_bson::Array::from_iter(indexes.map(kilim_bson::Value::from));
    run(doc! {"createIndexes": "words", "indexes": indexes})?;
    run(
        doc! {"insert": "words", "documents": [{"_id": "a", "t": "x", "u": "v2"}, {"_id": "b", "t": "X", "u": "v10"}]},
    )?;
    let series = doc! {"timeField": "t", "metaField": "sensor", "granularity": "seconds"};
    run(doc! {"create": "measured", "timeseries": series, "expireAfterSeconds": 1_000_000_000i64})?;
    run(
        doc! {"createIndexes": "measured", "indexes": [{"key": {"sensor": 1, "t": -1}, "name": "by sensor"}]},
    )?;
    run(doc! {"insert": "measured", "documents": measurements(0..3000)})?;
    run(doc! {"create": "late", "viewOn": "orders", "pipeline": [{"$match": {"n": {"$gte": 2000}}}]})?;
    Ok(())
}

/// Measurements of three sensors, one every seven seconds, some fields of which are of several types or missing.
fn measurements(numbers: std::ops::Range<i32>) -> kilim_bson::Array {
    let measurement = |n: i32| {
        let time = Value::DateTime(1_700_000_000_000 + i64::from(n) * 7000);
        let mut one = doc! {"_id": n, "t": time, "sensor": {"id": n % 3}, "value": f64::from(n % 100) / 8.0};
        match n % 50 {
            7 => one.push("note", "grüße"),
            8 => one.push("note", doc! {"list": [n, Value::Null], "deep": {"x": n}}),
            _ => one.push("count", i64::from(n)),
        }
        Value::from(one)
    };
    numbers.map(measurement).collect()
}

/// What a server holds of a collection.
#[derive(Debug, PartialEq)]
struct Contents {
    name: String,
    options: Document,
    documents: Vec<Document>,
    indexes: Vec<Document>,
}

fn contents(client: &mut Client) -> Result<Vec<Contents>> {
    let mut found = Vec::new();
    for entry in client.all(DATABASE, doc! {"listCollections": 1})? {
        let name = entry.get("name").and_then(RawValue::as_str).unwrap_or_default().to_owned();
        if name.starts_with("system.") {
            continue;
        }
        let options =
            entry.get("options").and_then(RawValue::as_document).context("a collection has options")?;
        let is_view = entry.get("type").and_then(RawValue::as_str) == Some("view");
        let mut indexes = match is_view {
            true => Vec::new(),
            false => client.all(DATABASE, doc! {"listIndexes": &*name})?,
        };
        indexes.sort_by_key(|index| index.get("name").and_then(RawValue::as_str).map(str::to_owned));
        let mut documents = client.all(DATABASE, doc! {"find": &*name, "sort": {"_id": 1}})?;
        // On mongod, fields of measurements come in the order of a hash table.
        if options.get("timeseries").is_some() {
            documents.iter_mut().for_each(|document| *document = in_order(document));
        }
        found.push(Contents { options: options.to_document(), name, documents, indexes });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// A document with its fields in the order of their names.
fn in_order(document: &Document) -> Document {
    let mut fields: Vec<(&str, RawValue<'_>)> = document.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    fields.into_iter().map(|(name, value)| (name, value.to_value())).collect()
}

fn same(expected: &[Contents], found: &[Contents], way: &str) -> Result<()> {
    let names = |list: &[Contents]| list.iter().map(|one| one.name.clone()).collect::<Vec<String>>();
    ensure!(names(expected) == names(found), "{way}: {:?} became {:?}", names(expected), names(found));
    for (one, other) in expected.iter().zip(found) {
        let name = &one.name;
        ensure!(
            one.options == other.options,
            "{way}: options of {name}: {:?} became {:?}",
            one.options,
            other.options
        );
        ensure!(
            one.indexes == other.indexes,
            "{way}: indexes of {name}: {:?} became {:?}",
            one.indexes,
            other.indexes
        );
        ensure!(
            one.documents.len() == other.documents.len(),
            "{way}: {name} has other documents than before"
        );
        for (left, right) in one.documents.iter().zip(&other.documents) {
            ensure!(left.as_bytes() == right.as_bytes(), "{way}: in {name} {left:?} became {right:?}");
        }
    }
    Ok(())
}
