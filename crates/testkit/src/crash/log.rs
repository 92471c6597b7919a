//! The shim's log, decoded.

use anyhow::{Context, Result, bail, ensure};

/// The fixed part of a record; `shim.c` has the same layout.
const HEAD_BYTES: usize = 32;

/// One change or sync, with where its record begins and ends in the log.
#[derive(Debug, Clone)]
pub struct Record {
    pub start: u64,
    pub end: u64,
    pub inode: u64,
    pub event: Event,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The watched directory itself, at the start of a process.
    Root,
    Create {
        path: String,
    },
    MakeDirectory {
        path: String,
    },
    Write {
        offset: u64,
        data: Vec<u8>,
    },
    Truncate {
        length: u64,
    },
    /// `listing` is the directory as it was, when the subject is one.
    SyncBegin {
        sync: u32,
        listing: Option<Vec<Listed>>,
    },
    SyncEnd {
        sync: u32,
        succeeded: bool,
    },
    /// A side is absent when it lies outside of the watched directory.
    Rename {
        from: Option<String>,
        to: Option<String>,
        directory: bool,
    },
    Unlink {
        path: String,
    },
    Link {
        path: String,
    },
    /// A shared writable mapping, which the log cannot follow.
    Mapped,
    /// The shim made a call fail.
    Fault {
        class: String,
        error: i32,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub inode: u64,
    pub directory: bool,
}

/// Decodes a log. A record cut short at the end (the process was killed) is left out.
pub fn decode_log(bytes: &[u8]) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some((head, rest)) = bytes[at..].split_at_checked(HEAD_BYTES) {
        let u16_at = |i: usize| u16::from_le_bytes(head[i..i + 2].try_into().expect("two bytes")) as usize;
        let u32_at = |i: usize| u32::from_le_bytes(head[i..i + 4].try_into().expect("four bytes"));
        let u64_at = |i: usize| u64::from_le_bytes(head[i..i + 8].try_into().expect("eight bytes"));
        let (kind, directory) = (head[0], head[1] != 0);
        let (path_bytes, target_bytes, error) = (u16_at(2), u16_at(4), u16_at(6));
        let (data_bytes, sync, inode, offset) = (u32_at(8) as usize, u32_at(12), u64_at(16), u64_at(24));
        let Some(tail) = rest.get(..path_bytes + target_bytes + data_bytes) else { break };
        let path = String::from_utf8(tail[..path_bytes].to_vec())?;
        let target = String::from_utf8(tail[path_bytes..path_bytes + target_bytes].to_vec())?;
        let data = &tail[path_bytes + target_bytes..];
        let event = match kind {
            1 => Event::Root,
            2 => Event::Create { path },
            3 => Event::MakeDirectory { path },
            4 => Event::Write { offset, data: data.to_vec() },
            5 => Event::Truncate { length: offset },
            6 => Event::SyncBegin { sync, listing: directory.then(|| decode_listing(data)).transpose()? },
            7 => Event::SyncEnd { sync, succeeded: error == 0 },
            8 => Event::Rename {
                from: (path_bytes > 0).then_some(path),
                to: (target_bytes > 0).then_some(target),
                directory,
            },
            9 => Event::Unlink { path },
            10 => Event::Link { path },
            11 => Event::Mapped,
            12 => Event::Fault { class: path, error: error as i32 },
            other => bail!("record of unknown kind {other} at {at}"),
        };
        let end = at + HEAD_BYTES + tail.len();
        records.push(Record { start: at as u64, end: end as u64, inode, event });
        at = end;
    }
    Ok(records)
}

fn decode_listing(mut bytes: &[u8]) -> Result<Vec<Listed>> {
    let mut listing = Vec::new();
    while !bytes.is_empty() {
        let name_bytes = bytes.iter().position(|&b| b == 0).context("a listed name ends in a zero byte")?;
        let after = &bytes[name_bytes + 1..];
        ensure!(after.len() >= 9, "a listed name is followed by its inode");
        listing.push(Listed {
            name: String::from_utf8(bytes[..name_bytes].to_vec())?,
            inode: u64::from_le_bytes(after[..8].try_into().expect("eight bytes")),
            directory: after[8] != 0,
        });
        bytes = &after[9..];
    }
    Ok(listing)
}
