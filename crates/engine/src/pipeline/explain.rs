//! How a pipeline would run, in the form of MongoDB 6.0's `explain`.
//!
//! Where one read does everything, the pipeline is explained as a find is. Otherwise the read is the stage
//! `$cursor`, and the others follow as they were optimised; if the pipeline is run, each tells how many rows
//! it gave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, Value, Writer};
use kilim_error::Result;
use kilim_query::expression::Bindings;
use kilim_query::stage::{self, Group, Pipeline, Stage, UnionWith};

use super::facet::Facet;
use super::graph_lookup::TreeWay;
use super::{Opening, Prepared, Step, step, union_with};
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};
use crate::plan::{Purpose, ReadRequest, StatsTree};
use crate::planner::explain::{Chosen, Run};
use crate::planner::{self, Subject, Verbosity};

impl Prepared {
    /// Explains the pipeline; the command that asked adds what belongs to it.
    pub fn explain(&self, verbosity: Verbosity, context: &mut ExecContext<'_>) -> Result<Document> {
        if !self.stages.is_empty() {
            let mut document = Document::new();
            document.push("explainVersion", "1");
            document.push("stages", self.explain_stages(verbosity, context)?);
            return Ok(document);
        }
        let plan = self.plan_explained(Bindings::none(), context)?;
        let namespace = self.namespace.to_string();
        let request = plan.request.clone();
        let subject = Subject { whole_pipeline: true, ..self.subject(&namespace, &request) };
        planner::explain(plan, self.reader.snapshot().clone(), &subject, verbosity, context)
    }

    /// The stages one by one, the read first.
    fn explain_stages(&self, verbosity: Verbosity, context: &mut ExecContext<'_>) -> Result<Value> {
        let bindings = Bindings::none();
        let source = self.stages.first().map(|first| self.source(first, bindings)).transpose()?.flatten();
        let (cursor, first): (_, Box<dyn Step>) = match source {
            Some(source) => (None, source),
            None => {
                let plan = self.plan_explained(bindings, context)?;
                let cursor = (Chosen::of(&plan), plan.request.clone());
                (Some(cursor), self.read(plan))
            }
        };
        // Stages that the first step does: a source, or what only counts.
        let read = usize::from(cursor.is_none() || self.counted().is_some());
        let run = match verbosity {
            Verbosity::QueryPlanner => None,
            _ => Some(self.run(first, &self.stages[read..], context)?),
        };
        // From the last to the first: each step knows only where its rows come from.
        let mut reports: Vec<&dyn Step> = Vec::new();
        let mut above = run.as_ref().map(|(last, _)| &**last);
        while let Some(step) = above {
            reports.push(step);
            above = step.input();
        }
        let mut shown = Vec::new();
        if let Some((chosen, request)) = &cursor {
            let report = reports.last().copied();
            let counts = self.counted().is_some();
            let ran = report.zip(run.as_ref()).and_then(|(report, (_, millis))| {
                let stats = report.stats()?;
                let rows = stats.stats.advanced.max(stats.stats.counted);
                Some(Run { rows, stats, millis: *millis })
            });

            let mut out = Writer::new();
            out.open_document("$cursor");
            chosen.write(
                &mut out,
                &self.subject(&self.namespace.to_string(), request),
                ran.as_ref(),
                verbosity,
            );
            out.close();
            match (&ran, reports.last()) {
                // What came of the rows that were counted is told by the next stage.
                (Some(ran), _) if counts => append_counts(&mut out, ran.rows, Duration::ZERO),
                (_, Some(report)) => report.report(&mut out),
                _ => {}
            }
            if !counts {
                reports.pop();
            }
            shown.push(Value::Document(out.finish()));
        }
        let distinct = cursor.as_ref().is_some_and(|(chosen, _)| chosen.is_distinct_scan());
        for (at, stage) in self.stages.iter().enumerate() {
            let report = reports.pop();
            let documents = match stage {
                Stage::Group(group) if distinct && at == 0 => vec![group.to_distinct_document()],
                stage => match report.and_then(|report| report.shown()) {
                    Some(shown) => vec![shown],
                    None => self.shown(stage, verbosity, context)?,
                },
            };
            for document in documents {
                let mut out = Writer::resume(document);
                match report {
                    Some(report) => report.report(&mut out),
                    // A stage that would write did not.
                    None if run.is_some() => append_counts(&mut out, 0, Duration::ZERO),
                    None => {}
                }
                shown.push(Value::Document(out.finish()));
            }
        }
        Ok(Value::Array(shown.into_iter().collect()))
    }

    /// Runs stages over a step; gives the last of them, and how many milliseconds it took.
    fn run(
        &self,
        first: Box<dyn Step>,
        stages: &[Stage],
        context: &mut ExecContext<'_>,
    ) -> Result<(Box<dyn Step>, u64)> {
        let opening = Opening {
            reader: &self.reader,
            collection: self.collection.as_ref(),
            bindings: Bindings::none(),
        };
        let mut last = counted(first, stages, &opening)?;
        let begun = Instant::now();
        while last.next(context)?.is_some() {}
        Ok((last, begun.elapsed().as_millis() as u64))
    }

