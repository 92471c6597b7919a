//! Why a command did not succeed: the connection broke, or the server said no.

use std::{fmt, io};

use kilim_bson::{Document, RawDocument, RawValue};

use crate::whole;

#[derive(Debug)]
pub enum Fault {
    /// The connection broke: whether the command took effect is unknown.
    Lost(io::Error),
    /// The connection would not be safe: certificates or their files are not as they must be. Nothing was sent.
    Insecure(String),
    /// The server answered with an error.
    Refused(Box<Failure>),
}

/// What an error reply says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    pub code: i32,
    /// `codeName`; empty where the server names none, as in write errors.
    pub name: String,
    pub message: String,
    /// What a driver is to do about it: `errorLabels`.
    pub labels: Vec<String>,
    /// `errInfo`: what failed, for programs.
    pub info: Option<Document>,
}

impl Failure {
    /// The failure of a reply whose `ok` is not 1.
    pub fn of(reply: RawDocument<'_>) -> Option<Failure> {
        (whole(reply.get("ok")) != Some(1)).then(|| Failure::read(reply, reply))
    }

    /// As [`Failure::of`], and the first write error or the write concern error of a reply that is `ok`.
    pub fn anywhere_in(reply: RawDocument<'_>) -> Option<Failure> {
        Failure::of(reply).or_else(|| {
            let errors = reply.get("writeErrors").and_then(RawValue::as_array);
            let error = errors.and_then(|errors| errors.get(0)).or(reply.get("writeConcernError"))?;
            Some(Failure::read(error.as_document()?, reply))
        })
    }

    fn read(error: RawDocument<'_>, reply: RawDocument<'_>) -> Failure {
        let text = |name| error.get(name).and_then(RawValue::as_str).unwrap_or_default().to_owned();
        let labels = reply.get("errorLabels").and_then(RawValue::as_array);
        let labels = labels.into_iter().flat_map(|labels| labels.iter()).filter_map(RawValue::as_str);
        Failure {
            code: whole(error.get("code")).unwrap_or_default() as i32,
            name: text("codeName"),
            message: text("errmsg"),
            labels: labels.map(str::to_owned).collect(),
            info: error.get("errInfo").and_then(RawValue::as_document).map(RawDocument::to_document),
        }
    }
}

/// What a reply complains about is a fault, also a write error or a write concern error.
pub fn check_reply(reply: RawDocument<'_>) -> Result<(), Fault> {
    match Failure::anywhere_in(reply) {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}

impl Fault {
    /// A reply that succeeded and yet is not what it has to be.
    pub fn unexpected(message: impl Into<String>) -> Fault {
        Failure { message: message.into(), ..Failure::default() }.into()
    }

    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Fault::Lost(_) | Fault::Insecure(_) => None,
            Fault::Refused(failure) => Some(failure),
        }
    }

    pub fn code(&self) -> Option<i32> {
        self.failure().map(|failure| failure.code)
    }

    pub fn has_label(&self, label: &str) -> bool {
        self.failure().is_some_and(|failure| failure.labels.iter().any(|own| own == label))
    }

    /// The outcome is unknown: the command may or may not have taken effect.
    pub fn is_unknown(&self) -> bool {
        // Shutting down, interrupted by it, no longer primary, or a write concern that was not waited for.
        const UNKNOWN: [i32; 7] = [91, 11600, 11602, 64, 189, 10107, 13435];
        match self {
            Fault::Lost(_) => true,
            Fault::Insecure(_) => false,
            Fault::Refused(failure) => {
                UNKNOWN.contains(&failure.code) || self.has_label("UnknownTransactionCommitResult")
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Lost(error) => write!(f, "connection lost: {error}"),
            Fault::Insecure(why) => write!(f, "no safe connection: {why}"),
            Fault::Refused(failure) => failure.fmt(f),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match (self.code, &*self.name) {
            (0, _) => {}
            (code, "") => write!(f, " (error {code})")?,
            (code, name) => write!(f, " ({name}, {code})")?,
        }
        if !self.labels.is_empty() {
            write!(f, " [{}]", self.labels.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault::Lost(error)
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Fault {
        Fault::Refused(Box::new(failure))
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    #[test]
    fn write_errors_in_an_ok_reply_are_failures() {
        for (reply, code) in [
            (doc! {"ok": 1.0, "n": 1}, None),
            (doc! {"ok": 0.0, "code": 59, "errmsg": "no"}, Some(59)),
            (doc! {"ok": 1.0, "writeErrors": [{"index": 0, "code": 11000, "errmsg": "dup"}]}, Some(11000)),
            (doc! {"ok": 1.0, "writeConcernError": {"code": 64, "errmsg": "late"}}, Some(64)),
        ] {
            assert_eq!(Failure::anywhere_in(reply.as_raw()).map(|failure| failure.code), code);
        }
    }

    #[test]
    fn a_failure_keeps_all_that_the_server_says() {
        let reply = doc! {"ok": 0.0, "code": 90000001, "codeName": "PatternFieldReadOnly", "errmsg": "no",
        "errorLabels": ["a"], "errInfo": {"path": "x"}};
        let failure = Failure::of(reply.as_raw()).expect("it failed");
        assert_eq!(failure.to_string(), "no (PatternFieldReadOnly, 90000001) [a]");
        assert_eq!(failure.info, Some(doc! {"path": "x"}));
    }
}
