//! What a user must be allowed to run a command: actions on resources, by MongoDB's names.
//!
//! Nothing is enforced yet, because there are no users: every client may do everything. The column in the table of
//! commands is what authorization will read.

/// What an action is done to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// The collection that the command names.
    Collection,
    /// Another collection that the command names: what it writes to, or renames to.
    OtherCollection,
    /// The database that the command runs on.
    Database,
    /// The server as a whole.
    Cluster,
}

/// The right to do one thing to one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privilege {
    pub resource: Resource,
    /// An action of MongoDB, or one of [`OWN_ACTIONS`].
    pub action: &'static str,
}

/// What a command asks of whoever runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it answers before a login.
    Nothing,
    /// A login, and no privilege.
    Login,
    /// Every call needs all of the first; some arguments ask for some of the second too.
    Privileges { always: &'static [Privilege], sometimes: &'static [Privilege] },
}

/// Actions that MongoDB does not have: for patterns, and for handing out the data on disk.
pub const OWN_ACTIONS: &[&str] = &["kilimBackup", "listPatterns", "pattern"];

impl Needs {
    /// Privileges that every call needs.
    pub const fn all(always: &'static [Privilege]) -> Needs {
        Needs::Privileges { always, sometimes: &[] }
    }
}

pub const fn collection(action: &'static str) -> Privilege {
    Privilege { resource: Resource::Collection, action }
}

pub const fn other(action: &'static str) -> Privilege {
    Privilege { resource: Resource::OtherCollection, action }
}

pub const fn database(action: &'static str) -> Privilege {
    Privilege { resource: Resource::Database, action }
}

pub const fn cluster(action: &'static str) -> Privilege {
    Privilege { resource: Resource::Cluster, action }
}
