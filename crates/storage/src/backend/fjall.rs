//! The disk backend: fjall, one keyspace per space.
//!
//! fjall's batches are atomic over keyspaces through one journal. Its own transactions are not used, nor its
//! reads outside a snapshot, which can see half a batch. The commit queue's leader is the only writer, so a
//! snapshot taken between batches is a consistent state.
//!
//! Options of a keyspace bind when it is made; `docs/decisions/0001-storage.md` has the measurements behind
//! them.

use super::directory::{self, Found};
use super::{Backend, Exclusively, Sorted, View, prefix_end};
use crate::snapshot::Direction;
use crate::space::{Bytes, Space, Write};
use crate::store::Options;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    HashRatioPolicy, PartitioningPolicy, PinningPolicy, RestartIntervalPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
    Readable,
};
use kilim_error::{Error, Result, StorageError};
use parking_lot::Mutex;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least that fjall takes. A start after a crash replays the journals, about 0.6 s for this much.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// fjall asks its workers for a rotation with every batch while a memtable is too large. Behind a long
/// compaction these requests fill the workers' bounded queue, and a worker that then wants to queue a flush
/// waits for itself. So fjall's own limit is never reached, and `rotate_large` rotates instead.
const MEMTABLE_UNLIMITED: u64 = u64::MAX;

/// How long a sealed journal may wait before the memtables that hold it back are rotated again.
const JOURNAL_WAIT: Duration = Duration::from_secs(2);

pub(crate) struct FjallBackend {
    spaces: Arc<Spaces>,
    dir: PathBuf,
    /// When memtables were last rotated for the sake of a sealed journal, while there is one.
    journal_relieved: Mutex<Option<Instant>>,
}

struct Spaces {
    keyspaces: [Keyspace; Space::COUNT],
    database: Database,
}

impl Spaces {
    /// Opens what is there, and makes what is not.
    fn open(dir: &Path, options: &Options) -> Result<Spaces> {
        let database = Database::builder(dir)
            .cache_size(options.cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .worker_threads(options.worker_threads.max(1))
            .manual_journal_persist(true)
            .open()
            .map_err(from_fjall)?;
        let keyspace = |space: Space| {
            database.keyspace(space.name(), || keyspace_options(space, options)).map_err(from_fjall)
        };
        let keyspaces = [
            keyspace(Space::Meta)?,
            keyspace(Space::Records)?,
            keyspace(Space::Index)?,
            keyspace(Space::Changes)?,
        ];
        Ok(Spaces { keyspaces, database })
    }
}

impl FjallBackend {
    pub(crate) fn open(dir: &Path, options: &Options) -> Result<FjallBackend> {
        let found = directory::prepare(dir)?;
        if found == Found::Nothing {
            directory::create_by_copy(dir, |scratch| Spaces::open(scratch, options).map(drop))?;
        }
        let spaces = Spaces::open(dir, options)?;
        if found == Found::Nothing {
            directory::finish_creation(dir)?;
        }
        Ok(FjallBackend {
            spaces: Arc::new(spaces),
            dir: dir.to_path_buf(),
            journal_relieved: Mutex::new(None),
        })
    }

    fn keyspace(&self, space: Space) -> &Keyspace {
        &self.spaces.keyspaces[space.at()]
    }

    /// Rotates memtables beyond `limits` times their size, so that they get flushed.
    fn rotate_large(&self, limits: u64) -> Result<()> {
        for space in Space::ALL {
            let keyspace = self.keyspace(space);
            if keyspace.tree.active_memtable().size() > limits * memtable_bytes(space) {
                keyspace.rotate_memtable().map_err(from_fjall)?;
            }
        }
        Ok(())
    }

    /// Flushes what keeps a sealed journal from being deleted. fjall waits until the journals exceed their
    /// limit twice over; a keyspace that is seldom written would put that off.
    fn relieve_journals(&self) -> Result<()> {
        let mut relieved = self.journal_relieved.lock();
        if self.spaces.database.journal_count() <= 1 {
            *relieved = None;
        } else if relieved.is_none_or(|at| at.elapsed() > JOURNAL_WAIT) {
            *relieved = Some(Instant::now());
            for keyspace in &self.spaces.keyspaces {
                if keyspace.sealed_memtable_count() == 0 {
                    keyspace.rotate_memtable().map_err(from_fjall)?;
                }
            }
        }
        Ok(())
    }

    /// What the journals take on disk. Their length says nothing: it is set ahead of what is written.
    fn journal_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let Ok(files) = std::fs::read_dir(&self.dir) else { return 0 };
        files
            .flatten()
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "jnl"))
            .filter_map(|file| file.metadata().ok())
            .map(|metadata| metadata.blocks() * 512)
            .sum()
    }
}

/// Size at which a memtable is flushed. A flush is also when fjall looks whether the journal is full, so these
/// bound how far beyond its limit a journal grows.
fn memtable_bytes(space: Space) -> u64 {
    match space {
        Space::Records => 24 << 20,
        Space::Index | Space::Changes => 16 << 20,
        Space::Meta => 8 << 20,
    }
}

