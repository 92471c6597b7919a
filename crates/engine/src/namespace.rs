//! Names of databases and collections.

use std::fmt;

use kilim_error::{Error, ErrorCode, Result};
use kilim_query::names::{self, check_database};

use crate::limits;

/// A collection's full name: `shop.orders`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    pub database: String,
    pub collection: String,
}

/// Whether a database belongs to the server itself, not to a user.
pub fn is_internal(database: &str) -> bool {
    matches!(database, "admin" | "config" | "local")
}

impl Namespace {
    /// Refuses names that MongoDB refuses in any command.
    pub fn parse(database: &str, collection: &str) -> Result<Namespace> {
        check_database(database)?;
        if collection.is_empty() {
            return Err(invalid(format!("Invalid namespace specified '{database}.'")));
        }
        names::check_parts(database, collection)?;
        Ok(Namespace { database: database.to_owned(), collection: collection.to_owned() })
    }

    /// The full name as one text.
    pub fn full_name(&self) -> String {
        [&self.database, ".", &self.collection].concat()
    }

    /// What a find refuses although it could only find nothing.
    pub fn check_readable(&self) -> Result<()> {
        match self.collection.contains('$') {
            true => Err(invalid(format!("Invalid collection name specified '{self}'"))),
            false => Ok(()),
        }
    }

    /// In a database of the server itself, not of a user.
    pub fn is_internal(&self) -> bool {
        is_internal(&self.database)
    }

    /// Where a database's profile is kept.
    pub const PROFILE: &'static str = "system.profile";

    /// Where the measurements of a time-series collection are kept.
    const BUCKETS: &'static str = "system.buckets.";

    /// The collection that holds the buckets of a time-series collection of this name.
    pub fn of_buckets(&self) -> Namespace {
        let collection = [Namespace::BUCKETS, &self.collection].concat();
        Namespace { database: self.database.clone(), collection }
    }

    /// The view that shows the buckets of a collection of this name, which the pattern `bucket` packs.
    pub fn of_packed(&self) -> Namespace {
        let collection = [&self.collection, ".buckets"].concat();
        Namespace { database: self.database.clone(), collection }
    }

    /// The collection that holds the pages of long arrays of a collection of this name.
    pub fn of_overflow(&self) -> Namespace {
        let collection = [&self.collection, ".overflow"].concat();
        Namespace { database: self.database.clone(), collection }
    }

    /// The collection whose long arrays continue in a collection of this name.
    pub fn of_array(&self) -> Option<Namespace> {
        let collection = self.collection.strip_suffix(".overflow").filter(|name| !name.is_empty())?;
        Some(Namespace { database: self.database.clone(), collection: collection.to_owned() })
    }

    /// The time-series collection whose buckets are in a collection of this name.
    pub fn of_measurements(&self) -> Option<Namespace> {
        let collection = self.collection.strip_prefix(Namespace::BUCKETS).filter(|name| !name.is_empty())?;
        Some(Namespace { database: self.database.clone(), collection: collection.to_owned() })
    }

    /// Refuses writes to what only the server writes.
    pub fn check_writable(&self) -> Result<()> {
        match self.collection == Namespace::PROFILE {
            true => Err(invalid(format!("cannot write to {self}"))),
            false => Ok(()),
        }
    }

    /// What a collection about to be made must also satisfy.
    pub fn check_creatable(&self) -> Result<()> {
        let Namespace { database, collection } = self;
        // Stages and patterns make namespaces of names that were parsed elsewhere.
        Namespace::parse(database, collection)?;
        if collection.contains('$') {
            return Err(invalid(format!("Invalid collection name: {collection}")));
        }
        if database.len() + 1 + collection.len() > limits::NAMESPACE_BYTES_MAX {
            return Err(invalid(format!(
                "Fully qualified namespace is too long. Namespace: {self} Max: {}",
                limits::NAMESPACE_BYTES_MAX
            )));
        }
        if collection == "system.views" {
            return Err(invalid(format!("cannot write to {self}")));
        }
        let is_of_access = database == "admin"
            && matches!(&**collection, "system.users" | "system.roles" | "system.version");
        let is_known = collection == "system.js" || collection == Namespace::PROFILE || is_of_access;
        let is_known = is_known || self.of_measurements().is_some();
        if collection.starts_with("system.") && !is_known {
            return Err(invalid(format!("Invalid system namespace: {self}")));
        }
        Ok(())
    }
}

fn invalid(message: String) -> Error {
    Error::user(ErrorCode::InvalidNamespace, message)
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The collection's name in every database.
pub const DEFINITIONS: &str = "kilim.patterns";

/// Where the definitions of a database are.
pub(crate) fn definitions_of(database: &str) -> Namespace {
    Namespace { database: database.to_owned(), collection: DEFINITIONS.to_owned() }
}

impl Namespace {
    /// Whether its documents are definitions of patterns.
    pub fn holds_definitions(&self) -> bool {
        self.collection == DEFINITIONS
    }
}
