//! Running pipelines: a [`Step`] is what runs for a stage.
//!
//! Steps pull rows from each other, one at a time. Rows flow as raw bytes; a step that keeps a document
//! as it is passes the row on. A step that only looks at rows, as `$group` does, is shown them instead
//! (`Step::show`): they need not be made for it, and it may take them as the values of the fields that it reads. The head of a pipeline is absorbed into a read of its collection, so that
//! indexes do what they can (`absorb`); each stage behind becomes a step (`step`), and there is one file
//! for each kind.
//!
//! Steps own what they need: the snapshot, the stage's payload, their input. So a pipeline can wait in a
//! cursor, and a sub-pipeline can be opened anew for every document that comes by.

mod absorb;
mod bucket_auto;
mod budget;
mod counting;
mod densify;
mod documents;
mod explain;
mod facet;
mod geo_near;
mod graph_lookup;
mod group;
mod limit;
mod lookup;
mod r#match;
mod packed_buckets;
mod redact;
mod sample;
mod scan;
mod set_window_fields;
mod skip;
mod sort;
mod telling;
mod transform;
mod tree;
mod union_with;
mod unpack_bucket;
mod unwind;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use kilim_bson::Document;
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Variables};
use kilim_query::projection::Projection;
use kilim_query::stage::{self, Flow, Pipeline, Stage, check_nesting};
use kilim_storage::Snapshot;

pub use crate::operator::Step;
pub(crate) use budget::Budget;
pub(crate) use lookup::{Placed, place};
pub use telling::Tell;

use crate::catalog::{Collection, DEPTH_MAX, SYSTEM_VIEWS};
use crate::engine::Engine;
use crate::ids::CollectionId;
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};
use crate::patches::{Audience, Patches};
use crate::patterns::{Pattern, Rewriters};
use crate::plan::{Hint, Keys, ReadRequest, check_no_text};
use crate::planner::{self, Plan, PlannerInput};
use crate::records::Shape;
use crate::unit::Unit;

/// What a pipeline and its sub-pipelines read from: one snapshot, and the collections that go with it.
#[derive(Clone)]
pub struct Reader(Arc<Inner>);

struct Inner {
    engine: Weak<Engine>,
    snapshot: Snapshot,
    /// By name, what exists.
    targets: HashMap<Namespace, Target>,
    /// What is pending for the documents of some of them.
    patches: HashMap<Namespace, Arc<Patches>>,
    /// Patterns that store the documents of some of them in another form than users may ask by.
    rewriters: HashMap<CollectionId, Rewriters>,
    /// Patterns whose ancestors of nodes are as they must be in the snapshot.
    trees: HashMap<CollectionId, Vec<Arc<Pattern>>>,
    /// How texts compare, in sub-pipelines too.
    collation: Option<Collation>,
    options: Options,
}

/// What a name stands for.
enum Target {
    Collection(Arc<Collection>),
    View {
        on: Namespace,
        pipeline: Pipeline,
    },
    /// `system.views`.
    Definitions(stage::Documents),
}

/// What a command says about all of its pipelines.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub allow_disk_use: bool,
    /// How stages that tell of the server are answered.
    pub tell: Tell,
}