    /// The first stage, where the read counts for it.
    pub(super) fn counted(&self) -> Option<&Arc<Group>> {
        match self.stages.first() {
            Some(Stage::Group(group)) if self.request.purpose == Purpose::Count => Some(group),
            _ => None,
        }
    }

    /// A stage behind the read; one that was written as one may be several.
    fn shown(
        &self,
        stage: &Stage,
        verbosity: Verbosity,
        context: &mut ExecContext<'_>,
    ) -> Result<Vec<Document>> {
        Ok(match stage {
            Stage::UnionWith(stage) => vec![self.union_with(stage, verbosity, context)?],
            Stage::GraphLookup(stage) => vec![self.graph_lookup(stage)],
            stage => stage.behaviour().to_documents(),
        })
    }

    /// The other pipeline of a union, explained within it.
    fn union_with(
        &self,
        stage: &UnionWith,
        verbosity: Verbosity,
        context: &mut ExecContext<'_>,
    ) -> Result<Document> {
        let other = self.reader.prepare(&union_with::namespace(stage)?, &stage.pipeline)?;
        let mut union = Document::new();
        if let Some(collection) = &stage.collection {
            union.push("coll", &**collection);
        }
        union.push("pipeline", other.explain_stages(verbosity, context)?);
        Ok([("$unionWith", Value::Document(union))].into_iter().collect())
    }

    /// A `$graphLookup`, and the tree that answers it, if one does.
    fn graph_lookup(&self, lookup: &Arc<stage::GraphLookup>) -> Document {
        let mut shown: Document = Stage::GraphLookup(lookup.clone()).behaviour().to_documents().remove(0);
        let (database, collection) = (lookup.database.to_string(), lookup.from.to_string());
        let from = self.reader.collection(&Namespace { database, collection });
        if let Some(tree) = from.and_then(|from| TreeWay::choose(lookup, from, &self.reader)) {
            shown.push("rewritten", vec![tree.shown(lookup)]);
        }
        shown
    }

    fn subject<'a>(&'a self, namespace: &'a str, request: &'a ReadRequest) -> Subject<'a> {
        Subject {
            namespace,
            filter: &request.filter,
            projection: self.shown.as_ref().map(Document::as_raw),
            indexes: self.collection.as_ref().map_or(&[], |collection| &collection.indexes),
            write: None,
            whole_pipeline: false,
            counted_by_stage: self.counted().is_some(),
        }
    }
}

/// Steps for stages, each of which counts what it gives. What would write is left out.
pub(super) fn counted(
    first: Box<dyn Step>,
    stages: &[Stage],
    opening: &Opening<'_>,
) -> Result<Box<dyn Step>> {
    let mut last: Box<dyn Step> = Box::new(Counted::new(first));
    for stage in stages {
        last = Box::new(Counted::new(match stage {
            Stage::Merge(_) | Stage::Out(_) => continue,
            Stage::Facet(stage) => Box::new(Facet::telling(stage, last, opening)),
            stage => step(stage, last, opening)?,
        }));
    }
    Ok(last)
}

/// The stages of a facet, and what the steps did that ran for them.
pub(super) fn stages_with_reports(pipeline: &Pipeline, last: &dyn Step) -> Value {
    let mut reports = vec![last];
    while let Some(input) = reports[reports.len() - 1].input() {
        reports.push(input);
    }
    let mut shown = Vec::new();
    let mut show = |document: Document, report: Option<&dyn Step>| {
        let mut out = Writer::resume(document);
        if let Some(report) = report {
            report.report(&mut out);
        }
        shown.push(Value::Document(out.finish()));
    };
    show(stage::Facet::input(), reports.pop());
    for stage in &pipeline.stages {
        let report = reports.pop();
        stage.behaviour().to_documents().into_iter().for_each(|document| show(document, report));
    }
    Value::Array(shown.into_iter().collect())
}

/// A step that counts what it gives.
struct Counted {
    step: Box<dyn Step>,
    returned: u64,
    spent: Duration,
}

impl Counted {
    fn new(step: Box<dyn Step>) -> Counted {
        Counted { step, returned: 0, spent: Duration::ZERO }
    }
}

impl Step for Counted {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let begun = Instant::now();
        let row = self.step.next(context)?;
        self.spent += begun.elapsed();
        self.returned += u64::from(row.is_some());
        Ok(row)
    }

    fn input(&self) -> Option<&dyn Step> {
        self.step.input()
    }

    fn horizon(&self) -> Option<&[u8]> {
        self.step.horizon()
    }

    fn report(&self, out: &mut Writer) {
        self.step.report(out);
        append_counts(out, self.returned, self.spent);
    }

    fn shown(&self) -> Option<Document> {
        self.step.shown()
    }

    fn stats(&self) -> Option<StatsTree> {
        self.step.stats()
    }
}

fn append_counts(out: &mut Writer, returned: u64, spent: Duration) {
    out.append("nReturned", RawValue::Int64(returned as i64));
    out.append("executionTimeMillisEstimate", RawValue::Int64(spent.as_millis() as i64));
}
