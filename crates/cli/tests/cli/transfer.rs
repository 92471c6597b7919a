//! `kilim dump`, `restore`, `import` and `export` as people type them, right and wrong.

use std::fs;
use std::path::Path;

use kilim_bson::{Document, RawValue, Value, doc, parse_extended_json};
use kilim_client::{Client, Uri};

use crate::running::{Running, output, output_with};

struct Place {
    _server: Running,
    uri: String,
    client: Client,
    folder: tempfile::TempDir,
}

impl Place {
    fn open() -> Place {
        let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
        let uri = format!("mongodb://{}/shop", server.address);
        let client = Client::connect(uri.parse::<Uri>().unwrap().address()).unwrap();
        Place { _server: server, uri, client, folder: tempfile::tempdir().unwrap() }
    }

    fn ask(&mut self, command: Document) -> Document {
        self.client.run("shop", command).unwrap()
    }

    fn count(&mut self, collection: &str) -> i64 {
        kilim_client::whole(self.ask(doc! {"count": collection}).get("n")).unwrap()
    }

    fn kilim(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        output(&[arguments, &["--uri", &self.uri]].concat())
    }

    fn import(&self, text: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
        output_with(text, &[&["import", "--uri", &self.uri, "--collection", "c"], arguments].concat())
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
}

#[test]
fn a_filter_needs_no_spaces() {
    let mut place = Place::open();
    place.ask(doc! {"insert": "c", "documents": [{"_id": 1, "s": "open"}, {"_id": 2, "s": "done"}, {"_id": 3, "s": "open"}]});
    let arguments = ["export", "--collection", "c", "--query", r#"{s:"open"}"#, "--sort", "{_id:-1}"];
    let (code, shown, message) = place.kilim(&arguments);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(shown, "{\"_id\":3,\"s\":\"open\"}\n{\"_id\":1,\"s\":\"open\"}\n");
}

#[test]
fn a_query_understands_the_literals_of_the_shell() {
    let mut place = Place::open();
    let document = r#"{"_id": {"$oid": "0123456789abcdef01234567"}, "at": {"$date": "2024-03-01T00:00:00Z"}, "s": "abc",
        "u": {"$uuid": "c8edabc3-f738-4ca3-b68d-ab92a91478a3"}, "n": {"$numberDecimal": "1.5"},
        "t": {"$timestamp": {"t": 5, "i": 1}}, "b": {"$binary": {"base64": "AAEC", "subType": "00"}}}"#;
    place.ask(
        doc! {"insert": "c", "documents": [kilim_bson::parse_extended_json(document).unwrap(), {"_id": 2}]},
    );
    for query in [
        r#"{at: {$gt: ISODate("2024-02-29")}}"#,
        r#"{at: {$lt: new Date()}}"#,
        r#"{_id: ObjectId("0123456789abcdef01234567")}"#,
        "{s: /^A/i}",
        "{n: {$gt: NumberInt(1), $lt: NumberLong(2), $ne: NumberDecimal(\"7\")}}",
        r#"{u: UUID("c8edabc3-f738-4ca3-b68d-ab92a91478a3")}"#,
        "{t: Timestamp(5, 1)}",
        r#"{b: BinData(0, "AAEC")}"#,
        "{s: {$gt: MinKey, $lt: MaxKey, $exists: true}}",
        "{s: abc}",
        r#"at: {$gt: ISODate("2024-02-29")}"#,
    ] {
        for verb in [&["export"][..], &["dump", "--replace", "--out", &place.path("dump")]] {
            let (code, shown, message) =
                place.kilim(&[verb, &["--collection", "c", "--query", query]].concat());
            assert_eq!(code, Some(0), "{query}: {message}");
            let found = shown.lines().count() == 1 && !shown.starts_with("0 documents");
            assert!(found, "{verb:?} {query}: {shown}{message}");
        }
    }
    for (query, place_in_it) in [
        (r#"{at: {$gt: IsoDate("2024-02-29")}}"#, "line 1, column 12"),
        ("{at: {$gt: 2024-02-29}}", "line 1, column 12"),
        ("{_id: ObjectId(5)}", "line 1, column 7"),
    ] {
        let (code, shown, message) = place.kilim(&["export", "--collection", "c", "--query", query]);
        assert_eq!((code, &*shown), (Some(1), ""), "{query}");
        assert!(message.contains("--query") && message.contains(place_in_it), "{query}: {message}");
    }
}

#[test]
fn what_a_validator_refuses_today_is_restored_all_the_same() {
    let mut place = Place::open();
    place.ask(doc! {"insert": "c", "documents": [{"_id": 1, "a": "old"}]});
    place.ask(doc! {"collMod": "c", "validator": {"a": {"$type": "int"}}});
    let dump = place.path("dump");
    assert_eq!(place.kilim(&["dump", "--out", &dump]).0, Some(0));
    let (code, shown, message) = place.kilim(&["restore", &dump, "--drop"]);
    assert_eq!((code, place.count("c")), (Some(0), 1), "{shown}{message}");
}

#[test]
fn one_index_that_is_refused_leaves_the_others() {
    let mut place = Place::open();
    let dump = place.path("dump");
    let folder = Path::new(&dump).join("shop");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("c.bson"), doc! {"_id": 1, "a": 5}.as_bytes()).unwrap();
    let metadata = r#"{"options": {}, "indexes": [{"v": 2, "key": {"_id": 1}, "name": "_id_"},
        {"v": 2, "key": {"at": "nonsense"}, "name": "place"},
        {"v": 2, "key": {"a": 1}, "name": "a_1"}], "collectionName": "c", "type": "collection"}"#;
    fs::write(folder.join("c.metadata.json"), metadata).unwrap();
    fs::write(folder.join("d.bson"), doc! {"_id": 1}.as_bytes()).unwrap();
    fs::write(
        folder.join("d.metadata.json"),
        r#"{"options": {"encryptedFields": {"fields": []}}, "indexes": []}"#,
    )
    .unwrap();
    fs::write(folder.join("e.bson"), doc! {"_id": 1}.as_bytes()).unwrap();
    let (code, shown, message) = place.kilim(&["restore", &dump]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        message.contains("2 refused") && message.contains("place") && message.contains("encryptedFields"),
        "{message}"
    );
    assert_eq!((place.count("c"), place.count("d"), place.count("e")), (1, 0, 1));
    let indexes = place.ask(doc! {"listIndexes": "c"});
    let cursor = indexes.get("cursor").and_then(RawValue::as_document).unwrap();
    let names = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap();
    assert_eq!(names.iter().count(), 2);
}

