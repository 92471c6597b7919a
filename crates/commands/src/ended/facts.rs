//! The facts of a command or statement that has ended, in the order in which mongod shows them.

use std::time::Duration;

use kilim_bson::{Document, RawValue, Value};
use kilim_engine::figures::Figures;
use kilim_error::Error;

use super::{Counts, Ended, Statement};

/// What an OP_MSG has around its document.
const MESSAGE_BYTES: usize = 21;

pub(super) struct Facts<'a> {
    /// `op` of a profile.
    pub kind: &'static str,
    pub namespace: String,
    /// The command, where it may be shown.
    pub command: Option<Document>,
    pub time: Duration,
    /// By mongod's names.
    pub list: Vec<(&'static str, Value)>,
    pub plan_summary: Option<String>,
    pub error: Option<&'a Error>,
    pub response_bytes: Option<usize>,
    /// Whether it is one of those that a profile has: what opens a collection.
    pub is_profiled: bool,
    /// One of several that came in a command.
    pub is_statement: bool,
}

impl<'a> Facts<'a> {
    /// Whether something was sorted that no index had in order.
    pub(super) fn sorts(figures: &Figures) -> bool {
        figures.sorted || figures.plan.as_deref().is_some_and(|plan| plan.has_sort())
    }

    pub(super) fn of_command(ended: &Ended<'a>, time: Duration) -> Facts<'a> {
        let name = ended.spec.name;
        let (kind, is_profiled) = match name {
            "find" => ("query", true),
            "getMore" => ("getmore", true),
            "insert" => ("insert", true),
            // Their statements are.
            "update" | "delete" => ("command", false),
            "aggregate" | "count" | "distinct" | "findAndModify" | "collStats" | "dbStats" | "create"
            | "createIndexes" | "collMod" | "dropIndexes" | "explain" | "planCacheClear" | "dataSize"
            | "drop" | "listIndexes" | "killCursors" => ("command", true),
            _ => ("command", false),
        };
        let body = ended.request.body;
        let database = body.get("$db").and_then(RawValue::as_str).unwrap_or_default();
        let namespace = match (ended.collection(), name) {
            (None, "dbStats") => database.to_owned(),
            (None, "aggregate") => format!("{database}.$cmd.aggregate"),
            (None, _) => format!("{database}.$cmd"),
            // Its name is a whole namespace.
            (Some(namespace), "dataSize") => namespace.to_owned(),
            (Some(collection), _) => format!("{database}.{collection}"),
        };
        let figures = &ended.trace.figures;
        let reads = matches!(name, "find" | "getMore" | "count" | "distinct" | "aggregate" | "findAndModify");
        let mut facts = Facts {
            kind,
            namespace,
            command: ended.operation.command().map(|command| shown(name, command)),
            time,
            list: Vec::new(),
            plan_summary: summary(figures),
            error: ended.error,
            response_bytes: Some(ended.reply.as_bytes().len() + MESSAGE_BYTES),
            is_profiled,
            is_statement: false,
        };
        let cursor = match name {
            "find" | "getMore" | "aggregate" => ended.reply.get("cursor").and_then(RawValue::as_document),
            _ => None,
        };
        let id = cursor.and_then(|cursor| match cursor.get("id") {
            Some(RawValue::Int64(id)) => Some(id),
            _ => None,
        });
        let asked_of = match (name, body.get("getMore")) {
            ("getMore", Some(RawValue::Int64(id))) => Some(id),
            _ => id.filter(|&id| id != 0),
        };
        facts.add("cursorid", asked_of.map(Value::Int64));
        facts.add_examined(figures, reads && ended.error.is_none());
        facts.add_changes(ended, figures);
        facts.add("cursorExhausted", (id == Some(0)).then_some(Value::Bool(true)));
        facts.add_keys(figures);
        let batch = cursor.and_then(|cursor| cursor.get("firstBatch").or_else(|| cursor.get("nextBatch")));
        facts.add("nreturned", batch.and_then(RawValue::as_array).map(|batch| number(batch.len() as u64)));
        facts.add_plan(figures, name == "findAndModify");
        let planned = figures.plan.as_ref().is_some_and(|plan| !plan.is_distinct_scan());
        let told = match name {
            "find" => ended.error.is_none(),
            "aggregate" | "distinct" => planned,
            _ => false,
        };
        facts.add("queryFramework", told.then(|| Value::from("classic")));
        facts
    }

    pub(super) fn of_statement(ended: &Ended<'a>, statement: &Statement) -> Facts<'a> {
        let database = ended.request.body.get("$db").and_then(RawValue::as_str).unwrap_or_default();
        let figures = &statement.figures;
        let mut facts = Facts {
            kind: match statement.counts {
                Counts::Updated { .. } => "update",
                Counts::Removed { .. } => "remove",
            },
            namespace: format!("{database}.{}", ended.collection().unwrap_or("$cmd")),
            command: Some(statement.command.clone()),
            time: statement.time,
            list: Vec::new(),
            plan_summary: summary(figures).or_else(|| Some("EOF".to_owned())),
            error: None,
            response_bytes: None,
            is_profiled: true,
            is_statement: true,
        };
        facts.add_examined(figures, true);
        match statement.counts {
            Counts::Updated { matched, modified, upserted } => facts.add_updated(matched, modified, upserted),
            Counts::Removed { removed } => facts.add("ndeleted", Some(number(removed))),
        }
        facts.add_keys(figures);
        facts.add_plan(figures, true);
        facts
    }

    /// A fact by its name.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.list.iter().find(|(of, _)| *of == name).map(|(_, value)| value)
    }

    fn add(&mut self, name: &'static str, value: Option<Value>) {
        self.list.extend(value.map(|value| (name, value)));
    }

    fn add_examined(&mut self, figures: &Figures, reads: bool) {
        if reads || figures.plan.is_some() {
            self.add("keysExamined", Some(number(figures.keys_examined)));
            self.add("docsExamined", Some(number(figures.docs_examined)));
        }
        let plan = figures.plan.as_deref();
        let flag = |is: bool| is.then_some(Value::Bool(true));
        self.add("hasSortStage", flag(Facts::sorts(figures)));
        self.add("usedDisk", flag(figures.used_disk));
        self.add("fromMultiPlanner", flag(plan.is_some_and(|plan| plan.from_trial)));
    }

    /// What a command's reply tells of documents that it changed.
    fn add_changes(&mut self, ended: &Ended<'_>, figures: &Figures) {
        let int = |document: kilim_bson::RawDocument<'_>, name: &str| match document.get(name) {
            Some(RawValue::Int32(number)) => number.max(0) as u64,
            _ => 0,
        };
        match ended.spec.name {
            "insert" if ended.error.is_none() => {
                self.add("ninserted", Some(number(int(ended.reply, "n"))));
            }
            "findAndModify" if ended.error.is_none() => {
                let last = ended.reply.get("lastErrorObject").and_then(RawValue::as_document);
                let Some(last) = last else { return };
                match last.get("updatedExisting") {
                    Some(existing) => {
                        let matched = u64::from(existing.as_bool() == Some(true));
                        let upserted = u64::from(last.get("upserted").is_some());
                        self.add_updated(matched, matched.min(figures.changed), upserted);
                    }
                    None => self.add("ndeleted", Some(number(int(last, "n")))),
                }
            }
            _ => {}
        }
    }

