//! A command as it arrived, and what every command may carry.

use std::time::Duration;

use kilim_bson::{RawDocument, RawValue};
use kilim_engine::cursor::StableApi;
use kilim_engine::ids::SessionId;
use kilim_engine::session::TransactionNumber;
use kilim_engine::{CommitTime, check_database};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::Argument;
use crate::command::create_user::EXTERNAL;
use crate::concern::{ReadConcern, WriteConcern};
use crate::registry::CommandSpec;

/// One message's command.
pub struct Request<'a> {
    pub body: RawDocument<'a>,
    /// Document sequences: arrays of documents that travel beside the body.
    pub sequences: Vec<(&'a str, Vec<RawDocument<'a>>)>,
    pub exhaust_allowed: bool,
    /// Came by OP_QUERY, as a driver's first hello may.
    pub legacy_hello: bool,
}

impl<'a> Request<'a> {
    /// Refuses document sequences that the command does not know, where mongod does: commands that take one refuse
    /// others, `hello` refuses all, and the rest looks at none.
    fn check_sequences(&self, command: &str) -> Result<()> {
        let known = match command {
            "insert" => "documents",
            "update" => "updates",
            "delete" => "deletes",
            "hello" | "isMaster" if !self.sequences.is_empty() => {
                return Err(Error::location(
                    40472,
                    format!("The {command} command does not support document sequences."),
                ));
            }
            _ => return Ok(()),
        };
        match self.sequences.iter().find(|(name, _)| *name != known) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::location(40415, format!("BSON field '{command}.{name}' is an unknown field.")))
            }
        }
    }

    /// The documents of `name`, whether they came as a sequence or as an array in the body.
    pub fn documents(&self, command: &'static str, name: &'static str) -> Result<Vec<RawDocument<'a>>> {
        if let Some((_, documents)) = self.sequences.iter().find(|(found, _)| *found == name) {
            return Ok(documents.clone());
        }
        let Some(value) = self.body.get(name) else {
            return Err(Error::location(
                40414,
                format!("BSON field '{command}.{name}' is missing but a required field"),
            ));
        };
        let argument = Argument { command, name, value };
        if let RawValue::Null | RawValue::Undefined = value {
            return Err(Error::location(10065, format!("invalid parameter: expected an object ({name})")));
        }
        let mut documents = Vec::new();
        for (index, element) in argument.array()?.as_document().iter() {
            match element {
                RawValue::Document(document) => documents.push(document),
                // As on mongod: a null in a list of documents stands for nothing.
                RawValue::Null => {}
                other => {
                    return Err(Error::user(
                        ErrorCode::TypeMismatch,
                        format!(
                            "BSON field '{command}.{name}.{index}' is the wrong type '{}', expected type 'object'",
                            other.element_type().name()
                        ),
                    ));
                }
            }
        }
        Ok(documents)
    }
}

/// The fields that any command may have.
pub struct Generic<'a> {
    pub database: &'a str,
    pub session: Option<SessionId>,
    pub transaction_number: Option<i64>,
    pub autocommit: Option<bool>,
    pub start_transaction: Option<bool>,
    pub time_limit: Option<Duration>,
    /// `None` where the command says nothing about it.
    pub read_concern: Option<ReadConcern>,
    /// `afterClusterTime` of the read concern: what a causally consistent client has seen.
    pub after_cluster_time: Option<CommitTime>,
    /// The newest time that the client has heard of, from whichever server.
    pub cluster_time: Option<CommitTime>,
    pub write_concern: Option<WriteConcern>,
    /// Where it names the version of the stable API.
    pub api: Option<StableApi>,
    pub comment: Option<RawValue<'a>>,
    /// Not every command has these three, but most have. They are found here so that nobody looks for them again.
    pub collation: Option<RawValue<'a>>,
    pub definitions: Option<RawValue<'a>>,
    pub collection_uuid: Option<RawValue<'a>>,
}