#[test]
fn a_time_series_collection_comes_back_with_its_buckets() {
    let mut place = Place::open();
    let seconds = doc! {"bucketMaxSpanSeconds": 7200, "bucketRoundingSeconds": 7200};
    let mut series = doc! {"timeField": "t", "metaField": "k"};
    seconds.iter().for_each(|(name, value)| series.push(name, value));
    place.ask(doc! {"create": "m", "timeseries": series});
    let index = doc! {"key": {"k": 1, "v": -1}, "name": "i", "partialFilterExpression": {"v": {"$gt": 10}}};
    place.ask(doc! {"createIndexes": "m", "indexes": [index]});
    let at = |hour: i64| Value::DateTime(1_700_000_000_000 + hour * 3_600_000);
    let measurements: Vec<Value> = (0..50)
        .map(|number| {
            Value::Document(doc! {"t": at(number / 5), "k": number % 5, "_id": number, "v": number})
        })
        .collect();
    place.ask(doc! {"insert": "m", "documents": measurements});
    let told = |place: &mut Place| {
        let asked = [doc! {"listIndexes": "m"}, doc! {"listCollections": 1, "filter": {"name": "m"}}];
        asked.map(|command| {
            let reply = place.ask(command);
            reply.get("cursor").and_then(RawValue::as_document).map(|cursor| cursor.to_document())
        })
    };
    let before = told(&mut place);
    let dump = place.path("series");
    let (code, shown, message) = place.kilim(&["dump", "--out", &dump]);
    assert_eq!(code, Some(0), "{shown}{message}");
    place.ask(doc! {"drop": "m"});
    let (code, shown, message) = place.kilim(&["restore", &dump]);
    assert_eq!(code, Some(0), "{shown}{message}");
    assert_eq!(place.count("m"), 50);
    assert_eq!(told(&mut place), before);
}

