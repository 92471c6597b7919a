//! What `$pull` removes by: a condition on one array element.

use kilim_bson::{Path, RawValue, compare_with};
use kilim_collation::Collation;
use kilim_error::Result;

use super::parse::{FilterPlace, first_name, is_field_operator, parse_field};
use super::{Filter, Operand};

#[derive(Debug, Clone)]
pub enum ElementFilter {
    /// `{$pull: {list: {sku: 1}}}`: elements that are documents and match.
    Document(Filter),
    /// `{$pull: {list: {$gte: 3}}}`, `{$pull: {list: /^a/}}`: operators on the element itself.
    Operators(Filter),
    /// `{$pull: {list: 3}}`: elements that compare equal.
    Equal(Operand),
}

impl ElementFilter {
    pub fn parse(condition: RawValue<'_>, collation: &Option<Collation>) -> Result<ElementFilter> {
        match condition {
            RawValue::Document(document) if !first_name(document).is_some_and(is_field_operator) => {
                Ok(ElementFilter::Document(Filter::parse_for_elements(document, collation)?))
            }
            RawValue::Document(_) | RawValue::Regex { .. } => {
                let mut predicates = Vec::new();
                parse_field(Path::parse(""), condition, FilterPlace::elements(collation), &mut predicates)?;
                Ok(ElementFilter::Operators(Filter::And(predicates).simplified()))
            }
            other => Ok(ElementFilter::Equal(Operand::new(other.to_value(), collation))),
        }
    }

    pub fn matches(&self, element: RawValue<'_>) -> bool {
        match self {
            ElementFilter::Document(filter) => {
                element.as_document().is_some_and(|document| filter.matches_element(document))
            }
            ElementFilter::Operators(filter) => filter.matches_value(element),
            ElementFilter::Equal(wanted) => compare_with(element, wanted.as_raw(), wanted.collator()).is_eq(),
        }
    }
}
