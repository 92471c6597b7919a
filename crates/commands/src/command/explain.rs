//! `explain`: how a command would run.

use std::sync::Arc;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value};
use kilim_engine::maintenance::{Planned, forecast, maintained_among};
use kilim_engine::operator::ExecContext;
use kilim_engine::pipeline::Prepared;
use kilim_engine::plan::ReadRequest;
use kilim_engine::planner::explain::{Subject, WriteStage};
use kilim_engine::planner::{self, Verbosity};
use kilim_engine::{Namespace, read};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::update::Update;

use super::aggregate::{self, Asked};
use super::{build_info, change_stream, count, delete, distinct, find, find_and_modify, update};
use crate::about::About;
use crate::argument::{Argument, arguments};
use crate::collation;
use crate::dispatch::Call;
use crate::registry;
use crate::through_view;
use crate::variables::{variables_under, variables_within};

const NAME: &str = "explain";

/// What an explained command would read, and what it would do to it.
struct Explained {
    namespace: Namespace,
    request: ReadRequest,
    write: Option<Write>,
    /// What an update would write.
    update: Option<Update>,
    /// findAndModify: what is written is given back too.
    returns: bool,
}

#[derive(Clone, Copy)]
enum Write {
    Update { multi: bool, upsert: bool },
    Delete { one: bool },
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (_, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    let command = Argument { command: NAME, name: NAME, value }.document()?;
    let mut verbosity = Verbosity::AllPlansExecution;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "verbosity" => verbosity = parse_verbosity(argument.string()?)?,
            _ => return Err(argument.unknown()),
        }
    }
    if change_stream::is_opened_by(command) {
        let mut reply = change_stream::explain(call, command)?;
        finish(call, command, &mut reply);
        return Ok(reply);
    }
    let mut reply = match piped(call, command)? {
        Some(prepared) => {
            call.describe("command");
            let operation = call.operation.clone();
            let interrupt = || operation.check();
            let mut reply = prepared.explain(verbosity, &mut ExecContext::new(&interrupt))?;
            let (namespace, request) = prepared.first_read();
            push_maintained(call, namespace, request, &mut reply);
            reply
        }
        None => planned(call, command, verbosity)?,
    };
    finish(call, command, &mut reply);
    Ok(reply)
}

/// Adds what an explanation of any command ends with.
pub fn finish(call: &Call<'_, '_>, command: RawDocument<'_>, reply: &mut Document) {
    let mut shown = command.to_document();
    // An `aggregate` that explains itself has it already.
    if shown.get("$db").is_none() {
        shown.push("$db", call.generic.database);
    }
    reply.push("command", shown);
    reply.push("serverInfo", build_info::server_info(call.engine));
    reply.push("serverParameters", Document::new());
}

/// The pipeline of an `aggregate`, or of a read through a view.
fn piped(call: &mut Call<'_, '_>, command: RawDocument<'_>) -> Result<Option<Prepared>> {
    let Some((name, target)) = command.iter().next() else { return Ok(None) };
    if name == "aggregate" {
        return aggregate::explained(call, command).map(Some);
    }
    let Some(collection) = target.as_str() else { return Ok(None) };
    let Ok(namespace) = Namespace::parse(call.generic.database, collection) else { return Ok(None) };
    let about = About::of(call, &namespace)?;
    if !about.is_piped() {
        return Ok(None);
    }
    let (variables, stages, hint) = match name {
        "find" => {
            let variables = variables_within(call, find::NAME, command, &about)?;
            let stages = through_view::find(command)?;
            let hint = arguments(find::NAME, command).find(|argument| argument.name == "hint");
            (variables, stages, hint.map(|hint| find::parse_hint(&hint)).transpose()?.flatten())
        }
        "count" => {
            let variables = variables_within(call, "count", command, &about)?;
            let request = count::parse(command, &variables)?;
            (variables, through_view::count(command, request.limit), request.hint)
        }
        "distinct" => {
            let variables = variables_within(call, "distinct", command, &about)?;
            distinct::parse(command, &variables)?;
            (variables, through_view::distinct(command), None)
        }
        _ => {
            call.engine.check_no_view(&namespace)?;
            return Ok(None);
        }
    };
    Asked::of_view(namespace, &stages, variables, hint, None).prepare(call).map(Some)
}

