//! A difference of two documents in the form in which MongoDB's log holds it (`{$v: 2, diff: {…}}`), applied to the first.
//!
//! A document's difference has the sections `d` (fields that go), `u` (fields with another value), `i` (fields that are new
//! and come last) and `sNAME` (a difference within a field). An array's begins with `a: true` and has `l` (its new length),
//! `uINDEX` and `sINDEX`. A field that a difference within it is not made for, such as a number, becomes null: something else
//! came after the difference, and will come again.

use std::collections::HashMap;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, ErrorCode, Result};

/// A parsed difference.
#[derive(Debug, Clone)]
pub(super) enum Delta {
    Object {
        /// Fields that were there: what becomes of them. `None` goes.
        fields: HashMap<Box<str>, Option<Edit>>,
        /// Values for fields that are not there, in order, and those that come last even if they are.
        appended: Vec<(Box<str>, Value, bool)>,
    },
    Array {
        length: Option<usize>,
        elements: Vec<(usize, Edit)>,
    },
}

#[derive(Debug, Clone)]
pub(super) enum Edit {
    Value(Value),
    Within(Box<Delta>),
}

/// Positions beyond this are nobody's: an array of so many nulls would be made first.
const POSITION_MAX: usize = 1_500_000;

impl Delta {
    pub(super) fn parse(diff: RawDocument<'_>) -> Result<Delta> {
        match diff.get("a") {
            Some(RawValue::Bool(true)) => Delta::parse_array(diff),
            _ => Delta::parse_object(diff),
        }
    }

    fn parse_object(diff: RawDocument<'_>) -> Result<Delta> {
        let (mut fields, mut appended) = (HashMap::new(), Vec::new());
        // Sections come in this order, each once.
        let mut reached = 0;
        for (name, value) in diff.iter() {
            let Some(section) = value.as_document() else { return Err(unexpected(name)) };
            let rank = match name {
                "d" => 1,
                "u" => 2,
                "i" => 3,
                name if name.starts_with('s') => 4,
                _ => return Err(unexpected(name)),
            };
            if rank < reached || (rank == reached && rank < 4) {
                return Err(unexpected(name));
            }
            reached = rank;
            match rank {
                1 => fields.extend(section.iter().map(|(name, _)| (Box::from(name), None))),
                2 => {
                    for (name, value) in section.iter() {
                        fields.insert(Box::from(name), Some(Edit::Value(value.to_value())));
                        appended.push((Box::from(name), value.to_value(), false));
                    }
                }
                3 => {
                    for (name, value) in section.iter() {
                        fields.insert(Box::from(name), None);
                        appended.push((Box::from(name), value.to_value(), true));
                    }
                }
                _ => {
                    let within = Edit::Within(Box::new(Delta::parse(section)?));
                    fields.insert(Box::from(&name[1..]), Some(within));
                }
            }
        }
        Ok(Delta::Object { fields, appended })
    }

    fn parse_array(diff: RawDocument<'_>) -> Result<Delta> {
        let (mut length, mut elements) = (None, Vec::new());
        for (name, value) in diff.iter().filter(|(name, _)| *name != "a") {
            let position = |name: &str| -> Result<usize> {
                let position = name[1..].parse().ok().filter(|&position| position <= POSITION_MAX);
                position.ok_or_else(|| unexpected(name))
            };
            match (name, value) {
                ("l", RawValue::Int32(new)) if (0..=POSITION_MAX as i32).contains(&new) => {
                    length = Some(new as usize);
                }
                (name, value) if name.starts_with('u') => {
                    elements.push((position(name)?, Edit::Value(value.to_value())));
                }
                (name, RawValue::Document(section)) if name.starts_with('s') => {
                    elements.push((position(name)?, Edit::Within(Box::new(Delta::parse(section)?))));
                }
                (name, _) => return Err(unexpected(name)),
            }
        }
        Ok(Delta::Array { length, elements })
    }