    fn add_updated(&mut self, matched: u64, modified: u64, upserted: u64) {
        for (name, count) in [("nMatched", matched), ("nModified", modified), ("nUpserted", upserted)] {
            self.add(name, Some(number(count)));
        }
    }

    fn add_keys(&mut self, figures: &Figures) {
        let some = |count: u64| (count > 0).then(|| number(count));
        self.add("keysInserted", some(figures.keys_inserted));
        self.add("keysDeleted", some(figures.keys_deleted));
        // A snapshot never has to be given up and taken again.
        self.add("numYield", Some(Value::Int32(0)));
    }

    fn add_plan(&mut self, figures: &Figures, writes: bool) {
        let Some(plan) = figures.plan.as_deref() else { return };
        // As on mongod, a write that finds its document by `_id` has no query to speak of.
        if !(writes && plan.is_by_id()) {
            self.add("queryHash", plan.query_hash().map(Value::from));
            self.add("planCacheKey", plan.plan_cache_key().map(Value::from));
        }
    }
}

fn summary(figures: &Figures) -> Option<String> {
    figures.plan.as_deref().map(|plan| plan.summary())
}

/// An int where it fits.
pub(super) fn number(count: u64) -> Value {
    match i32::try_from(count) {
        Ok(count) => Value::Int32(count),
        Err(_) => Value::Int64(i64::try_from(count).unwrap_or(i64::MAX)),
    }
}

/// A command as a profile has it: without the documents of an insert.
fn shown(name: &str, command: &Document) -> Document {
    match name {
        "insert" => {
            let kept = command.iter().filter(|(name, _)| *name != "documents");
            kept.map(|(name, value)| (name, value.to_value())).collect()
        }
        _ => command.clone(),
    }
}
