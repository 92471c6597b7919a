//! Commands made and run, without a wire between.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, ValueRef, Writer};
use kilim_commands::{Client, Request};
use kilim_engine::Engine;
use serde::Serialize;

use crate::session::Signature;
use crate::{Error, Result};

/// A command on its way to be run.
pub(crate) struct Command {
    body: Writer,
}

impl Command {
    pub fn new<'v>(name: &str, argument: impl Into<ValueRef<'v>>) -> Command {
        let mut command = Command { body: Writer::new() };
        command.set(name, argument);
        command
    }

    /// A command that somebody else wrote.
    pub fn of(document: &bson::Document) -> Result<Command> {
        Ok(Command { body: Writer::resume(encode(document)?) })
    }

    pub fn set<'v>(&mut self, name: &str, value: impl Into<ValueRef<'v>>) {
        match value.into() {
            ValueRef::Owned(value) => self.body.append(name, value.as_raw()),
            ValueRef::Raw(value) => self.body.append(name, value),
        }
    }

    pub fn set_document(&mut self, name: &str, document: &bson::Document) -> Result<()> {
        self.set(name, encode(document)?.as_raw());
        Ok(())
    }

    /// All fields of a document.
    pub fn set_all(&mut self, fields: &bson::Document) -> Result<()> {
        self.body.append_elements(encode(fields)?.as_raw().elements());
        Ok(())
    }

    pub fn set_list(&mut self, name: &str, list: &[bson::Document]) -> Result<()> {
        let mut array = kilim_bson::ArrayBuilder::new();
        for document in list {
            array.push(encode(document)?.as_raw());
        }
        self.set(name, array.finish().as_raw());
        Ok(())
    }

    /// A list of one: a statement, or an index.
    pub fn set_statements(&mut self, name: &str, one: Command) {
        let list = kilim_bson::Array::from_iter([kilim_bson::Value::from(one.body.finish())]);
        self.set(name, list.as_raw());
    }

    /// Puts a session into it, and a running transaction.
    pub fn sign(&mut self, signature: Signature) {
        self.set("lsid", signature.logical_id().as_raw());
        if let Some(number) = signature.transaction() {
            self.set("txnNumber", number);
            self.set("autocommit", false);
        }
    }

    /// Runs it. A reply with `ok: 0` is an error.
    pub fn run(self, engine: &Arc<Engine>, database: &str) -> Result<Document> {
        self.run_with(engine, database, Vec::new())
    }

    /// Runs it with documents beside it.
    pub fn run_with(
        mut self,
        engine: &Arc<Engine>,
        database: &str,
        sequences: Vec<(&str, Vec<RawDocument<'_>>)>,
    ) -> Result<Document> {
        self.body.append("$db", RawValue::String(database));
        let body = self.body.finish();
        let mut client = Client::in_process(engine.clone());
        let request = Request { body: body.as_raw(), sequences, exhaust_allowed: false, legacy_hello: false };
        let reply = kilim_commands::run(&mut client, request).document;
        match reply.get("ok") {
            Some(RawValue::Double(1.0)) => Ok(reply),
            _ => Err(Error::of_reply(reply.as_raw())),
        }
    }
}

/// A value as a document that the engine takes.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Document> {
    let bytes = bson::serialize_to_vec(value)?;
    Document::parse(bytes).map_err(|error| Error::Malformed(error.to_string()))
}
