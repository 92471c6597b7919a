//! The binary as users run it.

mod backup;
mod check;
mod client;
mod completions;
mod demo;
mod dumps;
mod fake;
mod format;
mod logs;
mod pattern;
mod running;
mod security;
mod serve;
mod streams;
mod transfer;
mod watch;
