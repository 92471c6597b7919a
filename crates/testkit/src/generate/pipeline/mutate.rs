//! Breaks a command in one place: something else where a value was, an argument too few or too many, a name
//! that means nothing. What a server says to that is part of its language too.

use kilim_bson::{Document, RawValue, Value};
use rand::Rng;
use rand::rngs::StdRng;

use super::super::values::scalar;

/// The command with one thing changed inside its pipeline.
pub(super) fn mutate(random: &mut StdRng, command: &Document) -> Document {
    let mut changed = Document::new();
    for (name, value) in command.iter() {
        if name != "pipeline" {
            changed.push(name, value);
            continue;
        }
        let places = size(value);
        let mut at = random.random_range(0..places.max(1));
        let value = replace(random, value, &mut at);
        changed.push(name, value.unwrap_or_else(|| Value::Array(Default::default())));
    }
    changed
}

fn size(value: RawValue<'_>) -> usize {
    1 + match value {
        RawValue::Document(document) => document.iter().map(|(_, value)| size(value)).sum(),
        RawValue::Array(array) => array.iter().map(size).sum(),
        _ => 0,
    }
}

/// The value with its part number `at`, counted from the outside in, changed; none if that part goes.
fn replace(random: &mut StdRng, value: RawValue<'_>, at: &mut usize) -> Option<Value> {
    if *at == 0 {
        *at = usize::MAX;
        return change(random, value);
    }
    if *at != usize::MAX {
        *at -= 1;
    }
    Some(match value {
        RawValue::Document(document) => {
            let mut changed = Document::new();
            for (name, value) in document.iter() {
                if let Some(value) = replace(random, value, at) {
                    changed.push(name, value);
                }
            }
            Value::Document(changed)
        }
        RawValue::Array(array) => {
            Value::from(array.iter().filter_map(|value| replace(random, value, at)).collect::<Vec<_>>())
        }
        other => other.to_value(),
    })
}

fn change(random: &mut StdRng, value: RawValue<'_>) -> Option<Value> {
    Some(match (random.random_range(0..7), value) {
        (0, _) => return None,
        (1, value) => Value::from(vec![value.to_value()]),
        (2, value) => Value::from(vec![value.to_value(), value.to_value()]),
        (3, RawValue::Document(document)) => {
            let renamed = document.iter().map(|(name, value)| (format!("{name}x"), value.to_value()));
            let renamed: Vec<(String, Value)> = renamed.collect();
            Value::Document(renamed.iter().map(|(name, value)| (name.as_str(), value.clone())).collect())
        }
        (4, RawValue::Document(document)) => {
            let mut more = document.to_document();
            more.push("more", 1);
            Value::Document(more)
        }
        _ => scalar(random),
    })
}
