//! From a filter document to the tree, with mongod's errors.

use std::sync::Arc;

use kilim_bson::{Path, RawArray, RawDocument, RawValue, STORED_DEPTH_MAX};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::near::is_near_operator;
use super::number::{self, Coercion};
use super::{
    BitTest, BitTestKind, Comparison, Filter, GeoPredicate, InList, JsonSchema, Near, Operand, Predicate,
    Regex, TextQuery, TypeSet,
};
use crate::expression::{Scope, Variables};
use crate::path::is_dbref_name;

impl Filter {
    /// A filter that knows no variables.
    pub fn parse(filter: RawDocument<'_>) -> Result<Filter> {
        Filter::parse_in(filter, &Scope::new(&Variables::default()))
    }

    /// A filter whose `$expr` may use the variables of a scope.
    pub fn parse_in(filter: RawDocument<'_>, scope: &Scope<'_>) -> Result<Filter> {
        parse_document(filter, FilterPlace::query(scope))?.simplified().check_near()
    }

    /// The filter of a pipeline's stage, which has no place for `$where` and `$near`.
    pub fn parse_for_stage(filter: RawDocument<'_>, scope: &Scope<'_>) -> Result<Filter> {
        let place = FilterPlace { in_stage: true, ..FilterPlace::query(scope) };
        Ok(parse_document(filter, place)?.simplified())
    }

    /// The filter of a collection's validator, which sees one document at a time.
    pub fn parse_for_validator(filter: RawDocument<'_>, scope: &Scope<'_>) -> Result<Filter> {
        let place = FilterPlace { in_stage: true, validates: true, ..FilterPlace::query(scope) };
        Ok(parse_document(filter, place)?.simplified())
    }

    /// A filter from which an upsert takes fields: expressions say nothing of those.
    pub fn parse_for_upsert(filter: RawDocument<'_>, scope: &Scope<'_>) -> Result<Filter> {
        let place = FilterPlace { upserts: true, ..FilterPlace::query(scope) };
        parse_document(filter, place)?.simplified().check_near()
    }

    /// A condition on the elements of an array, as `$pull` and array filters state it.
    pub(crate) fn parse_for_elements(
        filter: RawDocument<'_>,
        collation: &Option<Collation>,
    ) -> Result<Filter> {
        Ok(parse_document(filter, FilterPlace::elements(collation))?.simplified())
    }
}

/// Where a filter stands, which decides on the operators that concern more than a value.
#[derive(Clone, Copy)]
pub(crate) struct FilterPlace<'s> {
    /// What variables mean in a query; none in an update or a projection.
    scope: Option<&'s Scope<'s>>,
    /// How texts compare.
    collation: &'s Option<Collation>,
    /// Not within `$elemMatch`.
    on_document: bool,
    /// What matches nothing makes a new document.
    upserts: bool,
    /// Part of a pipeline.
    in_stage: bool,
    /// A collection's validator.
    validates: bool,
}

impl<'s> FilterPlace<'s> {
    /// On the elements of an array, in an update or a projection.
    pub(crate) fn elements(collation: &'s Option<Collation>) -> FilterPlace<'s> {
        FilterPlace {
            scope: None,
            collation,
            on_document: true,
            upserts: false,
            in_stage: false,
            validates: false,
        }
    }

    fn query(scope: &'s Scope<'s>) -> FilterPlace<'s> {
        FilterPlace {
            scope: Some(scope),
            collation: scope.collation(),
            on_document: true,
            upserts: false,
            in_stage: false,
            validates: false,
        }
    }

