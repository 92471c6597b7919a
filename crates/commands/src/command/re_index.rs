//! `reIndex`: refused, as MongoDB refuses it on a replica set. `validate` compares an index with its collection.

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};

use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    Err(Error::user(
        ErrorCode::IllegalOperation,
        format!(
            "reIndex is only allowed on a standalone mongod instance. Cannot reIndex '{namespace}' while replication is \
             active"
        ),
    ))
}
