//! What is known of one connection.

use std::net::SocketAddr;
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
}

impl Client {
    pub fn new(engine: Arc<Engine>, id: u64, peer: SocketAddr, local: SocketAddr) -> Client {
        engine.metrics.connections_total.add(1);
        engine.metrics.connections_current.add(1);
        Client { engine, id, peer, local, metadata: None, app_name: None }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.engine.metrics.connections_current.subtract(1);
    }
}
