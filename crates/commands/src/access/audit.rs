//! The audit log: who logged in, and who changed what others rely on. One JSON document a line, with mongod's field names.
//!
//! A line is written when the command has ended and before its reply is sent, so whoever has a reply can find the line. One that
//! cannot be written is told in the log; the command has happened by then.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use kilim_auth::UserName;
use kilim_bson::{Document, JsonFormat, RawDocument, RawValue, Value, doc, to_extended_json};
use kilim_error::ErrorCode;
use parking_lot::Mutex;

use super::redacted;
use crate::argument::arguments;
use crate::client::Client;
use crate::ended::Ended;

/// The file, which others may move away and have opened anew.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    file: Mutex<File>,
}

impl Audit {
    /// Goes on behind what is in the file.
    pub fn open(path: &Path) -> io::Result<Audit> {
        Ok(Audit { path: path.to_owned(), file: Mutex::new(open(path)?) })
    }

    pub(super) fn reopen(&self) -> io::Result<()> {
        *self.file.lock() = open(&self.path)?;
        Ok(())
    }

    /// Somebody has logged in, or tried to.
    pub(crate) fn note_login(&self, client: &Client, user: &UserName, mechanism: &str, result: ErrorCode) {
        let param = doc! {"user": &*user.user, "db": &*user.db, "mechanism": mechanism};
        self.write(client, "authenticate", param, result);
    }

    /// The client's login is about to end at its wish.
    pub(crate) fn note_logout(&self, client: &Client) {
        let user = client.login.identity.as_deref().map(|identity| identity.name.to_document());
        let users: Vec<Value> = user.into_iter().map(Value::Document).collect();
        let param = doc! {"reason": "Logging out on user request", "initialUsers": users, "updatedUsers": []};
        self.write(client, "logout", param, ErrorCode(0));
    }

    /// A command has ended.
    pub(crate) fn note(&self, ended: &Ended<'_>) {
        let (name, body) = (ended.spec.name, ended.request.body);
        let database = ended.database.unwrap_or_default();
        let result = ended.error.map_or(ErrorCode(0), |error| error.code());
        if result == ErrorCode::Unauthorized {
            let args = redacted(ended.spec, body).unwrap_or_else(|| body.to_document());
            let param = doc! {"command": name, "ns": namespace(database, body), "args": args};
            return self.write(ended.client, "authCheck", param, result);
        }
        for (kind, param) in events(name, database, body) {
            self.write(ended.client, kind, param, result);
        }
    }

