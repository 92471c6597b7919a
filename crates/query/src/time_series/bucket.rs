//! A bucket that measurements are put into.

use kilim_bson::{
    ArrayBuilder, Collator, Document, ObjectId, RawDocument, RawValue, Value, Writer, identical, parse_index,
};

use super::bounds::Bounds;
use super::{META, Rows, TimeSeries};

/// More measurements do not go into a bucket, as on MongoDB.
pub const MEASUREMENTS_MAX: usize = 1000;
/// A bucket that would be larger takes no further measurement, as on MongoDB.
const BYTES_MAX: usize = 128_000;
/// The form in which buckets are written. On disk.
const VERSION: i32 = 1;

/// One bucket, column by column.
pub struct Bucket {
    id: ObjectId,
    meta: Option<Value>,
    /// When it begins.
    begin: i64,
    columns: Vec<Column>,
    count: usize,
    bytes: usize,
}

/// The values of one field, each under the number of its measurement.
struct Column {
    name: Box<str>,
    values: Writer,
    bounds: Bounds,
}

impl Bucket {
    /// An empty bucket for measurements from `millis` on.
    pub fn new(series: &TimeSeries, meta: Option<Value>, millis: i64) -> Bucket {
        let begin = series.begin(millis);
        // The first four bytes tell when it begins, so that buckets lie in the order of time.
        let mut id = ObjectId::new().to_bytes();
        id[..4].copy_from_slice(&((begin.div_euclid(1000)) as u32).to_be_bytes());
        let bytes = match &meta {
            Some(Value::Document(document)) => document.as_bytes().len(),
            Some(Value::String(text)) => text.len(),
            _ => 0,
        };
        Bucket { id: ObjectId::from_bytes(id), meta, begin, columns: Vec::new(), count: 0, bytes }
    }

    /// A bucket as it is stored. None where it is not of the form that is written here.
    pub fn decode(series: &TimeSeries, stored: RawDocument<'_>) -> Option<Bucket> {
        let RawValue::ObjectId(id) = stored.get("_id")? else { return None };
        let control = stored.get("control")?.as_document()?;
        let RawValue::Int32(VERSION) = control.get("version")? else { return None };
        let (min, max) = (control.get("min")?.as_document()?, control.get("max")?.as_document()?);
        let RawValue::DateTime(begin) = min.get(&series.time_field)? else { return None };
        let mut columns = Vec::new();
        let mut count = 0;
        for (name, values) in stored.get("data")?.as_document()? {
            let values = values.as_document()?;
            let bounds = match (min.get(name), max.get(name)) {
                (Some(min), Some(max)) => Bounds { min: min.to_value(), max: max.to_value() },
                // Bounds of a field without a name are not kept.
                _ => Bounds::of(values.iter().next()?.1),
            };
            if name == &*series.time_field {
                count = values.iter().count();
            }
            columns.push(Column { name: name.into(), values: Writer::resume(values.to_document()), bounds });
        }
        let meta = stored.get(META).map(RawValue::to_value);
        Some(Bucket { id, meta, begin, columns, count, bytes: stored.as_bytes().len() })
    }

