//! `applyOps`: entries of a log are applied again. Entries about documents; those about collections are refused by name,
//! because Kilim has commands for them and no log that would hold them.
//!
//! An insert of what is there replaces it, an update of what is not there inserts it, and a removal of what is not there does
//! nothing: entries can be applied twice. All of them are one commit, or none is.

use std::sync::Arc;
use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::ReadRequest;
use kilim_engine::session::{ActiveTransaction, SessionId};
use kilim_engine::unit::Unit;
use kilim_engine::write::{self, DeleteRequest, UpdateRequest};
use kilim_engine::{Namespace, new_uuid, read};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;
use kilim_query::update::Update;

use super::update::now_ms;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "applyOps";

/// Another writer has what is to be changed: it is tried again after this.
const PAUSE: Duration = Duration::from_millis(2);

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    let entries = match call.body.get(NAME) {
        Some(RawValue::Array(entries)) => entries,
        other => return Err(wrong_type(NAME, "array", other)),
    };
    let (mut upsert, mut conditions) = (true, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "alwaysUpsert" => upsert = argument.strict_boolean()?,
            "allowAtomic" if argument.strict_boolean()? => {}
            "allowAtomic" => return Err(argument.unsupported()),
            "preCondition" => conditions = Some(argument.array()?),
            // As on MongoDB, what it does not know it does not look at.
            _ => {}
        }
    }
    let mut parsed = Vec::new();
    for (position, entry) in entries.iter().enumerate() {
        let Some(document) = entry.as_document() else {
            return Err(wrong_type(&position.to_string(), "object", Some(entry)));
        };
        parsed.extend(Entry::parse(document)?);
    }
    for condition in conditions.iter().flat_map(|conditions| conditions.iter()) {
        check_condition(call, condition)?;
    }
    loop {
        match apply(call, &parsed, upsert) {
            Err(Error::Conflict(_)) => {
                call.operation.check()?;
                call.engine.environment().sleep(PAUSE);
            }
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    let results = vec![Value::Bool(true); parsed.len()];
    Ok(doc! {"applied": parsed.len() as i32, "results": results})
}

/// Applies all entries in one transaction of nobody's session.
fn apply(call: &Call<'_, '_>, entries: &[Entry<'_>], upsert: bool) -> Result<()> {
    let engine = call.engine;
    let of = (SessionId(new_uuid(engine.environment())), 0);
    let transaction = ActiveTransaction::new(of, engine.store.begin(), engine.environment());
    let mut unit = Unit::in_transaction(engine, call.operation.clone(), Box::new(transaction));
    unit.cause = call.client.cause();
    for entry in entries {
        entry.apply(&mut unit, upsert)?;
    }
    let transaction = unit.into_transaction().ok_or_else(|| Error::bug("a transaction's unit lost it"))?;
    write::commit(transaction, engine, call.operation.clone(), None, call.durability()).map(drop)
}

/// One entry about a document.
struct Entry<'a> {
    namespace: Namespace,
    /// The `_id` of its document.
    id: RawValue<'a>,
    kind: Kind,
}

enum Kind {
    /// By operators or a difference, or the whole document.
    Update(Update),
    Delete,
}

impl<'a> Entry<'a> {
    /// `None` for an entry that does nothing.
    fn parse(entry: RawDocument<'a>) -> Result<Option<Entry<'a>>> {
        let op = match entry.get("op") {
            Some(RawValue::String(op)) => op,
            None => return Err(Error::user(ErrorCode::NoSuchKey, "an entry needs an 'op'")),
            other => return Err(wrong_type("op", "string", other)),
        };
        let illegal = |message: &str| Err(Error::user(ErrorCode::IllegalOperation, message));
        let namespace = match entry.get("ns") {
            None => return illegal("op does not contain required \"ns\" field"),
            Some(RawValue::String("")) if op != "n" => {
                return illegal("\"ns\" field value cannot be empty when op type is not 'n'");
            }
            Some(RawValue::String(namespace)) => namespace,
            Some(_) => return illegal("\"ns\" field is not a string"),
        };
        match op {
            "n" => return Ok(None),
            "i" | "u" | "d" => {}
            "c" => {
                let message = "applyOps: entries about collections (op 'c') are not supported by Kilim";
                return Err(Error::user(ErrorCode::NotImplemented, message));
            }
            other => {
                let message = format!(
                    "Enumeration value '{other}' for field 'OplogEntryBase.op' is not a valid value."
                );
                return Err(Error::user(ErrorCode::BadValue, message));
            }
        }
        let invalid = || Error::user(ErrorCode::InvalidNamespace, format!("invalid ns: {namespace}"));
        let (database, collection) = namespace.split_once('.').ok_or_else(invalid)?;
        let parsed = Namespace::parse(database, collection).map_err(|_| invalid())?;
        let (object, which) = (Entry::object(entry, "o")?, Entry::optional_object(entry, "o2")?);
        check_fields(entry)?;
        let id = match op {
            "u" => which.and_then(|which| which.get("_id")),
            _ => object.get("_id"),
        };
        let what = match op {
            "i" => "insert",
            "u" => "update",
            _ => "delete",
        };
        let id = id.ok_or_else(|| {
            Error::user(ErrorCode::NoSuchKey, format!("Failed to apply {what} due to missing _id"))
        })?;
        let kind = match op {
            "i" => Kind::Update(Update::parse(RawValue::Document(object), None, false)?),
            "u" => Kind::Update(Entry::update(object)?),
            _ => Kind::Delete,
        };
        Ok(Some(Entry { namespace: parsed, id, kind }))
    }

    /// An update replaces with a document that begins with its `_id`.
    fn update(object: RawDocument<'_>) -> Result<Update> {
        match object.iter().next() {
            Some((name, _)) if name != "_id" && !name.starts_with('$') => Err(Error::user(
                ErrorCode::FailedToParse,
                format!(
                    "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as \
                     an array"
                ),
            )),
            _ => Update::parse_logged(object),
        }
    }

    fn object(entry: RawDocument<'a>, name: &str) -> Result<RawDocument<'a>> {
        Entry::optional_object(entry, name)?.ok_or_else(|| {
            Error::location(
                40414,
                format!("BSON field 'OplogEntryBase.{name}' is missing but a required field"),
            )
        })
    }

    fn optional_object(entry: RawDocument<'a>, name: &str) -> Result<Option<RawDocument<'a>>> {
        match entry.get(name) {
            None => Ok(None),
            Some(RawValue::Document(object)) => Ok(Some(object)),
            other => Err(wrong_type(name, "object", other)),
        }
    }

    fn apply(&self, unit: &mut Unit<'_>, always_upsert: bool) -> Result<()> {
        unit.engine.check_no_view(&self.namespace)?;
        let mut filter = Document::new();
        filter.push("_id", doc! {"$eq": self.id.to_value()});
        let filter = Arc::new(Filter::parse(filter.as_raw())?);
        let exists = unit.collection(&self.namespace)?.is_some();
        match &self.kind {
            Kind::Delete if !exists => Ok(()),
            Kind::Delete => {
                let request = DeleteRequest { filter, one: true, hint: None, collation: None, statement: 0 };
                write::delete(unit, &self.namespace, &request).map(drop)
            }
            Kind::Update(_) if !exists => Err(Error::user(
                ErrorCode::NamespaceNotFound,
                format!(
                    "cannot apply insert or update operation on a non-existent namespace {}",
                    self.namespace
                ),
            )),
            Kind::Update(update) => {
                let request = UpdateRequest {
                    filter,
                    update,
                    multi: false,
                    upsert: always_upsert,
                    hint: None,
                    collation: None,
                    now_ms: now_ms(),
                    statement: 0,
                    projection: None,
                };
                let outcome = write::update(unit, &self.namespace, &request)?;
                match outcome.matched == 0 && outcome.upserted.is_none() {
                    true => Err(Error::user(ErrorCode::UpdateOperationFailed, "Failed to apply update")),
                    false => Ok(()),
                }
            }
        }
    }
}

/// Refuses a field that no entry of a log has. Those that say when and how it was logged mean nothing here.
fn check_fields(entry: RawDocument<'_>) -> Result<()> {
    const KNOWN: [&str; 18] = [
        "op",
        "ns",
        "o",
        "o2",
        "ui",
        "b",
        "ts",
        "t",
        "h",
        "v",
        "wall",
        "lsid",
        "txnNumber",
        "stmtId",
        "prevOpTime",
        "preImageOpTime",
        "postImageOpTime",
        "fromMigrate",
    ];
    match entry.iter().find(|(name, _)| !KNOWN.contains(name)) {
        Some((name, _)) => {
            Err(Error::location(40415, format!("BSON field 'OplogEntryBase.{name}' is an unknown field.")))
        }
        None if entry.get("ui").is_some() => {
            let message = "applyOps: 'ui' is not supported by Kilim: an entry names its collection by 'ns'";
            Err(Error::user(ErrorCode::NotImplemented, message))
        }
        None => Ok(()),
    }
}

/// Whether the document that a condition names looks as it must.
fn check_condition(call: &mut Call<'_, '_>, condition: RawValue<'_>) -> Result<()> {
    let Some(condition) = condition.as_document() else {
        return Err(wrong_type("preCondition", "object", Some(condition)));
    };
    let failed = || Error::user(ErrorCode::BadValue, "preCondition failed");
    let invalid = |message: &str| Error::user(ErrorCode::InvalidNamespace, message);
    let Some(RawValue::String(namespace)) = condition.get("ns") else {
        return Err(invalid("ns in preCondition must be a string"));
    };
    let (database, collection) = namespace.split_once('.').ok_or_else(|| invalid("ns in preCondition"))?;
    let namespace = Namespace::parse(database, collection)?;
    let part =
        |name: &str| condition.get(name).and_then(RawValue::as_document).unwrap_or(RawDocument::empty());
    let request = ReadRequest::new(Arc::new(Filter::parse(part("q"))?));
    let expected = Filter::parse(part("res"))?;
    let mut executor = read::plan(&mut call.unit, &namespace, request)?.execute();
    let interrupt = || call.operation.check();
    let mut context = ExecContext::new(&interrupt);
    let found = executor.next_document(&mut context)?;
    let found = found.as_ref().map_or(RawDocument::empty(), |row| row.document());
    match expected.matches(found)? {
        true => Ok(()),
        false => Err(failed()),
    }
}

fn wrong_type(name: &str, expected: &str, value: Option<RawValue<'_>>) -> Error {
    let found = value.map_or("missing", |value| value.element_type().name());
    Error::user(
        ErrorCode::TypeMismatch,
        format!("Wrong type for '{name}'. Expected a {expected}, got a {found}."),
    )
}
