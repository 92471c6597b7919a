//! Differences that are none of Kilim's making, each with its reason. `docs/differences.md` tells them to users.

use kilim_bson::{Document, Value};

use crate::spec::Answer;

/// mongod has two engines, and which one runs a pipeline depends on its stages, its expressions and the indexes
/// of the collection. Where they answer differently, Kilim answers as one of them.
pub(super) const ENGINES: &str = "mongod's two engines answer differently, and Kilim as one of them";

/// mongod looks at the fields of a projection in an order that differs from process to process, and at
/// documents in the order of its plan.
pub(super) const SEVERAL_FAULTS: &str = "of several faults of a command, either may be named";

/// Why two answers to the command may differ, if they may.
pub(super) fn permitted(command: &Document, mongod: &Answer, kilim: &Answer) -> Option<&'static str> {
    let mut operators = Vec::new();
    super::pipeline::operators(&Value::Document(command.clone()), &mut operators);
    let has = |name: &str| operators.iter().any(|operator| operator == name);
    let both_fail = matches!((mongod, kilim), (Answer::Failed(_), Answer::Failed(_)));
    if both_fail && has("$sample") {
        return Some("$sample's documents come in any order, so either of two errors may be met first");
    }
    None
}
