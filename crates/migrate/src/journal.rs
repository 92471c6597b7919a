//! A torn end of fjall's journal, cut off before fjall reads it.
//!
//! A crash in the middle of a batch leaves any of its pages on disk and any not. fjall discards a batch without
//! an end, but refuses the whole store when the end is there and something before it is not. We read the newest
//! journal first and cut it after its last whole batch.
//!
//! What is cut was never acknowledged as durable: a batch is synced before its members are answered and before
//! the next one is written, so a broken batch is the last of durable ones; after it there can only be relaxed
//! commits, of which the newest may be lost. Older journals were synced before the newest was begun.
//!
//! On disk, a batch is: start (tag 1, item count u32, sequence number u64), items (tag 2, value type u8,
//! compression u8, keyspace u64, key length u16, value length u32, stored length u32, key, stored value) or
//! clears (tag 4, keyspace u64), end (tag 3, XXH3 of the items as stored, 4 bytes of trailer). Numbers are
//! little-endian. Behind the last batch there are zeroes up to a length set ahead.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

const TRAILER: [u8; 4] = *b"FJL\x03";
const START_BYTES: usize = 12;
const ITEM_BYTES: usize = 20;
const CLEAR_BYTES: usize = 8;
const END_BYTES: usize = 12;

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TAG_CLEAR: u8 = 4;

const READ_BYTES: usize = 256 << 10;

pub(crate) fn cut_torn_tail(dir: &Path) -> io::Result<()> {
    let Some(path) = newest_journal(dir)? else { return Ok(()) };
    let file = File::options().read(true).write(true).open(&path)?;
    let length = file.metadata()?.len();
    let Extent { whole_bytes, torn } = read_batches(&file, length)?;
    if torn {
        tracing::warn!(journal = %path.display(), whole_bytes, "the journal ends in a torn batch, which is cut off");
        file.set_len(whole_bytes)?;
        file.sync_all()?;
    }
    Ok(())
}

/// How far whole batches reach, and whether anything but zeroes follows them.
#[derive(Debug, PartialEq, Eq)]
struct Extent {
    whole_bytes: u64,
    torn: bool,
}

fn newest_journal(dir: &Path) -> io::Result<Option<PathBuf>> {
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".jnl"))
            .and_then(|number| number.parse().ok());
        if let Some(number) = number
            && newest.as_ref().is_none_or(|(newest, _)| number > *newest)
        {
            newest = Some((number, path));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

fn read_batches(file: &File, length: u64) -> io::Result<Extent> {
    let mut reader =
        Reader { input: BufReader::with_capacity(READ_BYTES, file), left: length, buffer: Vec::new() };
    let mut whole_bytes = 0;
    loop {
        match reader.tag()? {
            None | Some(0) => return Ok(Extent { whole_bytes, torn: false }),
            Some(TAG_START) if reader.is_whole_batch()? => whole_bytes = length - reader.left,
            Some(_) => return Ok(Extent { whole_bytes, torn: true }),
        }
    }
}

struct Reader<R> {
    input: R,
    /// Bytes up to the end of the file: lengths in a torn batch lie.
    left: u64,
    buffer: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// The next bytes, if there are so many.
    fn take(&mut self, count: usize) -> io::Result<Option<&[u8]>> {
        if count as u64 > self.left {
            return Ok(None);
        }
        self.left -= count as u64;
        self.buffer.resize(count, 0);
        self.input.read_exact(&mut self.buffer)?;
        Ok(Some(&self.buffer))
    }

    fn tag(&mut self) -> io::Result<Option<u8>> {
        Ok(self.take(1)?.map(|tag| tag[0]))
    }

    /// Reads on from behind a start's tag.
    fn is_whole_batch(&mut self) -> io::Result<bool> {
        let Some(start) = self.take(START_BYTES)? else { return Ok(false) };
        let mut items_left = u32_at(start, 0);
        let mut hash = Xxh3::new();
        loop {
            let Some(tag) = self.tag()? else { return Ok(false) };
            match tag {
                TAG_ITEM | TAG_CLEAR if items_left == 0 => return Ok(false),
                TAG_ITEM => {
                    hash.update(&[tag]);
                    let Some(head) = self.take(ITEM_BYTES)? else { return Ok(false) };
                    hash.update(head);
                    let (key_bytes, stored_bytes) = (u16_at(head, 10), u32_at(head, 16));
                    let Some(data) = self.take(key_bytes + stored_bytes as usize)? else { return Ok(false) };
                    hash.update(data);
                    items_left -= 1;
                }
                TAG_CLEAR => {
                    hash.update(&[tag]);
                    let Some(keyspace) = self.take(CLEAR_BYTES)? else { return Ok(false) };
                    hash.update(keyspace);
                    items_left -= 1;
                }
                TAG_END => {
                    let Some(end) = self.take(END_BYTES)? else { return Ok(false) };
                    let whole = end[..8] == hash.digest().to_le_bytes() && end[8..] == TRAILER;
                    return Ok(whole && items_left == 0);
                }
                _ => return Ok(false),
            }
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(bytes[at]) | usize::from(bytes[at + 1]) << 8
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    (u16_at(bytes, at) | u16_at(bytes, at + 2) << 16) as u32
}
