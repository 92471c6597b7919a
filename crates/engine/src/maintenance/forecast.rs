//! A forecast: what a write would mean for patterns, for `explain`.
//!
//! An interpreter of the effects that a real write applies. Nothing is written and nothing is held. Patterns are evaluated,
//! in the order of their graph, over a few of the documents that the statement would change. The documents that their effects
//! would touch are found in the statement's snapshot and counted up to a bound. A few of them are evaluated further and stand
//! for the others. So the cost is bounded, and the numbers are estimates.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Value, doc};
use kilim_error::Result;
use kilim_patterns::declaration::Mode;
use kilim_patterns::{
    Cause, Change, Due, Effect, Nodes, Reader, Role, Row, Sight, Step, key_bytes, overlap, with_value,
};
use kilim_query::expression::Dependencies;
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_query::update::{Context, Update};
use kilim_storage::Snapshot;

use super::forecast_pages::{Pages, pages_of_new};
use super::look::count_of;
use super::look::find_by_unique;
use super::look_at_trees::{TreeLook, shifts_in};
use super::reader::SnapshotReader;
use super::reader::source_among;
use super::sources::unique_index;
use super::trees::{Grown, SeenGround, most_at_once};
use crate::catalog::Collection;
use crate::index::Index;
use crate::namespace::Namespace;
use crate::operator::ExecContext;
use crate::patterns::{Pattern, PatternState, Registry};
use crate::plan::ReadRequest;
use crate::planner;
use crate::records::View;
use crate::unit::Unit;

/// Documents of the statement, and of each fan-out, over which further patterns are evaluated.
const SAMPLE: usize = 8;
/// Documents that are counted one by one.
const COUNTED_MAX: u64 = 10_000;

/// What a statement would do to the documents that it finds.
pub enum Planned<'a> {
    Update { update: &'a Update, one: bool, upsert: bool, now_ms: i64 },
    Delete { one: bool },
}

impl Planned<'_> {
    fn one(&self) -> bool {
        match self {
            Planned::Update { one, .. } | Planned::Delete { one } => *one,
        }
    }
}

/// What maintenance would write because of a statement: one document for each pattern and each way to its targets.
pub fn forecast(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: ReadRequest,
    planned: &Planned<'_>,
) -> Result<Vec<Document>> {
    let Some(patterns) = unit.engine.patterns().concerned(namespace) else { return Ok(Vec::new()) };
    let filter = request.filter.clone();
    let reading = crate::read::plan(unit, namespace, ReadRequest { array: View::Stored, ..request })?;
    let collection = reading.collection.clone();
    let paged = collection.as_ref().and_then(|collection| collection.shape.paged());
    let snapshot = reading.snapshot.clone();
    let operation = unit.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut executor = reading.execute();
    let (mut changes, mut found, mut pages_written) = (Vec::new(), 0, 0);
    while let Some(row) = executor.next_record(&mut context)? {
        found += 1;
        if changes.len() < SAMPLE {
            let pages = paged.map(|paged| Pages::of(paged, &snapshot, row.id, row.document())).transpose()?;
            let seen = pages.as_ref().map_or(row.document(), Pages::document);
            let change = change_of(unit, planned, &filter, seen);
            if let (Some(pages), Some((_, after))) = (&pages, &change) {
                pages_written += match (planned, after) {
                    (Planned::Update { update, now_ms, .. }, Some(after)) => {
                        let position = filter.matches_with_position(seen)?.flatten();
                        pages.changed(update, &context_of(unit, *now_ms, position, false), after.as_raw())?
                    }
                    _ => pages.removed(),
                };
            }
            changes.push(change);
        }
        if planned.one() || found == COUNTED_MAX {
            break;
        }
    }
    if let Planned::Update { update, upsert: true, now_ms, .. } = planned
        && found == 0
    {
        found = 1;
        let made = update.document_for_upsert(&filter, &context_of(unit, *now_ms, None, true)).ok();
        if let (Some(paged), Some(made)) = (paged, &made) {
            pages_written = pages_of_new(paged, made.as_raw());
        }
        changes.push(made.map(|made| (None, Some(made))));
    }
    let weight = found as f64 / changes.len().max(1) as f64;
    let touched = changes.into_iter().flatten().map(|(before, after)| Touch {
        namespace: namespace.clone(),
        before,
        after,
        weight,
        by_user: true,
    });
    let mut forecast = Forecast { unit, snapshot, touched: touched.collect(), told: Vec::new() };
    for pattern in patterns.iter().filter(|pattern| pattern.is_maintained()) {
        forecast.carry(pattern)?;
        let pages_are_its = pattern.kind().paging().is_some() && pattern.target == *namespace;
        if pages_are_its && pages_written > 0 {
            forecast.tell(pattern, PAGES, "sync", weight * pages_written as f64);
        }
    }
    Ok(forecast.told.iter().map(Told::to_document).collect())
}