#[test]
fn long_and_odd_names_come_back() {
    let mut place = Place::open();
    let names = ["x".repeat(240), "ü/".repeat(60), "a%2Fb".to_owned(), "new\nline".to_owned()];
    for name in &names {
        place.ask(doc! {"insert": &**name, "documents": [{"_id": 1}]});
    }
    let dump = place.path("dump");
    for gzip in [&["--gzip"][..], &[]] {
        let (code, _, message) = place.kilim(&[&["dump", "--out", &dump], gzip].concat());
        assert_eq!(code, Some(0), "{message}");
        let (code, _, message) = place.kilim(&["restore", &dump, "--drop"]);
        assert_eq!(code, Some(0), "{message}");
        fs::remove_dir_all(&dump).unwrap();
        for name in &names {
            assert_eq!(place.count(name), 1, "{name}");
        }
    }
}

#[test]
fn a_database_that_is_not_there_is_no_backup() {
    let place = Place::open();
    let (code, _, message) = place.kilim(&["dump", "--db", "shpo", "--out", &place.path("dump")]);
    assert_eq!(code, Some(1));
    assert!(message.contains("there is no database shpo"), "{message}");
}

#[test]
fn a_quote_that_is_never_closed_swallows_no_table() {
    let mut place = Place::open();
    let (code, _, message) = place.import("a,b\n1,2\n\"open,3\n4,5\n", &["--type", "csv"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("a quoted cell has no end"), "{message}");
    assert_eq!(place.count("c"), 1);
    let (code, _, message) = place.import("a,b\n\"x\n\"\"y\"\"\",5\" pipe\n", &["--type", "csv"]);
    assert_eq!((code, place.count("c")), (Some(0), 2), "{message}");
}

#[test]
fn text_that_breaks_off_says_how_much_was_written() {
    let mut place = Place::open();
    let (code, _, message) = place.import("{\"a\": 1}\n{\"a\": ", &[]);
    assert_eq!((code, place.count("c")), (Some(1), 1));
    assert!(message.contains("with 1 documents written"), "{message}");
}

#[test]
fn an_import_names_the_line_that_is_at_fault() {
    let mut place = Place::open();
    place.ask(doc! {"insert": "c", "documents": [{"_id": 1}]});
    let table = "_id,n\r\n\r\n2,\"two\nlines\"\r\n3,x,y\r\n1,again\r\n\n\"4,open\n";
    let types = ["--type", "csv"];
    let (code, _, message) = place.import(table, &types);
    assert_eq!((code, place.count("c")), (Some(1), 2), "{message}");
    assert!(message.contains("line 5: 3 cells for 2 columns"), "{message}");
    assert!(message.contains("line 6: E11000"), "{message}");
    assert!(message.contains("line 8: a quoted cell has no end"), "{message}");
    let (code, _, message) = place.import("_id\n\n5\nx\n", &["--type", "csv", "--columns", "_id.int32()"]);
    assert_eq!((code, place.count("c")), (Some(1), 3), "{message}");
    assert!(
        message.contains("line 1: column '_id'") && message.contains("line 4: column '_id'"),
        "{message}"
    );
    let (code, _, message) = place.import("a,a..b\n1,2\n", &types);
    assert!(code == Some(1) && message.contains("line 1"), "{message}");

    let lines = "\n{\"_id\": 6}\n{\"_id\": 7,\n \"a\": tru}\n[{\"_id\": 1},\n{\"_id\": {\"$oid\": 5}}]\n{\"_id\": 8} x";
    let (code, _, message) = place.import(lines, &[]);
    assert_eq!((code, place.count("c")), (Some(1), 5), "{message}");
    assert!(message.contains("line 7"), "{message}");
    let (code, _, message) = place.import(&lines[..lines.len() - 2], &["--drop"]);
    assert_eq!((code, place.count("c")), (Some(1), 3), "{message}");
    assert!(message.contains("line 4, column 7: ") && message.contains("line 6, column 9: "), "{message}");
    let (code, _, message) = place.import("{\"_id\": 9}\n{\"_id\": 8}\n", &["--stop-on-error"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("line 2: E11000") && message.contains("1 documents were written"), "{message}");
}

#[test]
fn an_import_understands_the_literals_of_the_shell() {
    let mut place = Place::open();
    let text = "[{_id: ObjectId(\"0123456789abcdef01234567\"), at: ISODate(\"2024-03-01\"), s: 'a {'},\n{_id: open}]";
    let (code, _, message) = place.import(text, &[]);
    assert_eq!(code, Some(1));
    assert!(message.contains("line 2, column 7: 'open' is no value"), "{message}");
    let json = r#"{"_id": {"$oid": "0123456789abcdef01234567"}, "at": {"$date": "2024-03-01T00:00:00Z"}, "s": "a {"}"#;
    let found = place.client.all("shop", doc! {"find": "c"}).unwrap();
    assert_eq!(found, [kilim_bson::parse_extended_json(json).unwrap()]);
}

#[test]
fn a_merge_gives_a_new_document_the_id_that_is_given() {
    let mut place = Place::open();
    place.ask(doc! {"insert": "c", "documents": [{"_id": 1, "sku": "a", "old": true}]});
    let text = r#"{"_id": 7, "sku": "a", "n": 1} {"_id": 8, "sku": "b", "n": 2} {"sku": "c"}"#;
    let (code, shown, message) = place.import(text, &["--mode", "merge", "--by", "sku"]);
    assert_eq!((code, shown.trim()), (Some(0), "3 documents merged"), "{message}");
    let found = place.client.all("shop", doc! {"find": "c", "sort": {"sku": 1}}).unwrap();
    assert_eq!(found[0], doc! {"_id": 1, "sku": "a", "old": true, "n": 1});
    assert_eq!(found[1].get("_id").and_then(|id| kilim_client::whole(Some(id))), Some(8));
    assert_eq!(found.len(), 3);
    let (code, shown, message) = place.import(r#"{"_id": 8, "n": 3} {"_id": 9}"#, &["--mode", "merge"]);
    assert_eq!((code, shown.trim()), (Some(0), "2 documents merged"), "{message}");
    assert_eq!(place.count("c"), 4);
}

#[test]
fn a_delete_says_what_was_deleted() {
    let mut place = Place::open();
    place.ask(doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3}]});
    let (code, shown, message) = place.import(r#"{"_id": 1} {"_id": 2} {"_id": 9}"#, &["--mode", "delete"]);
    assert_eq!((code, shown.trim()), (Some(0), "2 documents deleted, 1 were not there"), "{message}");
    let (code, shown, message) = place.import("{\"a\": 1}\n{\"_id\": 3}\n", &["--mode", "delete"]);
    assert_eq!((code, shown.trim(), place.count("c")), (Some(1), "1 documents deleted", 0), "{message}");
    assert!(message.contains("line 1: a document has no '_id'"), "{message}");
}

#[test]
fn what_cannot_be_read_as_a_table_ends_the_import() {
    let place = Place::open();
    let folder = place.path("");
    for kind in ["csv", "tsv", "json"] {
        let (code, _, message) = place.kilim(&["import", "--collection", "c", "--type", kind, &folder]);
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains("directory"), "{message}");
    }
}

