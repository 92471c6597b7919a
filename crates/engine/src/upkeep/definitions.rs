//! Definitions as documents: `<db>.kilim.patterns` has one for each pattern of its database.
//!
//! Patterns are loaded from these documents, users read them, and dumps contain them. Commands change a pattern and its
//! document in one commit. A document that a user or a restore inserts is a definition whose data nobody has checked: its
//! pattern is `unverified`, whatever `state` the document has.
//!
//! What only this server needs lies in `meta`: the id under which the states of groups are stored, and how far the pattern
//! is filled.
//!
//! Invariant: a document whose pattern is or was maintained has an id in `meta`; one that was inserted has none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, RawDocument, RawValue, doc, encode_value};
use kilim_error::{Error, ErrorCode, Result, StorageError};
use kilim_patterns::{Declaration, check_claims};
use kilim_storage::{Snapshot, Space, Transaction};

use super::fill::Filling;
use super::hand_over::hand_over;
use crate::catalog::{Catalog, Collection, Ids};
use crate::change::{Before, Cause, Change};
use crate::engine::{Engine, Upkeep};
use crate::ids::PatternId;
use crate::layout;
use crate::maintenance::Use;
use crate::maintenance::find_unique;
use crate::maintenance::note_all;
use crate::namespace::{DEFINITIONS, Namespace, definitions_of};
use crate::operation::Operation;
use crate::patterns::Job;
use crate::patterns::{Pattern, PatternState, Registry};
use crate::records::Records;
use crate::unit::Unit;
use crate::write::door;

impl Pattern {
    /// The `_id` of its document.
    pub fn definition_id(&self) -> String {
        format!("{}.{}", self.target.collection, self.declaration.name)
    }

    /// Its document.
    pub fn to_definition(&self) -> Document {
        let mut definition = doc! {"createPattern": &self.target.collection};
        for (name, value) in self.declaration.to_document().iter() {
            definition.push(name, value);
        }
        let mut document = doc! {
            "_id": self.definition_id(),
            "target": &self.target.collection,
            "name": &*self.declaration.name,
            "kind": self.declaration.kind_name,
            "definition": definition,
            "state": self.state.name(),
        };
        if let PatternState::Failed(reason) = &self.state {
            document.push("reason", reason);
        }
        document
    }

    fn has_same_definition(&self, other: &Pattern) -> bool {
        self.target == other.target && self.declaration.name == other.declaration.name
    }
}

