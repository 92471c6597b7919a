//! Expressions that choose: `$cond`, `$ifNull`, `$switch`. Only what is chosen is evaluated.
//!
//! A condition that is constant is decided while folding, so what remains is a part of the expression.

use kilim_bson::{Array, Document, RawDocument, RawValue, Value};
use kilim_error::{Error, Result};

use super::Arguments::Special;
use super::ladder::Ladder;
use super::{Call, Env, Evaluated, Expression, Fold, Operator, Scope};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$cond", "one of two values, by a condition", Special(parse_cond), cond)
        .folds(Fold::Never)
        .rewritten_by(decide_cond),
    Operator::new("$ifNull", "the first value that is not null or missing", Special(parse_if_null), if_null)
        .folds(Fold::Never)
        .rewritten_by(decide_if_null),
    Operator::new("$switch", "the value of the first branch that applies", Special(parse_switch), switch)
        .folds(Fold::Branches)
        .rewritten_by(decide_switch)
        .shown_by(show_switch),
];

fn call(operator: &'static Operator, arguments: Vec<Option<Expression>>) -> Result<Expression> {
    Ok(Expression::Call(Box::new(Call::new(operator, arguments))))
}

fn parse_list(operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Vec<Option<Expression>>> {
    match operand {
        RawValue::Array(list) => list.iter().map(|value| Expression::parse(value, scope).map(Some)).collect(),
        value => Ok(vec![Some(Expression::parse(value, scope)?)]),
    }
}

// $cond: condition, then, else.

fn parse_cond(operator: &'static Operator, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
    const PARTS: [(&str, i32); 3] = [("if", 17_080), ("then", 17_081), ("else", 17_082)];
    let RawValue::Document(document) = operand else {
        let arguments = parse_list(operand, scope)?;
        if arguments.len() != 3 {
            let message =
                format!("Expression $cond takes exactly 3 arguments. {} were passed in.", arguments.len());
            return Err(Error::location(16_020, message));
        }
        return call(operator, arguments);
    };
    let mut arguments = vec![None, None, None];
    for (name, value) in document {
        let Some(index) = PARTS.iter().position(|(part, _)| *part == name) else {
            return Err(Error::location(17_083, format!("Unrecognized parameter to $cond: {name}")));
        };
        arguments[index] = Some(Expression::parse(value, scope)?);
    }
    for ((part, code), argument) in PARTS.iter().zip(&arguments) {
        if argument.is_none() {
            return Err(Error::location(*code, format!("Missing '{part}' parameter to $cond")));
        }
    }
    call(operator, arguments)
}

fn cond<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let branch = if call.argument(0, env)?.to_bool() { 1 } else { 2 };
    call.argument(branch, env)
}

fn decide_cond(mut call: Box<Call>) -> Result<Expression> {
    let branch = match call.expression(0).and_then(truth) {
        Some(true) => 1,
        Some(false) => 2,
        None => return Ok(Expression::Call(call)),
    };
    Ok(call.arguments.swap_remove(branch).unwrap_or(Expression::Missing))
}

/// The truth of a condition that is the same for every document.
fn truth(condition: &Expression) -> Option<bool> {
    match condition {
        Expression::Constant(value) => Some(Evaluated::Raw(value.as_raw()).to_bool()),
        Expression::Missing => Some(false),
        _ => None,
    }
}

// $ifNull: candidates, the last of which is taken whatever it is.

fn parse_if_null(
    operator: &'static Operator,
    operand: RawValue<'_>,
    scope: &Scope<'_>,
) -> Result<Expression> {
    let arguments = parse_list(operand, scope)?;
    if arguments.len() < 2 {
        let message = format!("$ifNull needs at least two arguments, had: {}", arguments.len());
        return Err(Error::location(1_257_300, message));
    }
    call(operator, arguments)
}

fn if_null<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let last = call.arguments.len() - 1;
    for index in 0..last {
        let value = call.argument(index, env)?;
        if !value.is_nullish() {
            return Ok(value);
        }
    }
    call.argument(last, env)
}

