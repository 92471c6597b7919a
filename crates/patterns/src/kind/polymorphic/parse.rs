//! `polymorphic` as it is written.

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::validator::Validator;

use super::{Action, Clause, Level, OnTypeChange, Polymorphic, Unknown, Variant, VariantIndex};
use crate::argument;
use crate::path::{is_number, names};

const PLACE: &str = "polymorphic";

const UNKNOWN: [(&str, Unknown); 2] = [("reject", Unknown::Reject), ("allow", Unknown::Allow)];
/// Whether fields that no rule speaks of are refused.
const EXTRA: [(&str, bool); 2] = [("allow", false), ("reject", true)];
const ON_TYPE_CHANGE: [(&str, OnTypeChange); 3] =
    [("validate", OnTypeChange::Validate), ("unset", OnTypeChange::Unset), ("reject", OnTypeChange::Reject)];
const LEVEL: [(&str, Level); 3] =
    [("strict", Level::Strict), ("moderate", Level::Moderate), ("off", Level::Off)];
const ACTION: [(&str, Action); 2] = [("error", Action::Error), ("warn", Action::Warn)];

/// Variants of one pattern: each has a validator in memory.
const VARIANTS_MAX: usize = 1000;

/// A variant as it is written.
struct Written<'w> {
    name: &'w str,
    extends: Option<&'w str>,
    schema: Document,
    indexes: Vec<VariantIndex>,
}

impl Polymorphic {
    pub(super) fn parse(spec: RawDocument<'_>) -> Result<Polymorphic> {
        let (mut discriminator, mut base, mut variants) = (None, Document::new(), None);
        let (mut unknown, mut rejects_extra) = (Unknown::Reject, false);
        let mut on_type_change = OnTypeChange::Validate;
        let (mut level, mut action) = (Level::Strict, Action::Error);
        for (name, value) in spec {
            match name {
                "discriminator" => discriminator = Some(parse_discriminator(value)?),
                "base" => base = argument::document(PLACE, name, value)?.to_document(),
                "variants" => variants = Some(argument::document(PLACE, name, value)?),
                "unknown" => unknown = argument::choice(PLACE, name, value, &UNKNOWN)?,
                "extra" => rejects_extra = argument::choice(PLACE, name, value, &EXTRA)?,
                "onTypeChange" => on_type_change = argument::choice(PLACE, name, value, &ON_TYPE_CHANGE)?,
                "validationLevel" => level = argument::choice(PLACE, name, value, &LEVEL)?,
                "validationAction" => action = argument::choice(PLACE, name, value, &ACTION)?,
                _ => return Err(argument::unknown(PLACE, name)),
            }
        }
        let discriminator = discriminator.ok_or_else(|| argument::missing(PLACE, "discriminator"))?;
        let variants = variants.ok_or_else(|| argument::missing(PLACE, "variants"))?;
        check_schema("base", &base)?;
        let mut written: Vec<Written<'_>> = Vec::new();
        for (name, value) in variants {
            if written.iter().any(|known| known.name == name) {
                return Err(bad(format!("'{PLACE}.variants' has '{name}' twice: leave one of them out")));
            }
            written.push(Written::parse(name, value)?);
        }
        if written.is_empty() || written.len() > VARIANTS_MAX {
            return Err(bad(format!("'{PLACE}.variants' needs one to {VARIANTS_MAX} variants")));
        }
        let made = written.iter().map(|variant| {
            let chain = chain_of(variant, &written)?;
            Variant::new(&discriminator, &base, &chain, &written, rejects_extra)
        });
        let variants = made.collect::<Result<Vec<Variant>>>()?;
        Ok(Polymorphic {
            discriminator_names: names(&discriminator),
            discriminator: discriminator.into(),
            variants,
            base: validator(&[base])?,
            unknown,
            on_type_change,
            level,
            action,
        })
    }
}

