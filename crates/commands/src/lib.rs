//! MongoDB's commands over the engine: one file a command, one table of commands.
//!
//! [`run`] is the whole interface: a request in, a reply out. With [`run_or_suspend`] the reply may have to wait, and no thread
//! with it. Errors become documents in `reply` and
//! nowhere else.

mod about;
mod access;
mod argument;
mod client;
mod collation;
mod command;
mod concern;
mod cursor_reply;
mod dispatch;
mod ended;
mod kept;
mod privilege;
mod registry;
mod reply;
mod request;
mod session;
mod stable;
mod suspended;
mod telling;
mod through_view;
mod topology;
mod variables;

pub use access::{Access, Audit, Demands};
pub use client::Client;
pub use dispatch::{run, run_or_suspend};
pub use privilege::{Needs, Privilege, Resource};
pub use registry::{COMMANDS, CommandSpec, place};
pub use reply::{Reply, error_document};
pub use request::Request;
pub use suspended::Suspended;