/// Makes a declaration of a target's name and the fields of `createPattern`.
type Parse = fn(&str, RawDocument<'_>) -> Result<Declaration>;

/// What a document declares.
fn declaration_of(document: RawDocument<'_>, parse: Parse) -> Result<Declaration> {
    let bad = |message: String| Error::user(ErrorCode::FailedToParse, format!("{DEFINITIONS}: {message}"));
    let (mut target, mut name, mut definition) = (None, None, None);
    for (field, value) in document {
        match (field, value) {
            ("target", RawValue::String(text)) => target = Some(text),
            ("name", RawValue::String(text)) => name = Some(text),
            ("definition", RawValue::Document(document)) => definition = Some(document),
            ("_id" | "kind" | "state" | "reason", RawValue::String(_)) => {}
            ("_id" | "target" | "name" | "kind" | "definition" | "state" | "reason", value) => {
                let type_name = value.element_type().name();
                return Err(bad(format!("'{field}' of a definition cannot be of type {type_name}")));
            }
            _ => return Err(bad(format!("'{field}' is no field of a definition"))),
        }
    }
    let missing = |field: &str| bad(format!("a definition needs '{field}'"));
    let (target, name) = (target.ok_or_else(|| missing("target"))?, name.ok_or_else(|| missing("name"))?);
    let definition = definition.ok_or_else(|| missing("definition"))?;
    let id = format!("{target}.{name}");
    if document.get("_id").and_then(RawValue::as_str) != Some(&id) {
        return Err(bad(format!("the _id of '{name}' of '{target}' is '{id}'")));
    }
    match definition.get("createPattern") {
        None => {}
        Some(RawValue::String(own)) if own == target => {}
        Some(_) => return Err(bad(format!("'definition.createPattern' is not the target '{target}'"))),
    }
    let fields = definition.iter().filter(|(field, _)| *field != "createPattern");
    let fields: Document = fields.map(|(field, value)| (field, value.to_value())).collect();
    let declaration = parse(target, fields.as_raw())?;
    if *declaration.name != *name {
        return Err(bad(format!("'definition.name' is not '{name}'")));
    }
    Ok(declaration)
}

/// The state in a document that a command wrote.
fn state_of(document: RawDocument<'_>) -> Option<PatternState> {
    let text = |name: &str| document.get(name).and_then(RawValue::as_str);
    Some(match text("state")? {
        "building" => PatternState::Building,
        "verifying" => PatternState::Verifying,
        "active" => PatternState::Active,
        "paused" => PatternState::Paused,
        "suspect" => PatternState::Suspect,
        "failed" => PatternState::Failed(text("reason")?.to_owned()),
        "unverified" => PatternState::Unverified,
        _ => return None,
    })
}

/// The patterns of all databases, as a snapshot has them.
pub(crate) fn load(snapshot: &Snapshot, catalog: &Catalog, ids: &mut Ids) -> Result<Registry> {
    let corrupt = |what: &str| Error::Storage(StorageError::Corrupt(what.to_owned()));
    let mut known = HashMap::new();
    for entry in layout::entries_of(snapshot, layout::PATTERN_TAG) {
        let (key, value) = entry?;
        let place = RawDocument::parse(&value).ok().and_then(|place| {
            let text = |name: &str| Some(place.get(name)?.as_str()?.to_owned());
            let Some(RawValue::Int64(looked_at)) = place.get("lookedAt") else { return None };
            Some(((text("db")?, text("definition")?), looked_at))
        });
        let (place, looked_at) = place.ok_or_else(|| corrupt("a pattern's id is unreadable"))?;
        let id = key[1..].try_into().map_err(|_| corrupt("a pattern's key has a wrong length"))?;
        known.insert(place, (PatternId(u32::from_be_bytes(id)), looked_at));
    }
    let mut patterns = Vec::new();
    for collection in catalog.iter().filter(|collection| collection.namespace.holds_definitions()) {
        let database = &collection.namespace.database;
        for row in Records::new(collection.home(), snapshot).all() {
            let document = row?.1.document().to_document();
            let place = document.get("_id").and_then(RawValue::as_str).unwrap_or_default();
            let id = known.remove(&(database.clone(), place.to_owned()));
            let declared = declaration_of(document.as_raw(), Declaration::restore);
            let pattern = match (id, declared) {
                (Some((id, looked_at)), Ok(declared)) => {
                    let state = state_of(document.as_raw());
                    let state = state.ok_or_else(|| corrupt("a pattern's state is unknown"))?;
                    let pattern = Pattern::new(id, database, declared, state)?;
                    let kept = snapshot.get(Space::Meta, &layout::kept_key(id))?.is_some();
                    pattern.counters.has_kept.store(kept, Ordering::Relaxed);
                    pattern.counters.looked_at.store(looked_at, Ordering::Relaxed);
                    pattern
                }
                (None, Ok(declared)) => {
                    let id = PatternId(ids.next_index().0);
                    Pattern::new(id, database, declared, PatternState::Unverified)?
                }
                (Some(_), Err(_)) => return Err(corrupt("a pattern's definition is unreadable")),
                (None, Err(error)) => {
                    tracing::warn!(%error, definition = place, "a definition that is not in force cannot be read");
                    continue;
                }
            };
            patterns.push(Arc::new(pattern));
        }
    }
    match known.is_empty() {
        true => Registry::default().with(patterns),
        false => Err(corrupt("a pattern has lost its definition")),
    }
}

/// Writes what differs between two registries into a unit's batch. The caller holds `ids`, and the unit has entered the
/// collection of definitions. `collection` finds a collection by its name after the change.
pub(crate) fn put_changes(
    unit: &mut Unit<'_>,
    before: &Registry,
    after: &Registry,
    collection: &dyn Fn(&Namespace) -> Option<Arc<Collection>>,
) -> Result<()> {
    for pattern in after.iter() {
        let old = before.find(&pattern.target, &pattern.declaration.name);
        if old.is_some_and(|old| Arc::ptr_eq(old, pattern)) {
            continue;
        }
        put_document(unit, pattern)?;
        let known =
            before.by_id(pattern.id).filter(|known| known.has_same_definition(pattern) && has_id(known));
        if has_id(pattern) && known.is_none() {
            pattern.counters.looked_at.store(unit.engine.now_millis(), Ordering::Relaxed);
            put_id(unit.transaction(), pattern);
        }
        unit.transaction().delete(Space::Meta, &layout::kept_key(pattern.id));
        let filling = layout::filling_key(pattern.id);
        match &pattern.state {
            PatternState::Building if before.by_id(pattern.id).is_none() => {
                let begun = Filling::begin(unit.engine, collection(pattern.walked()))?;
                let begun = match old.filter(|old| resumes(old, pattern)) {
                    Some(old) => begun.resuming(Filling::load(&unit.engine.store.snapshot(), old.id)?),
                    None => begun,
                };
                unit.transaction().put(Space::Meta, filling.to_vec(), begun.encode().into_bytes());
            }
            PatternState::Paused => match before.by_id(pattern.id) {
                Some(known) if resumes(known, pattern) => {}
                Some(known) if known.is_maintained() => {
                    let unfinished = match known.state {
                        PatternState::Building => Filling::load(&unit.engine.store.snapshot(), known.id)?,
                        _ => None,
                    };
                    let paused =
                        Filling::begin(unit.engine, collection(pattern.walked()))?.paused(unfinished);
                    unit.transaction().put(Space::Meta, filling.to_vec(), paused.encode().into_bytes());
                }
                _ => unit.transaction().delete(Space::Meta, &filling),
            },
            state if !state.is_unfinished() => {
                unit.transaction().delete(Space::Meta, &filling);
                if *state == PatternState::Active && old.is_none() {
                    // There is nothing to fill.
                    note_all(unit, pattern);
                }
            }
            _ => {}
        }
    }
    hand_over(unit, before, after, collection)?;
    for gone in before.iter().filter(|old| after.find(&old.target, &old.declaration.name).is_none()) {
        remove_document(unit, gone)?;
    }
    for gone in before.iter().filter(|old| after.by_id(old.id).is_none()) {
        unit.transaction().delete(Space::Meta, &layout::pattern_key(gone.id));
        unit.transaction().delete(Space::Meta, &layout::filling_key(gone.id));
        unit.transaction().delete(Space::Meta, &layout::kept_key(gone.id));
        unit.transaction().reclaim(Space::Meta, &layout::group_key(gone.id, &[]));
    }
    Ok(())
}

/// Whether a pattern goes on with what it had filled when it was paused. It may have been renamed, but not modified.
fn resumes(paused: &Pattern, pattern: &Pattern) -> bool {
    paused.state == PatternState::Paused
        && (paused.target != pattern.target || pattern.declaration.maintains_alike(&paused.declaration))
}

/// Stores which definition an id belongs to, and when a scrub last checked it.
pub(crate) fn put_id(transaction: &mut Transaction, pattern: &Pattern) {
    let place = doc! {
        "db": &pattern.target.database,
        "definition": pattern.definition_id(),
        "lookedAt": pattern.counters.looked_at.load(Ordering::Relaxed),
    };
    transaction.put(Space::Meta, layout::pattern_key(pattern.id).to_vec(), place.into_bytes());
}

/// Whether something is stored under its id.
fn has_id(pattern: &Pattern) -> bool {
    pattern.state != PatternState::Unverified
}

fn put_document(unit: &mut Unit<'_>, pattern: &Pattern) -> Result<()> {
    let (namespace, id) = (definitions_of(&pattern.target.database), pattern.definition_id());
    let document = pattern.to_definition();
    match find_unique(unit, &namespace, "_id", RawValue::String(&id), Use::Write)? {
        Some(old) if old.document == document => Ok(()),
        Some(old) => {
            let before = Before::of(old.document.as_raw());
            let change = Change::update(&old.collection, old.record, before, document.as_raw(), Cause::Job);
            door::put(unit, &change, &|_| false).map(drop)
        }
        None => {
            let collection = unit.join_or_create(&namespace)?;
            let change = Change::insert(&collection, document.as_raw(), Cause::Job);
            door::put(unit, &change, &|_| false).map(drop)
        }
    }
}

fn remove_document(unit: &mut Unit<'_>, pattern: &Pattern) -> Result<()> {
    let (namespace, id) = (definitions_of(&pattern.target.database), pattern.definition_id());
    match find_unique(unit, &namespace, "_id", RawValue::String(&id), Use::Write)? {
        Some(old) => {
            let before = Before::of(old.document.as_raw());
            let change = Change::delete(&old.collection, old.record, before, Cause::Job);
            door::put(unit, &change, &|_| false).map(drop)
        }
        None => Ok(()),
    }
}

/// The duplicate key error for a definition that exists already.
fn duplicate(engine: &Engine, namespace: &Namespace, pattern: &Pattern) -> Error {
    let Some(collection) = engine.collection(namespace) else { return Error::bug("definitions are nowhere") };
    let mut key = Vec::new();
    encode_value(&mut key, RawValue::String(&pattern.definition_id()), false);
    crate::index::duplicate_key(namespace, collection.id_index(), &key, &[])
}

impl Upkeep for Engine {
    fn begin_catching_up(&self, job: Arc<Job>) {
        self.catch_up_in_background(job);
    }

    fn adopt(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
        document: RawDocument<'_>,
    ) -> Result<()> {
        let declaration = declaration_of(document, Declaration::parse)?;
        let id = PatternId(self.next_index_id().0);
        let pattern = Pattern::new(id, &namespace.database, declaration, PatternState::Unverified)?;
        self.change_patterns(operation, &namespace.database, &[], |engine, registry| {
            if registry.find(&pattern.target, &pattern.declaration.name).is_some() {
                return Err(duplicate(engine, namespace, &pattern));
            }
            let others: Vec<&Declaration> =
                registry.of(&namespace.database).iter().map(|other| &*other.declaration).collect();
            check_claims(&pattern.declaration, &others)?;
            Ok((registry.with(vec![Arc::new(pattern.clone())])?, ()))
        })
    }
}
