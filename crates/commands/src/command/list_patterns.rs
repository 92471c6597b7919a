//! `listPatterns`: the patterns of a database or of one collection.

use kilim_bson::{Document, RawValue};
use kilim_engine::Namespace;
use kilim_engine::cursor::{Batch, Cursor, CursorSource};
use kilim_engine::patterns::Pattern;
use kilim_error::Result;

use super::list_indexes::cursor_batch;
use crate::argument::arguments;
use crate::cursor_reply;
use crate::dispatch::Call;

const NAME: &str = "listPatterns";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let database = call.generic.database;
    call.describe("command");
    let target = match call.body.iter().next() {
        Some((_, RawValue::String(_))) => Some(call.namespace()?),
        _ => None,
    };
    let mut batch = Batch::first(Some(usize::MAX));
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "cursor" => batch = cursor_batch(&argument)?,
            _ => return Err(argument.unknown()),
        }
    }
    let registry = call.engine.patterns();
    let wanted = |pattern: &Pattern| target.as_ref().is_none_or(|target| pattern.target == *target);
    let mut documents = Vec::new();
    for pattern in registry.of(database).iter().filter(|pattern| wanted(pattern)) {
        documents.push(call.engine.describe_pattern(pattern)?);
    }
    let namespace = target
        .unwrap_or_else(|| Namespace { database: database.to_owned(), collection: format!("$cmd.{NAME}") });
    cursor_reply::first_batch(
        call,
        Cursor::new(namespace, CursorSource::List(documents.into_iter())),
        batch,
        false,
    )
}