    fn write(&self, client: &Client, kind: &str, param: Document, result: ErrorCode) {
        let identity = client.login.identity.as_deref();
        let users = identity.map(|identity| Value::Document(identity.name.to_document()));
        let roles = identity.into_iter().flat_map(|identity| &identity.gathered.roles);
        let roles = roles.map(|role| Value::Document(role.to_document()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        let line = doc! {
            "atype": kind,
            "ts": Value::DateTime(now),
            "local": place(client.local),
            "remote": place(client.peer),
            "users": users.into_iter().collect::<Vec<Value>>(),
            "roles": roles.collect::<Vec<Value>>(),
            "param": param,
            "result": result.0,
        };
        let mut text = to_extended_json(line.as_raw(), JsonFormat::Relaxed);
        text.push('\n');
        // At once, so that lines of several threads do not mix.
        if let Err(error) = self.file.lock().write_all(text.as_bytes()) {
            tracing::error!(%error, event = kind, "an event is not in the audit log");
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn place(address: SocketAddr) -> Document {
    doc! {"ip": address.ip().to_canonical().to_string(), "port": i32::from(address.port())}
}

/// The collection that a command's first field names, or its database.
fn namespace(database: &str, body: RawDocument<'_>) -> String {
    match body.iter().next().and_then(|(_, value)| value.as_str()) {
        Some(collection) => format!("{database}.{collection}"),
        None => database.to_owned(),
    }
}

/// What a command is in the audit log; nothing for those that only read and write documents.
fn events(name: &'static str, database: &str, body: RawDocument<'_>) -> Vec<(&'static str, Document)> {
    let ns = || namespace(database, body);
    let text = |field: &str| body.get(field).and_then(RawValue::as_str).unwrap_or_default().to_owned();
    match name {
        "createUser" | "updateUser" | "dropUser" | "grantRolesToUser" | "revokeRolesFromUser" => {
            vec![(name, about("user", name, database, body))]
        }
        "createRole"
        | "updateRole"
        | "dropRole"
        | "grantRolesToRole"
        | "revokeRolesFromRole"
        | "grantPrivilegesToRole"
        | "revokePrivilegesFromRole" => vec![(name, about("role", name, database, body))],
        "_mergeAuthzCollections" => {
            let mut param = doc! {"ns": database};
            for field in ["tempUsersCollection", "tempRolesCollection", "db", "drop"] {
                if let Some(value) = body.get(field) {
                    param.push(field, value);
                }
            }
            vec![(name, param)]
        }
        "dropAllUsersFromDatabase" | "dropAllRolesFromDatabase" => vec![(name, doc! {"db": database})],
        "create" => match body.get("viewOn") {
            None => vec![("createCollection", doc! {"ns": ns()})],
            Some(on) => {
                let mut param = doc! {"ns": ns()};
                param.push("viewOn", on);
                if let Some(pipeline) = body.get("pipeline") {
                    param.push("viewPipeline", pipeline);
                }
                vec![("createView", param)]
            }
        },
        "createIndexes" => {
            let indexes = body.get("indexes").and_then(RawValue::as_array);
            let indexes =
                indexes.into_iter().flat_map(|indexes| indexes.iter()).filter_map(RawValue::as_document);
            let event = |index: RawDocument<'_>| {
                let mut param = doc! {"ns": ns()};
                param.push("indexName", index.get("name").and_then(RawValue::as_str).unwrap_or_default());
                param.push("indexSpec", index);
                ("createIndex", param)
            };
            indexes.map(event).collect()
        }
        "drop" => vec![("dropCollection", doc! {"ns": ns()})],
        "dropDatabase" => vec![("dropDatabase", doc! {"ns": database})],
        "dropIndexes" => {
            let mut param = doc! {"ns": ns()};
            param.push("indexName", body.get("index").unwrap_or(RawValue::Null));
            vec![("dropIndex", param)]
        }
        "renameCollection" => {
            let old = body.iter().next().and_then(|(_, value)| value.as_str()).unwrap_or_default();
            vec![("renameCollection", doc! {"old": old, "new": text("to")})]
        }
        // MongoDB has no names for these.
        "collMod"
        | "convertToCapped"
        | "cloneCollectionAsCapped"
        | "createPattern"
        | "modifyPattern"
        | "pausePattern"
        | "resumePattern"
        | "repairPattern"
        | "completeVersion"
        | "rollbackVersion"
        | "dropPattern" => {
            let command: Document =
                arguments(name, body).map(|argument| (argument.name, argument.value.to_value())).collect();
            vec![(name, doc! {"ns": ns(), "command": command})]
        }
        _ => Vec::new(),
    }
}

/// A user or a role and what is said of it, without a password.
fn about(what: &str, name: &str, database: &str, body: RawDocument<'_>) -> Document {
    let mut param = Document::new();
    param.push(what, body.iter().next().and_then(|(_, value)| value.as_str()).unwrap_or_default());
    param.push("db", database);
    if name == "updateUser" {
        param.push("passwordChanged", body.get("pwd").is_some());
    }
    for field in ["customData", "roles", "privileges", "authenticationRestrictions"] {
        if let Some(value) = body.get(field) {
            param.push(field, value);
        }
    }
    param
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::COMMANDS;

    #[test]
    fn whatever_changes_users_or_roles_is_an_event_without_the_password() {
        for spec in COMMANDS.iter().filter(|spec| spec.changes_access && spec.name != "invalidateUserCache") {
            let mut body = Document::new();
            body.push(spec.name, "ann");
            body.push("pwd", "secret");
            let events = events(spec.name, "shop", body.as_raw());
            assert_eq!(events.len(), 1, "{}", spec.name);
            let text = to_extended_json(events[0].1.as_raw(), JsonFormat::Relaxed);
            assert!(text.contains("shop") && !text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn events_have_the_names_that_mongod_has_for_them() {
        for (body, expected) in [
            (doc! {"create": "orders"}, r#"createCollection {"ns":"shop.orders"}"#),
            (doc! {"drop": "orders"}, r#"dropCollection {"ns":"shop.orders"}"#),
            (doc! {"dropDatabase": 1}, r#"dropDatabase {"ns":"shop"}"#),
            (
                doc! {"createIndexes": "o", "indexes": [{"key": {"a": 1}, "name": "a_1"}]},
                r#"createIndex {"ns":"shop.o","indexName":"a_1","indexSpec":{"key":{"a":1},"name":"a_1"}}"#,
            ),
            (
                doc! {"renameCollection": "shop.a", "to": "shop.b"},
                r#"renameCollection {"old":"shop.a","new":"shop.b"}"#,
            ),
            (
                doc! {"dropPattern": "o", "name": "p", "$db": "shop"},
                r#"dropPattern {"ns":"shop.o","command":{"name":"p"}}"#,
            ),
        ] {
            let name = body.iter().next().unwrap().0.to_owned();
            let spec = COMMANDS.iter().find(|spec| spec.name == name).unwrap();
            let events = events(spec.name, "shop", body.as_raw());
            let shown: Vec<String> = (events.iter())
                .map(|(kind, param)| {
                    format!("{kind} {}", to_extended_json(param.as_raw(), JsonFormat::Relaxed))
                })
                .collect();
            assert_eq!(shown, [expected]);
        }
        assert!(events("find", "shop", doc! {"find": "orders"}.as_raw()).is_empty());
    }
}
