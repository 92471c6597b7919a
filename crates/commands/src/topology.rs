//! What drivers are told of the replica set that Kilim presents itself as: one member, the primary, so that they offer
//! sessions, retryable writes and transactions.

use kilim_bson::{Document, ObjectId, doc};

/// The name of the set of one.
pub const SET_NAME: &str = "kilim";

/// By this a driver knows whether it has heard of the present topology, which never changes while the server runs.
pub fn version() -> Document {
    doc! {"processId": process_id(), "counter": 6i64}
}

/// Tells one run of the server from another.
pub fn process_id() -> ObjectId {
    static ID: std::sync::OnceLock<ObjectId> = std::sync::OnceLock::new();
    *ID.get_or_init(ObjectId::new)
}

pub fn election_id() -> ObjectId {
    ObjectId::from_bytes([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1])
}
