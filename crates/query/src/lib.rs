//! The query language: filters, updates, projections, sorts. Pure functions over BSON bytes, no storage.

pub mod filter;
mod path;
pub mod projection;
pub mod sort;
mod text;
pub mod update;
