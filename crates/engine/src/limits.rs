//! Whatever can grow has its bound here, with the reason for the number.

use std::time::Duration;

/// The largest document a user may store, as on MongoDB.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a reply or an internal document may exceed that by, as on MongoDB.
pub const DOCUMENT_BYTES_SLACK: usize = 16 * 1024;

/// One reply's documents; the message around them must stay below 48,000,000 bytes.
pub const REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Documents of a first batch when the client names no size, as on MongoDB.
pub const FIRST_BATCH_DOCUMENTS: usize = 101;

/// Statements of one insert, update or delete command.
pub const WRITE_BATCH_STATEMENTS_MAX: usize = 100_000;

/// A cursor nobody reads from is closed after this, as on MongoDB.
pub const CURSOR_IDLE: Duration = Duration::from_secs(600);

/// How often a new password is hashed, as on MongoDB. Each login of its user costs as much.
pub const SCRAM_SHA_1_ITERATIONS: u32 = 10_000;
pub const SCRAM_SHA_256_ITERATIONS: u32 = 15_000;

/// Fewer are not taken, as on MongoDB: they would be quick to guess.
pub const SCRAM_ITERATIONS_MIN: u32 = 5_000;

/// A session nobody uses is forgotten after this, as on MongoDB.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);

/// An open transaction holds intents that others wait for, so it may not live long.
pub const TRANSACTION_LIFETIME: Duration = Duration::from_secs(60);

/// How long a statement of a transaction waits for a collection that a schema change holds.
pub const TRANSACTION_LOCK_WAIT: Duration = Duration::from_millis(5);

/// The uncommitted writes of one transaction live in memory.
pub const TRANSACTION_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The uncommitted writes of all open transactions together. Beyond it those that have written much are refused.
pub const TRANSACTIONS_BYTES_MAX: usize = 512 * 1024 * 1024;

/// What a transaction may write even then: small ones go on while large ones fill the memory.
pub const TRANSACTION_BYTES_SPARED: usize = 1024 * 1024;

/// Open cursors of the whole server; each pins a snapshot and some memory.
pub const CURSORS_MAX: usize = 100_000;

/// Sessions held in memory.
pub const SESSIONS_MAX: usize = 1_000_000;

/// Documents that a job which goes over a whole collection writes in one commit, or looks at, before it gives way to others:
/// each of their commits may have to wait for one of its own.
pub const PACE_DOCUMENTS: usize = 32;

/// So long after others were last seen to commit, such a job goes on giving way to them.
pub const PACE_ALERT: Duration = Duration::from_millis(100);

/// Such a job rests for no longer than this at once, whatever made it slow: it must come to its end.
pub const PACE_REST_MAX: Duration = Duration::from_millis(10);

/// Documents that single-document statements of one command write before they are handed to the commit
/// queue. Larger saves syncs, smaller lets waiting writers in earlier.
pub const STATEMENT_BATCH_DOCUMENTS: usize = 128;
pub const STATEMENT_BATCH_BYTES: usize = 1024 * 1024;

/// The same for one statement that writes many documents. Small: a handful of keys stays a sorted list
/// in the transaction, more become a tree.
pub const STREAM_BATCH_DOCUMENTS: usize = 8;

/// What such a statement may have in the commit queue before it waits: it is in memory.
pub const STREAM_BYTES_ON_THE_WAY: usize = 8 * 1024 * 1024;

/// Metas of one time-series collection whose buckets are known to take further measurements. When there are more, all are
/// forgotten, and the next measurement of each goes into a new bucket. About 100 bytes each.
pub const OPEN_BUCKETS_MAX: usize = 100_000;

/// Buckets of one collection (the pattern `bucket`) that are kept in memory as they were read, so that their measurements are
/// taken out without reading them again. A scan in the order of insertion visits as many buckets in turn as there are metas.
pub const BUCKET_CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Measurements that are sealed in one commit: of so many places that become due together that their records lie near each
/// other, and so few that a writer who wants one of them waits for a fraction of a second at most.
pub const SEALED_AT_ONCE: usize = 32 * 1024;

/// The same in bytes of measurements. Other commits wait while what they are packed into is written.
pub const SEALED_AT_ONCE_BYTES: usize = 8 * 1024 * 1024;

/// Open measurements of one collection whose places are known to whoever seals them. When there are more, all are forgotten,
/// and found again by a pass over the collection. About 16 bytes each.
pub const OPEN_ROWS_MAX: usize = 1_000_000;

/// A batch of a change stream ends with the event that reaches this size. Hundreds of streams may make one at the same moment,
/// and one of many events is soon asked for more.
pub const STREAM_BATCH_BYTES: usize = 1024 * 1024;

/// A change stream that others wait for has so long for a batch, once it has an event.
pub const STREAM_TURN: Duration = Duration::from_millis(2);

/// Events that are held in memory for change streams of one scope, and for all of them. A stream that has fallen further
/// behind reads the change log, which is slower by little.
pub const TOPIC_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const FEED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A buffer that a unit's changes use one after the other is kept for the next one up to this size; larger documents are few.
pub const BUFFER_BYTES_KEPT: usize = 64 * 1024;

/// A document that streams look up is kept with its event for other streams up to this size.
pub const FEED_IMAGE_BYTES_MAX: usize = 8 * 1024;

/// Events are held no longer than this: streams that keep up have taken them by then.
pub const FEED_AGE: Duration = Duration::from_secs(5);

/// Secondary indexes and `_id` together, as on MongoDB.
pub const INDEXES_MAX: usize = 64;

/// `db.collection` in bytes, as on MongoDB.
pub const NAMESPACE_BYTES_MAX: usize = 255;

/// Children that a check of groups holds in memory at once.
pub const VERIFY_PART_DOCUMENTS: u64 = 100_000;
pub const VERIFY_PART_BYTES: u64 = 64 * 1024 * 1024;

/// Keys that one document has in an index of a pattern whose paths lead to different arrays. Users' indexes refuse such a
/// document; a hundred values beside a hundred others are more than reviews, tags or lines come to.
pub const PRODUCT_KEYS_MAX: usize = 10_000;

/// Paths to arrays that are kept for a wildcard index. They lie in the collection's catalog entry, which is
/// written again for each new one; a collection with more has names for data, and every path of it is taken
/// to lead to an array.
pub const ARRAY_PATHS_MAX: usize = 1000;

/// Sources of one pattern whose targets are written later: readers of the targets look through all of them.
pub const PENDING_SOURCES_MAX: usize = 64;

/// Targets that are counted for an estimate, while their source is held.
pub const PENDING_DOCUMENTS_COUNTED: u64 = 10_000;

/// Index filters of one collection: somebody types each, and each costs every plan a look.
pub const INDEX_FILTERS_MAX: usize = 1000;

/// As on MongoDB; explain prints it.
pub const SORT_BYTES_MAX: usize = 100 * 1024 * 1024;

/// Documents that one `$densify` makes, as on MongoDB: a small step in a wide range would go on for ever.
pub const DENSIFIED_DOCUMENTS_MAX: u64 = 500_000;
