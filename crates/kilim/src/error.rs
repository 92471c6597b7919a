//! What can go wrong.

use std::fmt;

use kilim_bson::{RawDocument, RawValue};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be opened.
    Open(String),
    /// A command was refused.
    Command(Box<CommandError>),
    /// Some of a command's writes were refused; the others are done.
    Writes(Vec<WriteError>),
    /// A value makes a document that cannot be stored: nested too deep, say.
    Malformed(String),
    /// A value cannot be made a document, or a document no value of the type that was asked for.
    Bson(bson::error::Error),
}

/// As MongoDB answers: the code, its name and a message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CommandError {
    pub code: i32,
    pub code_name: String,
    pub message: String,
    /// Such as `TransientTransactionError`: the whole transaction may be tried again.
    pub labels: Vec<String>,
    /// What the error carries along, as `errInfo`.
    pub info: Option<bson::Document>,
}

/// One refused write.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WriteError {
    /// Its place among the writes of the command.
    pub index: usize,
    pub code: i32,
    pub message: String,
    pub info: Option<bson::Document>,
}

impl Error {
    /// The error's code, of the first refused write if there are several.
    pub fn code(&self) -> Option<i32> {
        match self {
            Error::Command(error) => Some(error.code),
            Error::Writes(errors) => errors.first().map(|error| error.code),
            Error::Open(_) | Error::Malformed(_) | Error::Bson(_) => None,
        }
    }

    /// Whether a unique index refused a write.
    pub fn is_duplicate_key(&self) -> bool {
        self.code() == Some(11000)
    }

    /// Whether the whole transaction may be tried again.
    pub fn is_transient(&self) -> bool {
        self.has_label("TransientTransactionError")
    }

    pub fn has_label(&self, label: &str) -> bool {
        matches!(self, Error::Command(error) if error.labels.iter().any(|own| own == label))
    }

    /// What a reply with `ok: 0` says.
    pub(crate) fn of_reply(reply: RawDocument<'_>) -> Error {
        let labels = reply.get("errorLabels").and_then(RawValue::as_array);
        let labels = labels.into_iter().flat_map(|labels| labels.iter().filter_map(RawValue::as_str));
        Error::Command(Box::new(CommandError {
            code: number(reply, "code"),
            code_name: text(reply, "codeName"),
            message: text(reply, "errmsg"),
            labels: labels.map(str::to_owned).collect(),
            info: info(reply),
        }))
    }
}

impl WriteError {
    pub(crate) fn of(entry: RawDocument<'_>) -> WriteError {
        WriteError {
            index: number(entry, "index") as usize,
            code: number(entry, "code"),
            message: text(entry, "errmsg"),
            info: info(entry),
        }
    }
}

fn text(document: RawDocument<'_>, name: &str) -> String {
    document.get(name).and_then(RawValue::as_str).unwrap_or_default().to_owned()
}

fn number(document: RawDocument<'_>, name: &str) -> i32 {
    match document.get(name) {
        Some(RawValue::Int32(number)) => number,
        _ => 0,
    }
}

fn info(document: RawDocument<'_>) -> Option<bson::Document> {
    let info = document.get("errInfo")?.as_document()?;
    bson::deserialize_from_slice(info.as_bytes()).ok()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Open(message) | Error::Malformed(message) => f.write_str(message),
            Error::Command(error) => write!(f, "{} ({}: {})", error.message, error.code_name, error.code),
            Error::Writes(errors) => match errors.as_slice() {
                [one] => write!(f, "{} ({})", one.message, one.code),
                several => {
                    let first = several.first().map_or("", |error| &error.message);
                    write!(f, "{} writes were refused, the first: {first}", several.len())
                }
            },
            Error::Bson(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Bson(error) => Some(error),
            _ => None,
        }
    }
}

impl From<bson::error::Error> for Error {
    fn from(error: bson::error::Error) -> Error {
        Error::Bson(error)
    }
}
