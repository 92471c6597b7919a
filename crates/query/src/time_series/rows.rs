//! The measurements of a bucket.

use std::iter::Peekable;
use std::vec::IntoIter;

use kilim_bson::{Document, RawDocument, RawValue, Value, Writer, parse_index};
use kilim_error::Result;

use super::META;
use super::column::Room;

/// A bucket that is read from the first measurement to the last. It owns the values, so that it can wait in a cursor; each
/// measurement is made when it is asked for, because a large meta is in all of them.
pub struct Rows {
    /// The field's name, where it is wanted.
    time_field: Option<Box<str>>,
    times: IntoIter<(usize, Value)>,
    /// The field's name and what it holds.
    meta: Option<(Box<str>, Value)>,
    columns: Vec<Column>,
}

struct Column {
    name: Box<str>,
    values: Peekable<IntoIter<(usize, Value)>>,
}

impl Rows {
    /// Begins to read a bucket. `wanted`: which fields are looked at; none stands for all.
    pub fn of(
        bucket: RawDocument<'_>,
        time_field: &str,
        meta_field: Option<&str>,
        wanted: Option<&[Box<str>]>,
    ) -> Result<Rows> {
        let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.iter().any(|each| **each == *name));
        let meta = meta_field.filter(|name| is_wanted(name)).zip(bucket.get(META));
        let mut rows = Rows {
            time_field: is_wanted(time_field).then(|| time_field.into()),
            times: Vec::new().into_iter(),
            meta: meta.map(|(name, meta)| (name.into(), meta.to_value())),
            columns: Vec::new(),
        };
        let data = bucket.get("data").and_then(RawValue::as_document);
        let mut room = Room::of_a_bucket();
        for (name, stored) in data.into_iter().flatten() {
            if name != time_field && !is_wanted(name) {
                continue;
            }
            let Some(column) = super::column::Column::of(stored, &mut room)? else { continue };
            let numbered =
                column.values().iter().filter_map(|(at, value)| Some((parse_index(at)?, value.to_value())));
            let values = numbered.collect::<Vec<_>>().into_iter();
            if name == time_field {
                rows.times = values;
            } else {
                rows.columns.push(Column { name: name.into(), values: values.peekable() });
            }
        }
        Ok(rows)
    }
}

/// Fields come in this order: the time, the meta, the columns as the bucket has them.
impl Iterator for Rows {
    type Item = Document;

    fn next(&mut self) -> Option<Document> {
        let (number, time) = self.times.next()?;
        let mut out = Writer::new();
        if let Some(name) = &self.time_field {
            out.append(name, time.as_raw());
        }
        if let Some((name, meta)) = &self.meta {
            out.append(name, meta.as_raw());
        }
        for column in &mut self.columns {
            while column.values.next_if(|(at, _)| *at < number).is_some() {}
            if let Some((_, value)) = column.values.next_if(|(at, _)| *at == number) {
                out.append(&column.name, value.as_raw());
            }
        }
        Some(out.finish())
    }
}
