//! Time-series collections, as commands name them: options, indexes and updates in the names of measurements, translated into
//! those of buckets.

use std::sync::Arc;

use kilim_bson::{Array, Document, Path, RawArray, RawDocument, RawValue, Value, array, doc};
use kilim_collation::Collation;
use kilim_engine::Namespace;
use kilim_engine::catalog::View;
use kilim_engine::index::{IndexSpec, OverMeasurements, Wildcard};
use kilim_engine::write::{self, UpdateOutcome, UpdateRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Dependencies, Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::text::document as shell_text;
use kilim_query::time_series::{Bucketing, Granularity, META, OnBounds, TimeSeries};
use kilim_query::update::Update;

use super::coll_stats::number;
use super::create_indexes::check_partial;
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
    parse_at("create.timeseries", namespace, argument)
}

/// The option `timeseries` of a command or a stage; `path` is where it stands.
pub fn parse_at(path: &'static str, namespace: &Namespace, argument: &Argument<'_>) -> Result<TimeSeries> {
    let (mut time, mut meta) = (None, None);
    let mut asked = AskedBucketing::default();
    for field in nested(path, argument.document()?) {
        match field.name {
            "timeField" => time = Some(field.string()?),
            "metaField" => meta = Some(field.string()?),
            _ if asked.take(&field)? => {}
            _ => return Err(field.unknown()),
        }
    }
    let time = required(time, path, "timeField")?;
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
    let bucketing = asked.bucketing()?.unwrap_or(Bucketing::By(Granularity::Seconds));
    Ok(TimeSeries { time_field: time.into(), meta_field: meta.map(Box::from), bucketing })
}

/// What `create` and `collMod` say of buckets.
#[derive(Default)]
pub struct AskedBucketing {
    granularity: Option<Granularity>,
    span: Option<i64>,
    rounding: Option<i64>,
}

