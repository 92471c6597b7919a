//! Refusals: errors of patterns, with `errInfo` beside the message.
//!
//! The message is for people. Programs find the pattern, the collection and the path in `errInfo`, in an error
//! reply and in each of `writeErrors` alike.

use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode};

use super::Pattern;
use crate::namespace::Namespace;

impl Pattern {
    /// An error that is about this pattern, and about a path where there is one.
    pub(crate) fn refusal(&self, code: ErrorCode, path: Option<&str>, message: impl Into<String>) -> Error {
        about(Error::user(code, message), &self.target, &self.declaration.name, path)
    }
}

/// An error of a pattern with its `errInfo`. Other errors, and those that have theirs, stay as they are.
pub fn about(error: Error, target: &Namespace, pattern: &str, path: Option<&str>) -> Error {
    match &error {
        Error::User(user) if user.code.is_own() && user.details.is_none() => {}
        _ => return error,
    }
    let mut info = doc! {"pattern": pattern};
    if let Some(path) = path {
        info.push("path", path);
    }
    info.push("ns", target.to_string());
    let mut details = Document::new();
    details.push("errInfo", info);
    error.with_details(details.into_bytes())
}
