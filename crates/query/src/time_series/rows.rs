//! The measurements of a bucket.
//!
//! [`Opened`] is a bucket whose columns can be read. [`Rows`] makes documents of it, one at a time, and owns what it reads;
//! [`Walk`] makes none: it shows the values of each measurement where they lie in the columns.
//!
//! Invariant: both give the same measurements.

use kilim_bson::{
    Document, RawDocument, RawElement, RawIter, RawValue, Reading, Scalars, Value, Writer, parse_index,
};
use kilim_error::Result;

use super::META;
use super::column::{Readable, Room};

/// The columns of a bucket that are looked at.
pub struct Opened<'b> {
    meta: Option<RawValue<'b>>,
    times: Option<Readable<'b>>,
    columns: Vec<(&'b str, Readable<'b>)>,
    /// For the columns that are unpacked when documents are made.
    room: Room,
}

impl<'b> Opened<'b> {
    /// `wanted`: which fields are looked at; none stands for all.
    pub fn of(
        bucket: RawDocument<'b>,
        time_field: &str,
        meta_field: Option<&str>,
        wanted: Option<&[Box<str>]>,
    ) -> Result<Opened<'b>> {
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.iter().any(|each| **each == *name));
        let meta = meta_field.filter(|name| is_wanted(name)).and_then(|_| bucket.get(META));
        let mut opened = Opened { meta, times: None, columns: Vec::new(), room: Room::of_a_bucket() };
        let data = bucket.get("data").and_then(RawValue::as_document);
        for (name, stored) in data.into_iter().flatten() {
            if name != time_field && !is_wanted(name) {
                continue;
            }
            let Some(column) = Readable::of(stored, &mut opened.room)? else { continue };
            if name == time_field {
                opened.times = Some(column);
            } else {
                opened.columns.push((name, column));
            }
        }
        Ok(opened)
    }

    /// About how many bytes the values have.
    pub fn bytes(&self) -> usize {
        let columns = self.columns.iter().map(|(_, column)| column).chain(&self.times);
        columns.map(Readable::bytes).sum()
    }

    /// Shows the measurements as the values of these fields. None where two of the fields that a measurement has are called
    /// the same, so that a name does not tell which is meant.
    pub fn walk<'a>(
        &'a self,
        time_field: &str,
        meta_field: Option<&str>,
        names: &[Box<str>],
    ) -> Option<Walk<'a>> {
        let place_of = |name: &str| names.iter().position(|each| **each == *name);
        let mut is_taken = vec![false; names.len()];
        let mut values = vec![None; names.len()];
        let mut take = |place: usize| !std::mem::replace(&mut is_taken[place], true);
        let time = place_of(time_field);
        if let Some(place) = time {
            take(place);
        }
        if let Some((place, meta)) = meta_field.and_then(place_of).zip(self.meta) {
            values[place] = take(place).then_some(meta).map(Some)?;
        }
        let mut columns = Vec::with_capacity(self.columns.len());
        for (name, column) in &self.columns {
            if let Some(place) = place_of(name) {
                columns.push(take(place).then(|| (place, Cells::of(column)))?);
            }
        }
        let times = self.times.as_ref().map_or(Cells::Named(RawDocument::empty().iter()), Cells::of);
        Some(Walk { times, time, columns, values })
    }

    /// The measurements as documents. An error where columns that were not unpacked yet are too large for it.
    pub fn into_rows(
        self,
        time_field: &str,
        meta_field: Option<&str>,
        wanted: Option<&[Box<str>]>,
    ) -> Result<Rows> {
        let is_wanted = |name: &&str| wanted.is_none_or(|wanted| wanted.iter().any(|each| **each == **name));
        let Opened { meta, times, columns, mut room } = self;
        let times = times.map_or_else(|| Ok(Document::new()), |times| times.into_document(&mut room))?;
        let column = |(name, column): (&str, Readable<'_>)| {
            Ok((name.into(), Reading::of(column.into_document(&mut room)?)))
        };
        Ok(Rows {
            time_field: Some(time_field).filter(is_wanted).map(Into::into),
            times: Reading::of(times),
            meta: meta_field.zip(meta).map(|(name, meta)| (name.into(), meta.to_value())),
            columns: columns.into_iter().map(column).collect::<Result<_>>()?,
        })
    }
}

