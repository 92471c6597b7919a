//! Does an answer match an expectation?
//!
//! Values match if they print alike, so types count and NaN equals itself; `<any>` matches one value
//! and, in text, any run of characters; `...` matches further fields.

use kilim_bson::{RawDocument, RawValue, Value};

use super::{Answer, Expectation};
use crate::shell::{ANY, Parser, REST, placeholder, print};

/// Whether the answer is what was expected; an error if the expectation cannot be read.
pub(super) fn matches(expectation: &Expectation, answer: &Answer) -> Result<bool, String> {
    match answer {
        Answer::Text(lines) => Ok(lines.len() == expectation.lines.len()
            && expectation.lines.iter().zip(lines).all(|(expected, actual)| text_matches(expected, actual))),
        Answer::Failed(_) | Answer::Succeeded => Ok(false),
        Answer::Reply(reply) => {
            let values = values(expectation)?;
            let [Value::Document(expected)] = &values[..] else { return Ok(false) };
            Ok(fields_match_in_any_order(expected.as_raw(), reply.as_raw(), envelope_matches))
        }
        Answer::Rows(rows) => {
            let expected = values(expectation)?;
            Ok(expected.len() == rows.len()
                && expected
                    .iter()
                    .zip(rows)
                    .all(|(expected, row)| value_matches(expected.as_raw(), row.as_raw())))
        }
        Answer::Set(rows) => {
            let expected = values(expectation)?;
            // Each expected row takes the first left that fits, exact ones before those with `<any>`.
            let mut left: Vec<&Value> = rows.iter().collect();
            let (loose, exact): (Vec<_>, Vec<_>) =
                expected.iter().partition(|value| print(value.as_raw()).contains(ANY));
            Ok(expected.len() == rows.len()
                && exact.into_iter().chain(loose).all(|expected| {
                    let found = left.iter().position(|row| value_matches(expected.as_raw(), row.as_raw()));
                    found.map(|at| left.swap_remove(at)).is_some()
                }))
        }
    }
}

fn values(expectation: &Expectation) -> Result<Vec<Value>, String> {
    let text = expectation.lines.join("\n");
    let mut parser = Parser::new(&text, 0);
    let mut values = Vec::new();
    while parser.peek().is_some() {
        values.push(parser.value().map_err(|error| {
            let line = expectation.line + 1 + text[..error.at].matches('\n').count();
            format!("line {line}: {}", error.message)
        })?);
    }
    Ok(values)
}

fn value_matches(expected: RawValue<'_>, actual: RawValue<'_>) -> bool {
    if placeholder(expected) == Some(ANY) {
        return true;
    }
    match (expected, actual) {
        (RawValue::Document(expected), RawValue::Document(actual)) => document_matches(expected, actual),
        (RawValue::Array(expected), RawValue::Array(actual)) => {
            expected.len() == actual.len()
                && expected
                    .iter()
                    .zip(actual.iter())
                    .all(|(expected, actual)| value_matches(expected, actual))
        }
        (expected, actual) => {
            expected.element_type() == actual.element_type() && print(expected) == print(actual)
        }
    }
}

/// Field by field in order; behind `...` anything may follow, and with it order no longer counts.
fn document_matches(expected: RawDocument<'_>, actual: RawDocument<'_>) -> bool {
    if expected.get(REST).is_some() {
        return fields_match_in_any_order(expected, actual, |_, expected, actual| {
            value_matches(expected, actual)
        });
    }
    let mut fields = actual.iter();
    expected.iter().all(|(name, value)| {
        fields.next().is_some_and(|(found, actual)| found == name && value_matches(value, actual))
    }) && fields.next().is_none()
}

fn fields_match_in_any_order(
    expected: RawDocument<'_>,
    actual: RawDocument<'_>,
    field_matches: impl Fn(&str, RawValue<'_>, RawValue<'_>) -> bool,
) -> bool {
    let open = expected.get(REST).is_some();
    let named = expected.iter().filter(|(name, _)| *name != REST);
    let all_found = named
        .clone()
        .all(|(name, value)| actual.get(name).is_some_and(|actual| field_matches(name, value, actual)));
    all_found && (open || named.count() == actual.iter().count())
}

/// Parts of a reply that the server wraps around documents. mongod itself orders their fields now so,
/// now otherwise, and no client looks.
const ENVELOPES: [&str; 5] = ["cursor", "lastErrorObject", "upserted", "writeConcernError", "writeErrors"];

