//! `aggregate`: run a pipeline.

use kilim_bson::{Array, Document, RawArray, RawDocument, RawValue, Value, doc};
use kilim_engine::Namespace;
use kilim_engine::cursor::{Batch, Cursor, CursorSource};
use kilim_engine::ddl;
use kilim_engine::operator::ExecContext;
use kilim_engine::pipeline::{Options, Prepared, Reader, Step};
use kilim_engine::plan::Hint;
use kilim_engine::planner::Verbosity;
use kilim_engine::write::{self, Circumstances};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Scope, Variables};
use kilim_query::stage::{self, Context, Owner, Pipeline, Stage};
use kilim_query::time_series::TimeSeries;

use super::change_stream;
use super::find::{check_hint_not_null, parse_hint};
use super::time_series;
use super::update::now_ms;
use super::write_reply::required;
use super::{current_op, explain};
use crate::about::About;
use crate::argument::{Argument, arguments, check_not_null, nested};
use crate::concern::ReadConcern;
use crate::cursor_reply;
use crate::dispatch::Call;
use crate::telling::tell;
use crate::variables::variables_within;

const NAME: &str = "aggregate";

/// What a pipeline over a database is called in its cursor.
pub const DATABASE_CURSOR: &str = "$cmd.aggregate";

/// A parsed `aggregate`, its pipeline still as it was written.
pub struct Aggregate<'a> {
    pub pipeline: RawArray<'a>,
    pub hint: Option<Hint>,
    pub options: Options,
    pub explain: bool,
    pub batch_size: Option<usize>,
    bypass_validation: bool,
}

/// A pipeline over something, as a command asks for it.
pub struct Asked<'a> {
    pub namespace: Namespace,
    pub owner: Owner,
    pub pipeline: RawArray<'a>,
    pub variables: Variables,
    pub hint: Option<Hint>,
    pub options: Options,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let own = own_only(call);
    let body = own.as_ref().map_or(call.body, Document::as_raw);
    let aggregate = parse(body)?;
    if change_stream::is_asked_for(aggregate.pipeline) {
        if body.get("collectionUUID").is_some() {
            let message = "collectionUUID is not supported for a change stream";
            return Err(Error::location(4_928_900, message));
        }
        return change_stream::run(call, aggregate);
    }
    if aggregate.explain {
        let prepared = asked(call, body, aggregate)?.prepare(call)?;
        let operation = call.operation.clone();
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        let mut reply = prepared.explain(Verbosity::QueryPlanner, &mut context)?;
        explain::finish(call, call.body, &mut reply);
        return Ok(reply);
    }
    call.describe("command");
    call.unit.bypass_validation = aggregate.bypass_validation;
    let batch = Batch::first(aggregate.batch_size);
    let asked = asked(call, body, aggregate)?;
    let cursor = asked.open(call)?;
    cursor_reply::first_batch(call, cursor, batch, false).map_err(executing)
}

/// `$currentOp` and the listings of sessions show a user what is his own, unless he asks for that of others: the command as it
/// asks for his own.
fn own_only(call: &Call<'_, '_>) -> Option<Document> {
    let identity = call.client.login.identity.as_ref().filter(|_| call.client.access.is_enforced())?;
    let stages = call.body.get("pipeline").and_then(RawValue::as_array)?;
    let first = stages.iter().next()?;
    let (name, options) = first.as_document()?.iter().next()?;
    let options = options.as_document()?;
    if matches!(options.get("allUsers"), Some(RawValue::Bool(true))) {
        return None;
    }
    let own = match name {
        "$currentOp" => {
            let own = doc! {"$match": {"effectiveUsers": current_op::users(&identity.user)}};
            vec![first.to_value(), Value::Document(own)]
        }
        "$listSessions" | "$listLocalSessions" => {
            let named = options.get("users").and_then(RawValue::as_array);
            if named.is_some_and(|named| !named.is_empty()) {
                return None;
            }
            let user = doc! {"user": &*identity.user.name, "db": &*identity.user.db};
            let mut stage = Document::new();
            stage.push(name, doc! {"users": [user]});
            vec![Value::Document(stage)]
        }
        _ => return None,
    };
    let rest = stages.iter().skip(1).map(RawValue::to_value);
    let stages: Vec<Value> = own.into_iter().chain(rest).collect();
    let mut body = Document::new();
    for (name, value) in call.body.iter() {
        match name {
            "pipeline" => body.push(name, stages.clone()),
            _ => body.push(name, value),
        }
    }
    Some(body)
}

fn asked<'a>(call: &mut Call<'_, '_>, body: RawDocument<'_>, aggregate: Aggregate<'a>) -> Result<Asked<'a>> {
    let (namespace, owner) = target(body, call.generic.database)?;
    // Before a look at `let`.
    Pipeline::glance(aggregate.pipeline, &namespace.database)?;
    if owner == Owner::Database && body.get("collectionUUID").is_some() {
        let message = "collectionUUID is not supported for a collectionless aggregation";
        return Err(Error::location(4_928_901, message));
    }
    call.expect(NAME, &namespace)?;
    let about = About::of(call, &namespace)?;
    Ok(Asked {
        namespace,
        owner,
        pipeline: aggregate.pipeline,
        variables: variables_within(call, NAME, body, &about)?,
        hint: aggregate.hint,
        options: aggregate.options,
    })
}

