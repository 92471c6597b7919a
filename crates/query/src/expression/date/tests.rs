//! Date expressions held against `recorded.jsonl`, where each line is an expression and what mongod made of it:
//! `value`, or `code` and `message`.

use kilim_bson::{Document, JsonFormat, RawValue, Value, doc, parse_extended_json, to_extended_json};
use kilim_error::Result;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::expression::{Evaluated, Expression, Scope, Variables};

fn evaluate(expression: RawValue<'_>) -> Result<Evaluated<'static>> {
    let variables = Variables::default();
    let expression = Expression::parse(expression, &Scope::new(&variables))?.optimised()?;
    expression.evaluate_constant()
}

fn outcome(row: &Document) -> Document {
    match evaluate(row.get("expression").expect("a row has an expression")) {
        Ok(value) => doc! {"value": value.into_value().expect("a date expression has a value")},
        Err(error) => doc! {"code": error.code().0, "message": error.to_string()},
    }
}

#[test]
fn dates_are_what_mongod_recorded() {
    let mut failures = Vec::new();
    for (line, text) in include_str!("recorded.jsonl").lines().enumerate() {
        let row = parse_extended_json(text).unwrap_or_else(|error| panic!("line {}: {error}", line + 1));
        let expected: Document = row
            .iter()
            .filter(|(name, _)| *name != "expression")
            .map(|(name, value)| (name, value.to_value()))
            .collect();
        let outcome = outcome(&row);
        if outcome != expected {
            let outcome = to_extended_json(outcome.as_raw(), JsonFormat::Relaxed);
            failures.push(format!("line {}: {text}\n  got {outcome}", line + 1));
        }
    }
    assert!(failures.is_empty(), "{} rows differ:\n{}", failures.len(), failures.join("\n"));
}

/// How many expressions the tests below make up; `KILIM_DATE_CASES` asks for more.
fn cases() -> u64 {
    std::env::var("KILIM_DATE_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(4_000)
}

fn joined(random: &mut SmallRng, parts: &[&str], count_max: usize) -> String {
    (0..random.random_range(0..=count_max)).map(|_| parts[random.random_range(0..parts.len())]).collect()
}

#[test]
fn no_text_and_no_format_makes_date_from_string_panic() {
    const TEXTS: &[&str] = &[
        "2020",
        "010",
        "-",
        "+",
        "12",
        "5",
        "0",
        "9999",
        "99999999999999999999",
        "W",
        "T",
        "Z",
        ":",
        ".",
        " ",
        "/",
        "é",
        "\0",
        "jan",
        "VII",
        "@",
        "pm",
        "GMT",
        "+14",
        "ago",
        "last monday of",
        "first day of",
        "weekdays",
        "next",
        "year",
        "µs",
        "Europe/Berlin",
        "(",
        "%",
        "9223372036854775807",
        "ABCDEF",
    ];
    let mut formats: Vec<String> =
        super::format::READ.iter().map(|byte| format!("%{}", char::from(*byte))).collect();
    formats.extend(["-", " ", "\0", "é", "%j", "%U", "%"].map(String::from));
    let formats: Vec<&str> = formats.iter().map(String::as_str).collect();
    let mut random = SmallRng::seed_from_u64(9);
    for _ in 0..cases() {
        let mut argument = doc! {"dateString": joined(&mut random, TEXTS, 8)};
        if random.random_bool(0.6) {
            argument.push("format", joined(&mut random, &formats, 6));
        }
        let _ = evaluate(RawValue::Document(doc! {"$dateFromString": argument}.as_raw()));
    }
}

#[test]
fn no_amount_makes_an_operator_of_dates_panic() {
    let mut random = SmallRng::seed_from_u64(10);
    let units = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond"];
    let numbers = [0, 1, -1, 53, 366, 32_767, -32_768, i64::from(i32::MAX), 1 << 40, i64::MAX, i64::MIN];
    let zones = ["UTC", "Europe/Berlin", "+99:99", "-23:59", "America/New_York"];
    for _ in 0..cases() {
        let mut number = || match random.random_bool(0.7) {
            true => numbers[random.random_range(0..numbers.len())],
            false => random.random(),
        };
        let (date, other) = (number(), number());
        let parts: Vec<i64> = (0..7).map(|_| number()).collect();
        let unit = units[random.random_range(0..units.len())];
        let zone = zones[random.random_range(0..zones.len())];
        let date = Value::DateTime(date);
        let expressions = [
            doc! {"$dateAdd": {"startDate": date.clone(), "unit": unit, "amount": other, "timezone": zone}},
            doc! {"$dateSubtract": {"startDate": date.clone(), "unit": unit, "amount": other, "timezone": zone}},
            doc! {"$dateTrunc": {"date": date.clone(), "unit": unit, "binSize": other, "timezone": zone}},
            doc! {"$dateDiff": {"startDate": date.clone(), "endDate": Value::DateTime(other), "unit": unit, "timezone": zone}},
            doc! {"$dateToParts": {"date": date.clone(), "timezone": zone, "iso8601": true}},
            doc! {"$dateToString": {"date": date.clone(), "timezone": zone, "format": "%G %V %u %j %U %w %Y %b %z %Z %L"}},
            doc! {"$dateFromParts": {"year": parts[0], "month": parts[1], "day": parts[2], "hour": parts[3], "minute": parts[4], "second": parts[5], "millisecond": parts[6], "timezone": zone}},
            doc! {"$dateFromParts": {"isoWeekYear": parts[0], "isoWeek": parts[1], "isoDayOfWeek": parts[2], "timezone": zone}},
            doc! {"$add": [date, other]},
        ];
        for expression in expressions {
            let _ = evaluate(RawValue::Document(expression.as_raw()));
        }
    }
}
