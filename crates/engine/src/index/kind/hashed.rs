//! Hashed indexes: one part of the key holds a hash of the value.
//!
//! Bounds over the hashed part are points only, each a hash, and the record decides. Documents with arrays are refused.

use kilim_bson::{Collator, RawDocument, RawValue, Rounding, Value, Writer};
use kilim_collation::Collation;
use kilim_error::{Error, Result};
use kilim_query::expression::hashed_key;
use kilim_query::filter::{Comparison, InList, Operand, Predicate};
use kilim_query::text::document as shell_text;

use super::ordered::value_bounds;
use super::{Index, IndexSpec, KeyPart, KeySet, Kind, KindOptions, Multikey};
use crate::bounds::{Bounds, Interval, IntervalList, PartTraits, Tightness, bounds_of};
use crate::index::Holds;
use crate::index::keys::follow;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashed;

impl Kind for Hashed {
    const NAME: Option<&'static str> = Some("hashed");

    fn is_kind_of(key: RawDocument<'_>) -> bool {
        hashed_parts(key) > 0
    }

    fn of(_key: RawDocument<'_>, _projection: Option<RawDocument<'_>>) -> Hashed {
        Hashed
    }

    fn parts(key: RawDocument<'_>) -> Vec<KeyPart> {
        let mut parts = KeyPart::fields_of(key);
        for (part, (_, direction)) in parts.iter_mut().zip(key.iter()) {
            if is_hashed(direction) {
                part.holds = Holds::Hash;
            }
        }
        parts
    }

    fn check_options(
        key: RawDocument<'_>,
        _projection: Option<RawDocument<'_>>,
        options: &KindOptions<'_>,
        _spec: RawDocument<'_>,
    ) -> Result<()> {
        let hashed = hashed_parts(key);
        if hashed > 1 {
            return Err(Error::location(
                31303,
                format!(
                    "A maximum of one index field is allowed to be hashed but found {hashed} for 'key' {}",
                    shell_text(key)
                ),
            ));
        }
        if options.unique {
            let message = "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.";
            return Err(Error::location(16764, message));
        }
        Ok(())
    }

    /// Adds the one key of the document.
    fn add_keys(&self, spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
        let mut values = Vec::with_capacity(spec.key.len());
        for part in &spec.key {
            let (found, next) = follow(document, &part.path);
            if let Some(RawValue::Array(_)) = found {
                let names: Vec<&str> =
                    part.path.components()[..next].iter().map(|component| &*component.name).collect();
                return Err(Error::location(
                    16766,
                    format!(
                        "Error: hashed indexes do not currently support array values. Found array at path: {}",
                        names.join(".")
                    ),
                ));
            }
            values.push(found);
        }
        if spec.sparse && values.iter().all(Option::is_none) {
            return Ok(Multikey::default());
        }
        let values = values.iter().zip(&spec.key).map(|(value, part)| {
            let value = value.unwrap_or(RawValue::Null);
            match part.holds {
                Holds::Hash => RawValue::Int64(hash_of(value, spec.collator())),
                _ => value,
            }
        });
        out.push(spec, values)?;
        Ok(Multikey::default())
    }

    fn takes_arrays(&self) -> bool {
        false
    }

    fn bounds(
        &self,
        index: &Index,
        part: usize,
        predicate: &Predicate,
        traits: PartTraits<'_>,
    ) -> Option<Bounds> {
        let part = &index.spec.key[part];
        match part.holds {
            Holds::Hash => hashed_bounds(predicate, traits),
            _ => value_bounds(&part.path, predicate, traits),
        }
    }
}

fn is_hashed(direction: RawValue<'_>) -> bool {
    matches!(direction, RawValue::String("hashed"))
}

fn hashed_parts(key: RawDocument<'_>) -> usize {
    key.iter().filter(|(_, direction)| is_hashed(*direction)).count()
}

