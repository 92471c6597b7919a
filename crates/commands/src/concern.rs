//! Read and write concern: honoured or refused by name.

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::{CommitTime, Durability};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{Argument, as_double};

/// Every level reads committed, durable state here, so they differ only in what they promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadConcern {
    #[default]
    Local,
    Available,
    Majority,
    Linearizable,
    /// One moment for several reads; `at` names it from the second read on.
    Snapshot {
        at: Option<CommitTime>,
    },
}

impl ReadConcern {
    /// `None` for an empty one, which says nothing.
    pub fn parse(value: RawValue<'_>) -> Result<Option<ReadConcern>> {
        let Some(document) = value.as_document() else {
            return Err(Error::user(
                ErrorCode::FailedToParse,
                format!("readConcern must be an object, not {}", value.element_type().name()),
            ));
        };
        if document.is_empty() {
            return Ok(None);
        }
        let mut concern = ReadConcern::Local;
        let mut at = None;
        for (name, value) in document.iter() {
            match (name, value) {
                ("level", RawValue::String(level)) => concern = ReadConcern::of_level(level)?,
                ("level", other) => return Err(wrong_type("readConcern.level", other, "string")),
                // One node: whatever a client has been told of is in every later snapshot.
                ("afterClusterTime", RawValue::Timestamp(time)) if time.to_bits() == 0 => {
                    return Err(Error::user(
                        ErrorCode::InvalidOptions,
                        "afterClusterTime cannot be a null timestamp",
                    ));
                }
                ("afterClusterTime", RawValue::Timestamp(_)) => {}
                ("provenance", value) => check_provenance("ReadConcernArgs::parse", value)?,
                ("atClusterTime", RawValue::Timestamp(time)) => at = Some(time.to_bits()),
                ("afterClusterTime", other) => {
                    return Err(wrong_type("readConcern.afterClusterTime", other, "timestamp"));
                }
                ("atClusterTime", other) => {
                    return Err(wrong_type("readConcern.atClusterTime", other, "timestamp"));
                }
                (name, _) => {
                    return Err(Error::user(
                        ErrorCode::InvalidOptions,
                        format!("Unrecognized option in readConcern: {name}"),
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
        Ok(Some(concern))
    }

    /// The time that a causally consistent read must not be older than.
    pub fn after(value: RawValue<'_>) -> Option<CommitTime> {
        match value.as_document()?.get("afterClusterTime")? {
            RawValue::Timestamp(time) => Some(time.to_bits()),
            _ => None,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            ReadConcern::Local => "local",
            ReadConcern::Available => "available",
            ReadConcern::Majority => "majority",
            ReadConcern::Linearizable => "linearizable",
            ReadConcern::Snapshot { .. } => "snapshot",
        }
    }

    fn of_level(level: &str) -> Result<ReadConcern> {
        match level {
            "local" => Ok(ReadConcern::Local),
            "available" => Ok(ReadConcern::Available),
            "majority" => Ok(ReadConcern::Majority),
            "linearizable" => Ok(ReadConcern::Linearizable),
            "snapshot" => Ok(ReadConcern::Snapshot { at: None }),
            _ => Err(Error::user(
                ErrorCode::FailedToParse,
                "readConcern.level must be either 'local', 'majority', 'linearizable', 'available', or 'snapshot'",
            )),
        }
    }
}

fn wrong_type(field: &str, value: RawValue<'_>, expected: &str) -> Error {
    Error::user(
        ErrorCode::TypeMismatch,
        format!(
            "BSON field '{field}' is the wrong type '{}', expected type '{expected}'",
            value.element_type().name()
        ),
    )
}

#[derive(Debug, Clone)]
pub struct WriteConcern {
    /// `w: 0`: the client does not wait for an answer.
    pub unacknowledged: bool,
    pub majority: bool,
    pub journal: Option<bool>,
    /// A promise that one node cannot keep: the write is done, and the reply says so.
    unmet: Option<Unmet>,
}

#[derive(Debug, Clone)]
struct Unmet {
    code: ErrorCode,
    message: String,
    w: Value,
    wtimeout: i64,
    /// Whose concern it is.
    provenance: &'static str,
}

impl WriteConcern {
    pub fn parse(value: RawValue<'_>) -> Result<WriteConcern> {
        let Some(document) = value.as_document() else {
            return Err(Error::user(
                ErrorCode::TypeMismatch,
                format!(
                    "\"writeConcern\" had the wrong type. Expected object, found {}",
                    value.element_type().name()
                ),
            ));
        };
        let mut concern = WriteConcern { unacknowledged: false, majority: true, journal: None, unmet: None };
        let (mut journal, mut fsync) = (None, None);
        for (name, value) in document.iter() {
            match name {
                "w" => concern.set_w(value)?,
                "j" => journal = truth(name, value)?,
                "fsync" => fsync = truth(name, value)?,
                // There is one node: nothing it could time out waiting for.
                "wtimeout" => check_timeout(value)?,
                "provenance" => check_provenance("WriteConcernOptions", value)?,
                "getLastError" => {}
                other => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field 'writeConcern.{other}' is an unknown field."),
                    ));
                }
            }
        }
        if journal == Some(true) && fsync == Some(true) {
            return Err(Error::user(ErrorCode::FailedToParse, "fsync and j options cannot be used together"));
        }
        concern.journal = match (journal, fsync) {
            (Some(journal), Some(fsync)) => Some(journal || fsync),
            (journal, fsync) => journal.or(fsync),
        };
        if let (Some(unmet), Some(wtimeout)) = (&mut concern.unmet, document.get("wtimeout")) {
            unmet.wtimeout =
                Argument { command: "writeConcern", name: "wtimeout", value: wtimeout }.integer()?;
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
                let message =
                    format!("No write concern mode named '{tag}' found in replica set configuration");
                self.set_unmet(ErrorCode::UnknownReplWriteConcern, message, value);
                return Ok(());
            }
            RawValue::Int32(nodes) => i64::from(nodes),
            RawValue::Int64(nodes) => nodes,
            RawValue::Double(nodes) => nodes as i64,
            RawValue::Decimal128(_) => Argument { command: "writeConcern", name: "w", value }.integer()?,
            RawValue::Document(tags) => return self.set_tags(tags),
            RawValue::Null | RawValue::Undefined => return Ok(()),
            other => {
                return Err(Error::user(
                    ErrorCode::FailedToParse,
                    format!(
                        "w has to be a number, string, or object; found: {}",
                        other.element_type().name()
                    ),
                ));
            }
        };
        match nodes {
            0 => self.unacknowledged = true,
            1 => {}
            2..=50 => {
                let message = "Not enough data-bearing nodes".to_owned();
                self.set_unmet(ErrorCode::UnsatisfiableWriteConcern, message, value);
            }
            _ => {
                return Err(Error::user(
                    ErrorCode::FailedToParse,
                    format!("w has to be a non-negative number and not greater than 50; found: {nodes}"),
                ));
            }
        }
        self.majority = false;
        Ok(())
    }

    /// Members by their tags, which the one member here has none of.
    fn set_tags(&mut self, tags: RawDocument<'_>) -> Result<()> {
        let failed = |message: String| Err(Error::user(ErrorCode::FailedToParse, message));
        if let Some((name, _)) = tags.iter().find(|(_, value)| as_double(*value).is_none()) {
            return failed(format!(
                "tags must be a single level document with only number values; found: {name}"
            ));
        }
        match tags.iter().next() {
            None => failed("tagged write concern requires tags".to_owned()),
            Some((tag, _)) => {
                let message = format!("No replica set tag key {tag} in config");
                self.set_unmet(ErrorCode::NoSuchKey, message, RawValue::Document(tags));
                Ok(())
            }
        }
    }

    fn set_unmet(&mut self, code: ErrorCode, message: String, w: RawValue<'_>) {
        self.unmet =
            Some(Unmet { code, message, w: w.to_value(), wtimeout: 0, provenance: "clientSupplied" });
    }

    /// Refuses a name for members that no configuration has.
    pub fn check_known(&self) -> Result<()> {
        match &self.unmet {
            Some(unmet) if unmet.code == ErrorCode::UnknownReplWriteConcern => {
                Err(Error::user(unmet.code, unmet.message.clone()))
            }
            _ => Ok(()),
        }
    }

    /// The concern that `setDefaultRWConcern` gave to commands which name none.
    pub fn of_default(concern: &Document) -> Result<WriteConcern> {
        let mut parsed = WriteConcern::parse(RawValue::Document(concern.as_raw()))?;
        if let Some(unmet) = &mut parsed.unmet {
            unmet.provenance = "customDefault";
        }
        Ok(parsed)
    }

    /// What the reply says about a promise that was not kept.
    pub fn error(&self) -> Option<Document> {
        let Unmet { code, message, w, wtimeout, provenance } = self.unmet.as_ref()?;
        let wtimeout = i32::try_from(*wtimeout).map_or(Value::Int64(*wtimeout), Value::Int32);
        let concern = doc! {"w": w.clone(), "wtimeout": wtimeout, "provenance": *provenance};
        Some(doc! {
            "code": code.0,
            "codeName": code.name().into_owned(),
            "errmsg": message.as_str(),
            "errInfo": {"writeConcern": concern},
        })
    }

    /// When the acknowledgement is sent. `j: false` and `w: 0` ask for speed; everything else, like the
    /// default, waits for the disk.
    pub fn durability(concern: Option<&WriteConcern>, default: Durability) -> Durability {
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

fn truth(name: &str, value: RawValue<'_>) -> Result<Option<bool>> {
    match value {
        RawValue::Null | RawValue::Undefined => Ok(None),
        value => Argument { command: "writeConcern", name, value }.boolean().map(Some),
    }
}

/// Refuses a word for where a concern comes from that mongod does not know.
fn check_provenance(of: &str, value: RawValue<'_>) -> Result<()> {
    const KNOWN: [&str; 5] = [
        "clientSupplied",
        "implicitDefault",
        "customDefault",
        "getLastErrorDefaults",
        "internalWriteDefault",
    ];
    match value {
        RawValue::Null => Ok(()),
        RawValue::String(word) if KNOWN.contains(&word) => Ok(()),
        RawValue::String(word) => Err(Error::user(
            ErrorCode::BadValue,
            format!("Enumeration value '{word}' for field '{of}.provenance' is not a valid value."),
        )),
        other => Err(wrong_type(&format!("{of}.provenance"), other, "string")),
    }
}

/// Nothing is waited for, so any time will do that mongod takes.
fn check_timeout(value: RawValue<'_>) -> Result<()> {
    let millis = match value {
        RawValue::Int64(millis) => millis as f64,
        RawValue::Double(millis) => millis,
        RawValue::Decimal128(millis) => millis.to_f64(),
        _ => return Ok(()),
    };
    match millis > f64::from(i32::MAX) {
        true => Err(Error::user(ErrorCode::FailedToParse, "wtimeout must be a 32-bit integer")),
        false => Ok(()),
    }
}
