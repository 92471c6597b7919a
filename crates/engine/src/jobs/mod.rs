//! Work over whole collections, trees or directories: passes in the background, and what an administrator asks for.

mod check;
mod compact;
mod expire;
mod salvage;
mod salvage_pages;
mod scrub_pages;
mod validate;
mod write_profile;

pub use check::{Checked, check_directory};
pub use salvage::{Salvaged, salvage_directory};
pub use validate::{Validated, validate};
