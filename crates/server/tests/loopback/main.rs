//! The server over loopback sockets, with a service that does as each test asks.

mod fake;
mod lifecycle;
mod memory;
mod messages;
mod strangers;
mod streams;
mod tls;
