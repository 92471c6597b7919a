//! `expireAfterSeconds`, as create, createIndexes and collMod take it.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result as Outcome};

pub const COMPOUND: &str = "TTL indexes are single-field indexes, compound indexes do not support TTL";

/// The number of seconds, or what is wrong with it.
pub fn seconds(value: RawValue<'_>) -> Result<i32, String> {
    let whole = whole(value)?;
    i32::try_from(whole).map_err(|_| {
        format!("TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number than {whole}")
    })
}

/// The same for collMod, which takes what is too much for the most there is.
pub fn at_most_ever(value: RawValue<'_>) -> Result<i32, String> {
    Ok(i32::try_from(whole(value)?).unwrap_or(i32::MAX))
}

fn whole(value: RawValue<'_>) -> Result<i64, String> {
    let whole = match value {
        RawValue::Int32(seconds) => i64::from(seconds),
        RawValue::Int64(seconds) => seconds,
        // Not a number once meant "now" and deleted everything: it means "never".
        RawValue::Double(seconds) if seconds.is_nan() => i64::from(i32::MAX),
        RawValue::Double(seconds) => seconds as i64,
        RawValue::Decimal128(seconds) if seconds.is_nan() => i64::from(i32::MAX),
        // A double loses its fraction, a decimal is rounded.
        RawValue::Decimal128(seconds) => seconds.to_f64().round_ties_even() as i64,
        other => {
            return Err(format!(
                "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'",
                other.element_type().name()
            ));
        }
    };
    if whole < 0 {
        return Err("TTL index 'expireAfterSeconds' option cannot be less than 0".to_owned());
    }
    Ok(whole)
}

/// The same for a clustered collection, where a time from before 1970 is none.
pub fn seconds_of_clustered(seconds: i64, now_ms: i64) -> Outcome<i64> {
    let invalid = |message: &str| Err(Error::user(ErrorCode::InvalidOptions, message));
    if seconds < 0 {
        return invalid("TTL index 'expireAfterSeconds' option cannot be less than 0");
    }
    if seconds.saturating_mul(1000) > now_ms {
        return invalid(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number",
        );
    }
    Ok(seconds)
}
