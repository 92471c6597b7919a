//! Hashed and wildcard indexes as `createIndexes` is asked for them: what they take, what they refuse.

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_engine::index::{Wildcard, projected_paths};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::projection::Projection;
use kilim_query::text::document as shell_text;

use super::compound_wildcard;

/// Options that some kinds of index refuse.
#[derive(Default)]
pub(super) struct Options<'a> {
    pub unique: bool,
    pub sparse: bool,
    pub expires: bool,
    pub version: i64,
    pub projection: Option<RawValue<'a>>,
}

/// Whether a key is a wildcard index's, as far as its names and values tell.
pub(super) fn check_wildcard_key(key: RawDocument<'_>) -> Result<()> {
    let refuse = |message: &str| Err(Error::user(ErrorCode::CannotCreateIndex, message));
    for (path, direction) in key.iter().filter(|(path, _)| Wildcard::is_wildcard(path)) {
        let above = path.strip_suffix("$**").unwrap_or("").split('.');
        if above.clone().any(|name| name.starts_with('$')) {
            return refuse("Index key contains an illegal field name: field name starts with '$'.");
        }
        match direction {
            RawValue::String("hashed" | "2d" | "2dsphere") => {
                return refuse("Index key contains an illegal field name: field name starts with '$'.");
            }
            RawValue::String(_) => continue,
            _ => {}
        }
    }
    compound_wildcard::check_key(key)
}

/// What kind of index it is to be, and whether it takes its options.
pub(super) fn check_kind(
    key: RawDocument<'_>,
    options: &Options<'_>,
    spec: RawDocument<'_>,
) -> Result<Option<Wildcard>> {
    let in_spec = |error: Error| error.during(&format!("Error in specification {}", shell_text(spec)));
    let is_wildcard = key.iter().any(|(path, _)| Wildcard::is_wildcard(path));
    let projection = match options.projection {
        Some(given) => Some(check_projection(given, key, is_wildcard).map_err(in_spec)?),
        None => None,
    };
    let hashed = key.iter().filter(|(_, kind)| matches!(kind, RawValue::String("hashed"))).count();
    if hashed > 1 {
        return Err(Error::location(
            31303,
            format!(
                "A maximum of one index field is allowed to be hashed but found {hashed} for 'key' {}",
                shell_text(key)
            ),
        ));
    }
    if hashed > 0 && options.unique {
        let message = "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.";
        return Err(Error::location(16764, message));
    }
    if !is_wildcard {
        return Ok(None);
    }
    if options.version == 1 {
        let message = format!(
            "bad index key pattern {}: 'wildcard' index plugin is not allowed with index version v:1",
            shell_text(key)
        );
        return Err(in_spec(Error::user(ErrorCode::CannotCreateIndex, message)));
    }
    let refused = match options {
        Options { sparse: true, .. } => "does not support the sparse option",
        Options { unique: true, .. } => "does not support the unique option",
        Options { expires: true, .. } => "cannot be a TTL index",
        _ => {
            compound_wildcard::check_projection(key, projection).map_err(in_spec)?;
            return Ok(Wildcard::of(key, projection));
        }
    };
    let mut shown = spec.to_document();
    if spec.get("v").is_none() {
        shown.push("v", 2);
    }
    let message = format!(
        "Error in specification {} :: caused by :: Index type 'wildcard' {refused}",
        shell_text(shown.as_raw())
    );
    Err(Error::user(ErrorCode::CannotCreateIndex, message))
}

fn check_projection<'a>(
    given: RawValue<'a>,
    key: RawDocument<'_>,
    is_wildcard: bool,
) -> Result<RawDocument<'a>> {
    if !is_wildcard {
        let message = "The field 'wildcardProjection' is only allowed in an 'wildcard' index";
        return Err(Error::user(ErrorCode::BadValue, message));
    }
    let RawValue::Document(projection) = given else {
        return Err(Error::user(
            ErrorCode::TypeMismatch,
            format!(
                "The field 'wildcardProjection' must be a non-empty object, but got {}",
                given.element_type().name()
            ),
        ));
    };
    if key.get("$**").is_none() {
        let message = "The field 'wildcardProjection' is only allowed when 'key' is {\"$**\": ±1}";
        return Err(Error::user(ErrorCode::FailedToParse, message));
    }
    if projection.is_empty() {
        let message = "The 'wildcardProjection' field can't be an empty object";
        return Err(Error::user(ErrorCode::FailedToParse, message));
    }
    compound_wildcard::check_mixture(key, projection)?;
    check_fields(projection).map_err(|error| error.during("Failed to parse: wildcardProjection"))?;
    Ok(projection)
}

/// Fields are taken or left out, nothing is computed.
fn check_fields(projection: RawDocument<'_>) -> Result<()> {
    let mut fields = Document::new();
    for (path, value) in projected_paths(projection) {
        match value {
            RawValue::Document(_) => {
                let message = "An empty sub-projection is not a valid value. Found empty object at path";
                return Err(Error::location(51270, message));
            }
            RawValue::Bool(_) => {}
            value if value.is_number() => {}
            _ => return Err(computed()),
        }
        // An operator, though its operand is a number.
        if path.split('.').skip(1).any(|name| name.starts_with('$') && name != "$") {
            return Err(computed());
        }
        fields.push(&path, value.to_value());
    }
    let variables = Variables::default();
    Projection::parse_stage(fields.as_raw(), &Scope::new(&variables)).map(drop)
}

fn computed() -> Error {
    Error::location(
        51271,
        "Bad projection specification, cannot use computed fields when parsing a spec in kBanComputedFields mode",
    )
}
