//! The spaces, and what a write to one of them is.
//!
//! Collections and indexes are key prefixes: the first four bytes of a key in `Records` and `Index` say which, and in `Log`
//! they are a segment. The
//! backend keeps a tree for each of them, which costs nothing while it is empty.

use crate::clock::CommitTime;

/// A slice of bytes that is cheap to clone; short ones live inline.
pub type Bytes = byteview::ByteView;

/// A map by keys, for what is looked up at every write. Its hash is quick, and seeded anew in each process.
pub(crate) type KeyMap<V> = std::collections::HashMap<Bytes, V, foldhash::fast::RandomState>;

/// What a record begins with: its commit time.
pub(crate) const STAMP_BYTES: usize = size_of::<CommitTime>();

/// One of the store's ordered maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Catalog, sessions, jobs. Keys that begin with byte 0 belong to the storage crate itself.
    Meta = 0,
    /// Documents. A value begins with its commit time, 8 bytes little-endian.
    Records = 1,
    /// Index keys.
    Index = 2,
    /// Events of commits, by segment and position (`log.rs`). A value begins with 8 bytes for the time of day.
    Log = 3,
}

impl Space {
    pub const COUNT: usize = 4;
    pub const ALL: [Space; Space::COUNT] = [Space::Meta, Space::Records, Space::Index, Space::Log];

    pub(crate) fn at(self) -> usize {
        self as usize
    }

    /// What messages call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Space::Meta => "meta",
            Space::Records => "records",
            Space::Index => "index",
            Space::Log => "log",
        }
    }
}

/// One key's new value, or its end.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) space: Space,
    pub(crate) key: Bytes,
    pub(crate) value: Option<Bytes>,
}

impl Write {
    pub(crate) fn bytes(&self) -> usize {
        // Two slice headers stand for what a map entry costs beside its bytes.
        self.key.len() + self.value.as_ref().map_or(0, |value| value.len()) + 2 * size_of::<Bytes>()
    }
}
