//! Numbers as operands: exact integers, truncation, and mongod's way to print what it refuses.

use kilim_bson::{Decimal128, RawValue, Rounding};

/// Why a number is no 64-bit integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coercion {
    NotFinite,
    OutOfBounds,
}

pub(super) fn is_nan(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Double(value) => value.is_nan(),
        RawValue::Decimal128(value) => value.is_nan(),
        _ => false,
    }
}

const I64_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// The 64-bit integer that a number is, if it is one.
pub(crate) fn exact_i64(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::Double(value) if value != value.trunc() => None,
        RawValue::Decimal128(value) => value.to_i64_exact(),
        value => truncated_i64(value)?.ok(),
    }
}

/// A number without its fraction; nothing if the value is no number.
pub(crate) fn truncated_i64(value: RawValue<'_>) -> Option<Result<i64, Coercion>> {
    Some(match value {
        RawValue::Int32(value) => Ok(i64::from(value)),
        RawValue::Int64(value) => Ok(value),
        RawValue::Double(value) if !value.is_finite() => Err(Coercion::NotFinite),
        RawValue::Double(value) if (-I64_LIMIT..I64_LIMIT).contains(&value) => Ok(value as i64),
        RawValue::Double(_) => Err(Coercion::OutOfBounds),
        RawValue::Decimal128(value) if !value.is_finite() => Err(Coercion::NotFinite),
        RawValue::Decimal128(value) => value.to_i64().ok_or(Coercion::OutOfBounds),
        _ => return None,
    })
}

/// A number as an integer where nobody asks for exactness: a double loses its fraction, a decimal is rounded
/// to the even of two neighbours. Nothing if the value is no number.
pub(crate) fn rounded_i64(value: RawValue<'_>) -> Option<Result<i64, Coercion>> {
    match value {
        RawValue::Decimal128(value) => {
            truncated_i64(RawValue::Decimal128(value.round_to_whole(Rounding::HalfEven)))
        }
        value => truncated_i64(value),
    }
}

/// A number as a decimal; what is no number is zero.
pub(crate) fn to_decimal(value: RawValue<'_>) -> Decimal128 {
    match value {
        RawValue::Int32(value) => Decimal128::from(value),
        RawValue::Int64(value) => Decimal128::from(value),
        RawValue::Double(value) => Decimal128::from_f64(value),
        RawValue::Decimal128(value) => value,
        _ => Decimal128::from(0),
    }
}

pub(crate) fn to_f64(value: RawValue<'_>) -> f64 {
    match value {
        RawValue::Int32(value) => f64::from(value),
        RawValue::Int64(value) => value as f64,
        RawValue::Double(value) => value,
        RawValue::Decimal128(value) => value.to_f64(),
        _ => 0.0,
    }
}

/// An integer operand. The error is mongod's sentence, which names the element.
pub(super) fn parse_i64(name: &str, value: RawValue<'_>) -> Result<i64, String> {
    let element = || format!("{name}: {}", display(value));
    if !value.is_number() {
        return Err(format!("Expected a number in: {}", element()));
    }
    if let RawValue::Double(number) = value {
        if number.is_nan() {
            return Err(format!("Expected an integer, but found NaN in: {}", element()));
        }
        if number.is_finite() && number != number.trunc() {
            return Err(format!("Expected an integer: {}", element()));
        }
    }
    exact_i64(value).ok_or_else(|| format!("Cannot represent as a 64-bit integer: {}", element()))
}

pub(crate) fn parse_non_negative_i64(name: &str, value: RawValue<'_>) -> Result<i64, String> {
    let number = parse_i64(name, value)?;
    if number < 0 {
        return Err(format!("Expected a non-negative number in: {name}: {}", display(value)));
    }
    Ok(number)
}

pub(super) fn parse_non_negative_i32(name: &str, value: RawValue<'_>) -> Result<i32, String> {
    let number = i32::try_from(parse_i64(name, value)?)
        .map_err(|_| format!("Cannot represent {name}: {} in an int", display(value)))?;
    if number < 0 {
        return Err(format!("Expected a non-negative number in: {name}: {}", display(value)));
    }
    Ok(number)
}

/// `UUID("00112233-4455-…")`.
pub(crate) fn display_uuid(bytes: &[u8]) -> String {
    let mut text = String::from("UUID(\"");
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text + "\")"
}