impl Reader {
    /// What `unit` sees of these collections and views, and of all that those views read. The names of
    /// all that sub-pipelines read must be among them.
    pub fn new(
        unit: &mut Unit<'_>,
        namespaces: impl IntoIterator<Item = Namespace>,
        variables: &Variables,
        options: Options,
    ) -> Result<Reader> {
        // The snapshot comes before the catalog: see `crate::catalog`.
        let snapshot = unit.snapshot();
        let mut targets = HashMap::new();
        let mut patches = HashMap::new();
        let mut rewriters = HashMap::new();
        let mut trees = HashMap::new();
        let patterns = unit.engine.patterns();
        let mut wanted: Vec<Namespace> = namespaces.into_iter().collect();
        let first = wanted.first().cloned();
        while let Some(namespace) = wanted.pop() {
            if targets.contains_key(&namespace) {
                continue;
            }
            let target = if let Some(collection) = unit.collection(&namespace)? {
                if first.as_ref() != Some(&namespace) {
                    unit.engine.check_whole(&namespace)?;
                }
                let pending = Patches::of(unit.engine, &collection, &snapshot, Audience::User)?;
                patches.extend(pending.map(|pending| (namespace.clone(), pending)));
                let rewriting = patterns.rewriters(&namespace, snapshot.commit_time());
                rewriters.extend(rewriting.map(|rewriting| (collection.id, rewriting)));
                // What a transaction did to nodes itself shows in their ancestors with its commit.
                let time = snapshot.commit_time();
                let mut lines = match unit.is_transaction() {
                    true => Vec::new(),
                    false => patterns.with_ancestors(&namespace, time),
                };
                lines.retain(|pattern| !unit.engine.pending.may_show_of(pattern.id, time));
                if !lines.is_empty() {
                    trees.insert(collection.id, lines);
                }
                Target::Collection(collection.seen_in(&snapshot))
            } else if let Some(view) = unit.engine.view(&namespace) {
                // A time-series collection is read under any collation, as other collections are.
                if view.time_series.is_none() && view.collation != *variables.collation() {
                    let which = if first.as_ref() == Some(&namespace) {
                        String::new()
                    } else {
                        namespace.to_string()
                    };
                    return Err(Error::user(
                        ErrorCode::OptionNotSupportedOnView,
                        format!("Cannot override a view's default collation{which}"),
                    ));
                }
                let pipeline = view.parse(variables)?;
                wanted.push(view.on.clone());
                pipeline.collections(&mut |database, collection| {
                    let (database, collection) = (database.to_owned(), collection.to_owned());
                    wanted.push(Namespace { database, collection });
                });
                Target::View { on: view.on.clone(), pipeline }
            } else if namespace.collection == SYSTEM_VIEWS {
                let catalog = unit.engine.catalog();
                let views = catalog.database_views(&namespace.database);
                let definitions = views.map(|view| view.to_document()).collect();
                Target::Definitions(stage::Documents::of(definitions))
            } else {
                continue;
            };
            targets.insert(namespace, target);
        }
        let engine = unit.engine.weak();
        let collation = variables.collation().clone();
        Ok(Reader(Arc::new(Inner {
            engine,
            snapshot,
            targets,
            patches,
            rewriters,
            trees,
            collation,
            options,
        })))
    }

    pub fn collection(&self, namespace: &Namespace) -> Option<&Arc<Collection>> {
        match self.0.targets.get(namespace)? {
            Target::Collection(collection) => Some(collection),
            _ => None,
        }
    }

    /// What is pending for the documents of a collection.
    pub(crate) fn patches(&self, collection: &Collection) -> Option<&Arc<Patches>> {
        self.0.patches.get(&collection.namespace)
    }

    /// The trees among a collection's patterns whose ancestors can be read by.
    pub(crate) fn trees(&self, collection: &Collection) -> &[Arc<Pattern>] {
        self.0.trees.get(&collection.id).map_or(&[], |trees| trees)
    }

    pub(crate) fn is_view(&self, namespace: &Namespace) -> bool {
        matches!(self.0.targets.get(namespace), Some(Target::View { .. }))
    }

    /// The collection that is read in the end, where a name is that of a view.
    pub fn resolve(&self, namespace: &Namespace) -> Result<Namespace> {
        self.with_views(namespace, &mut Vec::new())
    }

    /// Puts the stages of the views that a name stands for before others.
    fn with_views(&self, namespace: &Namespace, stages: &mut Vec<Stage>) -> Result<Namespace> {
        // As on MongoDB: what is asked about a view is not answered about its collection.
        if let Some(Stage::CollStats(_)) = stages.first() {
            return Ok(namespace.clone());
        }
        // The indexes over buckets are told as those over measurements.
        if let Some(Stage::IndexStats(_)) = stages.first()
            && let Some(Target::View { pipeline, .. }) = self.0.targets.get(namespace)
            && let [Stage::UnpackBucket(_)] = &pipeline.stages[..]
        {
            return Ok(namespace.clone());
        }
        let mut namespace = namespace;
        for _ in 0..DEPTH_MAX {
            match self.0.targets.get(namespace) {
                Some(Target::View { on, pipeline }) => {
                    if let ([Stage::UnpackBucket(unpack)], Some(Stage::GeoNear(near))) =
                        (&pipeline.stages[..], stages.first())
                    {
                        let instead = near.over_measurements(unpack.meta_field.as_deref())?;
                        stages.splice(0..1, instead);
                    }
                    stages.splice(0..0, pipeline.stages.iter().cloned());
                    namespace = on;
                }
                Some(Target::Definitions(documents)) => {
                    stages.insert(0, Stage::Documents(documents.clone()));
                    return Ok(namespace.clone());
                }
                _ => return Ok(namespace.clone()),
            }
        }
        Err(Error::user(
            ErrorCode::ViewDepthLimitExceeded,
            format!("View depth too deep or view cycle detected; maximum depth is {}", DEPTH_MAX),
        ))
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
        self.prepare(namespace, pipeline)?.open(bindings, context)
    }