/// The paths among those that a read looks at which patterns maintain.
pub fn maintained_among(registry: &Registry, namespace: &Namespace, read: &ReadRequest) -> Vec<Document> {
    let mut needed = Dependencies::default();
    read.filter.dependencies(&mut needed);
    for part in read.sort.iter().flat_map(|sort| sort.parts()) {
        needed.field(part.user_path());
    }
    let mut told = Vec::new();
    for pattern in registry.of(&namespace.database).iter().filter(|one| one.target == *namespace) {
        let maintained = pattern.declaration.maintained_paths();
        for path in needed.fields.iter().filter(|path| maintained.iter().any(|own| overlap(own, path))) {
            let mut one = doc! {"path": &**path, "pattern": &*pattern.declaration.name};
            if pattern.state != PatternState::Active {
                one.push("state", pattern.state.name());
            }
            told.push(one);
        }
    }
    told
}

type Images = (Option<Document>, Option<Document>);

/// A document before and after the statement. None if it would stay as it is, or the statement would fail on it.
fn change_of(
    unit: &Unit<'_>,
    planned: &Planned<'_>,
    filter: &Filter,
    before: RawDocument<'_>,
) -> Option<Images> {
    match planned {
        Planned::Delete { .. } => Some((Some(before.to_document()), None)),
        Planned::Update { update, now_ms, .. } => {
            let position = filter.matches_with_position(before).ok()??;
            let applied = update.apply(before, &context_of(unit, *now_ms, position, false)).ok()?;
            applied.after.map(|after| (Some(before.to_document()), Some(after)))
        }
    }
}

fn context_of(unit: &Unit<'_>, now_millis: i64, position: Option<usize>, inserting: bool) -> Context {
    let timestamp = Timestamp::from_bits(unit.engine.store.now());
    Context { position, inserting, now_millis, timestamp }
}

/// A document that would be written. It stands for `weight` documents.
struct Touch {
    namespace: Namespace,
    before: Option<Document>,
    after: Option<Document>,
    weight: f64,
    by_user: bool,
}

/// What a pattern would write, by one way to its targets.
struct Told {
    pattern: Arc<Pattern>,
    via: String,
    estimated: f64,
    mode: &'static str,
}

impl Told {
    fn to_document(&self) -> Document {
        let target = &self.pattern.target;
        let namespace = if self.via == PAGES { target.of_overflow() } else { target.clone() };
        let mut document = doc! {
            "pattern": &*self.pattern.declaration.name,
            "ns": namespace.to_string(),
            "via": &*self.via,
            "estimated": self.estimated.round() as i64,
            "mode": self.mode,
        };
        if self.via != SAME_DOCUMENT {
            self.pattern.kind().explained().iter().for_each(|(name, value)| document.push(name, value));
        }
        document
    }
}

const SAME_DOCUMENT: &str = "same document";
/// The pages of the documents themselves.
const PAGES: &str = "pages";

struct Forecast<'f, 'e> {
    unit: &'f mut Unit<'e>,
    snapshot: Snapshot,
    touched: Vec<Touch>,
    told: Vec<Told>,
}

