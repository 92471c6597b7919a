//! What the values of one evaluation take in memory.
//!
//! A value is bounded ([`check_bytes`]), but an expression may hold many at once: each variable of a `$let`, each operand
//! of an operator, each `input` of operators within each other. So every operator's value is counted when it is made. On
//! return from an operator nothing of what it used is left but its value. A loop says what its passes leave behind
//! ([`Mark`]).
//!
//! Counting also asks whether to go on ([`interrupt`]), so that no expression runs on unasked.

use std::cell::Cell;

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

use super::Evaluated;
use crate::interrupt::{self, BYTES_PER_TICK};

/// The largest value that an expression or a stage may make. A document is refused far below when it leaves the pipeline.
/// This keeps intermediate results, which a few operators or stages can double again and again, from taking all memory.
/// It is above the 100 MB that accumulators may gather.
pub const VALUE_BYTES_MAX: usize = 128 << 20;

/// What one evaluation may hold in all its values.
const EVALUATION_BYTES_MAX: usize = 256 << 20;

/// What one command may keep of values that were computed before the first document.
const FOLDED_BYTES_MAX: usize = 32 << 20;

#[derive(Clone, Copy)]
struct Held {
    /// Operators within each other.
    depth: u32,
    bytes: usize,
}

thread_local! {
    static HELD: Cell<Held> = const { Cell::new(Held { depth: 0, bytes: 0 }) };
}

/// Refuses a value of that many bytes.
#[inline]
pub fn check_bytes(bytes: usize) -> Result<()> {
    match bytes > VALUE_BYTES_MAX {
        true => Err(exceeded(format!("a value of more than {VALUE_BYTES_MAX} bytes cannot be computed"))),
        false => Ok(()),
    }
}

/// Makes an operator's value and counts it for as long as the operator around it runs.
pub(super) fn counted<'a>(make: impl FnOnce() -> Result<Evaluated<'a>>) -> Result<Evaluated<'a>> {
    let before = HELD.get();
    HELD.set(Held { depth: before.depth + 1, ..before });
    let made = make();
    let size = match &made {
        Ok(Evaluated::Owned(value)) => payload(value.as_raw()),
        _ => 0,
    };
    let bytes = before.bytes + size;
    // The outermost is done: its value belongs to whoever asked, and is bounded by itself.
    HELD.set(Held { bytes: if before.depth == 0 { 0 } else { bytes }, ..before });
    interrupt::spend(1 + size / BYTES_PER_TICK)?;
    if bytes > EVALUATION_BYTES_MAX {
        HELD.set(before);
        return Err(exceeded(format!("an expression cannot hold more than {EVALUATION_BYTES_MAX} bytes")));
    }
    made
}

/// Says that an operator is given a value, and asks whether to go on: an operator that makes nothing large may still work
/// long on what it is given, as a comparison of arrays does.
#[inline]
pub(super) fn looked_at(value: &Evaluated<'_>) -> Result<()> {
    // An element of an array takes some ten bytes, and about as long as the pass of a loop.
    const BYTES_PER_PASS: usize = 512;
    match value.raw().map_or(0, payload) / BYTES_PER_PASS {
        0 => Ok(()),
        passes => interrupt::spend(passes),
    }
}

/// Whether a value that no document influences may be kept; otherwise it is computed for each document again.
pub(super) fn may_keep(value: RawValue<'_>) -> bool {
    interrupt::set_aside(payload(value)) <= FOLDED_BYTES_MAX
}

/// What is held when a loop begins.
pub(super) struct Mark(usize);

impl Mark {
    pub fn here() -> Mark {
        Mark(HELD.get().bytes)
    }

    /// A pass is over, and all that the loop holds is so many bytes.
    #[inline]
    pub fn holds(&self, bytes: usize) {
        let held = HELD.get();
        HELD.set(Held { bytes: self.0 + bytes, ..held });
    }
}

/// Bytes that a value takes beside its place.
pub(super) fn payload(value: RawValue<'_>) -> usize {
    match value {
        RawValue::String(text) | RawValue::Symbol(text) | RawValue::JavaScript(text) => text.len(),
        RawValue::Document(document) => document.as_bytes().len(),
        RawValue::Array(array) => array.as_bytes().len(),
        RawValue::Binary { bytes, .. } => bytes.len(),
        _ => 0,
    }
}

fn exceeded(message: String) -> Error {
    Error::user(ErrorCode::ExceededMemoryLimit, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kilim_bson::{Value, doc, parse_extended_json};

    use super::*;
    use crate::expression::{Bindings, Env, Expression, Scope, Variables};
    use crate::interrupt::Interrupt;

    #[derive(Default)]
    struct Asked(AtomicUsize);

    impl Interrupt for Asked {
        fn check(&self) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn an_operator_that_is_given_much_asks_whether_to_go_on() {
        let numbers: Vec<Value> = (0..50_000).map(Value::Int32).collect();
        let document = doc! {"a": numbers, "s": ("a".repeat(500_000))};
        for text in [
            r#"{"$gt": ["$a", "$a"]}"#,
            r#"{"$eq": ["$s", "$s"]}"#,
            r#"{"$toHashedIndexKey": "$a"}"#,
            r#"{"$strLenCP": "$s"}"#,
            r#"{"$indexOfCP": ["$s", "b"]}"#,
            r#"{"$strcasecmp": ["$s", "$s"]}"#,
        ] {
            let operand = parse_extended_json(text).expect("a document");
            let variables = Variables::default();
            let operand = RawValue::Document(operand.as_raw());
            let expression = Expression::parse(operand, &Scope::new(&variables)).expect("an expression");
            let asked = Arc::new(Asked::default());
            let _installed = interrupt::install(asked.clone());
            expression.evaluate(&Env::new(document.as_raw(), Bindings::none())).expect("a value");
            assert!(asked.0.load(Ordering::Relaxed) > 0, "{text}");
        }
    }
}
