//! `update`: change documents.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, doc};
use kilim_engine::Namespace;
use kilim_engine::plan::Hint;
use kilim_engine::write::{self, UpdateOutcome, UpdateRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::stage::Pipeline;
use kilim_query::update::Update;

use super::find::{check_hint_not_null, parse_hint};
use super::time_series;
use super::write_reply::{
    Failures, StatementIds, WriteOptions, check_batch, check_statement_ids, required, upserted_entry,
};
use crate::about::About;
use crate::argument::{Argument, nested};
use crate::collation;
use crate::dispatch::Call;
use crate::ended::Counts;
use crate::variables::{variables, variables_under};

const NAME: &str = "update";
const STATEMENT: &str = "update.updates";

/// One of `updates`.
pub struct Statement<'a> {
    pub filter: RawDocument<'a>,
    pub update: RawValue<'a>,
    pub multi: bool,
    pub upsert: bool,
    pub array_filters: Option<RawArray<'a>>,
    pub hint: Option<Hint>,
    /// Variables of a pipeline.
    pub constants: Option<RawDocument<'a>>,
    pub collation: Option<RawDocument<'a>>,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("update");
    let options = WriteOptions::parse(NAME, call.body, "updates")?;
    call.expect(NAME, &namespace)?;
    let documents = call.request.documents(NAME, "updates")?;
    check_batch(documents.len())?;
    check_statement_ids(call.body, documents.len())?;
    namespace.check_writable()?;
    namespace.check_creatable()?;
    call.unit.bypass_validation = options.bypass_validation;
    call.engine.metrics.updated.add(documents.len() as u64);
    let mut statements = Vec::with_capacity(documents.len());
    for document in documents {
        statements.push(Statement::parse(document)?);
    }
    if let Some(view) = time_series::of(call, &namespace) {
        write::check_no_transaction(&call.unit, &view.namespace)?;
    }
    let about = About::of(call, &namespace);
    let variables = about.and_then(|about| variables(call, NAME, &about));
    let (mut matched, mut modified) = (0, 0);
    let mut upserted = Vec::new();
    let mut failures = Failures::default();
    let ids = StatementIds::of(call.body);
    for (position, statement) in statements.iter().enumerate() {
        let id = ids.at(position);
        let begun = Instant::now();
        match run_statement(call, &namespace, statement, id, &variables) {
            Ok(outcome) => {
                let counts = Counts::Updated {
                    matched: outcome.matched,
                    modified: outcome.modified,
                    upserted: u64::from(outcome.upserted.is_some()),
                };
                call.end_statement(begun, counts, || statement.shown());
                matched += outcome.matched + u64::from(outcome.upserted.is_some());
                modified += outcome.modified;
                upserted.extend(outcome.upserted.map(|id| upserted_entry(position, id)));
            }
            Err(error) => {
                failures.take(position, error)?;
                if options.ordered || call.unit.is_transaction() {
                    break;
                }
            }
        }
    }
    let mut document = doc! {"n": matched as i32};
    if !upserted.is_empty() {
        document.push("upserted", upserted);
    }
    document.push("nModified", modified as i32);
    Ok(failures.finish(call, document))
}

fn run_statement(
    call: &mut Call<'_, '_>,
    namespace: &Namespace,
    statement: &Statement<'_>,
    id: i32,
    variables: &Result<Variables>,
) -> Result<UpdateOutcome> {
    if call.unit.retry.is_some() && statement.multi {
        return Err(Error::user(
            ErrorCode::InvalidOptions,
            "Cannot use (or request) retryable writes with multi=true",
        ));
    }
    if statement.constants.is_some() && statement.update.as_document().is_some() {
        return Err(Error::location(51198, "Constant values may only be specified for pipeline updates"));
    }
    let own = own_variables(call, NAME, namespace, statement.collation)?;
    let variables = own.as_ref().unwrap_or(variables).as_ref().map_err(Error::clone)?;
    let variables = statement.variables(variables)?;
    let scope = Scope::new(&variables);
    let series = time_series::of(call, namespace);
    if let Some(view) = &series {
        return time_series::update(call, view, statement, id, &variables);
    }
    // In mongod's order, which decides on the error where both are at fault.
    let update = Update::parse_in(statement.update, statement.array_filters, statement.multi, &scope)?;
    let filter = Arc::new(statement.filter(&scope)?);
    let request = UpdateRequest {
        filter,
        update: &update,
        multi: statement.multi,
        upsert: statement.upsert,
        hint: statement.hint.clone(),
        collation: variables.collation().clone(),
        now_ms: now_ms(),
        statement: id,
        projection: None,
    };
    write::update(&mut call.unit, namespace, &request)
}

