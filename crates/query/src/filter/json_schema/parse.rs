//! From a schema document to rules, with mongod's errors in mongod's order.

use kilim_bson::{Document, ElementType, RawArray, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::super::{Regex, number};
use super::encrypt::{self, Encrypted};
use super::keywords::{Keywords, failed, mismatch, parse_json_types, parse_types};
use super::object::{Dependency, ObjectRules};
use super::{Additional, ArrayRules, Items, Logic, Scalar, Schema, Subject, unordered};

impl Schema {
    pub(super) fn parse(document: RawDocument<'_>, subject: Subject) -> Result<Schema> {
        let keywords = Keywords::of(document)?;
        let mut schema = Schema {
            title: keywords.text("title")?.map(Into::into),
            description: keywords.text("description")?.map(Into::into),
            ..Schema::default()
        };
        schema.parse_types(&keywords)?;
        schema.scalar = parse_scalars(&keywords, subject)?;
        schema.array = parse_array(&keywords)?.map(Box::new);
        if let Some(value) = keywords.get("encrypt") {
            schema.encrypted = Some(Encrypted::parse(value)?).filter(|_| subject == Subject::Value);
        }
        if let Some(value) = keywords.get("encryptMetadata") {
            encrypt::check_metadata(value)?;
        }
        schema.object = parse_object(&keywords, subject)?.map(Box::new);
        schema.logic = parse_logic(&keywords, subject)?;
        schema.drop_idle();
        if subject == Subject::Document {
            schema.array = None;
            if schema.types.take().is_some_and(|(_, types)| !types.contains(ElementType::Document)) {
                schema.impossible = Some(document.to_document());
            }
        }
        schema.mentions_encryption = keywords.get("encrypt").is_some()
            || keywords.get("encryptMetadata").is_some()
            || schema.children().any(|child| child.mentions_encryption);
        Ok(schema)
    }

    /// Takes away rules for kinds of values that the types leave out, as mongod does: reports do not name them.
    fn drop_idle(&mut self) {
        let Some((_, types)) = self.types else { return };
        self.scalar.retain(|(_, scalar)| match scalar {
            Scalar::MultipleOf(_) | Scalar::Maximum { .. } | Scalar::Minimum { .. } => types.has_numbers(),
            Scalar::Pattern(_) | Scalar::MaxLength(_) | Scalar::MinLength(_) => {
                types.contains(ElementType::String)
            }
        });
        if !types.contains(ElementType::Array) {
            self.array = None;
        }
        if !types.contains(ElementType::Document)
            && let Some(object) = self.object.take()
            && !object.dependencies.is_empty()
        {
            let mut kept = ObjectRules::default();
            kept.dependencies = object.dependencies;
            self.object = Some(Box::new(kept));
        }
    }

    fn parse_types(&mut self, keywords: &Keywords<'_>) -> Result<()> {
        let both = |one: &str, other: &str| {
            failed(format!("Cannot specify both $jsonSchema keywords '{one}' and '{other}'"))
        };
        let implied = |other: &str| {
            failed(format!(
                "$jsonSchema keyword 'encrypt' cannot be used in conjunction with '{other}', 'encrypt' implies type \
                 'bsonType::BinData'"
            ))
        };
        let (json, bson) = (keywords.get("type"), keywords.get("bsonType"));
        match (json, bson, keywords.get("encrypt"), keywords.get("encryptMetadata")) {
            (Some(_), Some(_), ..) => return Err(both("type", "bsonType")),
            (Some(_), _, Some(_), _) => return Err(implied("type")),
            (_, Some(_), Some(_), _) => return Err(implied("bsonType")),
            (_, _, Some(_), Some(_)) => return Err(both("encrypt", "encryptMetadata")),
            _ => {}
        }
        self.types = match (json, bson) {
            (Some(value), _) => Some((specified("type", value), parse_json_types(value)?)),
            (_, Some(value)) => Some((specified("bsonType", value), parse_types("bsonType", value)?)),
            _ => None,
        };
        Ok(())
    }

    /// The schemas within.
    fn children(&self) -> impl Iterator<Item = &Schema> {
        let logic = &self.logic;
        let lists = [&logic.all_of, &logic.any_of, &logic.one_of].into_iter().flatten();
        let object = self.object.iter().flat_map(|object| {
            let properties = object.properties.iter().map(|(_, schema)| schema);
            let patterns = object.patterns.iter().map(|(_, schema)| schema);
            let dependencies = object.dependencies.iter().filter_map(|(_, one)| match one {
                Dependency::Schema(schema) => Some(&**schema),
                Dependency::Properties(_) => None,
            });
            properties.chain(patterns).chain(dependencies).chain(like(&object.additional))
        });
        let array = self.array.iter().flat_map(|array| {
            let items = match &array.items {
                None => &[][..],
                Some(Items::Each(schema)) => std::slice::from_ref(&**schema),
                Some(Items::List(schemas)) => schemas,
            };
            items.iter().chain(like(&array.additional))
        });
        lists.chain(logic.not.as_deref()).chain(object).chain(array)
    }
}

fn like(additional: &Option<Additional>) -> Option<&Schema> {
    match additional {
        Some(Additional::Like(schema)) => Some(schema),
        _ => None,
    }
}

/// A keyword as reports show it.
fn specified(name: &str, value: RawValue<'_>) -> Document {
    [(name, value.to_value())].into_iter().collect()
}

fn parse_scalars(keywords: &Keywords<'_>, subject: Subject) -> Result<Vec<(Document, Scalar)>> {
    let mut rules = Vec::new();
    let of_value = subject == Subject::Value;
    if let Some(value) = keywords.number("multipleOf")? {
        let divisor = number::to_decimal(value);
        if !divisor.is_nan() && (divisor.is_zero() || divisor.is_negative()) {
            return Err(failed("$jsonSchema keyword 'multipleOf' must have a positive value"));
        }
        if of_value {
            let bad = |message: &str| Err(Error::user(ErrorCode::BadValue, message));
            match divisor {
                divisor if divisor.is_nan() => return bad("divisor cannot be NaN"),
                divisor if divisor.is_infinite() => return bad("divisor cannot be infinite"),
                _ => rules.push((specified("multipleOf", value), Scalar::MultipleOf(divisor))),
            }
        }
    }
    if let Some((specified, bound, exclusive)) = parse_bound(keywords, "maximum", "exclusiveMaximum")? {
        rules.push((specified, Scalar::Maximum { bound: bound.to_value(), exclusive }));
    }
    if let Some((specified, bound, exclusive)) = parse_bound(keywords, "minimum", "exclusiveMinimum")? {
        rules.push((specified, Scalar::Minimum { bound: bound.to_value(), exclusive }));
    }
    if let Some(value) = keywords.get("pattern") {
        let RawValue::String(text) = value else {
            return Err(mismatch("$jsonSchema keyword 'pattern' must be a string"));
        };
        if of_value {
            rules.push((specified("pattern", value), Scalar::Pattern(Regex::new(text, "")?)));
        }
    }
    for (name, rule) in [
        ("maxLength", Scalar::MaxLength as fn(i64) -> Scalar),
        ("minLength", Scalar::MinLength as fn(i64) -> Scalar),
    ] {
        if let (Some(length), Some(value)) = (keywords.count(name)?, keywords.get(name)) {
            rules.push((specified(name, value), rule(length)));
        }
    }
    Ok(if of_value { rules } else { Vec::new() })
}

fn parse_bound<'a>(
    keywords: &Keywords<'a>,
    name: &str,
    exclusive: &str,
) -> Result<Option<(Document, RawValue<'a>, bool)>> {
    let Some(bound) = keywords.number(name)? else {
        return match keywords.get(exclusive) {
            None => Ok(None),
            Some(_) => Err(failed(format!(
                "$jsonSchema keyword '{name}' must be a present if {exclusive} is present"
            ))),
        };
    };
    let mut document = specified(name, bound);
    let is_exclusive = keywords.boolean(exclusive)?.unwrap_or(false);
    if is_exclusive {
        document.push(exclusive, true);
    }
    Ok(Some((document, bound, is_exclusive)))
}

