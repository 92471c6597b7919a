//! What the threads of a server share: the service, the limits, who is connected, whether it stops.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kilim_tls::ServerTls;
use parking_lot::{Condvar, Mutex};

use crate::limits::Limits;
use crate::memory::Memory;
use crate::peer::Peer;
use crate::service::Service;

/// What the threads of a server share.
pub(crate) struct Shared<S: Service> {
    pub(crate) service: S,
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// Whether a new connection is a stranger's: it has to encrypt, or somebody is to log in.
    pub(crate) guarded: bool,
    pub(crate) limits: Limits,
    pub(crate) stopping: AtomicBool,
    pub(crate) peers: Mutex<HashMap<u64, Arc<Peer>>>,
    /// Told whenever a connection has ended, and when the server stops; goes with `peers`.
    pub(crate) ended: Condvar,
    /// What messages hold.
    pub(crate) memory: Arc<Memory>,
}

impl<S: Service> Shared<S> {
    /// Waits; whether the server goes on.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let mut peers = self.peers.lock();
        let woken_at = Instant::now() + time;
        while !self.stopping.load(Ordering::SeqCst) {
            if self.ended.wait_until(&mut peers, woken_at).timed_out() {
                break;
            }
        }
        !self.stopping.load(Ordering::SeqCst)
    }

    /// Waits for a condition of the peers to end, and says whether it did in time.
    pub(crate) fn wait_while(
        &self,
        limit: Duration,
        condition: impl Fn(&HashMap<u64, Arc<Peer>>) -> bool,
    ) -> bool {
        let deadline = Instant::now() + limit;
        let mut peers = self.peers.lock();
        while condition(&peers) {
            if Instant::now() >= deadline {
                return false;
            }
            // A connection that goes from running to waiting tells nobody, so look now and then.
            self.ended.wait_for(&mut peers, Duration::from_millis(5));
        }
        true
    }
}

/// A connection's place among the peers, given up whichever way its thread ends.
pub(crate) struct Registered<S: Service> {
    pub(crate) shared: Arc<Shared<S>>,
    pub(crate) id: u64,
}

impl<S: Service> Drop for Registered<S> {
    fn drop(&mut self) {
        self.shared.peers.lock().remove(&self.id);
        self.shared.ended.notify_all();
    }
}