impl Forecast<'_, '_> {
    fn carry(&mut self, pattern: &Arc<Pattern>) -> Result<()> {
        let roles = [(Role::Target, Some(&pattern.target)), (Role::Source, pattern.source.as_ref())];
        for (role, namespace) in roles {
            let Some(namespace) = namespace else { continue };
            for at in self.places(namespace) {
                for effect in self.evaluate(pattern, at, role)? {
                    self.apply(pattern, at, effect)?;
                }
            }
        }
        Ok(())
    }

    /// What a document that would be written means for a pattern.
    fn evaluate(&self, pattern: &Arc<Pattern>, at: usize, role: Role) -> Result<Vec<Effect>> {
        let touch = &self.touched[at];
        let change = Change {
            role,
            before: touch.before.as_ref().map(Document::as_raw),
            after: touch.after.as_ref().map(Document::as_raw),
            cause: if touch.by_user { Cause::User } else { Cause::Pattern },
            is_placed: false,
        };
        let source = pattern.source.as_ref().and_then(|source| self.unit.engine.collection(source));
        let target = self.unit.engine.collection(&pattern.target);
        let (source, target) = (source.as_deref(), target.as_deref());
        let stored = SnapshotReader::new(&self.snapshot, source, target, pattern)?;
        let mut reader = ForecastReader { stored, touched: &self.touched };
        let mut effects = Vec::new();
        pattern.kind().evaluate(&change, &mut reader, &mut effects)?;
        Ok(effects)
    }

    fn apply(&mut self, pattern: &Arc<Pattern>, at: usize, effect: Effect) -> Result<()> {
        match effect {
            Effect::Becomes { document, .. } => self.shape(pattern, at, document),
            Effect::ShowsGroup { .. } => {
                if let Some(after) = &self.touched[at].after {
                    self.shape(pattern, at, marked(pattern, after.as_raw()));
                }
            }
            Effect::Rows { out, into, .. } => self.change_groups(pattern, at, out.into_iter().chain(into))?,
            Effect::Replants(step) => self.replant(pattern, at, &step)?,
            Effect::Holders { key, due, .. } => self.fan_out(pattern, at, &key, Some(&due))?,
            Effect::Restrict { key } => self.fan_out(pattern, at, &key, None)?,
            // The write itself gives the error.
            Effect::Refuse(_) => {}
        }
        Ok(())
    }

    fn tell(&mut self, pattern: &Arc<Pattern>, via: &str, mode: &'static str, estimated: f64) {
        let known = |told: &&mut Told| told.pattern.id == pattern.id && told.via == via && told.mode == mode;
        match self.told.iter_mut().find(known) {
            Some(told) => told.estimated += estimated,
            None => {
                self.told.push(Told { pattern: pattern.clone(), via: via.to_owned(), estimated, mode });
            }
        }
    }

    fn places(&self, namespace: &Namespace) -> Vec<usize> {
        (0..self.touched.len()).filter(|at| self.touched[*at].namespace == *namespace).collect()
    }

    /// The document gets another after-image.
    fn shape(&mut self, pattern: &Arc<Pattern>, at: usize, after: Document) {
        self.tell(pattern, SAME_DOCUMENT, "sync", self.touched[at].weight);
        self.touched[at].after = Some(after);
    }

