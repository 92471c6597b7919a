//! Replies, and the one place where errors become documents.

use kilim_bson::{Document, RawDocument, Timestamp, Value, doc};
use kilim_error::{Error, ErrorCode, StorageError};

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

/// The fields of an error reply: `ok`, `errmsg`, `code`, `codeName` and what the error carries along.
pub fn error_document(error: &Error) -> Document {
    log(error);
    let mut document = doc! {"ok": 0.0, "errmsg": message(error)};
    push_code(&mut document, error);
    push_details(&mut document, error);
    document
}

/// One entry of `writeErrors`.
pub fn write_error(index: usize, error: &Error) -> Document {
    log(error);
    let mut document = doc! {"index": index as i32, "code": error.code().0};
    push_details(&mut document, error);
    document.push("errmsg", message(error));
    document
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
        let unknown = matches!(error, Error::Storage(_) | Error::Bug(_)) || code == ErrorCode::MaxTimeMSExpired;
        if unknown {
            labels.push("UnknownTransactionCommitResult");
        }
    }
    let transient = matches!(
        code,
        ErrorCode::WriteConflict | ErrorCode::LockTimeout | ErrorCode::NoSuchTransaction
            | ErrorCode::SnapshotUnavailable | ErrorCode::PreparedTransactionInProgress
    );
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
pub fn push_times(document: &mut Document, now: u64, operation: u64) {
    let now = Timestamp::from_bits(now);
    let signature = doc! {
        "hash": Value::Binary { subtype: 0, bytes: vec![0; 20] },
        "keyId": 0i64,
    };
    document.push("$clusterTime", doc! {"clusterTime": now, "signature": signature});
    document.push("operationTime", Timestamp::from_bits(operation));
}
