//! A bucket that measurements are put into.

use std::collections::{HashMap, HashSet};

use kilim_bson::{
    ArrayBuilder, COLUMN_SUBTYPE, Collator, Document, ElementType, ObjectId, RawDocument, RawValue, Value,
    Writer, encode_column, identical, parse_index,
};

use super::bounds::Bounds;
use super::column::{COMPRESSED_VERSION, VERSION, columns_of as stored_columns};
use super::{META, Rows, TimeSeries};

/// More measurements do not go into a bucket, as on MongoDB.
pub const MEASUREMENTS_MAX: usize = 1000;
/// A bucket that would be larger takes no further measurement, as on MongoDB.
const BYTES_MAX: usize = 128_000;

/// Up to so many names are compared one by one. Of more, as in a measurement of a hundred thousand fields, a table is made.
const FEW: usize = 32;

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

/// The fields of the measurement that was looked at last. One serves for many measurements.
#[derive(Default)]
pub struct Fields<'d>(Vec<Field<'d>>);

struct Field<'d> {
    /// None where no measurement of the bucket has it.
    column: Option<usize>,
    name: &'d str,
    value: RawValue<'d>,
}

impl Bucket {
    /// An empty bucket for measurements from `begin` on, which is a [beginning](TimeSeries::begin).
    pub fn new(meta: Option<Value>, begin: i64) -> Bucket {
        let bytes = bytes_of(&meta);
        Bucket { id: new_id(begin), meta, begin, columns: Vec::new(), count: 0, bytes }
    }

    /// A bucket as it is stored, compressed or not. None where it is of an unknown form.
    pub fn decode(series: &TimeSeries, stored: RawDocument<'_>) -> Option<Bucket> {
        let RawValue::ObjectId(id) = stored.get("_id")? else { return None };
        let control = stored.get("control")?.as_document()?;
        let (min, max) = (control.get("min")?.as_document()?, control.get("max")?.as_document()?);
        let RawValue::DateTime(begin) = min.get(&series.time_field)? else { return None };
        let mut columns = Vec::new();
        let mut count = 0;
        let meta = stored.get(META).map(RawValue::to_value);
        let mut bytes = bytes_of(&meta);
        for (name, column) in stored_columns(stored)? {
            let bounds = match (min.get(name), max.get(name)) {
                (Some(min), Some(max)) => Bounds { min: min.to_value(), max: max.to_value() },
                // Bounds of a field without a name are not kept.
                _ => Bounds::of(column.values().iter().next()?.1),
            };
            if name == &*series.time_field {
                count = count_of(column.values());
            }
            let values = column.into_document();
            bytes += values.as_bytes().len();
            columns.push(Column { name: name.into(), values: Writer::resume(values), bounds });
        }
        Some(Bucket { id, meta, begin, columns, count, bytes })
    }

