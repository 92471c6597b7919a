//! `getDefaultRWConcern`, `setDefaultRWConcern`: what a command without concerns of its own gets.
//!
//! All levels of a default read concern read the same here. A default write concern says whether writes wait for the disk,
//! and where one node cannot keep it, their replies say so.

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Value, doc};
use kilim_engine::Durability;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::arguments;
use crate::concern::{ReadConcern, WriteConcern};
use crate::dispatch::Call;
use crate::kept::DEFAULT_CONCERNS;

pub fn get(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut in_memory = false;
    for argument in arguments("getDefaultRWConcern", call.body) {
        match argument.name {
            "inMemory" => in_memory = argument.strict_boolean()?,
            _ => return Err(argument.unknown()),
        }
    }
    let kept = DEFAULT_CONCERNS.read(call.engine, &call.operation)?.unwrap_or_default();
    let mut reply = shown(call, &kept);
    if in_memory {
        reply.push("inMemory", true);
    }
    Ok(reply)
}

pub fn set(call: &mut Call<'_, '_>) -> Result<Document> {
    let bad = |message: &str| Error::user(ErrorCode::BadValue, message);
    let (mut read, mut write) = (None, None);
    for argument in arguments("setDefaultRWConcern", call.body) {
        match argument.name {
            "defaultReadConcern" => read = Some(argument.document()?),
            "defaultWriteConcern" => write = Some(argument.document()?),
            _ => return Err(argument.unknown()),
        }
    }
    if read.is_none() && write.is_none() {
        let message =
            "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present";
        return Err(bad(message));
    }
    if let Some(read) = read {
        check_read(read)?;
    }
    let kept = DEFAULT_CONCERNS.read(call.engine, &call.operation)?.unwrap_or_default();
    let old =
        |name: &str| kept.get(name).and_then(RawValue::as_document).map(|concern| concern.to_document());
    let write = match write {
        None => old("defaultWriteConcern"),
        Some(unset) if unset.is_empty() && old("defaultWriteConcern").is_some() => {
            let message = "The global default write concern cannot be unset once it is set.";
            return Err(Error::user(ErrorCode::IllegalOperation, message));
        }
        Some(unset) if unset.is_empty() => None,
        Some(write) => Some(check_write(write)?),
    };
    let read = match read {
        None => old("defaultReadConcern"),
        Some(unset) => (!unset.is_empty()).then(|| unset.to_document()),
    };
    let mut document = Document::new();
    for (name, concern) in [("defaultReadConcern", &read), ("defaultWriteConcern", &write)] {
        if let Some(concern) = concern {
            document.push(name, concern.clone());
        }
    }
    document.push("updateOpTime", Value::Timestamp(Timestamp::from_bits(call.engine.store.now())));
    document.push("updateWallClockTime", Value::DateTime(call.engine.now_millis()));
    DEFAULT_CONCERNS.write(call, &document)?;
    call.engine.settings.set_default_write_concern(write);
    Ok(shown(call, &document))
}

fn check_read(concern: RawDocument<'_>) -> Result<()> {
    let unsuitable = |what: &str| {
        let message = format!("{what} is not suitable for the default read concern");
        Err(Error::user(ErrorCode::BadValue, message))
    };
    let parsed = ReadConcern::parse(RawValue::Document(concern))?;
    if concern.get("provenance").is_some() {
        let message = "'provenance' must be unset in default read concern";
        return Err(Error::user(ErrorCode::BadValue, message));
    }
    if concern.get("afterClusterTime").is_some() {
        return unsuitable("'afterClusterTime'");
    }
    match parsed {
        Some(level @ (ReadConcern::Snapshot { .. } | ReadConcern::Linearizable)) => {
            unsuitable(&format!("level: '{}'", level.name()))
        }
        _ => Ok(()),
    }
}

/// The concern with what it leaves out.
fn check_write(concern: RawDocument<'_>) -> Result<Document> {
    let parsed = WriteConcern::parse(RawValue::Document(concern))?;
    let bad = |message: &str| Error::user(ErrorCode::BadValue, message);
    if concern.get("provenance").is_some() {
        return Err(bad("'provenance' must be unset in default write concern"));
    }
    if parsed.unacknowledged {
        return Err(bad("Unacknowledged write concern is not suitable for the default write concern"));
    }
    parsed.check_known()?;
    let mut spelt_out = Document::new();
    spelt_out.push("w", concern.get("w").map_or(Value::Int32(1), RawValue::to_value));
    if let Some(journal) = parsed.journal {
        spelt_out.push("j", journal);
    }
    let timeout = concern.get("wtimeout").map_or(Value::Int32(0), RawValue::to_value);
    spelt_out.push("wtimeout", timeout);
    Ok(spelt_out)
}

fn shown(call: &Call<'_, '_>, kept: &Document) -> Document {
    let implicit = match call.engine.options.durability {
        Durability::Durable => doc! {"w": "majority", "wtimeout": 0},
        Durability::Relaxed => doc! {"w": 1, "j": false, "wtimeout": 0},
    };
    let set =
        |name: &str| kept.get(name).and_then(RawValue::as_document).map(|concern| concern.to_document());
    let source = |name: &str| if kept.get(name).is_some() { "global" } else { "implicit" };
    let mut reply = doc! {
        "defaultReadConcern": set("defaultReadConcern").unwrap_or_else(|| doc! {"level": "local"}),
        "defaultWriteConcern": set("defaultWriteConcern").unwrap_or(implicit),
    };
    for name in ["updateOpTime", "updateWallClockTime"] {
        if let Some(value) = kept.get(name) {
            reply.push(name, value.to_value());
        }
    }
    reply.push("defaultWriteConcernSource", source("defaultWriteConcern"));
    reply.push("defaultReadConcernSource", source("defaultReadConcern"));
    reply.push("localUpdateWallClockTime", Value::DateTime(call.engine.now_millis()));
    reply
}
