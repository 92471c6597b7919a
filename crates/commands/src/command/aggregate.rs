//! `aggregate`: run a pipeline.
//!
//! Until the aggregation language is there, a pipeline is what drivers send to count documents: any
//! `$match`, `$skip` and `$limit`, then at most one `$group` over everything with constant sums. All of
//! it becomes one read. Other stages are refused by name.

use std::sync::Arc;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value, doc};
use kilim_engine::cursor::{Batch, Cursor, Source};
use kilim_engine::operator::ExecContext;
use kilim_engine::planner::{Hint, Purpose, ReadRequest};
use kilim_engine::write::shell_text;
use kilim_engine::{Namespace, read};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;

use super::build_info::host_name;
use super::coll_stats;
use super::find::{check_hint_not_null, parse_hint};
use super::update::now_ms;
use super::write_reply::{check_collation, required};
use crate::argument::{Argument, arguments, nested};
use crate::cursor_reply;
use crate::dispatch::Call;

const NAME: &str = "aggregate";

/// MongoDB's other stages: refused as not yet there, not as unknown.
const STAGES_TO_COME: [&str; 38] = [
    "$addFields",
    "$bucket",
    "$bucketAuto",
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$count",
    "$currentOp",
    "$densify",
    "$documents",
    "$facet",
    "$fill",
    "$geoNear",
    "$graphLookup",
    "$indexStats",
    "$listLocalSessions",
    "$listSampledQueries",
    "$listSessions",
    "$lookup",
    "$merge",
    "$out",
    "$planCacheStats",
    "$project",
    "$redact",
    "$replaceRoot",
    "$replaceWith",
    "$sample",
    "$search",
    "$searchMeta",
    "$set",
    "$setWindowFields",
    "$shardedDataDistribution",
    "$sort",
    "$sortByCount",
    "$unionWith",
    "$unset",
    "$unwind",
    "$vectorSearch",
];

/// A pipeline as one read, and what is made of its count.
pub struct Aggregate {
    pub request: ReadRequest,
    group: Option<Group>,
    batch_size: Option<usize>,
}

/// `{$group: {_id: <constant>, n: {$sum: <number>}, …}}`.
struct Group {
    id: Value,
    /// Field and what each document adds to it.
    sums: Vec<(String, i64)>,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    check_target(call.body)?;
    let namespace = call.namespace()?;
    call.describe("command");
    if let Some(options) = only_coll_stats(call.body) {
        let document = coll_stats(call, &namespace, options)?;
        let cursor = Cursor::new(namespace, Source::List(vec![document].into_iter()));
        return cursor_reply::first_batch(call, cursor, Batch::first(None), false);
    }
    let aggregate = parse(call.body)?;
    let reading = read::plan(&mut call.unit, &namespace, aggregate.request)?;
    let collection = reading.collection.as_ref().map(|collection| collection.id);
    let mut executor = reading.execute();
    let source = match aggregate.group {
        None => Source::Executor(Box::new(executor)),
        Some(group) => {
            let operation = call.operation.clone();
            let count = executor.count(&mut ExecContext::new(&|| operation.check()))?;
            Source::List(group.result(count).into_iter().collect::<Vec<_>>().into_iter())
        }
    };
    let mut cursor = Cursor::new(namespace, source);
    cursor.collection = collection;
    cursor_reply::first_batch(call, cursor, Batch::first(aggregate.batch_size), false)
}

/// A pipeline runs over a collection; over a database it cannot yet.
fn check_target(body: RawDocument<'_>) -> Result<()> {
    let (_, value) = body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    match value {
        RawValue::String(_) => Ok(()),
        value if (Argument { command: NAME, name: NAME, value }).integer()? == 1 => {
            Err(not_yet("aggregate over a database ({aggregate: 1})"))
        }
        _ => Err(Error::user(
            ErrorCode::FailedToParse,
            "Invalid command format: the 'aggregate' field must specify a collection name or 1",
        )),
    }
}

