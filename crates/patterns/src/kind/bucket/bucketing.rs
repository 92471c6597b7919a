//! Which measurements belong together, what is told of them, and the record that they are packed into.
//!
//! A bucket's record is a document: `{v, spec, of: {meta, span, from, to, count, stats}, records, columns | readings}`.
//! `of` is what is told of the measurements, `records` are the numbers of their own records in the order of positions,
//! `spec` the fingerprint of the declaration that packed them.
//!
//! Invariant: what is taken out at a position is what was packed there, byte for byte.

use kilim_bson::{Document, RawDocument, RawValue, Value, Writer, compare};
use kilim_error::Result;
use kilim_query::accumulator::{Accumulator, State};
use kilim_query::expression::{Bindings, Env};

use super::columns::{self, Walk};
use crate::packed;

/// On disk: how the bytes of a bucket lie.
const VERSION: i32 = 1;

#[derive(Debug)]
pub struct Bucketing {
    /// The field that measurements are ordered by: their time, or another one.
    pub field: Box<str>,
    /// How long a bucket reaches, where measurements are ordered by time.
    pub span_millis: Option<i64>,
    /// The field that measurements of one bucket have in common.
    pub meta: Option<Box<str>>,
    pub max_count: usize,
    pub max_bytes: usize,
    pub stats: Vec<Stat>,
    /// Meta and time, or meta and order, are given out once.
    pub unique: bool,
    /// How long measurements stay after their time.
    pub expire_after_seconds: Option<i64>,
    pub layout: Layout,
    /// What tells buckets of this declaration from those of another.
    pub fingerprint: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Columns,
    /// The documents one after the other, which are shown as `readings`.
    Rows,
}

/// What is told of a field.
#[derive(Debug)]
pub struct Stat {
    pub path: Box<str>,
    pub of: Vec<(&'static str, Accumulator)>,
}

/// Where a measurement belongs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Place {
    /// The beginning of its span. None where it has no time; such a measurement is not packed.
    pub span: Option<i64>,
    /// The meta as a document of one field; empty where it is missing.
    meta: Vec<u8>,
    is_by_time: bool,
}

impl Place {
    /// Whether measurements there are packed.
    pub fn is_packed(&self) -> bool {
        self.span.is_some() || !self.is_by_time
    }

    /// About the bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Place>() + self.meta.len()
    }
}

impl Bucketing {
    /// Where a measurement belongs.
    pub fn place(&self, measurement: RawDocument<'_>) -> Place {
        let mut place = Place::default();
        self.find_place(measurement, &mut place);
        place
    }

    /// Makes of a place that of a measurement. It is done for every measurement that is written, so it uses the place's memory
    /// again, and looks at the fields once.
    pub fn find_place(&self, measurement: RawDocument<'_>, place: &mut Place) {
        const NAME: &str = "meta";
        place.is_by_time = self.span_millis.is_some();
        let (mut time, mut meta) = (None, None);
        let mut fields = measurement.iter();
        while let Some(field) = fields.next_element()
            && ((self.span_millis.is_some() && time.is_none()) || (self.meta.is_some() && meta.is_none()))
        {
            if time.is_none() && *field.name == *self.field {
                time = Some(field.value());
            }
            if meta.is_none() && self.meta.as_ref().is_some_and(|meta| **meta == *field.name) {
                meta = Some(field);
            }
        }
        place.span = match (self.span_millis, time) {
            (Some(millis), Some(RawValue::DateTime(time))) => Some(beginning(time, millis)),
            _ => None,
        };
        place.meta.clear();
        let mut out = Writer::after(std::mem::take(&mut place.meta));
        meta.iter().for_each(|meta| out.append_renamed(NAME, meta));
        place.meta = out.finish_bytes();
    }

    /// When the span of a place is over, in milliseconds since 1970.
    pub fn end_of(&self, place: &Place) -> Option<i64> {
        Some(place.span?.saturating_add(self.span_millis?))
    }

    /// Brings measurements of a bucket into their order.
    pub fn sort<T>(&self, rows: &mut [T], of: impl Fn(&T) -> (u64, RawDocument<'_>)) {
        let value = |document: RawDocument<'_>| -> Value {
            document.get(&self.field).map_or(Value::Null, RawValue::to_value)
        };
        rows.sort_by_cached_key(|row| {
            let (record, document) = of(row);
            Ordered(value(document), record)
        });
    }