/// Whether a name belongs to every command; a command's own parser skips these.
pub fn is_generic(name: &str) -> bool {
    matches!(
        name,
        "lsid"
            | "$db"
            | "$clusterTime"
            | "$readPreference"
            | "readConcern"
            | "writeConcern"
            | "maxTimeMS"
            | "maxTimeMSOpOnly"
            | "comment"
            | "txnNumber"
            | "autocommit"
            | "startTransaction"
            | "apiVersion"
            | "apiStrict"
            | "apiDeprecationErrors"
            | "stmtId"
            | "stmtIds"
            | "$audit"
            | "$client"
            | "$configTime"
            | "$topologyTime"
            | "$queryOptions"
            | "clientOperationKey"
            | "mayBypassWriteBlocking"
    )
}

impl<'a> Generic<'a> {
    pub fn parse(spec: &CommandSpec, request: &Request<'a>) -> Result<Generic<'a>> {
        let command = spec.name;
        let mut generic = Generic {
            database: "",
            session: None,
            transaction_number: None,
            autocommit: None,
            start_transaction: None,
            time_limit: None,
            read_concern: None,
            after_cluster_time: None,
            cluster_time: None,
            write_concern: None,
            api: None,
            comment: None,
            collation: None,
            definitions: None,
            collection_uuid: None,
        };
        request.check_sequences(command)?;
        let (mut database, mut api) = (None, Api::default());
        let mut names = Names::default();
        for (name, value) in request.body.iter().skip(1) {
            names.check_new(command, name)?;
            let argument = Argument { command, name, value };
            match name {
                "$db" => match value {
                    RawValue::String(name) => database = Some(name),
                    other => {
                        return Err(Error::location(
                            13111,
                            format!("wrong type for field ($db): {}", other.element_type().name()),
                        ));
                    }
                },
                "lsid" | "apiVersion" if matches!(value, RawValue::Null) => {}
                "lsid" => {
                    let document = Argument { command: SESSION, ..argument }.document()?;
                    generic.session = Some(parse_lsid(document)?);
                }
                "txnNumber" => generic.transaction_number = Some(parse_transaction_number(value)?),
                "autocommit" => {
                    generic.autocommit = Some(Argument { command: SESSION, ..argument }.strict_boolean()?);
                }
                "startTransaction" => {
                    generic.start_transaction =
                        Some(Argument { command: SESSION, ..argument }.strict_boolean()?);
                }
                "maxTimeMSOpOnly" => {
                    return Err(Error::user(
                        ErrorCode::InvalidOptions,
                        "Can not specify maxTimeMSOpOnly for non internal clients",
                    ));
                }
                "maxTimeMS" => generic.time_limit = parse_time_limit(command, value)?,
                // As on MongoDB: this command alone reads it by its own rules first.
                "readConcern" if command == "aggregate" && value.as_document().is_none() => {
                    return Err(argument.wrong_type("type 'object'"));
                }
                "readConcern" => {
                    generic.read_concern = ReadConcern::parse(value)?;
                    generic.after_cluster_time = ReadConcern::after(value);
                }
                "writeConcern" if !spec.writes => {
                    return Err(Error::user(
                        ErrorCode::InvalidOptions,
                        format!("Command {command} does not support writeConcern"),
                    ));
                }
                "writeConcern" => generic.write_concern = Some(WriteConcern::parse(value)?),
                "comment" => generic.comment = Some(value),
                "collation" => generic.collation = Some(value),
                "let" => generic.definitions = Some(value),
                "collectionUUID" => generic.collection_uuid = Some(value),
                "$readPreference" => check_read_preference(&argument)?,
                "$clusterTime" => generic.cluster_time = parse_cluster_time(value)?,
                "apiVersion" => api.version = Some(argument.string()?),
                "apiStrict" | "apiDeprecationErrors" if matches!(value, RawValue::Null) => {}
                "apiStrict" => api.strict = Some(argument.strict_boolean()?),
                "apiDeprecationErrors" => api.deprecation_errors = Some(argument.strict_boolean()?),
                _ => {}
            }
        }
        api.check(spec)?;
        let (strict, deprecation_errors) = (api.strict, api.deprecation_errors);
        generic.api = api.version.map(|_| StableApi { strict, deprecation_errors });
        generic.database = match database {
            Some(database) => database,
            None if request.legacy_hello => "admin",
            None => return Err(Error::location(40571, "OP_MSG requests require a $db argument")),
        };
        // Databases that an earlier version let have other names must be seen and dropped: these commands check by
        // themselves.
        let checks_itself = matches!(spec.name, "drop" | "dropDatabase" | "listCollections");
        // The database of users whom somebody else vouches for has a name that no other can have.
        let of_users = spec.changes_access || matches!(spec.name, "usersInfo" | "authenticate" | "logout");
        let is_external = of_users && generic.database == EXTERNAL;
        if !(checks_itself || is_external) {
            check_database(generic.database)?;
        }
        Ok(generic)
    }

    /// Whether it wants nothing beside the stable API.
    pub fn is_api_strict(&self) -> bool {
        self.api.is_some_and(|api| api.strict == Some(true))
    }

    /// Which transaction the command belongs to, if any.
    pub fn transaction(&self) -> Result<Option<TransactionNumber>> {
        match (self.autocommit, self.transaction_number) {
            _ if self.start_transaction == Some(false) => Err(Error::user(
                ErrorCode::InvalidOptions,
                "Specifying startTransaction=false is not allowed.",
            )),
            (Some(false), Some(number)) => {
                Ok(Some(TransactionNumber { number, start: self.start_transaction.is_some() }))
            }
            (Some(false), None) => Err(Error::user(
                ErrorCode::InvalidOptions,
                "'autocommit' field requires a transaction number to also be specified",
            )),
            (Some(true), _) => {
                Err(Error::user(ErrorCode::InvalidOptions, "Specifying autocommit=true is not allowed."))
            }
            (None, _) if self.start_transaction.is_some() => Err(Error::user(
                ErrorCode::InvalidOptions,
                "'startTransaction' field requires 'autocommit' field to also be specified",
            )),
            (None, _) => Ok(None),
        }
    }
}

pub fn parse_lsid(document: RawDocument<'_>) -> Result<SessionId> {
    if let Some((unknown, _)) = document.iter().find(|(name, _)| !matches!(*name, "id" | "uid")) {
        return Err(Error::location(
            40415,
            format!("BSON field 'OperationSessionInfo.lsid.{unknown}' is an unknown field."),
        ));
    }
    match document.get("id") {
        Some(RawValue::Binary { subtype: 4, bytes }) => {
            let id = bytes.try_into().map_err(|_| {
                Error::user(
                    ErrorCode::InvalidUUID,
                    "uuid must be a 16-byte binary field with UUID (4) subtype",
                )
            })?;
            Ok(SessionId(id))
        }
        Some(other) => Err(Error::user(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field 'OperationSessionInfo.lsid.id' is the wrong type '{}', expected type 'binData'",
                other.element_type().name()
            ),
        )),
        None => Err(Error::location(
            40414,
            "BSON field 'OperationSessionInfo.lsid.id' is missing but a required field",
        )),
    }
}

