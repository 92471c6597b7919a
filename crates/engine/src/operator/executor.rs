//! A plan that runs.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_error::Result;
use kilim_storage::Snapshot;

use super::{ExecContext, Operator, Row, Source, StatsTree};
use crate::planner::{Followed, Node, Plan};
use crate::records::Records;

/// Owns all it needs, so it can wait in a cursor. Rows come in the plan's order.
pub struct Executor {
    root: Box<Operator>,
    plan: Arc<Followed>,
    /// Rows that the plan's trial produced already.
    buffered: VecDeque<Row>,
    /// Keys and documents that it examined in its trial, until they are counted.
    tried: Option<(u64, u64)>,
}

/// Begins to run a plan; one that was tried goes on where its trial ended.
pub fn execute(mut plan: Plan, snapshot: Snapshot) -> Executor {
    let started = plan.take_started();
    let tried = started.as_ref().map(|(root, _)| {
        let stats = root.stats();
        (stats.total_keys_examined(), stats.total_docs_examined())
    });
    let (root, buffered) = started.unwrap_or_else(|| {
        let records = Records::new(plan.home, &snapshot).through(plan.behind.as_ref());
        let source = Source { records, allow_disk_use: plan.request.allow_disk_use };
        (Box::new(Operator::new(&plan.root, &source)), VecDeque::new())
    });
    note_use(&plan.root);
    Executor { root, plan: Arc::new(Followed::of(plan)), buffered, tried }
}

/// Tells each index that it was chosen, for `$indexStats`.
fn note_use(node: &Node) {
    match node {
        Node::IdLookup { index, .. } => index.usage.note(),
        Node::IndexScan(scan) | Node::CountScan(scan) => scan.index.usage.note(),
        _ => node.children().into_iter().for_each(note_use),
    }
}

impl Executor {
    /// The next row; its document is projected if the request asked for it.
    pub fn next_document(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if context.figures.plan.is_none() {
            context.figures.plan = Some(self.plan.clone());
        }
        if let Some((keys, documents)) = self.tried.take() {
            context.figures.keys_examined += keys;
            context.figures.docs_examined += documents;
        }
        if let Some(row) = self.buffered.pop_front() {
            return Ok(Some(row));
        }
        if self.root.is_eof() {
            return Ok(None);
        }
        self.root.next(context)
    }

    /// The next record as stored, for writers, whose requests have no projection.
    pub fn next_record(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        self.next_document(context)
    }

    /// Runs a counting plan to its end.
    pub fn count(&mut self, context: &mut ExecContext<'_>) -> Result<u64> {
        while self.next_document(context)?.is_some() {}
        Ok(self.root.stats.counted)
    }

    /// Whether nothing is left, as far as is known without further work.
    pub fn is_exhausted(&mut self) -> bool {
        self.buffered.is_empty() && self.root.is_finished()
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.plan.root
    }

    pub fn stats(&self) -> StatsTree {
        self.root.stats()
    }
}
