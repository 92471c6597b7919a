//! Date expressions held against `recorded.jsonl`, where each line is an expression and what mongod made of it:
//! `value`, or `code` and `message`.

use kilim_bson::{Document, JsonFormat, RawValue, doc, parse_extended_json, to_extended_json};
use kilim_error::Result;

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