    fn within_elem_match(self) -> FilterPlace<'s> {
        FilterPlace { on_document: false, ..self }
    }

    /// Refuses operators on a whole document where mongod does, and those that are yet to come.
    fn refuse(self, name: &str) -> Error {
        let misplaced = || bad(format!("{name} can only be applied to the top-level document"));
        let forbidden = |code| Error::user(code, format!("{name} is not allowed in this context"));
        match (name, self.scope.is_some(), self.on_document) {
            ("$where", false, _) => forbidden(ErrorCode::BadValue),
            ("$where", true, true) if self.in_stage => forbidden(ErrorCode::BadValue),
            ("$jsonSchema", false, _) => forbidden(ErrorCode::QueryFeatureNotAllowed),
            ("$expr" | "$text" | "$sampleRate" | "$where", _, false) => misplaced(),
            ("$expr", false, true) => forbidden(ErrorCode::QueryFeatureNotAllowed),
            ("$expr", true, true) => Error::user(
                ErrorCode::QueryFeatureNotAllowed,
                "$expr is not allowed in the query predicate for an upsert",
            ),
            ("$text", false, true) => forbidden(ErrorCode::BadValue),
            ("$text", true, true) if self.validates => forbidden(ErrorCode::BadValue),
            _ => unsupported(name),
        }
    }

    /// What variables mean to an expression that takes the place of a field name.
    fn scope_of(self, name: &str) -> Result<&'s Scope<'s>> {
        self.scope.filter(|_| self.on_document).ok_or_else(|| self.refuse(name))
    }

    /// `$near` and its kin, which only queries have.
    fn near(self, operators: RawDocument<'_>) -> Result<Predicate> {
        if self.scope.is_none() || self.in_stage {
            return Err(Error::location(
                5_626_500,
                "$geoNear, $near, and $nearSphere are not allowed in this context",
            ));
        }
        Ok(Predicate::Near(Box::new(Near::parse(operators)?)))
    }
}

fn bad(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::BadValue, message)
}

fn unsupported(operator: &str) -> Error {
    Error::user(ErrorCode::NotImplemented, format!("the query operator {operator} is not supported yet"))
}

fn parse_document(filter: RawDocument<'_>, place: FilterPlace<'_>) -> Result<Filter> {
    let mut children = Vec::with_capacity(1);
    for (name, value) in filter.iter() {
        match name.strip_prefix('$') {
            // The parts of a DBRef are ordinary fields.
            None | Some("ref" | "id" | "db") => parse_field(parse_path(name)?, value, place, &mut children)?,
            Some(_) => children.extend(parse_top_level(name, value, place)?),
        }
    }
    Ok(Filter::And(children))
}

/// Refuses what leads deeper than any stored document.
fn parse_path(name: &str) -> Result<Path> {
    let path = Path::parse(name);
    if path.components().len() > STORED_DEPTH_MAX {
        return Err(Error::location(5_729_100, "FieldPath is too long"));
    }
    Ok(path)
}