/// Explains a command that is one read, or one read and a write.
fn planned(call: &mut Call<'_, '_>, command: RawDocument<'_>, verbosity: Verbosity) -> Result<Document> {
    let explained = parse(call, command)?;
    call.describe("command");
    let filter = explained.request.filter.clone();
    let asked = explained.request.clone();
    let request = ReadRequest { explained: true, ..explained.request };
    let reading = read::plan(&mut call.unit, &explained.namespace, request)?;
    let namespace = explained.namespace.to_string();
    let indexes = reading.collection.as_ref().map(|collection| collection.indexes.clone());
    let write = explained.write;
    let counts = |read: u64| write.map_or_else(Vec::new, |write| write.counts(read));
    let subject = Subject {
        namespace: &namespace,
        filter: &filter,
        projection: command.get("projection").and_then(RawValue::as_document),
        indexes: indexes.as_deref().unwrap_or_default(),
        write: write.map(|write| WriteStage {
            stage: write.stage(),
            single: write.single(),
            returns: explained.returns,
            counts: &counts,
        }),
        whole_pipeline: false,
        counted_by_stage: false,
    };
    let operation = call.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut reply = planner::explain(reading.plan, reading.snapshot, &subject, verbosity, &mut context)?;
    push_maintained(call, &explained.namespace, &asked, &mut reply);
    let planned = match (write, &explained.update) {
        (Some(Write::Update { multi, upsert }), Some(update)) => {
            Planned::Update { update, one: !multi, upsert, now_ms: update::now_ms() }
        }
        (Some(Write::Delete { one }), _) => Planned::Delete { one },
        _ => return Ok(reply),
    };
    let caused = forecast(&mut call.unit, &explained.namespace, asked, &planned)?;
    if !caused.is_empty() {
        reply.push("maintenance", caused.into_iter().map(Value::Document).collect::<Vec<_>>());
    }
    Ok(reply)
}

/// Says which of the paths that a read looks at patterns maintain.
fn push_maintained(call: &Call<'_, '_>, namespace: &Namespace, request: &ReadRequest, reply: &mut Document) {
    let paths = maintained_among(&call.engine.patterns(), namespace, request);
    if !paths.is_empty() {
        reply.push("maintainedPaths", paths.into_iter().map(Value::Document).collect::<Vec<_>>());
    }
}

fn parse_verbosity(name: &str) -> Result<Verbosity> {
    match name {
        "queryPlanner" => Ok(Verbosity::QueryPlanner),
        "executionStats" => Ok(Verbosity::ExecutionStats),
        "allPlansExecution" => Ok(Verbosity::AllPlansExecution),
        other => Err(Error::user(
            ErrorCode::BadValue,
            format!("Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."),
        )),
    }
}