/// The pipeline of an `aggregate` that is to be explained.
pub fn explained(call: &mut Call<'_, '_>, command: RawDocument<'_>) -> Result<Prepared> {
    let aggregate = parse(command)?;
    asked(call, command, aggregate)?.prepare(call)
}

/// As mongod words an error of the data.
pub fn executing(error: Error) -> Error {
    match error.code() {
        // What cannot be done is said before anything is.
        ErrorCode::CommandNotSupportedOnView => error,
        _ => error.during("PlanExecutor error during aggregation"),
    }
}

impl<'a> Asked<'a> {
    /// The pipeline that a read of a view stands for.
    pub fn of_view(
        namespace: Namespace,
        stages: &'a Array,
        variables: Variables,
        hint: Option<Hint>,
        allow_disk_use: Option<bool>,
    ) -> Asked<'a> {
        let (owner, pipeline, options) = (Owner::Collection, stages.as_raw(), options(allow_disk_use));
        Asked { namespace, owner, pipeline, variables, hint, options }
    }

    /// Parses the pipeline and takes up all that it reads.
    pub fn prepare(self, call: &mut Call<'_, '_>) -> Result<Prepared> {
        let scope = Scope::new(&self.variables);
        check_read_concern(call, self.pipeline)?;
        let context = Context {
            in_transaction: call.unit.is_transaction(),
            ..Context::new(&scope, &self.namespace.database, self.owner)
        };
        let pipeline = Pipeline::parse(self.pipeline, &context)?;
        let mut namespaces = vec![self.namespace.clone()];
        pipeline.collections(&mut |database, collection| {
            namespaces.push(Namespace { database: database.to_owned(), collection: collection.to_owned() });
        });
        let reader = Reader::new(&mut call.unit, namespaces, &self.variables, self.options)?;
        let mut prepared = reader.prepare_outermost(&self.namespace, &pipeline)?;
        prepared.hint(self.hint);
        Ok(prepared)
    }

    /// Begins to run it, for a command that takes the rows itself.
    pub fn step(self, call: &mut Call<'_, '_>) -> Result<Box<dyn Step>> {
        let prepared = self.prepare(call)?;
        open(call, &prepared)
    }

    /// Begins to run it.
    pub fn open(self, call: &mut Call<'_, '_>) -> Result<Cursor> {
        let namespace = self.namespace.clone();
        let variables = self.variables.clone();
        let mut prepared = self.prepare(call)?;
        if let Some(writer) = prepared.take_writer() {
            write(call, &prepared, &writer, &variables)?;
            return Ok(Cursor::new(namespace, CursorSource::List(Vec::new().into_iter())));
        }
        let step = open(call, &prepared)?;
        let mut cursor = Cursor::new(namespace, CursorSource::Pipeline(step));
        cursor.collection = prepared.collection().map(|collection| collection.id);
        Ok(cursor)
    }
}

/// Runs a pipeline that ends in a stage that writes.
fn write(call: &mut Call<'_, '_>, prepared: &Prepared, writer: &Stage, variables: &Variables) -> Result<()> {
    let name = if matches!(writer, Stage::Out(_)) { "$out" } else { "$merge" };
    if call.unit.is_transaction() {
        let message = format!("{name} cannot be used in a transaction");
        return Err(Error::user(ErrorCode::OperationNotSupportedInTransaction, message));
    }
    if call.generic.read_concern == Some(ReadConcern::Linearizable) {
        let message = format!(
            "Command aggregate does not support {{ readConcern: {{ level: \"linearizable\", provenance: \
             \"clientSupplied\" }} }} :: caused by :: {name} cannot be used with a 'linearizable' read concern level"
        );
        return Err(Error::user(ErrorCode::InvalidOptions, message));
    }
    if let Stage::Merge(stage) = writer {
        write::check_merge(&mut call.unit, stage)?;
    }
    let mut step = open(call, prepared).map_err(executing)?;
    // The pipeline has its snapshot. What is written to is the present.
    call.unit.read_at = None;
    let written = match writer {
        Stage::Merge(stage) => {
            let collation = write::default_collation(&mut call.unit, stage)?;
            let circumstances = Circumstances { now_ms: now_ms(), variables, collation };
            write::merge(&mut call.unit, stage, &mut *step, &circumstances)
        }
        Stage::Out(stage) => match parse_time_series(stage)? {
            Some(series) => ddl::out_measurements(&mut call.unit, stage, series, &mut *step),
            None => ddl::out(&mut call.unit, stage, &mut *step),
        },
        _ => Err(Error::bug("a stage that does not write was taken for one that does")),
    };
    written.map_err(|error| match error.code() {
        // Elsewhere mongod has seen before that a name is a view's.
        ErrorCode::CommandNotSupportedOnView => error.during("PlanExecutor error during aggregation"),
        _ => executing(error),
    })
}