    /// The document after the difference.
    pub(super) fn apply(&self, before: RawDocument<'_>) -> Document {
        let mut writer = Writer::new();
        if let Delta::Object { fields, appended } = self {
            for (name, value) in before.iter() {
                match fields.get(name) {
                    None => writer.append(name, value),
                    Some(None) => {}
                    Some(Some(edit)) => writer.append(name, edit.apply(value).as_raw()),
                }
            }
            for (name, value, anyway) in appended {
                if *anyway || before.get(name).is_none() {
                    writer.append(name, value.as_raw());
                }
            }
        }
        writer.finish()
    }

    fn apply_to_array(&self, before: RawArray<'_>) -> Value {
        let mut values: Vec<Value> = before.iter().map(RawValue::to_value).collect();
        if let Delta::Array { length, elements } = self {
            if let Some(length) = length {
                values.truncate(*length);
            }
            for (position, edit) in elements {
                if *position >= values.len() {
                    // Within an element that is not there, there is nothing to change.
                    if let Edit::Within(_) = edit {
                        continue;
                    }
                    values.resize(*position + 1, Value::Null);
                }
                values[*position] = edit.apply(values[*position].as_raw());
            }
        }
        Value::Array(values.into_iter().collect())
    }
}

impl Edit {
    fn apply(&self, before: RawValue<'_>) -> Value {
        match (self, before) {
            (Edit::Value(value), _) => value.clone(),
            (Edit::Within(delta), RawValue::Document(before)) if matches!(**delta, Delta::Object { .. }) => {
                Value::Document(delta.apply(before))
            }
            (Edit::Within(delta), RawValue::Array(before)) if matches!(**delta, Delta::Array { .. }) => {
                delta.apply_to_array(before)
            }
            // As on MongoDB: something else came after, and will come again.
            (Edit::Within(_), _) => Value::Null,
        }
    }
}

fn unexpected(section: &str) -> Error {
    Error::location(4_770_503, format!("Unexpected section: {section} in document diff"))
}

/// The difference in an update `{$v: 2, diff: {…}}`.
pub(super) fn diff_of(update: RawDocument<'_>) -> Result<RawDocument<'_>> {
    let missing =
        || Error::user(ErrorCode::FailedToParse, "a logged update needs a 'diff' that is an object");
    update.get("diff").and_then(RawValue::as_document).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    fn check(before: Document, diff: Document, after: Document) {
        assert_eq!(Delta::parse(diff.as_raw()).unwrap().apply(before.as_raw()), after);
    }

    #[test]
    fn fields_go_change_in_place_and_come_last() {
        check(
            doc! {"_id": 1, "a": 1, "b": 2, "c": 3},
            doc! {"d": {"a": false}, "u": {"c": 4, "new": 5}, "i": {"b": 6}},
            doc! {"_id": 1, "c": 4, "new": 5, "b": 6},
        );
    }

    #[test]
    fn a_difference_within_another_type_makes_null_of_it() {
        check(doc! {"a": 1}, doc! {"sa": {"u": {"x": 1}}}, doc! {"a": Value::Null});
        check(doc! {"a": {"x": 1}}, doc! {"sa": {"u": {"x": 2}}}, doc! {"a": {"x": 2}});
    }

    #[test]
    fn arrays_are_cut_filled_and_changed() {
        check(
            doc! {"a": [1, {"x": 1}, 3, 4]},
            doc! {"sa": {"a": true, "l": 3, "u0": 9, "s1": {"u": {"x": 2}}}},
            doc! {"a": [9, {"x": 2}, 3]},
        );
        check(
            doc! {"a": [1]},
            doc! {"sa": {"a": true, "u3": 4}},
            doc! {"a": [1, Value::Null, Value::Null, 4]},
        );
    }

    #[test]
    fn sections_out_of_order_are_refused() {
        let diff = doc! {"u": {"a": 1}, "d": {"b": false}};
        assert_eq!(Delta::parse(diff.as_raw()).unwrap_err().code().0, 4_770_503);
    }
}
