//! `kilimBackup`: the data on disk as of one moment, handed out in pieces. `kilim backup` is its client.
//!
//! ```text
//! {kilimBackup: 1, start: true}             → {id, superblock, bytes, asOf}
//! {kilimBackup: 1, read: id, offset: n}     → {offset, data, next, done}
//! {kilimBackup: 1, end: id}                 → {}
//! ```
//! A read gives the first bytes in use from the offset on; the next one goes on from `next`.

use kilim_bson::{Document, Timestamp, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "kilimBackup";

/// What a reply carries: half of the largest document.
const CHUNK_BYTES_MAX: usize = 8 << 20;

enum Asked {
    Start,
    Read(i64),
    End(i64),
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let (mut asked, mut offset) = (Vec::new(), 0);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "start" => {
                if argument.boolean()? {
                    asked.push(Asked::Start);
                }
            }
            "read" => asked.push(Asked::Read(argument.integer()?)),
            "end" => asked.push(Asked::End(argument.integer()?)),
            "offset" => offset = argument.not_negative()?,
            _ => return Err(argument.unknown()),
        }
    }
    match asked.as_slice() {
        [Asked::Start] => start(call),
        [Asked::Read(id)] => read(call, *id, offset),
        [Asked::End(id)] => {
            call.engine.backups.end(*id);
            Ok(Document::new())
        }
        _ => Err(Error::user(
            ErrorCode::BadValue,
            "kilimBackup takes one of 'start: true', 'read: <id>' and 'end: <id>'",
        )),
    }
}

fn start(call: &Call<'_, '_>) -> Result<Document> {
    let (id, held) = call.engine.backups.begin(&call.engine.store, call.engine.options.data.is_none())?;
    let mut reply = doc! {"id": id, "bytes": held.bytes() as i64};
    reply.push("superblock", Value::Binary { subtype: 0, bytes: held.superblock() });
    reply.push("asOf", Value::Timestamp(Timestamp::from_bits(held.commit_time())));
    Ok(reply)
}

fn read(call: &Call<'_, '_>, id: i64, offset: u64) -> Result<Document> {
    let held = call.engine.backups.get(id)?;
    let mut reply = Document::new();
    match held.read(offset, CHUNK_BYTES_MAX)? {
        Some((at, bytes)) => {
            reply.push("offset", at as i64);
            reply.push("next", at as i64 + bytes.len() as i64);
            reply.push("done", false);
            reply.push("data", Value::Binary { subtype: 0, bytes });
        }
        None => reply.push("done", true),
    }
    Ok(reply)
}