fn envelope_matches(name: &str, expected: RawValue<'_>, actual: RawValue<'_>) -> bool {
    let in_any_order = |expected, actual| {
        fields_match_in_any_order(expected, actual, |_, expected, actual| value_matches(expected, actual))
    };
    match (expected, actual) {
        (RawValue::Document(expected), RawValue::Document(actual)) if ENVELOPES.contains(&name) => {
            in_any_order(expected, actual)
        }
        (RawValue::Array(expected), RawValue::Array(actual)) if ENVELOPES.contains(&name) => {
            expected.len() == actual.len()
                && expected.iter().zip(actual.iter()).all(|(expected, actual)| match (expected, actual) {
                    (RawValue::Document(expected), RawValue::Document(actual)) => {
                        in_any_order(expected, actual)
                    }
                    (expected, actual) => value_matches(expected, actual),
                })
        }
        (expected, actual) => value_matches(expected, actual),
    }
}

fn text_matches(expected: &str, actual: &str) -> bool {
    let Some((first, after)) = expected.split_once(ANY) else { return expected == actual };
    let Some(mut rest) = actual.strip_prefix(first) else { return false };
    let (between, last) = after.rsplit_once(ANY).unwrap_or(("", after));
    for part in between.split(ANY) {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::parse;

    #[test]
    fn placeholders_match_and_types_count() {
        for (expected, actual, result) in [
            ("{a: 1}", "{a: 1}", true),
            ("{a: 1}", "{a: 1.0}", false),
            ("{a: 1}", "{a: Long(1)}", false),
            ("{a: NaN}", "{a: NaN}", true),
            ("{a: <any>}", "{a: {b: 1}}", true),
            ("{a: 1, b: 2}", "{b: 2, a: 1}", false),
            ("{a: 1, ...}", "{b: 2, a: 1}", true),
            ("{a: 1, ...}", "{b: 2}", false),
            ("[1, <any>]", "[1]", false),
            ("<cursor>", "<cursor>", true),
            ("<cursor>", "Long(0)", false),
        ] {
            let (expected_value, actual_value) = (parse(expected).unwrap(), parse(actual).unwrap());
            assert_eq!(
                value_matches(expected_value.as_raw(), actual_value.as_raw()),
                result,
                "{expected} {actual}"
            );
        }
        for (expected, actual, result) in [
            ("a<any>c", "abbc", true),
            ("a<any>c", "ab", false),
            ("ab", "ab", true),
            ("<any>", "", true),
            ("a<any>b<any>c", "axbyc", true),
        ] {
            assert_eq!(text_matches(expected, actual), result, "{expected} {actual}");
        }
    }

    #[test]
    fn a_reply_may_order_its_envelopes_but_not_its_documents() {
        let check = |expected: &str, actual: &str| {
            let reply = crate::shell::parse_document(actual).unwrap();
            matches(&Expectation { line: 1, lines: vec![expected.to_owned()] }, &Answer::Reply(reply))
                .unwrap()
        };
        let expected = "{cursor: {firstBatch: [{_id: 1, a: 2}], id: Long(0)}, writeErrors: [{index: 0, code: 1}], ok: 1}";
        assert!(check(
            expected,
            "{ok: 1, writeErrors: [{code: 1, index: 0}], cursor: {id: Long(0), firstBatch: [{_id: 1, a: 2}]}}"
        ));
        assert!(!check(
            expected,
            "{ok: 1, writeErrors: [{code: 1, index: 0}], cursor: {id: Long(0), firstBatch: [{a: 2, _id: 1}]}}"
        ));
    }

    #[test]
    fn rows_in_any_order_are_each_used_once() {
        let check = |expected: &[&str], rows: &[&str]| {
            let lines = expected.iter().map(|line| (*line).to_owned()).collect();
            let rows = rows.iter().map(|row| parse(row).unwrap()).collect();
            matches(&Expectation { line: 1, lines }, &Answer::Set(rows)).unwrap()
        };
        assert!(check(&["{a: <any>}", "{a: 1}"], &["{a: 1}", "{a: 2}"]));
        assert!(!check(&["{a: 1}", "{a: 1}"], &["{a: 1}", "{a: 2}"]));
    }
}
