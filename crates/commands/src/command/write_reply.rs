//! What insert, update and delete have in common: their options and their reply.

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::limits;
use kilim_engine::unit::Caused;
use kilim_engine::write::is_statement_error;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{Argument, arguments};
use crate::dispatch::Call;
use crate::reply;

/// The options of all three commands.
pub struct WriteOptions {
    pub ordered: bool,
    /// Validators are not asked.
    pub bypass_validation: bool,
}

impl WriteOptions {
    /// Reads all fields but `statements`, the one that holds the documents.
    pub fn parse(command: &'static str, body: RawDocument<'_>, statements: &str) -> Result<WriteOptions> {
        let mut options = WriteOptions { ordered: true, bypass_validation: false };
        for argument in arguments(command, body) {
            match argument.name {
                name if name == statements => {}
                "ordered" => options.ordered = argument.strict_boolean()?,
                "bypassDocumentValidation" => options.bypass_validation = argument.boolean()?,
                // Each statement reads it, and fails where it is wrong.
                "let" if command != "insert" => drop(argument.document()?),
                "isTimeseriesNamespace" => argument.only_off()?,
                "collectionUUID" => drop(argument.uuid()?),
                "encryptionInformation" | "legacyRuntimeConstants" => {
                    return Err(argument.unsupported());
                }
                _ => return Err(argument.unknown()),
            }
        }
        Ok(options)
    }
}

/// One batch is neither empty nor without end.
pub fn check_batch(count: usize) -> Result<()> {
    if count == 0 || count > limits::WRITE_BATCH_STATEMENTS_MAX {
        return Err(Error::user(
            ErrorCode::InvalidLength,
            format!(
                "Write batch sizes must be between 1 and {}. Got {count} operations.",
                limits::WRITE_BATCH_STATEMENTS_MAX
            ),
        ));
    }
    Ok(())
}

/// `stmtIds` and `stmtId`: whole numbers, not both, and as many as there are statements.
pub fn check_statement_ids(body: RawDocument<'_>, count: usize) -> Result<()> {
    let number = |value: RawValue<'_>| match value {
        RawValue::Int32(_) => Ok(()),
        other => Err(Error::user(
            ErrorCode::TypeMismatch,
            format!("a statement id must be an int, not {}", other.element_type().name()),
        )),
    };
    if let Some(first) = body.get("stmtId") {
        number(first)?;
    }
    let Some(ids) = body.get("stmtIds") else { return Ok(()) };
    let ids = Argument { command: "stmtIds", name: "stmtIds", value: ids }.array()?;
    if body.get("stmtId").is_some() {
        return Err(Error::user(
            ErrorCode::InvalidOptions,
            "May not specify both stmtId and stmtIds in write command",
        ));
    }
    if ids.len() != count {
        return Err(Error::user(
            ErrorCode::InvalidLength,
            format!(
                "Number of statement ids must match the number of batch entries. Got {} statement ids but {count} \
                 operations.",
                ids.len()
            ),
        ));
    }
    ids.iter().try_for_each(number)
}

/// The numbers that a retry knows statements by: those of `stmtIds`, or following each other from `stmtId` or 0.
pub struct StatementIds {
    listed: Vec<i32>,
    first: i32,
}

impl StatementIds {
    pub fn of(body: RawDocument<'_>) -> StatementIds {
        let number = |value| match value {
            RawValue::Int32(id) => Some(id),
            _ => None,
        };
        let listed = body.get("stmtIds").and_then(RawValue::as_array);
        StatementIds {
            listed: listed.into_iter().flat_map(|ids| ids.iter()).map_while(number).collect(),
            first: body.get("stmtId").and_then(number).unwrap_or(0),
        }
    }

    pub fn at(&self, position: usize) -> i32 {
        self.listed.get(position).copied().unwrap_or_else(|| self.first.wrapping_add(position as i32))
    }
}

/// Collects the errors of single statements.
#[derive(Default)]
pub struct Failures {
    errors: Vec<Document>,
}

impl Failures {
    /// Takes a statement's error, or gives it back if it ends the command.
    pub fn take(&mut self, position: usize, error: Error) -> Result<()> {
        if !is_statement_error(&error) {
            return Err(error);
        }
        self.errors.push(reply::write_error(position, &error));
        Ok(())
    }

    /// Finishes a write command's reply.
    pub fn finish(self, call: &mut Call<'_, '_>, mut document: Document) -> Document {
        if !self.errors.is_empty() {
            call.statement_failed = true;
            document.push("writeErrors", self.errors);
        }
        let retried = call.unit.retried();
        if !retried.is_empty() {
            document.push("retriedStmtIds", retried.iter().map(|&id| Value::Int32(id)).collect::<Vec<_>>());
        }
        push_caused(&mut document, &call.unit.caused);
        document
    }
}

/// Tells what maintenance did because of a command's writes, if it did anything.
pub fn push_caused(reply: &mut Document, caused: &Caused) {
    if caused.is_nothing() {
        return;
    }
    let mut told = Document::new();
    if caused.maintained > 0 {
        told.push("maintained", caused.maintained as i64);
    }
    if let Some(pending) = &caused.pending {
        told.push("pending", doc! {"job": pending.job as i64, "documents": pending.documents as i64});
    }
    reply.push("kilim", told);
}

/// Where an argument of a statement must be there.
pub fn required<T>(value: Option<T>, command: &str, name: &str) -> Result<T> {
    value.ok_or_else(|| {
        Error::location(40414, format!("BSON field '{command}.{name}' is missing but a required field"))
    })
}

/// `upserted` entries: position and `_id`.
pub fn upserted_entry(position: usize, id: Value) -> Document {
    doc! {"index": position as i32, "_id": id}
}
