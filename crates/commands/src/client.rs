//! What is known of one connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use kilim_bson::Document;
use kilim_engine::Engine;

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
}

impl Client {
    pub fn new(engine: Arc<Engine>, id: u64, peer: SocketAddr, local: SocketAddr) -> Client {
        engine.metrics.connections_total.add(1);
        engine.metrics.connections_current.add(1);
        Client { engine, id, peer, local, metadata: None, app_name: None, in_process: false }
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
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.in_process {
            self.engine.metrics.connections_current.subtract(1);
        }
    }
}
