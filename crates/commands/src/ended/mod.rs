//! What becomes known of a command that has ended: it is counted, and where it was slow or somebody asked, it gets a
//! line in the log and an entry in its database's profile.
//!
//! Both show the same facts ([`facts`]); the log leaves out what documents and filters hold. Where nobody asks and
//! nothing is slow, none of them is put together.

mod entry;
mod facts;
mod log;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_engine::Engine;
use kilim_engine::figures::Figures;
use kilim_engine::operation::Operation;
use kilim_engine::top::Use;
use kilim_error::Error;

use crate::client::Client;
use crate::dispatch::Call;
use crate::registry::{COMMANDS, CommandSpec};
use crate::request::Request;
pub use entry::FIELDS;
use facts::Facts;

/// What a command leaves behind beside its reply.
#[derive(Default)]
pub struct Trace {
    pub figures: Figures,
    /// Statements that are to be told of by themselves.
    pub statements: Vec<Statement>,
    /// The command that opened the cursor, where more was asked of one.
    pub originating: Option<Arc<Document>>,
    /// How long it waited for news, which is no work.
    pub waited: Duration,
}

/// One of the statements of an update or delete that has ended.
pub struct Statement {
    pub command: Document,
    pub time: Duration,
    pub figures: Figures,
    pub counts: Counts,
}

/// What a statement did to documents.
#[derive(Debug, Clone, Copy)]
pub enum Counts {
    Updated { matched: u64, modified: u64, upserted: u64 },
    Removed { removed: u64 },
}

impl Call<'_, '_> {
    /// Notes that a statement has ended. `command` is put together only where it will be shown.
    pub fn end_statement(&mut self, begun: Instant, counts: Counts, command: impl FnOnce() -> Document) {
        let figures = std::mem::take(&mut self.unit.figures);
        self.trace.figures.add(figures.clone());
        let time = begun.elapsed();
        if self.engine.profiler.is_active() || time >= self.engine.metrics.slow_limit() {
            self.trace.statements.push(Statement { command: command(), time, figures, counts });
        }
    }
}

/// A command that has ended, and its reply.
pub struct Ended<'a> {
    pub client: &'a Client,
    pub engine: &'a Engine,
    pub operation: &'a Arc<Operation>,
    pub request: &'a Request<'a>,
    pub spec: &'a CommandSpec,
    /// Where the command stands in the table.
    pub place: usize,
    pub database: Option<&'a str>,
    pub trace: &'a Trace,
    pub error: Option<&'a Error>,
    /// The whole reply.
    pub reply: RawDocument<'a>,
}

impl Ended<'_> {
    pub fn note(&self) {
        if let Some(audit) = self.client.access.audit() {
            audit.note(self);
        }
        let time = self.operation.started.elapsed().saturating_sub(self.trace.waited);
        let metrics = &self.engine.metrics;
        let count = &metrics.by_command(COMMANDS.len())[self.place];
        count.total.add(1);
        count.failed.add(u64::from(self.error.is_some()));
        let name = self.spec.name;
        match name {
            "find" | "getMore" | "count" | "distinct" | "aggregate" => metrics.reads.add(time),
            "insert" | "update" | "delete" | "findAndModify" => metrics.writes.add(time),
            _ => metrics.other_commands.add(time),
        }
        let figures = &self.trace.figures;
        metrics.keys_examined.add(figures.keys_examined);
        metrics.documents_read.add(figures.docs_examined);
        metrics.sorted.add(u64::from(Facts::sorts(figures)));
        let Some(database) = self.database else { return };
        let collection = self.collection();
        if let (Some(what), Some(collection)) = (use_of(name), collection) {
            self.engine.top.note(database, collection, what, time);
        }
        let slow = metrics.slow_limit();
        if time < slow && !self.engine.profiler.is_active() {
            return;
        }
        for statement in &self.trace.statements {
            self.tell(database, &Facts::of_statement(self, statement), slow);
        }
        self.tell(database, &Facts::of_command(self, time), slow);
    }

    /// Tells of the command or one of its statements wherever that is wanted.
    fn tell(&self, database: &str, facts: &Facts<'_>, slow: Duration) {
        let wanted =
            self.engine.profiler.wants(database, facts.time, slow, || entry::entry(self, facts, true));
        // A command that waits for news is not slow.
        let waits = matches!(self.spec.name, "hello" | "isMaster" | "waitPattern");
        if wanted.log && !waits {
            log::write(self, facts);
        }
        // Nothing can be written while somebody has locked the server.
        let locked = self.engine.fsync_lock.count() > 0;
        if wanted.profile && facts.is_profiled && !locked {
            let entry = entry::entry(self, facts, false);
            if let Err(error) = self.engine.write_profile(self.operation, database, &entry) {
                tracing::warn!(%error, database, "a command could not be written to the profile");
            }
        }
    }

    /// The collection that it is about.
    fn collection(&self) -> Option<&str> {
        let body = self.request.body;
        let named = match self.spec.name {
            "getMore" => body.get("collection"),
            "explain" => {
                body.iter().next().and_then(|(_, asked)| Some(asked.as_document()?.iter().next()?.1))
            }
            _ => body.iter().next().map(|(_, name)| name),
        };
        named.and_then(RawValue::as_str)
    }
}

/// What `top` counts it as.
fn use_of(command: &str) -> Option<Use> {
    Some(match command {
        "find" => Use::Query,
        "getMore" => Use::GetMore,
        "insert" => Use::Insert,
        "update" => Use::Update,
        "delete" => Use::Remove,
        "aggregate" | "count" | "distinct" => Use::ReadCommand,
        "findAndModify" => Use::WriteCommand,
        "collMod" | "collStats" | "create" | "createIndexes" | "dropIndexes" | "listIndexes" | "validate" => {
            Use::Command
        }
        _ => return None,
    })
}