    /// How many of these measurements, in order, go into the next bucket.
    pub fn portion<'d>(&self, rows: impl Iterator<Item = RawDocument<'d>>) -> usize {
        let (mut count, mut bytes) = (0, 0);
        for row in rows {
            bytes += row.as_bytes().len();
            if count == self.max_count || (count > 0 && bytes > self.max_bytes) {
                break;
            }
            count += 1;
        }
        count
    }

    /// What is told of measurements of one place: `{meta, span, from, to, count, stats}`.
    pub fn told(&self, place: &Place, rows: &[RawDocument<'_>]) -> Result<Document> {
        let mut out = Writer::new();
        let meta = RawDocument::parse(&place.meta).ok().and_then(|meta| meta.get("meta"));
        meta.into_iter().for_each(|meta| out.append("meta", meta));
        if self.span_millis.is_some() {
            out.append("span", place.span.map_or(RawValue::Null, RawValue::DateTime));
        }
        let is_bound = |value: &RawValue<'_>| match self.span_millis {
            Some(_) => matches!(value, RawValue::DateTime(_)),
            None => true,
        };
        let values = || rows.iter().filter_map(|row| row.get(&self.field)).filter(is_bound);
        let least = values().reduce(|one, other| if compare(other, one).is_lt() { other } else { one });
        let most = values().reduce(|one, other| if compare(other, one).is_gt() { other } else { one });
        out.append("from", least.unwrap_or(RawValue::Null));
        out.append("to", most.unwrap_or(RawValue::Null));
        out.append("count", RawValue::Int32(rows.len() as i32));
        if !self.stats.is_empty() {
            out.open_document("stats");
            for stat in &self.stats {
                out.append(&stat.path, RawValue::Document(stat.value(rows)?.as_raw()));
            }
            out.close();
        }
        Ok(out.finish())
    }

    /// The record of a bucket with these measurements, given in their order with the numbers of their records.
    pub fn bucket(&self, place: &Place, rows: &[(u64, RawDocument<'_>)]) -> Result<Document> {
        let documents: Vec<RawDocument<'_>> = rows.iter().map(|(_, row)| *row).collect();
        let mut records = Vec::with_capacity(rows.len() * 2);
        let mut last = 0;
        for (record, _) in rows {
            packed::push(&mut records, i128::from(*record) - last);
            last = i128::from(*record);
        }
        let mut out = Writer::new();
        out.append("v", RawValue::Int32(VERSION));
        out.append("spec", RawValue::Int64(self.fingerprint));
        out.append("of", RawValue::Document(self.told(place, &documents)?.as_raw()));
        out.append("records", RawValue::Binary { subtype: 0, bytes: &records });
        match self.layout {
            Layout::Columns => {
                let columns = columns::pack(&documents);
                out.append("columns", RawValue::Binary { subtype: 0, bytes: &columns });
            }
            Layout::Rows => {
                out.open_array("readings");
                for (at, row) in documents.iter().enumerate() {
                    out.append_index(at, RawValue::Document(*row));
                }
                out.close();
            }
        }
        Ok(out.finish())
    }

    /// What `<name>.buckets` shows of a bucket with this number, which is at least 1.
    pub fn shown(&self, number: u64, told: RawDocument<'_>, rows: Option<&[RawDocument<'_>]>) -> Document {
        self.shown_as(number as i64, told, rows)
    }

    /// What `<name>.buckets` shows of open measurements, of which `number` earlier portions belong to the same place.
    pub fn open(&self, number: u64, told: RawDocument<'_>, rows: &[RawDocument<'_>]) -> Document {
        self.shown_as(-(number as i64), told, Some(rows))
    }

    /// `part` tells buckets of one place from each other: the number of a sealed one, 0 and below for open measurements.
    fn shown_as(&self, part: i64, told: RawDocument<'_>, rows: Option<&[RawDocument<'_>]>) -> Document {
        let mut out = Writer::new();
        out.open_document("_id");
        for name in ["meta", "span"] {
            told.get(name).into_iter().for_each(|value| out.append(name, value));
        }
        out.append("part", RawValue::Int64(part));
        out.close();
        for (name, value) in told.iter().filter(|(name, _)| *name != "span") {
            out.append(name, value);
        }
        out.append("sealed", RawValue::Bool(part > 0));
        if let (Layout::Rows, Some(rows)) = (self.layout, rows) {
            out.open_array("readings");
            for (at, row) in rows.iter().enumerate() {
                out.append_index(at, RawValue::Document(*row));
            }
            out.close();
        }
        out.finish()
    }

    /// Whether buckets are shown with their measurements.
    pub fn shows_rows(&self) -> bool {
        self.layout == Layout::Rows
    }
}

