//! `aggregate`: run a pipeline.

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Timestamp};
use kilim_engine::Namespace;
use kilim_engine::cursor::{Batch, Cursor, Source};
use kilim_engine::operator::ExecContext;
use kilim_engine::pipeline::{Options, Reader};
use kilim_engine::planner::Hint;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Scope, Variables};
use kilim_query::stage::{Context, Pipeline, Place};

use super::find::{check_hint_not_null, parse_hint};
use super::update::now_ms;
use super::write_reply::{check_collation, required};
use crate::argument::{Argument, arguments, nested};
use crate::cursor_reply;
use crate::dispatch::Call;
use crate::reply::while_executing;

const NAME: &str = "aggregate";

/// What a pipeline over a database is called in its cursor.
const DATABASE_CURSOR: &str = "$cmd.aggregate";

/// A parsed `aggregate`, its pipeline still as it was written.
pub struct Aggregate<'a> {
    pub pipeline: RawArray<'a>,
    pub hint: Option<Hint>,
    pub options: Options,
    /// The variables of `let`.
    definitions: RawDocument<'a>,
    batch_size: Option<usize>,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (namespace, place) = target(call.body, call.generic.database)?;
    call.describe("command");
    let aggregate = parse(call.body)?;
    let pipeline = aggregate.pipeline(call, place)?;
    let reader = reader(call, &namespace, &pipeline, aggregate.options)?;
    let mut prepared = reader.prepare(&namespace, &pipeline);
    prepared.hint(aggregate.hint);
    let collection = reader.collection(&namespace).map(|collection| collection.id);
    let operation = call.operation.clone();
    let interrupt = || operation.check();
    let step = prepared.open(Bindings::none(), &mut ExecContext::new(&interrupt))?;
    let mut cursor = Cursor::new(namespace, Source::Pipeline(step));
    cursor.collection = collection;
    cursor_reply::first_batch(call, cursor, Batch::first(aggregate.batch_size), false)
        .map_err(|error| while_executing("PlanExecutor error during aggregation", error))
}

impl Aggregate<'_> {
    pub fn pipeline(&self, call: &Call<'_, '_>, place: Place) -> Result<Pipeline> {
        let variables = variables(call, self.definitions)?;
        let scope = Scope::new(&variables);
        Pipeline::parse(self.pipeline, &Context::new(&scope, call.generic.database, place))
    }
}

/// What all expressions of a command know: the time, and the variables of its `let`.
pub fn variables(call: &Call<'_, '_>, definitions: RawDocument<'_>) -> Result<Variables> {
    let mut variables = Variables::at(now_ms(), Timestamp::from_bits(call.engine.store.now()));
    variables.define_all(definitions).map_err(|error| match error {
        Error::User(mut user) if user.code == ErrorCode::FailedToParse => {
            user.message = format!("Invalid 'let' parameter :: caused by :: {}", user.message);
            Error::User(user)
        }
        other => other,
    })?;
    Ok(variables)
}

/// Takes up all collections that a pipeline reads.
pub fn reader(
    call: &mut Call<'_, '_>,
    namespace: &Namespace,
    pipeline: &Pipeline,
    options: Options,
) -> Result<Reader> {
    let mut namespaces = vec![namespace.clone()];
    pipeline.collections(&mut |database, collection| {
        namespaces.push(Namespace { database: database.to_owned(), collection: collection.to_owned() });
    });
    Reader::new(&mut call.unit, namespaces, options)
}

/// What a pipeline runs over: a collection, or with `{aggregate: 1}` a database.
pub fn target(body: RawDocument<'_>, database: &str) -> Result<(Namespace, Place)> {
    let (_, value) = body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    match value {
        RawValue::String(collection) => Ok((Namespace::parse(database, collection)?, Place::Collection)),
        value if (Argument { command: NAME, name: NAME, value }).integer()? == 1 => {
            let collection = DATABASE_CURSOR.to_owned();
            Ok((Namespace { database: database.to_owned(), collection }, Place::Database))
        }
        _ => Err(Error::user(
            ErrorCode::FailedToParse,
            "Invalid command format: the 'aggregate' field must specify a collection name or 1",
        )),
    }
}

pub fn parse(body: RawDocument<'_>) -> Result<Aggregate<'_>> {
    let (mut pipeline, mut hint, mut cursor, mut explain) = (None, None, None, false);
    let mut definitions = RawDocument::empty();
    // As on MongoDB, a stage that needs more memory than it may have goes to disk unless told not to.
    let mut options = Options { allow_disk_use: true };
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
            "allowDiskUse" => options.allow_disk_use = argument.strict_boolean()?,
            "bypassDocumentValidation" => drop(argument.boolean()?),
            "let" => definitions = argument.document()?,
            "explain" => match argument.value {
                RawValue::Bool(wanted) => explain = wanted,
                _ => return Err(Error::user(ErrorCode::TypeMismatch, "explain must be a boolean")),
            },
            _ => return Err(argument.unknown()),
        }
    }
    let pipeline = required(pipeline, NAME, "pipeline")?;
    if explain {
        let argument = Argument { command: NAME, name: "explain", value: RawValue::Bool(true) };
        return Err(argument.unsupported());
    }
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
    Ok(Aggregate { pipeline, hint, options, definitions, batch_size })
}