    /// The holders of a key become what is due to them. `due` is none if they restrict the deletion of their source.
    fn fan_out(&mut self, pattern: &Arc<Pattern>, at: usize, key: &Value, due: Option<&Due>) -> Result<()> {
        let Some(collection) = self.unit.engine.collection(&pattern.target) else { return Ok(()) };
        let index = pattern.kind().key_path().and_then(|path| reverse_index(&collection, path));
        let (holders, count) = self.holders_of(&collection, pattern, key, index.is_some())?;
        if count == 0.0 {
            return Ok(());
        }
        let options = &pattern.declaration.options;
        let mode = match (due, options.mode) {
            (None, _) => "restrict",
            (_, Mode::Async) => "async",
            (_, Mode::Sync) if count > f64::from(options.max_sync) => "async",
            (_, Mode::Sync) => "sync",
        };
        let weight = self.touched[at].weight;
        self.tell(pattern, index.map_or("COLLSCAN", |index| &*index.spec.name), mode, weight * count);
        let Some(due) = due else { return Ok(()) };
        let share = weight * count / holders.len().max(1) as f64;
        for holder in holders {
            let after = match pattern.kind().becomes(holder.as_raw(), key.as_raw(), due)? {
                Sight::AsStored => Some(holder.clone()),
                Sight::Other(made) => Some(made),
                Sight::Gone => None,
            };
            self.touch(&pattern.target, holder, after, share);
        }
        Ok(())
    }

    /// A few of the documents that refer to a key, and about how many there are.
    fn holders_of(
        &mut self,
        collection: &Arc<Collection>,
        pattern: &Pattern,
        key: &Value,
        indexed: bool,
    ) -> Result<(Vec<Document>, f64)> {
        let filter = match pattern.kind().key_path() {
            Some(path) if indexed => Filter::Field {
                path: kilim_bson::Path::parse(path),
                predicate: Predicate::Compare(Comparison::Eq, key.clone().into()),
            },
            _ => Filter::True,
        };
        let request = ReadRequest { array: View::Stored, ..ReadRequest::new(Arc::new(filter)) };
        let plan = crate::read::plan_collection(self.unit, collection, request, &self.snapshot)?;
        let mut executor = planner::execute(plan, self.snapshot.clone());
        let operation = self.unit.operation.clone();
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        let (mut holders, mut seen, mut found) = (Vec::new(), 0, 0);
        while let Some(row) = executor.next_record(&mut context)? {
            seen += 1;
            if indexed || pattern.kind().refers(row.document(), key.as_raw()) {
                found += 1;
                if holders.len() < SAMPLE {
                    holders.push(row.document().to_document());
                }
            }
            if seen == COUNTED_MAX {
                break;
            }
        }
        let unseen = match (indexed, seen == COUNTED_MAX) {
            (false, true) => count_of(&self.snapshot, collection)? as f64 / seen as f64,
            _ => 1.0,
        };
        Ok((holders, found as f64 * unseen))
    }

    /// The groups of these rows change, and their parents with them.
    fn change_groups(
        &mut self,
        pattern: &Arc<Pattern>,
        at: usize,
        rows: impl Iterator<Item = Row>,
    ) -> Result<()> {
        let Some((_, field)) = pattern.found_by() else { return Ok(()) };
        let target = self.unit.engine.collection(&pattern.target);
        let via = target.as_ref().and_then(|target| unique_index(target, field));
        let via = via.map_or("_id_", |index| &*index.spec.name);
        let mode = match pattern.declaration.options.mode {
            Mode::Sync => "sync",
            Mode::Async => "async",
        };
        let weight = self.touched[at].weight;
        let mut groups: Vec<Row> = rows.collect();
        groups.sort_by(|left, right| left.key_bytes.cmp(&right.key_bytes));
        groups.dedup_by(|left, right| left.key_bytes == right.key_bytes);
        for group in groups {
            let parent = match &target {
                Some(target) => find_by_unique(&self.snapshot, target, field, group.key.as_raw())?,
                None => None,
            };
            if parent.is_none() && !pattern.inserts_parents() {
                continue;
            }
            self.tell(pattern, via, mode, weight);
            if let Some(parent) = parent {
                let after = marked(pattern, parent.as_raw());
                self.touch(&pattern.target, parent, Some(after), weight);
            }
        }
        Ok(())
    }