impl AskedBucketing {
    /// Whether the field is one of these.
    pub fn take(&mut self, field: &Argument<'_>) -> Result<bool> {
        match field.name {
            "granularity" => self.granularity = Some(parse_granularity(field)?),
            "bucketMaxSpanSeconds" => self.span = Some(seconds(field)?),
            "bucketRoundingSeconds" => self.rounding = Some(seconds(field)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Either a granularity, with which the seconds may be given if they are its own, or both numbers of seconds, which are
    /// equal. None where nothing is said.
    pub fn bucketing(&self) -> Result<Option<Bucketing>> {
        match (self.granularity, self.span, self.rounding) {
            (None, None, None) => Ok(None),
            (None, Some(span), Some(rounding)) if span == rounding => {
                Ok(Some(Bucketing::Seconds(span as i32)))
            }
            (None, Some(_), Some(_)) => {
                Err(invalid("Timeseries 'bucketRoundingSeconds' needs to be equal to 'bucketMaxSpanSeconds'"))
            }
            (None, None, Some(_)) => Err(invalid(
                "Timeseries 'bucketMaxSpanSeconds' and 'bucketRoundingSeconds' need to be set alongside each other",
            )),
            (granularity, span, rounding) => {
                let granularity = granularity.unwrap_or(Granularity::Seconds);
                let unusual = |name: &str, usual: i32| {
                    format!(
                        "Timeseries '{name}' is not configurable to a value other than the default of {usual} for the \
                         provided granularity"
                    )
                };
                let (usual_span, usual_rounding) =
                    (granularity.span_seconds(), granularity.rounding_seconds());
                if span.is_some_and(|span| span != i64::from(usual_span)) {
                    return Err(Error::location(5_510_500, unusual("bucketMaxSpanSeconds", usual_span)));
                }
                if rounding.is_some_and(|rounding| rounding != i64::from(usual_rounding)) {
                    return Err(invalid(unusual("bucketRoundingSeconds", usual_rounding)));
                }
                Ok(Some(Bucketing::By(granularity)))
            }
        }
    }
}

/// How much time buckets may span at all.
fn seconds(field: &Argument<'_>) -> Result<i64> {
    let most = i64::from(Bucketing::SECONDS_MAX);
    let seconds = field.integer()?;
    let bound = match seconds {
        ..1 => ">= 1".to_owned(),
        seconds if seconds > most => format!("<= {most}"),
        seconds => return Ok(seconds),
    };
    let name = field.name;
    Err(Error::location(
        51024,
        format!("BSON field '{name}' value must be {bound}, actual value '{seconds}'"),
    ))
}

fn parse_granularity(field: &Argument<'_>) -> Result<Granularity> {
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

/// The specification of an index over measurements as one over their buckets, and apart from it the filter of a partial one.
/// `default` is the collection's collation.
pub fn index_of_buckets(
    series: &TimeSeries,
    spec: RawDocument<'_>,
    default: &Option<Collation>,
) -> Result<(Document, Option<Filter>)> {
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
    let key = key_of_buckets(series, key)?;
    let partial = match spec.get("partialFilterExpression") {
        Some(RawValue::Document(filter)) => Some(partial_of_buckets(series, filter, spec, default)?),
        _ => None,
    };
    if is_set("sparse") && partial.is_some() {
        return Err(Error::user(
            ErrorCode::CannotCreateIndex,
            "cannot mix \"partialFilterExpression\" and \"sparse\" options",
        ));
    }
    let others = spec.iter().filter(|(name, _)| partial.is_none() || *name != "partialFilterExpression");
    let given = others.map(|(name, value)| match name {
        "key" => (name, Value::Document(key.clone())),
        _ => (name, value.to_value()),
    });
    Ok((given.collect(), partial))
}

/// The filter of a partial index over measurements as one over their buckets.
fn partial_of_buckets(
    series: &TimeSeries,
    filter: RawDocument<'_>,
    spec: RawDocument<'_>,
    default: &Option<Collation>,
) -> Result<Filter> {
    let collation = match spec.get("collation") {
        Some(RawValue::Document(given)) => Collation::parse(given)?,
        _ => default.clone(),
    };
    let variables = Variables::default().under(collation);
    let parsed = Filter::parse_in(filter, &Scope::new(&variables))?;
    let mut named = Dependencies::default();
    parsed.dependencies(&mut named);
    let measured: Vec<Path> = named.fields.iter().map(|path| Path::parse(path)).collect();
    let bounds = OnBounds { span_millis: None, ..series.on_bounds(&measured, default) };
    let of_buckets = bounds.complete(&parsed).map_err(|path| {
        Error::location(
            5_916_301,
            format!(
                "the partialFilterExpression of a time-series collection asks of '{path}' what the bounds of buckets do not \
                 tell: numbers, texts, dates, ObjectIds and booleans can be compared, and $exists asked"
            ),
        )
    })?;
    // Of the meta no more can be asked than of other documents.
    check_partial(&parsed, 0)
        .map_err(|error| error.during(&format!("Error in specification {}", shell_text(spec))))?;
    Ok(of_buckets)
}

/// The key of an index over measurements as one over their buckets.
pub fn key_of_buckets(series: &TimeSeries, key: RawDocument<'_>) -> Result<Document> {
    let is_wildcard = |name: &str| Wildcard::is_wildcard(name) && series.path_in_bucket(name).is_none();
    if key.iter().any(|(name, _)| is_wildcard(name)) {
        return Err(Error::user(
            ErrorCode::CannotCreateIndex,
            "Wildcard indexes are not supported on time-series measurements",
        ));
    }
    series.key_in_buckets(key).map_err(|name| {
        let which = match *name == *series.time_field {
            true => "the time field must be ascending or descending (numbers only)",
            false => "measurement fields must be ascending or descending (numbers only), or '2dsphere'",
        };
        let key = shell_text(key);
        Error::user(
            ErrorCode::CannotCreateIndex,
            format!(
                "BadValue: Invalid index spec for time-series collection: {key}. Indexes on {which}: {name}"
            ),
        )
    })
}

/// What `collMod` asks of an index over measurements, in the names of buckets.
pub fn index_change_of_buckets(series: &TimeSeries, index: RawDocument<'_>) -> Result<Document> {
    if index.get("expireAfterSeconds").is_some() {
        return Err(invalid(
            "TTL indexes are not supported for time-series collections. Please refer to the documentation and use the \
             top-level 'expireAfterSeconds' option instead",
        ));
    }
    if let Some(option) = ["unique", "prepareUnique"].into_iter().find(|name| index.get(name).is_some()) {
        return Err(invalid(format!(
            "collMod: '{option}' of an index is not supported on time-series collections"
        )));
    }
    let fields = index.iter().map(|(name, value)| match (name, value) {
        ("keyPattern", RawValue::Document(key)) => Ok((name, Value::Document(key_of_buckets(series, key)?))),
        _ => Ok((name, value.to_value())),
    });
    fields.collect::<Result<Document>>()
}

/// Says of an index over buckets what it is over measurements, where it is over measured values. `given` is the specification in
/// the names of measurements, where a user gave it in these.
pub fn mark_over_measurements(
    series: &TimeSeries,
    spec: &mut IndexSpec,
    given: Option<RawDocument<'_>>,
) -> Result<()> {
    let filter = spec.partial.as_ref().map(|(_, filter)| filter);
    let over = OverMeasurements::new(Document::new(), &spec.key, filter);
    let is_measured =
        !over.places().is_empty() || over.paths().iter().any(|path| series.is_measured(path.as_str()));
    let has_other_filter = given.is_some() && filter.is_some();
    if !is_measured && !has_other_filter {
        return Ok(());
    }
    let original = match given {
        Some(given) => given.to_document(),
        None => index_of_measurements(series, spec.to_document()).ok_or_else(|| {
            Error::user(
                ErrorCode::NotImplemented,
                "an index over the bounds of buckets that is none over their measurements is not supported by Kilim",
            )
        })?,
    };
    let mut shown = doc! {};
    for name in ["key", "name"] {
        original.get(name).into_iter().for_each(|value| shown.push(name, value));
    }
    let others = original.iter().filter(|(name, _)| !matches!(*name, "v" | "key" | "name" | "collation"));
    others.for_each(|(name, value)| shown.push(name, value));
    shown.push("v", 2);
    if let (Some(_), Some(collation)) = (original.get("collation"), &spec.collation) {
        shown.push("collation", collation.to_document());
    }
    spec.measurements = Some(OverMeasurements::new(shown, &spec.key, filter));
    Ok(())
}

/// The specification of an index over buckets as users gave it; none where it is none of theirs.
pub fn index_of_measurements(series: &TimeSeries, spec: Document) -> Option<Document> {
    let original = spec.get("originalSpec").and_then(RawValue::as_document);
    let key = match original {
        Some(original) => original.get("key")?.as_document()?.to_document(),
        None => series.key_of_measurements(spec.get("key")?.as_document()?)?,
    };
    let filter = original.and_then(|original| original.get("partialFilterExpression"));
    // Where it was not given, only the buckets' index tells its version.
    let is_shown = |name: &str| match name {
        "originalSpec" => false,
        "2dsphereIndexVersion" => original.is_none_or(|original| original.get(name).is_some()),
        _ => true,
    };
    let shown = spec.iter().filter(|(name, _)| is_shown(name)).map(|(name, value)| match name {
        "key" => (name, Value::Document(key.clone())),
        "partialFilterExpression" => (name, filter.unwrap_or(value).to_value()),
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
    Filter::parse_in(statement.filter, &scope)?;
    let Some(filter) = filter_of_buckets(series, statement.filter) else {
        return refused(&format!(
            "an update or delete on a time-series collection when querying on a field that is not the metaField \
             '{meta_field}'"
        ));
    };
    let Some(update) = update_of_buckets(series, update) else {
        return refused(&format!(
            "an update on a time-series collection which updates a field that is not the metaField '{meta_field}'"
        ));
    };
    let update = RawValue::Document(update.as_raw());
    let update = Update::parse_in(update, statement.array_filters, true, &scope)?;
    let request = UpdateRequest {
        filter: Arc::new(Filter::parse_in(filter.as_raw(), &scope)?),
        update: &update,
        multi: true,
        upsert: false,
        hint: statement.hint.clone(),
        collation: variables.collation().clone(),
        now_ms: now_ms(),
        statement: id,
        projection: None,
    };
    write::update_metas(&mut call.unit, view, &request)
}

/// A filter that asks of the meta alone, in the names of buckets; none where it asks of something else.
fn filter_of_buckets(series: &TimeSeries, filter: RawDocument<'_>) -> Option<Document> {
    let mut out = Document::new();
    for (name, value) in filter {
        match (name, value) {
            ("$and" | "$or" | "$nor", RawValue::Array(children)) => {
                let renamed = |child: RawValue<'_>| filter_of_buckets(series, child.as_document()?);
                out.push(name, renamed_each(children, renamed)?);
            }
            ("$jsonSchema", RawValue::Document(schema)) => {
                out.push(name, schema_of_buckets(series, schema)?);
            }
            (name, value) if name.starts_with('$') => out.push(name, value),
            (path, value) => out.push(&series.path_in_bucket(path)?, value),
        }
    }
    Some(out)
}

/// A schema of measurements that says something of their meta alone. One that counts fields or minds those that it does not
/// name is about whole measurements.
fn schema_of_buckets(series: &TimeSeries, schema: RawDocument<'_>) -> Option<Document> {
    let is_meta = |name: &str| series.meta_field.as_deref() == Some(name);
    let renamed = |child: RawValue<'_>| schema_of_buckets(series, child.as_document()?);
    let mut out = Document::new();
    for (keyword, value) in schema {
        match (keyword, value) {
            ("properties", RawValue::Document(fields)) => {
                let mut of_meta = Document::new();
                for (name, value) in fields {
                    of_meta.push(is_meta(name).then_some(META)?, value);
                }
                out.push(keyword, of_meta);
            }
            ("required", RawValue::Array(names)) => {
                if !names.iter().all(|name| name.as_str().is_some_and(is_meta)) {
                    return None;
                }
                out.push(keyword, array![META]);
            }
            ("allOf" | "anyOf" | "oneOf", RawValue::Array(children)) => {
                out.push(keyword, renamed_each(children, renamed)?);
            }
            ("not", child) => out.push(keyword, renamed(child)?),
            (
                "patternProperties"
                | "additionalProperties"
                | "minProperties"
                | "maxProperties"
                | "dependencies"
                | "enum",
                _,
            ) => return None,
            (keyword, value) => out.push(keyword, value),
        }
    }
    Some(out)
}

fn renamed_each(children: RawArray<'_>, renamed: impl Fn(RawValue<'_>) -> Option<Document>) -> Option<Value> {
    let children: Option<Array> = children.iter().map(|child| renamed(child).map(Value::Document)).collect();
    children.map(Value::Array)
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
