//! From a filter document to the tree, with mongod's errors.

use kilim_bson::{Path, RawArray, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::number::{self, Coercion};
use super::{BitTest, BitTestKind, Comparison, Filter, InList, Predicate, Regex, TypeSet};

impl Filter {
    pub fn parse(filter: RawDocument<'_>) -> Result<Filter> {
        Ok(parse_document(filter)?.simplified())
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

fn unsupported(operator: &str) -> Error {
    Error::user(ErrorCode::NotImplemented, format!("the query operator {operator} is not supported yet"))
}

fn parse_document(filter: RawDocument<'_>) -> Result<Filter> {
    let mut children = Vec::new();
    for (name, value) in filter.iter() {
        match name.strip_prefix('$') {
            // The parts of a DBRef are ordinary fields.
            None | Some("ref" | "id" | "db") => children.extend(parse_field(&Path::parse(name), value)?),
            Some(_) => children.extend(parse_top_level(name, value)?),
        }
    }
    Ok(Filter::And(children))
}

/// Operators that take the place of a field name; none for a comment.
fn parse_top_level(name: &str, value: RawValue<'_>) -> Result<Option<Filter>> {
    Ok(Some(match name {
        "$and" => Filter::And(parse_list(name, value)?),
        "$or" => Filter::Or(parse_list(name, value)?),
        "$nor" => Filter::Nor(parse_list(name, value)?),
        "$comment" => return Ok(None),
        "$alwaysTrue" => check_one(name, value).map(|()| Filter::True)?,
        "$alwaysFalse" => check_one(name, value).map(|()| Filter::False)?,
        "$expr" | "$where" | "$text" | "$jsonSchema" | "$sampleRate" => return Err(unsupported(name)),
        "$not" => {
            return Err(bad(
                "unknown top level operator: $not. If you are trying to negate an entire expression, use $nor.",
            ));
        }
        _ => {
            return Err(bad(format!(
                "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, \
                 consider using $getField or $setField."
            )));
        }
    }))
}

/// Whether a name is one that [`parse_top_level`] knows, for which `$elemMatch` is a query.
fn is_top_level_operator(name: &str) -> bool {
    matches!(
        name,
        "$and"
            | "$or"
            | "$nor"
            | "$comment"
            | "$alwaysTrue"
            | "$alwaysFalse"
            | "$expr"
            | "$where"
            | "$text"
            | "$jsonSchema"
            | "$sampleRate"
    )
}

/// Whether a name is an operator on a field, other than `$not`.
pub(super) fn is_field_operator(name: &str) -> bool {
    matches!(
        name,
        "$eq"
            | "$ne"
            | "$gt"
            | "$gte"
            | "$lt"
            | "$lte"
            | "$in"
            | "$nin"
            | "$exists"
            | "$type"
            | "$mod"
            | "$regex"
            | "$options"
            | "$size"
            | "$all"
            | "$elemMatch"
            | "$bitsAllSet"
            | "$bitsAllClear"
            | "$bitsAnySet"
            | "$bitsAnyClear"
            | "$near"
            | "$nearSphere"
            | "$geoNear"
            | "$geoWithin"
            | "$within"
            | "$geoIntersects"
    )
}

fn parse_list(name: &str, value: RawValue<'_>) -> Result<Vec<Filter>> {
    let list = value.as_array().ok_or_else(|| bad(format!("{name} must be an array")))?;
    if list.is_empty() {
        return Err(bad("$and/$or/$nor must be a nonempty array"));
    }
    list.iter()
        .map(|entry| match entry {
            RawValue::Document(document) => parse_document(document),
            _ => Err(bad("$or/$and/$nor entries need to be full objects")),
        })
        .collect()
}

fn check_one(name: &str, value: RawValue<'_>) -> Result<()> {
    let failed = |text: String| Error::user(ErrorCode::FailedToParse, text);
    match number::parse_i64(name, value).map_err(failed)? {
        1 => Ok(()),
        _ => Err(failed(format!("{name} must be an integer value of 1"))),
    }
}

/// A document of operators rather than a value: its first name begins with `$` and it is no DBRef.
fn is_operator_document(document: RawDocument<'_>) -> bool {
    let first = document.iter().next().is_some_and(|(name, _)| name.starts_with('$'));
    first && !(document.get("$ref").is_some() && document.get("$id").is_some())
}

/// `{path: value}`, where the value may hold several operators.
pub(crate) fn parse_field(path: &Path, value: RawValue<'_>) -> Result<Vec<Filter>> {
    let predicates = match value {
        RawValue::Document(document) if is_operator_document(document) => parse_operators(path, document)?,
        RawValue::Regex { pattern, options } => vec![Predicate::Regex(Regex::new(pattern, options)?)],
        value => vec![parse_comparison(path, Comparison::Eq, value)?],
    };
    let field = |predicate| Filter::Field { path: path.clone(), predicate };
    Ok(predicates
        .into_iter()
        .map(|predicate| match predicate {
            Predicate::All(list) => Filter::And(list.into_iter().map(field).collect()),
            other => field(other),
        })
        .collect())
}

fn parse_operators(path: &Path, document: RawDocument<'_>) -> Result<Vec<Predicate>> {
    let mut predicates = Vec::new();
    for (name, value) in document.iter() {
        predicates.extend(parse_operator(path, document, name, value)?);
    }
    Ok(predicates)
}

/// One operator on a field; none for `$options`, which `$regex` reads.
fn parse_operator(
    path: &Path,
    siblings: RawDocument<'_>,
    name: &str,
    value: RawValue<'_>,
) -> Result<Option<Predicate>> {
    let not = |predicate| Predicate::Not(Box::new(predicate));
    Ok(Some(match name {
        "$eq" => parse_comparison(path, Comparison::Eq, value)?,
        "$gt" => parse_comparison(path, Comparison::Gt, value)?,
        "$gte" => parse_comparison(path, Comparison::Gte, value)?,
        "$lt" => parse_comparison(path, Comparison::Lt, value)?,
        "$lte" => parse_comparison(path, Comparison::Lte, value)?,
        "$ne" => {
            if matches!(value, RawValue::Regex { .. }) {
                return Err(bad("Can't have regex as arg to $ne."));
            }
            not(parse_comparison(path, Comparison::Eq, value)?)
        }
        "$in" => Predicate::In(parse_in(name, value)?),
        "$nin" => not(Predicate::In(parse_in(name, value)?)),
        "$not" => parse_not(path, value)?,
        "$exists" => match is_true(value) {
            true => Predicate::Exists,
            false => not(Predicate::Exists),
        },
        "$type" => Predicate::Type(TypeSet::parse(path.as_str(), value)?),
        "$mod" => parse_mod(value)?,
        "$size" => {
            let size = number::parse_non_negative_i32(name, value)
                .map_err(|text| bad(format!("Failed to parse $size. {text}")))?;
            Predicate::Size(i64::from(size))
        }
        "$regex" => Predicate::Regex(parse_regex(siblings)?),
        "$options" => {
            if siblings.get("$regex").is_none() {
                return Err(bad("$options needs a $regex"));
            }
            return Ok(None);
        }
        "$all" => parse_all(path, value)?,
        "$elemMatch" => parse_elem_match(path, value)?,
        "$bitsAllSet" => Predicate::Bits(BitTest::parse(BitTestKind::AllSet, path.as_str(), value)?),
        "$bitsAllClear" => Predicate::Bits(BitTest::parse(BitTestKind::AllClear, path.as_str(), value)?),
        "$bitsAnySet" => Predicate::Bits(BitTest::parse(BitTestKind::AnySet, path.as_str(), value)?),
        "$bitsAnyClear" => Predicate::Bits(BitTest::parse(BitTestKind::AnyClear, path.as_str(), value)?),
        "$near" | "$nearSphere" | "$geoNear" | "$geoWithin" | "$within" | "$geoIntersects" => {
            return Err(unsupported(name));
        }
        "$where" => return Err(bad("$where cannot be applied to a field")),
        _ => return Err(bad(format!("unknown operator: {name}"))),
    }))
}

fn parse_comparison(path: &Path, comparison: Comparison, value: RawValue<'_>) -> Result<Predicate> {
    match value {
        RawValue::Undefined => Err(bad("cannot compare to undefined")),
        RawValue::Regex { .. } if comparison != Comparison::Eq => {
            Err(bad(format!("Can't have RegEx as arg to predicate over field '{path}'.")))
        }
        value => Ok(Predicate::Compare(comparison, value.to_value())),
    }
}

fn parse_in(name: &str, value: RawValue<'_>) -> Result<InList> {
    let list = value.as_array().ok_or_else(|| bad(format!("{name} needs an array")))?;
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for item in list.iter() {
        match item {
            RawValue::Document(document) if is_operator_document(document) => {
                return Err(bad(format!("cannot nest $ under {name}")));
            }
            RawValue::Regex { pattern, options } => regexes.push(Regex::new(pattern, options)?),
            RawValue::Undefined => return Err(bad("InMatchExpression equality cannot be undefined")),
            value => values.push(value.to_value()),
        }
    }
    Ok(InList::new(values, regexes))
}

fn parse_not(path: &Path, value: RawValue<'_>) -> Result<Predicate> {
    let mut predicates = match value {
        RawValue::Regex { pattern, options } => vec![Predicate::Regex(Regex::new(pattern, options)?)],
        RawValue::Document(document) if document.is_empty() => return Err(bad("$not cannot be empty")),
        RawValue::Document(document) => parse_operators(path, document)?,
        _ => return Err(bad("$not needs a regex or a document")),
    };
    let inner = match predicates.len() {
        1 => predicates.remove(0),
        _ => Predicate::All(predicates),
    };
    Ok(Predicate::Not(Box::new(inner)))
}

/// What counts as true where an operator takes a flag.
pub(crate) fn is_true(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Bool(truth) => truth,
        RawValue::Null | RawValue::Undefined => false,
        value if value.is_number() => number::to_f64(value) != 0.0,
        _ => true,
    }
}

fn parse_mod(value: RawValue<'_>) -> Result<Predicate> {
    let list = value.as_array().ok_or_else(|| bad("malformed mod, needs to be an array"))?;
    let mut items = list.iter();
    let (Some(divisor), Some(remainder)) = (items.next(), items.next()) else {
        return Err(bad("malformed mod, not enough elements"));
    };
    if items.next().is_some() {
        return Err(bad("malformed mod, too many elements"));
    }
    let integer = |what: &str, value| {
        let number =
            number::truncated_i64(value).ok_or_else(|| bad(format!("malformed mod, {what} not a number")))?;
        number.map_err(|why| {
            let why = match why {
                Coercion::NotFinite => "Unable to coerce NaN/Inf to integral type",
                Coercion::OutOfBounds => "Out of bounds coercing to integral value",
            };
            bad(format!("malformed mod, {what} value is invalid :: caused by :: {why}"))
        })
    };
    let (divisor, remainder) = (integer("divisor", divisor)?, integer("remainder", remainder)?);
    if divisor == 0 {
        return Err(bad("divisor cannot be 0"));
    }
    Ok(Predicate::Mod { divisor, remainder })
}

/// `$regex` and `$options` in either order. The options may also come with a regex literal, but not twice.
fn parse_regex(siblings: RawDocument<'_>) -> Result<Regex> {
    const TWICE: &str = "options set in both $regex and $options";
    let (mut pattern, mut options) = ("", "");
    for (name, value) in siblings.iter() {
        match (name, value) {
            ("$regex", RawValue::String(text)) => pattern = text,
            ("$regex", RawValue::Regex { pattern: text, options: flags }) => {
                pattern = text;
                if !flags.is_empty() {
                    if !options.is_empty() {
                        return Err(Error::location(51074, TWICE));
                    }
                    options = flags;
                }
            }
            ("$regex", _) => return Err(bad("$regex has to be a string")),
            ("$options", RawValue::String(_)) if !options.is_empty() => {
                return Err(Error::location(51075, TWICE));
            }
            ("$options", RawValue::String(flags)) => options = flags,
            ("$options", _) => return Err(bad("$options has to be a string")),
            _ => {}
        }
    }
    Regex::new(pattern, options)
}

fn parse_all(path: &Path, value: RawValue<'_>) -> Result<Predicate> {
    let list = value.as_array().ok_or_else(|| bad("$all needs an array"))?;
    let mut predicates = match list.get(0) {
        // Nothing contains all of nothing, by decree.
        None => return Ok(Predicate::Not(Box::new(Predicate::All(Vec::new())))),
        Some(RawValue::Document(first)) if first_name(first) == Some("$elemMatch") => {
            parse_all_elem_match(path, list)?
        }
        Some(_) => list
            .iter()
            .map(|item| match item {
                RawValue::Regex { pattern, options } => Ok(Predicate::Regex(Regex::new(pattern, options)?)),
                RawValue::Document(document) if first_name(document).is_some_and(is_field_operator) => {
                    Err(bad("no $ expressions in $all"))
                }
                value => parse_comparison(path, Comparison::Eq, value),
            })
            .collect::<Result<Vec<_>>>()?,
    };
    Ok(match predicates.len() {
        1 => predicates.remove(0),
        _ => Predicate::All(predicates),
    })
}

fn parse_all_elem_match(path: &Path, list: RawArray<'_>) -> Result<Vec<Predicate>> {
    list.iter()
        .map(|item| match item.as_document().and_then(|document| document.iter().next()) {
            Some(("$elemMatch", operand)) => parse_elem_match(path, operand),
            _ => Err(bad("$all/$elemMatch has to be consistent")),
        })
        .collect()
}

pub(super) fn first_name(document: RawDocument<'_>) -> Option<&str> {
    document.iter().next().map(|(name, _)| name)
}

fn parse_elem_match(path: &Path, value: RawValue<'_>) -> Result<Predicate> {
    let document = value.as_document().ok_or_else(|| bad("$elemMatch needs an Object"))?;
    let first = first_name(document).unwrap_or_default();
    let dbref = ["$ref", "$id", "$db"].iter().any(|name| document.get(name).is_some());
    if first == "$where" {
        return Err(bad("$where can only be applied to the top-level document"));
    }
    if first.starts_with('$') && !dbref && !is_top_level_operator(first) {
        return Ok(Predicate::ElemMatchValue(parse_operators(path, document)?));
    }
    Ok(Predicate::ElemMatchObject(Box::new(parse_document(document)?)))
}