    /// Does once what need not be done at each opening of a sub-pipeline.
    pub fn prepare(&self, namespace: &Namespace, pipeline: &Pipeline) -> Result<Prepared> {
        self.prepare_in(namespace, pipeline, false)
    }

    /// The same for a command's own pipeline.
    pub fn prepare_outermost(&self, namespace: &Namespace, pipeline: &Pipeline) -> Result<Prepared> {
        self.prepare_in(namespace, pipeline, true)
    }

    fn prepare_in(&self, namespace: &Namespace, pipeline: &Pipeline, outermost: bool) -> Result<Prepared> {
        let mut pipeline = pipeline.clone();
        let namespace = self.with_views(namespace, &mut pipeline.stages)?;
        let folded = pipeline.fold();
        // Of a pipeline within another it is told once that is opened.
        let failed = match outermost {
            true => folded.map(|()| None)?,
            false => folded.err(),
        };
        pipeline.optimise();
        let keys = if pipeline.wants_index_keys() { Keys::Kept } else { Keys::Hidden };
        let text_score = pipeline.wants_text_score();
        let mut stages = pipeline.stages;
        if outermost && !stages.first().is_some_and(lookup::is_source) {
            self.engine()?.check_pipeline(&namespace, &stages)?;
        }
        // Only a view can bring another before it.
        let late = stages.iter().skip(1).find_map(|stage| match stage {
            Stage::GeoNear(stage) if !stage.measures => Some("$geoNear"),
            Stage::Tree(_) => Some("$tree"),
            _ => None,
        });
        if let Some(name) = late {
            return Err(Error::location(
                40602,
                format!("{name} is only valid as the first stage in a pipeline"),
            ));
        }
        let buckets = self.collection(&namespace).filter(|found| found.time_series.is_some());
        unpack_bucket::read_by_bounds(&mut stages, buckets.map(|found| &**found), &self.0.snapshot);
        let absorb::Absorbed { request, count, shown } = match stages.first() {
            // It reads by itself, and puts down what the read measured.
            Some(Stage::GeoNear(stage)) => {
                let key =
                    geo_near::key(stage, self.collection(&namespace).map(|found| &**found), &namespace)?;
                let request = ReadRequest::new(Arc::new(stage.filter(&key)?));
                absorb::Absorbed { request, count: 0, shown: None }
            }
            _ => absorb::absorb(&stages, outermost),
        };
        stages.drain(..count);
        unpack_bucket::narrow(&mut stages);
        unwind::narrow(&mut stages);
        set_window_fields::narrow(&mut stages);
        let narrowing = narrowing(&stages);
        let has_columns = |collection: &&Arc<Collection>| matches!(collection.shape, Shape::Bucketed(_));
        let wanted = self.collection(&namespace).filter(has_columns);
        let wanted = wanted.and_then(|_| unpack_bucket::wanted(&stages));
        if outermost {
            lookup::mark_appended(&mut stages, self);
        }
        Ok(Prepared {
            reader: self.clone(),
            collection: self.collection(&namespace).cloned(),
            namespace,
            bound: request.filter.uses_bindings_from(0),
            request: ReadRequest {
                keys,
                text_score,
                allow_disk_use: self.0.options.allow_disk_use,
                collation: self.0.collation.clone(),
                ..request
            },
            shown,
            stages,
            narrowing,
            wanted,
            failed,
        })
    }
}

/// A pipeline ready to be opened, any number of times.
#[derive(Clone)]
pub struct Prepared {
    reader: Reader,
    /// Not that of a view.
    namespace: Namespace,
    collection: Option<Arc<Collection>>,
    request: ReadRequest,
    /// The request's filter has variables of pipelines around in it.
    bound: bool,
    /// The request's projection as explain shows it.
    shown: Option<Document>,
    stages: Vec<Stage>,
    /// Before which stage records are cut down to what is read of them.
    narrowing: Option<(usize, Arc<Projection>)>,
    /// The fields that stages read, if these are not all and records are packed by fields.
    wanted: Option<Arc<[Box<str>]>>,
    /// Why it cannot run.
    failed: Option<Error>,
}

