//! `polymorphic`: documents of one collection that are of several variants, each with rules of its own.
//!
//! A field, the discriminator, says which variant a document is of. Its rules are `$jsonSchema`s: those of `base`, of the
//! variants that it extends, and its own. Together they are one validator ([`Variant::validator`]), so a refusal says what
//! MongoDB says of a collection with that validator. Nothing is maintained: the pattern has [`Rules`], which the write path
//! asks about every document that a user writes.
//!
//! Indexes of a variant are partial indexes over its documents and those of the variants that extend it.

mod breach;
mod kind;
mod parse;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, identical};
use kilim_error::Result;
use kilim_query::validator::{Now, Validator};

use super::Kind;
use super::rules::{Breach, Judgement, Rules};
use crate::path::{Names, get, visit_values, with_value};

pub(super) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    Ok(Arc::new(Polymorphic::parse(spec)?))
}

#[derive(Debug)]
struct Polymorphic {
    discriminator: Box<str>,
    discriminator_names: Names,
    variants: Vec<Variant>,
    /// What documents of no known variant must keep.
    base: Option<Validator>,
    unknown: Unknown,
    on_type_change: OnTypeChange,
    level: Level,
    action: Action,
}

#[derive(Debug)]
struct Variant {
    name: Box<str>,
    /// All its rules; none where it has none.
    validator: Option<Validator>,
    /// Whose rules the validator's clauses are, in their order.
    clauses: Vec<Clause>,
    /// The fields that its rules speak of, and those of `base`.
    fields: Vec<Box<str>>,
    /// Its name, and those of the variants that extend it.
    family: Vec<Box<str>>,
    indexes: Vec<VariantIndex>,
}

/// Whose rules a clause of a validator holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Clause {
    Base,
    Variant(Box<str>),
    /// That there are no other fields.
    Extra,
}

#[derive(Debug, Clone)]
struct VariantIndex {
    key: Document,
    unique: bool,
}

/// What becomes of documents of a variant that was not declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Reject,
    Allow,
}

/// What becomes of a document that becomes one of another variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnTypeChange {
    /// It must be valid as what it becomes.
    Validate,
    /// The fields go that only its old variant speaks of.
    Unset,
    Reject,
}

/// `validationLevel`, as of collections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Off,
    Strict,
    /// Documents that were invalid before may stay so.
    Moderate,
}

/// `validationAction`, as of collections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Error,
    Warn,
}

/// The time does not matter: schemas do not speak of it.
const NO_TIME: Now = Now { millis: 0, cluster_time: kilim_bson::Timestamp { seconds: 0, increment: 0 } };

impl Polymorphic {
    fn value_of<'d>(&self, document: RawDocument<'d>) -> Option<RawValue<'d>> {
        get(document, &self.discriminator_names)
    }

    /// Whether the discriminator's path leads through an array to a value, as an index over it would find it.
    fn is_named_in_arrays(&self, document: RawDocument<'_>) -> bool {
        let mut is_named = false;
        visit_values(document, &self.discriminator_names, &mut |_| is_named = true);
        is_named
    }

    fn variant_of(&self, document: RawDocument<'_>) -> Option<&Variant> {
        let name = self.value_of(document)?.as_str()?;
        self.variants.iter().find(|variant| *variant.name == *name)
    }

    /// What the change of a discriminator breaks.
    fn breach_of_change(&self, before: RawDocument<'_>, after: RawDocument<'_>) -> Option<Breach> {
        let old = self.value_of(before)?;
        match self.value_of(after) {
            None => Some(self.without_discriminator()),
            Some(new) if self.on_type_change == OnTypeChange::Reject && !identical(old, new) => {
                Some(self.changed_variant(old, new))
            }
            Some(_) => None,
        }
    }

    /// A document that becomes one of another variant, without the fields that only the old one speaks of; none where it
    /// has none of them.
    fn without_foreign_fields(&self, before: RawDocument<'_>, after: RawDocument<'_>) -> Option<Document> {
        let (old, new) = (self.variant_of(before)?, self.variant_of(after)?);
        if old.name == new.name {
            return None;
        }
        let foreign = old.fields.iter().filter(|field| !new.fields.contains(field));
        let made = foreign.fold(after.to_document(), |made, field| with_value(made.as_raw(), field, None));
        (made.as_bytes() != after.as_bytes()).then_some(made)
    }
}

impl Rules for Polymorphic {
    fn judge(&self, before: Option<RawDocument<'_>>, after: RawDocument<'_>) -> Result<Judgement> {
        if self.level == Level::Off {
            return Ok(Judgement::Passes);
        }
        let breach = match before.and_then(|before| self.breach_of_change(before, after)) {
            Some(breach) => breach,
            None => match self.breach(after)? {
                None => return Ok(Judgement::Passes),
                Some(breach) => match before {
                    Some(before) if self.level == Level::Moderate && self.breach(before)?.is_some() => {
                        return Ok(Judgement::Passes);
                    }
                    _ => breach,
                },
            },
        };
        Ok(match self.action {
            Action::Error => Judgement::Refuses(breach),
            Action::Warn => Judgement::Warns(breach),
        })
    }

    fn breach(&self, document: RawDocument<'_>) -> Result<Option<Breach>> {
        let variant = match self.value_of(document) {
            // Indexes of every variant that it names would hold it.
            Some(value @ RawValue::Array(_)) => return Ok(Some(self.unknown_variant(Some(value)))),
            None if self.is_named_in_arrays(document) => return Ok(Some(self.named_in_array())),
            value => match (self.variant_of(document), self.unknown) {
                (Some(variant), _) => Some(variant),
                (None, Unknown::Allow) => None,
                (None, Unknown::Reject) if value.is_none() => return Ok(Some(self.without_discriminator())),
                (None, Unknown::Reject) => return Ok(Some(self.unknown_variant(value))),
            },
        };
        let validator = match variant {
            Some(variant) => variant.validator.as_ref(),
            None => self.base.as_ref(),
        };
        match validator {
            None => Ok(None),
            Some(validator) if validator.passes(document, || NO_TIME)? => Ok(None),
            Some(validator) => Ok(Some(breach::of(variant, validator.explain(document, NO_TIME)))),
        }
    }
}