    /// The document takes another place in its tree; others change with it.
    fn replant(&mut self, pattern: &Arc<Pattern>, at: usize, step: &Step) -> Result<()> {
        let collection = self.unit.engine.collection(&pattern.target);
        let (Some(tree), Some(collection)) = (pattern.kind().tree(), collection) else { return Ok(()) };
        let snapshot = self.snapshot.clone();
        let shifts = shifts_in(&snapshot, pattern)?;
        let look = TreeLook { tree, collection: &collection, snapshot: &snapshot, shifts: &shifts };
        let registry = self.unit.engine.patterns();
        let most = most_at_once(registry.of(&pattern.target.database), pattern, tree);
        let mut grown = Grown::new(SeenGround { look, pattern });
        grown.most = most;
        grown.begin_with(step.id.as_raw(), step.before.clone(), None)?;
        // The write itself gives the error.
        if tree.take(step, &mut grown).is_err() {
            return Ok(());
        }
        let own = key_bytes(step.id.as_raw());
        let weight = self.touched[at].weight;
        let left: u64 = grown.left.iter().map(|(_, count, _)| count).sum();
        let (mut count, mut others) = (0.0, Vec::new());
        for (key, plant) in grown.plants {
            let Some(before) = plant.original else { continue };
            if key == own {
                if let Some(made) = plant.document {
                    self.shape(pattern, at, made);
                }
                continue;
            }
            let bytes = |document: &Option<Document>| document.as_ref().map(|one| one.as_bytes().to_vec());
            if bytes(&before) == bytes(&plant.document) {
                continue;
            }
            count += 1.0;
            if others.len() < SAMPLE {
                others.extend(before.map(|before| (before, plant.document)));
            }
        }
        let index = reverse_index(&collection, tree.parent_path());
        let via = index.map_or("COLLSCAN".to_owned(), |index| index.spec.name.clone());
        for (mode, count) in [("sync", count), ("async", left as f64)] {
            if count > 0.0 {
                self.tell(pattern, &via, mode, weight * count);
            }
        }
        let share = weight * count / others.len().max(1) as f64;
        others.into_iter().for_each(|(before, after)| self.touch(&pattern.target, before, after, share));
        Ok(())
    }

    fn touch(&mut self, namespace: &Namespace, before: Document, after: Option<Document>, weight: f64) {
        let namespace = namespace.clone();
        self.touched.push(Touch { namespace, before: Some(before), after, weight, by_user: false });
    }
}

/// The index by which the holders of a key are found.
fn reverse_index<'c>(collection: &'c Collection, field: &str) -> Option<&'c Arc<Index>> {
    collection.indexes.iter().find(|index| {
        index.spec.key.first().is_some_and(|part| part.path.as_str() == field)
            && !index.spec.sparse
            && !index.spec.hidden
            && index.spec.partial.is_none()
            && index.spec.has_plain_keys()
    })
}

/// A parent whose group changes. Its new fields are not computed. They get a value that no document has, so that patterns
/// which read them see a change.
fn marked(pattern: &Pattern, parent: RawDocument<'_>) -> Document {
    let paths = pattern.declaration.maintained_paths();
    let mark = |made: Document, path: &str| with_value(made.as_raw(), path, Some(RawValue::MinKey));
    paths.iter().fold(parent.to_document(), |made, path| mark(made, path))
}

/// Reads the snapshot as the effects so far would leave it.
struct ForecastReader<'r> {
    stored: SnapshotReader<'r>,
    touched: &'r [Touch],
}

impl Nodes for ForecastReader<'_> {}

impl Reader for ForecastReader<'_> {
    fn source(&mut self, key: RawValue<'_>) -> Result<Option<Document>> {
        if let Some((source, field)) = self.stored.pattern.sources_found_by() {
            let own = self.touched.iter().filter(|touch| touch.namespace == *source);
            let images = own.map(|touch| {
                (touch.before.as_ref().map(Document::as_raw), touch.after.as_ref().map(Document::as_raw))
            });
            if let Some(found) = source_among(images, field, key) {
                return Ok(found.map(RawDocument::to_document));
            }
        }
        self.stored.source(key)
    }

    fn pending(&mut self, key: RawValue<'_>) -> Result<Option<Due>> {
        self.stored.pending(key)
    }
}
