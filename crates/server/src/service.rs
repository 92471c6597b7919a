//! What answers requests: the seam between sockets and commands, so that each is tested without the other.

use std::net::SocketAddr;
use std::sync::Arc;

use kilim_bson::Document;
use kilim_commands::{Client, Reply, Request};
use kilim_engine::Engine;
use kilim_error::Error;

pub trait Service: Send + Sync + 'static {
    /// What is kept for one connection; dropping it gives back what the connection holds.
    type Client: Send;

    /// `local` is the address that the client reached us by.
    fn connect(&self, connection: u64, peer: SocketAddr, local: SocketAddr) -> Self::Client;

    fn run(&self, client: &mut Self::Client, request: Request<'_>) -> Reply;

    /// The reply to a message that holds no request.
    fn refuse(&self, error: &Error) -> Document;

    /// A request was read and answered: the bytes of both on the wire.
    fn note_traffic(&self, received: u64, sent: u64) {
        let _ = (received, sent);
    }

    /// The client has closed its connection while a request of it runs.
    fn client_is_gone(&self, connection: u64) {
        let _ = connection;
    }

    /// Called about once a second.
    fn tick(&self) {}

    /// The server begins to end: requests that only wait for news should wait no longer.
    fn end_waiting(&self) {}

    /// Interrupts what runs; called once, when the server ends and the grace is over.
    fn interrupt(&self) {}
}

/// Commands against an engine.
pub struct Commands {
    pub engine: Arc<Engine>,
}

impl Service for Commands {
    type Client = Client;

    fn connect(&self, connection: u64, peer: SocketAddr, local: SocketAddr) -> Client {
        Client::new(self.engine.clone(), connection, peer, local)
    }

    fn run(&self, client: &mut Client, request: Request<'_>) -> Reply {
        kilim_commands::run(client, request)
    }

    fn refuse(&self, error: &Error) -> Document {
        kilim_commands::error_document(error)
    }

    fn note_traffic(&self, received: u64, sent: u64) {
        self.engine.metrics.bytes_in.add(received);
        self.engine.metrics.bytes_out.add(sent);
    }

    fn client_is_gone(&self, connection: u64) {
        self.engine.operations.abandon(connection);
    }

    fn tick(&self) {
        self.engine.tick();
    }

    fn end_waiting(&self) {
        self.engine.operations.end_waiting();
    }

    fn interrupt(&self) {
        self.engine.operations.stop();
    }
}