#[test]
fn long_arrays_come_back_with_their_pages() {
    for read in ["preview", "whole"] {
        let (mut place, mut other) = (Place::open(), Place::open());
        let declare = doc! {"createPattern": "users", "name": "fans", "outlier": {
            "field": "f", "limit": 3, "pageSize": 4, "count": "n", "read": read,
        }};
        place.ask(declare);
        let array = |len: i32| (0..len).map(Value::Int32).collect::<Vec<_>>();
        let documents: Vec<Value> = (0..9).map(|id| doc! {"_id": id, "f": array(id * id)}.into()).collect();
        place.ask(doc! {"insert": "users", "documents": documents});
        place.ask(
            doc! {"update": "users", "updates": [{"q": {"_id": 8}, "u": {"$pull": {"f": {"$mod": [3, 1]}}}}]},
        );
        let dump = place.path("dump");
        let (code, _, message) = place.kilim(&["dump", "--out", &dump]);
        assert_eq!(code, Some(0), "{message}");
        let (code, shown, message) = other.kilim(&["restore", &dump]);
        assert_eq!(code, Some(0), "{shown}{message}");
        let all = doc! {"find": "users", "sort": {"_id": 1}, "projection": {"f": {"$slice": 1000}}};
        let seen = |place: &mut Place| {
            let waited = doc! {"waitPattern": "users", "name": "fans", "timeoutMS": 20_000};
            place.ask(waited);
            let reply = place.ask(all.clone());
            format!(
                "{:?}",
                reply
                    .get("cursor")
                    .and_then(RawValue::as_document)
                    .unwrap()
                    .get("firstBatch")
                    .unwrap()
                    .to_value()
            )
        };
        assert_eq!(seen(&mut place), seen(&mut other), "{read}");
        // What is there keeps its elements: they are not appended a second time.
        let before = seen(&mut other);
        let (code, shown, message) = other.kilim(&["restore", &dump]);
        assert_ne!(code, Some(0), "{shown}{message}");
        assert_eq!(seen(&mut other), before);
        let verified = other.ask(doc! {"verifyPattern": "users", "name": "fans"});
        assert_eq!(kilim_client::whole(verified.get("wrong")), Some(0), "{verified:?}");
        assert_eq!(place.count("users.overflow") > 0, other.count("users.overflow") > 0);
        let found = other.ask(doc! {"count": "users", "query": {"f": 48}});
        assert_eq!(kilim_client::whole(found.get("n")), Some(2), "{found:?}");
    }
}

