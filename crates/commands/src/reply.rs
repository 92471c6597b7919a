//! Replies, and the one place where errors become documents.

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Value, Writer, doc};
use kilim_engine::write::is_statement_error;
use kilim_error::{Error, ErrorCode, StorageError};

use crate::topology;

pub struct Reply {
    pub document: Document,
    /// The server runs this next and sends its reply unasked (exhaust).
    pub exhaust_next: Option<Document>,
    pub close_connection: bool,
}

impl Reply {
    pub fn of(document: Document) -> Reply {
        Reply { document, exhaust_next: None, close_connection: false }
    }
}

/// The codes by which a member of a set says that it is not the primary. Only fail points give them here; with the version
/// of the topology beside the code, a driver sees that it has heard of this topology already, and does not wait for a newer one.
const NOT_PRIMARY: [i32; 5] = [189, 10107, 11602, 13435, 13436];

/// The fields of an error reply: `ok`, `errmsg`, `code`, `codeName` and what the error carries along.
pub fn error_document(error: &Error) -> Document {
    log(error);
    let mut document = Document::new();
    if NOT_PRIMARY.contains(&error.code().0) {
        document.push("topologyVersion", topology::version());
    }
    document.push("ok", 0.0);
    document.push("errmsg", message(error));
    push_code(&mut document, error);
    push_details(&mut document, error);
    document
}

/// One entry of `writeErrors`.
pub fn write_error(index: usize, error: &Error) -> Document {
    log(error);
    let mut document = doc! {"index": index as i32, "code": error.code().0};
    // Drivers know the others by number.
    if error.code().is_own() {
        document.push("codeName", error.code().name().into_owned());
    }
    push_details(&mut document, error);
    document.push("errmsg", message(error));
    document
}

/// As mongod words an error of the data, met while a plan ran.
pub fn while_executing(during: &str, error: Error) -> Error {
    if !is_statement_error(&error) || error.code() == ErrorCode::CommandNotSupportedOnView {
        return error;
    }
    match error {
        Error::User(mut user) => {
            user.message = format!("{during} :: caused by :: {}", user.message);
            Error::User(user)
        }
        other => other,
    }
}

fn push_code(document: &mut Document, error: &Error) {
    document.push("code", error.code().0);
    document.push("codeName", error.code().name().into_owned());
}

fn push_details(document: &mut Document, error: &Error) {
    let Error::User(user) = error else { return };
    let Some(details) = &user.details else { return };
    if let Ok(details) = RawDocument::parse(details) {
        for (name, value) in details.iter() {
            document.push(name, value.to_value());
        }
    }
}

/// What the client reads. A bug's own words go to the log, not to strangers.
fn message(error: &Error) -> String {
    match error {
        Error::Bug(_) => "internal error; the server's log says more".to_owned(),
        other => other.to_string(),
    }
}

fn log(error: &Error) {
    match error {
        Error::Bug(what) => tracing::error!(what, "a bug in Kilim: please report it"),
        Error::Storage(StorageError::OutOfSpace { .. }) => tracing::warn!(%error, "a write was refused"),
        Error::Storage(_) => tracing::error!(%error, "storage failed"),
        Error::User(_) | Error::Conflict(_) => {}
    }
}

/// Labels tell drivers what to do about an error.
pub fn labels(error: &Error, in_transaction: bool, committing: bool) -> Vec<&'static str> {
    let mut labels = Vec::new();
    let code = error.code();
    if committing {
        // Whether it was committed is unknown: the driver commits again.
        // Drivers add the label themselves where the code says as much, after a timeout for one.
        if matches!(error, Error::Storage(_) | Error::Bug(_)) {
            labels.push("UnknownTransactionCommitResult");
        }
    }
    let transient = matches!(
        code,
        ErrorCode::WriteConflict
            | ErrorCode::LockTimeout
            | ErrorCode::NoSuchTransaction
            | ErrorCode::SnapshotUnavailable
            | ErrorCode::PreparedTransactionInProgress
    );
    if matches!(code, ErrorCode::ChangeStreamFatalError | ErrorCode::ChangeStreamHistoryLost) {
        labels.push("NonResumableChangeStreamError");
    }
    if transient && (in_transaction || committing) {
        labels.push("TransientTransactionError");
    }
    labels
}

pub fn push_labels(document: &mut Document, labels: &[&str]) {
    if !labels.is_empty() {
        let labels: Vec<Value> = labels.iter().map(|&label| Value::from(label)).collect();
        document.push("errorLabels", labels);
    }
}

/// What every reply of a replica set member ends with.
pub fn with_times(document: Document, now: u64, operation: u64) -> Document {
    let mut writer = Writer::resume(document);
    writer.open_document("$clusterTime");
    writer.append("clusterTime", RawValue::Timestamp(Timestamp::from_bits(now)));
    writer.open_document("signature");
    writer.append("hash", RawValue::Binary { subtype: 0, bytes: &[0; 20] });
    writer.append("keyId", RawValue::Int64(0));
    writer.close();
    writer.close();
    writer.append("operationTime", RawValue::Timestamp(Timestamp::from_bits(operation)));
    writer.finish()
}
