//! `$fill`: values for fields that are missing or null.
//!
//! It becomes a `$setWindowFields` for what is carried forward or put on a line, and an `$addFields` for what is
//! computed from the document itself.

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, Result};

use super::field::{given, missing, specification, unknown, wrong_type};
use super::project::invalid;
use super::{AddFields, Context, SetWindowFields, Stage};
use crate::expression::Expression;
use crate::path::check_field_path;
use crate::projection::Projection;
use crate::sort::Sort;
use crate::window::WindowFunction;

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let spec = specification(name, value)?;
    let (mut partition, mut partition_fields, mut sort, mut output) = (None, None, None, None);
    for (field, value) in given(spec) {
        let path = format!("{name}.{field}");
        match (field, value) {
            ("partitionBy", RawValue::Document(_)) => partition = Some(value.to_value()),
            ("partitionByFields", RawValue::Array(fields)) => {
                partition_fields = Some(fields_of(&path, fields.iter())?);
            }
            ("partitionByFields", value) => return Err(wrong_type(&path, value, "type 'array'")),
            ("sortBy", RawValue::Document(by)) => sort = Some(by),
            ("output", RawValue::Document(fields)) => output = Some(fields),
            ("partitionBy" | "sortBy" | "output", value) => {
                return Err(wrong_type(&path, value, "type 'object'"));
            }
            _ => return Err(unknown(&path)),
        }
    }
    let output = output.ok_or_else(|| missing(&format!("{name}.output")))?;
    if output.is_empty() {
        return Err(Error::location(
            6_050_203,
            "The output field in '$fill' must contain an object with at least one element",
        ));
    }
    if partition.is_some() && partition_fields.is_some() {
        return Err(Error::location(
            6_050_204,
            "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'",
        ));
    }
    let outputs = parse_output(name, output)?;
    let partition = partition.or(partition_fields.map(Value::Document));
    push_windows(&outputs, partition, sort, context, out)?;
    push_values(&outputs, context, out)
}

/// What a field is filled with.
enum With<'a> {
    Value(RawValue<'a>),
    /// `$locf` or `$linearFill`.
    Method(&'static str),
}

fn parse_output<'a>(name: &str, output: RawDocument<'a>) -> Result<Vec<(&'a str, With<'a>)>> {
    let mut outputs = Vec::new();
    for (field, spec) in output {
        let RawValue::Document(spec) = spec else {
            return Err(Error::location(
                6_050_200,
                "Each fill output specification must be an object with exactly one field",
            ));
        };
        let (mut value, mut method) = (None, None);
        for (option, operand) in spec {
            match (option, operand) {
                ("value", operand) => value = Some(operand),
                ("method", RawValue::Null | RawValue::Undefined) => {}
                ("method", RawValue::String(text)) => method = Some(text),
                ("method", other) => {
                    return Err(wrong_type(&format!("{name}.method"), other, "type 'string'"));
                }
                _ => return Err(unknown(&format!("{name}.{option}"))),
            }
        }
        outputs.push((
            field,
            match (value, method) {
                (Some(_), Some(_)) => {
                    return Err(Error::location(
                        6_050_201,
                        "Each fill output specification must have exactly one of 'method' or 'value' fields, not both",
                    ));
                }
                (Some(value), None) => With::Value(value),
                (None, Some("locf")) => With::Method("$locf"),
                (None, Some("linear")) => With::Method("$linearFill"),
                (None, Some(_)) => {
                    return Err(Error::location(6_050_202, "Method must be either locf or linear"));
                }
                (None, None) => continue,
            },
        ));
    }
    Ok(outputs)
}

fn push_windows(
    outputs: &[(&str, With<'_>)],
    partition: Option<Value>,
    sort: Option<RawDocument<'_>>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    // Where no field needs an order, nobody looks at it.
    if !outputs.iter().any(|(_, with)| matches!(with, With::Method(_))) {
        return Ok(());
    }
    let sort = sort.map(|by| Sort::parse_in(by, context.scope)).transpose()?;
    let mut fields = Vec::new();
    for (field, with) in outputs {
        let With::Method(method) = with else { continue };
        check_field_path(field)?;
        let mut function = Document::new();
        function.push(method, format!("${field}"));
        let function = Value::Document(function);
        let function = WindowFunction::parse(field, function.as_raw(), sort.as_ref(), context.scope)?;
        fields.push(((*field).into(), function));
    }
    let partition = partition.map(|it| Expression::parse(it.as_raw(), context.scope)).transpose()?;
    SetWindowFields::push(partition, sort, fields, context, out)
}

fn push_values(outputs: &[(&str, With<'_>)], context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let mut fields = Document::new();
    for (field, with) in outputs {
        let With::Value(value) = with else { continue };
        let mut filled = Document::new();
        let either = [Value::from(format!("${field}")), value.to_value()];
        filled.push("$ifNull", Value::Array(either.into_iter().collect()));
        fields.push(field, filled);
    }
    if fields.is_empty() {
        return Ok(());
    }
    let added = Projection::parse_addition(fields.as_raw(), context.scope);
    out.push(Stage::AddFields(AddFields::of(added.map_err(|error| invalid("$addFields", error))?)));
    Ok(())
}

/// `{a: "$a", b: "$b"}` of the names of fields.
fn fields_of<'a>(path: &str, names: impl Iterator<Item = RawValue<'a>>) -> Result<Document> {
    let mut fields = Document::new();
    for (at, name) in names.enumerate() {
        let RawValue::String(name) = name else {
            return Err(wrong_type(&format!("{path}.{at}"), name, "type 'string'"));
        };
        fields.push(name, format!("${name}"));
    }
    Ok(fields)
}