/// A value as mongod prints it inside error messages.
pub(crate) fn display(value: RawValue<'_>) -> String {
    match value {
        RawValue::Double(number) => {
            let text = general(number, 16);
            if text.contains('.') { text } else { text + ".0" }
        }
        RawValue::String(text) => format!("\"{text}\""),
        RawValue::Int32(number) => number.to_string(),
        RawValue::Int64(number) => number.to_string(),
        RawValue::Bool(truth) => truth.to_string(),
        RawValue::Null => "null".to_owned(),
        RawValue::Undefined => "undefined".to_owned(),
        RawValue::MinKey => "MinKey".to_owned(),
        RawValue::MaxKey => "MaxKey".to_owned(),
        RawValue::Decimal128(number) => number.to_string(),
        RawValue::ObjectId(id) => format!("ObjectId('{id}')"),
        RawValue::DateTime(millis) => format!("new Date({millis})"),
        RawValue::Regex { pattern, options } => format!("/{pattern}/{options}"),
        RawValue::Timestamp(time) => format!("Timestamp({}, {})", time.seconds, time.increment),
        RawValue::Symbol(text) => format!("\"{text}\""),
        RawValue::JavaScript(code) => code.to_owned(),
        RawValue::JavaScriptWithScope { code, scope } => {
            format!("CodeWScope( {code}, {})", display(RawValue::Document(scope)))
        }
        RawValue::DbPointer { namespace, id } => format!("DBRef('{namespace}',{id})"),
        RawValue::Binary { subtype: 4, bytes } if bytes.len() == 16 => display_uuid(bytes),
        RawValue::Binary { subtype, bytes } => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("BinData({subtype}, {hex})")
        }
        RawValue::Array(array) if array.is_empty() => "[]".to_owned(),
        RawValue::Array(array) => {
            let items: Vec<String> = array.iter().map(display).collect();
            format!("[ {} ]", items.join(", "))
        }
        RawValue::Document(document) => display_document(document),
    }
}

pub(crate) fn display_document(document: kilim_bson::RawDocument<'_>) -> String {
    if document.is_empty() {
        return "{}".to_owned();
    }
    let fields: Vec<String> =
        document.iter().map(|(name, value)| format!("{name}: {}", display(value))).collect();
    format!("{{ {} }}", fields.join(", "))
}

/// A double with six significant digits, as C prints `%g`.
pub(crate) fn short(number: f64) -> String {
    general(number, 6)
}

fn general(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        let sign = if number.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if number.is_nan() { "nan" } else { "inf" });
    }
    let scientific = format!("{number:.*e}", precision - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    } else {
        trimmed(&format!("{number:.*}", (precision as i32 - 1 - exponent) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_c_would() {
        for (number, six, sixteen) in [
            (1.5, "1.5", "1.5"),
            (1e30, "1e+30", "1e+30.0"),
            (1_099_511_627_776.0, "1.09951e+12", "1099511627776.0"),
            (-2.0, "-2", "-2.0"),
            (0.00001, "1e-05", "1e-05.0"),
            (f64::NAN, "nan", "nan.0"),
            (-f64::NAN, "-nan", "-nan.0"),
            (f64::NEG_INFINITY, "-inf", "-inf.0"),
        ] {
            assert_eq!(short(number), six);
            assert_eq!(display(RawValue::Double(number)), sixteen);
        }
    }

    #[test]
    fn only_whole_numbers_in_range_are_integers() {
        let decimal = |coefficient: u128, exponent: i32| {
            let bits = coefficient | ((exponent + 6176) as u128) << 113;
            RawValue::Decimal128(Decimal128::from_bytes(bits.to_le_bytes()))
        };
        assert_eq!(exact_i64(RawValue::Double(3.0)), Some(3));
        assert_eq!(exact_i64(RawValue::Double(3.5)), None);
        assert_eq!(exact_i64(RawValue::Double(f64::INFINITY)), None);
        assert_eq!(exact_i64(RawValue::Double(9.3e18)), None);
        assert_eq!(exact_i64(decimal(30, -1)), Some(3));
        assert_eq!(exact_i64(decimal(35, -1)), None);
        assert_eq!(exact_i64(decimal(3, 2)), Some(300));
        assert_eq!(exact_i64(decimal(3, 300)), None);
        assert_eq!(truncated_i64(decimal(35, -1)), Some(Ok(3)));
        assert_eq!(truncated_i64(RawValue::Double(-3.9)), Some(Ok(-3)));
        assert_eq!(display(decimal(15, -1)), "1.5");
    }
}