#[test]
fn a_directory_is_no_file_to_import() {
    let place = Place::open();
    let folder = place.path("");
    let (code, _, message) = place.import("", &[&folder]);
    assert!(code == Some(1) && message.contains(&folder) && message.contains("is a directory"), "{message}");
}

/// A server with a collection whose long array continues in pages, and a second one.
fn with_pages(read: &str) -> Place {
    let mut place = Place::open();
    place.ask(doc! {"createPattern": "users", "name": "fans", "outlier": {
        "field": "f", "limit": 3, "pageSize": 4, "count": "n", "read": read,
    }});
    let array = |len: i32| (0..len).map(Value::Int32).collect::<Vec<_>>();
    let documents: Vec<Value> = (0..9).map(|id| doc! {"_id": id, "f": array(id * id)}.into()).collect();
    place.ask(doc! {"insert": "users", "documents": documents});
    place.ask(doc! {"insert": "teams", "documents": [{"_id": 1, "f": 3}]});
    place.ask(doc! {"createPattern": "teams", "name": "card", "extendedReference": {
    "from": "users", "localField": "f", "as": "user", "fields": {"n": 1}}});
    place
}

/// How long all arrays are, and whether what is declared of them is true.
fn lengths(place: &mut Place) -> Vec<usize> {
    let verified = place.ask(doc! {"verifyPattern": "users", "name": "fans"});
    assert_eq!(kilim_client::whole(verified.get("wrong")), Some(0), "{verified:?}");
    let all = doc! {"find": "users", "sort": {"_id": 1}, "projection": {"f": {"$slice": 1000}}};
    let found = place.client.all("shop", all).unwrap();
    found.iter().map(|each| each.get("f").and_then(RawValue::as_array).unwrap().iter().count()).collect()
}

#[test]
fn one_collection_is_dumped_and_restored_with_its_pages() {
    for read in ["preview", "whole"] {
        let mut place = with_pages(read);
        let whole = lengths(&mut place);
        assert_eq!(whole, (0..9).map(|id| id * id).collect::<Vec<usize>>());
        let (dump, one) = (place.path("dump"), place.path("one"));
        let (code, _, message) = place.kilim(&["dump", "--out", &dump]);
        assert_eq!(code, Some(0), "{message}");
        let (code, _, message) = place.kilim(&["dump", "--collection", "users", "--out", &one]);
        assert_eq!(code, Some(0), "{message}");
        assert!(!Path::new(&one).join("shop/teams.bson").exists());
        for folder in [&dump, &one] {
            let what = ["restore", "--collection", "users", "--drop", folder];
            let (code, shown, message) = place.kilim(&what);
            assert_eq!(code, Some(0), "{shown}{message}");
            assert_eq!(lengths(&mut place), whole, "{read} {folder}");
            // Elsewhere too, and nothing else comes along.
            let mut other = Place::open();
            let (code, shown, message) = other.kilim(&["restore", "--collection", "users", folder]);
            assert_eq!(code, Some(0), "{shown}{message}");
            assert_eq!(lengths(&mut other), whole, "{read} {folder}");
            assert_eq!((other.count("kilim.patterns"), other.count("teams")), (1, 0), "{read} {folder}");
            // What is there already is told, and nothing is appended twice.
            let (code, ..) = other.kilim(&["restore", "--collection", "users", folder]);
            assert_eq!(code, Some(1), "{read} {folder}");
            assert_eq!(lengths(&mut other), whole, "{read} {folder}");
        }
        assert_eq!(place.count("kilim.patterns"), 2, "the declaration of another collection stays");
    }
}

#[test]
fn a_part_of_a_collection_with_pages_is_not_dumped_without_them() {
    let place = with_pages("preview");
    let dump = place.path("part");
    let some = ["dump", "--collection", "users", "--query", "{_id: {$gt: 4}}", "--out", &dump];
    let (code, _, message) = place.kilim(&some);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("continues in pages") && message.contains("kilim export"), "{message}");
    assert!(!Path::new(&dump).exists());
}