fn parse(call: &mut Call<'_, '_>, command: RawDocument<'_>) -> Result<Explained> {
    let database = call.generic.database;
    let Some((name, target)) = command.iter().next() else {
        return Err(Error::user(ErrorCode::CommandNotFound, "Explain failed due to unknown command: "));
    };
    let namespace = || match target {
        RawValue::String(collection) => Namespace::parse(database, collection),
        other => Err(Error::user(
            ErrorCode::InvalidNamespace,
            format!("collection name has invalid type {}", other.element_type().name()),
        )),
    };
    let read = |request| {
        Ok(Explained { namespace: namespace()?, request, write: None, update: None, returns: false })
    };
    let about = About::of_command(call, command)?;
    match name {
        "find" => read(find::parse(command, &variables_within(call, find::NAME, command, &about)?)?.request),
        "count" => read(count::parse(command, &variables_within(call, "count", command, &about)?)?),
        "distinct" => {
            read(distinct::parse(command, &variables_within(call, "distinct", command, &about)?)?.1)
        }
        "update" => {
            let statement = update::Statement::parse(single(command, "updates")?)?;
            let variables = statement_variables(call, "update", command, &about, statement.collation)?;
            let scope = Scope::new(&variables);
            let update = planned_update(statement.update, statement.array_filters, statement.multi, &scope);
            let filter = statement.filter(&scope)?;
            let request = ReadRequest {
                hint: statement.hint,
                collation: variables.collation().clone(),
                ..ReadRequest::new(Arc::new(filter))
            };
            let write = Write::Update { multi: statement.multi, upsert: statement.upsert };
            Ok(Explained { namespace: namespace()?, request, write: Some(write), update, returns: false })
        }
        "delete" => {
            let statement = delete::Statement::parse(single(command, "deletes")?)?;
            let variables = statement_variables(call, "delete", command, &about, statement.collation)?;
            let filter = Filter::parse_in(statement.filter, &Scope::new(&variables))?;
            let request = ReadRequest {
                hint: statement.hint,
                collation: variables.collation().clone(),
                ..ReadRequest::new(Arc::new(filter))
            };
            let write = Write::Delete { one: statement.one };
            Ok(Explained {
                namespace: namespace()?,
                request,
                write: Some(write),
                update: None,
                returns: false,
            })
        }
        "findAndModify" | "findandmodify" => {
            let options = find_and_modify::Options::parse(command)?;
            let variables = variables_within(call, "findAndModify", command, &about)?;
            let scope = Scope::new(&variables);
            let update = options
                .update
                .and_then(|update| planned_update(update, options.array_filters, false, &scope));
            let filter = options.filter(&scope)?;
            let sort = find::parse_sort(options.sort, &scope)?;
            let request = ReadRequest {
                sort,
                hint: options.hint,
                collation: variables.collation().clone(),
                ..ReadRequest::new(Arc::new(filter))
            };
            let write = match options.remove {
                true => Write::Delete { one: true },
                false => Write::Update { multi: false, upsert: options.upsert },
            };
            Ok(Explained { namespace: namespace()?, request, write: Some(write), update, returns: true })
        }
        other if registry::place(other).is_some() => {
            Err(Error::user(ErrorCode::IllegalOperation, format!("Cannot explain cmd: {other}")))
        }
        other => Err(Error::user(
            ErrorCode::CommandNotFound,
            format!("Explain failed due to unknown command: {other}"),
        )),
    }
}

/// A write command's variables, under the collation of its statement if that names one.
fn statement_variables(
    call: &Call<'_, '_>,
    name: &'static str,
    command: RawDocument<'_>,
    about: &About,
    collation: Option<RawDocument<'_>>,
) -> Result<Variables> {
    match collation::named(collation)? {
        Some(named) => variables_under(call, name, command, named),
        None => variables_within(call, name, command, about),
    }
}

/// The update of a statement, to say what it would cause. What is wrong with it, the statement itself tells.
fn planned_update(
    update: RawValue<'_>,
    array_filters: Option<RawArray<'_>>,
    multi: bool,
    scope: &Scope<'_>,
) -> Option<Update> {
    Update::parse_in(update, array_filters, multi, scope).ok()
}

/// The one statement of a write command: more than one cannot be explained.
fn single<'a>(command: RawDocument<'a>, name: &'static str) -> Result<RawDocument<'a>> {
    let statements = command.get(name).and_then(RawValue::as_array);
    let mut statements = statements.into_iter().flat_map(|statements| statements.iter());
    match (statements.next().and_then(RawValue::as_document), statements.next()) {
        (Some(statement), None) => Ok(statement),
        _ => Err(Error::user(ErrorCode::InvalidLength, "explained write batches must be of size 1")),
    }
}

impl Write {
    fn stage(self) -> &'static str {
        match self {
            Write::Update { .. } => "UPDATE",
            Write::Delete { .. } => "DELETE",
        }
    }

    fn single(self) -> bool {
        match self {
            Write::Update { multi, .. } => !multi,
            Write::Delete { one } => one,
        }
    }

    fn counts(self, read: u64) -> Vec<(&'static str, u64)> {
        match self {
            Write::Update { upsert, .. } => vec![
                ("nMatched", read),
                ("nWouldModify", read),
                ("nWouldUpsert", u64::from(upsert && read == 0)),
            ],
            Write::Delete { .. } => vec![("nWouldDelete", read)],
        }
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    #[test]
    fn a_batch_of_two_statements_is_refused() {
        let command = doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}, {"q": {}, "limit": 0}]};
        let error = single(command.as_raw(), "deletes").map(drop).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidLength);
    }
}
