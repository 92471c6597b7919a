//! Users, roles and what they may do, over the commands, without a socket.

mod ways_round;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use kilim_auth::{ClientExchange, Mechanism};
use kilim_bson::{Document, RawDocument, RawValue, Value, doc, parse_extended_json};
use kilim_commands::{Access, COMMANDS, Client, Request, run};
use kilim_engine::{Durability, Engine, EngineOptions, StorageOptions};
use kilim_query::stage::DEFINITIONS;

/// What mongod answered.
const MATRIX: &str = include_str!("../../../../tests/access/matrix.txt");

/// The same of what mongod has not.
const OWN: &str = include_str!("../../../../tests/access/own.txt");

/// Who is refused on purpose what mongod allows.
const EXPLAINED: &[(&str, &str)] = &[
    // An insert of the log writes over a document that is there, so it needs the right to change it, too.
    ("restore", r#"{"applyOps": [{"op": "i""#),
];

struct Server {
    engine: Arc<Engine>,
    access: Arc<Access>,
}

impl Server {
    fn new() -> Server {
        Server::on(None)
    }

    /// One with its data in a directory, or in memory.
    fn on(data: Option<&Path>) -> Server {
        let options = EngineOptions {
            data: data.map(Path::to_owned),
            durability: Durability::Relaxed,
            storage: StorageOptions::default(),
            test_commands: false,
        };
        Server { engine: Engine::open(options).unwrap(), access: Arc::new(Access::enforced(true)) }
    }

    /// One whose first user is there.
    fn with_root() -> (Server, Client) {
        let server = Server::new();
        let mut root = server.connect();
        done(&mut root, "admin", doc! {"createUser": "root", "pwd": "pw", "roles": ["root"]});
        log_in(&mut root, "admin", "root", "pw", Mechanism::ScramSha256).unwrap();
        (server, root)
    }

    fn connect(&self) -> Client {
        self.connect_from("127.0.0.1:4711")
    }

    fn connect_from(&self, peer: &str) -> Client {
        let (peer, local): (SocketAddr, SocketAddr) =
            (peer.parse().unwrap(), "127.0.0.1:27017".parse().unwrap());
        Client::with_access(self.engine.clone(), 1, peer, local, self.access.clone())
    }

    fn log_in(&self, db: &str, user: &str) -> Client {
        let mut client = self.connect();
        log_in(&mut client, db, user, "pw", Mechanism::ScramSha1).unwrap();
        client
    }
}

fn ask(client: &mut Client, db: &str, mut command: Document) -> Document {
    command.push("$db", db);
    let request = Request {
        body: command.as_raw(),
        sequences: Vec::new(),
        exhaust_allowed: false,
        legacy_hello: false,
    };
    run(client, request).document
}

fn code(reply: &Document) -> i32 {
    match reply.get("code") {
        Some(RawValue::Int32(code)) => code,
        _ => 0,
    }
}

fn message(reply: &Document) -> &str {
    reply.get("errmsg").and_then(RawValue::as_str).unwrap_or_default()
}

fn done(client: &mut Client, db: &str, command: Document) -> Document {
    let reply = ask(client, db, command);
    assert_eq!(code(&reply), 0, "{}", message(&reply));
    reply
}

fn refused(client: &mut Client, db: &str, command: Document) -> String {
    let reply = ask(client, db, command);
    assert_eq!(code(&reply), 13, "{}", message(&reply));
    message(&reply).to_owned()
}

fn log_in(
    client: &mut Client,
    db: &str,
    user: &str,
    password: &str,
    mechanism: Mechanism,
) -> Result<(), (i32, String)> {
    let secret = mechanism.secret(user, password).unwrap();
    let (mut exchange, first) = ClientExchange::begin(mechanism, user, secret, &[7; 24]);
    let payload = |reply: &Document| match reply.get("payload") {
        Some(RawValue::Binary { bytes, .. }) => bytes.to_vec(),
        _ => panic!("no payload"),
    };
    let binary = |bytes| Value::Binary { subtype: 0, bytes };
    let command = doc! {"saslStart": 1, "mechanism": mechanism.name(), "payload": binary(first)};
    let reply = ask(client, db, command);
    if code(&reply) != 0 {
        return Err((code(&reply), message(&reply).to_owned()));
    }
    let proof = exchange.prove(&payload(&reply)).unwrap();
    let reply = ask(client, db, doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(proof)});
    if code(&reply) != 0 {
        return Err((code(&reply), message(&reply).to_owned()));
    }
    assert!(exchange.is_proven_by(&payload(&reply)));
    let reply = ask(client, db, doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(Vec::new())});
    match code(&reply) {
        0 => Ok(()),
        code => Err((code, message(&reply).to_owned())),
    }
}

