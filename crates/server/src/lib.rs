//! The socket side: a listener, one thread per connection that is served, limits, an orderly end.
//!
//! ```text
//! Listener::bind ── serve(service, limits) ──▶ Server ── stop() ──▶ all threads ended
//!                        │
//!                        └─ per connection: frames → kilim_wire → Service::run → one write
//! ```
//! A change stream that has nothing to show waits in the [`room`], which one thread keeps for all of them.
//! The server knows messages and sockets. What a command means is the [`Service`]'s affair, and
//! [`Commands`] is the one that runs against an engine. Why threads: `docs/decisions/0002-threads.md`.
//!
//! Invariant: nothing a client sends ends more than its own connection.

mod connection;
mod crew;
mod frames;
mod limits;
mod listener;
mod memory;
mod metrics;
mod peer;
mod replies;
mod room;
mod service;
mod shared;
mod shutdown;
mod stream;

pub use crew::served_connection;
pub use kilim_commands::{Access, Audit};
pub use kilim_tls::{Clients, FileError, ServerTls, ServerTlsOptions};
pub use limits::Limits;
pub use listener::{BindError, Listener, Protection, Server};
pub use metrics::MetricsEndpoint;
pub use service::{Commands, Service, run_in_process};
pub use shutdown::Signals;