fn decide_if_null(mut call: Box<Call>) -> Result<Expression> {
    let mut rest = call.arguments.len();
    let mut ended = false;
    call.arguments.retain(|argument| {
        rest -= 1;
        let nullish = match argument {
            Some(Expression::Constant(value)) => matches!(value, Value::Null | Value::Undefined),
            Some(Expression::Missing) | None => true,
            Some(_) => return !ended,
        };
        let kept = !ended && (!nullish || rest == 0);
        // What comes after a value that is there is never reached.
        ended |= !nullish;
        kept
    });
    if call.arguments.len() == 1 {
        return Ok(call.arguments.pop().flatten().unwrap_or(Expression::Missing));
    }
    Ok(Expression::Call(call))
}

// $switch: case, then, case, then, …, and the default, which may be left out.

fn parse_switch(operator: &'static Operator, operand: RawValue<'_>, scope: &Scope<'_>) -> Result<Expression> {
    let RawValue::Document(document) = operand else {
        let message =
            format!("$switch requires an object as an argument, found: {}", operand.element_type().name());
        return Err(Error::location(40_060, message));
    };
    let mut arguments = Vec::new();
    let mut default = None;
    for (name, value) in document {
        match name {
            "branches" => {
                let RawValue::Array(branches) = value else {
                    let message = format!(
                        "$switch expected an array for 'branches', found: {}",
                        value.element_type().name()
                    );
                    return Err(Error::location(40_061, message));
                };
                for branch in branches.iter() {
                    let RawValue::Document(branch) = branch else {
                        let message = format!(
                            "$switch expected each branch to be an object, found: {}",
                            branch.element_type().name()
                        );
                        return Err(Error::location(40_062, message));
                    };
                    arguments.extend(parse_branch(branch, scope)?);
                }
            }
            "default" => default = Some(Expression::parse(value, scope)?),
            _ => {
                return Err(Error::location(40_067, format!("$switch found an unknown argument: {name}")));
            }
        }
    }
    if arguments.is_empty() {
        return Err(Error::location(40_068, "$switch requires at least one branch"));
    }
    arguments.push(default);
    call(operator, arguments)
}

fn parse_branch(branch: RawDocument<'_>, scope: &Scope<'_>) -> Result<[Option<Expression>; 2]> {
    let (mut case, mut then) = (None, None);
    for (name, value) in branch {
        match name {
            "case" => case = Some(Expression::parse(value, scope)?),
            "then" => then = Some(Expression::parse(value, scope)?),
            _ => {
                let message = format!("$switch found an unknown argument to a branch: {name}");
                return Err(Error::location(40_063, message));
            }
        }
    }
    if case.is_none() {
        return Err(Error::location(40_064, "$switch requires each branch have a 'case' expression"));
    }
    if then.is_none() {
        return Err(Error::location(40_065, "$switch requires each branch have a 'then' expression."));
    }
    Ok([case, then])
}

fn switch<'a>(call: &'a Call, env: &Env<'a>) -> Result<Evaluated<'a>> {
    let default = call.arguments.len() - 1;
    match call.prepared::<Ladder>() {
        Some(ladder) => {
            if let Some(case) = ladder.case(call, env)? {
                return call.argument(2 * case + 1, env);
            }
        }
        None => {
            for case in (0..default).step_by(2) {
                if call.argument(case, env)?.to_bool() {
                    return call.argument(case + 1, env);
                }
            }
        }
    }
    if !call.is_given(default) {
        return Err(Error::location(
            40_066,
            "$switch could not find a matching branch for an input, and no default was specified.",
        ));
    }
    call.argument(default, env)
}

/// Folds the default, then branch after branch. What a false case would give goes unseen, and so does all that
/// stands behind a true one.
pub(super) fn fold_branches(call: &mut Call) -> Result<()> {
    let fold = |argument: &mut Option<Expression>| -> Result<()> {
        if let Some(expression) = argument.take() {
            *argument = Some(expression.optimised()?);
        }
        Ok(())
    };
    if let Some(default) = call.arguments.last_mut() {
        fold(default)?;
    }
    let mut at = 0;
    while at + 2 < call.arguments.len() {
        fold(&mut call.arguments[at])?;
        match call.arguments[at].as_ref().and_then(truth) {
            Some(false) => drop(call.arguments.drain(at..at + 2)),
            Some(true) => {
                fold(&mut call.arguments[at + 1])?;
                let default = call.arguments.len() - 1;
                call.arguments.drain(at + 2..default);
                break;
            }
            None => {
                fold(&mut call.arguments[at + 1])?;
                at += 2;
            }
        }
    }
    Ok(())
}