impl<'w> Written<'w> {
    fn parse(name: &'w str, value: RawValue<'w>) -> Result<Written<'w>> {
        let place = format!("{PLACE}.variants.{name}");
        if name.is_empty() {
            return Err(bad(format!("'{PLACE}.variants' has one without a name")));
        }
        let (mut extends, mut indexes, mut schema) = (None, Vec::new(), Document::new());
        for (field, value) in argument::document(&format!("{PLACE}.variants"), name, value)? {
            match field {
                "extends" => extends = Some(argument::text(&place, field, value)?),
                "indexes" => {
                    let list = value.as_array().ok_or_else(|| {
                        let message = format!("'{place}.indexes' must be an array of indexes");
                        Error::user(ErrorCode::TypeMismatch, message)
                    })?;
                    for index in list.iter() {
                        indexes.push(parse_index(&place, index)?);
                    }
                }
                keyword => schema.push(keyword, value.to_value()),
            }
        }
        check_schema(&format!("variants.{name}"), &schema)?;
        Ok(Written { name, extends, schema, indexes })
    }
}

/// A variant behind those that it extends, the outermost first.
fn chain_of<'v>(variant: &'v Written<'_>, all: &'v [Written<'_>]) -> Result<Vec<&'v Written<'v>>> {
    let mut chain = vec![variant];
    while let Some(name) = chain.last().and_then(|last| last.extends) {
        let Some(parent) = all.iter().find(|other| other.name == name) else {
            let names: Vec<String> = all.iter().map(|other| format!("'{}'", other.name)).collect();
            return Err(bad(format!(
                "'{PLACE}.variants.{}.extends' is '{name}', but there are {} only",
                chain[chain.len() - 1].name,
                names.join(", ")
            )));
        };
        if chain.iter().any(|known| known.name == name) {
            let names: Vec<&str> = chain.iter().map(|one| one.name).chain([name]).collect();
            return Err(Error::user(
                ErrorCode::PatternCycle,
                format!(
                    "'{PLACE}.variants' extend each other: {}; leave one of these out",
                    names.join(" extends ")
                ),
            ));
        }
        chain.push(parent);
    }
    chain.reverse();
    Ok(chain)
}