/// Operators that take the place of a field name; none for a comment.
fn parse_top_level(name: &str, value: RawValue<'_>, place: FilterPlace<'_>) -> Result<Option<Filter>> {
    Ok(Some(match name {
        "$and" => Filter::And(parse_list(name, value, place)?),
        "$or" => Filter::Or(parse_list(name, value, place)?),
        "$nor" => Filter::Nor(parse_list(name, value, place)?),
        "$comment" => return Ok(None),
        "$alwaysTrue" => check_one(name, value).map(|()| Filter::True)?,
        "$alwaysFalse" => check_one(name, value).map(|()| Filter::False)?,
        "$expr" if place.upserts => return Err(place.refuse(name)),
        "$expr" if place.in_stage && !place.validates => {
            Filter::parse_expr_of_stage(value, place.scope_of(name)?)?
        }
        "$expr" => Filter::parse_expr(value, place.scope_of(name)?)?,
        "$sampleRate" => Filter::parse_sample_rate(value, place.scope_of(name)?)?,
        "$jsonSchema" if place.scope.is_some() => {
            let schema = value
                .as_document()
                .ok_or_else(|| Error::user(ErrorCode::TypeMismatch, "$jsonSchema must be an object"))?;
            Filter::JsonSchema(Arc::new(JsonSchema::parse(schema)?))
        }
        "$text" if place.scope.is_some() && place.on_document && !place.validates => {
            Filter::Text(Arc::new(TextQuery::parse(value)?))
        }
        "$where" | "$text" | "$jsonSchema" => return Err(place.refuse(name)),
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

/// The operators that [`parse_top_level`] knows.
pub const TOP_LEVEL_OPERATORS: &[&str] = &[
    "$and",
    "$or",
    "$nor",
    "$comment",
    "$alwaysTrue",
    "$alwaysFalse",
    "$expr",
    "$where",
    "$text",
    "$jsonSchema",
    "$sampleRate",
];

/// The operators on a field, other than `$not`.
pub const FIELD_OPERATORS: &[&str] = &[
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$exists",
    "$type",
    "$mod",
    "$regex",
    "$options",
    "$size",
    "$all",
    "$elemMatch",
    "$bitsAllSet",
    "$bitsAllClear",
    "$bitsAnySet",
    "$bitsAnyClear",
    "$near",
    "$nearSphere",
    "$geoNear",
    "$geoWithin",
    "$within",
    "$geoIntersects",
];

/// Whether a name is one that [`parse_top_level`] knows, for which `$elemMatch` is a query.
fn is_top_level_operator(name: &str) -> bool {
    TOP_LEVEL_OPERATORS.contains(&name)
}

/// Whether a name is an operator on a field, other than `$not`.
pub(super) fn is_field_operator(name: &str) -> bool {
    FIELD_OPERATORS.contains(&name)
}

fn parse_list(name: &str, value: RawValue<'_>, place: FilterPlace<'_>) -> Result<Vec<Filter>> {
    let list = value.as_array().ok_or_else(|| bad(format!("{name} must be an array")))?;
    if list.is_empty() {
        return Err(bad("$and/$or/$nor must be a nonempty array"));
    }
    list.iter()
        .map(|entry| match entry {
            RawValue::Document(document) => parse_document(document, place),
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
pub(crate) fn is_operator_document(document: RawDocument<'_>) -> bool {
    let first = document.iter().next().is_some_and(|(name, _)| name.starts_with('$'));
    first && !(document.get("$ref").is_some() && document.get("$id").is_some())
}

/// `{path: value}`, where the value may hold several operators: so many filters more.
pub(crate) fn parse_field(
    path: Path,
    value: RawValue<'_>,
    place: FilterPlace<'_>,
    filters: &mut Vec<Filter>,
) -> Result<()> {
    let predicate = match value {
        RawValue::Document(document) if is_operator_document(document) => {
            let field = |predicate| Filter::Field { path: path.clone(), predicate };
            let predicates = parse_operators(&path, document, place)?;
            filters.extend(predicates.into_iter().map(|predicate| match predicate {
                Predicate::All(list) => Filter::And(list.into_iter().map(field).collect()),
                other => field(other),
            }));
            return Ok(());
        }
        RawValue::Regex { pattern, options } => Predicate::Regex(Regex::new(pattern, options)?),
        value => parse_comparison(&path, Comparison::Eq, value, place)?,
    };
    filters.push(Filter::Field { path, predicate });
    Ok(())
}

fn parse_operators(path: &Path, document: RawDocument<'_>, place: FilterPlace<'_>) -> Result<Vec<Predicate>> {
    // `$near` has its distances beside it.
    if first_name(document).is_some_and(is_near_operator) {
        return Ok(vec![place.near(document)?]);
    }
    let mut predicates = Vec::new();
    for (name, value) in document.iter() {
        predicates.extend(parse_operator(path, document, name, value, place)?);
    }
    Ok(predicates)
}

/// One operator on a field; none for `$options`, which `$regex` reads.
fn parse_operator(
    path: &Path,
    siblings: RawDocument<'_>,
    name: &str,
    value: RawValue<'_>,
    place: FilterPlace<'_>,
) -> Result<Option<Predicate>> {
    let not = |predicate| Predicate::Not(Box::new(predicate));
    Ok(Some(match name {
        "$eq" => parse_comparison(path, Comparison::Eq, value, place)?,
        "$gt" => parse_comparison(path, Comparison::Gt, value, place)?,
        "$gte" => parse_comparison(path, Comparison::Gte, value, place)?,
        "$lt" => parse_comparison(path, Comparison::Lt, value, place)?,
        "$lte" => parse_comparison(path, Comparison::Lte, value, place)?,
        "$ne" => {
            if matches!(value, RawValue::Regex { .. }) {
                return Err(bad("Can't have regex as arg to $ne."));
            }
            not(parse_comparison(path, Comparison::Eq, value, place)?)
        }
        "$in" => Predicate::In(parse_in(name, value, place)?),
        "$nin" => not(Predicate::In(parse_in(name, value, place)?)),
        "$not" => parse_not(path, value, place)?,
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
        "$all" => parse_all(path, value, place)?,
        "$elemMatch" => parse_elem_match(path, value, place)?,
        "$bitsAllSet" => Predicate::Bits(BitTest::parse(BitTestKind::AllSet, path.as_str(), value)?),
        "$bitsAllClear" => Predicate::Bits(BitTest::parse(BitTestKind::AllClear, path.as_str(), value)?),
        "$bitsAnySet" => Predicate::Bits(BitTest::parse(BitTestKind::AnySet, path.as_str(), value)?),
        "$bitsAnyClear" => Predicate::Bits(BitTest::parse(BitTestKind::AnyClear, path.as_str(), value)?),
        name if is_near_operator(name) => return place.near(siblings).map(Some),
        "$geoWithin" | "$within" | "$geoIntersects" => {
            Predicate::Geo(GeoPredicate::parse(name, value, siblings)?)
        }
        "$where" => return Err(bad("$where cannot be applied to a field")),
        _ => return Err(bad(format!("unknown operator: {name}"))),
    }))
}

fn parse_comparison(
    path: &Path,
    comparison: Comparison,
    value: RawValue<'_>,
    place: FilterPlace<'_>,
) -> Result<Predicate> {
    match value {
        RawValue::Undefined => Err(bad("cannot compare to undefined")),
        RawValue::Regex { .. } if comparison != Comparison::Eq => {
            Err(bad(format!("Can't have RegEx as arg to predicate over field '{path}'.")))
        }
        value => Ok(Predicate::Compare(comparison, Operand::new(value.to_value(), place.collation))),
    }
}

fn parse_in(name: &str, value: RawValue<'_>, place: FilterPlace<'_>) -> Result<InList> {
    let list = value.as_array().ok_or_else(|| bad(format!("{name} needs an array")))?;
    let (mut values, mut regexes) = (Vec::new(), Vec::new());
    for item in list.iter() {
        match item {
            RawValue::Document(document) if is_operator_document(document) => {
                // Under $nin as well.
                return Err(bad("cannot nest $ under $in"));
            }
            RawValue::Regex { pattern, options } => regexes.push(Regex::new(pattern, options)?),
            RawValue::Undefined => return Err(bad("InMatchExpression equality cannot be undefined")),
            value => values.push(value.to_value()),
        }
    }
    Ok(InList::new(values, regexes, place.collation))
}

fn parse_not(path: &Path, value: RawValue<'_>, place: FilterPlace<'_>) -> Result<Predicate> {
    let mut predicates = match value {
        RawValue::Regex { pattern, options } => vec![Predicate::Regex(Regex::new(pattern, options)?)],
        RawValue::Document(document) if document.is_empty() => return Err(bad("$not cannot be empty")),
        RawValue::Document(document) => parse_operators(path, document, place)?,
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

fn parse_all(path: &Path, value: RawValue<'_>, place: FilterPlace<'_>) -> Result<Predicate> {
    let list = value.as_array().ok_or_else(|| bad("$all needs an array"))?;
    let mut predicates = match list.get(0) {
        // Nothing contains all of nothing, by decree.
        None => return Ok(Predicate::Not(Box::new(Predicate::All(Vec::new())))),
        Some(RawValue::Document(first)) if first_name(first) == Some("$elemMatch") => {
            parse_all_elem_match(path, list, place)?
        }
        Some(_) => list
            .iter()
            .map(|item| match item {
                RawValue::Regex { pattern, options } => Ok(Predicate::Regex(Regex::new(pattern, options)?)),
                RawValue::Document(document) if first_name(document).is_some_and(is_field_operator) => {
                    Err(bad("no $ expressions in $all"))
                }
                value => parse_comparison(path, Comparison::Eq, value, place),
            })
            .collect::<Result<Vec<_>>>()?,
    };
    Ok(match predicates.len() {
        1 => predicates.remove(0),
        _ => Predicate::All(predicates),
    })
}

fn parse_all_elem_match(path: &Path, list: RawArray<'_>, place: FilterPlace<'_>) -> Result<Vec<Predicate>> {
    list.iter()
        .map(|item| match item.as_document().and_then(|document| document.iter().next()) {
            Some(("$elemMatch", operand)) => parse_elem_match(path, operand, place),
            _ => Err(bad("$all/$elemMatch has to be consistent")),
        })
        .collect()
}

pub(super) fn first_name(document: RawDocument<'_>) -> Option<&str> {
    document.iter().next().map(|(name, _)| name)
}

fn parse_elem_match(path: &Path, value: RawValue<'_>, place: FilterPlace<'_>) -> Result<Predicate> {
    let document = value.as_document().ok_or_else(|| bad("$elemMatch needs an Object"))?;
    let first = first_name(document).unwrap_or_default();
    let dbref = document.iter().any(|(name, _)| is_dbref_name(name));
    let place = place.within_elem_match();
    if first.starts_with('$') && !dbref && !is_top_level_operator(first) {
        return Ok(Predicate::ElemMatchValue(parse_operators(path, document, place)?));
    }
    Ok(Predicate::ElemMatchObject(Box::new(parse_document(document, place)?)))
}