/// The values of each measurement of a bucket, one measurement after the other.
pub struct Walk<'a> {
    times: Cells<'a>,
    /// Where the time goes, where it is wanted.
    time: Option<usize>,
    columns: Vec<(usize, Cells<'a>)>,
    /// Those of the measurement at hand. The meta is the same in all.
    values: Vec<Option<RawValue<'a>>>,
}

impl<'a> Walk<'a> {
    /// The values of the next measurement, in the places of the names.
    #[inline]
    pub fn next_values(&mut self) -> Option<&[Option<RawValue<'a>>]> {
        let (number, time) = self.times.next_there()?;
        if let Some(place) = self.time {
            self.values[place] = Some(time);
        }
        for (place, cells) in &mut self.columns {
            cells.show_at(&number, &mut self.values[*place]);
        }
        Some(&self.values)
    }
}

/// The values of a column, which is gone through once.
enum Cells<'a> {
    /// In a document, each with its number as its name.
    Named(RawIter<'a>),
    /// In a compressed column, where the next one has the number `next`.
    Counted { scalars: Scalars<'a>, next: usize },
}

/// The number of a measurement, as a name too where one was read.
struct Number<'a> {
    at: usize,
    name: Option<&'a str>,
}

impl<'a> Cells<'a> {
    fn of(column: &'a Readable<'_>) -> Cells<'a> {
        match column {
            Readable::Values(column) => Cells::Named(column.values().iter()),
            Readable::InPlace { scalars, .. } => Cells::Counted { scalars: scalars.clone(), next: 0 },
        }
    }

    /// The next value that is not missing, and its number.
    #[inline]
    fn next_there(&mut self) -> Option<(Number<'a>, RawValue<'a>)> {
        match self {
            Cells::Named(values) => {
                let (at, element) = next_numbered(values)?;
                Some((Number { at, name: Some(element.name) }, element.value()))
            }
            Cells::Counted { scalars, next } => loop {
                let at = *next;
                *next += 1;
                if let Some(value) = scalars.next()? {
                    return Some((Number { at, name: None }, value));
                }
            },
        }
    }

    /// The value of a number, past all that have smaller ones. It is written to its place, since moving it takes longer than
    /// making it.
    #[inline]
    fn show_at(&mut self, number: &Number<'_>, out: &mut Option<RawValue<'a>>) {
        match self {
            Cells::Named(values) => {
                let found = match number.name {
                    Some(name) => numbered(values, name),
                    None => numbered_behind(values, number.at),
                };
                *out = found.map(|found| found.value());
            }
            Cells::Counted { scalars, next } => {
                *out = None;
                while *next <= number.at {
                    let Some(value) = scalars.next() else { return };
                    *next += 1;
                    if *next > number.at {
                        *out = value;
                    }
                }
            }
        }
    }
}

/// A bucket that is read from the first measurement to the last. It owns the columns, so that it can wait in a cursor; each
/// measurement is made when it is asked for, because a large meta is in all of them.
pub struct Rows {
    /// The field's name, where it is wanted.
    time_field: Option<Box<str>>,
    times: Reading,
    /// The field's name and what it holds.
    meta: Option<(Box<str>, Value)>,
    columns: Vec<(Box<str>, Reading)>,
}

impl Rows {
    /// Begins to read a bucket. `wanted`: which fields are looked at; none stands for all.
    pub fn of(
        bucket: RawDocument<'_>,
        time_field: &str,
        meta_field: Option<&str>,
        wanted: Option<&[Box<str>]>,
    ) -> Result<Rows> {
        Opened::of(bucket, time_field, meta_field, wanted)?.into_rows(time_field, meta_field, wanted)
    }

