//! What answers requests: the seam between sockets and commands, so that each is tested without the other.

use std::net::SocketAddr;
use std::sync::Arc;

use kilim_bson::Document;
use kilim_commands::{Access, Client, Reply, Request, Suspended};
use kilim_engine::Engine;
use kilim_error::Error;

pub trait Service: Send + Sync + 'static {
    /// What is kept for one connection; dropping it gives back what the connection holds.
    type Client: Send;

    /// `local` is the address that the client reached us by, `subject` that of its certificate, which was verified.
    fn connect(
        &self,
        connection: u64,
        peer: SocketAddr,
        local: SocketAddr,
        subject: Option<String>,
    ) -> Self::Client;

    /// Whether clients are to show who they are. Those that have not are given little time and little room.
    fn has_logins(&self) -> bool {
        false
    }

    /// Whether the client has shown who it is, or need not.
    fn is_trusted(&self, client: &Self::Client) -> bool {
        let _ = client;
        true
    }

    fn run(&self, client: &mut Self::Client, request: Request<'_>) -> Reply;

    /// The same, but it need not wait for news: then there is no reply, and [`Service::suspended`] says for what it waits. It
    /// is to be run again, and not to be dropped before the client.
    fn run_or_suspend(&self, client: &mut Self::Client, request: Request<'_>) -> Option<Reply> {
        Some(self.run(client, request))
    }

    /// What a client's request waits for.
    fn suspended<'c>(&self, client: &'c Self::Client) -> Option<&'c Suspended> {
        let _ = client;
        None
    }

    /// Whether a request goes on with what the client last waited for, so that it is run or suspended quickly.
    fn waits_on(&self, client: &Self::Client, request: &Request<'_>) -> bool {
        let _ = (client, request);
        false
    }

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
    /// Who may do what.
    pub access: Arc<Access>,
}

impl Service for Commands {
    type Client = Client;

    fn connect(
        &self,
        connection: u64,
        peer: SocketAddr,
        local: SocketAddr,
        subject: Option<String>,
    ) -> Client {
        let mut client =
            Client::with_access(self.engine.clone(), connection, peer, local, self.access.clone());
        if let Some(subject) = subject {
            client.set_certificate(subject);
        }
        client
    }

    fn has_logins(&self) -> bool {
        self.access.is_enforced()
    }

    fn is_trusted(&self, client: &Client) -> bool {
        client.is_logged_in()
    }

    fn run(&self, client: &mut Client, request: Request<'_>) -> Reply {
        kilim_commands::run(client, request)
    }

    fn run_or_suspend(&self, client: &mut Client, request: Request<'_>) -> Option<Reply> {
        kilim_commands::run_or_suspend(client, request)
    }

    fn suspended<'c>(&self, client: &'c Client) -> Option<&'c Suspended> {
        client.suspended()
    }

    fn waits_on(&self, client: &Client, request: &Request<'_>) -> bool {
        client.waits_on(request)
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

/// Runs one command, which names its `$db`, without a connection and without a login.
pub fn run_in_process(engine: &Arc<Engine>, command: Document) -> Document {
    let mut client = Client::in_process(engine.clone());
    let (body, sequences) = (command.as_raw(), Vec::new());
    let request = Request { body, sequences, exhaust_allowed: false, legacy_hello: false };
    kilim_commands::run(&mut client, request).document
}
