//! Why a document does not satisfy a filter, in the words of mongod's `errInfo`.
//!
//! Clauses are asked one by one. Beneath a negation the question turns round: there it is told why a clause holds.

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value, doc};
use kilim_error::Error;

use super::Explanation;
use super::clause::Clause;
use super::considered::Considered;
use super::operator::telling;
use crate::expression::{Bindings, Env, Expression, Scope, Variables};
use crate::filter::JsonSchema;

/// The report on a document that a filter refused.
pub(super) fn explain(
    filter: RawDocument<'_>,
    document: RawDocument<'_>,
    variables: &Variables,
) -> Explanation {
    let explainer = Explainer { document, scope: &Scope::new(variables) };
    match explainer.report(&Clause::of_document(filter), Outcome::Failed) {
        Ok(details) => Explanation { details, note: None },
        Err(Unexplained(expression)) => Explanation {
            details: doc! {
                "code": 4_994_600,
                "codeName": "Location4994600",
                "errmsg": format!(
                    "Cannot generate validation error details: no annotation found for expression {{ {expression}: 1 }}"
                ),
            },
            note: Some("failed to generate document validation error"),
        },
    }
}

/// What a clause did, which its report gives the reason for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Failed,
    Held,
}

impl Outcome {
    fn opposite(self) -> Outcome {
        match self {
            Outcome::Failed => Outcome::Held,
            Outcome::Held => Outcome::Failed,
        }
    }

    fn clauses(self) -> &'static str {
        match self {
            Outcome::Failed => "clausesNotSatisfied",
            Outcome::Held => "clausesSatisfied",
        }
    }
}

/// mongod knows no reason for a constant.
struct Unexplained(String);

type Report = Result<Document, Unexplained>;

struct Explainer<'a> {
    document: RawDocument<'a>,
    scope: &'a Scope<'a>,
}

impl Explainer<'_> {
    fn report(&self, clause: &Clause<'_>, outcome: Outcome) -> Report {
        match clause {
            Clause::Every(clauses) => self.list("$and", clauses, outcome),
            Clause::And(list) => self.list("$and", &clauses(*list), outcome),
            Clause::Or(list) => self.list("$or", &clauses(*list), outcome),
            Clause::Nor(list) => self.list("$nor", &clauses(*list), outcome.opposite()),
            Clause::Not(inner) => {
                Ok(doc! {"operatorName": "$not", "details": self.report(inner, outcome.opposite())?})
            }
            Clause::Field { path, operator, operand, specified } => {
                Ok(self.field(path, operator, *operand, specified, outcome))
            }
            Clause::Expr(value) => Ok(self.expression("$expr", *value, outcome)),
            Clause::SampleRate(value) => Ok(chance(*value, outcome)),
            Clause::JsonSchema(schema) => Ok(self.schema(*schema, outcome)),
            Clause::Constant(name) => Err(Unexplained((*name).to_owned())),
        }
    }

    /// The clauses of a list that are to blame: those that did what `blamed` says.
    fn list(&self, operator: &str, clauses: &[Clause<'_>], blamed: Outcome) -> Report {
        let mut reports = Vec::new();
        for (index, clause) in clauses.iter().enumerate() {
            if clause.holds(self.document, self.scope) == (blamed == Outcome::Held) {
                reports.push(doc! {"index": index as i32, "details": self.report(clause, blamed)?});
            }
        }
        let mut report = doc! {"operatorName": operator};
        report.push(blamed.clauses(), reports);
        Ok(report)
    }

    fn field(
        &self,
        path: &str,
        operator: &str,
        operand: RawValue<'_>,
        specified: &Document,
        outcome: Outcome,
    ) -> Document {
        let mut report = doc! {"operatorName": operator, "specifiedAs": specified.clone()};
        let telling = telling(operator);
        let considered = Considered::at(self.document, path, telling.whole);
        if operator == "$exists" {
            // There is nothing to tell but how it is.
            let exists = crate::filter::parse::is_true(operand) == (outcome == Outcome::Held);
            report.push("reason", if exists { "path does exist" } else { "path does not exist" });
            return report;
        }
        if operator == "$all" && operand.as_array().is_some_and(RawArray::is_empty) {
            report.push("reason", "expression always evaluates to false");
            return report;
        }
        if considered.is_missing() {
            report.push("reason", "field was missing");
            return report;
        }
        if outcome == Outcome::Failed && !telling.expected.is_empty() && !considered.has(telling.expected) {
            report.push("reason", "type did not match");
            considered.push_types(&mut report);
            match telling.expected {
                [only] => report.push("expectedType", *only),
                several => {
                    let several: Vec<Value> = several.iter().map(|&name| Value::from(name)).collect();
                    report.push("expectedTypes", several);
                }
            }
            considered.push_values(&mut report);
            return report;
        }
        report.push("reason", if outcome == Outcome::Held { telling.held } else { telling.failed });
        considered.push_values(&mut report);
        if telling.types {
            considered.push_types(&mut report);
        }
        report
    }

    fn expression(&self, operator: &str, value: RawValue<'_>, outcome: Outcome) -> Document {
        let specified: Document = [(operator, value.to_value())].into_iter().collect();
        let mut report = doc! {"operatorName": operator, "specifiedAs": specified};
        let evaluated = Expression::parse(value, self.scope).and_then(|expression| {
            let env = Env::new(self.document, Bindings::none());
            expression.evaluate(&env).map(|result| result.into_value())
        });
        match evaluated {
            Ok(result) => {
                report.push("reason", expression_reason(outcome));
                if let Some(result) = result {
                    report.push("expressionResult", result);
                }
            }
            Err(error) => {
                report.push("reason", "failed to evaluate aggregation expression");
                report.push("details", error_report(&error));
            }
        }
        report
    }

    fn schema(&self, schema: RawDocument<'_>, outcome: Outcome) -> Document {
        match JsonSchema::parse(schema) {
            Ok(schema) if outcome == Outcome::Failed => schema.report(self.document),
            _ => doc! {"operatorName": "$jsonSchema", "reason": "schema matched"},
        }
    }
}

fn clauses(list: RawArray<'_>) -> Vec<Clause<'_>> {
    list.iter().filter_map(RawValue::as_document).map(Clause::of_document).collect()
}

fn expression_reason(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Held => "expression did match",
        Outcome::Failed => "expression did not match",
    }
}

/// Chance is not asked again.
fn chance(rate: RawValue<'_>, outcome: Outcome) -> Document {
    doc! {
        "operatorName": "$sampleRate",
        "specifiedAs": doc! {"$sampleRate": rate.to_value()},
        "reason": expression_reason(outcome),
        "expressionResult": outcome == Outcome::Held,
    }
}

fn error_report(error: &Error) -> Document {
    doc! {
        "code": error.code().0,
        "codeName": error.code().name().into_owned(),
        "errmsg": error.to_string(),
    }
}
