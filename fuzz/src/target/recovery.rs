//! Recovery: a store is opened or refused after any life and any damage, and what is read from it was written.

pub use kilim_storage::fuzzing::check;
