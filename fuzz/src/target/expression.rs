//! Expressions: refused or evaluated, before and after folding; values they make are valid.

use kilim_bson::{Document, RawDocument, Timestamp};
use kilim_query::expression::{Bindings, Env, Expression, Scope, Variables};

/// Takes `{"e": expression}`, whatever the name.
pub fn check(input: &[u8]) {
    let Some(document) = crate::document(input) else { return };
    let Some((_, written)) = document.iter().next() else { return };
    crate::patient(|| {
        let variables = Variables::at(0, Timestamp::from_bits(1));
        let Ok(expression) = Expression::parse(written, &Scope::new(&variables)) else { return };
        checked("shown", expression.to_value().into());
        let folded = expression.clone().optimised().ok();
        for subject in crate::subjects() {
            let env = Env::new(subject.as_raw(), Bindings::none());
            for expression in [Some(&expression), folded.as_ref()].into_iter().flatten() {
                if let Ok(value) = expression.evaluate(&env) {
                    checked("value", value.into_value());
                }
            }
        }
    });
}

fn checked(name: &str, value: Option<kilim_bson::Value>) {
    let Some(value) = value else { return };
    let mut whole = Document::new();
    whole.push(name, value);
    // Values may be nested more deeply than a document may: whoever stores one refuses that.
    match RawDocument::parse(whole.as_bytes()) {
        Ok(_) => {}
        Err(fault) => assert!(fault.to_string().contains("depth"), "{fault}"),
    }
}
