//! The binary as users run it.

mod client;
mod completions;
mod demo;
mod logs;
mod pattern;
mod running;
mod serve;

mod transfer;