    /// Whether a document is a bucket of the form that is written here, with bounds that hold all its measurements.
    pub fn is_sound(series: &TimeSeries, stored: RawDocument<'_>, collator: Option<&dyn Collator>) -> bool {
        let Some(bucket) = Bucket::decode(series, stored) else { return false };
        let numbered = |values: RawDocument<'_>| {
            values.iter().try_fold(None, |last, (name, _)| {
                let number = parse_index(name)?;
                (Some(number) > last).then_some(Some(number))
            })
        };
        let data = stored.get("data").and_then(RawValue::as_document).unwrap_or(RawDocument::empty());
        let columns = || data.iter().map(|(_, values)| values.as_document());
        let times = data.get(&series.time_field).and_then(RawValue::as_document);
        let last = times.and_then(numbered).flatten();
        let in_order = columns().all(|values| values.and_then(numbered).is_some_and(|number| number <= last));
        let rows: Vec<Document> =
            Rows::of(stored, &series.time_field, series.meta_field.as_deref(), None).collect();
        let values = || columns().flatten().map(|values| values.iter().count()).sum::<usize>();
        let meta = usize::from(bucket.meta.is_some() && series.meta_field.is_some());
        // Every value belongs to a measurement, every measurement has a time within the span.
        let complete = values() == rows.iter().map(|row| row.iter().count() - meta).sum::<usize>();
        let in_span = |row: &Document| {
            let millis = series.time_of(row.as_raw());
            millis.is_some_and(|at| (0..series.span_millis()).contains(&at.saturating_sub(bucket.begin)))
        };
        let begin = bucket.begin;
        let again = Bucket { columns: Vec::new(), count: 0, bytes: 0, begin, id: bucket.id, meta: None };
        let again = again.with(series, rows.iter().map(Document::as_raw), collator);
        let covered = again.columns.iter().all(|made| {
            let found = bucket.columns.iter().find(|column| column.name == made.name);
            found.is_some_and(|column| made.name.is_empty() || column.bounds.cover(&made.bounds, collator))
        });
        in_order && complete && !rows.is_empty() && rows.iter().all(in_span) && covered
    }

    /// Whether a measurement of this meta and time may go into it.
    pub fn takes(
        &self,
        series: &TimeSeries,
        meta: &Option<Value>,
        millis: i64,
        measurement: RawDocument<'_>,
    ) -> bool {
        let same_meta = match (&self.meta, meta) {
            (Some(own), Some(other)) => identical(own.as_raw(), other.as_raw()),
            (own, other) => own.is_none() && other.is_none(),
        };
        let in_span = millis >= self.begin && millis.saturating_sub(self.begin) < series.span_millis();
        let has_room = self.count == 0
            || (self.count < MEASUREMENTS_MAX && self.bytes + measurement.as_bytes().len() <= BYTES_MAX);
        let is_alike = |(at, (name, value)): (usize, (&str, RawValue<'_>))| {
            self.column(at, name).is_none_or(|at| self.columns[at].bounds.speak_of(value))
        };
        same_meta && in_span && has_room && columns_of(series, measurement).enumerate().all(is_alike)
    }

    /// Puts a measurement behind the others.
    pub fn push(
        &mut self,
        series: &TimeSeries,
        measurement: RawDocument<'_>,
        collator: Option<&dyn Collator>,
    ) {
        for (at, (name, value)) in columns_of(series, measurement).enumerate() {
            let column = match self.column(at, name) {
                Some(at) => {
                    self.columns[at].bounds.include(value, collator);
                    &mut self.columns[at]
                }
                None => {
                    let mut bounds = Bounds::of(value);
                    if *name == *series.time_field {
                        bounds.include(RawValue::DateTime(self.begin), collator);
                    }
                    self.columns.push(Column { name: name.into(), values: Writer::new(), bounds });
                    self.columns.last_mut().expect("pushed just now")
                }
            };
            let before = column.values.len();
            column.values.append_index(self.count, value);
            self.bytes += column.values.len() - before;
        }
        self.count += 1;
    }

    /// The bucket with these measurements in place of its own. Its name and its beginning stay.
    pub fn with<'d>(
        self,
        series: &TimeSeries,
        measurements: impl IntoIterator<Item = RawDocument<'d>>,
        collator: Option<&dyn Collator>,
    ) -> Bucket {
        let mut bucket = Bucket { columns: Vec::new(), count: 0, bytes: 0, ..self };
        measurements.into_iter().for_each(|measurement| bucket.push(series, measurement, collator));
        bucket
    }

    /// How many measurements it has.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// As it is stored.
    pub fn into_document(self) -> Document {
        let mut out = Writer::with_capacity(self.bytes + self.bytes / 4 + 256);
        out.append("_id", RawValue::ObjectId(self.id));
        out.open_document("control");
        out.append("version", RawValue::Int32(VERSION));
        for (name, bound) in [("min", bound_min as fn(&Bounds) -> RawValue<'_>), ("max", bound_max)] {
            out.open_document(name);
            for column in self.columns.iter().filter(|column| !column.name.is_empty()) {
                out.append(&column.name, bound(&column.bounds));
            }
            out.close();
        }
        out.close();
        if let Some(meta) = &self.meta {
            out.append(META, meta.as_raw());
        }
        out.open_document("data");
        for column in self.columns {
            out.append(&column.name, RawValue::Document(column.values.finish().as_raw()));
        }
        out.close();
        out.finish()
    }

    /// Which column a field has. Measurements mostly have their fields in the same order, so it is first looked for at
    /// the field's own place.
    fn column(&self, at: usize, name: &str) -> Option<usize> {
        let is_there = |column: &Column| *column.name == *name;
        match self.columns.get(at).is_some_and(is_there) {
            true => Some(at),
            false => self.columns.iter().position(is_there),
        }
    }
}

fn bound_min(bounds: &Bounds) -> RawValue<'_> {
    bounds.min.as_raw()
}

fn bound_max(bounds: &Bounds) -> RawValue<'_> {
    bounds.max.as_raw()
}

/// The fields of a measurement that have columns: all but the meta. Of a name that is there twice, the first counts.
fn columns_of<'d>(
    series: &TimeSeries,
    measurement: RawDocument<'d>,
) -> impl Iterator<Item = (&'d str, RawValue<'d>)> {
    let meta = series.meta_field.as_deref();
    measurement.iter().enumerate().filter_map(move |(at, (name, value))| {
        let again = || measurement.iter().take(at).any(|(earlier, _)| earlier == name);
        (Some(name) != meta && !again()).then_some((name, value))
    })
}

/// A value with the fields of its documents in the order of their names.
pub(super) fn in_order(value: RawValue<'_>) -> Value {
    match value {
        RawValue::Document(document) => {
            let mut fields: Vec<(&str, RawValue<'_>)> = document.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            Value::Document(fields.into_iter().map(|(name, value)| (name, in_order(value))).collect())
        }
        RawValue::Array(array) => {
            let mut out = ArrayBuilder::new();
            array.iter().for_each(|value| out.push(in_order(value)));
            Value::Array(out.finish())
        }
        other => other.to_value(),
    }
}
