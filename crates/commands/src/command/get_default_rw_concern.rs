//! `getDefaultRWConcern`: what a command without concerns of its own gets.

use kilim_bson::{Document, doc};
use kilim_engine::Durability;
use kilim_error::Result;

use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let write = match call.engine.options.durability {
        Durability::Durable => doc! {"w": "majority", "wtimeout": 0},
        Durability::Relaxed => doc! {"w": 1, "j": false, "wtimeout": 0},
    };
    Ok(doc! {
        "defaultReadConcern": {"level": "local"},
        "defaultWriteConcern": write,
        "defaultReadConcernSource": "implicit",
        "defaultWriteConcernSource": "implicit",
    })
}