/// What `$out` says of a target that is a time-series collection.
fn parse_time_series(stage: &stage::Out) -> Result<Option<TimeSeries>> {
    const PATH: &str = "$out.timeseries";
    let Some(options) = &stage.time_series else { return Ok(None) };
    let namespace = Namespace::parse(&stage.database, &stage.collection)?;
    let value = RawValue::Document(options.as_raw());
    let argument = Argument { command: "$out", name: "timeseries", value };
    time_series::parse_at(PATH, &namespace, &argument).map(Some)
}

fn open(call: &mut Call<'_, '_>, prepared: &Prepared) -> Result<Box<dyn Step>> {
    let operation = call.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let step = prepared.open(Bindings::none(), &mut context)?;
    call.unit.figures.add(context.figures);
    Ok(step)
}

/// Some stages tell what this node knows now, and nothing else.
fn check_read_concern(call: &Call<'_, '_>, stages: RawArray<'_>) -> Result<()> {
    let level = match &call.generic.read_concern {
        None | Some(ReadConcern::Local) => return Ok(()),
        _ if call.unit.is_transaction() => return Ok(()),
        Some(level) => level.name(),
    };
    let names = stages.iter().filter_map(|stage| Some(stage.as_document()?.iter().next()?.0));
    match names.filter_map(stage::find).find(|definition| definition.local_only) {
        None => Ok(()),
        Some(definition) => Err(Error::user(
            ErrorCode::InvalidOptions,
            format!(
                "Command aggregate does not support {{ readConcern: {{ level: \"{level}\", provenance: \
                 \"clientSupplied\" }} }} :: caused by :: Aggregation stage {} cannot run with a readConcern other \
                 than 'local'. Current readConcern: {level}",
                definition.name
            ),
        )),
    }
}

/// What a pipeline runs over: a collection, or with `{aggregate: 1}` a database.
pub fn target(body: RawDocument<'_>, database: &str) -> Result<(Namespace, Owner)> {
    let (_, value) = body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    match value {
        RawValue::String(collection) => Ok((Namespace::parse(database, collection)?, Owner::Collection)),
        value if (Argument { command: NAME, name: NAME, value }).integer()? == 1 => {
            let collection = DATABASE_CURSOR.to_owned();
            Ok((Namespace { database: database.to_owned(), collection }, Owner::Database))
        }
        _ => Err(Error::user(
            ErrorCode::FailedToParse,
            "Invalid command format: the 'aggregate' field must specify a collection name or 1",
        )),
    }
}

/// As on MongoDB, a stage that needs more memory than it may have goes to disk unless told not to.
pub fn options(allow_disk_use: Option<bool>) -> Options {
    Options { allow_disk_use: allow_disk_use.unwrap_or(true), tell }
}

pub fn parse(body: RawDocument<'_>) -> Result<Aggregate<'_>> {
    let (mut pipeline, mut hint, mut cursor, mut explain) = (None, None, None, false);
    let (mut allow_disk_use, mut bypass_validation) = (None, false);
    check_hint_not_null(body)?;
    check_not_null(NAME, body, &["explain"], "type 'bool'")?;
    if let Some(RawValue::Null | RawValue::Undefined) = body.get("pipeline") {
        return Err(Error::user(ErrorCode::TypeMismatch, "'pipeline' option must be specified as an array"));
    }
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
            // Among the variables by now.
            "collation" => {}
            "allowDiskUse" => allow_disk_use = Some(argument.strict_boolean()?),
            "bypassDocumentValidation" => bypass_validation = argument.boolean()?,
            "collectionUUID" => drop(argument.uuid()?),
            // Read with the time, when the pipeline is parsed.
            "let" => drop(argument.document()?),
            "explain" => match argument.value {
                RawValue::Bool(wanted) => explain = wanted,
                _ => return Err(Error::user(ErrorCode::TypeMismatch, "explain must be a boolean")),
            },
            _ => return Err(argument.unknown()),
        }
    }
    let pipeline = required(pipeline, NAME, "pipeline")?;
    let mut batch_size = None;
    match cursor {
        Some(cursor) => {
            for argument in nested("aggregate.cursor", cursor) {
                match argument.name {
                    "batchSize" => batch_size = Some(argument.not_negative()? as usize),
                    _ => return Err(argument.unknown()),
                }
            }
        }
        None if explain => {}
        None => {
            return Err(Error::user(
                ErrorCode::FailedToParse,
                "The 'cursor' option is required, except for aggregate with the explain argument",
            ));
        }
    }
    Ok(Aggregate { pipeline, hint, options: options(allow_disk_use), explain, batch_size, bypass_validation })
}
