//! What a wildcard index takes in its key and among its options, and what it refuses, with mongod's codes.

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::projection::Projection;
use kilim_query::text::document as shell_text;

use super::{KindOptions, Wildcard, compound, projected_paths};

/// Whether a key is a wildcard index's, as far as its names and values tell.
pub(super) fn check_key(key: RawDocument<'_>) -> Result<()> {
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
    compound::check_key(key)
}

/// Whether an index takes its options. Its projection is checked.
pub(super) fn check_options(
    key: RawDocument<'_>,
    projection: Option<RawDocument<'_>>,
    options: &KindOptions<'_>,
    spec: RawDocument<'_>,
) -> Result<()> {
    let in_spec = |error: Error| error.during(&format!("Error in specification {}", shell_text(spec)));
    if options.version == 1 {
        let message = format!(
            "bad index key pattern {}: 'wildcard' index plugin is not allowed with index version v:1",
            shell_text(key)
        );
        return Err(in_spec(Error::user(ErrorCode::CannotCreateIndex, message)));
    }
    let refused = match options {
        KindOptions { sparse: true, .. } => "does not support the sparse option",
        KindOptions { unique: true, .. } => "does not support the unique option",
        KindOptions { expires: true, .. } => "cannot be a TTL index",
        _ => return compound::check_projection(key, projection).map_err(in_spec),
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

pub(super) fn check_projection<'a>(given: RawValue<'a>, key: RawDocument<'_>) -> Result<RawDocument<'a>> {
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
    compound::check_mixture(key, projection)?;
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
