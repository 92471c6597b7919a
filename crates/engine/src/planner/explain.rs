//! Plans and what they did, in the form of MongoDB 6.0's `explain`.
//!
//! The command that explains adds what belongs to it (`command`, `serverInfo`); this is the part about
//! the query.

use std::sync::Arc;
use std::time::Instant;

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_collation::Collation;
use kilim_error::Result;
use kilim_query::filter::Filter;
use kilim_storage::Snapshot;

use super::{Plan, execute};
use crate::index::Index;
use crate::operator::ExecContext;
use crate::patches::Patches;
use crate::plan::explain::{self as shown, Style, write_trial};
use crate::plan::{Node, QueryShape, StatsTree, Trial};

/// How much is explained. All but the first run the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    QueryPlanner,
    ExecutionStats,
    AllPlansExecution,
}

/// What is explained beside the plan.
pub struct Subject<'a> {
    /// `database.collection`
    pub namespace: &'a str,
    pub filter: &'a Filter,
    /// The projection as it was given.
    pub projection: Option<RawDocument<'a>>,
    pub indexes: &'a [Arc<Index>],
    pub write: Option<WriteStage<'a>>,
    /// The plan does all of a pipeline's work.
    pub whole_pipeline: bool,
    /// What counts the plan's rows is explained elsewhere.
    pub counted_by_stage: bool,
}

/// The stage of a command that writes what it reads.
#[derive(Clone, Copy)]
pub struct WriteStage<'a> {
    /// `UPDATE` or `DELETE`.
    pub stage: &'static str,
    /// Ends after the first document.
    pub single: bool,
    /// Gives the document back, as findAndModify does.
    pub returns: bool,
    /// The stage's own counts, given how many documents were read: `nWouldDelete` and the like.
    pub counts: &'a dyn Fn(u64) -> Vec<(&'static str, u64)>,
}

/// Explains a plan, running it if the verbosity asks for it.
pub fn explain(
    plan: Plan,
    snapshot: Snapshot,
    subject: &Subject<'_>,
    verbosity: Verbosity,
    context: &mut ExecContext<'_>,
) -> Result<Document> {
    let chosen = Chosen::of(&plan);
    let run = match verbosity {
        Verbosity::QueryPlanner => None,
        _ => Some(Run::of(plan, snapshot, subject.write, context)?),
    };
    let mut out = Writer::new();
    out.append("explainVersion", RawValue::String("1"));
    chosen.write(&mut out, subject, run.as_ref(), verbosity);
    Ok(out.finish())
}

/// What explain shows of a plan beside its run.
pub struct Chosen {
    root: Arc<Node>,
    rejected: Vec<Arc<Node>>,
    trials: Vec<Trial>,
    shape: Option<QueryShape>,
    collation: Option<Collation>,
    patches: Option<Arc<Patches>>,
    index_filter_set: bool,
    rewritten: Vec<Document>,
}

impl Chosen {
    pub fn of(plan: &Plan) -> Chosen {
        let root = plan.root.clone();
        // What reads nothing is never looked up in the plan cache.
        let shape =
            (!matches!(*root, Node::Eof | Node::RecordCount { .. })).then(|| QueryShape::of(&plan.request));
        Chosen {
            root,
            rejected: plan.rejected.clone(),
            trials: plan.trials.clone(),
            shape,
            collation: plan.request.collation.clone(),
            patches: plan.patches.clone(),
            index_filter_set: plan.index_filter_set,
            rewritten: plan.request.rewritten.iter().filter_map(|one| one.told(&plan.root)).collect(),
        }
    }

    /// Whether it skips from one value to the next.
    pub fn is_distinct_scan(&self) -> bool {
        self.root.any(&|node| matches!(node, Node::IndexScan(scan) if scan.skipping.is_some()))
    }

