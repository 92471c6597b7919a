//! Fields as an array of `{k, v}` and back: `$objectToArray`, `$arrayToObject`.

use std::collections::HashMap;

use kilim_bson::{RawArray, RawDocument, RawValue, Writer};
use kilim_error::{Error, Result};

use crate::expression::array::Building;
use crate::expression::show::show;
use crate::expression::{Call, Env, Evaluated};

pub(super) fn object_to_array<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    if input.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(document) = input.as_document() else {
        let found = input.type_name();
        return Err(Error::location(
            40_390,
            format!("$objectToArray requires a document input, found: {found}"),
        ));
    };
    let mut pairs = Building::new();
    for (name, value) in document {
        env.tick()?;
        pairs.try_write(|index, writer| {
            writer.open_document_at(index);
            writer.append("k", RawValue::String(name));
            writer.append("v", value);
            writer.close();
            Ok(())
        })?;
    }
    Ok(pairs.finish())
}

pub(super) fn array_to_object<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let input = call.argument(0, env)?;
    if input.is_nullish() {
        return Ok(Evaluated::NULL);
    }
    let Some(elements) = input.as_array() else {
        let found = input.type_name();
        return Err(Error::location(
            40_386,
            format!("$arrayToObject requires an array input, found: {found}"),
        ));
    };
    let mut fields: Vec<(&str, RawValue<'_>)> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut form = None;
    for element in elements.iter() {
        env.tick()?;
        let (name, value) = match (form, element) {
            (None | Some(Form::Pair), RawValue::Array(pair)) => {
                form = Some(Form::Pair);
                of_pair(pair)?
            }
            (None | Some(Form::Document), RawValue::Document(document)) => {
                form = Some(Form::Document);
                of_document(document)?
            }
            (form, other) => return Err(unexpected(form, other)),
        };
        // A name that comes again replaces the value and keeps the place.
        match places.get(name) {
            Some(&place) => fields[place].1 = value,
            None => {
                places.insert(name, fields.len());
                fields.push((name, value));
            }
        }
    }
    let mut out = Writer::new();
    fields.into_iter().for_each(|(name, value)| out.append(name, value));
    Ok(out.finish().into())
}

/// How the first element is written; all others must be so too.
#[derive(Clone, Copy)]
enum Form {
    Pair,
    Document,
}

fn unexpected(form: Option<Form>, found: RawValue<'_>) -> Error {
    let found = found.element_type().name();
    let (code, first) = match form {
        None => {
            return Error::location(
                40_398,
                format!("Unrecognised input type format for $arrayToObject: {found}"),
            );
        }
        Some(Form::Pair) => (40_396, "Array"),
        Some(Form::Document) => (40_391, "Object"),
    };
    Error::location(
        code,
        format!(
            "$arrayToObject requires a consistent input format. Elements mustall be arrays or all be objects. \
             {first} was detected, now found: {found}"
        ),
    )
}

fn of_pair(pair: RawArray<'_>) -> Result<(&str, RawValue<'_>)> {
    let mut values = pair.iter();
    let (Some(name), Some(value), None) = (values.next(), values.next(), values.next()) else {
        let size = pair.len();
        return Err(Error::location(
            40_397,
            format!("$arrayToObject requires an array of size 2 arrays,found array of size: {size}"),
        ));
    };
    let RawValue::String(name) = name else {
        let found = name.element_type().name();
        return Err(Error::location(
            40_395,
            format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of type string. \
                 Found key type: {found}"
            ),
        ));
    };
    check_name(name, 4_940_400)?;
    Ok((name, value))
}

fn of_document(document: RawDocument<'_>) -> Result<(&str, RawValue<'_>)> {
    let count = document.iter().count();
    if count != 2 {
        return Err(Error::location(
            40_392,
            format!(
                "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{count}"
            ),
        ));
    }
    let (Some(name), Some(value)) = (document.get("k"), document.get("v")) else {
        let found = show(RawValue::Document(document));
        return Err(Error::location(
            40_393,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys from: {found}"
            ),
        ));
    };
    let RawValue::String(name) = name else {
        let found = name.element_type().name();
        return Err(Error::location(
            40_394,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type \
                 string. Found type: {found}"
            ),
        ));
    };
    check_name(name, 4_940_401)?;
    Ok((name, value))
}

fn check_name(name: &str, code: i32) -> Result<()> {
    if name.contains('\0') {
        return Err(Error::location(code, "Key field cannot contain an embedded null byte"));
    }
    Ok(())
}