/// A value in a hashed part. Values that are equal have one hash, so a decimal counts by its whole part, as other
/// numbers do, and a text by the collator's key for it.
pub fn hash_of(value: RawValue<'_>, collator: Option<&dyn Collator>) -> i64 {
    match (value, collator) {
        (RawValue::Decimal128(number), _) => match number.round_to_whole(Rounding::TowardZero).to_i64() {
            Some(whole) => hashed_key(RawValue::Int64(whole)),
            None => hashed_key(value),
        },
        (RawValue::String(_) | RawValue::Symbol(_) | RawValue::Document(_), Some(collator)) => {
            let mut writer = Writer::new();
            append_collated(&mut writer, "", value, collator);
            hashed_key(writer.finish().get("").expect("a field just written"))
        }
        (value, _) => hashed_key(value),
    }
}

/// Appends the value with the collator's keys in place of texts, each byte as the character of that number.
///
/// Recursion is bounded by the depth of a stored document.
fn append_collated(out: &mut Writer, name: &str, value: RawValue<'_>, collator: &dyn Collator) {
    match value {
        RawValue::String(text) | RawValue::Symbol(text) => {
            let mut key = Vec::with_capacity(text.len() * 2);
            collator.write_key(text, &mut key);
            let key: String = key.into_iter().map(char::from).collect();
            out.append(name, RawValue::String(&key));
        }
        RawValue::Document(document) => {
            out.open_document(name);
            for (name, value) in document {
                append_collated(out, name, value, collator);
            }
            out.close();
        }
        RawValue::Array(array) => {
            out.open_array(name);
            for (name, value) in array.as_document() {
                append_collated(out, name, value, collator);
            }
            out.close();
        }
        value => out.append(name, value),
    }
}

/// The bounds of a predicate; `None` where hashes cannot serve it.
fn hashed_bounds(predicate: &Predicate, part: PartTraits<'_>) -> Option<Bounds> {
    if !part.texts.allow(predicate) {
        return None;
    }
    let intervals = match predicate {
        Predicate::Compare(Comparison::Eq, value) => IntervalList::union_of(equal(value, part)?),
        Predicate::Expr(Comparison::Eq, value) if !matches!(**value, Value::Array(_)) => {
            IntervalList::union_of(equal(value, PartTraits { sparse: false, ..part })?)
        }
        Predicate::In(list) if list.regexes().is_empty() => one_of(list, part)?,
        Predicate::Exists => IntervalList::full(),
        Predicate::Not(negated) if matches!(**negated, Predicate::Exists) && !part.sparse => {
            IntervalList::one(point(RawValue::Null, part))
        }
        _ => return None,
    };
    Some(Bounds { intervals, tightness: Tightness::InexactFetch })
}

fn equal(value: &Value, part: PartTraits<'_>) -> Option<Vec<Interval>> {
    match value {
        Value::Null | Value::Undefined if part.sparse => None,
        Value::Null | Value::Undefined => {
            Some(vec![point(RawValue::Undefined, part), point(RawValue::Null, part)])
        }
        // No document in the index has an array here. The bounds are those that MongoDB shows.
        Value::Array(_) => {
            let operand = Operand::new(value.clone(), &part.texts.collation.cloned());
            let shown = bounds_of(&Predicate::Compare(Comparison::Eq, operand), part)?;
            Some(shown.intervals.intervals().to_vec())
        }
        value => Some(vec![point(value.as_raw(), part)]),
    }
}

/// Values that share a hash are refused: a part that is one point is taken to be one value where order is asked
/// for.
fn one_of(list: &InList, part: PartTraits<'_>) -> Option<IntervalList> {
    let mut points = Vec::with_capacity(list.values().len());
    for value in list.values() {
        points.extend(equal(value, part)?);
    }
    let number = points.len();
    let intervals = IntervalList::union_of(points);
    (intervals.intervals().len() == number).then_some(intervals)
}

fn point(value: RawValue<'_>, part: PartTraits<'_>) -> Interval {
    let collator = part.texts.collation.map(Collation::as_collator);
    Interval::point(Value::Int64(hash_of(value, collator)))
}
