//! The records of collections: the one place that reads and writes their keyspace.
//!
//! A record is what the store keeps under a collection's id and a number. A row is a document as filters, indexes and
//! patterns see it. Two things lie between a record and its rows: the collection's [`Shape`], which says how documents
//! are stored, and an [`Overlay`], which has what a job has yet to write. [`Records`] reads through both. It borrows
//! the store's bytes where neither changes anything, so a plain collection pays nothing for the translation.
//!
//! A shape that stores something else than it shows (many rows in a record, pages of a large array, older versions) is
//! another variant in `shape`: its rows come out of [`Shape::rows`], so every reader here sees them; its index keys are
//! made of those rows; what a write of one row makes of the record goes in [`Shape::to_stored`]; and
//! [`RecordScan::next_matching`] has the filter, by which such a shape can pass over a record unread. A record that is
//! stored in an older form than its shape stores now is written again by [`restate`].
//!
//! Invariant: nothing outside this module names the records' keyspace. `cargo xtask check` looks for it.

mod buckets;
mod by_bucket;
mod following;
mod home;
mod inspect;
mod pages;
mod read;
mod remains;
mod row;
mod sample;
mod scan;
mod shape;
mod split;
mod write;

pub use buckets::Bucketed;
pub(crate) use buckets::{
    Buckets, FoundBucket, Opened, Slip, buckets, last_bucket, leave_bucket, mend_hole, open_row, put_bucket,
    put_slips, remove_bucket, slips, unpack_remains, unseal, unseal_from, wrong_holes,
};
pub(crate) use by_bucket::{BucketScan, Seen};
pub(crate) use following::Following;
pub use home::Home;
pub(crate) use inspect::inspect;
pub(crate) use kilim_patterns::Sight;
pub(crate) use pages::{Newest, Source, page_count, page_image, page_owner, page_row, page_walk};
pub(crate) use read::{Overlay, Records};
pub(crate) use remains::{RecordRemains, lost_records};
pub use row::{Image, RowId};
pub(crate) use sample::SCANNED_SHARE;
pub(crate) use scan::{Look, RecordScan, ids};
pub use shape::{Members, Paged, Shape};
pub use split::View;
pub(crate) use split::{is_needed, matches, parts, whole, whole_of_pages};
pub(crate) use write::{lock_key, newest, remove, restate, store, stored_bytes, unchanged_in};
