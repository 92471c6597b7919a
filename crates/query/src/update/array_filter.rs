//! Array filters: the conditions that `$[identifier]` stands for.

use kilim_bson::{RawArray, RawDocument, RawValue};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use crate::filter::Filter;

#[derive(Debug, Clone)]
pub(super) struct ArrayFilter {
    pub identifier: Box<str>,
    filter: Filter,
}

impl ArrayFilter {
    pub fn parse_all(filters: RawArray<'_>, collation: &Option<Collation>) -> Result<Vec<ArrayFilter>> {
        let mut parsed: Vec<ArrayFilter> = Vec::new();
        for (index, filter) in filters.iter().enumerate() {
            let RawValue::Document(filter) = filter else {
                let kind = filter.element_type().name();
                let message = format!(
                    "BSON field 'update.updates.arrayFilters.{index}' is the wrong type '{kind}', expected type \
                     'object'"
                );
                return Err(Error::user(ErrorCode::TypeMismatch, message));
            };
            let filter = ArrayFilter::parse(filter, collation)?;
            if parsed.iter().any(|other| other.identifier == filter.identifier) {
                return Err(refuse(format!(
                    "Found multiple array filters with the same top-level field name {}",
                    filter.identifier
                )));
            }
            parsed.push(filter);
        }
        Ok(parsed)
    }

    fn parse(document: RawDocument<'_>, collation: &Option<Collation>) -> Result<ArrayFilter> {
        let filter = Filter::parse_for_elements(document, collation).map_err(in_array_filter)?;
        let identifier = identifier(&filter).map_err(in_array_filter)?.ok_or_else(|| {
            refuse("Cannot use an expression without a top-level field name in arrayFilters".to_owned())
        })?;
        let mut letters = identifier.bytes();
        let valid = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_alphanumeric());
        if !valid {
            let message = format!(
                "The top-level field name must be an alphanumeric string beginning with a lowercase letter, found \
                 '{identifier}'"
            );
            return Err(in_array_filter(Error::user(ErrorCode::BadValue, message)));
        }
        let identifier = identifier.into();
        Ok(ArrayFilter { identifier, filter })
    }

    pub fn matches(&self, element: RawValue<'_>) -> bool {
        self.filter.matches_value(element)
    }
}

/// The one name with which every path of the filter begins.
fn identifier(filter: &Filter) -> Result<Option<&str>> {
    match filter {
        // An expression has no path, and no place in an array filter.
        Filter::True | Filter::False | Filter::Expr(_) | Filter::JsonSchema(_) | Filter::Text(_) => Ok(None),
        Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => {
            let mut found = None;
            for child in children {
                match (found, identifier(child)?) {
                    (Some(first), Some(second)) if first != second => {
                        return Err(refuse(format!(
                            "Expected a single top-level field name, found '{first}' and '{second}'"
                        )));
                    }
                    (None, other) => found = other,
                    _ => {}
                }
            }
            Ok(found)
        }
        Filter::Field { path, .. } => Ok(path.components().first().map(|component| &*component.name)),
    }
}

fn refuse(message: String) -> Error {
    Error::user(ErrorCode::FailedToParse, message)
}

fn in_array_filter(error: Error) -> Error {
    match error {
        Error::User(mut user) => {
            user.message = format!("Error parsing array filter :: caused by :: {}", user.message);
            Error::User(user)
        }
        other => other,
    }
}
