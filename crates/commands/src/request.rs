//! A command as it arrived, and what every command may carry.

use std::time::Duration;

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_engine::session::{SessionId, TransactionNumber};

use crate::argument::Argument;
use crate::concern::{ReadConcern, WriteConcern};

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
        let mut documents = Vec::new();
        for (index, element) in argument.array()?.as_document().iter() {
            match element {
                RawValue::Document(document) => documents.push(document),
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
    pub session_document: Option<RawDocument<'a>>,
    pub transaction_number: Option<i64>,
    pub autocommit: Option<bool>,
    pub start_transaction: bool,
    pub time_limit: Option<Duration>,
    pub read_concern: ReadConcern,
    pub write_concern: Option<WriteConcern>,
    pub comment: Option<RawValue<'a>>,
}

/// Names that belong to every command; a command's own parser skips them.
pub const GENERIC_FIELDS: &[&str] = &[
    "lsid",
    "$db",
    "$clusterTime",
    "$readPreference",
    "readConcern",
    "writeConcern",
    "maxTimeMS",
    "maxTimeMSOpOnly",
    "comment",
    "txnNumber",
    "autocommit",
    "startTransaction",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "stmtId",
    "stmtIds",
    "$audit",
    "$client",
    "$configTime",
    "$topologyTime",
    "$queryOptions",
    "clientOperationKey",
    "mayBypassWriteBlocking",
];

impl<'a> Generic<'a> {
    pub fn parse(command: &'static str, request: &Request<'a>) -> Result<Generic<'a>> {
        let mut generic = Generic {
            database: "",
            session: None,
            session_document: None,
            transaction_number: None,
            autocommit: None,
            start_transaction: false,
            time_limit: None,
            read_concern: ReadConcern::default(),
            write_concern: None,
            comment: None,
        };
        let mut database = None;
        for (name, value) in request.body.iter().skip(1) {
            let argument = Argument { command, name, value };
            match name {
                "$db" => database = Some(argument.string()?),
                "lsid" => {
                    let document = argument.document()?;
                    generic.session = Some(parse_lsid(document)?);
                    generic.session_document = Some(document);
                }
                "txnNumber" => generic.transaction_number = Some(argument.integer()?),
                "autocommit" => generic.autocommit = Some(argument.boolean()?),
                "startTransaction" => generic.start_transaction = argument.boolean()?,
                "maxTimeMS" => generic.time_limit = parse_time_limit(&argument)?,
                "readConcern" => generic.read_concern = ReadConcern::parse(argument.document()?)?,
                "writeConcern" => generic.write_concern = Some(WriteConcern::parse(argument.document()?)?),
                "comment" => generic.comment = Some(value),
                "apiVersion" => check_api_version(&argument)?,
                _ => {}
            }
        }
        generic.database = match database {
            Some(database) => database,
            None if request.legacy_hello => "admin",
            None => return Err(Error::location(40571, "OP_MSG requests require a $db argument")),
        };
        Ok(generic)
    }

    /// Which transaction the command belongs to, if any.
    pub fn transaction(&self) -> Result<Option<TransactionNumber>> {
        match (self.autocommit, self.transaction_number) {
            (Some(false), Some(number)) => {
                Ok(Some(TransactionNumber { number, start: self.start_transaction }))
            }
            (Some(false), None) => Err(Error::user(
                ErrorCode::InvalidOptions,
                "'autocommit' field requires a transaction number to also be specified",
            )),
            (Some(true), _) => Err(Error::user(
                ErrorCode::InvalidOptions,
                "Specifying autocommit=true is not allowed.",
            )),
            (None, _) if self.start_transaction => Err(Error::user(
                ErrorCode::InvalidOptions,
                "'startTransaction' field requires 'autocommit' field to also be specified",
            )),
            (None, _) => Ok(None),
        }
    }
}

pub fn parse_lsid(document: RawDocument<'_>) -> Result<SessionId> {
    match document.get("id") {
        Some(RawValue::Binary { subtype: 4, bytes }) => {
            let id = bytes.try_into().map_err(|_| {
                Error::user(ErrorCode::InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype")
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

fn parse_time_limit(argument: &Argument<'_>) -> Result<Option<Duration>> {
    let millis = argument.integer()?;
    if millis < 0 || millis > i64::from(i32::MAX) {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!("{millis} value for maxTimeMS is out of range [0, {}]", i32::MAX),
        ));
    }
    Ok((millis > 0).then(|| Duration::from_millis(millis as u64)))
}

fn check_api_version(argument: &Argument<'_>) -> Result<()> {
    match argument.string()? {
        "1" => Ok(()),
        _ => Err(Error::user(ErrorCode::APIVersionError, "API version must be \"1\"")),
    }
}