impl Prepared {
    /// The collection that is read first, if it exists.
    pub fn collection(&self) -> Option<&Arc<Collection>> {
        self.collection.as_ref()
    }

    /// What is read first, and from where.
    pub fn first_read(&self) -> (&Namespace, &ReadRequest) {
        (&self.namespace, &self.request)
    }

    /// Takes off the last stage, if it is one that writes what the others give.
    pub fn take_writer(&mut self) -> Option<Stage> {
        self.stages.pop_if(|stage| stage.flow() == Flow::Writes)
    }

    /// Reads by this index and no other.
    pub fn hint(&mut self, hint: Option<Hint>) {
        self.request.hint = hint;
    }

    pub fn open(&self, bindings: &Bindings, context: &mut ExecContext<'_>) -> Result<Box<dyn Step>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let opening = Opening { reader: &self.reader, collection: self.collection.as_ref(), bindings };
        let mut stages = &self.stages[..];
        let mut step = match stages.first().map(|first| self.source(first, bindings)).transpose()?.flatten() {
            Some(step) => {
                stages = &stages[1..];
                step
            }
            None => {
                let plan = self.plan(bindings, context)?;
                stages = &stages[usize::from(self.counted().is_some())..];
                self.read(plan)
            }
        };
        for (at, stage) in stages.iter().enumerate() {
            match &self.narrowing {
                Some((before, projection)) if before + stages.len() == at + self.stages.len() => {
                    step = Box::new(transform::Transform::project(projection, step, &opening));
                }
                _ => {}
            }
            step = self::step(stage, step, &opening)?;
        }
        Ok(step)
    }
}

/// The first stage that holds on to rows, if they come to it as they were read, and what is read of them from there.
fn narrowing(stages: &[Stage]) -> Option<(usize, Arc<Projection>)> {
    let at = stages.iter().position(|stage| !stage.flow().passes_as_is())?;
    let holds = stages[at].flow() == Flow::Holds && !set_window_fields::takes_as_read(&stages[at]);
    let (projection, _) = absorb::narrowed(&stages[at..]).filter(|_| holds)?;
    Some((at, Arc::new(projection)))
}

impl Prepared {
    /// Chooses how the collection is read.
    fn plan(&self, bindings: &Bindings, context: &mut ExecContext<'_>) -> Result<Plan> {
        self.plan_request(self.request.clone(), bindings, context)
    }

    /// Chooses how the collection would be read.
    fn plan_explained(&self, bindings: &Bindings, context: &mut ExecContext<'_>) -> Result<Plan> {
        self.plan_request(ReadRequest { explained: true, ..self.request.clone() }, bindings, context)
    }

    fn plan_request(
        &self,
        mut request: ReadRequest,
        bindings: &Bindings,
        context: &mut ExecContext<'_>,
    ) -> Result<Plan> {
        if self.bound {
            request.filter = Arc::new(request.filter.bind(bindings)?);
        }
        let Some(collection) = &self.collection else {
            check_no_text(&request, &self.namespace.to_string())?;
            return Ok(planner::plan_nothing(&request));
        };
        request.hint = collection.own_hint(request.hint);
        unpack_bucket::read_from_better_end(&self.stages, &mut request);
        if let Some(rewriters) = self.reader.0.rewriters.get(&collection.id) {
            rewriters.mean(&mut request)?;
            rewriters.serve(&mut request, &collection.indexes);
        }
        let input = PlannerInput {
            home: collection.home(),
            indexes: &collection.indexes,
            cache: &collection.shared.plan_cache,
            clustered: collection.clustered,
            oldest: collection.oldest_in(self.reader.snapshot()),
            patches: self.reader.patches(collection),
            interrupt: context.interrupt,
        };
        let plan = planner::plan(&input, request, self.reader.snapshot())?;
        if let Some(engine) = self.reader.0.engine.upgrade().filter(|_| !self.namespace.is_internal()) {
            plan.check_scan(&engine.settings)?;
        }
        Ok(plan)
    }

    /// Runs a plan; where only the number of rows counts, for the first stage too.
    fn read(&self, plan: Plan) -> Box<dyn Step> {
        if let Some(collection) = &self.collection {
            collection.shared.scans.note(&plan.root);
        }
        let executor = planner::execute(plan, self.reader.snapshot().clone());
        match self.counted() {
            Some(group) => Box::new(counting::Counting::new(group, executor)),
            None => Box::new(scan::Scan::new(executor, self.wanted.clone())),
        }
    }

