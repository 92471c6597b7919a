//! Pages on disk and in the cache.
//!
//! A page on disk is a header and its content, compressed if that saves a block:
//!
//! ```text
//!  0 checksum u64: xxh3 of everything behind it      24 raw length u32, 28 zero u32
//!  8 magic u32, 12 level u8, 13 compression u8       32 own first block u64
//! 14 space u8, 15 zero, 16 tree's prefix u32         40 birth epoch u64
//! 20 stored length u32                               48 content
//! ```
//! All of it little-endian. What refers to a page says where it lies, how long it is and when it was written; the
//! page says the same of itself and which tree it belongs to. So a page that was damaged, put in a wrong place or
//! never written is told from the right one on every read from disk.
//!
//! Invariant: what is in the cache was checked, and its key (block and birth) names that content for ever.

use super::page::Page;
use super::{BLOCK_BYTES, PagePtr, TreeName, blocks_of};
use crate::disk::File;
use crate::disk::directory::DirectoryLock;
use crate::space::{Bytes, Space};
use foldhash::fast::RandomState;
use kilim_error::{Result, StorageError};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// On disk.
const MAGIC: u32 = u32::from_le_bytes(*b"KPag");
pub(crate) const HEADER_BYTES: usize = 48;
/// On disk: the content as it is, or an LZ4 block.
const PLAIN: u8 = 0;
const LZ4: u8 = 1;
/// On disk: the level of a page that holds one long value.
pub(crate) const OVERFLOW_LEVEL: u8 = u8::MAX;
/// On disk: the level of the page that says which blocks are free.
pub(crate) const FREE_MAP_LEVEL: u8 = u8::MAX - 1;

/// The longest content: a document of the largest size, and room for what stands before it.
const RAW_BYTES_MAX: usize = 64 << 20;

/// What an entry of the cache costs beside its bytes.
const ENTRY_BYTES: u64 = 96;

/// The expected size of a page in memory: only a hint for how many entries the cache makes room for.
const PAGE_BYTES_EXPECTED: u64 = 16 << 10;

pub(crate) struct PageFile {
    pub(crate) file: Arc<dyn File>,
    name: String,
    cache: Cache<PageKey, Bytes, PageWeight, RandomState>,
    /// A sync has failed. The operating system may have dropped any page that was not on disk then, also one of a
    /// load that goes on, and a later sync would not tell.
    failed: AtomicBool,
    /// Keeps the directory locked for as long as somebody can read.
    _lock: Option<DirectoryLock>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PageKey {
    first: u64,
    birth: u64,
}

#[derive(Clone)]
struct PageWeight;

impl Weighter<PageKey, Bytes> for PageWeight {
    fn weight(&self, _key: &PageKey, raw: &Bytes) -> u64 {
        raw.len() as u64 + ENTRY_BYTES
    }
}

/// What a page is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) tree: TreeName,
    pub(crate) level: u8,
}

impl PageFile {
    pub(crate) fn new(
        file: Arc<dyn File>,
        name: String,
        cache_bytes: u64,
        lock: Option<DirectoryLock>,
    ) -> PageFile {
        let pages = (cache_bytes / PAGE_BYTES_EXPECTED).clamp(64, 1 << 24) as usize;
        let cache =
            Cache::with(pages, cache_bytes, PageWeight, RandomState::default(), DefaultLifecycle::default());
        PageFile { file, name, cache, failed: AtomicBool::new(false), _lock: lock }
    }

    /// A leaf or an inner page.
    pub(crate) fn page(&self, at: PagePtr, kind: Kind) -> Result<Page> {
        if let Some(raw) = self.cached(at) {
            return Ok(Page::checked(raw));
        }
        kilim_memory::shared(|| {
            let raw = self.read(at, kind)?;
            let page =
                Page::decode(raw.clone()).map_err(|error| self.damaged(at, kind, &error.to_string()))?;
            self.keep(at, raw);
            Ok(page)
        })
    }

    /// A value that lies outside of its leaf.
    pub(crate) fn overflow(&self, at: PagePtr, tree: TreeName) -> Result<Bytes> {
        if let Some(raw) = self.cached(at) {
            return Ok(raw);
        }
        kilim_memory::shared(|| {
            let raw = self.read(at, Kind { tree, level: OVERFLOW_LEVEL })?;
            self.keep(at, raw.clone());
            Ok(raw)
        })
    }

