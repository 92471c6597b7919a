//! Who is connected, for currentOp: a line for each connection, from its beginning to its end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use kilim_bson::Document;
use parking_lot::Mutex;

use crate::operation::User;

#[derive(Default)]
pub struct Connections {
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
}

pub struct Connection {
    pub id: u64,
    pub peer: SocketAddr,
    told: Mutex<Told>,
}

/// What a client has told of itself.
#[derive(Default, Clone)]
pub struct Told {
    /// What its driver said in its first hello.
    pub metadata: Option<Document>,
    pub user: Option<Arc<User>>,
}

impl Connections {
    pub fn begin(&self, id: u64, peer: SocketAddr) {
        let connection = Connection { id, peer, told: Mutex::default() };
        self.open.lock().insert(id, Arc::new(connection));
    }

    pub fn end(&self, id: u64) {
        self.open.lock().remove(&id);
    }

    /// Notes what the client of a connection tells.
    pub fn note(&self, id: u64, note: impl FnOnce(&mut Told)) {
        let connection = self.open.lock().get(&id).cloned();
        if let Some(connection) = connection {
            note(&mut connection.told.lock());
        }
    }

    pub fn list(&self) -> Vec<Arc<Connection>> {
        self.open.lock().values().cloned().collect()
    }
}

impl Connection {
    pub fn told(&self) -> Told {
        self.told.lock().clone()
    }
}
