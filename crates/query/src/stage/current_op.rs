//! `$currentOp`: what runs now.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{Behaviour, Context, Owner, Stage};

/// Which operations are shown. Options about shards show the same on one node, whatever they say.
#[derive(Debug, Clone, Default)]
pub struct CurrentOp {
    given: Document,
    /// Sessions that do nothing but hold a transaction open are shown too.
    pub idle_sessions: bool,
    /// And connections that wait for their next command.
    pub idle_connections: bool,
    /// And cursors that wait for their next getMore.
    pub idle_cursors: bool,
}

pub(super) fn glance(name: &str, value: RawValue<'_>, _: &str) -> Result<()> {
    specification(name, value).map(drop)
}

/// The options of a stage that tells of the server.
pub(super) fn specification<'a>(name: &str, value: RawValue<'a>) -> Result<RawDocument<'a>> {
    value.as_document().ok_or_else(|| {
        let found = value.element_type().name();
        let message = format!("{name} options must be specified in an object, but found: {found}");
        Error::user(ErrorCode::TypeMismatch, message)
    })
}

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let spec = specification(name, value)?;
    let mut stage = CurrentOp { given: spec.to_document(), idle_sessions: true, ..CurrentOp::default() };
    for (name, value) in spec.iter() {
        let code = match name {
            "allUsers" | "localOps" => ErrorCode::TypeMismatch,
            "idleConnections" | "idleSessions" | "idleCursors" | "truncateOps" | "backtrace" => {
                ErrorCode::FailedToParse
            }
            _ => {
                return Err(Error::user(
                    ErrorCode::FailedToParse,
                    format!("Unrecognized option '{name}' in $currentOp stage."),
                ));
            }
        };
        match (name, value) {
            ("idleSessions", RawValue::Bool(wanted)) => stage.idle_sessions = wanted,
            ("idleConnections", RawValue::Bool(wanted)) => stage.idle_connections = wanted,
            ("idleCursors", RawValue::Bool(wanted)) => stage.idle_cursors = wanted,
            (_, RawValue::Bool(_)) => {}
            (_, other) => {
                return Err(Error::user(
                    code,
                    format!(
                        "The '{name}' parameter of the $currentOp stage must be a boolean value, but found: {}",
                        other.element_type().name()
                    ),
                ));
            }
        }
    }
    if context.database != "admin" || context.owner != Owner::Database {
        return Err(Error::user(
            ErrorCode::InvalidNamespace,
            "$currentOp must be run against the 'admin' database with {aggregate: 1}",
        ));
    }
    out.push(Stage::CurrentOp(stage));
    Ok(())
}

impl Behaviour for CurrentOp {
    fn to_document(&self) -> Document {
        doc! {"$currentOp": self.given.clone()}
    }
}
