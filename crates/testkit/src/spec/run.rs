//! Runs a case: a database of its own, its steps in order, each answer compared or handed to the recorder.

use anyhow::{Context, Result};
use kilim_bson::{Array, Document, RawDocument, RawValue, Value, Writer, doc};
use kilim_client::{Client, Failure, whole};
use kilim_error::ErrorCode;

use super::answer::{Names, normalise};
use super::{Action, Answer, Case, Step, matching, plan};

/// Runs cases on one connection. Databases are called after the process, so that several runs can
/// share a server.
pub struct Runner {
    address: String,
    client: Option<Client>,
    serial: u32,
}

pub enum CaseResult {
    Passed,
    Failed(Box<Mismatch>),
}

/// The first step that was not answered as expected.
pub struct Mismatch {
    pub line: usize,
    pub expected: Vec<String>,
    pub actual: Vec<String>,
}

impl Runner {
    pub fn new(address: impl Into<String>) -> Runner {
        Runner { address: address.into(), client: None, serial: 0 }
    }

    /// Compares every answer with its expectation and stops at the first that differs.
    pub fn check(&mut self, case: &Case) -> Result<CaseResult> {
        let mut mismatch = None;
        let ran = self.run(case, &mut |step, answer| {
            let Some(answer) = answer else { return true };
            let expectation = step.expectation.as_ref();
            let matched = match expectation {
                None => Err("no expectation: record it first".to_owned()),
                Some(expectation) => matching::matches(expectation, &answer),
            };
            if matched == Ok(true) {
                return true;
            }
            let mut actual = answer.lines();
            actual.extend(matched.err().map(|fault| format!("! {fault}")));
            mismatch = Some(Mismatch {
                line: step.line,
                expected: expectation.map(|it| it.lines.clone()).unwrap_or_default(),
                actual,
            });
            false
        });
        if let Err((line, error)) = ran {
            mismatch = Some(Mismatch { line, expected: Vec::new(), actual: vec![format!("! {error:#}")] });
        }
        Ok(mismatch.map_or(CaseResult::Passed, |mismatch| CaseResult::Failed(Box::new(mismatch))))
    }

    /// Runs the steps; `visit` sees each with its answer, if it is a question, and says whether to go on.
    pub(crate) fn run(
        &mut self,
        case: &Case,
        visit: &mut dyn FnMut(&Step, Option<Answer>) -> bool,
    ) -> Result<(), (usize, anyhow::Error)> {
        self.serial += 1;
        let database = format!("spec_{}_{}", std::process::id(), self.serial);
        let client = match &mut self.client {
            Some(client) => client,
            empty => empty
                .insert(Client::connect(self.address.as_str()).map_err(|error| (case.line, error.into()))?),
        };
        let mut situation =
            Situation { client, database, serial: self.serial, cursor: 0, sessions: Vec::new() };
        let mut outcome = Ok(());
        for step in &case.steps {
            match situation.take(step) {
                Ok(answer) => {
                    if !visit(step, answer) {
                        break;
                    }
                }
                Err(error) => {
                    outcome = Err((step.line, error));
                    break;
                }
            }
        }
        // A broken connection is replaced for the next case. Open transactions would block the drop.
        if situation.clean_up().is_err() {
            self.client = None;
        }
        outcome
    }
}

/// Where a case stands: its database, its sessions, the cursor opened last.
struct Situation<'c> {
    client: &'c mut Client,
    database: String,
    serial: u32,
    cursor: i64,
    sessions: Vec<Session>,
}

struct Session {
    name: String,
    id: [u8; 16],
    transaction_number: i64,
    transaction: Transaction,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    /// The next command starts it.
    Begun,
    Running,
}

