//! Passes over all data in the background: when each is due, and what came of it. The module `jobs` runs them.

mod expiry;
mod page_scrub;
mod scrubbing;
mod sealing;

pub use expiry::Expiry;
pub(crate) use page_scrub::BYTES_PER_SECOND;
pub use page_scrub::PageScrub;
pub use scrubbing::Scrubbing;
pub use sealing::Sealing;
