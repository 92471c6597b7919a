//! Time-series collections, as commands name them: options, indexes and updates in the names of measurements, translated into
//! those of buckets.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::Namespace;
use kilim_engine::catalog::View;
use kilim_engine::write::{self, UpdateOutcome, UpdateRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::stage::on_buckets;
use kilim_query::text::document as shell_text;
use kilim_query::time_series::{Granularity, TimeSeries};
use kilim_query::update::Update;

use super::coll_stats::number;
use super::update::{Statement, now_ms};
use super::write_reply::required;
use crate::argument::{Argument, nested};
use crate::dispatch::Call;

/// The view of measurements that a name stands for, if it is a time-series collection.
pub fn of(call: &Call<'_, '_>, namespace: &Namespace) -> Option<Arc<View>> {
    call.engine.view(namespace).filter(|view| view.time_series.is_some())
}

/// The same, also by the name of the collection that holds the buckets.
pub fn of_either(call: &Call<'_, '_>, namespace: &Namespace) -> Option<Arc<View>> {
    of(call, namespace).or_else(|| of(call, &namespace.of_measurements()?))
}

/// The option `timeseries` of `create`.
pub fn parse(namespace: &Namespace, argument: &Argument<'_>) -> Result<TimeSeries> {
    const PATH: &str = "create.timeseries";
    let (mut time, mut meta, mut granularity, mut span) = (None, None, Granularity::Seconds, None);
    for field in nested(PATH, argument.document()?) {
        match field.name {
            "timeField" => time = Some(field.string()?),
            "metaField" => meta = Some(field.string()?),
            "granularity" => granularity = parse_granularity(&field)?,
            "bucketMaxSpanSeconds" => span = Some(field.integer()?),
            _ => return Err(field.unknown()),
        }
    }
    let time = required(time, PATH, "timeField")?;
    for (name, field) in [("timeField", Some(time)), ("metaField", meta)] {
        if field.is_some_and(|field| field.contains('.')) {
            return Err(invalid(format!(
                "{namespace}: '{name}' must be a top-level field and not contain a '.'"
            )));
        }
    }
    if meta == Some("_id") {
        return Err(invalid("'metaField' cannot be \"_id\""));
    }
    if meta == Some(time) {
        return Err(invalid("'metaField' cannot be the same as 'timeField'"));
    }
    let usual = granularity.span_seconds();
    if span.is_some_and(|span| span != i64::from(usual)) {
        return Err(Error::location(
            5_510_500,
            format!(
                "Timeseries 'bucketMaxSpanSeconds' is not configurable to a value other than the default of {usual} for \
                 the provided granularity"
            ),
        ));
    }
    Ok(TimeSeries { time_field: time.into(), meta_field: meta.map(Box::from), granularity })
}

pub fn parse_granularity(field: &Argument<'_>) -> Result<Granularity> {
    let name = field.string()?;
    Granularity::named(name).ok_or_else(|| {
        Error::user(
            ErrorCode::BadValue,
            format!(
                "Enumeration value '{name}' for field '{}.granularity' is not a valid value.",
                field.command
            ),
        )
    })
}

/// The specification of an index over measurements as one over their buckets.
pub fn index_of_buckets(series: &TimeSeries, spec: RawDocument<'_>) -> Result<Document> {
    let is_set = |name| match spec.get(name) {
        Some(RawValue::Bool(value)) => value,
        Some(value) => !matches!(value, RawValue::Int32(0) | RawValue::Null),
        None => false,
    };
    let refused = |what: &str| Err(invalid(format!("{what} are not supported on time-series collections")));
    let key = spec.get("key").and_then(RawValue::as_document).unwrap_or(RawDocument::empty());
    if is_set("unique") {
        return refused("Unique indexes");
    }
    if spec.get("expireAfterSeconds").is_some() {
        return refused("TTL indexes");
    }
    if key.iter().any(|(_, kind)| kind.as_str() == Some("text")) {
        return refused("Text indexes");
    }
    if is_set("sparse") && key.iter().any(|(name, _)| series.path_in_bucket(name).is_none()) {
        return Err(invalid("Sparse indexes are not supported on time-series measurements"));
    }
    if spec.get("partialFilterExpression").is_some() {
        return Err(Error::user(
            ErrorCode::NotImplemented,
            "partial indexes of time-series collections are not supported by Kilim",
        ));
    }
    let key = key_of_buckets(series, key)?;
    let given = spec.iter().map(|(name, value)| match name {
        "key" => (name, Value::Document(key.clone())),
        _ => (name, value.to_value()),
    });
    Ok(given.collect())
}

/// The key of an index over measurements as one over their buckets.
pub fn key_of_buckets(series: &TimeSeries, key: RawDocument<'_>) -> Result<Document> {
    series.key_in_buckets(key).map_err(|name| match key.get(name) {
        Some(kind) if !kind.is_number() && !matches!(kind, RawValue::String("2dsphere")) => Error::user(
            ErrorCode::CannotCreateIndex,
            format!(
                "BadValue: Invalid index spec for time-series collection: {}. Indexes on measurement fields must be \
                 ascending or descending (numbers only), or '2dsphere': {name}",
                shell_text(key)
            ),
        ),
        _ => Error::user(
            ErrorCode::NotImplemented,
            format!(
                "indexes of time-series collections over '{name}', which is neither the timeField nor in the metaField, \
                 are not supported by Kilim"
            ),
        ),
    })
}

/// The specification of an index over buckets as users gave it; none where it is none of theirs.
pub fn index_of_measurements(series: &TimeSeries, spec: Document) -> Option<Document> {
    let key = series.key_of_measurements(spec.get("key")?.as_document()?)?;
    let shown = spec.iter().map(|(name, value)| match name {
        "key" => (name, Value::Document(key.clone())),
        _ => (name, value.to_value()),
    });
    Some(shown.collect())
}

/// An update of measurements: of the meta alone, of all that have it.
pub fn update(
    call: &mut Call<'_, '_>,
    view: &View,
    statement: &Statement<'_>,
    id: i32,
    variables: &Variables,
) -> Result<UpdateOutcome> {
    let series = view.time_series.as_deref().ok_or_else(|| view.is_no_collection())?;
    write::check_no_transaction(&call.unit, &view.namespace)?;
    let refused = |what: &str| Err(invalid(format!("Cannot perform {what}")));
    if !statement.multi {
        return refused("a non-multi update on a time-series collection");
    }
    if statement.upsert {
        return refused("an upsert on a time-series collection");
    }
    let Some(meta_field) = series.meta_field.as_deref() else {
        return refused("an update on a time-series collection that does not have a metaField");
    };
    let update = match statement.update {
        RawValue::Array(_) => {
            return refused("an update on a time-series collection using a pipeline update");
        }
        RawValue::Document(update) if update.iter().all(|(name, _)| name.starts_with('$')) => update,
        _ => return refused("an update on a time-series collection using a replacement document"),
    };
    if names_expr(statement.filter) {
        return Err(invalid(
            "Cannot use $expr when performing an update or delete on a time-series collection",
        ));
    }
    let scope = Scope::new(variables);
    let (filter, rest) = on_buckets(&Filter::parse_in(statement.filter, &scope)?, Some(meta_field));
    if rest.is_some() {
        return refused(&format!(
            "an update or delete on a time-series collection when querying on a field that is not the metaField \
             '{meta_field}'"
        ));
    }
    let Some(update) = update_of_buckets(series, update) else {
        return refused(&format!(
            "an update on a time-series collection which updates a field that is not the metaField '{meta_field}'"
        ));
    };
    let update = RawValue::Document(update.as_raw());
    let update = Update::parse_in(update, statement.array_filters, true, &scope)?;
    let request = UpdateRequest {
        filter: Arc::new(filter.unwrap_or(Filter::True)),
        update: &update,
        multi: true,
        upsert: false,
        hint: statement.hint.clone(),
        collation: variables.collation().clone(),
        now_ms: now_ms(),
        statement: id,
    };
    write::update_metas(&mut call.unit, view, &request)
}

/// Operators on the meta in the names of buckets; none where another field is among them.
fn update_of_buckets(series: &TimeSeries, update: RawDocument<'_>) -> Option<Document> {
    let mut out = Document::new();
    for (operator, fields) in update {
        let RawValue::Document(fields) = fields else {
            out.push(operator, fields);
            continue;
        };
        let mut renamed = Document::new();
        for (path, value) in fields {
            let path = series.path_in_bucket(path)?;
            match (operator, value) {
                ("$rename", RawValue::String(to)) => renamed.push(&path, &*series.path_in_bucket(to)?),
                _ => renamed.push(&path, value),
            }
        }
        out.push(operator, renamed);
    }
    Some(out)
}

/// Whether a filter has an `$expr`, at its top or within `$and`, `$or` and `$nor`.
fn names_expr(filter: RawDocument<'_>) -> bool {
    filter.iter().any(|(name, value)| match (name, value) {
        ("$expr", _) => true,
        ("$and" | "$or" | "$nor", RawValue::Array(children)) => {
            children.iter().filter_map(RawValue::as_document).any(names_expr)
        }
        _ => false,
    })
}

/// The part of `collStats` that is about buckets.
pub fn stats(view: &View, buckets: i64, bytes: i64) -> Document {
    let mut stats = doc! {"bucketsNs": view.on.to_string()};
    stats.push("bucketCount", number(buckets));
    if buckets > 0 {
        stats.push("avgBucketSize", number(bytes / buckets));
    }
    stats
}

fn invalid(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::InvalidOptions, message)
}
