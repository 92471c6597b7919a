//! A forecast: what a write would mean for patterns, for `explain`.
//!
//! Nothing is written and nothing is held. A few of the documents that the statement would change are carried through
//! the patterns in the order of their graph, as a real write is. What they would touch is found in the statement's
//! snapshot and counted up to a bound; a few of those are carried on, and stand for the others. So the cost is
//! bounded, and the numbers are estimates.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Value, doc};
use kilim_error::{Error, Result};
use kilim_patterns::declaration::Mode;
use kilim_patterns::{Copied, Derived, FanOut, Kind, OnSourceDelete, Reference, Rollup, Shaped, with_value};
use kilim_patterns::{WhenNotMatched, overlap};
use kilim_query::expression::Dependencies;
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_query::update::{Context, Update};
use kilim_storage::Snapshot;

use super::groups::rows;
use super::look::{count_of, find_by_unique};
use super::sources::unique_index;
use super::{Pattern, PatternState, Registry};
use crate::catalog::Collection;
use crate::index::Index;
use crate::namespace::Namespace;
use crate::operator::ExecContext;
use crate::plan::ReadRequest;
use crate::planner;
use crate::unit::Unit;

/// Documents of the statement, and of each fan-out, that are carried on.
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
    let reading = crate::read::plan(unit, namespace, request)?;
    let snapshot = reading.snapshot.clone();
    let operation = unit.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut executor = reading.execute();
    let (mut changes, mut found) = (Vec::new(), 0);
    while let Some(row) = executor.next_record(&mut context)? {
        found += 1;
        if changes.len() < SAMPLE {
            changes.push(change_of(unit, planned, &filter, row.document()));
        }
        if planned.one() || found == COUNTED_MAX {
            break;
        }
    }
    if let Planned::Update { update, upsert: true, now_ms, .. } = planned
        && found == 0
    {
        found = 1;
        let made = update.document_for_upsert(&filter, &context_of(unit, *now_ms, None, true));
        changes.push(made.ok().map(|made| (None, Some(made))));
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
    }
    Ok(forecast.told.iter().map(Told::to_document).collect())
}

/// The paths among those that a read looks at which patterns maintain.
pub fn maintained_among(registry: &Registry, namespace: &Namespace, read: &ReadRequest) -> Vec<Document> {
    let mut needed = Dependencies::default();
    read.filter.dependencies(&mut needed);
    for part in read.sort.iter().flat_map(|sort| sort.parts()) {
        needed.field(part.path.as_str());
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

/// A document's images around the statement; none where it would stay as it is, or the statement fail on it.
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

/// A document that would be written, standing for several.
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
        let mut document = doc! {
            "pattern": &*self.pattern.declaration.name,
            "ns": self.pattern.target.to_string(),
            "via": &*self.via,
            "estimated": self.estimated.round() as i64,
            "mode": self.mode,
        };
        if let (Kind::Rollup(rollup), true) = (&self.pattern.declaration.kind, self.via != SAME_DOCUMENT) {
            let mut accumulators = Document::new();
            rollup.upkeep().for_each(|(field, upkeep)| accumulators.push(field, upkeep.name()));
            document.push("accumulators", accumulators);
        }
        document
    }
}

const SAME_DOCUMENT: &str = "same document";

struct Forecast<'f, 'e> {
    unit: &'f mut Unit<'e>,
    snapshot: Snapshot,
    touched: Vec<Touch>,
    told: Vec<Told>,
}

