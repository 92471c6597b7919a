//! The one door: every change of a document goes through here.
//!
//! A statement (`insert`, `update`, `delete`, `find_and_modify`) finds its candidates by a plan, then
//! for each: takes the record's intent, reads its newest version, matches again, and hands the
//! [`Change`](crate::change::Change) to the `door`, which has a file for each of its steps. A [`Unit`](crate::unit::Unit)
//! collects the changes and gives them to the commit queue in batches; a multi-statement transaction collects them until
//! its end.

mod admit;
mod capped;
mod commit;
mod delete;
mod done;
pub(crate) mod door;
mod event;
mod find_and_modify;
mod insert;
mod keys;
mod measurements;
mod merge;
mod move_node;
mod paged;
mod store;
mod update;
mod validity;
mod versions;

pub use admit::user_writes_blocked;
pub use commit::{Committed, commit};
pub(crate) use delete::delete_those_that_can;
pub use delete::{DeleteRequest, delete};
pub use find_and_modify::{FindAndModifyRequest, Modification, Modified, find_and_modify};
pub use insert::{InsertOutcome, insert, prepare_insert};
pub use measurements::{check_no_transaction, delete_measurements, insert_measurements, update_metas};
pub use merge::{Circumstances, check_merge, default_collation, merge};
pub use move_node::{MoveRequest, move_node};
pub use update::{UpdateOutcome, UpdateRequest, update};

use kilim_error::{Error, ErrorCode};

/// Whether an error belongs to one statement, to be reported among `writeErrors`. Other errors end the whole command.
pub fn is_statement_error(error: &Error) -> bool {
    matches!(error, Error::User(_))
        && !matches!(
            error.code(),
            ErrorCode::MaxTimeMSExpired
                | ErrorCode::Interrupted
                | ErrorCode::InterruptedAtShutdown
                | ErrorCode::LockTimeout
                | ErrorCode::TransactionTooLarge
                | ErrorCode::TransactionExceededLifetimeLimitSeconds
                | ErrorCode(done::INCOMPATIBLE_UPDATE)
        )
}
