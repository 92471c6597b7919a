//! What a user must be allowed to run a command: actions on resources, by MongoDB's names. The column `needs` of the table of
//! commands holds it, and [`crate::access`] enforces it.
//!
//! Tried on mongod 6.0.5 with `--auth`: `tests/access/matrix.json` has the answers for every built-in role. The privileges of
//! Kilim's own commands are a decision, not a finding.

use kilim_auth::Action;
use kilim_error::Result;

use crate::access::Demands;

/// What an action is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// The collection that the command names.
    Collection,
    /// The database that the command runs on.
    Database,
    /// The server as a whole.
    Cluster,
}

/// The right to do one thing to one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privilege {
    pub resource: Resource,
    pub action: Action,
}

/// What a command asks of whoever runs it.
#[derive(Clone, Copy)]
pub enum Needs {
    /// Nothing: it answers before a login.
    Nothing,
    /// A login, and no privilege, or one that the command itself looks at: whose cursor it is, for instance.
    Login,
    /// All of these, whatever its arguments are.
    Always(&'static [Privilege]),
    /// What its arguments ask for, as a function of [`crate::access::demands`] says.
    Asked(fn(&mut Demands<'_>) -> Result<()>),
}

impl Needs {
    /// Privileges that every call needs.
    pub const fn all(always: &'static [Privilege]) -> Needs {
        Needs::Always(always)
    }
}

pub const fn collection(action: &'static str) -> Privilege {
    Privilege { resource: Resource::Collection, action: Action::named(action) }
}

pub const fn database(action: &'static str) -> Privilege {
    Privilege { resource: Resource::Database, action: Action::named(action) }
}

pub const fn cluster(action: &'static str) -> Privilege {
    Privilege { resource: Resource::Cluster, action: Action::named(action) }
}