#[test]
fn an_export_has_the_whole_of_arrays_that_continue_in_pages() {
    let mut place = with_pages("preview");
    let export = |place: &Place, more: &[&str]| {
        let (code, shown, message) = place.kilim(&[&["export", "--collection", "users"], more].concat());
        assert_eq!(code, Some(0), "{message}");
        shown
    };
    let whole = lengths(&mut place);
    let last = |shown: &str| parse_extended_json(shown.lines().last().unwrap()).unwrap();
    let names = |document: &Document| document.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    for (more, expected) in [
        (&["--sort", "{_id: 1}"][..], &["_id", "f", "hasOverflow", "n"][..]),
        (&["--sort", "{_id: 1}", "--fields", "f"], &["_id", "f"]),
        (&["--sort", "{_id: 1}", "--fields", "n,f"], &["_id", "f", "n"]),
        (&["--sort", "{_id: 1}", "--fields", "n"], &["_id", "n"]),
    ] {
        let document = last(&export(&place, more));
        assert_eq!(names(&document), expected, "{more:?}");
        if let Some(array) = document.get("f").and_then(RawValue::as_array) {
            assert_eq!(array.iter().count(), 64, "{more:?}");
        }
    }
    let table = export(&place, &["--type", "csv", "--fields", "_id,f.63", "--query", "{_id: 8}"]);
    assert_eq!(table, "_id,f.63\n8,63\n");
    let (code, _, message) = place.kilim(&["export", "--collection", "users", "--fields", "f.x"]);
    assert!(code == Some(1) && message.contains("continues in pages"), "{message}");
    // And it comes back.
    let text = export(&place, &[]);
    place.ask(doc! {"delete": "users", "deletes": [{"q": {}, "limit": 0}]});
    let (code, _, message) = output_with(&text, &["import", "--uri", &place.uri, "--collection", "users"]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(lengths(&mut place), whole);
}

#[test]
fn one_collection_comes_back_with_its_buckets_and_versions() {
    let mut place = Place::open();
    place.ask(doc! {"create": "m", "timeseries": {"timeField": "t", "metaField": "k"}});
    let at = |minute: i64| Value::DateTime(1_700_000_000_000 + minute * 60_000);
    let each = |number: i64| Value::Document(doc! {"_id": number, "t": at(number), "k": number % 3, "v": 1});
    let measurements: Vec<Value> = (0..50).map(each).collect();
    place.ask(doc! {"insert": "m", "documents": measurements.clone()});
    place.ask(doc! {"create": "readings"});
    place.ask(doc! {"createPattern": "readings", "name": "b", "bucket": {
    "timeField": "t", "metaField": "k", "maxCount": 10}});
    place.ask(doc! {"insert": "readings", "documents": measurements.clone()});
    place.ask(doc! {"insert": "people", "documents": measurements});
    place.ask(doc! {"createPattern": "people", "name": "v", "schemaVersion": {
    "field": "version", "from": 1, "to": 2, "up": [{"$set": {"w": "$v"}}], "down": [{"$unset": "w"}]}});
    let all = |place: &mut Place, name: &str| {
        place.client.all("shop", doc! {"find": name, "sort": {"_id": 1}}).unwrap()
    };
    for name in ["m", "readings", "people"] {
        let before = all(&mut place, name);
        let (dump, one) = (place.path(&format!("all-{name}")), place.path(&format!("one-{name}")));
        for (arguments, folder) in [(&["dump"][..], &dump), (&["dump", "--collection", name], &one)] {
            let (code, _, message) = place.kilim(&[arguments, &["--out", folder]].concat());
            assert_eq!(code, Some(0), "{message}");
            let mut other = Place::open();
            let (code, shown, message) = other.kilim(&["restore", "--collection", name, folder]);
            assert_eq!(code, Some(0), "{shown}{message}");
            assert_eq!(all(&mut other, name), before, "{name}");
            assert_eq!(other.count("kilim.patterns"), i64::from(name != "m"), "{name}");
        }
        // Damage is seen in the buckets of the one collection that is asked for, too.
        if name == "m" {
            fs::write(Path::new(&dump).join("shop/system.buckets.m.bson"), "damaged").unwrap();
            let (code, _, message) = place.kilim(&["restore", "--collection", "m", "--drop", &dump]);
            assert!(code == Some(1) && message.contains("not as it was written"), "{message}");
            assert_eq!(place.count("m"), 50);
        }
    }
}