    /// Writes `queryPlanner`, and `executionStats` if there was a run.
    pub fn write(&self, out: &mut Writer, subject: &Subject<'_>, run: Option<&Run>, verbosity: Verbosity) {
        let plain = Style { counts: false, projection: subject.projection };
        // Where a pipeline counts, that is a stage of its own.
        let (root, stats) = match &*self.root {
            Node::Count { skip: 0, limit: None, input } if subject.counted_by_stage => {
                (&**input, run.and_then(|run| run.stats.inputs.first()))
            }
            root => (root, run.map(|run| &run.stats)),
        };
        out.open_document("queryPlanner");
        out.append("namespace", RawValue::String(subject.namespace));
        out.append("indexFilterSet", RawValue::Bool(self.index_filter_set));
        if !matches!(*self.root, Node::RecordCount { .. }) {
            out.append("parsedQuery", RawValue::Document(subject.filter.to_document().as_raw()));
        }
        if let Some(collation) = &self.collation {
            out.append("collation", RawValue::Document(collation.to_document().as_raw()));
        }
        if let Some(shape) = &self.shape {
            out.append("queryHash", RawValue::String(&shape.hash()));
            let key = shape.key(subject.indexes.iter().map(|index| index.id.0));
            out.append("planCacheKey", RawValue::String(&key));
        }
        if subject.whole_pipeline {
            out.append("optimizedPipeline", RawValue::Bool(true));
        }
        for flag in
            ["maxIndexedOrSolutionsReached", "maxIndexedAndSolutionsReached", "maxScansToExplodeReached"]
        {
            out.append(flag, RawValue::Bool(false));
        }
        out.open_document("winningPlan");
        write_stage(out, subject.write, |out| {
            shown::write(out, root, stats, plain);
        });
        out.close();
        out.open_array("rejectedPlans");
        for (at, node) in self.rejected.iter().enumerate() {
            out.open_document_at(at);
            write_stage(out, subject.write, |out| shown::write(out, node, None, plain));
            out.close();
        }
        out.close();
        append_documents(out, "rewritten", &self.rewritten);
        // Documents are seen as they will be once nothing is pending.
        if let Some(patches) = &self.patches {
            append_documents(out, "patched", &patches.told());
        }
        out.close();
        let Some(run) = run else { return };
        let counted = Style { counts: true, ..plain };
        out.open_document("executionStats");
        run.write(out, root, stats.unwrap_or(&run.stats), subject.write, counted);
        if verbosity == Verbosity::AllPlansExecution {
            out.open_array("allPlansExecution");
            self.trials.iter().enumerate().for_each(|(at, trial)| write_trial(out, at, trial, counted));
            out.close();
        }
        out.close();
    }
}

/// What running the plan showed.
pub struct Run {
    pub stats: StatsTree,
    pub rows: u64,
    pub millis: u64,
}

impl Run {
    fn of(
        plan: Plan,
        snapshot: Snapshot,
        write: Option<WriteStage<'_>>,
        context: &mut ExecContext<'_>,
    ) -> Result<Run> {
        let begun = Instant::now();
        let mut executor = execute(plan, snapshot);
        let single = write.is_some_and(|write| write.single);
        let mut rows = 0;
        while executor.next_document(context)?.is_some() {
            rows += 1;
            if single {
                break;
            }
        }
        Ok(Run { stats: executor.stats(), rows, millis: begun.elapsed().as_millis() as u64 })
    }

    fn write(
        &self,
        out: &mut Writer,
        root: &Node,
        stats: &StatsTree,
        write: Option<WriteStage<'_>>,
        style: Style<'_>,
    ) {
        out.append("executionSuccess", RawValue::Bool(true));
        let returned = if write.is_some_and(|write| !write.returns) { 0 } else { self.rows };
        shown::append_number(out, "nReturned", returned);
        shown::append_number(out, "executionTimeMillis", self.millis);
        shown::append_number(out, "totalKeysExamined", self.stats.total_keys_examined());
        shown::append_number(out, "totalDocsExamined", self.stats.total_docs_examined());
        out.open_document("executionStages");
        match write {
            None => shown::write(out, root, Some(stats), style),
            Some(write) => {
                out.append("stage", RawValue::String(write.stage));
                let works = self.stats.stats.works + u64::from(!self.stats.stats.is_eof);
                shown::append_counts(out, returned, works, works.saturating_sub(1), true);
                for (name, count) in (write.counts)(self.rows) {
                    shown::append_number(out, name, count);
                }
                out.open_document("inputStage");
                shown::write(out, root, Some(&self.stats), style);
                out.close();
            }
        }
        out.close();
    }
}

fn write_stage(out: &mut Writer, write: Option<WriteStage<'_>>, input: impl FnOnce(&mut Writer)) {
    match write {
        None => input(out),
        Some(write) => {
            out.append("stage", RawValue::String(write.stage));
            out.open_document("inputStage");
            input(out);
            out.close();
        }
    }
}

/// A list of documents; nothing where there are none.
fn append_documents(out: &mut Writer, name: &str, documents: &[Document]) {
    if documents.is_empty() {
        return;
    }
    out.open_array(name);
    for (at, document) in documents.iter().enumerate() {
        out.open_document_at(at);
        out.append_elements(document.as_raw().elements());
        out.close();
    }
    out.close();
}
