//! The parts of a filter as it was written: one condition each.

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value, doc};

use crate::expression::Scope;
use crate::filter::Filter;
use crate::filter::parse::is_operator_document;

/// One condition, in the words of its author.
pub(super) enum Clause<'a> {
    /// Several at once: an implicit conjunction where it has no name of its own.
    Every(Vec<Clause<'a>>),
    And(RawArray<'a>),
    Or(RawArray<'a>),
    Nor(RawArray<'a>),
    Not(Box<Clause<'a>>),
    /// An operator on a field. What is specified has the path and this operator alone.
    Field {
        path: &'a str,
        operator: &'a str,
        operand: RawValue<'a>,
        specified: Document,
    },
    Expr(RawValue<'a>),
    SampleRate(RawValue<'a>),
    JsonSchema(RawDocument<'a>),
    /// `$alwaysTrue` and `$alwaysFalse`, which nothing is known about.
    Constant(&'a str),
}

impl<'a> Clause<'a> {
    /// A whole filter document.
    pub(super) fn of_document(filter: RawDocument<'a>) -> Clause<'a> {
        let mut clauses = Vec::new();
        for (name, value) in filter.iter() {
            match (name, value) {
                ("$comment", _) => {}
                ("$and", RawValue::Array(list)) => clauses.push(Clause::And(list)),
                ("$or", RawValue::Array(list)) => clauses.push(Clause::Or(list)),
                ("$nor", RawValue::Array(list)) => clauses.push(Clause::Nor(list)),
                ("$expr", value) => clauses.push(Clause::Expr(value)),
                ("$sampleRate", value) => clauses.push(Clause::SampleRate(value)),
                ("$jsonSchema", RawValue::Document(schema)) => clauses.push(Clause::JsonSchema(schema)),
                ("$alwaysTrue" | "$alwaysFalse", _) => clauses.push(Clause::Constant(name)),
                (path, value) => clauses.extend(of_field(path, value)),
            }
        }
        Clause::every(clauses)
    }

    fn every(mut clauses: Vec<Clause<'a>>) -> Clause<'a> {
        match clauses.len() {
            1 => clauses.remove(0),
            _ => Clause::Every(clauses),
        }
    }

    /// Whether a document satisfies it. What cannot be evaluated is not satisfied.
    pub(super) fn holds(&self, document: RawDocument<'_>, scope: &Scope<'_>) -> bool {
        let all = |list: RawArray<'a>| list.iter().filter_map(RawValue::as_document).map(Clause::of_document);
        let written = |written: Document| {
            let filter = Filter::parse_for_validator(written.as_raw(), scope);
            filter.and_then(|filter| filter.matches(document)).unwrap_or(false)
        };
        match self {
            Clause::Every(clauses) => clauses.iter().all(|clause| clause.holds(document, scope)),
            Clause::And(list) => all(*list).all(|clause| clause.holds(document, scope)),
            Clause::Or(list) => all(*list).any(|clause| clause.holds(document, scope)),
            Clause::Nor(list) => !all(*list).any(|clause| clause.holds(document, scope)),
            Clause::Not(clause) => !clause.holds(document, scope),
            Clause::Field { specified, .. } => written(specified.clone()),
            Clause::Expr(value) => written(doc! {"$expr": value.to_value()}),
            Clause::SampleRate(value) => written(doc! {"$sampleRate": value.to_value()}),
            Clause::JsonSchema(schema) => written(doc! {"$jsonSchema": schema.to_document()}),
            Clause::Constant(name) => *name == "$alwaysTrue",
        }
    }
}

fn of_field<'a>(path: &'a str, value: RawValue<'a>) -> Vec<Clause<'a>> {
    match value {
        RawValue::Document(operators) if is_operator_document(operators) => of_operators(path, operators),
        RawValue::Regex { .. } => vec![field(path, "$regex", value, value.to_value())],
        value => vec![field(path, "$eq", value, value.to_value())],
    }
}

fn of_operators<'a>(path: &'a str, operators: RawDocument<'a>) -> Vec<Clause<'a>> {
    let mut clauses = Vec::new();
    for (operator, operand) in operators.iter() {
        match operator {
            // It is told with its pattern, and mongod shows all that stands around.
            "$options" => {}
            "$regex" => {
                clauses.push(field(path, operator, operand, Value::Document(operators.to_document())))
            }
            "$not" => {
                let inner = match operand {
                    RawValue::Document(document) => of_operators(path, document),
                    other => of_field(path, other),
                };
                clauses.push(Clause::Not(Box::new(Clause::every(inner))));
            }
            _ => {
                let alone = [(operator, operand.to_value())].into_iter().collect();
                clauses.push(field(path, operator, operand, Value::Document(alone)));
            }
        }
    }
    clauses
}

fn field<'a>(path: &'a str, operator: &'a str, operand: RawValue<'a>, value: Value) -> Clause<'a> {
    Clause::Field { path, operator, operand, specified: [(path, value)].into_iter().collect() }
}
