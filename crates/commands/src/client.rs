//! What is known of one connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use kilim_bson::{Document, RawValue};
use kilim_engine::Engine;
use kilim_engine::change::Cause;
use kilim_engine::fail_point::FailPoint;

use crate::access::{Access, Login};
use crate::request::Request;
use crate::suspended::Suspended;

/// Programs that fill collections from files, by the name that they give in their first hello. It decides on nothing but
/// the cause of what they write.
const IMPORTERS: [&str; 4] = ["kilim import", "kilim restore", "mongoimport", "mongorestore"];

pub struct Client {
    pub engine: Arc<Engine>,
    pub id: u64,
    pub peer: SocketAddr,
    /// The address that the client reached us by: what hello tells it to reach us by.
    pub local: SocketAddr,
    /// What the driver told of itself in its first hello.
    pub metadata: Option<Document>,
    pub app_name: Option<String>,
    /// A part of this very process, for whom replies need not tell the cluster's time: there is no other node.
    pub in_process: bool,
    /// Who may do what on this server.
    pub access: Arc<Access>,
    pub(crate) login: Login,
    /// The request that waits, if one does.
    pub(crate) suspended: Option<Suspended>,
    /// The cursor of the change stream that it last waited for.
    pub(crate) awaited_cursor: Option<i64>,
}

impl Client {
    pub fn new(engine: Arc<Engine>, id: u64, peer: SocketAddr, local: SocketAddr) -> Client {
        Client::with_access(engine, id, peer, local, Arc::default())
    }

    /// A connection to a server whose users log in.
    pub fn with_access(
        engine: Arc<Engine>,
        id: u64,
        peer: SocketAddr,
        local: SocketAddr,
        access: Arc<Access>,
    ) -> Client {
        engine.metrics.connections_total.add(1);
        engine.metrics.connections_current.add(1);
        engine.connections.begin(id, peer);
        let mut client = Client::in_process(engine);
        (client.id, client.peer, client.local, client.access) = (id, peer, local, access);
        client.in_process = false;
        client
    }

    /// The connection was made with a certificate of this subject, which was verified.
    pub fn set_certificate(&mut self, subject: String) {
        self.login.subject = Some(subject);
    }

    /// Whether somebody has logged in, or need not.
    pub fn is_logged_in(&self) -> bool {
        !self.access.is_enforced() || self.login.identity.is_some()
    }

    /// Why documents change that it writes.
    pub fn cause(&self) -> Cause<'static> {
        match self.app_name.as_deref().is_some_and(|name| IMPORTERS.contains(&name)) {
            true => Cause::Import,
            false => Cause::User,
        }
    }

    /// Somebody in this process, who is no connection and not counted as one.
    pub fn in_process(engine: Arc<Engine>) -> Client {
        let nowhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        Client {
            engine,
            id: 0,
            peer: nowhere,
            local: nowhere,
            metadata: None,
            app_name: None,
            in_process: true,
            access: Arc::default(),
            login: Login::default(),
            suspended: None,
            awaited_cursor: None,
        }
    }

    /// The request that waits: run it again once its wait is over.
    pub fn suspended(&self) -> Option<&Suspended> {
        self.suspended.as_ref()
    }

    /// Whether a request asks for more of the change stream that the client last waited for, so that it is quickly
    /// answered or suspended. One of a transaction may wait for its session, and a fail point may have it wait.
    pub fn waits_on(&self, request: &Request<'_>) -> bool {
        let first = request.body.iter().next();
        let engine = &self.engine;
        let may_fail = engine.options.test_commands && engine.fail_points.was_set(FailPoint::FailCommand);
        matches!(first, Some(("getMore", RawValue::Int64(id))) if self.awaited_cursor == Some(id))
            && !request.exhaust_allowed
            && request.body.get("txnNumber").is_none()
            && !may_fail
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.in_process {
            self.engine.metrics.connections_current.subtract(1);
            self.engine.connections.end(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilim_engine::{Durability, EngineOptions, StorageOptions};

    #[test]
    fn what_a_restore_writes_is_an_import() {
        let options = EngineOptions {
            data: None,
            durability: Durability::Relaxed,
            storage: StorageOptions::default(),
            test_commands: false,
        };
        let mut client = Client::in_process(Engine::open(options).unwrap());
        assert!(matches!(client.cause(), Cause::User));
        for (name, is_import) in [("kilim restore", true), ("mongorestore", true), ("shop", false)] {
            client.app_name = Some(name.to_owned());
            assert_eq!(matches!(client.cause(), Cause::Import), is_import, "{name}");
        }
    }
}
