//! The step from a plan to its executor.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_storage::Snapshot;

use super::Plan;
use crate::operator::{Executor, Operator, ReadContext};
use crate::plan::{Followed, Node};
use crate::records::Records;

/// Begins to run a plan; one that was tried goes on where its trial ended.
pub fn execute(mut plan: Plan, snapshot: Snapshot) -> Executor {
    let started = plan.started.take();
    let tried = started.as_ref().map(|(root, _)| {
        let stats = root.stats();
        (stats.total_keys_examined(), stats.total_docs_examined())
    });
    let (root, buffered) = started.unwrap_or_else(|| {
        let records =
            Records::new(plan.home, &snapshot).through(plan.patches.as_ref()).viewed(plan.request.array);
        let source = ReadContext { records, allow_disk_use: plan.request.allow_disk_use };
        (Box::new(Operator::new(&plan.root, &source)), VecDeque::new())
    });
    note_use(&plan.root);
    let from_trial = !plan.trials.is_empty();
    let followed = Followed::new(plan.root, plan.request, plan.indexes, from_trial);
    Executor::new(root, Arc::new(followed), buffered, tried)
}

/// Tells each index that it was chosen, for `$indexStats`.
fn note_use(node: &Node) {
    match node {
        Node::IdLookup { index, .. } => index.usage.note(),
        Node::IndexScan(scan) | Node::CountScan(scan) => scan.index.usage.note(),
        Node::Near(scan) => scan.index.usage.note(),
        _ => node.children().iter().for_each(note_use),
    }
}
