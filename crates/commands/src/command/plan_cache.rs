//! `planCacheClear` and the commands of index filters. Kilim has no index filters: there are none to list or to
//! clear, and setting one is refused, because a filter that is not followed would be a lie.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::plan::{Purpose, ReadRequest, Shape};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;

use super::find::parse_sort;
use crate::about::About;
use crate::collation;
use crate::dispatch::Call;

/// Forgets what plans were chosen: for one query, or for all of a collection.
pub fn clear(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    let query = query_of(call, call.body)?;
    call.engine.check_no_view(&namespace)?;
    let Some(collection) = call.engine.collection(&namespace) else { return Ok(Document::new()) };
    let cache = &collection.shared.plan_cache;
    match query {
        None => cache.clear(),
        Some(mut request) => {
            cache.forget(&Shape::of(&request));
            request.purpose = Purpose::Count;
            cache.forget(&Shape::of(&request));
        }
    }
    Ok(Document::new())
}

pub fn list_filters(call: &mut Call<'_, '_>) -> Result<Document> {
    call.namespace()?;
    call.describe("command");
    Ok(doc! {"filters": []})
}

pub fn clear_filters(call: &mut Call<'_, '_>) -> Result<Document> {
    call.namespace()?;
    call.describe("command");
    query_of(call, call.body)?;
    Ok(Document::new())
}

pub fn set_filter(call: &mut Call<'_, '_>) -> Result<Document> {
    call.namespace()?;
    call.describe("command");
    if query_of(call, call.body)?.is_none() {
        return Err(bad("required field query missing"));
    }
    match call.body.get("indexes") {
        None => Err(bad("required field indexes missing")),
        Some(_) => Err(Error::user(
            ErrorCode::NotImplemented,
            "index filters are not supported by Kilim: use a hint, or hide the index",
        )),
    }
}

/// The query that a command is about, if it names one.
fn query_of(call: &mut Call<'_, '_>, body: RawDocument<'_>) -> Result<Option<ReadRequest>> {
    let part = |name: &str| match body.get(name) {
        None => Ok(None),
        Some(RawValue::Document(document)) => Ok(Some(document)),
        Some(_) if name == "query" => Err(bad("required field query must be an object")),
        Some(_) => Err(bad(format!("optional field {name} must be an object"))),
    };
    let (sort, projection) = (part("sort")?, part("projection")?);
    let Some(query) = part("query")? else {
        let alone = sort.is_some() || projection.is_some() || body.get("collation").is_some();
        return match alone {
            true => Err(bad("sort, projection, or collation provided without query")),
            false => Ok(None),
        };
    };
    let named = collation::named(collation::argument("planCacheClear", body.get("collation"))?)?;
    let collation = About::of_command(call, body)?.collation(named)?;
    let variables = Variables::default().under(collation.clone());
    let scope = Scope::new(&variables);
    let mut request = ReadRequest::new(Arc::new(Filter::parse_in(query, &scope)?));
    request.collation = collation;
    request.sort = parse_sort(sort.unwrap_or(RawDocument::empty()), &scope)?;
    if let Some(projection) = projection.filter(|projection| !projection.is_empty()) {
        request.projection = Some(Projection::parse_in(projection, &scope)?);
    }
    Ok(Some(request))
}

fn bad(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::BadValue, message)
}