    /// Whether a page can be had without asking the disk.
    fn cached(&self, at: PagePtr) -> Option<Bytes> {
        self.cache.get(&PageKey { first: at.first, birth: at.birth })
    }

    pub(crate) fn keep(&self, at: PagePtr, raw: Bytes) {
        self.cache.insert(PageKey { first: at.first, birth: at.birth }, raw);
    }

    /// Reads a page from disk and checks it; what was in the cache is not asked.
    pub(crate) fn read(&self, at: PagePtr, kind: Kind) -> Result<Bytes> {
        let bytes = at.bytes as usize;
        if !(HEADER_BYTES..=RAW_BYTES_MAX + HEADER_BYTES).contains(&bytes) {
            return Err(self.damaged(at, kind, "its length cannot be"));
        }
        let mut stored = vec![0; bytes];
        let offset = at.first.checked_mul(BLOCK_BYTES);
        let offset = offset.ok_or_else(|| self.damaged(at, kind, "its place cannot be"))?;
        self.file.read_at(&mut stored, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(at, kind, "the file ends before it"),
            _ => StorageError::Io(format!("{}: {error}", self.name)).into(),
        })?;
        decode(&stored, at, kind).map_err(|how| self.damaged(at, kind, how))
    }

    pub(crate) fn damaged(&self, at: PagePtr, kind: Kind, how: &str) -> kilim_error::Error {
        let what = match kind.level {
            OVERFLOW_LEVEL => "a long value".to_owned(),
            FREE_MAP_LEVEL => "the free-space map".to_owned(),
            0 => "a leaf".to_owned(),
            level => format!("an inner page of level {level}"),
        };
        StorageError::Corrupt(format!(
            "{}: {what} of {} at block {} ({} bytes, epoch {}) is damaged: {how}",
            self.name, kind.tree, at.first, at.bytes, at.birth
        ))
        .into()
    }

    /// Puts everything that was written on disk. After one failure no other sync is tried: only a new start, which
    /// reads what the disk has, knows what is there.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.has_failed() {
            let why = format!("{}: an earlier sync has failed", self.name);
            return Err(StorageError::Poisoned(why).into());
        }
        self.file.sync().map_err(|error| {
            self.failed.store(true, Ordering::SeqCst);
            StorageError::Io(format!("{}: {error}", self.name)).into()
        })
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// Forgets a page that was freed, or written and then discarded: its place may get another page in the same epoch.
    pub(crate) fn forget(&self, first: u64, birth: u64) {
        self.cache.remove(&PageKey { first, birth });
    }
}

/// Checks a page as it was read, and gives its content.
fn decode(stored: &[u8], at: PagePtr, kind: Kind) -> Result<Bytes, &'static str> {
    let (header, content) = stored.split_at_checked(HEADER_BYTES).ok_or("it is shorter than a header")?;
    let u32_at = |place: usize| u32::from_le_bytes(header[place..place + 4].try_into().unwrap_or_default());
    let u64_at = |place: usize| u64::from_le_bytes(header[place..place + 8].try_into().unwrap_or_default());
    if u32_at(8) != MAGIC {
        return Err("there is no page");
    }
    if u64_at(0) != xxh3_64(&stored[8..]) {
        return Err("its checksum is wrong");
    }
    if u64_at(32) != at.first {
        return Err("it belongs elsewhere");
    }
    if u64_at(40) != at.birth {
        return Err("it is of another epoch");
    }
    if (header[12], header[14], u32_at(16)) != (kind.level, kind.tree.space, kind.tree.prefix) {
        return Err("it belongs to another tree or level");
    }
    let raw_bytes = u32_at(24) as usize;
    if u32_at(20) as usize != content.len() || raw_bytes > RAW_BYTES_MAX {
        return Err("its lengths cannot be");
    }
    match header[13] {
        PLAIN if raw_bytes == content.len() => Ok(Bytes::from(content)),
        LZ4 => {
            let mut raw = Bytes::builder(raw_bytes);
            match lz4_flex::block::decompress_into(content, &mut raw) {
                Ok(bytes) if bytes == raw_bytes => Ok(raw.freeze()),
                _ => Err("it cannot be decompressed"),
            }
        }
        _ => Err("its compression is unknown"),
    }
}