/// How error messages call the fields of a session.
const SESSION: &str = "OperationSessionInfo";

fn parse_transaction_number(value: RawValue<'_>) -> Result<i64> {
    match value {
        RawValue::Int64(number) if number < 0 => {
            Err(Error::user(ErrorCode::InvalidOptions, "Transaction number cannot be negative"))
        }
        RawValue::Int64(number) => Ok(number),
        other => Err(Error::user(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{SESSION}.txnNumber' is the wrong type '{}', expected type 'long'",
                other.element_type().name()
            ),
        )),
    }
}

fn parse_time_limit(command: &'static str, value: RawValue<'_>) -> Result<Option<Duration>> {
    // As on MongoDB: these two read it by their own rules first.
    let argument = Argument { command, name: "maxTimeMS", value };
    match command {
        "aggregate" => drop(argument.not_negative()?),
        "getMore" => drop(argument.integer()?),
        _ => {}
    }
    let refuse = |message: String| Err(Error::user(ErrorCode::BadValue, message));
    let millis = match value {
        RawValue::Int32(millis) => f64::from(millis),
        RawValue::Int64(millis) => millis as f64,
        RawValue::Double(millis) => millis,
        RawValue::Decimal128(_) => Argument { command, name: "maxTimeMS", value }.integer()? as f64,
        _ => return refuse("maxTimeMS must be a number".to_owned()),
    };
    if millis.fract() != 0.0 {
        return refuse("maxTimeMS has non-integral value".to_owned());
    }
    if !(0.0..=f64::from(i32::MAX)).contains(&millis) {
        return refuse(format!("{millis} value for maxTimeMS is out of range"));
    }
    Ok((millis > 0.0).then(|| Duration::from_millis(millis as u64)))
}

