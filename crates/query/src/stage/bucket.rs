//! `$bucket`: a `$group` by a `$switch` over the boundaries, and a `$sort` by what it gives.

use std::sync::Arc;

use kilim_bson::{RawArray, RawValue, Value, Writer, canonical_type, compare_with, doc};
use kilim_collation::collator;
use kilim_error::{Error, Result};

use super::group::parse_field;
use super::{Context, Group, SortBy, Stage};
use crate::accumulator::Accumulator;
use crate::expression::show::show;
use crate::expression::{Expression, Scope};
use crate::sort::Sort;
use crate::text;

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(spec) = value else {
        return Err(Error::location(
            40201,
            format!("Argument to $bucket stage must be an object, but found type: {}.", type_name(value)),
        ));
    };
    let scope = context.scope;
    let (mut group_by, mut boundaries, mut default, mut output) = (None, None, None, None);
    for (name, value) in spec {
        match (name, value) {
            ("groupBy", _) => group_by = Some(check_group_by(value)?),
            ("boundaries", RawValue::Array(list)) => boundaries = Some(parse_boundaries(list, scope)?),
            ("boundaries", _) => {
                let found = type_name(value);
                let message =
                    format!("The $bucket 'boundaries' field must be an array, but found type: {found}.");
                return Err(Error::location(40200, message));
            }
            ("default", _) => {
                default = Some(constant(value, scope)?.ok_or_else(|| {
                    let found = text::value(value);
                    let wanted = "The $bucket 'default' field must be a constant expression, but found:";
                    Error::location(40195, format!("{wanted} {found}."))
                })?);
            }
            ("output", RawValue::Document(fields)) => output = Some(fields),
            ("output", _) => {
                let found = type_name(value);
                let message =
                    format!("The $bucket 'output' field must be an object, but found type: {found}.");
                return Err(Error::location(40196, message));
            }
            _ => return Err(Error::location(40197, format!("Unrecognized option to $bucket: {name}."))),
        }
    }
    let (Some(group_by), Some(boundaries)) = (group_by, boundaries) else {
        return Err(Error::location(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified."));
    };
    if let Some(default) = &default {
        check_default(default.as_raw(), &boundaries, scope)?;
    }
    let id = switch(group_by, &boundaries, default.as_ref().map(Value::as_raw));
    let id = Expression::parse(id.as_raw(), scope)?.optimised_if_it_can_be();
    let mut fields = Vec::new();
    match output {
        None => fields.push(("count".into(), Accumulator::count())),
        Some(output) => {
            for (name, value) in output {
                if name == "_id" {
                    return Err(Error::location(15948, "a group's _id may only be specified once"));
                }
                fields.push(parse_field(name, value, &fields, scope)?);
            }
        }
    }
    out.push(Stage::Group(Arc::new(Group { id, fields, collation: scope.collation().clone() })));
    out.push(Stage::Sort(SortBy::new(Arc::new(Sort::parse_in(doc! {"_id": 1}.as_raw(), scope)?))));
    Ok(())
}

fn type_name(value: RawValue<'_>) -> &'static str {
    value.element_type().name()
}

/// A path or a call: nothing else depends on the document in a way that makes sense.
fn check_group_by(value: RawValue<'_>) -> Result<RawValue<'_>> {
    let expression = match value {
        RawValue::String(text) => text.starts_with('$'),
        RawValue::Document(document) => document.iter().next().is_some_and(|(name, _)| name.starts_with('$')),
        _ => false,
    };
    if expression {
        return Ok(value);
    }
    let wanted =
        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression, but found:";
    Err(Error::location(40202, format!("{wanted} {}.", text::value(value))))
}

fn constant(value: RawValue<'_>, scope: &Scope<'_>) -> Result<Option<Value>> {
    Ok(Expression::parse(value, scope)?.optimised()?.as_constant().cloned())
}

fn parse_boundaries(list: RawArray<'_>, scope: &Scope<'_>) -> Result<Vec<Value>> {
    let mut boundaries: Vec<Value> = Vec::new();
    for value in list.iter() {
        boundaries.push(constant(value, scope)?.ok_or_else(|| {
            let wanted =
                "The $bucket 'boundaries' field must be an array of constant values, but found value:";
            Error::location(40191, format!("{wanted} {}.", text::value(value)))
        })?);
    }
    if boundaries.len() < 2 {
        return Err(Error::location(
            40192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
                boundaries.len()
            ),
        ));
    }
    for (at, pair) in boundaries.windows(2).enumerate() {
        let (lower, upper) = (pair[0].as_raw(), pair[1].as_raw());
        if canonical_type(lower.element_type()) != canonical_type(upper.element_type()) {
            return Err(Error::location(
                40193,
                format!(
                    "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting \
                     types {} and {}.",
                    type_name(lower),
                    type_name(upper)
                ),
            ));
        }
        if compare_with(lower, upper, collator(scope.collation())).is_ge() {
            return Err(Error::location(
                40194,
                format!(
                    "The 'boundaries' option to $bucket must be sorted, but elements {at} and {} are not in ascending \
                     order ({} is not less than {}).",
                    at + 1,
                    show(lower),
                    show(upper)
                ),
            ));
        }
    }
    Ok(boundaries)
}

fn check_default(default: RawValue<'_>, boundaries: &[Value], scope: &Scope<'_>) -> Result<()> {
    let [lowest, .., highest] = boundaries else { return Ok(()) };
    let against = |bound: &Value| compare_with(default, bound.as_raw(), collator(scope.collation()));
    if against(lowest).is_ge() && against(highest).is_lt() {
        return Err(Error::location(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest \
             boundary.",
        ));
    }
    Ok(())
}

/// `{$switch: …}`: the lower bound of the bucket that holds the value.
fn switch(group_by: RawValue<'_>, boundaries: &[Value], default: Option<RawValue<'_>>) -> Value {
    let compared = |out: &mut Writer, operator: &str, at: usize, boundary: RawValue<'_>| {
        out.open_document_at(at);
        out.open_array(operator);
        out.append_index(0, group_by);
        out.open_document_at(1);
        out.append("$literal", boundary);
        out.close();
        out.close();
        out.close();
    };
    let mut out = Writer::new();
    out.open_document("$switch");
    out.open_array("branches");
    for (at, pair) in boundaries.windows(2).enumerate() {
        out.open_document_at(at);
        out.open_document("case");
        out.open_array("$and");
        compared(&mut out, "$gte", 0, pair[0].as_raw());
        compared(&mut out, "$lt", 1, pair[1].as_raw());
        out.close();
        out.close();
        out.open_document("then");
        out.append("$literal", pair[0].as_raw());
        out.close();
        out.close();
    }
    out.close();
    if let Some(default) = default {
        out.open_document("default");
        out.append("$literal", default);
        out.close();
    }
    out.close();
    Value::Document(out.finish())
}
