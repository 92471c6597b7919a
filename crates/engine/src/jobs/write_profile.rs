//! Commands written down in their database's `system.profile`.

use std::sync::Arc;

use kilim_bson::{Document, doc};
use kilim_error::Result;
use kilim_storage::Durability;

use crate::engine::Engine;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::unit::Unit;
use crate::write::insert;

/// How much a profile holds, as mongod's.
const PROFILE_BYTES: i32 = 1024 * 1024;

impl Engine {
    /// Writes a command down in its database's profile, which is made where it is missing.
    pub fn write_profile(&self, operation: &Arc<Operation>, database: &str, entry: &Document) -> Result<()> {
        let namespace =
            Namespace { database: database.to_owned(), collection: Namespace::PROFILE.to_owned() };
        if self.collection(&namespace).is_none() {
            self.create_collection(&namespace, doc! {"capped": true, "size": PROFILE_BYTES})?;
        }
        let mut unit = Unit::new(self, operation.clone(), Durability::Relaxed);
        insert(&mut unit, &namespace, &[entry.as_raw()], true, |_| 0)?;
        unit.settle()
    }
}
