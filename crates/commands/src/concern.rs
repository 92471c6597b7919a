//! Read and write concern: honoured or refused by name.

use kilim_bson::{RawDocument, RawValue};
use kilim_engine::{CommitTime, Durability};
use kilim_error::{Error, ErrorCode, Result};

/// Every level reads committed, durable state here, so they differ only in what they promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadConcern {
    #[default]
    Local,
    Available,
    Majority,
    Linearizable,
    /// One moment for several reads; `at` names it from the second read on.
    Snapshot { at: Option<CommitTime> },
}

impl ReadConcern {
    pub fn parse(document: RawDocument<'_>) -> Result<ReadConcern> {
        let mut concern = ReadConcern::Local;
        let mut at = None;
        for (name, value) in document.iter() {
            match (name, value) {
                ("level", RawValue::String(level)) => {
                    concern = match level {
                        "local" => ReadConcern::Local,
                        "available" => ReadConcern::Available,
                        "majority" => ReadConcern::Majority,
                        "linearizable" => ReadConcern::Linearizable,
                        "snapshot" => ReadConcern::Snapshot { at: None },
                        other => {
                            return Err(Error::user(
                                ErrorCode::BadValue,
                                format!(
                                    "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
                                ),
                            ));
                        }
                    };
                }
                ("level", other) => {
                    return Err(Error::user(
                        ErrorCode::TypeMismatch,
                        format!(
                            "BSON field 'readConcern.level' is the wrong type '{}', expected type 'string'",
                            other.element_type().name()
                        ),
                    ));
                }
                // One node: whatever a client has been told of is in every later snapshot.
                ("afterClusterTime", RawValue::Timestamp(_)) | ("provenance", _) => {}
                ("afterClusterTime", other) => {
                    return Err(Error::user(
                        ErrorCode::TypeMismatch,
                        format!(
                            "BSON field 'readConcern.afterClusterTime' is the wrong type '{}', expected type 'timestamp'",
                            other.element_type().name()
                        ),
                    ));
                }
                ("atClusterTime", RawValue::Timestamp(time)) => at = Some(time.to_bits()),
                ("atClusterTime", other) => {
                    return Err(Error::user(
                        ErrorCode::TypeMismatch,
                        format!(
                            "BSON field 'readConcern.atClusterTime' is the wrong type '{}', expected type 'timestamp'",
                            other.element_type().name()
                        ),
                    ));
                }
                (name, _) => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field 'readConcern.{name}' is an unknown field."),
                    ));
                }
            }
        }
        match (&mut concern, at) {
            (ReadConcern::Snapshot { at: slot }, at) => *slot = at,
            (_, Some(_)) => {
                return Err(Error::user(
                    ErrorCode::InvalidOptions,
                    "readConcern.atClusterTime field can be set only if readConcern.level is equal to 'snapshot'",
                ));
            }
            _ => {}
        }
        Ok(concern)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteConcern {
    /// `w: 0`: the client does not wait for an answer.
    pub unacknowledged: bool,
    pub majority: bool,
    pub journal: Option<bool>,
}

impl WriteConcern {
    pub fn parse(document: RawDocument<'_>) -> Result<WriteConcern> {
        let mut concern = WriteConcern { unacknowledged: false, majority: true, journal: None };
        for (name, value) in document.iter() {
            match name {
                "w" => concern.set_w(value)?,
                "j" | "fsync" => {
                    let on = match value {
                        RawValue::Bool(on) => on,
                        RawValue::Int32(number) => number != 0,
                        RawValue::Int64(number) => number != 0,
                        RawValue::Double(number) => number != 0.0,
                        RawValue::Null | RawValue::Undefined => continue,
                        other => {
                            return Err(Error::user(
                                ErrorCode::TypeMismatch,
                                format!(
                                    "BSON field 'writeConcern.{name}' is the wrong type '{}', expected types \
                                     '[bool, long, int, decimal, double']",
                                    other.element_type().name()
                                ),
                            ));
                        }
                    };
                    concern.journal = Some(concern.journal.unwrap_or(false) || on);
                }
                // There is one node: nothing it could time out waiting for.
                "wtimeout" | "provenance" | "getLastError" => {}
                other => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field 'writeConcern.{other}' is an unknown field."),
                    ));
                }
            }
        }
        Ok(concern)
    }

    fn set_w(&mut self, value: RawValue<'_>) -> Result<()> {
        let nodes = match value {
            RawValue::String("majority") => {
                self.majority = true;
                return Ok(());
            }
            RawValue::String(tag) => {
                return Err(Error::user(
                    ErrorCode::UnknownReplWriteConcern,
                    format!("No write concern mode named '{tag}' found in replica set configuration"),
                ));
            }
            RawValue::Int32(nodes) => i64::from(nodes),
            RawValue::Int64(nodes) => nodes,
            RawValue::Double(nodes) => nodes as i64,
            RawValue::Null | RawValue::Undefined => return Ok(()),
            other => {
                return Err(Error::user(
                    ErrorCode::FailedToParse,
                    format!("w has to be a number, string, or object; found: {}", other.element_type().name()),
                ));
            }
        };
        match nodes {
            0 => self.unacknowledged = true,
            1 => {}
            2..=50 => {
                return Err(Error::user(
                    ErrorCode::UnknownReplWriteConcern,
                    format!("Not enough data-bearing nodes: w is {nodes}, Kilim is one node"),
                ));
            }
            _ => {
                return Err(Error::user(
                    ErrorCode::FailedToParse,
                    "w has to be a non-negative number and not greater than 50; found: ".to_owned()
                        + &nodes.to_string(),
                ));
            }
        }
        self.majority = false;
        Ok(())
    }

    /// When the acknowledgement is sent. `j: false` and `w: 0` ask for speed; everything else, like the
    /// default, waits for the disk.
    pub fn durability(concern: Option<WriteConcern>, default: Durability) -> Durability {
        match concern {
            None => default,
            Some(concern) if concern.journal == Some(true) => Durability::Durable,
            Some(concern) if concern.unacknowledged => Durability::Relaxed,
            Some(concern) if concern.journal == Some(false) && !concern.majority => Durability::Relaxed,
            Some(concern) if concern.majority => Durability::Durable,
            Some(_) => default,
        }
    }
}