fn keyspace_options(space: Space, options: &Options) -> KeyspaceCreateOptions {
    let bloom = |policy| FilterPolicyEntry::Bloom(policy);
    let common = KeyspaceCreateOptions::default()
        .manual_journal_persist(true)
        .max_memtable_size(MEMTABLE_UNLIMITED)
        // Index and filter blocks stay in memory, whole: a point read then costs one data block.
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .data_block_hash_ratio_policy(HashRatioPolicy::all(0.75))
        .data_block_restart_interval_policy(RestartIntervalPolicy::all(4))
        .filter_policy(FilterPolicy::new([
            bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
            bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
        ]));
    match space {
        Space::Records => common
            // Scans cost 0.35 us a record of 1 KB instead of 0.57 with 4 KiB; warm point reads the same.
            .data_block_size_policy(BlockSizePolicy::all(8 << 10))
            .data_block_compression_policy(compression())
            // A record is looked up by an id that an index gave, so it is there.
            .expect_point_read_hits(true),
        Space::Index => common
            .data_block_size_policy(BlockSizePolicy::all(4 << 10))
            .data_block_compression_policy(compression()),
        Space::Meta => common.data_block_compression_policy(CompressionPolicy::disabled()),
        Space::Changes => common
            .data_block_size_policy(BlockSizePolicy::all(16 << 10))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
            .compaction_strategy(Arc::new(fjall::compaction::Fifo::new(options.change_log_bytes, None))),
    }
}

/// Level 0 is small and soon rewritten; the others hold nearly all bytes, and lz4 takes a third of them for
/// 1 to 2 us per record written.
fn compression() -> CompressionPolicy {
    CompressionPolicy::new([CompressionType::None, CompressionType::Lz4])
}

impl Backend for FjallBackend {
    fn view(&self) -> View {
        View::Fjall(FjallView { snapshot: self.spaces.database.snapshot(), spaces: self.spaces.clone() })
    }

    fn apply(&self, batch: &mut dyn Iterator<Item = &Write>, sync: bool) -> Result<()> {
        let (count, _) = batch.size_hint();
        // Relaxed batches go to the operating system at least, so that they survive the process.
        let mode = if sync { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut out =
            OwnedWriteBatch::with_capacity(self.spaces.database.clone(), count).durability(Some(mode));
        for write in batch {
            let keyspace = self.keyspace(write.space);
            match &write.value {
                Some(value) => out.insert(keyspace, write.key.clone(), value.clone()),
                None => out.remove(keyspace, write.key.clone()),
            }
        }
        out.commit().map_err(from_fjall)?;
        // `maintain` does this in time, unless it gets no processor.
        self.rotate_large(2)
    }

    fn sync(&self) -> Result<()> {
        self.spaces.database.persist(PersistMode::SyncData).map_err(from_fjall)
    }

    fn ingest(&self, space: Space, rows: &mut Sorted, exclusively: &mut Exclusively) -> Result<()> {
        let mut load = self.keyspace(space).start_ingestion().map_err(from_fjall)?;
        for row in rows {
            let (key, value) = row?;
            load.write(key, value).map_err(from_fjall)?;
        }
        let mut load = Some(load);
        exclusively(&mut || match load.take() {
            Some(load) => load.finish().map_err(from_fjall),
            None => Ok(()),
        })
    }

    fn drop_files(&self, space: Space, prefix: &[u8]) -> Result<()> {
        let end = prefix_end(prefix);
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(prefix), upper);
        self.keyspace(space).tree.drop_range::<&[u8], _>(range).map_err(|error| from_fjall(error.into()))
    }

    fn maintain(&self) -> Result<()> {
        self.rotate_large(1)?;
        self.relieve_journals()
    }

    fn disk_bytes(&self) -> u64 {
        let tables: u64 = self.spaces.keyspaces.iter().map(Keyspace::disk_space).sum();
        tables + self.journal_bytes()
    }
}

pub(crate) struct FjallView {
    // First, so that the snapshot ends before the database may.
    snapshot: fjall::Snapshot,
    spaces: Arc<Spaces>,
}

impl FjallView {
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>> {
        self.snapshot.get(&self.spaces.keyspaces[space.at()], key).map_err(from_fjall)
    }

    pub(crate) fn rows(
        &self,
        space: Space,
        lower: Bound<&[u8]>,
        upper: Bound<&[u8]>,
        direction: Direction,
    ) -> FjallRows {
        let iter = self.snapshot.range::<&[u8], _>(&self.spaces.keyspaces[space.at()], (lower, upper));
        FjallRows { iter, direction, _spaces: self.spaces.clone() }
    }
}

pub(crate) struct FjallRows {
    iter: fjall::Iter,
    direction: Direction,
    _spaces: Arc<Spaces>,
}

impl Iterator for FjallRows {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = match self.direction {
            Direction::Forward => self.iter.next(),
            Direction::Backward => self.iter.next_back(),
        };
        row.map(|row| row.into_inner().map_err(from_fjall))
    }
}

fn from_fjall(error: fjall::Error) -> Error {
    let said = match error {
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
            StorageError::Io(error.to_string())
        }
        fjall::Error::Locked => directory::in_use(),
        fjall::Error::Poisoned => StorageError::Poisoned("the journal could not be written".into()),
        other => StorageError::Corrupt(format!("{other:?}")),
    };
    said.into()
}
