//! The declaration as it is written.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::accumulator::{self, Accumulator};
use kilim_query::expression::{Expression, Scope, Variables};

use super::bucketing::{Bucketing, Layout, Stat};
use super::{Bucket, PLACE};
use crate::argument;
use crate::kind::Kind;

/// A position in a bucket has 24 bits on disk; fewer rows are rewritten at once.
const COUNT_MAX: i64 = 100_000;
/// A bucket is one record, and is rewritten as a whole.
const BYTES_MAX: i64 = 8 * 1024 * 1024;
/// A year, as for MongoDB's time series.
const SPAN_SECONDS_MAX: i64 = 31_536_000;

/// As for MongoDB's time series, in seconds.
const GRANULARITIES: [(&str, i64); 3] = [("seconds", 3_600), ("minutes", 86_400), ("hours", 2_592_000)];
const LAYOUTS: [(&str, Layout); 2] = [("columns", Layout::Columns), ("rows", Layout::Rows)];
const STATS: [(&str, accumulator::Kind); 4] = [
    ("min", accumulator::Kind::Min),
    ("max", accumulator::Kind::Max),
    ("sum", accumulator::Kind::Sum),
    ("avg", accumulator::Kind::Avg),
];

pub(in crate::kind) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    let bad = |message: &str| Err(Error::user(ErrorCode::BadValue, message));
    let (mut time, mut meta, mut order) = (None, None, None);
    let (mut granularity, mut span, mut max_count, mut max_bytes) = (None, None, None, 128_000);
    let (mut stats, mut unique, mut expire, mut layout) = (Vec::new(), false, None, Layout::Columns);
    for (name, value) in spec {
        match name {
            "timeField" => time = Some(parse_name(name, value)?),
            "metaField" => meta = Some(parse_name(name, value)?),
            "order" => order = Some(parse_order(name, value)?),
            // Null takes one back that was declared before, since only one of the two may be given.
            "granularity" | "bucketMaxSpanSeconds" if is_null(value) => {}
            "granularity" => granularity = Some(argument::choice(PLACE, name, value, &GRANULARITIES)?),
            "bucketMaxSpanSeconds" => span = Some(argument::whole(PLACE, name, value, 1, SPAN_SECONDS_MAX)?),
            "maxCount" => max_count = Some(argument::whole(PLACE, name, value, 2, COUNT_MAX)? as usize),
            "maxBytes" => max_bytes = argument::whole(PLACE, name, value, 256, BYTES_MAX)? as usize,
            "stats" => stats = parse_stats(argument::document(PLACE, name, value)?)?,
            "unique" => unique = argument::boolean(PLACE, name, value)?,
            "expireAfterSeconds" if is_null(value) => {}
            "expireAfterSeconds" => {
                expire = Some(argument::whole(PLACE, name, value, 0, i64::from(i32::MAX))?);
            }
            "layout" => layout = argument::choice(PLACE, name, value, &LAYOUTS)?,
            _ => return Err(argument::unknown(PLACE, name)),
        }
    }
    if granularity.is_some() && span.is_some() {
        return bad(
            "'bucket.granularity' and 'bucket.bucketMaxSpanSeconds' say the same: give one of them, and null for the \
             other to take it back",
        );
    }
    let seconds = granularity.or(span);
    let (field, span_millis) = match (time, order) {
        (Some(_), Some(_)) => {
            return bad(
                "'bucket.order' is for buckets without a 'timeField': buckets by time are in the order of time",
            );
        }
        (Some(time), None) => (time, Some(seconds.unwrap_or(GRANULARITIES[0].1) * 1000)),
        (None, _) if seconds.is_some() || expire.is_some() => {
            return bad(
                "'bucket.granularity', 'bucket.bucketMaxSpanSeconds' and 'bucket.expireAfterSeconds' need a \
                 'bucket.timeField'",
            );
        }
        (None, order) => {
            if max_count.is_none() {
                return Err(argument::missing(PLACE, "maxCount"));
            }
            (order.unwrap_or_else(|| "_id".into()), None)
        }
    };
    if meta.as_ref() == Some(&field) {
        return bad(
            "'bucket.metaField' must be another field than the one by which measurements are ordered",
        );
    }
    let bucketing = Bucketing {
        field,
        span_millis,
        meta,
        max_count: max_count.unwrap_or(1000),
        max_bytes,
        stats,
        unique,
        expire_after_seconds: expire,
        layout,
        fingerprint: fingerprint(spec),
    };
    Ok(Arc::new(Bucket { bucketing: Arc::new(bucketing) }))
}

fn is_null(value: RawValue<'_>) -> bool {
    matches!(value, RawValue::Null)
}

/// The name of a field of the document itself, which is not `_id`.
fn parse_name(name: &str, value: RawValue<'_>) -> Result<Box<str>> {
    let given = parse_order(name, value)?;
    match &*given {
        "_id" => Err(no_field(name, &given)),
        _ => Ok(given),
    }
}

fn parse_order(name: &str, value: RawValue<'_>) -> Result<Box<str>> {
    let given = argument::text(PLACE, name, value)?;
    let is_path = given.is_empty() || given.contains('.') || given.starts_with('$') || given.contains('\0');
    if is_path { Err(no_field(name, given)) } else { Ok(given.into()) }
}

fn no_field(name: &str, given: &str) -> Error {
    Error::user(
        ErrorCode::BadValue,
        format!("'{PLACE}.{name}' is '{given}', but must be the name of a field of the document itself"),
    )
}

fn parse_stats(given: RawDocument<'_>) -> Result<Vec<Stat>> {
    let variables = Variables::default();
    let scope = Scope::new(&variables);
    let mut stats: Vec<Stat> = Vec::new();
    for (path, value) in given {
        if path.is_empty() || path.starts_with('$') || path.split('.').any(str::is_empty) {
            return Err(no_field("stats", path));
        }
        let words = value.as_array().ok_or_else(|| {
            Error::user(
                ErrorCode::TypeMismatch,
                format!("'{PLACE}.stats.{path}' must be an array of min, max, sum and avg"),
            )
        })?;
        let input = Expression::parse(RawValue::String(&format!("${path}")), &scope)?;
        let mut of = Vec::new();
        for word in words.iter() {
            let kind = argument::choice(PLACE, &format!("stats.{path}"), word, &STATS)?;
            let name = STATS.iter().find(|(_, other)| *other == kind).map_or("", |(name, _)| *name);
            if of.iter().any(|(known, _)| *known == name) {
                continue;
            }
            of.push((name, Accumulator::new(kind, input.clone())));
        }
        stats.push(Stat { path: path.into(), of });
    }
    Ok(stats)
}

/// By what a bucket tells whether it was made by this declaration. On disk: FNV-1a over 64 bits.
fn fingerprint(spec: RawDocument<'_>) -> i64 {
    const ASIDE: [&str; 2] = ["unique", "expireAfterSeconds"];
    let of: Document = spec
        .iter()
        .filter(|(name, value)| !ASIDE.contains(name) && !is_null(*value))
        .map(|(name, value)| (name, value.to_value()))
        .collect();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in of.as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash as i64
}