/// The options of `$collStats` where it is the whole pipeline, as shells send it.
fn only_coll_stats(body: RawDocument<'_>) -> Option<RawDocument<'_>> {
    let mut stages = body.get("pipeline")?.as_array()?.iter();
    match (stages.next()?.as_document()?.get("$collStats")?, stages.next()) {
        (RawValue::Document(options), None) => Some(options),
        _ => None,
    }
}

fn coll_stats(call: &Call<'_, '_>, namespace: &Namespace, options: RawDocument<'_>) -> Result<Document> {
    let mut document = doc! {
        "ns": namespace.to_string(),
        "host": host_name(),
        "localTime": Value::DateTime(now_ms()),
    };
    for option in nested("$collStats", options) {
        match option.name {
            "storageStats" => {
                let mut scale = 1;
                for argument in nested("$collStats.storageStats", option.document()?) {
                    match argument.name {
                        "scale" => scale = argument.integer()?.max(1),
                        _ => return Err(argument.unknown()),
                    }
                }
                document.push("storageStats", coll_stats::stats(call.engine, namespace, scale)?);
            }
            "count" => {
                let stats = coll_stats::stats(call.engine, namespace, 1)?;
                document.push("count", stats.get("count").map(RawValue::to_value));
            }
            "latencyStats" | "queryExecStats" => return Err(option.unsupported()),
            _ => return Err(option.unknown()),
        }
    }
    Ok(document)
}

pub fn parse(body: RawDocument<'_>) -> Result<Aggregate> {
    let (mut pipeline, mut hint, mut cursor) = (None, None, None);
    check_hint_not_null(body)?;
    for argument in arguments(NAME, body) {
        match argument.name {
            "pipeline" => {
                let stages = argument.value.as_array().ok_or_else(|| {
                    Error::user(ErrorCode::TypeMismatch, "'pipeline' option must be specified as an array")
                })?;
                pipeline = Some(stages);
            }
            "cursor" => cursor = Some(argument.document()?),
            "hint" => hint = parse_hint(&argument)?,
            "collation" => check_collation(&argument)?,
            // Nothing here spills or writes, and variables are read by expressions alone.
            "allowDiskUse" => drop(argument.strict_boolean()?),
            "bypassDocumentValidation" => drop(argument.boolean()?),
            "let" => argument.variables()?,
            "explain" if !argument.strict_boolean()? => {}
            "explain" => return Err(argument.unsupported()),
            _ => return Err(argument.unknown()),
        }
    }
    let pipeline = required(pipeline, NAME, "pipeline")?;
    let Some(cursor) = cursor else {
        return Err(Error::user(
            ErrorCode::FailedToParse,
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    };
    let mut batch_size = None;
    for argument in nested("aggregate.cursor", cursor) {
        match argument.name {
            "batchSize" => batch_size = Some(argument.not_negative()? as usize),
            _ => return Err(argument.unknown()),
        }
    }
    let (request, group) = parse_pipeline(pipeline, hint)?;
    Ok(Aggregate { request, group, batch_size })
}

fn parse_pipeline(pipeline: RawArray<'_>, hint: Option<Hint>) -> Result<(ReadRequest, Option<Group>)> {
    let mut filters = Vec::new();
    let (mut skip, mut limit, mut group) = (0u64, None::<u64>, None);
    for stage in pipeline.iter() {
        let Some(stage) = stage.as_document() else {
            return Err(Error::user(
                ErrorCode::TypeMismatch,
                "Each element of the 'pipeline' array must be an object",
            ));
        };
        let mut fields = stage.iter();
        let (Some((name, value)), None) = (fields.next(), fields.next()) else {
            return Err(Error::location(
                40323,
                "A pipeline stage specification object must contain exactly one field.",
            ));
        };
        let argument = Argument { command: NAME, name, value };
        match name {
            "$match" if group.is_none() && skip == 0 && limit.is_none() => {
                let RawValue::Document(filter) = value else {
                    return Err(Error::location(
                        15959,
                        "the match filter must be an expression in an object",
                    ));
                };
                filters.push(Filter::parse(filter)?);
            }
            "$skip" if group.is_none() => {
                let more = stage_number(&argument, 5107200)?;
                skip = skip.saturating_add(more);
                limit = limit.map(|limit| limit.saturating_sub(more));
            }
            "$limit" if group.is_none() => {
                let most = stage_number(&argument, 5107201)?;
                if most == 0 {
                    return Err(Error::location(15958, "the limit must be positive"));
                }
                limit = Some(limit.map_or(most, |limit| limit.min(most)));
            }
            "$group" if group.is_none() => group = Some(Group::parse(value)?),
            "$match" | "$skip" | "$limit" | "$group" => {
                return Err(not_yet(&format!("{name} after other stages")));
            }
            name if STAGES_TO_COME.contains(&name) => return Err(not_yet(&format!("the stage {name}"))),
            name => {
                return Err(Error::location(40324, format!("Unrecognized pipeline stage name: '{name}'")));
            }
        }
    }
    let filter = match filters.len() {
        0 => Filter::True,
        1 => filters.remove(0),
        _ => Filter::And(filters),
    };
    let purpose = if group.is_some() { Purpose::Count } else { Purpose::Documents };
    // A limit of nothing left over is not the planner's "no limit".
    let filter = if limit == Some(0) { Filter::False } else { filter };
    let request = ReadRequest { skip, limit, hint, purpose, ..ReadRequest::new(Arc::new(filter)) };
    Ok((request, group))
}

fn stage_number(argument: &Argument<'_>, code: i32) -> Result<u64> {
    let whole = match argument.value.is_number() {
        true => argument.double().is_ok_and(|number| number.fract() == 0.0 && number.abs() < 2f64.powi(63)),
        false => false,
    };
    let number = if whole { argument.integer()? } else { -1 };
    u64::try_from(number).map_err(|_| {
        let what = match argument.value.is_number() {
            true if whole => "a non-negative number in",
            true => "an integer",
            false => "a number in",
        };
        let name = argument.name;
        let stage: Document = [(name, argument.value.to_value())].into_iter().collect();
        let shown = shell_text(stage.as_raw());
        let shown = shown.trim_matches(['{', ' ', '}']);
        Error::location(code, format!("invalid argument to {name} stage: Expected {what}: {shown}"))
    })
}

fn not_yet(what: &str) -> Error {
    Error::user(
        ErrorCode::NotImplemented,
        format!(
            "{what} is not supported by Kilim yet: pipelines are $match, $skip, $limit and one $group that counts"
        ),
    )
}

impl Group {
    fn parse(spec: RawValue<'_>) -> Result<Group> {
        let RawValue::Document(spec) = spec else {
            return Err(Error::location(15947, "a group's fields must be specified in an object"));
        };
        let mut id = None;
        let mut sums = Vec::new();
        for (name, value) in spec.iter() {
            if name == "_id" {
                let constant = match value {
                    RawValue::String(text) => !text.starts_with('$'),
                    RawValue::Document(document) => document.is_empty(),
                    RawValue::Array(_) => false,
                    _ => true,
                };
                if !constant {
                    return Err(not_yet("$group by an expression"));
                }
                id = Some(value.to_value());
                continue;
            }
            sums.push((name.to_owned(), constant_sum(value)?));
        }
        let id = id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
        Ok(Group { id, sums })
    }

    fn result(&self, count: u64) -> Option<Document> {
        // A group exists only if a document fell into it.
        if count == 0 {
            return None;
        }
        let mut document = Document::new();
        document.push("_id", self.id.clone());
        for (name, each) in &self.sums {
            let sum = each.saturating_mul(count as i64);
            match i32::try_from(sum) {
                Ok(sum) => document.push(name, sum),
                Err(_) => document.push(name, sum),
            }
        }
        Some(document)
    }
}

fn constant_sum(accumulator: RawValue<'_>) -> Result<i64> {
    let operator = accumulator.as_document().and_then(|document| document.iter().next());
    match operator {
        Some(("$sum", RawValue::Int32(each))) => Ok(i64::from(each)),
        Some(("$sum", RawValue::Int64(each))) => Ok(each),
        Some(("$sum", RawValue::Double(each))) if each.fract() == 0.0 && each.abs() < 1e9 => Ok(each as i64),
        Some(("$count", RawValue::Document(nothing))) if nothing.is_empty() => Ok(1),
        Some((name, _)) => Err(not_yet(&format!("the accumulator {name} over fields"))),
        None => Err(Error::location(40234, "The field must be an accumulator object")),
    }
}
