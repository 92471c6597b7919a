//! `$_internalUnpackBucket`: the measurements of buckets. It is what a time-series collection puts before a pipeline.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, ErrorCode, Result};

use super::optimise::divide;
use super::{Behaviour, Context, Modified, Paths, Stage};
use crate::filter::Filter;
use crate::sort::Sort;
use crate::time_series::{META, OnBounds, Opened, Rows, Walk, may_hold};

#[derive(Debug, Clone)]
pub struct UnpackBucket {
    pub time_field: Box<str>,
    pub meta_field: Option<Box<str>>,
    pub(super) span_seconds: i32,
    /// The bounds of texts are those of their bytes.
    pub texts_by_bytes: bool,
    /// What measurements must satisfy behind this stage: a bucket that can hold none such is not unpacked.
    pub filter: Option<Arc<Filter>>,
    /// Which fields later stages read, where these are not all.
    pub wanted: Option<Arc<[Box<str>]>>,
    /// Which measurements of each meta later stages look at, where these are not all.
    pub foremost: Option<Foremost>,
    /// In which order buckets are unpacked, where that is of use.
    pub order: Option<InOrder>,
}

/// The order of fields of the meta and then of the time.
#[derive(Debug, Clone)]
pub struct InOrder {
    pub(super) sort: Arc<Sort>,
    /// The time descends.
    pub(super) is_backward: bool,
}

/// Measurements of the best time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foremost {
    Latest,
    Earliest,
}

impl Foremost {
    pub(super) fn opposite(self) -> Foremost {
        match self {
            Foremost::Latest => Foremost::Earliest,
            Foremost::Earliest => Foremost::Latest,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Foremost::Latest => "latest",
            Foremost::Earliest => "earliest",
        }
    }

    /// How a time compares to another: the greater is the better.
    pub fn compare(self, one: i64, other: i64) -> Ordering {
        match self {
            Foremost::Latest => one.cmp(&other),
            Foremost::Earliest => other.cmp(&one),
        }
    }
}

pub(super) fn parse(name: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(options) = value else {
        let kind = value.element_type().name();
        return Err(Error::location(
            5_346_500,
            format!("$_internalUnpackBucket specification must be an object, got: {kind}"),
        ));
    };
    let (mut time_field, mut meta_field, mut span_seconds) = (None, None, 0);
    for (option, value) in options {
        match (option, value) {
            ("timeField", RawValue::String(field)) => time_field = Some(field.into()),
            ("metaField", RawValue::String(field)) => meta_field = Some(field.into()),
            ("bucketMaxSpanSeconds", RawValue::Int32(seconds)) if seconds > 0 => span_seconds = seconds,
            _ => {
                return Err(Error::user(
                    ErrorCode::NotImplemented,
                    format!("{name} with this {option} is not supported"),
                ));
            }
        }
    }
    let (Some(time_field), true) = (time_field, span_seconds > 0) else {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!("{name} needs the fields timeField and bucketMaxSpanSeconds"),
        ));
    };
    out.push(Stage::UnpackBucket(Arc::new(UnpackBucket {
        time_field,
        meta_field,
        span_seconds,
        texts_by_bytes: false,
        filter: None,
        wanted: None,
        foremost: None,
        order: None,
    })));
    Ok(())
}

impl UnpackBucket {
    /// How far apart the measurements of a bucket are at most.
    pub fn span_millis(&self) -> i64 {
        i64::from(self.span_seconds) * 1000
    }

    /// The measurements of a bucket; none where its bounds exclude that one of them is asked for.
    pub fn rows(&self, bucket: RawDocument<'_>) -> Result<Option<Rows>> {
        self.open(bucket)?.map(|opened| self.rows_of(opened)).transpose()
    }

    /// The same of a bucket that was opened.
    pub fn rows_of(&self, opened: Opened<'_>) -> Result<Rows> {
        opened.into_rows(&self.time_field, self.meta_field.as_deref(), self.wanted.as_deref())
    }

