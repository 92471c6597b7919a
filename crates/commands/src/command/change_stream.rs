//! `aggregate` with `$changeStream`: opens a stream of changes.
//!
//! The stages behind it look at one event at a time, so they are not run as a pipeline but by the stream itself.

use kilim_bson::{Array, Document, RawArray, RawDocument, RawValue, Value};
use kilim_engine::Namespace;
use kilim_engine::change_log::{Named, Token, parse_token};
use kilim_engine::cursor::{Batch, Cursor, CursorSource};
use kilim_engine::listen::{self, Start};
use kilim_engine::stream::{Image, Scope, Stream, StreamOptions};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::Scope as Variables;
use kilim_query::stage::{Context, Owner, Pipeline, Stage, no_change_stream};

use super::aggregate::{Aggregate, DATABASE_CURSOR, executing, target};
use super::explain;
use crate::about::About;
use crate::concern::ReadConcern;
use crate::cursor_reply;
use crate::dispatch::Call;
use crate::variables::variables;

const NAME: &str = "$changeStream";

/// Has large events split. It comes last.
const SPLIT: &str = "$changeStreamSplitLargeEvent";

/// What may follow it.
const FOLLOWERS: [&str; 8] =
    ["$addFields", "$match", "$project", "$redact", "$replaceRoot", "$replaceWith", "$set", "$unset"];

/// Whether a pipeline begins with `$changeStream`.
pub fn is_asked_for(pipeline: RawArray<'_>) -> bool {
    pipeline.iter().next().and_then(first_name) == Some(NAME)
}

/// Whether a command is an `aggregate` that opens a stream.
pub fn is_opened_by(command: RawDocument<'_>) -> bool {
    let is_aggregate = command.iter().next().is_some_and(|(name, _)| name == "aggregate");
    is_aggregate && command.get("pipeline").and_then(RawValue::as_array).is_some_and(is_asked_for)
}

fn first_name(stage: RawValue<'_>) -> Option<&str> {
    Some(stage.as_document()?.iter().next()?.0)
}

pub fn run(call: &mut Call<'_, '_>, aggregate: Aggregate<'_>) -> Result<Document> {
    let batch = Batch::first(aggregate.batch_size);
    let explains = aggregate.explain;
    let (namespace, mut stream) = open(call, call.body, aggregate)?;
    if explains {
        let mut reply = explained(&stream);
        explain::finish(call, call.body, &mut reply);
        return Ok(reply);
    }
    if batch.documents_max > 0 {
        listen::go_on(call.engine, &call.operation, &mut stream, batch.documents_max, false)
            .map_err(executing)?;
    }
    let mut cursor = Cursor::new(namespace, CursorSource::Stream(Box::new(stream)));
    cursor.awaits = true;
    cursor_reply::first_batch(call, cursor, batch, false).map_err(executing)
}

/// `explain` of an `aggregate` that opens a stream: what it would read, and its stages. It reads the change log, and no
/// collection that there could be plans for.
pub fn explain(call: &mut Call<'_, '_>, command: RawDocument<'_>) -> Result<Document> {
    let aggregate = super::aggregate::parse(command)?;
    let (_, stream) = open(call, command, aggregate)?;
    Ok(explained(&stream))
}

fn explained(stream: &Stream) -> Document {
    let stages: Array = stream.explain().into_iter().map(Value::Document).collect();
    let mut reply = Document::new();
    reply.push("explainVersion", "1");
    reply.push("stages", stages);
    reply
}

fn open(
    call: &mut Call<'_, '_>,
    command: RawDocument<'_>,
    aggregate: Aggregate<'_>,
) -> Result<(Namespace, Stream)> {
    let (namespace, owner) = target(command, call.generic.database)?;
    let mut stages = aggregate.pipeline.iter();
    let first = stages.next().and_then(RawValue::as_document);
    if first.is_some_and(|stage| stage.iter().count() > 1) {
        let message = "A pipeline stage specification object must contain exactly one field.";
        return Err(Error::location(40323, message));
    }
    let spec = first.and_then(|stage| stage.get(NAME));
    let mut asked = parse(spec.unwrap_or(RawValue::Null))?;
    let scope = scope(call, &namespace, owner, asked.all_changes)?;
    check_circumstances(call)?;
    let (stages, splits) = without_split(stages)?;
    asked.options.splits = splits;
    let stages = parse_stages(call, &namespace, stages.as_raw())?;
    call.describe("command");
    let stream = listen::open(call.engine, scope, asked.start, asked.options, stages).map_err(executing)?;
    Ok((namespace, stream))
}

