//! `count`: how many documents match.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::{Purpose, ReadRequest};
use kilim_engine::{Namespace, read};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;

use super::aggregate::{self, Asked};
use super::coll_stats::number;
use super::find::{check_hint_not_null, parse_hint};
use crate::about::About;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;
use crate::through_view;
use crate::variables::variables;

const NAME: &str = "count";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    namespace.check_readable()?;
    call.describe("command");
    let about = About::of(call, &namespace)?;
    let variables = variables(call, NAME, &about)?;
    let request = parse(call.body, &variables)?;
    if about.is_piped() {
        return run_through_view(call, namespace, variables, request);
    }
    let operation = call.operation.clone();
    let mut executor = read::plan(&mut call.unit, &namespace, request)?.execute();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let count = executor.count(&mut context)?;
    call.unit.figures.add(context.figures);
    Ok(doc! {"n": number(count as i64)})
}

/// A view is counted by its pipeline, and a `$count` behind it.
fn run_through_view(
    call: &mut Call<'_, '_>,
    namespace: Namespace,
    variables: Variables,
    request: ReadRequest,
) -> Result<Document> {
    let stages = through_view::count(call.body, request.limit);
    let mut step = Asked::of_view(namespace, &stages, variables, request.hint, None).step(call)?;
    let operation = call.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let row = step.next(&mut context).map_err(aggregate::executing)?;
    call.unit.figures.add(context.figures);
    let count = row.and_then(|row| row.document().get("count").map(RawValue::to_value));
    Ok(doc! {"n": count.unwrap_or(Value::Int32(0))})
}

/// A number without a fraction: here, unlike in find, none is cut off.
fn whole(argument: &Argument<'_>) -> Result<i64> {
    if !argument.value.is_number() {
        return Err(Error::user(ErrorCode::BadValue, format!("Expected a number in: {}", argument.name)));
    }
    let number = argument.integer()?;
    if let RawValue::Int32(_) | RawValue::Int64(_) = argument.value {
        return Ok(number);
    }
    let double = argument.double()?;
    match double.fract() == 0.0 && double.abs() < 2f64.powi(63) {
        true => Ok(number),
        false => {
            Err(Error::user(ErrorCode::FailedToParse, format!("Expected an integer: {}", argument.name)))
        }
    }
}

pub fn parse(body: RawDocument<'_>, variables: &Variables) -> Result<ReadRequest> {
    let mut filter = RawDocument::empty();
    let (mut skip, mut limit, mut hint) = (0, 0, None);
    check_hint_not_null(body)?;
    for argument in arguments(NAME, body) {
        match argument.name {
            "query" => filter = argument.document()?,
            "skip" => skip = argument.not_negative()?,
            // A negative limit means its amount, as in old shells.
            "limit" => {
                limit = whole(&argument)?.checked_abs().ok_or_else(|| {
                    Error::user(ErrorCode::BadValue, "limit value for count cannot be min long")
                })? as u64;
            }
            "hint" => hint = parse_hint(&argument)?,
            // Among the variables by now.
            "collation" => {}
            "fields" => {}
            _ => return Err(argument.unknown()),
        }
    }
    Ok(ReadRequest {
        skip,
        limit: (limit > 0).then_some(limit),
        hint,
        purpose: Purpose::Count,
        collation: variables.collation().clone(),
        ..ReadRequest::new(Arc::new(Filter::parse_in(filter, &Scope::new(variables))?))
    })
}
