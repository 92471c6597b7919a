//! `insert`: add documents.

use kilim_bson::{Document, doc};
use kilim_engine::write;
use kilim_error::Result;

use super::time_series;
use super::write_reply::{Failures, StatementIds, WriteOptions, check_batch, check_statement_ids};
use crate::dispatch::Call;

const NAME: &str = "insert";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("insert");
    let options = WriteOptions::parse(NAME, call.body, "documents")?;
    call.expect(NAME, &namespace)?;
    let documents = call.request.documents(NAME, "documents")?;
    check_batch(documents.len())?;
    check_statement_ids(call.body, documents.len())?;
    // A name that no collection can have is the command's fault, not its documents'.
    namespace.check_creatable()?;
    namespace.check_writable()?;
    call.engine.metrics.inserted.add(documents.len() as u64);
    call.unit.bypass_validation = options.bypass_validation;
    let ids = StatementIds::of(call.body);
    let statements = |position| ids.at(position);
    let outcome = match time_series::of(call, &namespace) {
        Some(view) => {
            write::insert_measurements(&mut call.unit, &view, &documents, options.ordered, statements)?
        }
        None => write::insert(&mut call.unit, &namespace, &documents, options.ordered, statements)?,
    };
    let mut failures = Failures::default();
    for (position, error) in outcome.errors {
        failures.take(position, error)?;
    }
    Ok(failures.finish(call, doc! {"n": outcome.inserted as i32}))
}
