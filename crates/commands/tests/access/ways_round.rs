//! Ways round the check of privileges that an attack found. Each is closed, and stays so.

use kilim_bson::{Document, RawValue, Value, doc, parse_extended_json};
use kilim_commands::Client;

use crate::{Server, ask, code, done, message, refused};

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
