//! `$push`: elements are inserted at a position, then the array is sorted, then cut.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{Collator, RawDocument, RawValue, Value, compare_with};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, ErrorCode, Result};

use super::array::{array_of, long_of};
use super::change::Change;
use super::operator::{Append, Missing, Operator, Site};
use crate::interrupt;

#[derive(Debug, Default)]
struct Push {
    values: Vec<Value>,
    position: Option<i64>,
    sort: Option<Sort>,
    /// How many elements stay: the first ones, or the last ones if negative.
    slice: Option<i64>,
    /// How texts are sorted.
    collation: Option<Collation>,
}

#[derive(Debug)]
enum Sort {
    /// The elements themselves.
    Whole(Direction),
    Fields(Vec<(Box<str>, Direction)>),
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Rising,
    Falling,
}

pub(super) fn parse(
    _path: &str,
    argument: RawValue<'_>,
    collation: &Option<Collation>,
) -> Result<Arc<dyn Operator>> {
    let push = match argument {
        RawValue::Document(clauses) if clauses.get("$each").is_some() => {
            Push { collation: collation.clone(), ..parse_clauses(clauses)? }
        }
        value => Push { values: vec![value.to_value()], ..Push::default() },
    };
    Ok(Arc::new(push))
}

fn parse_clauses(clauses: RawDocument<'_>) -> Result<Push> {
    let mut seen: Vec<&str> = Vec::new();
    for (name, _) in clauses {
        if !["$each", "$slice", "$sort", "$position"].contains(&name) {
            return Err(refuse(format!("Unrecognized clause in $push: {name}")));
        }
        if seen.contains(&name) {
            return Err(refuse(format!("Only one {name} is supported.")));
        }
        seen.push(name);
    }
    let mut push = Push::default();
    match clauses.get("$each") {
        Some(RawValue::Array(values)) => push.values = values.iter().map(RawValue::to_value).collect(),
        other => {
            let kind = other.unwrap_or(RawValue::Null).element_type().name();
            return Err(refuse(format!(
                "The argument to $each in $push must be an array but it was of type: {kind}"
            )));
        }
    }
    if let Some(slice) = clauses.get("$slice") {
        push.slice = Some(long_of(slice).ok_or_else(|| {
            let kind = slice.element_type().name();
            refuse(format!("The value for $slice must be an integer value but was given type: {kind}"))
        })?);
    }
    if let Some(sort) = clauses.get("$sort") {
        push.sort = Some(parse_sort(sort)?);
    }
    if let Some(position) = clauses.get("$position") {
        push.position = Some(long_of(position).ok_or_else(|| {
            let kind = position.element_type().name();
            refuse(format!("The value for $position must be an integer value, not of type: {kind}"))
        })?);
    }
    Ok(push)
}

fn parse_sort(sort: RawValue<'_>) -> Result<Sort> {
    match sort {
        RawValue::Document(fields) => parse_sort_fields(fields).map(Sort::Fields),
        number if number.is_number() => Direction::of(number)
            .map(Sort::Whole)
            .ok_or_else(|| refuse("The $sort element value must be either 1 or -1".to_owned())),
        _ => Err(refuse(
            "The $sort is invalid: use 1/-1 to sort the whole element, or {field:1/-1} to sort embedded fields"
                .to_owned(),
        )),
    }
}

fn parse_sort_fields(fields: RawDocument<'_>) -> Result<Vec<(Box<str>, Direction)>> {
    if fields.is_empty() {
        return Err(refuse("The sort pattern is empty when it should be a set of fields.".to_owned()));
    }
    let parse = |(name, value): (&str, RawValue<'_>)| {
        let direction = Direction::of(value)
            .ok_or_else(|| refuse("The sort element value must be either 1 or -1".to_owned()))?;
        if name.is_empty() {
            return Err(refuse("The sort field cannot be empty".to_owned()));
        }
        if name.split('.').any(str::is_empty) {
            return Err(refuse(format!("The sort field is a dotted field but has an empty part: {name}")));
        }
        Ok((name.into(), direction))
    };
    fields.iter().map(parse).collect()
}

fn refuse(message: String) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

impl Direction {
    fn of(value: RawValue<'_>) -> Option<Direction> {
        match long_of(value) {
            Some(1) => Some(Direction::Rising),
            Some(-1) => Some(Direction::Falling),
            _ => None,
        }
    }