    /// Writes the next measurement; none once there are no more. Fields come in this order: the time, the meta, the columns
    /// as the bucket has them.
    pub fn write_next(&mut self, out: &mut Writer) -> Option<()> {
        let Rows { time_field, times, meta, columns } = self;
        times.on(|times| {
            let (_, time) = next_numbered(times)?;
            if let Some(name) = time_field {
                out.append_renamed(name, &time);
            }
            if let Some((name, meta)) = meta {
                out.append(name, meta.as_raw());
            }
            for (name, values) in columns {
                values.on(|values| {
                    if let Some(value) = numbered(values, time.name) {
                        out.append_renamed(name, &value);
                    }
                });
            }
            Some(())
        })
    }
}

impl Iterator for Rows {
    type Item = Document;

    fn next(&mut self) -> Option<Document> {
        let mut out = Writer::new();
        self.write_next(&mut out)?;
        Some(out.finish())
    }
}

/// The next value of a column that has a number, and the number.
#[inline]
fn next_numbered<'a>(values: &mut RawIter<'a>) -> Option<(usize, RawElement<'a>)> {
    loop {
        let element = values.next_element()?;
        if let Some(number) = parse_index(element.name) {
            return Some((number, element));
        }
    }
}

/// The value of a number in a column, past all that have smaller ones. A number has one spelling, so most are found without
/// being read.
#[inline]
fn numbered<'a>(values: &mut RawIter<'a>, number: &str) -> Option<RawElement<'a>> {
    match values.next_if(|element| is_same(element.name, number)) {
        None => numbered_behind(values, parse_index(number)?),
        found => found,
    }
}

/// Numbers have a few digits, which are compared without a call.
#[inline]
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(|(one, other)| one == other)
}

fn numbered_behind<'a>(values: &mut RawIter<'a>, wanted: usize) -> Option<RawElement<'a>> {
    let is_before = |element: &RawElement<'_>| parse_index(element.name).is_none_or(|at| at < wanted);
    while values.next_if(is_before).is_some() {}
    values.next_if(|element| parse_index(element.name) == Some(wanted))
}

#[cfg(test)]
mod tests {
    use kilim_bson::{COLUMN_SUBTYPE, doc, encode_column, identical};
    use proptest::prelude::*;

    use super::*;

    type Numbered = Vec<(usize, Value)>;

