//! Whether a value satisfies a schema, on raw bytes and without allocation.

use kilim_bson::{Decimal128, RawArray, RawValue};

use super::super::{Comparison, number};
use super::{Additional, ArrayRules, Items, Logic, Scalar, Schema, unordered};
use crate::interrupt;

impl Schema {
    pub(super) fn matches(&self, value: RawValue<'_>) -> bool {
        interrupt::goes_on(1)
            && self.impossible.is_none()
            && self.types.as_ref().is_none_or(|(_, types)| types.contains(value.element_type()))
            && self.scalar.iter().all(|(_, scalar)| scalar.matches(value))
            && match (value, &self.object, &self.array) {
                (RawValue::Document(document), Some(object), _) => object.matches(document),
                (RawValue::Array(array), _, Some(rules)) => rules.matches(array),
                _ => true,
            }
            && self.encrypted.as_ref().is_none_or(|encrypted| encrypted.matches(value))
            && self.logic.matches(value)
    }
}

impl Scalar {
    pub(super) fn matches(&self, value: RawValue<'_>) -> bool {
        match (self, value) {
            (Scalar::MultipleOf(divisor), value) if value.is_number() => is_multiple(value, *divisor),
            (Scalar::Maximum { bound, exclusive }, value) if value.is_number() => {
                let comparison = if *exclusive { Comparison::Lt } else { Comparison::Lte };
                comparison.test(bound.as_raw(), Some(value), None)
            }
            (Scalar::Minimum { bound, exclusive }, value) if value.is_number() => {
                let comparison = if *exclusive { Comparison::Gt } else { Comparison::Gte };
                comparison.test(bound.as_raw(), Some(value), None)
            }
            (Scalar::Pattern(regex), RawValue::String(text)) => regex.is_match(text),
            (Scalar::MaxLength(max), RawValue::String(text)) => {
                // A code point has four bytes at the most, so a short text needs no count.
                text.len() as i64 <= *max || text.chars().count() as i64 <= *max
            }
            (Scalar::MinLength(min), RawValue::String(text)) => {
                text.len() as i64 >= *min && (*min == 0 || text.chars().count() as i64 >= *min)
            }
            _ => true,
        }
    }
}

/// Numbers are taken as decimals, so that 0.3 is a multiple of 0.1.
fn is_multiple(value: RawValue<'_>, divisor: Decimal128) -> bool {
    let value = number::to_decimal(value);
    value.is_finite() && value.remainder(divisor).is_zero()
}

impl ArrayRules {
    pub(super) fn matches(&self, array: RawArray<'_>) -> bool {
        if self.min.is_some() || self.max.is_some() {
            let length = array.len() as i64;
            if self.min.as_ref().is_some_and(|min| length < min.number)
                || self.max.as_ref().is_some_and(|max| length > max.number)
            {
                return false;
            }
        }
        let items = match &self.items {
            None => true,
            Some(Items::Each(schema)) => array.iter().all(|item| schema.matches(item)),
            Some(Items::List(schemas)) => {
                array.iter().zip(schemas).all(|(item, schema)| schema.matches(item))
                    && self.additional_match(array, schemas.len())
            }
        };
        items && (!self.unique || duplicate(array).is_none())
    }

    fn additional_match(&self, array: RawArray<'_>, from: usize) -> bool {
        match &self.additional {
            None => true,
            Some(Additional::Forbidden) => array.iter().nth(from).is_none(),
            Some(Additional::Like(schema)) => array.iter().skip(from).all(|item| schema.matches(item)),
        }
    }
}

/// Longer arrays are sorted to find what is twice in them.
const COMPARED_PAIRWISE: usize = 32;

/// The first element that equals one before it.
pub(super) fn duplicate(array: RawArray<'_>) -> Option<RawValue<'_>> {
    if array.iter().nth(COMPARED_PAIRWISE).is_some() {
        let mut items: Vec<(usize, RawValue<'_>)> = array.iter().enumerate().collect();
        if interrupt::sort(&mut items, |(_, a), (_, b)| unordered::order(*a, *b)).is_err() {
            // Kept there, so that whoever asked is told.
            interrupt::goes_on(usize::MAX);
            return None;
        }
        let equal = items.windows(2).filter(|pair| unordered::order(pair[0].1, pair[1].1).is_eq());
        return equal.map(|pair| pair[1]).min_by_key(|(at, _)| *at).map(|(_, item)| item);
    }
    let mut items = array.iter().enumerate();
    items.find_map(|(at, item)| {
        array.iter().take(at).any(|before| unordered::equal(before, item)).then_some(item)
    })
}

impl Logic {
    pub(super) fn matches(&self, value: RawValue<'_>) -> bool {
        self.all_of.iter().all(|schema| schema.matches(value))
            && (self.any_of.is_empty() || self.any_of.iter().any(|schema| schema.matches(value)))
            && (self.one_of.is_empty()
                || self.one_of.iter().filter(|schema| schema.matches(value)).take(2).count() == 1)
            && self.not.as_ref().is_none_or(|schema| !schema.matches(value))
            && self.lists(value)
    }

    /// Whether `enum` has the value, or there is none.
    pub(super) fn lists(&self, value: RawValue<'_>) -> bool {
        let Some(specified) = &self.one_of_values else { return true };
        let list = specified.iter().find_map(|(_, list)| list.as_array());
        list.is_some_and(|list| list.iter().any(|one| unordered::equal(one, value)))
    }
}
