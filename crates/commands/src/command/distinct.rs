//! `distinct`: the different values of a field.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{Component, Document, Path, RawDocument, RawValue, Value, Writer, doc, encode_value_with};
use kilim_collation::collator;
use kilim_engine::operator::{ExecContext, Executor, Row};
use kilim_engine::pipeline::Step;
use kilim_engine::plan::{Distinct, ReadRequest};
use kilim_engine::{limits, read};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::interrupt;
use kilim_query::projection::Projection;

use super::aggregate::{self, Asked};
use super::find::parse_hint;
use super::write_reply::required;
use crate::about::About;
use crate::argument::arguments;
use crate::dispatch::Call;
use crate::reply::while_executing;
use crate::through_view;
use crate::variables::variables;

const NAME: &str = "distinct";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    namespace.check_readable()?;
    call.describe("command");
    let about = About::of(call, &namespace)?;
    let variables = variables(call, NAME, &about)?;
    let (path, request) = parse(call.body, &variables)?;
    let collation = variables.collation().clone();
    let mut rows = match about.is_piped() {
        false => Rows::Planned(Box::new(read::plan(&mut call.unit, &namespace, request)?.execute())),
        true => {
            let stages = through_view::distinct(call.body);
            Rows::Piped(Asked::of_view(namespace, &stages, variables, None, None).step(call)?)
        }
    };
    let operation = call.operation.clone();
    // By their keys: each once, and in order.
    let mut values: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
    let mut bytes = 0;
    let mut key = Vec::new();
    let check = || operation.check();
    let mut context = ExecContext::new(&check);
    while let Some(row) = rows.next(&mut context)? {
        each_value(RawValue::Document(row.document()), path.components(), &mut |value| {
            interrupt::tick()?;
            key.clear();
            encode_value_with(&mut key, value, false, collator(&collation));
            if !values.contains_key(&key) {
                bytes += key.len();
                values.insert(key.clone(), value.to_value());
            }
            if bytes > limits::DOCUMENT_BYTES_MAX { Err(too_big()) } else { Ok(()) }
        })?;
    }
    call.unit.figures.add(context.figures);
    let mut writer = Writer::new();
    writer.open_array("values");
    for (index, value) in values.values().enumerate() {
        writer.append_index(index, value.as_raw());
    }
    writer.close();
    if writer.len() > limits::DOCUMENT_BYTES_MAX {
        return Err(too_big());
    }
    if let Some(time) = crate::cursor_reply::at_cluster_time(call) {
        writer.append("atClusterTime", RawValue::Timestamp(time));
    }
    Ok(writer.finish())
}

/// Where the documents come from.
enum Rows {
    Planned(Box<Executor>),
    /// Through a view.
    Piped(Box<dyn Step>),
}

impl Rows {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        match self {
            Rows::Planned(executor) => executor
                .next_document(context)
                .map_err(|error| while_executing("Executor error during distinct command", error)),
            Rows::Piped(step) => step.next(context).map_err(aggregate::executing),
        }
    }
}

pub fn parse(body: RawDocument<'_>, variables: &Variables) -> Result<(Path, ReadRequest)> {
    let (mut key, mut filter, mut hint) = (None, RawDocument::empty(), None);
    for argument in arguments(NAME, body) {
        match argument.name {
            "key" => key = Some(argument.string()?),
            "query" => filter = argument.document()?,
            "hint" => hint = parse_hint(&argument)?,
            // Among the variables by now.
            "collation" => {}
            _ => return Err(argument.unknown()),
        }
    }
    let key = required(key, NAME, "key")?;
    if key.is_empty() {
        return Err(Error::location(40352, "FieldPath cannot be constructed with empty string"));
    }
    if key.contains('\0') {
        return Err(Error::user(ErrorCode::BadValue, "Key field cannot contain an embedded null byte"));
    }
    let path = Path::parse(key);
    let distinct = Distinct { path: key.into(), nulls_apart: true };
    // Nothing but the field is looked at, and an index may hold it.
    let only = if key == "_id" {
        doc! {"_id": 1}
    } else {
        doc! {"_id": 0, key: 1}
    };
    let projection = Projection::parse(only.as_raw()).ok();
    let request = ReadRequest {
        hint,
        distinct: Some(distinct),
        projection,
        collation: variables.collation().clone(),
        ..ReadRequest::new(Arc::new(Filter::parse_in(filter, &Scope::new(variables))?))
    };
    Ok((path, request))
}

fn too_big() -> Error {
    Error::location(17217, "distinct too big, 16mb cap")
}

/// Visits the values at a path. Arrays are entered, at the end of the path too; a number selects one
/// element instead.
fn each_value<'a>(
    value: RawValue<'a>,
    path: &[Component],
    visit: &mut impl FnMut(RawValue<'a>) -> Result<()>,
) -> Result<()> {
    match (value, path.split_first()) {
        (RawValue::Array(array), None) => array.iter().try_for_each(visit),
        (value, None) => visit(value),
        (RawValue::Document(document), Some((component, rest))) => match document.get(&component.name) {
            Some(value) => each_value(value, rest, visit),
            None => Ok(()),
        },
        (RawValue::Array(array), Some((component, rest))) => match component.index {
            Some(index) => match array.get(index) {
                Some(element) => each_value(element, rest, visit),
                None => Ok(()),
            },
            None => {
                let mut documents = array.iter().filter(|element| element.as_document().is_some());
                documents.try_for_each(|element| each_value(element, path, visit))
            }
        },
        _ => Ok(()),
    }
}
