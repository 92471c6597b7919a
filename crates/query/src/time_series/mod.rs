//! Time series: measurements that are kept in buckets, one document for many.
//!
//! A bucket has a column for each field (`bucket`), and the smallest and largest value of each (`bounds`). Readers
//! see measurements (`rows`). The form is version 1 of MongoDB's: `{_id, control: {version, min, max}, meta, data}`. Those in
//! which MongoDB compresses columns (`column`) are read too.

mod bounds;
mod bucket;
mod column;
mod keys;
mod rows;
mod weaker;

use kilim_bson::{Document, RawDocument, RawValue, Value};

pub use bucket::{Bucket, Fields, MEASUREMENTS_MAX};
pub use column::values_of_field;
pub use keys::{bounded, of_column};
pub use rows::{Opened, Rows, Walk};
pub use weaker::{OnBounds, may_hold};

/// The field in which a bucket has what all its measurements share.
pub const META: &str = "meta";

/// What a collection of measurements is told when it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSeries {
    pub time_field: Box<str>,
    /// Measurements in which this field is alike go into the same buckets.
    pub meta_field: Option<Box<str>>,
    pub bucketing: Bucketing,
}

/// How much time a bucket spans, and when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucketing {
    By(Granularity),
    /// So many seconds, from a whole multiple of them on.
    Seconds(i32),
}

impl Bucketing {
    /// How much time a bucket may span if users say it, as on MongoDB: a year.
    pub const SECONDS_MAX: i32 = 365 * 24 * 60 * 60;

    /// How much time a bucket spans at most.
    pub fn span_seconds(self) -> i32 {
        match self {
            Bucketing::By(granularity) => granularity.span_seconds(),
            Bucketing::Seconds(seconds) => seconds,
        }
    }

    /// A bucket begins at a whole multiple of this.
    pub fn rounding_seconds(self) -> i32 {
        match self {
            Bucketing::By(granularity) => granularity.rounding_seconds(),
            Bucketing::Seconds(seconds) => seconds,
        }
    }

    /// Whether buckets made in this way may lie beside those made in the other: searches rely on how much one spans.
    pub fn widens(self, other: Bucketing) -> bool {
        self.span_seconds() >= other.span_seconds() && self.rounding_seconds() >= other.rounding_seconds()
    }
}

/// How far apart measurements usually are, which decides how much time a bucket spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Granularity {
    Seconds,
    Minutes,
    Hours,
}

impl Granularity {
    pub const ALL: [Granularity; 3] = [Granularity::Seconds, Granularity::Minutes, Granularity::Hours];

    pub fn name(self) -> &'static str {
        match self {
            Granularity::Seconds => "seconds",
            Granularity::Minutes => "minutes",
            Granularity::Hours => "hours",
        }
    }

    pub fn named(name: &str) -> Option<Granularity> {
        Granularity::ALL.into_iter().find(|granularity| granularity.name() == name)
    }

    pub fn span_seconds(self) -> i32 {
        match self {
            Granularity::Seconds => 60 * 60,
            Granularity::Minutes => 24 * 60 * 60,
            Granularity::Hours => 30 * 24 * 60 * 60,
        }
    }

    pub fn rounding_seconds(self) -> i32 {
        match self {
            Granularity::Seconds => 60,
            Granularity::Minutes => 60 * 60,
            Granularity::Hours => 24 * 60 * 60,
        }
    }
}

impl TimeSeries {
    /// Reads what [`TimeSeries::to_document`] wrote.
    pub fn decode(options: RawDocument<'_>) -> Option<TimeSeries> {
        let text = |name| options.get(name).and_then(RawValue::as_str);
        let bucketing = match (text("granularity"), options.get("bucketRoundingSeconds")) {
            (Some(name), _) => Bucketing::By(Granularity::named(name)?),
            (None, Some(RawValue::Int32(seconds))) if seconds > 0 => Bucketing::Seconds(seconds),
            _ => return None,
        };
        Some(TimeSeries {
            time_field: text("timeField")?.into(),
            meta_field: text("metaField").map(Box::from),
            bucketing,
        })
    }

    /// As listCollections shows it.
    pub fn to_document(&self) -> Document {
        let mut document = self.fields();
        match self.bucketing {
            Bucketing::By(granularity) => {
                document.push("granularity", granularity.name());
                document.push("bucketMaxSpanSeconds", granularity.span_seconds());
            }
            Bucketing::Seconds(seconds) => {
                document.push("bucketMaxSpanSeconds", seconds);
                document.push("bucketRoundingSeconds", seconds);
            }
        }
        document
    }

    /// The stage that makes measurements of buckets.
    pub fn unpacking(&self) -> Document {
        let mut document = self.fields();
        document.push("bucketMaxSpanSeconds", self.bucketing.span_seconds());
        [("$_internalUnpackBucket", Value::Document(document))].into_iter().collect()
    }

    fn fields(&self) -> Document {
        let mut document = Document::new();
        document.push("timeField", &*self.time_field);
        if let Some(meta) = &self.meta_field {
            document.push("metaField", &**meta);
        }
        document
    }

    /// When a measurement was taken; none where that is missing or no date.
    pub fn time_of(&self, measurement: RawDocument<'_>) -> Option<i64> {
        match measurement.get(&self.time_field)? {
            RawValue::DateTime(millis) => Some(millis),
            _ => None,
        }
    }

    /// What a measurement shares with others, in the form in which it is compared and stored: fields in the order of
    /// their names.
    pub fn meta_of(&self, measurement: RawDocument<'_>) -> Option<Value> {
        let meta = measurement.get(self.meta_field.as_deref()?)?;
        Some(bucket::in_order(meta))
    }

    /// The bytes of what a measurement shares with others, as it has them: the same in another order are other bytes. Empty
    /// where it has none.
    pub fn spelling_of_meta<'d>(&self, measurement: RawDocument<'d>) -> &'d [u8] {
        let Some(name) = self.meta_field.as_deref() else { return &[] };
        let mut fields = measurement.iter();
        while let Some(field) = fields.next_element() {
            if field.name == name {
                return field.bytes;
            }
        }
        &[]
    }

    /// When a bucket begins whose first measurement was taken then.
    pub fn begin(&self, millis: i64) -> i64 {
        let rounding = i64::from(self.bucketing.rounding_seconds()) * 1000;
        millis.saturating_sub(millis.rem_euclid(rounding))
    }

    pub fn span_millis(&self) -> i64 {
        i64::from(self.bucketing.span_seconds()) * 1000
    }
}