fn parse_array(keywords: &Keywords<'_>) -> Result<Option<ArrayRules>> {
    let mut rules = ArrayRules {
        min: keywords.bound("minItems")?,
        max: keywords.bound("maxItems")?,
        unique: keywords.boolean("uniqueItems")?.unwrap_or(false),
        ..ArrayRules::default()
    };
    rules.items = match keywords.get("items") {
        None => None,
        Some(RawValue::Document(document)) => {
            Some(Items::Each(Box::new(Schema::parse(document, Subject::Value)?)))
        }
        Some(RawValue::Array(list)) => {
            let schemas = list.iter().map(|item| match item {
                RawValue::Document(document) => Schema::parse(document, Subject::Value),
                other => Err(mismatch(format!(
                    "$jsonSchema keyword 'items' requires that each element of the array is an object, but found a {}",
                    other.element_type().name()
                ))),
            });
            Some(Items::List(schemas.collect::<Result<_>>()?))
        }
        Some(other) => {
            return Err(mismatch(format!(
                "$jsonSchema keyword 'items' must be an array or an object, not {}",
                other.element_type().name()
            )));
        }
    };
    let additional = parse_additional(keywords.get("additionalItems"), |value| {
        format!(
            "$jsonSchema keyword 'additionalItems' must be either an object or a boolean, but got a {}",
            value.element_type().name()
        )
    })?;
    // Only a list of items leaves anything over.
    rules.additional = additional.filter(|_| matches!(rules.items, Some(Items::List(_))));
    let idle = rules.min.is_none() && rules.max.is_none() && !rules.unique && rules.items.is_none();
    Ok((!idle).then_some(rules))
}

