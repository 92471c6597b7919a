//! `planCacheClear` and the commands of index filters.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::plan::{IndexFilter, Purpose, QueryShape, ReadRequest};
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
    let namespace = call.collection()?;
    call.describe("command");
    let query = query_of(call, call.body)?;
    call.engine.check_no_view(&namespace)?;
    let Some(collection) = call.engine.collection(&namespace) else { return Ok(Document::new()) };
    let cache = &collection.shared.plan_cache;
    match query {
        None => cache.clear(),
        Some(mut request) => {
            cache.forget(&QueryShape::of(&request));
            request.purpose = Purpose::Count;
            cache.forget(&QueryShape::of(&request));
        }
    }
    Ok(Document::new())
}

/// The index filters of a collection.
pub fn list_filters(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    call.engine.check_no_view(&namespace)?;
    let Some(collection) = call.engine.collection(&namespace) else { return Ok(doc! {"filters": []}) };
    let filters = collection.shared.plan_cache.filters.list();
    Ok(doc! {"filters": filters.iter().map(|filter| shown(filter)).collect::<Vec<_>>()})
}

fn shown(filter: &IndexFilter) -> Document {
    let mut document = doc! {
        "query": filter.query.clone(),
        "sort": filter.sort.clone(),
        "projection": filter.projection.clone(),
    };
    if let Some(collation) = &filter.collation {
        document.push("collation", collation.clone());
    }
    let keys = filter.keys.iter().cloned().map(Value::Document);
    let names = filter.names.iter().map(|name| Value::from(name.as_str()));
    document.push("indexes", Value::Array(keys.chain(names).collect()));
    document
}

/// Removes the index filter of one query, or all of a collection.
pub fn clear_filters(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    let query = query_of(call, call.body)?;
    call.engine.check_no_view(&namespace)?;
    let Some(collection) = call.engine.collection(&namespace) else { return Ok(Document::new()) };
    let filters = &collection.shared.plan_cache.filters;
    match query {
        None => filters.clear(),
        Some(request) => filters.remove(&request),
    }
    Ok(Document::new())
}

/// Says which indexes queries of a shape may use.
pub fn set_filter(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    call.engine.check_no_view(&namespace)?;
    let Some(collection) = call.engine.collection(&namespace) else { return Err(bad("no such collection")) };
    let (mut keys, mut names) = (Vec::new(), Vec::new());
    let indexes = match call.body.get("indexes") {
        None => return Err(bad("required field indexes missing")),
        Some(RawValue::Array(indexes)) if indexes.is_empty() => {
            return Err(bad("required field indexes must contain at least one index"));
        }
        Some(RawValue::Array(indexes)) => indexes,
        Some(_) => return Err(bad("required field indexes must be an array")),
    };
    for index in indexes.iter() {
        match index {
            RawValue::Document(key) if key.is_empty() => {
                return Err(bad("index specification cannot be empty"));
            }
            RawValue::Document(key) => keys.push(key.to_document()),
            RawValue::String(name) => names.push(name.to_owned()),
            _ => return Err(bad("each item in indexes must be an object or string")),
        }
    }
    let request = query_of(call, call.body)?.ok_or_else(|| bad("required field query missing"))?;
    let part = |name: &str| {
        call.body.get(name).and_then(RawValue::as_document).map(|part| part.to_document()).unwrap_or_default()
    };
    let filter = IndexFilter {
        query: part("query"),
        sort: part("sort"),
        projection: part("projection"),
        collation: request.collation.as_ref().map(|collation| collation.to_document()),
        keys,
        names,
    };
    collection.shared.plan_cache.filters.set(&request, filter)?;
    Ok(Document::new())
}

/// The query that a command is about, if it names one.
fn query_of(call: &mut Call<'_, '_>, body: RawDocument<'_>) -> Result<Option<ReadRequest>> {
    let part = |name: &str| match body.get(name) {
        None => Ok(None),
        Some(RawValue::Document(document)) => Ok(Some(document)),
        Some(_) if name == "query" => Err(bad("required field query must be an object")),
        Some(_) => Err(bad(format!("optional field {name} must be an object"))),
    };
    let (sort, projection, named) = (part("sort")?, part("projection")?, part("collation")?);
    let Some(query) = part("query")? else {
        let alone = sort.is_some() || projection.is_some() || body.get("collation").is_some();
        return match alone {
            true => Err(bad("sort, projection, or collation provided without query")),
            false => Ok(None),
        };
    };
    if named.is_some_and(|named| named.is_empty()) {
        return Err(bad("optional field collation cannot be empty"));
    }
    let named = collation::named(named)?;
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
