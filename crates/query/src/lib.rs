//! The query language: filters, updates, projections, sorts. Pure functions over BSON bytes, no storage.

pub mod accumulator;
pub mod digest;
pub mod expression;
pub mod filter;
pub mod interrupt;
pub mod names;
mod path;
pub mod projection;
pub mod sort;
pub mod stage;
pub mod text;
pub mod time_series;
pub mod update;
pub mod validator;
pub mod window;

pub use path::is_dbref_name;
