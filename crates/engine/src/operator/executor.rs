//! A plan that runs.

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_error::Result;

use super::{ExecContext, Operator, Row, Shown, Viewer};
use crate::plan::{Followed, Node, StatsTree};

/// Owns all it needs, so it can wait in a cursor. Rows come in the plan's order.
pub struct Executor {
    root: Box<Operator>,
    plan: Arc<Followed>,
    /// Rows that the plan's trial produced already.
    buffered: VecDeque<Row>,
    /// Keys and documents that it examined in its trial, until they are counted.
    tried: Option<(u64, u64)>,
}

impl Executor {
    /// Runs a tree of operators that a plan became. `buffered` are rows that its trial produced already, and `tried`
    /// the keys and documents that it examined for them.
    pub(crate) fn new(
        root: Box<Operator>,
        plan: Arc<Followed>,
        buffered: VecDeque<Row>,
        tried: Option<(u64, u64)>,
    ) -> Executor {
        Executor { root, plan, buffered, tried }
    }

    fn note_plan(&mut self, context: &mut ExecContext<'_>) {
        if context.figures.plan.is_none() {
            context.figures.plan = Some(self.plan.clone());
        }
        if let Some((keys, documents)) = self.tried.take() {
            context.figures.keys_examined += keys;
            context.figures.docs_examined += documents;
        }
    }

    /// Shows all rows that are left to somebody who looks at fields of these names only.
    pub(crate) fn show(
        &mut self,
        names: &[Box<str>],
        viewer: &mut dyn Viewer,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        self.note_plan(context);
        while let Some(row) = self.buffered.pop_front() {
            viewer.see(Shown::Row(&row), context)?;
        }
        match self.root.is_eof() {
            true => Ok(()),
            false => self.root.show(names, viewer, context),
        }
    }

    /// The next row; its document is projected if the request asked for it.
    pub fn next_document(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        self.note_plan(context);
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