/// Makes the bytes of pages; keeps its buffer.
#[derive(Default)]
pub(crate) struct Encoder {
    /// The page, and behind it what larger ones left.
    stored: Vec<u8>,
}

impl Encoder {
    /// The page's bytes but for its place, for which [`Encoded::place`] is asked.
    pub(crate) fn encode(&mut self, kind: Kind, raw: [&[u8]; 2], birth: u64) -> Encoded<'_> {
        let raw_bytes = raw[0].len() + raw[1].len();
        let compressed = match is_worth_compressing(kind, raw_bytes) {
            true if raw[1].is_empty() => self.compress(raw[0]),
            true => self.compress(&raw.concat()),
            false => None,
        };
        let (compression, bytes) = match compressed {
            Some(bytes) => (LZ4, bytes),
            None => {
                self.make_room(raw_bytes);
                let (first, second) = self.stored[HEADER_BYTES..][..raw_bytes].split_at_mut(raw[0].len());
                first.copy_from_slice(raw[0]);
                second.copy_from_slice(raw[1]);
                (PLAIN, raw_bytes)
            }
        };
        let header = &mut self.stored[..HEADER_BYTES];
        header.fill(0);
        header[8..12].copy_from_slice(&MAGIC.to_le_bytes());
        header[12] = kind.level;
        header[13] = compression;
        header[14] = kind.tree.space;
        header[16..20].copy_from_slice(&kind.tree.prefix.to_le_bytes());
        header[20..24].copy_from_slice(&(bytes as u32).to_le_bytes());
        header[24..28].copy_from_slice(&(raw_bytes as u32).to_le_bytes());
        header[40..48].copy_from_slice(&birth.to_le_bytes());
        Encoded { stored: &mut self.stored[..HEADER_BYTES + bytes], birth }
    }

    /// Compresses behind the header; how many bytes it takes, if that saves a block.
    fn compress(&mut self, raw: &[u8]) -> Option<usize> {
        self.make_room(lz4_flex::block::get_maximum_output_size(raw.len()));
        let bytes = lz4_flex::block::compress_into(raw, &mut self.stored[HEADER_BYTES..]).ok()?;
        let blocks = |bytes: usize| blocks_of((HEADER_BYTES + bytes) as u64);
        (blocks(bytes) < blocks(raw.len())).then_some(bytes)
    }

    fn make_room(&mut self, bytes: usize) {
        if self.stored.len() < HEADER_BYTES + bytes {
            self.stored.resize(HEADER_BYTES + bytes, 0);
        }
    }
}

/// What fits a block as it is gains nothing. The free-space map was given its blocks before. Rows of the log are written once and
/// go soon, mostly unread: compressing them was half of the work of a checkpoint.
fn is_worth_compressing(kind: Kind, raw_bytes: usize) -> bool {
    blocks_of((HEADER_BYTES + raw_bytes) as u64) > 1
        && kind.level != FREE_MAP_LEVEL
        && kind.tree.space != Space::Log as u8
}

pub(crate) struct Encoded<'e> {
    stored: &'e mut [u8],
    birth: u64,
}

impl<'e> Encoded<'e> {
    pub(crate) fn blocks(&self) -> u32 {
        blocks_of(self.stored.len() as u64)
    }

    /// The bytes to write to a place, and how to refer to it.
    pub(crate) fn place(self, first: u64) -> (&'e [u8], PagePtr) {
        self.stored[32..40].copy_from_slice(&first.to_le_bytes());
        let checksum = xxh3_64(&self.stored[8..]);
        self.stored[..8].copy_from_slice(&checksum.to_le_bytes());
        let at = PagePtr { first, bytes: self.stored.len() as u32, birth: self.birth };
        (self.stored, at)
    }
}

/// What a block says of itself, if a page begins there: for a salvage that cannot trust what refers to it.
pub(crate) fn look(block: &[u8], first: u64) -> Option<(PagePtr, Kind)> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(block.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
    if u32_at(8)? != MAGIC || u64_at(32)? != first {
        return None;
    }
    let at = PagePtr { first, bytes: u32_at(20)?.checked_add(HEADER_BYTES as u32)?, birth: u64_at(40)? };
    let tree = TreeName { space: block[14], prefix: u32_at(16)? };
    Some((at, Kind { tree, level: block[12] }))
}