struct Asked {
    options: StreamOptions,
    start: Start,
    all_changes: bool,
}

fn parse(spec: RawValue<'_>) -> Result<Asked> {
    let RawValue::Document(spec) = spec else { return Err(no_change_stream(spec)) };
    let mut options = StreamOptions::default();
    let (mut resume, mut start_after, mut at, mut all_changes) = (None, None, None, false);
    for (name, value) in spec.iter() {
        match name {
            "fullDocument"
            | "fullDocumentBeforeChange"
            | "resumeAfter"
            | "startAfter"
            | "startAtOperationTime"
                if matches!(value, RawValue::Null) => {}
            "fullDocument" => options.full_document = image(name, value, true)?,
            "fullDocumentBeforeChange" => options.before_change = image(name, value, false)?,
            "resumeAfter" => resume = Some(parse_token(document(name, value)?)?),
            "startAfter" => start_after = Some(parse_token(document(name, value)?)?),
            "startAtOperationTime" => match value {
                RawValue::Timestamp(time) => at = Some(time.to_bits()),
                _ => return Err(wrong_type(name, value, "timestamp")),
            },
            "allChangesForCluster" => all_changes = boolean(name, value)?,
            "showExpandedEvents" => options.show_expanded_events = boolean(name, value)?,
            "showSystemEvents"
            | "showMigrationEvents"
            | "showRawUpdateDescription"
            | "matchCollectionUUIDForUpdateLookup"
            | "allowToRunOnConfigDB"
            | "allowToRunOnSystemNS"
                if !boolean(name, value)? => {}
            "showSystemEvents"
            | "showMigrationEvents"
            | "showRawUpdateDescription"
            | "matchCollectionUUIDForUpdateLookup"
            | "allowToRunOnConfigDB"
            | "allowToRunOnSystemNS" => {
                return Err(Error::user(
                    ErrorCode::NotImplemented,
                    format!("the option '{NAME}.{name}' is not supported by Kilim"),
                ));
            }
            _ => {
                let message = format!("BSON field '{NAME}.{name}' is an unknown field.");
                return Err(Error::location(40415, message));
            }
        }
    }
    if resume.is_some() && start_after.is_some() {
        return Err(Error::location(
            50865,
            "Do not specify both 'resumeAfter' and 'startAfter' in a $changeStream stage",
        ));
    }
    if at.is_some() && (resume.is_some() || start_after.is_some()) {
        return Err(Error::location(
            40674,
            "Only one type of resume option is allowed, but multiple were found",
        ));
    }
    if resume.as_ref().is_some_and(|token: &Token| token.named == Named::Invalidation) {
        return Err(Error::user(
            ErrorCode::InvalidResumeToken,
            "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification",
        ));
    }
    let start = match (resume.or(start_after), at) {
        (Some(token), _) => Start::After(token),
        (None, Some(time)) => Start::At(time),
        (None, None) => Start::Now,
    };
    Ok(Asked { options, start, all_changes })
}

fn wrong_type(name: &str, value: RawValue<'_>, expected: &str) -> Error {
    let found = value.element_type().name();
    let message =
        format!("BSON field '{NAME}.{name}' is the wrong type '{found}', expected type '{expected}'");
    Error::user(ErrorCode::TypeMismatch, message)
}

fn document<'v>(name: &str, value: RawValue<'v>) -> Result<RawDocument<'v>> {
    value.as_document().ok_or_else(|| wrong_type(name, value, "object"))
}

fn boolean(name: &str, value: RawValue<'_>) -> Result<bool> {
    value.as_bool().ok_or_else(|| wrong_type(name, value, "bool"))
}

fn image(name: &str, value: RawValue<'_>, after: bool) -> Result<Image> {
    let RawValue::String(wanted) = value else { return Err(wrong_type(name, value, "string")) };
    match wanted {
        "default" if after => Ok(Image::Off),
        "updateLookup" if after => Ok(Image::Lookup),
        "off" if !after => Ok(Image::Off),
        "whenAvailable" => Ok(Image::WhenAvailable),
        "required" => Ok(Image::Required),
        _ => Err(Error::user(
            ErrorCode::BadValue,
            format!("Enumeration value '{wanted}' for field '{NAME}.{name}' is not a valid value."),
        )),
    }
}

