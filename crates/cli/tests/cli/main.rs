//! The binary as users run it.

mod completions;
mod demo;
mod pattern;
mod running;
mod serve;
