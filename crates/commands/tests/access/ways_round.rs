//! Ways round the check of privileges that an attack found. Each is closed, and stays so.

use kilim_auth::Mechanism;
use kilim_bson::{Document, RawValue, Value, doc, parse_extended_json};
use kilim_commands::Client;

use crate::{Server, ask, code, cursor_of, done, message, refused};

fn json(text: &str) -> Document {
    parse_extended_json(text).unwrap()
}

/// A user `ann` of `shop` who may do this with these collections, in a database that also has a collection `secret`.
fn server_with(privileges: &[(&str, &[&str])]) -> (Server, Client, Client) {
    let (server, mut root) = Server::with_root();
    for collection in ["items", "secret"] {
        done(&mut root, "shop", doc! {"insert": collection, "documents": [{"_id": 1, "n": 1}]});
    }
    let privilege = |(collection, actions): &(&str, &[&str])| {
        let resource = match *collection {
            "" => doc! {"cluster": true},
            collection => doc! {"db": "shop", "collection": collection},
        };
        let actions: Vec<Value> = actions.iter().map(|action| Value::from(*action)).collect();
        Value::Document(doc! {"resource": resource, "actions": actions})
    };
    let privileges: Vec<Value> = privileges.iter().map(privilege).collect();
    done(&mut root, "admin", doc! {"createRole": "own", "privileges": privileges, "roles": []});
    let roles = vec![Value::Document(doc! {"role": "own", "db": "admin"})];
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": roles});
    let ann = server.log_in("shop", "ann");
    (server, root, ann)
}