    /// The measurements of a bucket as the values of the wanted fields, where it can be read so.
    pub fn walk<'a>(&self, opened: &'a Opened<'_>) -> Option<Walk<'a>> {
        opened.walk(&self.time_field, self.meta_field.as_deref(), self.wanted.as_deref()?)
    }

    /// The columns of a bucket; none where its bounds exclude that one of its measurements is asked for.
    pub fn open<'b>(&self, bucket: RawDocument<'b>) -> Result<Option<Opened<'b>>> {
        let meta_field = self.meta_field.as_deref();
        let is_passed_over =
            |filter: &Arc<Filter>| !may_hold(filter, bucket, meta_field, self.texts_by_bytes);
        if self.filter.as_ref().is_some_and(is_passed_over) {
            return Ok(None);
        }
        Opened::of(bucket, &self.time_field, meta_field, self.wanted.as_deref()).map(Some)
    }

    /// No measurement of a bucket sorts before this key; an empty one where its bounds do not tell.
    pub fn first_key(&self, bucket: RawDocument<'_>, order: &InOrder) -> Vec<u8> {
        let mut key = Vec::new();
        let foremost = if order.is_backward { Foremost::Latest } else { Foremost::Earliest };
        let Some(millis) = self.best_bound(bucket, foremost) else { return key };
        let mut first = Writer::new();
        first.append(&self.time_field, RawValue::DateTime(millis));
        if let Some((name, meta)) = self.meta_field.as_deref().zip(bucket.get(META)) {
            first.append(name, meta);
        }
        // A meta that cannot be sorted by is told of where its measurements are.
        if order.sort.key_of(first.finish().as_raw(), &mut key).is_err() {
            key.clear();
        }
        key
    }

    /// No measurement of a bucket has a better time, as its bounds tell; none where they do not.
    pub fn best_bound(&self, bucket: RawDocument<'_>, foremost: Foremost) -> Option<i64> {
        let side = match foremost {
            Foremost::Latest => "max",
            Foremost::Earliest => "min",
        };
        let bounds = bucket.get("control")?.as_document()?.get(side)?.as_document()?;
        match bounds.get(&self.time_field)? {
            RawValue::DateTime(millis) => Some(millis),
            _ => None,
        }
    }
}

impl Behaviour for UnpackBucket {
    fn to_document(&self) -> Document {
        let mut options = Document::new();
        if let Some(wanted) = &self.wanted {
            let names = wanted.iter().map(|name| Value::from(&**name));
            options.push("include", Value::Array(names.collect()));
        }
        options.push("timeField", &*self.time_field);
        if let Some(meta) = &self.meta_field {
            options.push("metaField", &**meta);
        }
        options.push("bucketMaxSpanSeconds", self.span_seconds);
        if let Some(filter) = &self.filter {
            options.push("boundsMayMatch", filter.to_document());
        }
        if let Some(foremost) = self.foremost {
            options.push("ofEachMeta", foremost.name());
        }
        if let Some(order) = &self.order {
            let mut by = Writer::new();
            order.sort.parts().iter().for_each(|part| part.append_to(&mut by));
            options.push("inOrderOf", by.finish());
        }
        [("$_internalUnpackBucket", Value::Document(options))].into_iter().collect()
    }

    fn modified(&self) -> Modified {
        let renamed = self.meta_field.iter().map(|name| (name.clone(), META.into()));
        Modified::AllBut(Paths { paths: Vec::new(), renamed: renamed.collect() })
    }
}

/// A filter on measurements in two parts: what it asks of the meta, in the names of buckets, and the rest.
pub fn on_buckets(filter: &Filter, meta_field: Option<&str>) -> (Option<Filter>, Option<Filter>) {
    let renamed = meta_field.map(|name| (name.into(), META.into()));
    divide(filter, renamed.into_iter().collect())
}

/// What a filter on measurements says of their buckets, for a search among these: weaker than the filter.
pub fn weaker_on_buckets(filter: &Filter, bounds: &OnBounds<'_>) -> Filter {
    let (meta, rest) = on_buckets(filter, bounds.meta_field);
    let told = rest.and_then(|rest| bounds.weaker(&rest));
    Filter::all_of(meta.into_iter().chain(told).collect())
}