impl Situation<'_> {
    fn take(&mut self, step: &Step) -> Result<Option<Answer>> {
        let session = step.session.as_deref();
        let answer = match &step.action {
            Action::Given { collection, documents } => {
                self.given(collection, documents)?;
                return Ok(None);
            }
            Action::Index { collection, key, options } => {
                self.create_index(collection, key, options)?;
                return Ok(None);
            }
            Action::Begin => {
                let session = self.session(session.unwrap_or_default());
                session.transaction_number += 1;
                session.transaction = Transaction::Begun;
                return Ok(None);
            }
            Action::Do(command) => {
                let reply = self.send(command, session)?;
                if let Some(failure) = Failure::of(reply.as_raw()) {
                    anyhow::bail!("failed with {} {}: {}", failure.code, failure.name, failure.message);
                }
                return Ok(None);
            }
            Action::Run(command) => {
                let reply = self.send(command, session)?;
                match Failure::of(reply.as_raw()) {
                    Some(failure) => Answer::Failed(failure),
                    None => Answer::Reply(normalise(reply.as_raw(), &self.names())),
                }
            }
            Action::Docs { unordered, command } => self.rows(command, session, *unordered)?,
            Action::Error { message, command } => {
                let reply = self.send(command, session)?;
                match Failure::of(reply.as_raw()) {
                    None => Answer::Succeeded,
                    Some(failure) => Answer::Text(self.error_lines(&failure, *message)),
                }
            }
            Action::WriteError(command) => {
                let reply = self.send(command, session)?;
                match (Failure::of(reply.as_raw()), first_write_error(reply.as_raw())?) {
                    (Some(failure), _) => Answer::Failed(failure),
                    (None, None) => Answer::Succeeded,
                    (None, Some(failure)) => Answer::Text(self.error_lines(&failure, false)),
                }
            }
            Action::Plan(command) => {
                let explain = doc! {"explain": command.clone(), "verbosity": "executionStats"};
                let reply = self.send(&explain, session)?;
                match Failure::of(reply.as_raw()) {
                    Some(failure) => Answer::Failed(failure),
                    None => Answer::Text(plan::skeleton(reply.as_raw())),
                }
            }
        };
        Ok(Some(answer))
    }

    fn given(&mut self, collection: &str, documents: &[Document]) -> Result<()> {
        if documents.is_empty() {
            self.client.run(&self.database, doc! {"create": collection})?;
        } else {
            let documents: Array = documents.iter().cloned().map(Value::Document).collect();
            let reply =
                self.client.run(&self.database, doc! {"insert": collection, "documents": documents})?;
            if let Some(failure) = first_write_error(reply.as_raw())? {
                anyhow::bail!("given {collection}: {} {}: {}", failure.code, failure.name, failure.message);
            }
        }
        Ok(())
    }

    fn create_index(&mut self, collection: &str, key: &Document, options: &Document) -> Result<()> {
        let mut index = Writer::new();
        index.append("key", RawValue::Document(key.as_raw()));
        if options.get("name").is_none() {
            index.append("name", RawValue::String(&default_index_name(key.as_raw())));
        }
        index.append_elements(options.as_raw().elements());
        let command = doc! {"createIndexes": collection, "indexes": [index.finish()]};
        self.client.run(&self.database, command).with_context(|| format!("index {collection}"))?;
        Ok(())
    }

    fn rows(&mut self, command: &Document, session: Option<&str>, unordered: bool) -> Result<Answer> {
        let mut command = command.clone();
        if command.get("aggregate").is_some() && command.get("cursor").is_none() {
            command.push("cursor", Document::new());
        }
        let mut rows = Vec::new();
        let mut reply = self.send(&command, session)?;
        loop {
            if let Some(failure) = Failure::of(reply.as_raw()) {
                return Ok(Answer::Failed(failure));
            }
            let names = self.names();
            // `distinct` answers with values and no cursor.
            if let Some(values) = reply.get("values").and_then(RawValue::as_array) {
                rows.extend(values.iter().map(|value| names.in_reply(value, "")));
                break;
            }
            let cursor =
                reply.get("cursor").and_then(RawValue::as_document).context("the reply has no cursor")?;
            let batch =
                cursor.get("firstBatch").or_else(|| cursor.get("nextBatch")).and_then(RawValue::as_array);
            rows.extend(
                batch.context("the cursor has no batch")?.iter().map(|value| names.in_reply(value, "")),
            );
            let id = whole(cursor.get("id")).unwrap_or_default();
            if id == 0 {
                break;
            }
            let namespace = cursor.get("ns").and_then(RawValue::as_str).unwrap_or_default();
            let collection = namespace.split_once('.').map_or("", |(_, collection)| collection);
            reply = self.send(&doc! {"getMore": id, "collection": collection}, session)?;
        }
        Ok(if unordered { Answer::Set(rows) } else { Answer::Rows(rows) })
    }

    /// Sends a command with its placeholders filled in and its session's fields added.
    fn send(&mut self, command: &Document, session: Option<&str>) -> Result<Document> {
        let mut command = self.names().in_command(command);
        let ends = ["commitTransaction", "abortTransaction"].iter().any(|name| command.get(name).is_some());
        if let Some(name) = session {
            let session = self.session(name);
            let id = Value::Binary { subtype: 4, bytes: session.id.to_vec() };
            command.push("lsid", [("id", id)].into_iter().collect::<Document>());
            if session.transaction != Transaction::None || ends {
                if command.get("txnNumber").is_none() {
                    command.push("txnNumber", session.transaction_number);
                }
                command.push("autocommit", false);
                if session.transaction == Transaction::Begun {
                    command.push("startTransaction", true);
                }
                session.transaction = if ends { Transaction::None } else { Transaction::Running };
            }
        }
        let database = if ends { "admin" } else { &self.database };
        let reply = self.client.reply(database, command.as_raw())?;
        let cursor = reply.get("cursor").and_then(RawValue::as_document).and_then(|cursor| cursor.get("id"));
        if let Some(id) = whole(cursor).filter(|id| *id != 0) {
            self.cursor = id;
        }
        Ok(reply)
    }

    fn session(&mut self, name: &str) -> &mut Session {
        if let Some(at) = self.sessions.iter().position(|session| session.name == name) {
            return &mut self.sessions[at];
        }
        let mut id = [0; 16];
        id[..4].copy_from_slice(&std::process::id().to_le_bytes());
        id[4..8].copy_from_slice(&self.serial.to_le_bytes());
        id[8] = self.sessions.len() as u8;
        let session =
            Session { name: name.to_owned(), id, transaction_number: 0, transaction: Transaction::None };
        self.sessions.push(session);
        self.sessions.last_mut().expect("pushed just now")
    }

    fn clean_up(&mut self) -> Result<()> {
        let open: Vec<String> = self
            .sessions
            .iter()
            .filter(|it| it.transaction == Transaction::Running)
            .map(|it| it.name.clone())
            .collect();
        for name in open {
            self.send(&doc! {"abortTransaction": 1}, Some(&name))?;
        }
        // A case may have provoked any state; failing to drop it hurts nobody.
        self.client.reply(&self.database, doc! {"dropDatabase": 1}.as_raw())?;
        Ok(())
    }

    fn names(&self) -> Names<'_> {
        Names { database: &self.database, cursor: self.cursor }
    }

    fn error_lines(&self, failure: &Failure, message: bool) -> Vec<String> {
        let mut lines = vec![format!("{} {}", failure.code, failure.name)];
        if message {
            let message = self.names().in_text(&failure.message).replace('\\', "\\\\").replace('\n', "\\n");
            // A spec keeps no blanks at the end of a line.
            lines.push(format!("message: {message}").trim_end().to_owned());
        }
        if !failure.labels.is_empty() {
            lines.push(format!("labels: {}", failure.labels.join(", ")));
        }
        lines
    }
}

/// The first of `writeErrors`. The name is not on the wire, so it is looked up.
fn first_write_error(reply: RawDocument<'_>) -> Result<Option<Failure>> {
    let errors = reply.get("writeErrors").and_then(RawValue::as_array);
    let Some(first) = errors.and_then(|errors| errors.get(0)).and_then(RawValue::as_document) else {
        return Ok(None);
    };
    let code = whole(first.get("code")).unwrap_or_default() as i32;
    let name = ErrorCode(code).name().into_owned();
    // MongoDB's named codes are all small; a nameless small one is missing in our table.
    anyhow::ensure!(code > 500 || !name.starts_with("Location"), "code {code} has no name in codes.toml yet");
    let message = first.get("errmsg").and_then(RawValue::as_str).unwrap_or_default().to_owned();
    Ok(Some(Failure { code, name, message, ..Failure::default() }))
}

/// `a_1_b.c_-1`, as drivers name an index.
pub(crate) fn default_index_name(key: RawDocument<'_>) -> String {
    let parts = key.iter().map(|(field, order)| match order {
        RawValue::String(kind) => format!("{field}_{kind}"),
        other => format!("{field}_{}", whole(Some(other)).unwrap_or_default()),
    });
    parts.collect::<Vec<_>>().join("_")
}
