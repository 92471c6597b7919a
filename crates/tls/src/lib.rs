//! Encryption and certificates: what carries a connection that others on the way must not read.
//!
//! ```text
//! files ── PEM ──▶ ServerTls ── accept ──▶ Session      read and write through a socket
//!                  ClientTls ── connect ─▶ Session
//! ```
//! The protocol is rustls', with ring's ciphers: TLS 1.2 and 1.3 and nothing older. Everything blocks, as the threads of
//! connections do. The server, the metrics and the client share what is here, and none of them names rustls.
//!
//! Invariant: a fault in a file names the file and the reason.

mod authority;
mod certificate;
mod client;
mod files;
mod server;
mod session;

pub use authority::{Authority, Issued, SubjectPart};
pub use certificate::{Certificate, Malformed};
pub use client::{ClientTls, ClientTlsOptions};
pub use files::FileError;
pub use server::{Clients, ServerTls, ServerTlsOptions, begins_handshake};
pub use session::Session;