fn decide_switch(mut call: Box<Call>) -> Result<Expression> {
    let mut default = call.arguments.pop().flatten();
    let mut branches = std::mem::take(&mut call.arguments).into_iter();
    while let (Some(case), Some(then)) = (branches.next(), branches.next()) {
        match case.as_ref().and_then(truth) {
            // From here on, this is what is left.
            Some(true) => {
                default = then;
                break;
            }
            Some(false) => {}
            None => call.arguments.extend([case, then]),
        }
    }
    if call.arguments.is_empty() {
        return default.ok_or_else(|| {
            Error::location(
                40_069,
                "Cannot execute a switch statement where all the cases evaluate to false without a default",
            )
        });
    }
    call.arguments.push(default);
    if let Some(ladder) = Ladder::of(&call) {
        call.prepare(ladder);
    }
    Ok(Expression::Call(call))
}

fn show_switch(call: &Call) -> Value {
    let default = call.arguments.len() - 1;
    let shown = |index| call.expression(index).map_or(Value::Null, Expression::to_value);
    let branches = (0..default).step_by(2).map(|case| {
        Value::Document([("case", shown(case)), ("then", shown(case + 1))].into_iter().collect::<Document>())
    });
    let branches = Value::Array(branches.collect::<Array>());
    let default = call.expression(default).map(|default| ("default", default.to_value()));
    Value::Document([("branches", branches)].into_iter().chain(default).collect())
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Value, doc, identical};

    use crate::expression::{Expression, Scope, Variables};

    /// An expression once folded, as explain shows it.
    fn folded(expression: Value) -> Value {
        let variables = Variables::default();
        let parsed = Expression::parse(expression.as_raw(), &Scope::new(&variables)).expect("it parses");
        parsed.optimised().expect("it folds").to_value()
    }

    #[test]
    fn conditions_that_are_constant_are_decided_while_folding() {
        let constant = |value: i32| doc! {"$const": value};
        let cases: Vec<(Value, Value)> = vec![
            (doc! {"$cond": [true, "$a", "$b"]}.into(), "$a".into()),
            (doc! {"$cond": [0, "$a", {"$add": [1, 2]}]}.into(), constant(3).into()),
            (doc! {"$ifNull": [null, "$a", 3, "$b"]}.into(), doc! {"$ifNull": ["$a", (constant(3))]}.into()),
            (doc! {"$ifNull": [null, "$a"]}.into(), "$a".into()),
            (doc! {"$ifNull": [null, null]}.into(), doc! {"$const": null}.into()),
            (
                doc! {"$switch": {"branches": [
                    {"case": false, "then": 1},
                    {"case": "$a", "then": 2},
                    {"case": true, "then": 3},
                    {"case": "$b", "then": 4},
                ]}}
                .into(),
                doc! {"$switch": {
                    "branches": [{"case": "$a", "then": (constant(2))}],
                    "default": (constant(3)),
                }}
                .into(),
            ),
            (doc! {"$and": ["$a", 1, "$b", true]}.into(), doc! {"$and": ["$a", "$b"]}.into()),
            (doc! {"$and": ["$a", 0]}.into(), doc! {"$const": false}.into()),
            (doc! {"$or": ["$a", 0, {"$or": ["$b", 1]}]}.into(), doc! {"$const": true}.into()),
            (
                doc! {"$add": ["$a", 1, "$b", 2, {"$add": [3, "$c", 4]}]}.into(),
                doc! {"$add": ["$a", "$b", "$c", (constant(10))]}.into(),
            ),
            (
                doc! {"$toInt": "$a"}.into(),
                doc! {"$convert": {"input": "$a", "to": {"$const": "int"}}}.into(),
            ),
        ];
        for (expression, expected) in cases {
            let shown = folded(expression.clone());
            assert!(identical(shown.as_raw(), expected.as_raw()), "{expression:?} gave {shown:?}");
        }
    }
}