impl<'a> Statement<'a> {
    /// As a profile has it.
    fn shown(&self) -> Document {
        let mut shown = doc! {"q": self.filter.to_document()};
        shown.push("u", self.update);
        if let Some(filters) = self.array_filters {
            shown.push("arrayFilters", RawValue::Array(filters));
        }
        shown.push("multi", self.multi);
        shown.push("upsert", self.upsert);
        shown
    }

    pub fn parse(document: RawDocument<'a>) -> Result<Statement<'a>> {
        let (mut filter, mut update, mut array_filters, mut hint) = (None, None, None, None);
        let (mut multi, mut upsert, mut constants, mut collation) = (false, false, None, None);
        check_hint_not_null(document)?;
        for argument in nested(STATEMENT, document) {
            match argument.name {
                "q" => filter = Some(argument.document()?),
                "u" => update = Some(parse_update(argument.value)?),
                "multi" => multi = argument.strict_boolean()?,
                "upsert" => upsert = argument.strict_boolean()?,
                "arrayFilters" => array_filters = Some(parse_array_filters(&argument)?),
                "hint" => hint = parse_hint(&argument)?,
                "collation" => collation = Some(argument.document()?),
                "c" => constants = Some(argument.document()?),
                "upsertSupplied" => argument.only_off()?,
                _ => return Err(argument.unknown()),
            }
        }
        if let Some(value @ RawValue::Null) = document.get("u") {
            parse_update(value)?;
        }
        Ok(Statement {
            filter: required(filter, STATEMENT, "q")?,
            update: required(update, STATEMENT, "u")?,
            multi,
            upsert,
            array_filters,
            hint,
            constants,
            collation,
        })
    }

    /// The command's variables, and the constants of the statement.
    fn variables<'v>(&self, variables: &'v Variables) -> Result<Cow<'v, Variables>> {
        let mut variables = Cow::Borrowed(variables);
        if let Some(constants) = self.constants {
            variables.to_mut().define_constants(constants)?;
        }
        Ok(variables)
    }

    pub fn filter(&self, scope: &Scope<'_>) -> Result<Filter> {
        match self.upsert {
            true => Filter::parse_for_upsert(self.filter, scope),
            false => Filter::parse_in(self.filter, scope),
        }
    }
}

/// The command's variables under the collation of a statement, if that has one of its own.
pub fn own_variables(
    call: &mut Call<'_, '_>,
    command: &'static str,
    namespace: &Namespace,
    collation: Option<RawDocument<'_>>,
) -> Result<Option<Result<Variables>>> {
    let Some(named) = collation::named(collation)? else { return Ok(None) };
    let collation = About::of(call, namespace)?.collation(Some(named))?;
    Ok(Some(variables_under(call, command, call.body, collation)))
}

fn parse_update(value: RawValue<'_>) -> Result<RawValue<'_>> {
    match value {
        RawValue::Document(_) => Ok(value),
        RawValue::Array(stages) => Pipeline::check_names(stages).map(|()| value),
        _ => {
            Err(Error::user(ErrorCode::FailedToParse, "Update argument must be either an object or an array"))
        }
    }
}

/// A list of objects; what they mean is the update's matter.
pub fn parse_array_filters<'a>(argument: &Argument<'a>) -> Result<RawArray<'a>> {
    let filters = argument.array()?;
    for (index, filter) in filters.as_document().iter() {
        let name = format!("{}.{index}", argument.name);
        Argument { command: argument.command, name: &name, value: filter }.document()?;
    }
    Ok(filters)
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
