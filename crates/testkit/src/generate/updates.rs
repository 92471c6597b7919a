//! Random updates: one to three operators, sometimes in conflict, with their array filters.

use kilim_bson::{Array, Document, Value, Writer, doc};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::filters::{filter, replacement};
use super::values::{FIELDS, number, path, scalar, value};

pub(super) struct Update {
    pub document: Document,
    pub array_filters: Vec<Document>,
    /// A replacement applies to one document only.
    pub replaces: bool,
}

pub(super) fn update(random: &mut impl Rng) -> Update {
    if random.random_bool(0.1) {
        return Update { document: replacement(random), array_filters: Vec::new(), replaces: true };
    }
    let mut operators: Vec<(&str, Vec<(String, Value)>)> = Vec::new();
    for _ in 0..*[1, 1, 1, 2, 3].choose(random).expect("not empty") {
        let (name, operand) = operator(random);
        let path = target(random, name);
        match operators.iter_mut().find(|(known, _)| *known == name) {
            Some((_, fields)) if fields.iter().all(|(known, _)| *known != path) => {
                fields.push((path, operand))
            }
            Some(_) => {}
            None => operators.push((name, vec![(path, operand)])),
        }
    }
    let filtered = operators.iter().flat_map(|(_, fields)| fields).any(|(path, _)| path.contains("$[it]"));
    let mut writer = Writer::new();
    for (name, fields) in &operators {
        writer.open_document(name);
        fields.iter().for_each(|(path, operand)| writer.append(path, operand.as_raw()));
        writer.close();
    }
    let array_filters = if filtered { vec![doc! {"it": {"$gte": scalar(random)}}] } else { Vec::new() };
    Update { document: writer.finish(), array_filters, replaces: false }
}

/// The path an operator works on; now and then through all elements, the matched one, or some.
fn target(random: &mut impl Rng, operator: &str) -> String {
    if operator != "$rename" && random.random_bool(0.2) {
        let field = FIELDS.choose(random).expect("four");
        let element = ["$[]", "$", "$[it]", "$[].b"].choose(random).expect("four");
        return format!("{field}.{element}");
    }
    path(random).to_owned()
}

fn operator(random: &mut impl Rng) -> (&'static str, Value) {
    match random.random_range(0..20) {
        0..4 => ("$set", value(random, 2)),
        4 | 5 => ("$unset", Value::String(String::new())),
        6 | 7 => ("$inc", number(random)),
        8 => ("$mul", number(random)),
        9 => ("$min", value(random, 1)),
        10 => ("$max", value(random, 1)),
        11 => ("$rename", Value::String(path(random).to_owned())),
        12 => ("$setOnInsert", value(random, 1)),
        13 => {
            let operation = ["and", "or", "xor"].choose(random).expect("three");
            (
                "$bit",
                Value::Document(
                    [(*operation, Value::Int32(random.random_range(0..8)))].into_iter().collect(),
                ),
            )
        }
        14 | 15 => {
            ("$push", if random.random_bool(0.5) { value(random, 1) } else { Value::Document(each(random)) })
        }
        16 => {
            let list = values(random);
            (
                "$addToSet",
                if random.random_bool(0.5) {
                    value(random, 1)
                } else {
                    Value::Document(doc! {"$each": list})
                },
            )
        }
        17 => ("$pop", Value::Int32(if random.random_bool(0.5) { 1 } else { -1 })),
        18 => match random.random_range(0..3) {
            0 => ("$pull", value(random, 1)),
            1 => ("$pull", Value::Document(doc! {"$gte": scalar(random)})),
            _ => ("$pull", Value::Document(filter(random, 1))),
        },
        _ => ("$pullAll", Value::Array(values(random))),
    }
}

fn values(random: &mut impl Rng) -> Array {
    let count = random.random_range(0..4);
    (0..count).map(|_| value(random, 1)).collect()
}

fn each(random: &mut impl Rng) -> Document {
    let list = values(random);
    let mut each = doc! {"$each": list};
    if random.random_bool(0.4) {
        each.push("$slice", random.random_range(-3..4));
    }
    if random.random_bool(0.4) {
        match random.random_bool(0.5) {
            true => each.push("$sort", if random.random_bool(0.5) { 1 } else { -1 }),
            false => each.push("$sort", doc! {"a": 1, "b": (-1)}),
        }
    }
    if random.random_bool(0.3) {
        each.push("$position", random.random_range(-2..3));
    }
    each
}
