//! Errors in four families, because four different people act on them.
//!
//! - [`Error::User`]: the caller. The code is contract and stands in the specs.
//! - [`Error::Conflict`]: the driver, by retrying. Carries the transient label in transactions.
//! - [`Error::Storage`]: whoever runs the server.
//! - [`Error::Bug`]: us. Logged in full, shown as `InternalError`.
//!
//! The code is chosen where the fault is seen, since only there is the message exact.

mod code;
mod user;

use std::fmt;

pub use code::ErrorCode;
pub use user::UserError;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone)]
pub enum Error {
    User(Box<UserError>),
    /// Another writer was first. The text says on what.
    Conflict(&'static str),
    Storage(StorageError),
    Bug(String),
}

/// What the disk did to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageError {
    Io(String),
    Corrupt(String),
    /// A sync failed earlier. What the disk holds is unknown, so writes are refused until reopened.
    Poisoned(String),
    /// The free-space reserve is reached: writes are refused, reads go on.
    OutOfSpace {
        free_bytes: u64,
        reserve_bytes: u64,
    },
}

impl Error {
    pub fn user(code: ErrorCode, message: impl Into<String>) -> Error {
        Error::User(Box::new(UserError { code, message: message.into(), details: None }))
    }

    /// A user error whose code MongoDB knows only by number, `Location<number>`.
    pub fn location(code: i32, message: impl Into<String>) -> Error {
        Error::user(ErrorCode(code), message)
    }

    pub fn bug(message: impl Into<String>) -> Error {
        Error::Bug(message.into())
    }

    /// The same, where the caller is at fault, with what was going on before its message, as mongod words it.
    pub fn during(self, what: &str) -> Error {
        match self {
            Error::User(mut user) => {
                user.message = format!("{what} :: caused by :: {}", user.message);
                Error::User(user)
            }
            other => other,
        }
    }

    /// The same with fields that join the error's reply: a BSON document's bytes.
    pub fn with_details(self, details: Vec<u8>) -> Error {
        match self {
            Error::User(mut user) => {
                user.details = Some(details.into());
                Error::User(user)
            }
            other => other,
        }
    }

    /// The code a client sees.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::User(user) => user.code,
            Error::Conflict(_) => ErrorCode::WriteConflict,
            Error::Storage(StorageError::OutOfSpace { .. }) => ErrorCode::OutOfDiskSpace,
            Error::Storage(StorageError::Corrupt(_)) => ErrorCode::DataCorruptionDetected,
            Error::Storage(_) | Error::Bug(_) => ErrorCode::InternalError,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::User(user) => f.write_str(&user.message),
            Error::Conflict(what) => write!(
                f,
                "Caused by :: Write conflict during plan execution and yielding is disabled. :: {what}. \
                 Please retry your operation or multi-document transaction."
            ),
            Error::Storage(error) => error.fmt(f),
            Error::Bug(message) => write!(f, "internal error: {message}"),
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Io(what) => write!(f, "storage: {what}"),
            StorageError::Corrupt(what) => write!(f, "storage is corrupt: {what}"),
            StorageError::Poisoned(what) => write!(
                f,
                "writes are refused because an earlier sync to disk failed ({what}); \
                 restart the server once the disk is well"
            ),
            StorageError::OutOfSpace { free_bytes, reserve_bytes } => write!(
                f,
                "not enough disk space for writes: {free_bytes} bytes free, {reserve_bytes} are kept in \
                 reserve; free some space, reads go on meanwhile"
            ),
        }
    }
}

impl std::error::Error for Error {}
impl std::error::Error for StorageError {}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Error {
        Error::Storage(error)
    }
}
