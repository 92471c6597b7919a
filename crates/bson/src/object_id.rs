//! The twelve-byte identifier that clients and server make without asking each other.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 12]);

impl ObjectId {
    /// Seconds, five random bytes of this process, a counter.
    #[expect(clippy::new_without_default, reason = "a default would hide that each one is different")]
    pub fn new() -> ObjectId {
        static PROCESS: OnceLock<[u8; 5]> = OnceLock::new();
        static COUNTER: OnceLock<AtomicU32> = OnceLock::new();
        let process = PROCESS.get_or_init(|| random_bytes(1)[..5].try_into().expect("five of eight"));
        let counter = COUNTER.get_or_init(|| {
            let seed = random_bytes(2);
            AtomicU32::new(u32::from_le_bytes(seed[..4].try_into().expect("four of eight")))
        });
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as u32);
        let count = counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&seconds.to_be_bytes());
        bytes[4..9].copy_from_slice(process);
        bytes[9..].copy_from_slice(&count[1..]);
        ObjectId(bytes)
    }

    pub fn from_bytes(bytes: [u8; 12]) -> ObjectId {
        ObjectId(bytes)
    }

    pub fn to_bytes(self) -> [u8; 12] {
        self.0
    }

    pub fn parse_hex(text: &str) -> Option<ObjectId> {
        if text.len() != 24 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 12];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[index * 2..index * 2 + 2], 16).ok()?;
        }
        Some(ObjectId(bytes))
    }
}

/// Randomness of the standard library's hash seeds: unpredictable enough for identifiers.
fn random_bytes(salt: u64) -> [u8; 8] {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(salt).to_le_bytes()
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}
