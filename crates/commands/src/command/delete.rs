//! `delete`: remove documents.

use std::sync::Arc;
use std::time::Instant;

use kilim_bson::{Document, RawDocument, doc};
use kilim_engine::plan::Hint;
use kilim_engine::write::{self, DeleteRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::Scope;
use kilim_query::filter::Filter;

use super::find::{check_hint_not_null, parse_hint};
use super::time_series;
use super::update::own_variables;
use super::write_reply::{Failures, StatementIds, WriteOptions, check_batch, check_statement_ids, required};
use crate::about::About;
use crate::argument::{Argument, nested};
use crate::dispatch::Call;
use crate::ended::Counts;
use crate::variables::variables;

const NAME: &str = "delete";
const STATEMENT: &str = "delete.deletes";

/// One of `deletes`.
pub struct Statement<'a> {
    pub filter: RawDocument<'a>,
    pub one: bool,
    pub hint: Option<Hint>,
    pub collation: Option<RawDocument<'a>>,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("remove");
    let options = WriteOptions::parse(NAME, call.body, "deletes")?;
    call.expect(NAME, &namespace)?;
    namespace.check_writable()?;
    namespace.check_creatable()?;
    let documents = call.request.documents(NAME, "deletes")?;
    check_batch(documents.len())?;
    check_statement_ids(call.body, documents.len())?;
    call.engine.metrics.deleted.add(documents.len() as u64);
    let mut statements = Vec::with_capacity(documents.len());
    for document in documents {
        statements.push(Statement::parse(document)?);
    }
    if let Some(view) = time_series::of(call, &namespace) {
        write::check_no_transaction(&call.unit, &view.namespace)?;
    }
    let about = About::of(call, &namespace);
    let variables = about.and_then(|about| variables(call, NAME, &about));
    let mut removed = 0;
    let mut failures = Failures::default();
    let ids = StatementIds::of(call.body);
    for (position, statement) in statements.iter().enumerate() {
        let id = ids.at(position);
        let begun = Instant::now();
        let own = own_variables(call, NAME, &namespace, statement.collation);
        let parsed = own.and_then(|own| {
            let variables = own.as_ref().unwrap_or(&variables).as_ref().map_err(Error::clone)?;
            let filter = Filter::parse_in(statement.filter, &Scope::new(variables))?;
            Ok((filter, variables.collation().clone()))
        });
        let result = parsed.and_then(|(filter, collation)| {
            if call.unit.retry.is_some() && !statement.one {
                return Err(Error::user(
                    ErrorCode::InvalidOptions,
                    "Cannot use (or request) retryable writes with limit=0",
                ));
            }
            let hint = statement.hint.clone();
            let request = DeleteRequest {
                filter: Arc::new(filter),
                one: statement.one,
                hint,
                collation,
                statement: id,
            };
            match time_series::of(call, &namespace) {
                Some(view) => write::delete_measurements(&mut call.unit, &view, &request),
                None => write::delete(&mut call.unit, &namespace, &request),
            }
        });
        match result {
            Ok(count) => {
                call.end_statement(begun, Counts::Removed { removed: count }, || statement.shown());
                removed += count;
            }
            Err(error) => {
                failures.take(position, error)?;
                if options.ordered || call.unit.is_transaction() {
                    break;
                }
            }
        }
    }
    Ok(failures.finish(call, doc! {"n": removed as i32}))
}

impl<'a> Statement<'a> {
    /// As a profile has it.
    fn shown(&self) -> Document {
        doc! {"q": self.filter.to_document(), "limit": i32::from(self.one)}
    }

    pub fn parse(document: RawDocument<'a>) -> Result<Statement<'a>> {
        let (mut filter, mut limit, mut hint, mut collation) = (None, None, None, None);
        check_hint_not_null(document)?;
        for argument in nested(STATEMENT, document) {
            match argument.name {
                "q" => filter = Some(argument.document()?),
                "limit" => limit = Some(parse_limit(&argument)?),
                "hint" => hint = parse_hint(&argument)?,
                "collation" => collation = Some(argument.document()?),
                _ => return Err(argument.unknown()),
            }
        }
        let one = required(limit, STATEMENT, "limit")?;
        Ok(Statement { filter: required(filter, STATEMENT, "q")?, one, hint, collation })
    }
}

/// One or all. Unlike mongod, a limit that is no number is refused: there it means all.
fn parse_limit(argument: &Argument<'_>) -> Result<bool> {
    let limit = argument.double()?;
    match limit {
        0.0 => Ok(false),
        1.0 => Ok(true),
        _ => Err(Error::user(
            ErrorCode::FailedToParse,
            format!("The limit field in delete objects must be 0 or 1. Got {limit}"),
        )),
    }
}
