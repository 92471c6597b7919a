//! Running pipelines: a [`Step`] is what runs for a stage.
//!
//! Steps pull rows from each other, one at a time. Rows flow as raw bytes; a step that keeps a document
//! as it is passes the row on. The head of a pipeline is absorbed into a read of its collection, so that
//! indexes do what they can (`absorb`); each stage behind becomes a step ([`step`]), and there is one file
//! for each kind.
//!
//! Steps own what they need: the snapshot, the stage's payload, their input. So a pipeline can wait in a
//! cursor, and a sub-pipeline can be opened anew for every document that comes by.

mod absorb;
mod budget;
mod count_only;
mod documents;
mod limit;
mod r#match;
mod scan;
mod skip;
mod sort;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use kilim_bson::Writer;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::Bindings;
use kilim_query::stage::{Pipeline, Stage};
use kilim_storage::Snapshot;

pub(crate) use budget::Budget;

use crate::catalog::Collection;
use crate::engine::Engine;
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};
use crate::planner::{Hint, ReadRequest};
use crate::write::Unit;

/// What runs for a stage.
pub trait Step: Send {
    /// The next row, or none once there are no more; whoever got none does not ask again.
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>>;

    /// Where its rows come from.
    fn input(&self) -> Option<&dyn Step> {
        None
    }

    /// What explain shows of a run beside the number of rows: `usedDisk` and the like.
    fn report(&self, _out: &mut Writer) {}
}

/// What a pipeline and its sub-pipelines read from: one snapshot, and the collections that go with it.
#[derive(Clone)]
pub struct Reader(Arc<Inner>);

struct Inner {
    engine: Weak<Engine>,
    snapshot: Snapshot,
    collections: HashMap<Namespace, Arc<Collection>>,
    options: Options,
}

/// What a command says about all of its pipelines.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub allow_disk_use: bool,
}

impl Reader {
    /// What `unit` sees of these collections; the names of all that sub-pipelines read are among them.
    pub fn new(
        unit: &mut Unit<'_>,
        namespaces: impl IntoIterator<Item = Namespace>,
        options: Options,
    ) -> Result<Reader> {
        // The snapshot comes before the catalog: see `crate::catalog`.
        let snapshot = unit.snapshot();
        let mut collections = HashMap::new();
        for namespace in namespaces {
            if let Some(collection) = unit.collection(&namespace)? {
                collections.insert(namespace, collection);
            }
        }
        let engine = unit.engine.weak();
        Ok(Reader(Arc::new(Inner { engine, snapshot, collections, options })))
    }

    pub fn collection(&self, namespace: &Namespace) -> Option<&Arc<Collection>> {
        self.0.collections.get(namespace)
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.0.snapshot
    }

    pub fn options(&self) -> Options {
        self.0.options
    }

    /// The engine, for stages that tell of the server itself.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>> {
        let gone = || Error::user(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown");
        self.0.engine.upgrade().ok_or_else(gone)
    }

    /// Opens a pipeline over a collection.
    pub fn open(
        &self,
        namespace: &Namespace,
        pipeline: &Pipeline,
        bindings: &Bindings,
        context: &mut ExecContext<'_>,
    ) -> Result<Box<dyn Step>> {
        self.prepare(namespace, pipeline).open(bindings, context)
    }

    /// Does once what need not be done at each opening of a sub-pipeline.
    pub fn prepare(&self, namespace: &Namespace, pipeline: &Pipeline) -> Prepared {
        let (request, absorbed) = absorb::absorb(&pipeline.stages);
        Prepared {
            reader: self.clone(),
            collection: self.collection(namespace).cloned(),
            request: ReadRequest { allow_disk_use: self.0.options.allow_disk_use, ..request },
            stages: pipeline.stages[absorbed..].to_vec(),
        }
    }
}

/// A pipeline ready to be opened, any number of times.
#[derive(Clone)]
pub struct Prepared {
    reader: Reader,
    collection: Option<Arc<Collection>>,
    request: ReadRequest,
    stages: Vec<Stage>,
}

impl Prepared {
    /// The read that does all of the pipeline's work, where one can.
    pub fn whole_request(&self) -> Option<&ReadRequest> {
        self.stages.is_empty().then_some(&self.request)
    }

    /// Reads by this index and no other.
    pub fn hint(&mut self, hint: Option<Hint>) {
        self.request.hint = hint;
    }

    pub fn open(&self, bindings: &Bindings, context: &mut ExecContext<'_>) -> Result<Box<dyn Step>> {
        let opening = Opening { reader: &self.reader, bindings };
        let mut stages = &self.stages[..];
        let mut step = match stages.first().map(|first| source(first, &opening)).transpose()?.flatten() {
            Some(step) => {
                stages = &stages[1..];
                step
            }
            None => Box::new(scan::Scan::new(self, context)?),
        };
        for stage in stages {
            step = self::step(stage, step, &opening)?;
        }
        Ok(step)
    }
}

/// What steps are made with.
pub(crate) struct Opening<'a> {
    pub reader: &'a Reader,
    /// The variables of the pipelines around; a step that evaluates expressions keeps a clone.
    pub bindings: &'a Bindings,
}

/// What runs for a stage that gives documents of its own.
fn source(stage: &Stage, _opening: &Opening<'_>) -> Result<Option<Box<dyn Step>>> {
    Ok(Some(match stage {
        Stage::Documents(stage) => Box::new(documents::Documents::new(stage)),
        _ => return Ok(None),
    }))
}

/// What runs for a stage that reads from another.
fn step(stage: &Stage, input: Box<dyn Step>, opening: &Opening<'_>) -> Result<Box<dyn Step>> {
    Ok(match stage {
        Stage::Match(stage) => Box::new(r#match::Match::new(stage, input)),
        Stage::Sort(stage) => Box::new(sort::Sort::new(stage, input, opening)),
        Stage::Limit(stage) => Box::new(limit::Limit::new(*stage, input)),
        Stage::Skip(stage) => Box::new(skip::Skip::new(*stage, input)),
        Stage::CountOnly(stage) => Box::new(count_only::CountOnly::new(stage, input)),
        Stage::Documents(_) => return Err(Error::bug("a source stands behind another stage")),
    })
}