    /// Whether a document is a bucket with bounds that hold all its measurements.
    pub fn is_sound(series: &TimeSeries, stored: RawDocument<'_>, collator: Option<&dyn Collator>) -> bool {
        let Some(bucket) = Bucket::decode(series, stored) else { return false };
        let numbered = |values: RawDocument<'_>| {
            values.iter().try_fold(None, |last, (name, _)| {
                let number = parse_index(name)?;
                (Some(number) > last).then_some(Some(number))
            })
        };
        let columns = stored_columns(stored).unwrap_or_default();
        let times = columns.iter().find(|(name, _)| *name == &*series.time_field);
        let last = times.and_then(|(_, times)| numbered(times.values())).flatten();
        let is_in_order = |values| numbered(values).is_some_and(|number| number <= last);
        let in_order = columns.iter().all(|(_, column)| is_in_order(column.values()));
        let Ok(rows) = Rows::of(stored, &series.time_field, series.meta_field.as_deref(), None) else {
            return false;
        };
        let rows: Vec<Document> = rows.collect();
        let values = || columns.iter().map(|(_, column)| column.values().iter().count()).sum::<usize>();
        // Compressed ones say how many measurements they have.
        let said = stored.get("control").and_then(|control| control.as_document()?.get("count"));
        let count = rows.len() as i32;
        let as_said = said.is_none_or(|said| matches!(said, RawValue::Int32(said) if said == count));
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
        let places = bucket.places();
        let covered = again.columns.iter().all(|made| {
            let found = places.get(&*made.name).map(|at| &bucket.columns[*at]);
            found.is_some_and(|column| made.name.is_empty() || column.bounds.cover(&made.bounds, collator))
        });
        in_order && as_said && complete && !rows.is_empty() && rows.iter().all(in_span) && covered
    }

    /// Whether a measurement of its meta may go into it. Looks at its fields, which stay in `fields`.
    pub fn takes<'d>(
        &self,
        series: &TimeSeries,
        millis: i64,
        measurement: RawDocument<'d>,
        fields: &mut Fields<'d>,
    ) -> bool {
        let in_span = (0..series.span_millis()).contains(&millis.saturating_sub(self.begin));
        let has_room = self.count == 0
            || (self.count < MEASUREMENTS_MAX && self.bytes + measurement.as_bytes().len() <= BYTES_MAX);
        if !in_span || !has_room {
            return false;
        }
        self.look(series, measurement, fields);
        fields
            .0
            .iter()
            .all(|field| field.column.is_none_or(|at| self.columns[at].bounds.speak_of(field.value)))
    }

    /// Puts a measurement of its meta behind the others, if it takes it.
    pub fn offer<'d>(
        &mut self,
        series: &TimeSeries,
        millis: i64,
        measurement: RawDocument<'d>,
        fields: &mut Fields<'d>,
        collator: Option<&dyn Collator>,
    ) -> bool {
        let takes = self.takes(series, millis, measurement, fields);
        if takes {
            self.push_fields(series, fields, collator);
        }
        takes
    }

    /// Whether its measurements have this meta.
    pub fn is_of(&self, meta: &Option<Value>) -> bool {
        match (&self.meta, meta) {
            (Some(own), Some(other)) => identical(own.as_raw(), other.as_raw()),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Whether the measurements of another bucket may be put behind its own.
    pub fn joins(&self, other: &Bucket, series: &TimeSeries) -> bool {
        let last = other.column(0, &series.time_field).map(|at| &other.columns[at].bounds.max);
        let in_span = |millis: i64| (0..series.span_millis()).contains(&millis.saturating_sub(self.begin));
        let is_alike = |(at, column): (usize, &Column)| {
            let own = self.column(at, &column.name).map(|at| &self.columns[at].bounds);
            own.is_none_or(|own| {
                own.speak_of(column.bounds.min.as_raw()) && own.speak_of(column.bounds.max.as_raw())
            })
        };
        self.is_of(&other.meta)
            && in_span(other.begin)
            && matches!(last, Some(Value::DateTime(millis)) if in_span(*millis))
            && self.count + other.count <= MEASUREMENTS_MAX
            && self.bytes + other.bytes <= BYTES_MAX
            && other.columns.iter().enumerate().all(is_alike)
    }

    /// Puts the measurements of another bucket, which it [joins](Bucket::joins), behind its own.
    pub fn join(&mut self, other: Bucket, collator: Option<&dyn Collator>) {
        for (at, column) in other.columns.into_iter().enumerate() {
            let own = match self.column(at, &column.name) {
                Some(at) => {
                    self.columns[at].bounds.join(&column.bounds, collator);
                    &mut self.columns[at]
                }
                None => {
                    let Column { name, bounds, .. } = &column;
                    let (name, bounds) = (name.clone(), bounds.clone());
                    self.columns.push(Column { name, values: Writer::new(), bounds });
                    self.columns.last_mut().expect("pushed just now")
                }
            };
            let before = own.values.len();
            // A larger number has up to three digits more.
            own.values.reserve(column.values.len() + 3 * other.count);
            let values = column.values.finish();
            let mut values = values.as_raw().iter();
            while let Some(value) = values.next_element() {
                own.values.append_renumbered(self.count + parse_index(value.name).unwrap_or(0), &value);
            }
            self.bytes += own.values.len() - before;
        }
        self.count += other.count;
    }

    /// The same measurements under a new name, in a bucket that begins no earlier than they do.
    pub fn restarted(self, series: &TimeSeries) -> Bucket {
        let (mut columns, time) = (self.columns, &*series.time_field);
        let mut begin = self.begin;
        if let Some(times) = columns.iter_mut().find(|column| *column.name == *time) {
            let values = std::mem::replace(&mut times.values, Writer::new()).finish();
            let millis = values.iter().filter_map(|(_, value)| match value {
                RawValue::DateTime(millis) => Some(millis),
                _ => None,
            });
            begin = millis.min().map_or(begin, |first| series.begin(first));
            times.bounds.min = Value::DateTime(begin);
            times.values = Writer::resume(values);
        }
        Bucket { id: new_id(begin), begin, columns, ..self }
    }

    /// Its name.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Gives it the name of a bucket that begins at the same time and is given up.
    pub fn rename(&mut self, id: ObjectId) {
        self.id = id;
    }

    /// When it begins.
    pub fn begin(&self) -> i64 {
        self.begin
    }

    /// Puts a measurement behind the others.
    pub fn push(
        &mut self,
        series: &TimeSeries,
        measurement: RawDocument<'_>,
        collator: Option<&dyn Collator>,
    ) {
        let mut fields = Fields::default();
        self.look(series, measurement, &mut fields);
        for field in &fields.0 {
            if let Some(column) = field.column.map(|at| &mut self.columns[at])
                && !column.bounds.speak_of(field.value)
            {
                column.bounds.include(field.value, collator);
            }
        }
        self.push_fields(series, &fields, collator);
    }

    /// Finds the fields of a measurement that have columns, all but the meta, and the columns that they have. Of a name that
    /// is there twice, the first counts.
    fn look<'d>(&self, series: &TimeSeries, measurement: RawDocument<'d>, fields: &mut Fields<'d>) {
        let Fields(fields) = fields;
        fields.clear();
        let meta = series.meta_field.as_deref();
        // Columns have different names. So as long as each field is called as the column in its place, none is there twice.
        let mut are_in_place = true;
        let (mut names, mut places) = (None, None);
        for (name, value) in measurement.iter().filter(|(name, _)| Some(*name) != meta) {
            let at = fields.len();
            are_in_place &= self.columns.get(at).is_some_and(|column| *column.name == *name);
            if are_in_place {
                fields.push(Field { column: Some(at), name, value });
                continue;
            }
            let is_new = match at <= FEW {
                true => fields.iter().all(|earlier| earlier.name != name),
                false => names
                    .get_or_insert_with(|| fields.iter().map(|field| field.name).collect::<HashSet<&str>>())
                    .insert(name),
            };
            if is_new {
                let column = match self.columns.len() <= FEW {
                    true => self.column(at, name),
                    false => places.get_or_insert_with(|| self.places()).get(name).copied(),
                };
                fields.push(Field { column, name, value });
            }
        }
    }

    /// Which column each name has, the first where a client gave it to several.
    fn places(&self) -> HashMap<&str, usize> {
        self.columns.iter().enumerate().rev().map(|(at, column)| (&*column.name, at)).collect()
    }

    /// Puts a measurement behind the others, whose fields were looked at.
    fn push_fields(&mut self, series: &TimeSeries, fields: &Fields<'_>, collator: Option<&dyn Collator>) {
        for &Field { column, name, value } in &fields.0 {
            let column = match column {
                Some(at) => {
                    self.columns[at].bounds.include_alike(value, collator);
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

    /// As it is stored while it takes further measurements.
    pub fn into_document(self) -> Document {
        let mut out = self.written_up_to_data(VERSION);
        out.open_document("data");
        for column in self.columns {
            out.append(&column.name, RawValue::Document(column.values.finish().as_raw()));
        }
        out.close();
        out.finish()
    }

    /// As it is stored when it takes no further measurements: compressed, its measurements in the order of their time.
    pub fn into_closed_document(mut self, series: &TimeSeries) -> Document {
        let mut columns: Vec<(Box<str>, Document)> =
            self.columns.iter_mut().map(|column| (column.name.clone(), column.take_values())).collect();
        let is_in_order = sort_by_time(&mut columns, &series.time_field, self.count);
        let compressed: Option<Vec<Vec<u8>>> =
            columns.iter().map(|(_, values)| encode_column(values.as_raw(), self.count)).collect();
        let compressed = compressed.filter(|_| is_in_order);
        let mut out =
            self.written_up_to_data(if compressed.is_some() { COMPRESSED_VERSION } else { VERSION });
        out.open_document("data");
        for (at, (name, values)) in columns.iter().enumerate() {
            let column = match &compressed {
                Some(compressed) => RawValue::Binary { subtype: COLUMN_SUBTYPE, bytes: &compressed[at] },
                None => RawValue::Document(values.as_raw()),
            };
            out.append(name, column);
        }
        out.close();
        out.finish()
    }

    /// Its name, its bounds and its meta.
    fn written_up_to_data(&self, version: i32) -> Writer {
        let mut out = Writer::with_capacity(self.bytes + self.bytes / 4 + 256);
        out.append("_id", RawValue::ObjectId(self.id));
        out.open_document("control");
        out.append("version", RawValue::Int32(version));
        for (name, bound) in [("min", bound_min as fn(&Bounds) -> RawValue<'_>), ("max", bound_max)] {
            out.open_document(name);
            for column in self.columns.iter().filter(|column| !column.name.is_empty()) {
                out.append(&column.name, bound(&column.bounds));
            }
            out.close();
        }
        if version != VERSION {
            out.append("count", RawValue::Int32(self.count as i32));
        }
        out.close();
        if let Some(meta) = &self.meta {
            out.append(META, meta.as_raw());
        }
        out
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

impl Column {
    /// Its values, which it has no longer.
    fn take_values(&mut self) -> Document {
        std::mem::replace(&mut self.values, Writer::new()).finish()
    }
}

/// Brings the measurements of columns into the order of their time; those of one time stay as they were. False where some
/// measurement has no time, so that all stay as they are.
fn sort_by_time(columns: &mut [(Box<str>, Document)], time_field: &str, count: usize) -> bool {
    let Some((_, times)) = columns.iter().find(|(name, _)| **name == *time_field) else { return false };
    let date = |(at, (name, value)): (usize, (&str, RawValue<'_>))| match value {
        RawValue::DateTime(millis) if parse_index(name) == Some(at) => Some((millis, at)),
        _ => None,
    };
    let order: Option<Vec<(i64, usize)>> = times.iter().enumerate().map(date).collect();
    let Some(mut order) = order.filter(|order| order.len() == count) else { return false };
    if order.is_sorted() {
        return true;
    }
    order.sort_unstable();
    let sorted = |(_, values): &(Box<str>, Document)| {
        let mut by_number = vec![None; count];
        let mut elements = values.as_raw().iter();
        while let Some(element) = elements.next_element() {
            *by_number.get_mut(parse_index(element.name)?)? = Some(element);
        }
        let mut sorted = Writer::with_capacity(values.as_bytes().len());
        for (now, (_, before)) in order.iter().enumerate() {
            by_number[*before].iter().for_each(|element| sorted.append_renumbered(now, element));
        }
        Some(sorted.finish())
    };
    let Some(sorted) = columns.iter().map(sorted).collect::<Option<Vec<Document>>>() else { return false };
    columns.iter_mut().zip(sorted).for_each(|((_, values), sorted)| *values = sorted);
    true
}

/// How many measurements a bucket has, by its column of times.
fn count_of(times: RawDocument<'_>) -> usize {
    if let Some(count) = count_of_dates(times) {
        return count;
    }
    let numbers = times.iter().filter_map(|(number, _)| parse_index(number));
    numbers.max().map_or(0, |last| last + 1)
}

/// How many dates a column has, where they are numbered from 0 on without a gap. That is told by its length and its last
/// element: none takes less room than one with that number.
fn count_of_dates(times: RawDocument<'_>) -> Option<usize> {
    const VALUE_BYTES: usize = 8;
    let elements = times.elements();
    let head = elements.get(..elements.len().checked_sub(VALUE_BYTES)?)?;
    let named = head.strip_suffix(&[0])?;
    let digits = named.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (before, number) = named.split_at(named.len() - digits);
    let count = parse_index(std::str::from_utf8(number).ok()?)? + 1;
    let is_date = before.last() == Some(&(ElementType::DateTime as u8));
    // Type, the end of the name and the value; and the digits of all numbers below `count`.
    let (mut bytes, mut least) = (count * (2 + VALUE_BYTES + 1), 10);
    while least < count {
        bytes += count - least;
        least *= 10;
    }
    (is_date && bytes == elements.len()).then_some(count)
}

fn bytes_of(meta: &Option<Value>) -> usize {
    match meta {
        Some(Value::Document(document)) => document.as_bytes().len(),
        Some(Value::String(text)) => text.len(),
        _ => 0,
    }
}

/// A name for a bucket. Its first four bytes tell when the bucket begins, so that buckets lie in the order of time.
fn new_id(begin: i64) -> ObjectId {
    let mut id = ObjectId::new().to_bytes();
    id[..4].copy_from_slice(&((begin.div_euclid(1000)) as u32).to_be_bytes());
    ObjectId::from_bytes(id)
}

fn bound_min(bounds: &Bounds) -> RawValue<'_> {
    bounds.min.as_raw()
}

fn bound_max(bounds: &Bounds) -> RawValue<'_> {
    bounds.max.as_raw()
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

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::super::Bucketing;
    use super::*;

    #[test]
    fn measurements_of_many_fields_find_their_columns_in_any_order() {
        let bucketing = Bucketing::Seconds(60);
        let series = TimeSeries { time_field: "t".into(), meta_field: Some("m".into()), bucketing };
        let names: Vec<String> = (0..5 * FEW).map(|number| format!("f{number}")).collect();
        let measurement = |names: &mut dyn Iterator<Item = &String>, value: i32| {
            let mut out = Writer::new();
            out.append("t", RawValue::DateTime(0));
            names.for_each(|name| out.append(name, RawValue::Int32(value)));
            out.append("f7", RawValue::Int32(-1));
            out.finish()
        };
        let mut bucket = Bucket::new(None, 0);
        bucket.push(&series, measurement(&mut names.iter(), 1).as_raw(), None);
        bucket.push(&series, measurement(&mut names.iter().rev(), 2).as_raw(), None);
        bucket.push(&series, measurement(&mut names.iter().take(3), 3).as_raw(), None);
        let stored = bucket.into_document();
        let data = stored.get("data").and_then(RawValue::as_document).expect("columns");
        assert_eq!(data.iter().count(), 1 + names.len());
        let column =
            |name: &str| data.get(name).and_then(RawValue::as_document).expect("a column").to_document();
        assert_eq!(column("f1"), doc! {"0": 1, "1": 2, "2": 3});
        assert_eq!(
            column("f7"),
            doc! {"0": 1, "1": 2, "2": -1},
            "of a name that is there twice, the first counts"
        );
        assert_eq!(column("f100"), doc! {"0": 1, "1": 2});
    }

    #[test]
    fn columns_are_sorted_by_time_together() {
        let date = Value::DateTime;
        let mut columns: Vec<(Box<str>, Document)> = vec![
            ("t".into(), doc! {"0": date(30), "1": date(10), "2": date(10), "3": date(20)}),
            ("v".into(), doc! {"0": "thirty", "2": "second", "3": "twenty"}),
        ];
        assert!(sort_by_time(&mut columns, "t", 4));
        assert_eq!(columns[0].1, doc! {"0": date(10), "1": date(10), "2": date(20), "3": date(30)});
        assert_eq!(columns[1].1, doc! {"1": "second", "2": "twenty", "3": "thirty"});
        let before = columns.clone();
        assert!(sort_by_time(&mut columns, "t", 4));
        assert!(!sort_by_time(&mut columns, "t", 5), "one has no time");
        assert!(!sort_by_time(&mut columns, "v", 4));
        let odd = vec![("t".into(), doc! {"0": date(2), "1": date(1)}), ("v".into(), doc! {"7": 1})];
        let mut left: Vec<(Box<str>, Document)> = odd.clone();
        assert!(!sort_by_time(&mut left, "t", 2));
        assert_eq!(left, odd);
        assert_eq!(columns, before);
    }

    #[test]
    fn measurements_are_counted_by_the_last_time() {
        let dates = |numbers: &mut dyn Iterator<Item = usize>| {
            let mut times = Writer::new();
            numbers.for_each(|number| times.append_index(number, RawValue::DateTime(number as i64 * 77)));
            times.finish()
        };
        for count in (0..120).chain([999, 1000, 1001, 12_345]) {
            let times = dates(&mut (0..count));
            assert_eq!(count_of(times.as_raw()), count);
            assert_eq!(count_of_dates(times.as_raw()), (count > 0).then_some(count));
        }
        // What is not numbered so, or no date, is counted one by one.
        let gaps = dates(&mut (0..200).filter(|number| number % 3 != 1));
        for (times, count) in [
            (gaps, 198 + 1),
            (doc! {"3": Value::DateTime(5)}, 4),
            (doc! {"0": 5, "1": 7}, 2),
            (doc! {"0": Value::DateTime(1), "x": Value::DateTime(2)}, 1),
            (doc! {"0": Value::DateTime(1), "01": Value::DateTime(2)}, 1),
        ] {
            assert_eq!(count_of_dates(times.as_raw()), None, "{times:?}");
            assert_eq!(count_of(times.as_raw()), count, "{times:?}");
        }
    }
}