    fn apply(self, order: Ordering) -> Ordering {
        match self {
            Direction::Rising => order,
            Direction::Falling => order.reverse(),
        }
    }
}

impl Sort {
    fn compare(&self, left: RawValue<'_>, right: RawValue<'_>, collator: Option<&dyn Collator>) -> Ordering {
        match self {
            Sort::Whole(direction) => direction.apply(compare_with(left, right, collator)),
            Sort::Fields(fields) => fields
                .iter()
                .map(|(name, direction)| {
                    let (left, right) = (sort_field(left, name), sort_field(right, name));
                    direction.apply(compare_with(left, right, collator))
                })
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal),
        }
    }
}

/// What an element is sorted by: null for a missing field and for an element that is no document.
fn sort_field<'v>(element: RawValue<'v>, path: &str) -> RawValue<'v> {
    element.as_document().and_then(|document| field_at(document, path)).unwrap_or(RawValue::Null)
}

/// A field whose name holds the dot comes before a path through it.
fn field_at<'v>(document: RawDocument<'v>, path: &str) -> Option<RawValue<'v>> {
    if let Some(value) = document.get(path) {
        return Some(value);
    }
    let (name, rest) = path.split_once('.')?;
    match document.get(name)? {
        RawValue::Document(document) => field_at(document, rest),
        RawValue::Array(array) => field_at(array.as_document(), rest),
        _ => None,
    }
}

impl Push {
    /// The new array, or none where nothing was done. Sorting counts as done even if the order stays.
    fn apply(&self, elements: Vec<RawValue<'_>>) -> Result<Option<Value>> {
        let mut changed = !self.values.is_empty();
        let mut elements = elements;
        let at = self.insertion_point(elements.len());
        elements.splice(at..at, self.values.iter().map(Value::as_raw));
        if let Some(sort) = &self.sort {
            let collator = collator(&self.collation);
            interrupt::sort(&mut elements, |left, right| sort.compare(*left, *right, collator))?;
            changed |= !elements.is_empty();
        }
        if let Some(slice) = self.slice {
            let kept = usize::try_from(slice.unsigned_abs()).unwrap_or(usize::MAX);
            if kept < elements.len() {
                match slice < 0 {
                    true => drop(elements.drain(..elements.len() - kept)),
                    false => elements.truncate(kept),
                }
                changed = true;
            }
        }
        Ok(changed.then(|| array_of(elements.into_iter())))
    }

    /// Whether all that was there stays, and the values come behind it. A position that is exactly the end counts as one
    /// inside, as for mongod.
    fn appends_to(&self, length: usize) -> bool {
        let room = self.slice.is_none_or(|slice| {
            usize::try_from(slice.unsigned_abs()).is_ok_and(|kept| kept >= length + self.values.len())
        });
        let behind = self.position.is_none_or(|position| position > length as i64);
        length > 0 && self.sort.is_none() && room && behind
    }

    fn insertion_point(&self, length: usize) -> usize {
        match self.position {
            None => length,
            Some(position) => {
                let distance = usize::try_from(position.unsigned_abs()).unwrap_or(usize::MAX);
                if position < 0 { length.saturating_sub(distance) } else { distance.min(length) }
            }
        }
    }
}

impl Operator for Push {
    fn update<'a>(&'a self, value: RawValue<'a>, site: &Site<'a, '_>) -> Result<Change<'a>> {
        let RawValue::Array(array) = value else {
            return Err(refuse(format!(
                "The field '{}' must be an array but is of type {} in document {{{}}}",
                site.path_text(),
                value.element_type().name(),
                site.id_text()
            )));
        };
        let elements: Vec<RawValue<'a>> = array.iter().collect();
        let from = elements.len();
        let appends = self.appends_to(from);
        Ok(match self.apply(elements)? {
            None => Change::Keep,
            Some(array) if appends => Change::Appended { array, from },
            Some(array) => Change::SetOwned(array),
        })
    }

    fn missing<'a>(&'a self, _site: &Site<'a, '_>) -> Result<Missing<'a>> {
        let value = self.apply(Vec::new())?.unwrap_or_else(|| array_of(std::iter::empty()));
        Ok(Missing::Create(Change::SetOwned(value)))
    }

    fn appends(&self) -> Option<Append> {
        let is_plain = self.position.is_none() && self.sort.is_none() && self.slice.is_none();
        is_plain.then_some(Append::All)
    }
}
