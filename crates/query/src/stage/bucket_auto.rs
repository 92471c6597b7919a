//! `$bucketAuto`: documents divided into buckets of about equal size, in the order of an expression's value.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_collation::Collation;
use kilim_error::{Error, Result};

use super::granularity::Granularity;
use super::group::{parse_field, show_fields};
use super::{Behaviour, Beyond, Context, Modified, Stage};
use crate::accumulator::{Accumulator, Number};
use crate::expression::{Dependencies, Expression};
use crate::text;

#[derive(Debug, Clone)]
pub struct BucketAuto {
    pub group_by: Expression,
    /// How many at most.
    pub buckets: u32,
    /// The series along which boundaries lie.
    pub granularity: Option<Granularity>,
    pub fields: Vec<(Box<str>, Accumulator)>,
    /// How texts compare.
    pub collation: Option<Collation>,
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let type_name = |value: RawValue<'_>| value.element_type().name();
    let RawValue::Document(spec) = value else {
        let message =
            format!("The argument to $bucketAuto must be an object, but found type: {}", type_name(value));
        return Err(Error::location(40240, message));
    };
    let (mut group_by, mut buckets, mut granularity, mut fields) = (None, None, None, Vec::new());
    for (name, value) in spec {
        match (name, value) {
            ("groupBy", _) => group_by = Some(parse_group_by(value, context)?),
            ("buckets", _) => buckets = Some(parse_buckets(value)?),
            ("output", RawValue::Document(output)) => {
                for (name, value) in output {
                    fields.push(parse_field(name, value, &fields, context.scope)?);
                }
            }
            ("output", _) => {
                let found = type_name(value);
                let message =
                    format!("The $bucketAuto 'output' field must be an object, but found type: {found}");
                return Err(Error::location(40244, message));
            }
            ("granularity", RawValue::String(name)) => {
                granularity = Some(Granularity::find(name).ok_or_else(|| {
                    Error::location(40257, format!("Unknown rounding granularity '{name}'"))
                })?);
            }
            ("granularity", _) => {
                let found = type_name(value);
                let message =
                    format!("The $bucketAuto 'granularity' field must be a string, but found type: {found}");
                return Err(Error::location(40261, message));
            }
            _ => return Err(Error::location(40245, format!("Unrecognized option to $bucketAuto: {name}"))),
        }
    }
    let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
        return Err(Error::location(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified"));
    };
    if fields.is_empty() {
        fields.push(("count".into(), Accumulator::count()));
    }
    out.push(Stage::BucketAuto(Arc::new(BucketAuto {
        group_by,
        buckets,
        granularity,
        fields,
        collation: context.scope.collation().clone(),
    })));
    Ok(())
}

fn parse_group_by(value: RawValue<'_>, context: &Context<'_>) -> Result<Expression> {
    let expression = match value {
        RawValue::String(text) => text.starts_with('$'),
        RawValue::Document(document) => document.iter().next().is_some_and(|(name, _)| name.starts_with('$')),
        _ => false,
    };
    if !expression {
        let wanted = "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an expression object, \
                      but found:";
        return Err(Error::location(40239, format!("{wanted} {}", text::value(value))));
    }
    Ok(Expression::parse(value, context.scope)?.optimised_if_it_can_be())
}

fn parse_buckets(value: RawValue<'_>) -> Result<u32> {
    let Some(number) = Number::of(value) else {
        let found = value.element_type().name();
        let message =
            format!("The $bucketAuto 'buckets' field must be a numeric value, but found type: {found}");
        return Err(Error::location(40241, message));
    };
    let count = number.to_f64();
    if count.fract() != 0.0 || !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&count) {
        let wanted = "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found";
        return Err(Error::location(40242, format!("{wanted} {}", crate::filter::number::short(count))));
    }
    if count <= 0.0 {
        let wanted = "The $bucketAuto 'buckets' field must be greater than 0, but found:";
        return Err(Error::location(40243, format!("{wanted} {count}")));
    }
    Ok(count as u32)
}

impl Behaviour for BucketAuto {
    fn to_document(&self) -> Document {
        let mut stage = Document::new();
        stage.push("groupBy", self.group_by.to_value());
        stage.push("buckets", self.buckets as i32);
        if let Some(granularity) = self.granularity {
            stage.push("granularity", granularity.name);
        }
        let mut output = Document::new();
        show_fields(&self.fields, &mut output);
        stage.push("output", output);
        [("$bucketAuto", Value::Document(stage))].into_iter().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        self.group_by.dependencies(needed);
        self.fields.iter().for_each(|(_, accumulator)| accumulator.dependencies(needed));
        Beyond::Nothing
    }

    fn modified(&self) -> Modified {
        Modified::Unknown
    }
}
