//! `kilim pattern` and `kilim apply` against a server.

use kilim_bson::{Document, Value, doc};
use kilim_client::{Client, Uri};

use crate::running::{Running, output, output_with};

struct Shop {
    _server: Running,
    uri: String,
    client: Client,
}

impl Shop {
    fn open() -> Shop {
        let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
        let uri = format!("mongodb://{}/shop", server.address);
        let client = Client::connect(uri.parse::<Uri>().unwrap().address()).unwrap();
        let mut shop = Shop { _server: server, uri, client };
        let customers = (0..3).map(|id| Value::Document(doc! {"_id": id, "name": format!("c{id}")}));
        shop.ask(doc! {"insert": "customers", "documents": Value::Array(customers.collect())});
        let orders = (0..30).map(|id| Value::Document(doc! {"_id": id, "customerId": id % 3}));
        shop.ask(doc! {"insert": "orders", "documents": Value::Array(orders.collect())});
        shop
    }

    fn ask(&mut self, command: Document) -> Document {
        self.client.run("shop", command).unwrap()
    }

    /// Exit code, standard output and standard error of the binary, told where the shop is.
    fn kilim(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        output(&[arguments, &["--uri", &self.uri]].concat())
    }

    fn succeeds(&self, arguments: &[&str]) -> String {
        let (code, shown, message) = self.kilim(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {message}");
        shown
    }

    fn declare(&self) {
        self.succeeds(&["pattern", "create", "orders", "card", "extendedReference", CARD]);
    }
}

const CARD: &str = "{from: customers, localField: customerId, as: customer, fields: {name: 1}}";

#[test]
fn a_pattern_is_declared_listed_shown_and_dropped() {
    let shop = Shop::open();
    assert!(shop.succeeds(&["pattern", "list"]).contains("shop has no patterns"));
    let tried =
        shop.succeeds(&["pattern", "create", "orders", "card", "extendedReference", CARD, "--dry-run"]);
    assert!(tried.contains("documents: 30"), "{tried}");
    shop.declare();
    let listed = shop.succeeds(&["pattern", "list"]);
    assert!(
        listed.lines().count() == 2 && listed.contains("card  extendedReference  active  customer"),
        "{listed}"
    );
    let json = shop.succeeds(&["pattern", "list", "orders", "--json"]);
    assert!(kilim_bson::parse_extended_json(&format!("{{\"patterns\": {json}}}")).is_ok(), "{json}");
    let shown = shop.succeeds(&["pattern", "show", "orders", "card"]);
    assert!(shown.contains("state      active") && shown.contains("  from: customers\n"), "{shown}");
    assert!(shop.succeeds(&["pattern", "jobs", "--wait"]).contains("nothing"));
    assert!(shop.succeeds(&["pattern", "drop", "orders", "card"]).contains("stay"));
    assert!(shop.succeeds(&["pattern", "list"]).contains("no patterns"));
}

#[test]
fn the_first_levels_of_a_tree_are_drawn() {
    let mut shop = Shop::open();
    let tree = "{parent: parent, ancestors: ancestors, depth: depth, order: order, descendantCount: below}";
    shop.succeeds(&["pattern", "create", "categories", "tree", "tree", tree]);
    let node = |id: &str, parent: &str| Value::Document(doc! {"_id": id, "parent": parent});
    let mut nodes =
        vec![node("rugs", "nobody"), node("wool", "rugs"), node("silk", "rugs"), node("raw", "wool")];
    nodes.push(node("deep", "raw"));
    nodes.extend((0..9).map(|number| Value::Document(doc! {"_id": number, "parent": "silk"})));
    shop.ask(doc! {"insert": "categories", "documents": Value::Array(nodes.into_iter().collect())});
    let shown = shop.succeeds(&["pattern", "show", "categories", "tree"]);
    let drawn = "\
└─ rugs (13 below)
   ├─ wool (2 below)
   │  └─ raw (1 below)
   └─ silk (9 below)
      ├─ 0
      ├─ 1
      ├─ 2
      ├─ 3
      ├─ 4
      ├─ 5
      └─ 3 more
";
    assert!(shown.ends_with(drawn), "{shown}");
}

#[test]
fn a_declaration_comes_from_standard_input_too() {
    let shop = Shop::open();
    let text = format!("createPattern: orders\nname: card\nextendedReference: {CARD}\n");
    let (code, shown, message) = output_with(
        &text,
        &["pattern", "create", "--file", "-", "--uri", &shop.uri, "--option", "onUserWrite=reject"],
    );
    assert_eq!(code, Some(0), "{message}");
    assert!(shown.contains("'card' is declared, and active"), "{shown}");
    assert!(shop.succeeds(&["pattern", "show", "orders", "card"]).contains("onUserWrite: reject"));
}

#[test]
fn verify_tells_by_its_exit_code() {
    let mut shop = Shop::open();
    shop.declare();
    assert!(shop.succeeds(&["pattern", "verify"]).contains("All true"));
    shop.succeeds(&["pattern", "pause", "orders", "card"]);
    shop.ask(doc! {"update": "customers", "updates": [{"q": {"_id": 1}, "u": {"$set": {"name": "Bea"}}}]});
    let (code, shown, _) = shop.kilim(&["pattern", "verify", "orders", "card", "--limit", "2"]);
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains("2 of 10 wrong") && shown.contains("{ name: c1 }  { name: Bea }"), "{shown}");
    let (code, shown, _) = shop.kilim(&["pattern", "verify", "orders", "card", "--filter", "{_id: 0}"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shop.succeeds(&["pattern", "resume", "orders", "card"]).contains("active"));
    shop.succeeds(&["pattern", "wait", "orders", "card", "--timeout", "10"]);
    assert!(shop.succeeds(&["pattern", "verify", "--json"]).contains("\"wrong\":0"));
    assert!(shop.succeeds(&["pattern", "repair"]).contains("All true"));
}

#[test]
fn restored_patterns_are_repaired_versions_first_and_one_that_cannot_be_keeps_none_back() {
    let mut shop = Shop::open();
    let mut restore = |target: &str, name: &str, kind: &str, spec: Document| {
        let definition = doc! {"createPattern": target, "name": name, (kind): spec};
        let document = doc! {
            "_id": format!("{target}.{name}"), "target": target, "name": name, "kind": kind,
            "definition": definition, "state": "active",
        };
        shop.ask(doc! {"insert": "kilim.patterns", "documents": [document]});
    };
    restore(
        "aside",
        "gone",
        "extendedReference",
        doc! {"from": "gone", "localField": "a", "as": "b", "fields": {"c": 1}},
    );
    let called =
        doc! {"from": "customers", "localField": "customerId", "as": "customer", "fields": {"called": 1}};
    restore("orders", "card", "extendedReference", called);
    for (name, from, to, old, new) in [("second", 2, 3, "title", "called"), ("first", 1, 2, "name", "title")]
    {
        let value = |field: &str| format!("${field}");
        let spec = doc! {
            "field": "v", "from": from, "to": to,
            "up": [{"$set": {(new): value(old)}}, {"$unset": old}],
            "down": [{"$set": {(old): value(new)}}, {"$unset": new}],
        };
        restore("customers", name, "schemaVersion", spec);
    }
    let (code, shown, message) = shop.kilim(&["pattern", "repair"]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(message.contains("1 of 4 patterns") && message.contains("gone does not exist"), "{message}");
    let places: Vec<Option<usize>> = ["first", "second", "card"].map(|name| shown.find(name)).into();
    assert!(places.is_sorted() && places[0].is_some(), "{shown}");
    let found =
        shop.ask(doc! {"find": "orders", "filter": {"customer.called": "c1"}, "projection": {"_id": 1}});
    let cursor = found.get("cursor").and_then(|cursor| cursor.as_document()).unwrap();
    assert_eq!(cursor.get("firstBatch").and_then(|batch| batch.as_array()).unwrap().len(), 10);
    // One alone is told as it is.
    let (code, _, message) = shop.kilim(&["pattern", "repair", "aside", "gone"]);
    assert!(code == Some(1) && !message.contains("of 1 patterns"), "{message}");
}

#[test]
fn declarations_and_filters_understand_the_literals_of_the_shell() {
    let shop = Shop::open();
    let spec = r#"{set: {isOld: {$lt: ["$at", ISODate("2024-03-01")]}}}"#;
    shop.succeeds(&["pattern", "create", "orders", "old", "computed", spec]);
    let text = "- createPattern: orders\n  name: old\n  computed: {set: {isOld: {$lt: [$at, ISODate(\"2024-03-01\")]}}}\n";
    let (code, shown, message) = output_with(text, &["apply", "-", "--check", "--uri", &shop.uri]);
    assert!(code == Some(0) && shown.contains("= unchanged"), "{shown}{message}");
    shop.succeeds(&["pattern", "verify", "orders", "--filter", "{_id: {$gt: NumberLong(3)}}"]);
    let (code, _, message) = shop.kilim(&["pattern", "verify", "orders", "--filter", "{_id: Lnog(3)}"]);
    assert!(code == Some(1) && message.contains("line 1, column 7"), "{message}");
    // The listing is still such a file.
    let listed = shop.succeeds(&["pattern", "list", "--yaml"]);
    let (code, shown, message) = output_with(&listed, &["apply", "-", "--check", "--uri", &shop.uri]);
    assert!(code == Some(0) && shown.contains("= unchanged"), "{shown}{message}");
}

#[test]
fn mistakes_end_with_advice() {
    let shop = Shop::open();
    shop.declare();
    let address = &*shop.uri;
    for (arguments, code, expected) in [
        (&["pattern", "show", "orders", "cart", "--uri", address][..], 1, "it has card"),
        (&["pattern", "drop", "customers", "card", "--uri", address], 1, "it has none"),
        (&["pattern", "list", "--uri", "mongodb://127.0.0.1:1/shop"], 1, "kilim serve"),
        (&["pattern", "list", "--uri", "mongodb://127.0.0.1:1"], 1, "which database?"),
        (&["pattern", "list", "--uri", "mongodb://ann:pw@host/shop?tls=perhaps"], 2, "true or false"),
        (&["pattern", "create", "orders", "--uri", address], 2, "NAME"),
        (&["pattern", "create", "orders", "a", "computed", "{set: {", "--uri", address], 1, "line "),
        (&["pattern", "create", "orders", "a", "computed", "{sat: 1}", "--uri", address], 1, "sat"),
        (&["pattern", "create", "orders", "card", "computed", "{set: {a: 1}}", "--uri", address], 1, "card"),
        (&["pattern", "create", "--file", "/nowhere.yaml", "--uri", address], 1, "/nowhere.yaml"),
        (&["pattern", "drop", "orders", "card", "--remove-fields", "--uri", address], 1, "--yes"),
        (&["pattern", "jobs", "--kill", "77", "--uri", address], 1, "77"),
    ] {
        let (actual, shown, message) = output(arguments);
        assert_eq!(actual, Some(code), "{arguments:?}: {shown}{message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
        assert!(!message.contains("pw"), "{message}");
    }
}

#[test]
fn applying_a_file_twice_does_nothing_the_second_time() {
    let shop = Shop::open();
    let file =
        |text: &str, more: &[&str]| output_with(text, &[&["apply", "-", "--uri", &shop.uri], more].concat());
    let text = format!(
        "patterns:\n- {{createPattern: orders, name: card, extendedReference: {CARD}}}\n\
         - createPattern: orders\n  name: double\n  computed: {{set: {{twice: {{$multiply: [$customerId, 2]}}}}}}\n"
    );
    let (code, shown, message) = file(&text, &[]);
    assert!(code == Some(1) && message.contains("--yes"), "nobody was asked: {shown}{message}");
    let (code, shown, _) = file(&text, &["--check"]);
    assert!(code == Some(3) && shown.contains("+ create"), "{shown}");
    let (code, shown, message) = file(&text, &["--yes"]);
    assert!(code == Some(0) && shown.contains("created orders.double, active"), "{shown}{message}");
    let (code, shown, _) = file(&text, &["--yes"]);
    assert!(code == Some(0) && shown.contains("Nothing to do"), "{shown}");

    // What the file no longer names goes only when asked for.
    let fewer = &text[..text.find("- createPattern").unwrap()];
    let (code, shown, _) = file(fewer, &["--yes"]);
    assert!(
        code == Some(0) && shown.contains("--prune drops it") && shown.contains("Nothing to do"),
        "{shown}"
    );
    let (code, shown, _) = file(fewer, &["--yes", "--prune"]);
    assert!(code == Some(0) && shown.contains("dropped orders.double"), "{shown}");

    // The listing is such a file.
    let listed = shop.succeeds(&["pattern", "list", "--yaml"]);
    let (code, shown, _) = file(&listed, &["--check"]);
    assert!(code == Some(0) && shown.contains("= unchanged"), "{shown}");
}

#[test]
fn a_changed_declaration_is_modified_in_place() {
    let mut shop = Shop::open();
    shop.ask(doc! {"create": "products"});
    let file = |fields: &str| {
        let card = CARD.replace("{name: 1}", fields);
        let text = format!("[{{createPattern: orders, name: card, extendedReference: {card}}}]");
        output_with(&text, &["apply", "-", "--yes", "--uri", &shop.uri])
    };
    let (code, shown, message) = file("{name: 1}");
    assert_eq!(code, Some(0), "{shown}{message}");
    let (code, shown, message) = file("{title: $name}");
    assert_eq!(code, Some(0), "{shown}{message}");
    assert!(shown.contains("~ modify") && shown.contains("{ name: 1 } → { title: $name }"), "{shown}");
    let (code, shown, message) = file("{title: $name}");
    assert!(code == Some(0) && shown.contains("Nothing to do"), "{shown}{message}");
    let orders = shop.client.all("shop", doc! {"find": "orders", "filter": {"_id": 4}}).unwrap();
    assert_eq!(orders[0], doc! {"_id": 4, "customerId": 1, "customer": {"title": "c1"}});
}

#[test]
fn a_plan_that_cannot_be_applied_changes_nothing() {
    let shop = Shop::open();
    let file = |text: &str| output_with(text, &["apply", "-", "--yes", "--uri", &shop.uri]);
    let broken = format!(
        "- {{createPattern: orders, name: card, extendedReference: {CARD}}}\n\
         - {{createPattern: orders, name: typo, computed: {{sat: {{a: 1}}}}}}\n"
    );
    let (code, _, message) = file(&broken);
    assert!(code == Some(1) && message.contains("typo"), "{message}");
    assert!(shop.succeeds(&["pattern", "list"]).contains("no patterns"));
    shop.declare();
    let (code, shown, message) = file("- {createPattern: orders, name: card, computed: {set: {a: 1}}}");
    assert!(code == Some(1) && message.contains("Nothing was changed"), "{shown}{message}");
    let (code, _, message) = file("");
    assert!(code == Some(1) && message.contains("empty"), "{message}");
}

#[test]
fn applying_a_file_to_an_empty_database_makes_what_its_patterns_read() {
    let mut shop = Shop::open();
    let text = format!(
        "database: new\npatterns:\n- {{createPattern: orders, name: card, extendedReference: {CARD}}}\n"
    );
    let server = shop.uri.trim_end_matches("/shop").to_owned();
    let file = |more: &[&str]| output_with(&text, &[&["apply", "-", "--uri", &server], more].concat());
    let (code, shown, message) = file(&["--check"]);
    assert_eq!(code, Some(3), "{message}");
    assert!(shown.contains("+ create        customers") && shown.contains("orders.card reads"), "{shown}");
    let (code, shown, message) = file(&["--yes"]);
    assert_eq!(code, Some(0), "{shown}{message}");
    assert!(shown.contains("created customers\n") && shown.contains("Done: 2 steps."), "{shown}");
    let (code, shown, message) = file(&["--check"]);
    assert_eq!(code, Some(0), "{shown}{message}");
    shop.client.run("new", doc! {"insert": "customers", "documents": [{"_id": 1, "name": "Ann"}]}).unwrap();
    shop.client.run("new", doc! {"insert": "orders", "documents": [{"_id": 1, "customerId": 1}]}).unwrap();
    let orders = shop.client.all("new", doc! {"find": "orders"}).unwrap();
    assert_eq!(orders[0], doc! {"_id": 1, "customerId": 1, "customer": {"name": "Ann"}});
}

#[test]
fn checking_what_does_not_exist_is_a_failure() {
    let shop = Shop::open();
    for (arguments, expected) in [
        (&["pattern", "verify", "--db", "shpo"][..], "there is no database shpo"),
        (&["pattern", "verify", "oders"], "there is no collection shop.oders"),
        (&["pattern", "verify", "oders", "card"], "has no pattern 'card'"),
        (&["pattern", "repair", "oders"], "there is no collection shop.oders"),
        (&["pattern", "repair", "orders", "--db", "shpo", "--json"], "there is no database shpo"),
        (&["export", "--collection", "oders"], "there is no collection shop.oders"),
        (&["export", "--collection", "orders", "--db", "shpo"], "there is no collection shpo.orders"),
    ] {
        let (code, shown, message) = shop.kilim(arguments);
        assert_eq!((code, &*shown), (Some(1), ""), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
    // A collection without patterns is no mistake.
    assert!(shop.succeeds(&["pattern", "verify"]).contains("no patterns"));
    assert!(shop.succeeds(&["pattern", "verify", "orders"]).contains("no patterns"));
}

const PHONES: &str = "{field: v, from: 1, to: 2, up: [{$set: {phone: {number: $phone}}}], down: [{$set: {phone: $phone.number}}]}";

#[test]
fn a_version_is_rolled_back_forth_and_completed() {
    let mut shop = Shop::open();
    shop.ask(doc! {"insert": "users", "documents": [{"_id": 1, "phone": "555"}, {"_id": 2, "phone": "777"}]});
    shop.succeeds(&["pattern", "create", "users", "phones", "schemaVersion", PHONES]);
    shop.ask(
        doc! {"update": "users", "updates": [{"q": {"_id": 1}, "u": {"$set": {"phone.country": "de"}}}]},
    );
    // Version 1 has no word for the country.
    let (code, _, message) = shop.kilim(&["pattern", "rollback", "users", "phones"]);
    assert!(code == Some(1) && message.contains("VersionLossy"), "{code:?} {message}");
    shop.succeeds(&["pattern", "rollback", "users", "phones", "--lossy"]);
    let users = shop.client.all("shop", doc! {"find": "users", "projection": {"phone": 1}}).unwrap();
    assert_eq!(users, [doc! {"_id": 1, "phone": "555"}, doc! {"_id": 2, "phone": "777"}]);
    shop.succeeds(&["pattern", "rollback", "users", "phones", "--no-wait"]);
    shop.succeeds(&["pattern", "wait", "users", "phones"]);
    shop.succeeds(&["pattern", "complete", "users", "phones"]);
    assert!(shop.succeeds(&["pattern", "list"]).contains("shop has no patterns"));
    let users = shop.client.all("shop", doc! {"find": "users", "filter": {"phone.number": "777"}}).unwrap();
    assert_eq!(users.len(), 1);
    assert!(shop.client.all("shop", doc! {"find": "users@1"}).unwrap().is_empty());
}

#[test]
fn shapes_are_applied_and_a_span_is_changed_in_place() {
    let mut shop = Shop::open();
    let reading = |n: i64| doc! {"_id": n, "ts": Value::DateTime(n * 60_000), "s": 1, "temp": n};
    let readings: Vec<Value> = (0..200).map(|n| reading(n).into()).collect();
    shop.ask(doc! {"insert": "readings", "documents": Value::Array(readings.into_iter().collect())});
    let names: Vec<Value> = (0..30).map(Value::Int32).collect();
    let celebrity = doc! {"_id": 1, "phone": "555", "followers": Value::Array(names.into_iter().collect())};
    shop.ask(doc! {"insert": "fans", "documents": [celebrity]});
    shop.ask(doc! {"insert": "users", "documents": [{"_id": 1, "phone": "555"}]});
    let file = |granularity: &str| {
        let text = format!(
            "patterns:\n- {{createPattern: users, name: phones, schemaVersion: {PHONES}}}\n\
             - {{createPattern: fans, name: pages, outlier: {{field: followers, limit: 10}}}}\n\
             - {{createPattern: readings, name: b, bucket: {{timeField: ts, metaField: s, granularity: {granularity}}}}}\n"
        );
        output_with(&text, &["apply", "-", "--yes", "--uri", &shop.uri])
    };
    let (code, shown, message) = file("seconds");
    assert_eq!(code, Some(0), "{shown}{message}");
    for name in ["users.phones", "fans.pages", "readings.b"] {
        assert!(shown.contains(&format!("created {name}, active")), "{shown}");
    }
    let (code, shown, message) = file("seconds");
    assert!(code == Some(0) && shown.contains("Nothing to do"), "{shown}{message}");
    let (code, shown, message) = file("minutes");
    assert!(code == Some(0) && shown.contains("~ modify"), "{shown}{message}");
    let buckets = shop.client.all("shop", doc! {"find": "readings.buckets"}).unwrap();
    assert_eq!(buckets.len(), 1, "{buckets:?}");
    let readings = shop.client.all("shop", doc! {"find": "readings"}).unwrap();
    assert_eq!(readings, (0..200).map(reading).collect::<Vec<_>>());
    let fans = shop.client.all("shop", doc! {"find": "fans"}).unwrap();
    assert!(matches!(fans[0].get("followersCount"), Some(kilim_bson::RawValue::Int32(30))), "{fans:?}");
    for (collection, name) in [("users", "phones"), ("fans", "pages"), ("readings", "b")] {
        shop.succeeds(&["pattern", "verify", collection, name]);
    }
}