    /// All values are copied, then put together measurement by measurement.
    fn naive(bucket: RawDocument<'_>, wanted: Option<&[Box<str>]>) -> Vec<Document> {
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.iter().any(|each| **each == *name));
        let numbered = |values: RawValue<'_>| -> Numbered {
            let values = values.as_document().into_iter().flatten();
            values.filter_map(|(at, value)| Some((parse_index(at)?, value.to_value()))).collect()
        };
        let data = bucket.get("data").and_then(RawValue::as_document).into_iter().flatten();
        let columns: Vec<(&str, Numbered)> = data.map(|(name, values)| (name, numbered(values))).collect();
        let times = columns.iter().rev().find(|(name, _)| *name == "t").map(|(_, times)| times.clone());
        let mut others: Vec<_> =
            columns.into_iter().filter(|(name, _)| *name != "t" && is_wanted(name)).collect();
        let mut rows = Vec::new();
        for (number, time) in times.unwrap_or_default() {
            let mut row = Writer::new();
            if is_wanted("t") {
                row.append("t", time.as_raw());
            }
            if let Some(meta) = bucket.get(META).filter(|_| is_wanted("m")) {
                row.append("m", meta);
            }
            for (name, values) in &mut others {
                while values.first().is_some_and(|(at, _)| *at < number) {
                    values.remove(0);
                }
                if values.first().is_some_and(|(at, _)| *at == number) {
                    row.append(name, values.remove(0).1.as_raw());
                }
            }
            rows.push(row.finish());
        }
        rows
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i32>().prop_map(Value::Int32),
            any::<f64>().prop_map(Value::Double),
            any::<i64>().prop_map(Value::DateTime),
            "[a-z]{0,4}".prop_map(Value::String),
            Just(Value::Null),
            Just(Value::Bool(true)),
            any::<i32>().prop_map(|n| Value::Document(doc! {"b": n, "c": [1, {"b": n}]})),
            any::<i32>().prop_map(|n| Value::Array([Value::Int32(n)].into_iter().collect())),
        ]
    }

    /// Mostly in order and without gaps, sometimes as nobody would write it.
    fn column() -> impl Strategy<Value = Document> {
        let odd =
            prop::sample::select(vec!["0", "1", "2", "3", "9", "10", "11", "01", "", "x", "4294967296"]);
        let tidy = prop::collection::vec((0u8..8, value()), 0..14).prop_map(|values| {
            let mut column = Writer::new();
            for (at, (chance, value)) in values.into_iter().enumerate() {
                if chance > 0 {
                    column.append_index(at, value.as_raw());
                }
            }
            column.finish()
        });
        // Of one type, as most are. These are read in place.
        let alike = prop::collection::vec((0u8..8, any::<i32>()), 0..14);
        let alike = (alike, any::<bool>()).prop_map(|(values, are_doubles)| {
            let mut column = Writer::new();
            for (at, (chance, number)) in values.into_iter().enumerate() {
                let number = i64::from(number);
                let value = match are_doubles {
                    true => RawValue::Double(number as f64 / 16.0),
                    false => RawValue::DateTime(number),
                };
                if chance > 0 {
                    column.append_index(at, value);
                }
            }
            column.finish()
        });
        let wild = prop::collection::vec((odd, value()), 0..8).prop_map(|values| {
            let mut column = Writer::new();
            values.iter().for_each(|(name, value)| column.append(name, value.as_raw()));
            column.finish()
        });
        prop_oneof![4 => tidy, 4 => alike, 1 => wild]
    }

    prop_compose! {
        fn bucket()(
            meta in prop::option::of(value()),
            columns in prop::collection::vec(
                (prop::sample::select(vec!["t", "a", "b", "c", "m", ""]), column(), 0u8..20),
                0..5,
            ),
            times in column(),
        ) -> Document {
            let mut out = Writer::new();
            if let Some(meta) = meta {
                out.append(META, meta.as_raw());
            }
            out.open_document("data");
            out.append("t", RawValue::Document(times.as_raw()));
            for (name, column, chance) in columns {
                // A second column of times is rare.
                if name != "t" || chance == 0 {
                    out.append(name, RawValue::Document(column.as_raw()));
                }
            }
            out.close();
            out.finish()
        }
    }

    /// The bucket with these of its columns compressed, where they can be: those out of order cannot.
    fn compressed(bucket: RawDocument<'_>, chosen: &[bool]) -> Document {
        let mut out = Writer::new();
        for (name, value) in bucket.iter().filter(|(name, _)| *name != "data") {
            out.append(name, value);
        }
        out.open_document("data");
        let data = bucket.get("data").and_then(RawValue::as_document).into_iter().flatten();
        for ((name, values), is_chosen) in data.zip(chosen) {
            let column = values.as_document().filter(|_| *is_chosen);
            match column.and_then(|column| encode_column(column, 20)) {
                Some(column) => {
                    out.append(name, RawValue::Binary { subtype: COLUMN_SUBTYPE, bytes: &column })
                }
                None => out.append(name, values),
            }
        }
        out.close();
        out.finish()
    }

    fn check(
        bucket: RawDocument<'_>,
        wanted: Option<&[Box<str>]>,
        expected: &[Document],
    ) -> Result<(), TestCaseError> {
        let opened = || Opened::of(bucket, "t", Some("m"), wanted).expect("a bucket");
        let rows: Vec<Document> = opened().into_rows("t", Some("m"), wanted).expect("it is small").collect();
        prop_assert_eq!(&rows, expected);
        let Some(names) = wanted else { return Ok(()) };
        let opened = opened();
        let twice = expected.iter().any(|row| {
            let mut names: Vec<&str> = row.iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            names.windows(2).any(|pair| pair[0] == pair[1])
        });
        let Some(mut walk) = opened.walk("t", Some("m"), names) else { return Ok(()) };
        prop_assert!(!twice, "a name that is there twice cannot be told apart");
        for row in expected {
            let values = walk.next_values().expect("as many measurements");
            for (name, value) in names.iter().zip(values) {
                let same = match (value, row.get(name)) {
                    (Some(value), Some(expected)) => identical(*value, expected),
                    (value, expected) => value.is_none() && expected.is_none(),
                };
                prop_assert!(same, "{} of {:?}", name, row);
            }
        }
        prop_assert!(walk.next_values().is_none());
        Ok(())
    }

    proptest! {
        #[test]
        fn measurements_are_the_same_however_they_are_read(
            bucket in bucket(),
            wanted in prop::option::of(prop::sample::subsequence(vec!["t", "m", "a", "b", "d"], 0..5)),
            chosen in any::<[bool; 8]>(),
        ) {
            let wanted: Option<Vec<Box<str>>> =
                wanted.map(|names| names.into_iter().map(Into::into).collect());
            let wanted = wanted.as_deref();
            let expected = naive(bucket.as_raw(), wanted);
            check(bucket.as_raw(), wanted, &expected)?;
            for chosen in [[true; 8], chosen] {
                check(compressed(bucket.as_raw(), &chosen).as_raw(), wanted, &expected)?;
            }
        }
    }

    #[test]
    fn columns_of_numbers_are_read_in_place_beside_others() {
        let bucket = doc! {"meta": 5, "data": {
            "t": {"0": (Value::DateTime(10)), "1": (Value::DateTime(20)), "3": (Value::DateTime(30))},
            "a": {"1": 1.5, "2": 2.5, "3": 2.5},
            "s": {"0": "x", "3": "y"},
        }};
        let bucket = compressed(bucket.as_raw(), &[true; 3]);
        let names: [Box<str>; 3] = ["a".into(), "s".into(), "t".into()];
        let opened = Opened::of(bucket.as_raw(), "t", Some("m"), Some(&names)).expect("a bucket");
        let in_place: Vec<bool> =
            opened.columns.iter().map(|(_, column)| matches!(column, Readable::InPlace { .. })).collect();
        assert_eq!(in_place, [true, false]);
        assert!(matches!(opened.times, Some(Readable::InPlace { .. })));
        let mut walk = opened.walk("t", Some("m"), &names).expect("no name is there twice");
        let mut shown = Vec::new();
        while let Some(values) = walk.next_values() {
            shown.push(format!("{values:?}"));
        }
        assert_eq!(
            shown,
            [
                "[None, Some(String(\"x\")), Some(DateTime(10))]",
                "[Some(Double(1.5)), None, Some(DateTime(20))]",
                "[Some(Double(2.5)), Some(String(\"y\")), Some(DateTime(30))]",
            ]
        );
    }

    #[test]
    fn a_tidy_bucket_is_walked() {
        let bucket = doc! {"meta": 5, "data": {
            "t": {"0": 1, "1": 2, "2": 3},
            "a": {"1": 7},
        }};
        let names: [Box<str>; 3] = ["a".into(), "m".into(), "t".into()];
        let opened = Opened::of(bucket.as_raw(), "t", Some("m"), Some(&names)).expect("a bucket");
        let mut walk = opened.walk("t", Some("m"), &names).expect("no name is there twice");
        let mut shown = Vec::new();
        while let Some(values) = walk.next_values() {
            shown.push(format!("{values:?}"));
        }
        assert_eq!(
            shown,
            [
                "[None, Some(Int32(5)), Some(Int32(1))]",
                "[Some(Int32(7)), Some(Int32(5)), Some(Int32(2))]",
                "[None, Some(Int32(5)), Some(Int32(3))]",
            ]
        );
    }
}