#[test]
fn roles_allow_what_they_allow_on_mongod() {
    let (server, mut root) = Server::with_root();
    let mut lines = MATRIX.lines().filter(|line| !line.starts_with('#'));
    let users: Vec<&str> = lines.next().unwrap().strip_prefix("users\t").unwrap().split(' ').collect();
    let mut clients = Vec::new();
    for user in users {
        if user == "none" {
            clients.push((user, server.connect()));
            continue;
        }
        let (role, db) = user.split_once('@').unwrap_or((user, "admin"));
        let roles = vec![Value::Document(doc! {"role": role, "db": db})];
        let name = format!("one who is {user}");
        let command = doc! {"createUser": &name, "pwd": "pw", "roles": roles, "mechanisms": ["SCRAM-SHA-1"]};
        done(&mut root, "admin", command);
        clients.push((user, server.log_in("admin", &name)));
    }
    let (mut checked, mut wrong) = (0, Vec::new());
    // Before the others, the last of which logs out.
    for line in OWN.lines().filter(|line| !line.starts_with('#')).chain(lines) {
        let mut parts = line.split('\t');
        let (db, command) = (parts.next().unwrap(), parts.next().unwrap());
        let allowed: Vec<&str> = parts.next().unwrap().split(' ').collect();
        let document = parse_extended_json(command).unwrap();
        for (user, client) in &mut clients {
            let reply = ask(client, db, document.clone());
            checked += 1;
            let is_explained = EXPLAINED.iter().any(|(who, begin)| who == user && command.starts_with(begin));
            if (code(&reply) != 13) != allowed.contains(user) && !is_explained {
                wrong.push(format!("{user}: {db} {command}: {} {}", code(&reply), message(&reply)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {checked} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked > 5000, "{checked}");
}

/// The names of the stages that a pipeline has, however deep.
fn stages_in(value: RawValue<'_>, found: &mut HashSet<String>) {
    let mut each = |name: &str, value: RawValue<'_>| {
        if name.starts_with('$') {
            found.insert(name.to_owned());
        }
        stages_in(value, found);
    };
    match value {
        RawValue::Document(document) => document.iter().for_each(|(name, value)| each(name, value)),
        RawValue::Array(array) => array.iter().for_each(|value| each("", value)),
        _ => {}
    }
}

#[test]
fn every_command_and_every_stage_is_in_the_matrix() {
    let lines = MATRIX.lines().chain(OWN.lines()).filter(|line| !line.starts_with('#'));
    let commands = lines.filter_map(|line| parse_extended_json(line.split('\t').nth(1)?).ok());
    let (mut asked, mut stages) = (HashSet::new(), HashSet::new());
    for command in commands {
        asked.insert(command.iter().next().unwrap().0.to_owned());
        stages_in(RawValue::Document(command.as_raw()), &mut stages);
    }
    // There with --test-commands only, which is no server for others.
    asked.insert("configureFailPoint".to_owned());
    let missing = COMMANDS.iter().map(|spec| spec.name).filter(|name| !asked.contains(*name));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
    // Nobody writes them: the first two stand in pipelines of views, the third reads what comes to it.
    stages.extend(
        ["$_internalPackedBuckets", "$_internalUnpackBucket", "$changeStreamSplitLargeEvent"]
            .map(str::to_owned),
    );
    let missing = DEFINITIONS.iter().map(|stage| stage.name).filter(|name| !stages.contains(*name));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn without_a_user_somebody_on_this_machine_may_make_one_and_nothing_else() {
    let server = Server::new();
    let mut far = server.connect_from("10.0.0.1:4711");
    let made = doc! {"createUser": "root", "pwd": "pw", "roles": ["root"]};
    assert_eq!(refused(&mut far, "admin", made.clone()), "command createUser requires authentication");
    let mut near = server.connect();
    for (db, command) in [
        ("test", doc! {"find": "a"}),
        ("test", doc! {"createUser": "a", "pwd": "x", "roles": []}),
        ("admin", doc! {"createRole": "a", "privileges": [], "roles": []}),
        ("admin", doc! {"usersInfo": 1}),
        ("test", doc! {"endSessions": []}),
        ("admin", doc! {"serverStatus": 1}),
    ] {
        assert!(refused(&mut near, db, command).starts_with("not authorized on "));
    }
    done(&mut near, "admin", doc! {"listDatabases": 1});
    done(&mut near, "test", doc! {"logout": 1});
    done(&mut near, "admin", made.clone());
    let again = doc! {"createUser": "root2", "pwd": "pw", "roles": ["root"]};
    assert_eq!(refused(&mut near, "admin", again), "command createUser requires authentication");
}

#[test]
fn a_refusal_does_not_show_the_password() {
    let (server, mut root) = Server::with_root();
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": ["read"]});
    let mut ann = server.log_in("shop", "ann");
    let told = refused(&mut ann, "shop", doc! {"createUser": "bob", "pwd": "secret", "roles": []});
    assert_eq!(
        told,
        "not authorized on shop to execute command { createUser: \"bob\", pwd: \"xxx\", roles: [], $db: \"shop\" }"
    );
}

#[test]
fn unknown_users_and_wrong_passwords_look_alike() {
    let (server, mut root) = Server::with_root();
    done(
        &mut root,
        "shop",
        doc! {"createUser": "ann", "pwd": "pw", "roles": [], "mechanisms": ["SCRAM-SHA-1"]},
    );
    let expected = (18, "Authentication failed.".to_owned());
    for (user, password, mechanism) in [
        ("ann", "wrong", Mechanism::ScramSha1),
        ("nobody", "pw", Mechanism::ScramSha1),
        ("ann", "pw", Mechanism::ScramSha256),
    ] {
        let mut client = server.connect();
        let answer = log_in(&mut client, "shop", user, password, mechanism);
        assert_eq!(answer, Err(expected.clone()), "{user}");
    }
}

#[test]
fn a_connection_is_one_user() {
    let (server, mut root) = Server::with_root();
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": []});
    let mut client = server.log_in("shop", "ann");
    log_in(&mut client, "shop", "ann", "pw", Mechanism::ScramSha256).unwrap();
    let (code, told) = log_in(&mut client, "admin", "root", "pw", Mechanism::ScramSha256).unwrap_err();
    assert_eq!(code, 5626701, "{told}");
    done(&mut client, "shop", doc! {"logout": 1});
    log_in(&mut client, "admin", "root", "pw", Mechanism::ScramSha256).unwrap();
}

#[test]
fn changes_of_roles_and_users_are_seen_at_once() {
    let (server, mut root) = Server::with_root();
    done(&mut root, "shop", doc! {"insert": "a", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3}]});
    let role = doc! {"createRole": "reader", "privileges": [], "roles": ["read"]};
    done(&mut root, "shop", role);
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": ["reader"]});
    let mut ann = server.log_in("shop", "ann");
    let find = || doc! {"find": "a", "batchSize": 1};
    let reply = done(&mut ann, "shop", find());
    let cursor = cursor_of(&reply);
    let more = || doc! {"getMore": cursor, "collection": "a", "batchSize": 1};
    done(&mut ann, "shop", more());
    done(&mut root, "shop", doc! {"updateRole": "reader", "roles": []});
    refused(&mut ann, "shop", find());
    refused(&mut ann, "shop", more());
    done(&mut root, "shop", doc! {"grantRolesToUser": "ann", "roles": ["read"]});
    done(&mut ann, "shop", more());
    // A write to the collection itself counts as well.
    done(
        &mut root,
        "admin",
        doc! {"update": "system.users", "updates": [{"q": {"user": "ann"}, "u": {"$set": {"roles": []}}}]},
    );
    refused(&mut ann, "shop", find());
    done(&mut root, "shop", doc! {"dropUser": "ann"});
    assert_eq!(refused(&mut ann, "shop", find()), "command find requires authentication");
    // A later user of the same name is another one.
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": ["read"]});
    assert_eq!(refused(&mut ann, "shop", find()), "command find requires authentication");
}

fn cursor_of(reply: &Document) -> i64 {
    let cursor = reply.get("cursor").and_then(RawValue::as_document);
    match cursor.and_then(|cursor: RawDocument<'_>| cursor.get("id")) {
        Some(RawValue::Int64(id)) if id != 0 => id,
        _ => panic!("no open cursor"),
    }
}

#[test]
fn cursors_belong_to_who_opened_them() {
    let (server, mut root) = Server::with_root();
    done(&mut root, "shop", doc! {"insert": "a", "documents": [{"_id": 1}, {"_id": 2}]});
    for user in ["ann", "bob"] {
        done(&mut root, "shop", doc! {"createUser": user, "pwd": "pw", "roles": ["read"]});
    }
    let (mut ann, mut bob) = (server.log_in("shop", "ann"), server.log_in("shop", "bob"));
    let id = cursor_of(&done(&mut ann, "shop", doc! {"find": "a", "batchSize": 1}));
    let told = refused(&mut bob, "shop", doc! {"getMore": id, "collection": "a"});
    assert_eq!(told, format!("cursor id {id} was not created by the authenticated user"));
    refused(&mut bob, "shop", doc! {"killCursors": "a", "cursors": [id]});
    done(&mut ann, "shop", doc! {"killCursors": "a", "cursors": [id]});
    let id = cursor_of(&done(&mut ann, "shop", doc! {"find": "a", "batchSize": 1}));
    done(&mut root, "shop", doc! {"killCursors": "a", "cursors": [id]});
}

#[test]
fn lists_show_what_one_may_see() {
    let (server, mut root) = Server::with_root();
    for (db, collection) in [("shop", "a"), ("shop", "b"), ("other", "c")] {
        done(&mut root, db, doc! {"insert": collection, "documents": [{"_id": 1}]});
    }
    let privileges =
        vec![Value::Document(doc! {"resource": {"db": "shop", "collection": "a"}, "actions": ["find"]})];
    done(&mut root, "shop", doc! {"createRole": "a", "privileges": privileges, "roles": []});
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": ["a"]});
    let mut ann = server.log_in("shop", "ann");
    let reply = done(&mut ann, "admin", doc! {"listDatabases": 1, "nameOnly": true});
    assert_eq!(reply.get("databases").and_then(RawValue::as_array).unwrap().iter().count(), 1);
    refused(&mut ann, "shop", doc! {"listCollections": 1});
    let reply =
        done(&mut ann, "shop", doc! {"listCollections": 1, "nameOnly": true, "authorizedCollections": true});
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    assert_eq!(cursor.get("firstBatch").and_then(RawValue::as_array).unwrap().iter().count(), 1);
    // Operations of others are not his to see or to end.
    let pipeline = vec![Value::Document(doc! {"$currentOp": {}})];
    let own = done(&mut ann, "admin", doc! {"aggregate": 1, "pipeline": pipeline, "cursor": {}});
    let cursor = own.get("cursor").and_then(RawValue::as_document).unwrap();
    for operation in cursor.get("firstBatch").and_then(RawValue::as_array).unwrap().iter() {
        let users =
            operation.as_document().unwrap().get("effectiveUsers").and_then(RawValue::as_array).unwrap();
        assert_eq!(
            users.iter().next().unwrap().as_document().unwrap().get("user").unwrap().as_str(),
            Some("ann")
        );
    }
    refused(&mut ann, "admin", doc! {"killOp": 1, "op": 1_000_000});
    done(&mut ann, "admin", doc! {"currentOp": 1, "$ownOps": true});
    // A view is read with the right on the view alone.
    done(&mut root, "shop", doc! {"create": "v", "viewOn": "b", "pipeline": []});
    refused(&mut ann, "shop", doc! {"find": "v"});
    let privileges =
        vec![Value::Document(doc! {"resource": {"db": "shop", "collection": "v"}, "actions": ["find"]})];
    done(&mut root, "shop", doc! {"grantPrivilegesToRole": "a", "privileges": privileges});
    done(&mut ann, "shop", doc! {"find": "v"});
    refused(&mut ann, "shop", doc! {"find": "b"});
}

#[test]
fn patterns_are_declared_by_those_who_may_read_the_source() {
    let (server, mut root) = Server::with_root();
    for collection in ["orders", "customers"] {
        done(&mut root, "shop", doc! {"create": collection});
    }
    let on = |collection: &str, actions: Vec<Value>| {
        Value::Document(doc! {"resource": {"db": "shop", "collection": collection}, "actions": actions})
    };
    let own = ["pattern", "find", "update", "insert", "remove"].map(Value::from).to_vec();
    let privileges = vec![on("orders", own)];
    done(&mut root, "shop", doc! {"createRole": "keeper", "privileges": privileges, "roles": []});
    done(&mut root, "shop", doc! {"createUser": "ann", "pwd": "pw", "roles": ["keeper"]});
    let mut ann = server.log_in("shop", "ann");
    let declare = || {
        doc! {
            "createPattern": "orders",
            "name": "customer",
            "extendedReference": {"from": "customers", "localField": "c", "as": "x", "fields": {"name": 1}},
        }
    };
    refused(&mut ann, "shop", declare());
    let privileges = vec![on("customers", vec![Value::from("find")])];
    done(&mut root, "shop", doc! {"grantPrivilegesToRole": "keeper", "privileges": privileges});
    done(&mut ann, "shop", declare());
}

#[test]
fn users_of_a_dump_of_mongod_log_in() {
    let (server, mut root) = Server::with_root();
    // As mongod 6.0.5 stored it: user "root" with password "pw".
    let user = doc! {
        "_id": "shop.root",
        "userId": Value::Binary { subtype: 4, bytes: vec![9; 16] },
        "user": "root",
        "db": "shop",
        "credentials": {
            "SCRAM-SHA-1": {
                "iterationCount": 10000,
                "salt": "7ADGVhMS7VrLUwbbsdt2PQ==",
                "storedKey": "LNwfqMYHi39aPcx+wh3sVPFZGaM=",
                "serverKey": "9oQZOL9LglqWgZZhsLkV42JIIqs=",
            },
            "SCRAM-SHA-256": {
                "iterationCount": 15000,
                "salt": "eoIniRlCAYN4kv9WqtAeHOkQVjCk09Pm3/Y7tA==",
                "storedKey": "lubUQn0Hjn0goMj4drJzkDyToAd0nKCRRZjHsKyaMWU=",
                "serverKey": "yrq7oik90WaOuKjs/9xwAgHQvZE2CSZWxYK3pwapFtk=",
            },
        },
        "roles": [{"role": "read", "db": "shop"}],
    };
    done(&mut root, "admin", doc! {"insert": "system.users", "documents": vec![Value::Document(user)]});
    for mechanism in Mechanism::ALL {
        let mut client = server.connect();
        log_in(&mut client, "shop", "root", "pw", mechanism).unwrap();
        done(&mut client, "shop", doc! {"find": "a"});
        refused(&mut client, "shop", doc! {"insert": "a", "documents": [{}]});
    }
}

#[test]
fn restrictions_keep_users_where_they_belong() {
    let (server, mut root) = Server::with_root();
    let restrictions = vec![Value::Document(doc! {"clientSource": ["10.0.0.0/8"]})];
    let user =
        doc! {"createUser": "ann", "pwd": "pw", "roles": [], "authenticationRestrictions": restrictions};
    done(&mut root, "shop", user);
    let mut near = server.connect();
    assert_eq!(log_in(&mut near, "shop", "ann", "pw", Mechanism::ScramSha1).unwrap_err().0, 18);
    let mut far = server.connect_from("10.1.2.3:99");
    log_in(&mut far, "shop", "ann", "pw", Mechanism::ScramSha1).unwrap();
}