/// Whose changes are asked for, where that is allowed.
fn scope(call: &Call<'_, '_>, namespace: &Namespace, owner: Owner, all_changes: bool) -> Result<Scope> {
    let invalid = |message: String| Err(Error::user(ErrorCode::InvalidNamespace, message));
    let of_database = owner == Owner::Database;
    if all_changes {
        return match of_database && namespace.database == "admin" {
            true => Ok(Scope::Deployment),
            false => Err(Error::user(
                ErrorCode::InvalidOptions,
                format!(
                    "A $changeStream with 'allChangesForCluster:true' may only be opened on the 'admin' database, and \
                     with no collection name; found {namespace}"
                ),
            )),
        };
    }
    if matches!(&*namespace.database, "admin" | "local" | "config") {
        return invalid(format!(
            "$changeStream may not be opened on the internal {} database",
            namespace.database
        ));
    }
    if of_database {
        return Ok(Scope::Database(namespace.database.clone()));
    }
    if namespace.collection == DATABASE_CURSOR {
        return invalid(format!("Invalid namespace specified '{namespace}'"));
    }
    if namespace.collection.starts_with("system.") {
        return invalid(format!("$changeStream may not be opened on the internal {namespace} collection"));
    }
    call.engine.catalog().check_no_alias(namespace)?;
    call.engine.check_no_view(namespace)?;
    Ok(Scope::Collection(namespace.clone()))
}

fn check_circumstances(call: &Call<'_, '_>) -> Result<()> {
    if call.unit.is_transaction() {
        return Err(Error::user(
            ErrorCode::OperationNotSupportedInTransaction,
            "Operation not permitted in transaction :: caused by :: Aggregation stage $changeStream cannot run within \
             a multi-document transaction.",
        ));
    }
    match &call.generic.read_concern {
        None | Some(ReadConcern::Majority) => {}
        Some(level) => {
            let level = level.name();
            return Err(Error::user(
                ErrorCode::InvalidOptions,
                format!(
                    "Command aggregate does not support {{ readConcern: {{ level: \"{level}\", provenance: \
                     \"clientSupplied\" }} }} :: caused by :: Aggregation stage $changeStream cannot run with a \
                     readConcern other than 'majority'. Current readConcern: {level}"
                ),
            ));
        }
    }
    Ok(())
}

/// The stages without the one that splits events, and whether it was there. That one must be the last.
fn without_split<'s>(stages: impl Iterator<Item = RawValue<'s>>) -> Result<(Array, bool)> {
    let mut stages: Vec<RawValue<'_>> = stages.collect();
    let Some(at) = stages.iter().position(|stage| first_name(*stage) == Some(SPLIT)) else {
        return Ok((stages.into_iter().map(RawValue::to_value).collect(), false));
    };
    let spec = stages[at].as_document().and_then(|stage| stage.get(SPLIT));
    if spec.and_then(RawValue::as_document).is_none_or(|spec| !spec.is_empty()) {
        return Err(Error::location(7182800, format!("{SPLIT} spec should be an empty object")));
    }
    if at + 1 < stages.len() {
        return Err(Error::location(7182802, format!("{SPLIT} must be the last stage in the pipeline")));
    }
    stages.pop();
    Ok((stages.into_iter().map(RawValue::to_value).collect(), true))
}

/// Parses the stages behind `$changeStream`.
fn parse_stages(call: &mut Call<'_, '_>, namespace: &Namespace, stages: RawArray<'_>) -> Result<Vec<Stage>> {
    // Events are not documents of the collection: they compare by what the command says, not by the collection's collation.
    let variables = variables(call, "aggregate", &About::Nothing)?;
    let scope = Variables::new(&variables);
    // Also for a stream of a database: stages are given events, not the database.
    let context = Context::new(&scope, &namespace.database, Owner::Collection);
    let mut pipeline = Pipeline::parse(stages, &context)?;
    let searches = |stage: &Stage| matches!(stage, Stage::Match(stage) if stage.filter.text().is_some());
    if pipeline.stages.iter().any(searches) {
        let message = "$match with $text is only allowed as the first pipeline stage";
        return Err(Error::location(17313, message));
    }
    for stage in stages.iter() {
        let name = first_name(stage).unwrap_or_default();
        if !FOLLOWERS.contains(&name) {
            // Shorthands are refused by what they stand for.
            let name = match name {
                "$bucket" | "$count" | "$sortByCount" => "$group",
                other => other,
            };
            return Err(Error::user(
                ErrorCode::IllegalOperation,
                format!("{name} is not permitted in a $changeStream pipeline"),
            ));
        }
    }
    pipeline.optimise();
    Ok(pipeline.stages)
}