impl Variant {
    fn new(
        discriminator: &str,
        base: &Document,
        chain: &[&Written<'_>],
        all: &[Written<'_>],
        rejects_extra: bool,
    ) -> Result<Variant> {
        let Some(own) = chain.last() else { return Err(Error::bug("a variant without itself")) };
        let mut schemas: Vec<(Clause, Document)> = vec![(Clause::Base, base.clone())];
        schemas.extend(chain.iter().map(|one| (Clause::Variant(one.name.into()), one.schema.clone())));
        schemas.retain(|(_, schema)| !schema.is_empty());
        let mut fields: Vec<Box<str>> = schemas.iter().flat_map(|(_, schema)| fields_of(schema)).collect();
        fields.push(first_name(discriminator).into());
        fields.push("_id".into());
        fields.sort_unstable();
        fields.dedup();
        if rejects_extra {
            let mut only = Document::new();
            fields.iter().for_each(|field| only.push(field, Document::new()));
            let mut schema = doc! {"additionalProperties": false, "properties": only};
            let mut patterns = Document::new();
            for (_, other) in &schemas {
                if let Some(RawValue::Document(own)) = other.get("patternProperties") {
                    own.iter().for_each(|(pattern, _)| patterns.push(pattern, Document::new()));
                }
            }
            if !patterns.is_empty() {
                schema.push("patternProperties", patterns);
            }
            schemas.push((Clause::Extra, schema));
        }
        let family = all.iter().filter(|other| is_within(other, own.name, all));
        let (clauses, schemas): (Vec<Clause>, Vec<Document>) = schemas.into_iter().unzip();
        Ok(Variant {
            name: own.name.into(),
            validator: validator(&schemas)?,
            clauses,
            fields,
            family: family.map(|other| other.name.into()).collect(),
            indexes: own.indexes.clone(),
        })
    }
}

/// Whether a variant is one, or extends it.
fn is_within(variant: &Written<'_>, name: &str, all: &[Written<'_>]) -> bool {
    chain_of(variant, all).is_ok_and(|chain| chain.iter().any(|one| one.name == name))
}

/// One validator of all schemas that say something.
fn validator(schemas: &[Document]) -> Result<Option<Validator>> {
    let schemas: Vec<Document> = (schemas.iter().filter(|schema| !schema.is_empty()))
        .map(|schema| doc! {"$jsonSchema": schema.clone()})
        .collect();
    let written = match schemas.len() {
        0 => return Ok(None),
        1 => schemas[0].clone(),
        _ => doc! {"$and": schemas.into_iter().map(Value::Document).collect::<Array>()},
    };
    Validator::parse(written.as_raw(), &None).map(Some)
}

/// Refuses what is no schema.
fn check_schema(place: &str, schema: &Document) -> Result<()> {
    if schema.is_empty() {
        return Ok(());
    }
    let parsed = Validator::parse(doc! {"$jsonSchema": schema.clone()}.as_raw(), &None);
    let message = match parsed {
        Ok(validator) if validator.mentions_encryption() => "encryption is a client's".to_owned(),
        Ok(_) => return Ok(()),
        Err(error) => error.to_string(),
    };
    Err(Error::user(
        ErrorCode::PatternBadExpression,
        format!("'{PLACE}.{place}' is no $jsonSchema: {message}"),
    ))
}

/// The fields of a document that a schema speaks of.
fn fields_of(schema: &Document) -> Vec<Box<str>> {
    let mut fields: Vec<Box<str>> = Vec::new();
    if let Some(RawValue::Document(properties)) = schema.get("properties") {
        fields.extend(properties.iter().map(|(name, _)| Box::from(name)));
    }
    if let Some(RawValue::Array(required)) = schema.get("required") {
        fields.extend(required.iter().filter_map(|name| name.as_str()).map(Box::from));
    }
    fields
}

fn first_name(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn parse_discriminator(value: RawValue<'_>) -> Result<String> {
    let path = argument::text(PLACE, "discriminator", value)?;
    let is_bad = |step: &str| step.is_empty() || step.starts_with('$') || is_number(step);
    match path == "_id" || path.split('.').any(is_bad) {
        true => Err(bad(format!(
            "'{PLACE}.discriminator' is '{path}', which cannot say of which variant a document is: name a field"
        ))),
        false => Ok(path.to_owned()),
    }
}

fn parse_index(place: &str, value: RawValue<'_>) -> Result<VariantIndex> {
    let place = format!("{place}.indexes");
    let index = value.as_document().ok_or_else(|| {
        Error::user(ErrorCode::TypeMismatch, format!("'{place}' must be an array of documents"))
    })?;
    let (mut key, mut unique) = (None, false);
    for (field, value) in index {
        match field {
            "key" => key = Some(argument::document(&place, field, value)?),
            "unique" => unique = argument::boolean(&place, field, value)?,
            _ => return Err(argument::unknown(&place, field)),
        }
    }
    let key = key.ok_or_else(|| argument::missing(&place, "key"))?;
    let is_direction = |value: RawValue<'_>| match value {
        RawValue::Int32(way) => way == 1 || way == -1,
        RawValue::Int64(way) => way == 1 || way == -1,
        RawValue::Double(way) => way == 1.0 || way == -1.0,
        _ => false,
    };
    let is_path = |path: &str| {
        path.split('.').all(|step| !step.is_empty() && !step.starts_with('$') && !is_number(step))
    };
    let mut parts = key.iter();
    if key.iter().next().is_none() || !parts.all(|(path, way)| is_path(path) && is_direction(way)) {
        return Err(bad(format!("'{place}.key' must have fields with 1 or -1")));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (path, _) in key.iter() {
        if seen.contains(&path) {
            return Err(bad(format!("'{place}.key' has '{path}' twice")));
        }
        seen.push(path);
    }
    // Ints, as other indexes of patterns have: `1.0` and `1` are one key.
    let plain = key.iter().map(|(path, way)| {
        let descends = match way {
            RawValue::Int32(way) => way < 0,
            RawValue::Int64(way) => way < 0,
            RawValue::Double(way) => way < 0.0,
            _ => false,
        };
        (path, Value::Int32(if descends { -1 } else { 1 }))
    });
    Ok(VariantIndex { key: plain.collect(), unique })
}

fn bad(message: String) -> Error {
    Error::user(ErrorCode::BadValue, message)
}