impl Forecast<'_, '_> {
    fn carry(&mut self, pattern: &Arc<Pattern>) -> Result<()> {
        match &pattern.declaration.kind {
            Kind::Derived(derived) => self.derive(pattern, derived),
            Kind::Reference(reference) => {
                self.shape_holders(pattern, reference)?;
                self.fan_out(pattern, reference)?;
            }
            Kind::Rollup(rollup) => {
                self.shape_parents(pattern, rollup);
                self.change_groups(pattern, rollup)?;
            }
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

    /// The document becomes another by what a pattern keeps in it.
    fn shape(&mut self, pattern: &Arc<Pattern>, at: usize, after: Document) {
        self.tell(pattern, SAME_DOCUMENT, "sync", self.touched[at].weight);
        self.touched[at].after = Some(after);
    }

    fn derive(&mut self, pattern: &Arc<Pattern>, derived: &Derived) {
        for at in self.places(&pattern.target) {
            let made = self.touched[at].after.as_ref().and_then(|after| derived.apply(after.as_raw()));
            if let Some(made) = made {
                self.shape(pattern, at, made);
            }
        }
    }

    fn shape_holders(&mut self, pattern: &Arc<Pattern>, reference: &Reference) -> Result<()> {
        let Some(source) = &pattern.source else { return Ok(()) };
        for at in self.places(&pattern.target) {
            let touch = &self.touched[at];
            let (Some(after), true) = (&touch.after, touch.by_user) else { continue };
            let collection = self.unit.engine.collection(source);
            let mut find = |key: RawValue<'_>| match &collection {
                Some(collection) => find_by_unique(&self.snapshot, collection, &reference.foreign_field, key),
                None => Ok(None),
            };
            let before = touch.before.as_ref().map(Document::as_raw);
            match reference.shape(before, after.as_raw(), &mut find) {
                Ok(Shaped::To { document, .. }) => self.shape(pattern, at, document),
                // The write itself says it.
                Ok(Shaped::AsItIs) | Err(Error::User(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fan_out(&mut self, pattern: &Arc<Pattern>, reference: &Reference) -> Result<()> {
        let Some(source) = &pattern.source else { return Ok(()) };
        let Some(collection) = self.unit.engine.collection(&pattern.target) else { return Ok(()) };
        let index = reverse_index(&collection, &reference.local_field);
        let via = index.map_or("COLLSCAN", |index| &*index.spec.name);
        for at in self.places(source) {
            let touch = &self.touched[at];
            let (before, after) = (touch.before.as_ref(), touch.after.as_ref());
            let changes = reference.fan_out(before.map(Document::as_raw), after.map(Document::as_raw));
            let weight = touch.weight;
            for (key, change) in changes {
                let copied = match (change, reference.on_source_delete) {
                    (FanOut::To(copy), _) => Copied::To(copy),
                    (FanOut::Gone, OnSourceDelete::Keep) => continue,
                    (FanOut::Gone, _) => reference.when_gone().unwrap_or(Copied::Unset),
                };
                let gone = matches!(copied, Copied::Unset | Copied::Null);
                let (holders, count) = self.holders_of(&collection, reference, &key, index.is_some())?;
                if count == 0.0 {
                    continue;
                }
                let mode = match (pattern.declaration.options.mode, reference.on_source_delete) {
                    (_, OnSourceDelete::Restrict) if gone => "restrict",
                    (Mode::Async, _) => "async",
                    (Mode::Sync, _) if count > f64::from(pattern.declaration.options.max_sync) => "async",
                    (Mode::Sync, _) => "sync",
                };
                self.tell(pattern, via, mode, weight * count);
                let share = weight * count / holders.len().max(1) as f64;
                for holder in holders {
                    let after = match reference.on_source_delete {
                        OnSourceDelete::Cascade if gone => None,
                        _ => {
                            let made = reference.patched(holder.as_raw(), key.as_raw(), &copied)?;
                            Some(made.unwrap_or_else(|| holder.clone()))
                        }
                    };
                    self.touch(&pattern.target, holder, after, share);
                }
            }
        }
        Ok(())
    }

    /// A few of the documents that refer to a key, and about how many there are.
    fn holders_of(
        &mut self,
        collection: &Arc<Collection>,
        reference: &Reference,
        key: &Value,
        indexed: bool,
    ) -> Result<(Vec<Document>, f64)> {
        let filter = match indexed {
            true => Filter::Field {
                path: kilim_bson::Path::parse(&reference.local_field),
                predicate: Predicate::Compare(Comparison::Eq, key.clone().into()),
            },
            false => Filter::True,
        };
        let request = ReadRequest::new(Arc::new(filter));
        let plan = crate::read::plan_collection(self.unit, collection, request, &self.snapshot)?;
        let mut executor = planner::execute(plan, self.snapshot.clone());
        let operation = self.unit.operation.clone();
        let interrupt = || operation.check();
        let mut context = ExecContext::new(&interrupt);
        let (mut holders, mut seen, mut found) = (Vec::new(), 0, 0);
        while let Some(row) = executor.next_record(&mut context)? {
            seen += 1;
            let same = |own: &Value| kilim_bson::compare(own.as_raw(), key.as_raw()).is_eq();
            if indexed || reference.references(row.document()).iter().any(same) {
                found += 1;
                if holders.len() < SAMPLE && reference.is_live(row.document())? {
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

    fn shape_parents(&mut self, pattern: &Arc<Pattern>, rollup: &Rollup) {
        for at in self.places(&pattern.target) {
            let touch = &self.touched[at];
            let (Some(after), true) = (&touch.after, touch.by_user) else { continue };
            let before = touch.before.as_ref().map_or(RawDocument::empty(), Document::as_raw);
            let key = |parent: RawDocument<'_>| {
                rollup.key_of_parent(parent).map(|key| Rollup::key_bytes(key.as_raw()))
            };
            let made = match touch.before.is_some() && key(before) == key(after.as_raw()) {
                true => rollup.restored(before, after.as_raw()),
                false => Some(marked(rollup, after.as_raw())),
            };
            if let Some(made) = made {
                self.shape(pattern, at, made);
            }
        }
    }

    fn change_groups(&mut self, pattern: &Arc<Pattern>, rollup: &Rollup) -> Result<()> {
        let Some(source) = &pattern.source else { return Ok(()) };
        let target = self.unit.engine.collection(&pattern.target);
        let via = target.as_ref().and_then(|target| unique_index(target, &rollup.on));
        let via = via.map_or("_id_", |index| &*index.spec.name);
        let mode = match pattern.declaration.options.mode {
            Mode::Sync => "sync",
            Mode::Async => "async",
        };
        for at in self.places(source) {
            let touch = &self.touched[at];
            let weight = touch.weight;
            let out = rows(rollup, touch.before.as_ref().map(Document::as_raw));
            let into = rows(rollup, touch.after.as_ref().map(Document::as_raw));
            if touch.before.is_some() && touch.after.is_some() && rollup.same_rows(&out, &into)? {
                continue;
            }
            let mut groups: Vec<_> = out.into_iter().chain(into).collect();
            groups.sort_by(|left, right| left.key_bytes.cmp(&right.key_bytes));
            groups.dedup_by(|left, right| left.key_bytes == right.key_bytes);
            for group in groups {
                let parent = match &target {
                    Some(target) => find_by_unique(&self.snapshot, target, &rollup.on, group.key.as_raw())?,
                    None => None,
                };
                if parent.is_none() && rollup.when_not_matched == WhenNotMatched::Discard {
                    continue;
                }
                self.tell(pattern, via, mode, weight);
                if let Some(parent) = parent {
                    let after = marked(rollup, parent.as_raw());
                    self.touch(&pattern.target, parent, Some(after), weight);
                }
            }
        }
        Ok(())
    }

    fn touch(&mut self, namespace: &Namespace, before: Document, after: Option<Document>, weight: f64) {
        let namespace = namespace.clone();
        self.touched.push(Touch { namespace, before: Some(before), after, weight, by_user: false });
    }
}

/// The index by which those who refer to a key are found.
fn reverse_index<'c>(collection: &'c Collection, field: &str) -> Option<&'c Arc<Index>> {
    collection.indexes.iter().find(|index| {
        index.spec.key.first().is_some_and(|part| part.path.as_str() == field)
            && !index.spec.sparse
            && !index.spec.hidden
            && index.spec.partial.is_none()
            && index.spec.has_plain_keys()
    })
}

/// A parent whose group changes. What its fields become is not computed; a value that no document has stands for it, so
/// that patterns which read them see that they change.
fn marked(rollup: &Rollup, parent: RawDocument<'_>) -> Document {
    let paths = rollup.maintained_paths();
    let mark = |made: Document, path: &str| with_value(made.as_raw(), path, Some(RawValue::MinKey));
    paths.iter().fold(parent.to_document(), |made, path| mark(made, path))
}