    /// What runs for a stage that gives documents of its own.
    fn source(&self, stage: &Stage, bindings: &Bindings) -> Result<Option<Box<dyn Step>>> {
        Ok(Some(match stage {
            Stage::Documents(stage) => Box::new(documents::Evaluating::new(stage, bindings)),
            Stage::PackedBuckets(_) => {
                Box::new(packed_buckets::PackedBuckets::new(&self.namespace, &self.reader))
            }
            Stage::Tree(stage) => Box::new(tree::Tree::new(stage, &self.namespace, &self.reader)),
            stage if stage.flow() == Flow::Source => {
                Box::new(telling::Telling::new(stage, &self.namespace, &self.reader))
            }
            _ => return Ok(None),
        }))
    }
}

/// What steps are made with.
pub(crate) struct Opening<'a> {
    pub reader: &'a Reader,
    /// What is read first, where the pipeline begins with a read.
    pub collection: Option<&'a Arc<Collection>>,
    /// The variables of the pipelines around; a step that evaluates expressions keeps a clone.
    pub bindings: &'a Bindings,
}

/// A row that a stage made of several: deeper than what it was made of, and not too deep.
fn made(document: Document) -> Result<Row> {
    check_nesting(document.as_raw())?;
    Ok(Row::of(document))
}

/// What runs for a stage that reads from another.
fn step(stage: &Stage, input: Box<dyn Step>, opening: &Opening<'_>) -> Result<Box<dyn Step>> {
    Ok(match stage {
        Stage::Match(stage) => Box::new(r#match::Match::new(stage, input, opening)?),
        Stage::Project(stage) => Box::new(transform::Transform::project(&stage.projection, input, opening)),
        Stage::AddFields(stage) => Box::new(transform::Transform::project(&stage.projection, input, opening)),
        Stage::ReplaceRoot(stage) => Box::new(transform::Transform::replace_root(stage, input, opening)),
        Stage::Redact(stage) => Box::new(redact::Redact::new(stage, input, opening)),
        Stage::Unwind(stage) => Box::new(unwind::Unwind::new(stage, input)),
        Stage::UnpackBucket(stage) => Box::new(unpack_bucket::UnpackBucket::new(stage, input, opening)),
        Stage::Sort(stage) => Box::new(sort::Sort::new(stage, input, opening)),
        Stage::Limit(stage) => Box::new(limit::Limit::new(*stage, input)),
        Stage::Skip(stage) => Box::new(skip::Skip::new(*stage, input)),
        Stage::Group(stage) => Box::new(group::Group::new(stage, input, opening)),
        Stage::BucketAuto(stage) => Box::new(bucket_auto::BucketAuto::new(stage, input, opening)),
        Stage::Sample(stage) => Box::new(sample::Sample::new(*stage, input, opening)),
        Stage::SetWindowFields(stage) => {
            Box::new(set_window_fields::SetWindowFields::new(stage, input, opening))
        }
        Stage::Densify(stage) => Box::new(densify::Densify::new(stage, input, opening)?),
        Stage::Facet(stage) => Box::new(facet::Facet::new(stage, input, opening)),
        Stage::UnionWith(stage) => Box::new(union_with::UnionWith::new(stage, input, opening)),
        Stage::Lookup(stage) => Box::new(lookup::Lookup::new(stage, input, opening)?),
        Stage::GeoNear(stage) => Box::new(geo_near::GeoNear::new(stage, input)),
        Stage::GraphLookup(stage) => Box::new(graph_lookup::GraphLookup::new(stage, input, opening)?),
        Stage::Merge(_) | Stage::Out(_) => return Err(Error::bug("a stage that writes runs among others")),
        Stage::Documents(_)
        | Stage::CollStats(_)
        | Stage::IndexStats(_)
        | Stage::PackedBuckets(_)
        | Stage::PatternStats(_)
        | Stage::Tree(_)
        | Stage::PlanCacheStats(_)
        | Stage::CurrentOp(_)
        | Stage::ListSessions(_) => {
            // Only a view can bring another before it.
            let stage = stage.behaviour().to_document();
            let name = stage.iter().next().map_or("", |(name, _)| name);
            return Err(Error::location(
                40602,
                format!("{name} is only valid as the first stage in a pipeline"),
            ));
        }
    })
}
