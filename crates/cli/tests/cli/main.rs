//! The binary as users run it.

mod client;
mod completions;
mod demo;
mod pattern;
mod running;
mod serve;
mod transfer;