#[test]
fn a_field_that_is_given_twice_is_refused() {
    let (_server, _root, mut ann) =
        server_with(&[("items", &["find", "update"]), ("v", &["createCollection", "find"])]);
    for stage in [
        r#"{"$lookup": {"from": "items", "from": "secret", "pipeline": [], "as": "z"}}"#,
        r#"{"$lookup": {"from": "items", "pipeline": [], "pipeline": [{"$unionWith": "secret"}], "as": "z"}}"#,
        r#"{"$unionWith": {"coll": "items", "coll": "secret"}}"#,
        r#"{"$merge": {"into": "items", "into": "secret", "whenNotMatched": "discard"}}"#,
        r#"{"$merge": {"into": {"db": "shop", "coll": "items", "coll": "secret"}, "whenNotMatched": "discard"}}"#,
    ] {
        let command = format!(r#"{{"aggregate": "items", "pipeline": [{stage}], "cursor": {{}}}}"#);
        refused(&mut ann, "shop", json(&command));
        let command = format!(r#"{{"create": "v", "viewOn": "items", "pipeline": [{stage}]}}"#);
        refused(&mut ann, "shop", json(&command));
    }
    let twice = r#"{"update": "items", "updates": [{"q": {}, "u": {"$set": {"a": 1}}, "upsert": false, "upsert": true}]}"#;
    refused(&mut ann, "shop", json(twice));
}

#[test]
fn a_view_is_modified_as_a_whole() {
    let (_server, mut root, mut ann) = server_with(&[("items", &["find"]), ("v", &["collMod", "find"])]);
    done(&mut root, "shop", doc! {"create": "v", "viewOn": "items", "pipeline": []});
    let reply = ask(&mut ann, "shop", json(r#"{"collMod": "v", "pipeline": [{"$unionWith": "secret"}]}"#));
    assert_eq!(code(&reply), 72, "{}", message(&reply));
    let reply = ask(&mut ann, "shop", doc! {"collMod": "v", "viewOn": "secret"});
    assert_eq!(code(&reply), 72, "{}", message(&reply));
    refused(&mut ann, "shop", doc! {"collMod": "v", "viewOn": "secret", "pipeline": []});
    done(&mut ann, "shop", doc! {"collMod": "v", "viewOn": "items", "pipeline": []});
}

#[test]
fn a_modified_pattern_needs_what_the_new_one_needs() {
    let own: &[&str] = &["pattern", "find", "update", "insert", "remove"];
    let (_server, mut root, mut ann) = server_with(&[("orders", own), ("items", &["find"])]);
    done(&mut root, "shop", doc! {"create": "orders"});
    let declare = r#"{"createPattern": "orders", "name": "copy",
        "extendedReference": {"from": "items", "localField": "i", "as": "x", "fields": {"n": 1}}}"#;
    done(&mut ann, "shop", json(declare));
    refused(
        &mut ann,
        "shop",
        doc! {"modifyPattern": "orders", "name": "copy", "extendedReference": {"from": "secret"}},
    );
}

#[test]
fn an_inserted_definition_is_put_in_force_by_those_who_may_declare() {
    let (_server, mut root, mut ann) = server_with(&[
        ("orders", &["find", "update"]),
        ("items", &["find"]),
        ("kilim.patterns", &["insert", "find"]),
    ]);
    done(&mut root, "shop", doc! {"create": "orders"});
    let declare = r#"{"createPattern": "orders", "name": "copy",
        "extendedReference": {"from": "items", "localField": "i", "as": "x", "fields": {"n": 1}}}"#;
    done(&mut root, "shop", json(declare));
    let found = done(&mut root, "shop", doc! {"find": "kilim.patterns"});
    let cursor = found.get("cursor").and_then(RawValue::as_document).unwrap();
    let definition = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap().iter().next().unwrap();
    let definition = definition.to_value();
    done(&mut root, "shop", doc! {"dropPattern": "orders", "name": "copy"});
    done(&mut ann, "shop", doc! {"insert": "kilim.patterns", "documents": [definition]});
    refused(&mut ann, "shop", doc! {"verifyPattern": "orders", "name": "copy"});
    done(&mut root, "shop", doc! {"verifyPattern": "orders", "name": "copy"});
}

#[test]
fn a_target_named_by_its_id_is_dropped_by_those_who_may_drop() {
    let (_server, mut root, mut ann) =
        server_with(&[("r", &["find", "insert", "renameCollectionSameDB"]), ("items", &["insert"])]);
    done(&mut root, "shop", doc! {"create": "r"});
    let id = json(
        r#"{"renameCollection": "shop.r", "to": "shop.items",
            "dropTarget": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAA==", "subType": "04"}}}"#,
    );
    refused(&mut ann, "admin", id);
    refused(&mut ann, "admin", doc! {"renameCollection": "shop.r", "to": "shop.items", "dropTarget": true});
}

#[test]
fn a_decimal_is_true_for_the_check_too() {
    let (_server, _root, mut ann) = server_with(&[("items", &["find", "update"])]);
    for command in [
        r#"{"findAndModify": "items", "query": {"_id": 1}, "remove": {"$numberDecimal": "1"}}"#,
        r#"{"findAndModify": "items", "query": {"_id": 9}, "update": {"$set": {"a": 1}}, "upsert": {"$numberDecimal": "1"}}"#,
    ] {
        refused(&mut ann, "shop", json(command));
    }
}

#[test]
fn logged_changes_need_what_their_writes_need() {
    let (server, mut root, mut ann) = server_with(&[("", &["applyOps"]), ("items", &["insert", "update"])]);
    for command in [
        r#"{"applyOps": [{"op": "u", "ns": "admin.system.users", "o2": {"_id": "shop.ann"}, "o": {"$set": {"roles": []}}}]}"#,
        r#"{"applyOps": [{"op": "d", "ns": "shop.items", "o": {"_id": 1}}]}"#,
        r#"{"applyOps": [], "preCondition": [{"ns": "shop.secret", "q": {}, "res": {}}]}"#,
    ] {
        refused(&mut ann, "shop", json(command));
    }
    done(&mut ann, "shop", json(r#"{"applyOps": [{"op": "i", "ns": "shop.items", "o": {"_id": 2}}]}"#));
    // Rights that change this way change at once.
    done(&mut root, "shop", doc! {"createUser": "bob", "pwd": "pw", "roles": ["read"]});
    let mut bob = server.log_in("shop", "bob");
    done(&mut bob, "shop", doc! {"find": "secret"});
    done(
        &mut root,
        "shop",
        json(r#"{"applyOps": [{"op": "d", "ns": "admin.system.users", "o": {"_id": "shop.bob"}}]}"#),
    );
    refused(&mut bob, "shop", doc! {"find": "secret"});
}

#[test]
fn sessions_belong_to_who_began_them() {
    let (server, mut root, mut ann) = server_with(&[("items", &["find", "insert"])]);
    done(&mut root, "shop", doc! {"createUser": "bob", "pwd": "pw", "roles": ["readWrite"]});
    let mut bob = server.log_in("shop", "bob");
    let lsid = r#"{"id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAQ==", "subType": "04"}}}"#;
    let statement = |rest: &str| {
        json(&format!(
            r#"{{{rest}, "lsid": {lsid}, "txnNumber": {{"$numberLong": "1"}}, "autocommit": false}}"#
        ))
    };
    let begin = r#""insert": "secret", "documents": [{"_id": 7}], "startTransaction": true"#;
    done(&mut bob, "shop", statement(begin));
    refused(&mut ann, "shop", statement(r#""find": "items""#));
    refused(&mut ann, "admin", statement(r#""commitTransaction": 1"#));
    done(&mut ann, "admin", doc! {"killSessions": []});
    done(&mut ann, "admin", json(&format!(r#"{{"endSessions": [{lsid}]}}"#)));
    done(&mut bob, "admin", statement(r#""commitTransaction": 1"#));
}

const LSID: &str = r#"{"id": {"$binary": {"base64": "AAAAAAAAAAAAAAAAAAAAAQ==", "subType": "04"}}}"#;

fn numbered(rest: &str) -> Document {
    json(&format!(r#"{{{rest}, "lsid": {LSID}, "txnNumber": {{"$numberLong": "1"}}}}"#))
}

#[test]
fn a_session_is_its_owners_after_a_restart_and_after_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let insert = || numbered(r#""insert": "items", "documents": [{"_id": 7}]"#);
    {
        let server = Server::on(Some(directory.path()));
        let mut root = server.connect();
        done(&mut root, "admin", doc! {"createUser": "root", "pwd": "pw", "roles": ["root"]});
        let mut root = server.log_in("admin", "root");
        for user in ["ann", "bob"] {
            done(&mut root, "shop", doc! {"createUser": user, "pwd": "pw", "roles": ["readWrite"]});
        }
        done(&mut server.log_in("shop", "bob"), "shop", insert());
        server.engine.close().unwrap();
    }
    let server = Server::on(Some(directory.path()));
    let (mut ann, mut bob) = (server.log_in("shop", "ann"), server.log_in("shop", "bob"));
    // She would be answered as if the insert had been hers, and it would not be done.
    refused(&mut ann, "shop", insert());
    done(&mut bob, "shop", insert());
    done(&mut bob, "shop", json(&format!(r#"{{"endSessions": [{LSID}]}}"#)));
    refused(&mut ann, "shop", insert());
    server.engine.close().unwrap();
}

#[test]
fn strangers_make_no_sessions() {
    let (server, _root) = Server::with_root();
    let before = server.engine.sessions.list().len();
    let mut stranger = server.connect();
    for number in 0..50 {
        let id = Value::Binary { subtype: 4, bytes: vec![number; 16] };
        for command in [doc! {"ping": 1}, doc! {"hello": 1}, doc! {"buildInfo": 1}] {
            let mut command = command;
            command.push("lsid", doc! {"id": id.clone()});
            done(&mut stranger, "admin", command);
        }
    }
    assert_eq!(server.engine.sessions.list().len(), before);
}

#[test]
fn a_stream_that_waits_shows_nothing_after_a_right_was_taken() {
    let (server, mut root) = Server::with_root();
    done(&mut root, "shop", doc! {"create": "items"});
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": ["read"]});
    let mut ann = server.log_in("shop", "ann");
    let watch = json(r#"{"aggregate": "items", "pipeline": [{"$changeStream": {}}], "cursor": {}}"#);
    let id = cursor_of(&done(&mut ann, "shop", watch));
    let more = || doc! {"getMore": id, "collection": "items", "maxTimeMS": 120_000};
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&mut ann, "shop", more()));
        // Until her getMore runs; it then waits, or is about to.
        while !server
            .engine
            .operations
            .list()
            .iter()
            .any(|operation| operation.command().is_some_and(|command| command.get("getMore").is_some()))
        {
            std::thread::yield_now();
        }
        done(&mut root, "shop", doc! {"revokeRolesFromUser": "ann", "roles": ["read"]});
        done(&mut root, "shop", doc! {"insert": "items", "documents": [{"_id": 1, "secret": 1}]});
        waiting.join().unwrap()
    });
    // Either it was asked again, or it ends with nothing.
    if code(&waiting) == 0 {
        let cursor = waiting.get("cursor").and_then(RawValue::as_document).unwrap();
        assert_eq!(cursor.get("nextBatch").and_then(RawValue::as_array).unwrap().iter().count(), 0);
    }
    refused(&mut ann, "shop", more());
}

/// As recorded from mongod 6.0.5.
#[test]
fn a_restore_merges_users_and_roles() {
    let (server, mut root) = Server::with_root();
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": ["read"]});
    done(&mut root, "shop", doc! {"createUser": "bob", "pwd": "pw", "roles": []});
    done(&mut root, "other", doc! {"createUser": "cid", "pwd": "pw", "roles": []});
    done(&mut root, "shop", doc! {"createRole": "r1", "privileges": [], "roles": ["read"]});
    let all = |root: &mut Client, collection: &str| -> Vec<Document> {
        let reply = done(root, "admin", doc! {"find": collection, "sort": {"_id": 1}});
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
        let batch = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap();
        batch.iter().map(|one| one.as_document().unwrap().to_document()).collect()
    };
    let ids = |root: &mut Client, collection: &str| -> Vec<String> {
        let id = |one: &Document| one.get("_id").and_then(RawValue::as_str).unwrap().to_owned();
        all(root, collection).iter().map(id).collect()
    };
    let changed = |document: &Document, changes: Document| -> Value {
        let mut new = Document::new();
        for (name, value) in document.iter() {
            new.push(name, changes.get(name).unwrap_or(value));
        }
        Value::Document(new)
    };
    let users = all(&mut root, "system.users");
    let [admin, _cid, ann, bob] = &users[..] else { panic!("{users:?}") };
    let roles = all(&mut root, "system.roles");
    let more = vec![Value::Document(doc! {"role": "readWrite", "db": "shop"})];
    let offered = vec![
        Value::Document(admin.clone()),
        changed(ann, doc! {"roles": more.clone()}),
        changed(bob, doc! {"_id": "shop.dan", "user": "dan"}),
        changed(bob, doc! {"_id": "other.eve", "user": "eve", "db": "other"}),
    ];
    done(&mut root, "admin", doc! {"insert": "tempusers", "documents": offered});
    let offered = vec![
        changed(&roles[0], doc! {"roles": more}),
        changed(&roles[0], doc! {"_id": "other.r3", "role": "r3", "db": "other"}),
    ];
    done(&mut root, "admin", doc! {"insert": "temproles", "documents": offered});
    let merge = |db: &str, drop: bool| {
        doc! {"_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers",
        "tempRolesCollection": "admin.temproles", "db": db, "drop": drop}
    };
    let roles_of = |root: &mut Client, user: &str| {
        let found =
            all(root, "system.users").into_iter().find(|one| one.get("_id").unwrap().as_str() == Some(user));
        format!("{:?}", found.unwrap().get("roles").unwrap().to_value())
    };
    let read = roles_of(&mut root, "shop.ann");
    // Those of one database, and who is there stays as he is.
    done(&mut root, "admin", merge("shop", false));
    assert_eq!(
        ids(&mut root, "system.users"),
        ["admin.root", "other.cid", "shop.ann", "shop.bob", "shop.dan"]
    );
    assert_eq!(ids(&mut root, "system.roles"), ["shop.r1"]);
    assert_eq!(roles_of(&mut root, "shop.ann"), read);
    // The other mechanism hashes the name as well, and these are the credentials of somebody else.
    let mut dan = server.connect();
    crate::log_in(&mut dan, "shop", "dan", "pw", Mechanism::ScramSha256).unwrap();
    // Of all: who is not in the dump goes.
    let mut ann = server.log_in("shop", "ann");
    refused(&mut ann, "shop", doc! {"insert": "items", "documents": [{}]});
    done(&mut root, "admin", merge("", true));
    assert_eq!(ids(&mut root, "system.users"), ["admin.root", "other.eve", "shop.ann", "shop.dan"]);
    assert_eq!(ids(&mut root, "system.roles"), ["other.r3", "shop.r1"]);
    done(&mut ann, "shop", doc! {"insert": "items", "documents": [{}]});
    // One that cannot be a user is refused before anything is written.
    done(
        &mut root,
        "admin",
        doc! {"insert": "tempusers", "documents": [{"_id": "shop.x", "user": "x", "db": "shop"}]},
    );
    let reply = ask(&mut root, "admin", merge("", true));
    assert_eq!(code(&reply), 10065, "{}", message(&reply));
    for (command, expected) in [
        (doc! {"_mergeAuthzCollections": 1, "db": "", "drop": false}, 2),
        (doc! {"_mergeAuthzCollections": 1, "tempUsersCollection": "admin.tempusers"}, 40414),
        (doc! {"_mergeAuthzCollections": 1, "tempUsersCollection": "nodot", "db": ""}, 73),
    ] {
        let reply = ask(&mut root, "admin", command);
        assert_eq!(code(&reply), expected, "{}", message(&reply));
    }
}

/// As on mongod 6.0.5.
#[test]
fn sessions_of_others_are_not_listed() {
    let (server, mut root) = Server::with_root();
    for user in ["ann", "bob"] {
        done(&mut root, "shop", doc! {"createUser": user, "pwd": "pw", "roles": ["read"]});
    }
    let (mut ann, mut bob) = (server.log_in("shop", "ann"), server.log_in("shop", "bob"));
    let find = |number: u8| {
        doc! {"find": "items", "lsid": {"id": Value::Binary { subtype: 4, bytes: vec![number; 16] }}}
    };
    done(&mut ann, "shop", find(1));
    done(&mut bob, "shop", find(2));
    let list = |options: &str| {
        json(&format!(
            r#"{{"aggregate": 1, "pipeline": [{{"$listLocalSessions": {options}}}], "cursor": {{}}}}"#
        ))
    };
    let listed = |client: &mut Client, options: &str| -> Vec<String> {
        let reply = done(client, "admin", list(options));
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
        let batch = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap();
        let user = |one: RawValue<'_>| one.as_document()?.get("user")?.as_str().map(str::to_owned);
        let mut users: Vec<String> = batch.iter().filter_map(user).collect();
        users.sort();
        users
    };
    assert_eq!(listed(&mut ann, "{}"), ["ann@shop"]);
    assert_eq!(listed(&mut ann, r#"{"users": [{"user": "ann", "db": "shop"}]}"#), ["ann@shop"]);
    refused(&mut ann, "admin", list(r#"{"users": [{"user": "bob", "db": "shop"}]}"#));
    refused(
        &mut ann,
        "admin",
        list(r#"{"users": [{"user": "ann", "db": "shop"}, {"user": "bob", "db": "shop"}]}"#),
    );
    refused(&mut ann, "admin", list(r#"{"allUsers": true}"#));
    assert_eq!(listed(&mut root, r#"{"allUsers": true}"#), ["ann@shop", "bob@shop"]);
    assert_eq!(listed(&mut root, r#"{"users": [{"user": "bob", "db": "shop"}]}"#), ["bob@shop"]);
}

#[test]
fn the_metadata_of_another_database_is_not_looked_at() {
    let (server, mut root) = Server::with_root();
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": ["dbAdmin"]});
    let mut ann = server.log_in("shop", "ann");
    let validate = |rest: &str| {
        json(&format!(r#"{{"validateDBMetadata": 1, "apiParameters": {{"version": "1"}}{rest}}}"#))
    };
    done(&mut ann, "shop", validate(r#", "db": "shop""#));
    refused(&mut ann, "shop", validate(r#", "db": "other""#));
    refused(&mut ann, "shop", validate(""));
}