/// The record of a bucket.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'b>(RawDocument<'b>);

impl<'b> Packed<'b> {
    /// None where the document is no bucket that this program can read.
    pub fn of(document: RawDocument<'b>) -> Option<Packed<'b>> {
        matches!(document.get("v"), Some(RawValue::Int32(VERSION))).then_some(Packed(document))
    }

    /// The fingerprint of the declaration that packed it.
    pub fn fingerprint(self) -> Option<i64> {
        match self.0.get("spec")? {
            RawValue::Int64(fingerprint) => Some(fingerprint),
            _ => None,
        }
    }

    /// What is told of all measurements that were packed.
    pub fn told(self) -> Option<RawDocument<'b>> {
        self.0.get("of")?.as_document()
    }

    /// How many measurements were packed.
    pub fn count(self) -> Option<usize> {
        match self.told()?.get("count")? {
            RawValue::Int32(count) => usize::try_from(count).ok(),
            _ => None,
        }
    }

    /// The numbers of the measurements' records, in the order of positions.
    pub fn records(self) -> Option<Vec<u64>> {
        let RawValue::Binary { mut bytes, .. } = self.0.get("records")? else { return None };
        let (mut records, mut last) = (Vec::new(), 0);
        while !bytes.is_empty() {
            last += packed::take(&mut bytes)?;
            records.push(u64::try_from(last).ok()?);
        }
        Some(records)
    }

    /// Appends the measurement at a position.
    pub fn row(self, at: usize, out: &mut Vec<u8>) -> Option<()> {
        match self.0.get("columns") {
            Some(RawValue::Binary { bytes, .. }) => columns::unpack(bytes, at, out),
            _ => {
                let reading = self.0.get("readings")?.as_array()?.get(at)?.as_document()?;
                out.extend_from_slice(reading.as_bytes());
                Some(())
            }
        }
    }

    /// Begins to read fields of the measurements where they lie. None where they are not packed by columns, or damaged.
    pub fn walk(self, names: &[Box<str>]) -> Option<Walk<'b>> {
        match self.0.get("columns")? {
            RawValue::Binary { bytes, .. } => columns::walk(bytes, names),
            _ => None,
        }
    }

    /// Whether as many measurements are packed as are told of.
    pub fn is_whole(self) -> bool {
        let packed = match self.0.get("columns") {
            Some(RawValue::Binary { bytes, .. }) => columns::packed_len(bytes),
            _ => self.0.get("readings").and_then(RawValue::as_array).map(|readings| readings.len()),
        };
        let count = self.count();
        count.is_some() && packed == count && self.records().map(|records| records.len()) == count
    }
}

impl Stat {
    fn value(&self, rows: &[RawDocument<'_>]) -> Result<Document> {
        let mut out = Document::new();
        for (name, accumulator) in &self.of {
            let mut state: State = accumulator.begin(RawValue::Null, Bindings::none())?;
            for row in rows {
                accumulator.accumulate(&mut state, &Env::new(*row, Bindings::none()))?;
            }
            out.push(name, accumulator.finish(state));
        }
        Ok(out)
    }
}

/// Values in MongoDB's order, equal ones by their records.
struct Ordered(Value, u64);

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> std::cmp::Ordering {
        compare(self.0.as_raw(), other.0.as_raw()).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered {
    fn eq(&self, other: &Ordered) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered {}

/// The beginning of the span that a time lies in. The first span of all begins where dates begin.
fn beginning(time: i64, span_millis: i64) -> i64 {
    let begins = i128::from(time.div_euclid(span_millis)) * i128::from(span_millis);
    i64::try_from(begins).unwrap_or(i64::MIN)
}
