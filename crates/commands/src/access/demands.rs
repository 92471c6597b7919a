//! What the arguments of a command ask for: one function for each command whose needs depend on them.
//!
//! A function sees the command before it is parsed, so it is tolerant: what is malformed asks for nothing more, and the command
//! itself refuses it. Where a privilege is missing, [`Demands`] remembers it; the answer is one refusal for all.

pub(crate) mod asked;
mod pipeline;

use kilim_auth::{Action, Rights};
use kilim_bson::{RawDocument, RawValue};
use kilim_engine::Engine;
use kilim_error::Result;

use super::Identity;
use crate::privilege::{Needs, Resource};
use crate::registry::CommandSpec;
use crate::request::Request;

/// A privilege that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    Collection(String, String, Action),
    Database(String, Action),
    Cluster(Action),
}

impl Claim {
    pub(crate) fn holds(&self, rights: &Rights) -> bool {
        match self {
            Claim::Collection(db, name, action) => rights.allows_on_collection(db, name, *action),
            Claim::Database(db, action) => rights.allows_on_database(db, *action),
            Claim::Cluster(action) => rights.allows_on_cluster(*action),
        }
    }
}

/// A command's demands, asked for one after the other.
pub struct Demands<'a> {
    pub(super) engine: &'a Engine,
    request: &'a Request<'a>,
    /// The command, or the one that is to be explained.
    body: RawDocument<'a>,
    database: &'a str,
    /// The user, unless it is the localhost exception or nobody is asked.
    identity: Option<&'a Identity>,
    /// Without them the claims are collected, and all is allowed.
    rights: Option<&'a Rights>,
    claims: Vec<Claim>,
    refused: bool,
}

impl<'a> Demands<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        request: &'a Request<'a>,
        database: &'a str,
        rights: &'a Rights,
        identity: Option<&'a Identity>,
    ) -> Demands<'a> {
        let (body, rights) = (request.body, Some(rights));
        Demands { engine, request, body, database, identity, rights, claims: Vec::new(), refused: false }
    }

    pub(super) fn collecting(engine: &'a Engine, request: &'a Request<'a>, database: &'a str) -> Demands<'a> {
        let (body, rights, identity) = (request.body, None, None);
        Demands { engine, request, body, database, identity, rights, claims: Vec::new(), refused: false }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    pub(super) fn into_claims(self) -> Vec<Claim> {
        self.claims
    }

    /// Asks for all that a command needs.
    pub(super) fn ask(&mut self, spec: &CommandSpec) -> Result<()> {
        match spec.needs {
            Needs::Nothing => Ok(()),
            // The localhost exception is no login; only the end of one is open to it.
            Needs::Login => {
                self.refused |= self.rights.is_some() && self.identity.is_none() && spec.name != "logout";
                Ok(())
            }
            Needs::Always(privileges) => {
                for privilege in privileges {
                    match privilege.resource {
                        Resource::Collection => self.need_on_own(privilege.action),
                        Resource::Database => self.need_on_database(self.database, privilege.action),
                        Resource::Cluster => self.need_on_cluster(privilege.action),
                    }
                }
                Ok(())
            }
            Needs::Asked(asks) => asks(self),
        }
    }

    /// The collection that the command names. A command without one is about its database.
    fn collection(&self) -> Option<&'a str> {
        self.body.iter().next().and_then(|(_, name)| name.as_str())
    }

    fn need_on_own(&mut self, action: Action) {
        match self.collection() {
            Some(collection) => self.need(self.database, collection, action),
            None => self.need_on_database(self.database, action),
        }
    }

    fn need(&mut self, db: &str, collection: &str, action: Action) {
        match self.rights {
            Some(rights) => self.refused |= !rights.allows_on_collection(db, collection, action),
            None => self.claims.push(Claim::Collection(db.to_owned(), collection.to_owned(), action)),
        }
    }

    fn need_on_database(&mut self, db: &str, action: Action) {
        match self.rights {
            Some(rights) => self.refused |= !rights.allows_on_database(db, action),
            None => self.claims.push(Claim::Database(db.to_owned(), action)),
        }
    }

    fn need_on_cluster(&mut self, action: Action) {
        match self.rights {
            Some(rights) => self.refused |= !rights.allows_on_cluster(action),
            None => self.claims.push(Claim::Cluster(action)),
        }
    }

    /// Whether something is allowed, for commands that have several ways to be.
    fn may(&self, db: &str, collection: &str, action: Action) -> bool {
        self.rights.is_none_or(|rights| rights.allows_on_collection(db, collection, action))
    }

    /// A field of a document. If it is there twice, the command is refused: it might take the other one.
    fn field(&mut self, document: RawDocument<'a>, name: &str) -> Option<RawValue<'a>> {
        let mut found = document.iter().filter(|(own, _)| *own == name).map(|(_, value)| value);
        let first = found.next();
        self.refused |= self.rights.is_some() && found.next().is_some();
        first
    }

    /// A field of the command.
    fn argument(&mut self, name: &str) -> Option<RawValue<'a>> {
        self.field(self.body, name)
    }

    fn is_true(&mut self, name: &str) -> bool {
        match self.argument(name) {
            Some(RawValue::Bool(value)) => value,
            Some(RawValue::Int32(value)) => value != 0,
            Some(RawValue::Int64(value)) => value != 0,
            Some(RawValue::Double(value)) => value != 0.0,
            Some(RawValue::Decimal128(value)) => !value.is_zero(),
            _ => false,
        }
    }
}