/// One node answers whatever is preferred; only nonsense is refused.
fn check_read_preference(argument: &Argument<'_>) -> Result<()> {
    const MODES: [&str; 5] = ["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"];
    match argument.document()?.get("mode") {
        Some(RawValue::String(mode)) if MODES.contains(&mode) => Ok(()),
        Some(RawValue::String(mode)) => Err(Error::user(
            ErrorCode::BadValue,
            format!("Enumeration value '{mode}' for field '$readPreference.mode' is not a valid value."),
        )),
        Some(other) => Err(Error::user(
            ErrorCode::TypeMismatch,
            format!("$readPreference.mode must be a string, not {}", other.element_type().name()),
        )),
        None => Err(Error::user(ErrorCode::NoSuchKey, "Missing expected field \"mode\"")),
    }
}

/// The time itself needs no looking at: one node's clock is ahead of all it has told.
fn parse_cluster_time(value: RawValue<'_>) -> Result<Option<CommitTime>> {
    let Some(document) = value.as_document() else {
        return Err(Error::location(10065, "invalid parameter: expected an object ($clusterTime)"));
    };
    match document.get("clusterTime") {
        Some(RawValue::Timestamp(time)) => Ok(Some(time.to_bits())),
        Some(other) => Err(Error::user(
            ErrorCode::TypeMismatch,
            format!(
                "\"clusterTime\" had the wrong type. Expected timestamp, found {}",
                other.element_type().name()
            ),
        )),
        None => Err(Error::user(ErrorCode::NoSuchKey, "Missing expected field \"clusterTime\"")),
    }
}

/// What a client asks of the stable API.
#[derive(Default)]
struct Api<'a> {
    version: Option<&'a str>,
    strict: Option<bool>,
    deprecation_errors: Option<bool>,
}

impl Api<'_> {
    fn check(&self, spec: &CommandSpec) -> Result<()> {
        match self.version {
            None if self.strict.is_some() || self.deprecation_errors.is_some() => Err(Error::location(
                4886600,
                "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
            )),
            None => Ok(()),
            Some("1") if self.strict == Some(true) && !spec.stable => Err(Error::user(
                ErrorCode::APIStrictError,
                format!("Provided apiStrict:true, but the command {} is not in API Version 1.", spec.name),
            )),
            Some("1") => Ok(()),
            Some(other) => {
                Err(Error::user(ErrorCode::APIVersionError, format!("Cannot accept API version {other}")))
            }
        }
    }
}

/// The fields of a command so far, to find one that comes twice. No command knows as many as fit here,
/// and what it does not know it refuses.
#[derive(Default)]
struct Names<'a> {
    seen: [&'a str; 32],
    count: usize,
}

impl<'a> Names<'a> {
    fn check_new(&mut self, command: &str, name: &'a str) -> Result<()> {
        if self.seen[..self.count].contains(&name) {
            return Err(Error::location(
                40413,
                format!("BSON field '{command}.{name}' is a duplicate field"),
            ));
        }
        if self.count < self.seen.len() {
            self.seen[self.count] = name;
            self.count += 1;
        }
        Ok(())
    }
}