fn parse_additional(
    value: Option<RawValue<'_>>,
    wrong: impl Fn(RawValue<'_>) -> String,
) -> Result<Option<Additional>> {
    Ok(match value {
        None | Some(RawValue::Bool(true)) => None,
        Some(RawValue::Bool(false)) => Some(Additional::Forbidden),
        Some(RawValue::Document(document)) => {
            Some(Additional::Like(Box::new(Schema::parse(document, Subject::Value)?)))
        }
        Some(other) => return Err(mismatch(wrong(other))),
    })
}

fn parse_object(keywords: &Keywords<'_>, subject: Subject) -> Result<Option<ObjectRules>> {
    let mut rules = ObjectRules::default();
    rules.required = parse_required(keywords)?;
    for (name, value) in keywords.object("properties")?.unwrap_or(RawDocument::empty()).iter() {
        let document = value.as_document().ok_or_else(|| {
            mismatch(format!("Nested schema for $jsonSchema property '{name}' must be an object"))
        })?;
        rules.properties.push((name.into(), Schema::parse(document, Subject::Value)?));
    }
    for (pattern, value) in keywords.object("patternProperties")?.unwrap_or(RawDocument::empty()).iter() {
        let document = value.as_document().ok_or_else(|| {
            mismatch(format!(
                "$jsonSchema keyword 'patternProperties' has property '{pattern}' which is not an object"
            ))
        })?;
        let schema = Schema::parse(document, Subject::Value)?;
        crate::interrupt::check()?;
        let regex = Regex::compile(pattern, "")
            .map_err(|why| Error::user(ErrorCode::BadValue, format!("Invalid regular expression: {why}")))?;
        rules.patterns.push((regex, schema));
    }
    rules.additional = parse_additional(keywords.get("additionalProperties"), |_| {
        "$jsonSchema keyword 'additionalProperties' must be an object or a boolean".to_owned()
    })?;
    rules.min = keywords.bound("minProperties")?;
    rules.max = keywords.bound("maxProperties")?;
    for (name, value) in keywords.object("dependencies")?.unwrap_or(RawDocument::empty()).iter() {
        rules.dependencies.push((name.into(), parse_dependency(name, value, subject)?));
    }
    let idle = rules.properties.is_empty()
        && rules.patterns.is_empty()
        && rules.additional.is_none()
        && rules.required.is_empty()
        && rules.min.is_none()
        && rules.max.is_none()
        && rules.dependencies.is_empty();
    rules.index_names();
    Ok((!idle).then_some(rules))
}

fn parse_required(keywords: &Keywords<'_>) -> Result<Vec<Box<str>>> {
    let Some(list) = keywords.list("required")? else { return Ok(Vec::new()) };
    let mut names: Vec<Box<str>> = Vec::new();
    for value in list.iter() {
        let RawValue::String(name) = value else {
            return Err(mismatch(format!(
                "$jsonSchema keyword 'required' must be an array of strings, but found an element of type: {}",
                value.element_type().name()
            )));
        };
        if names.iter().any(|before| **before == *name) {
            return Err(failed("$jsonSchema keyword 'required' array cannot contain duplicate values"));
        }
        names.push(name.into());
    }
    Ok(names)
}

fn parse_dependency(name: &str, value: RawValue<'_>, subject: Subject) -> Result<Dependency> {
    match value {
        RawValue::Document(document) => Ok(Dependency::Schema(Box::new(Schema::parse(document, subject)?))),
        RawValue::Array(list) if list.is_empty() => Err(failed(format!(
            "property '{name}' in $jsonSchema keyword 'dependencies' cannot be an empty array"
        ))),
        RawValue::Array(list) => parse_dependent(name, list).map(Dependency::Properties),
        _ => Err(mismatch(format!(
            "property '{name}' in $jsonSchema keyword 'dependencies' must be either an object or an array"
        ))),
    }
}

fn parse_dependent(name: &str, list: RawArray<'_>) -> Result<Vec<Box<str>>> {
    let mut names: Vec<Box<str>> = Vec::new();
    for value in list.iter() {
        let RawValue::String(dependent) = value else {
            return Err(mismatch(format!(
                "array '{name}' in $jsonSchema keyword 'dependencies' can only contain strings, but found element of \
                 type: {}",
                value.element_type().name()
            )));
        };
        if names.iter().any(|before| **before == *dependent) {
            return Err(failed(format!(
                "array '{name}' in $jsonSchema keyword 'dependencies' contains duplicate element: {dependent}"
            )));
        }
        names.push(dependent.into());
    }
    Ok(names)
}

fn parse_logic(keywords: &Keywords<'_>, subject: Subject) -> Result<Logic> {
    let mut logic = Logic {
        all_of: parse_schemas(keywords, "allOf", subject)?,
        any_of: parse_schemas(keywords, "anyOf", subject)?,
        one_of: parse_schemas(keywords, "oneOf", subject)?,
        ..Logic::default()
    };
    if let Some(value) = keywords.get("not") {
        let document = value.as_document().ok_or_else(|| {
            mismatch(format!(
                "$jsonSchema keyword 'not' must be an object, but found an element of type {}",
                value.element_type().name()
            ))
        })?;
        logic.not = Some(Box::new(Schema::parse(document, subject)?));
    }
    if let Some(list) = keywords.list("enum")? {
        let repeated = |(at, one): (usize, RawValue<'_>)| {
            list.iter().take(at).any(|before| unordered::equal(before, one))
        };
        if list.iter().enumerate().any(repeated) {
            return Err(failed("$jsonSchema keyword 'enum' array cannot contain duplicate values."));
        }
        logic.one_of_values = Some(specified("enum", RawValue::Array(list)));
    }
    Ok(logic)
}

fn parse_schemas(keywords: &Keywords<'_>, name: &str, subject: Subject) -> Result<Vec<Schema>> {
    let Some(value) = keywords.get(name) else { return Ok(Vec::new()) };
    let list =
        value.as_array().ok_or_else(|| mismatch(format!("$jsonSchema keyword '{name}' must be an array")))?;
    if list.is_empty() {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!("$jsonSchema keyword '{name}' must be a non-empty array"),
        ));
    }
    list.iter()
        .map(|item| match item {
            RawValue::Document(document) => Schema::parse(document, subject),
            other => Err(mismatch(format!(
                "$jsonSchema keyword '{name}' must be an array of objects, but found an element of type {}",
                other.element_type().name()
            ))),
        })
        .collect()
}
