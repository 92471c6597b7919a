//! Whether a name still stands for the collection that a command means by it: `collectionUUID`.
//!
//! Names are looked up when a command begins, and again wherever it has waited for a collection. So the question is asked
//! where collections are looked up, and not once before.

use kilim_bson::{Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::Engine;
use crate::catalog::Collection;
use crate::namespace::Namespace;
use crate::operation::Operation;

impl Engine {
    /// Refuses what a name stands for if the operation means another collection by it. `found` is none for a view as well.
    pub fn check_expected(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        found: Option<&Collection>,
    ) -> Result<()> {
        let Some(expected) = operation.expected_at(namespace) else { return Ok(()) };
        if found.is_some_and(|found| found.uuid == expected.uuid) {
            return Ok(());
        }
        let catalog = self.catalog();
        let actual = catalog.iter().find(|collection| {
            collection.uuid == expected.uuid && collection.namespace.database == namespace.database
        });
        let details = doc! {
            "db": &namespace.database,
            "collectionUUID": Value::Binary { subtype: 4, bytes: expected.uuid.to_vec() },
            "expectedCollection": &namespace.collection,
            "actualCollection": actual.map(|actual| Value::from(actual.namespace.collection.as_str())),
        };
        let message = "Collection UUID does not match that specified";
        Err(Error::user(ErrorCode::CollectionUUIDMismatch, message).with_details(details.into_bytes()))
    }
}
