//! `update`: changes documents that match, or inserts one where none does.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, Timestamp, Value, compare, doc};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::{Comparison, Filter, Predicate};
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;
use kilim_query::update::{Context, Update, check_id};

use super::admit::check_not_blocked;
use super::done::{Kind, answered, of_kind};
use super::door;
use super::paged;
use crate::catalog::{Collection, Still};
use crate::change::{Before, Change, Form};
use crate::ids::CollectionId;
use crate::index::Index;
use crate::maintenance::check_user_paths;
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Executor, Measured};
use crate::patches::see_newest;
use crate::plan::{Hint, ReadRequest};
use crate::records::{RowId, Sight, View};
use crate::unit::{Statement, Unit};

pub struct UpdateRequest<'a> {
    pub filter: Arc<Filter>,
    pub update: &'a Update,
    pub multi: bool,
    pub upsert: bool,
    pub hint: Option<Hint>,
    /// How texts compare in the filter.
    pub collation: Option<Collation>,
    /// Milliseconds since 1970, the same for every document of the statement.
    pub now_ms: i64,
    pub statement: i32,
    /// What is shown of a document, where one is answered.
    pub projection: Option<&'a Projection>,
}

#[derive(Debug, Default, Clone)]
pub struct UpdateOutcome {
    pub matched: u64,
    pub modified: u64,
    /// The `_id` of the document that an upsert inserted.
    pub upserted: Option<Value>,
}

/// A document as it was and as it became.
pub(super) struct Images {
    pub before: Document,
    /// `None`: the update changed nothing.
    pub after: Option<Document>,
}

pub fn update(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &UpdateRequest<'_>,
) -> Result<UpdateOutcome> {
    if let Some(done) = answered(unit, request.statement) {
        return done.as_update();
    }
    check_maintained(unit, namespace, request.update)?;
    update_unchecked(unit, namespace, request)
}

/// An [`update`] by `$merge`. Its operators come from whole documents, not from a user who names paths. So maintained fields
/// among them are overwritten by their patterns instead of refused.
pub(crate) fn update_unchecked(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &UpdateRequest<'_>,
) -> Result<UpdateOutcome> {
    let mut race = UpsertRace::default();
    loop {
        let outcome = update_matching(unit, namespace, request)?;
        if outcome.matched > 0 || !request.upsert {
            return Ok(outcome);
        }
        match upsert(unit, namespace, request) {
            Ok(id) => return Ok(UpdateOutcome { upserted: Some(id), ..UpdateOutcome::default() }),
            Err(error) => race.look_again(unit, &request.filter, error)?,
        }
    }
}

/// Refuses operators that name paths which a pattern maintains. A replacement or a pipeline names none: what it changes of
/// them is overwritten by the pattern.
pub(super) fn check_maintained(unit: &Unit<'_>, namespace: &Namespace, update: &Update) -> Result<()> {
    match update.touched_paths() {
        Some(paths) if update.is_operators() => {
            let catalog = unit.engine.catalog();
            let base = catalog.alias(namespace).map_or(namespace, |alias| &alias.base);
            check_user_paths(unit.engine, base, &paths)
        }
        _ => Ok(()),
    }
}

/// What an upsert does when another writer has inserted the same key first: there should be a document to update now.
#[derive(Default)]
pub(super) struct UpsertRace {
    lost: bool,
}

impl UpsertRace {
    /// Makes ready to search again, or gives the error back if that would not help: the document that has the key does
    /// not match the filter.
    pub(super) fn look_again(&mut self, unit: &mut Unit<'_>, filter: &Filter, error: Error) -> Result<()> {
        let Error::User(user) = &error else { return Err(error) };
        if user.code != ErrorCode::DuplicateKey || unit.is_transaction() {
            return Err(error);
        }
        // If the filter asks for exactly this key, the document that has it matches, until it is deleted again.
        let certain = user.details.as_ref().is_some_and(|details| asks_for_key(filter, details));
        if self.lost && !certain {
            return Err(error);
        }
        self.lost = true;
        unit.operation.check()?;
        unit.settle_and_see_all()
    }
}

/// Whether a filter is nothing but the equalities of a duplicate key error's `keyValue`.
fn asks_for_key(filter: &Filter, details: &[u8]) -> bool {
    let fields = match filter {
        Filter::And(fields) => &fields[..],
        field => std::slice::from_ref(field),
    };
    let key = RawDocument::parse(details).ok().and_then(|details| details.get("keyValue")?.as_document());
    let Some(key) = key else { return false };
    fields.len() == key.iter().count()
        && fields.iter().all(|field| match field {
            Filter::Field { path, predicate: Predicate::Compare(Comparison::Eq, value) } => {
                key.iter().any(|(name, held)| {
                    name == path.as_str() && compare(held, value.as_raw()) == Ordering::Equal
                })
            }
            _ => false,
        })
}

fn update_matching(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &UpdateRequest<'_>,
) -> Result<UpdateOutcome> {
    let mut outcome = UpdateOutcome::default();
    let read = matching(&request.filter, None, request.hint.as_ref(), &request.collation);
    let Some(mut candidates) = Candidates::find(unit, namespace, read)? else { return Ok(outcome) };
    while let Some(found) = candidates.next(unit)? {
        let row = found.row;
        let changed = change_record(
            unit,
            namespace,
            found,
            &candidates.filter,
            |unit, collection, before, position| {
                apply_update(unit, collection, row, before, position, request)
            },
        )?;
        let Some(images) = changed else { continue };
        outcome.matched += 1;
        if images.after.is_some() {
            outcome.modified += 1;
        }
        if !request.multi {
            unit.record_statement(request.statement, || Cow::Owned(outcome.encode()));
        }
        if request.multi && images.after.is_some() {
            unit.streamed()?;
        }
        if !request.multi {
            unit.written()?;
            break;
        }
    }
    Ok(outcome)
}

/// Applies the update to one document and gives the change to the door.
pub(super) fn apply_update(
    unit: &mut Unit<'_>,
    collection: &Arc<Collection>,
    row: RowId,
    before: Before<'_>,
    position: Option<usize>,
    request: &UpdateRequest<'_>,
) -> Result<Images> {
    let context = request.context(unit, position, false);
    if collection.shape.paged().is_some_and(|paged| paged.paging.has_flag(before.seen)) {
        return paged::apply(unit, collection, row, before, &context, request);
    }
    let describes = unit.engine.store.logs();
    let applied = request.update.apply_described(before.seen, &context, describes)?;
    if let Some(after) = &applied.after {
        let untouched = |index: &Index| {
            index.spec.partial.is_none() && !index.spec.depends_on(|path| request.update.may_touch(path))
        };
        let mut change = Change::update(collection, row, before, after.as_raw(), unit.cause);
        change.form = match &applied.description {
            Some(description) => Form::Described(description.as_raw()),
            None if request.update.is_replacement() => Form::Replacement,
            None => Form::Smaller,
        };
        let shaped = door::write(unit, change, &untouched)?;
        if let Some(shaped) = shaped {
            let after = match collection.shape.paged() {
                Some(_) => paged::shown(unit, collection, row, shaped.as_raw(), request.projection)?,
                None => shaped,
            };
            return Ok(Images { before: before.seen.to_document(), after: Some(after) });
        }
    }
    Ok(Images { before: before.seen.to_document(), after: applied.after })
}

/// Takes a record's intent, reads its newest version, and changes it if it still matches.
pub(super) fn change_record<T>(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    found: Candidate,
    filter: &Filter,
    mut change: impl FnMut(&mut Unit<'_>, &Arc<Collection>, Before<'_>, Option<usize>) -> Result<T>,
) -> Result<Option<T>> {
    loop {
        unit.operation.check()?;
        // By name each time: when a batch is handed in, the collection is released, and its schema may change.
        let collection = match unit.enter(namespace)? {
            Some(collection) if collection.id == found.collection => collection,
            _ => {
                return Err(Error::user(
                    ErrorCode::QueryPlanKilled,
                    format!("collection '{namespace}' was dropped or renamed during the operation"),
                ));
            }
        };
        let result = unit.lock_record(&collection, found.row).and_then(|newest| {
            let Some(newest) = newest else { return Ok(None) };
            let stored = newest.document();
            let seen = match see_newest(unit, collection.base(), stored)? {
                Sight::AsStored => None,
                Sight::Other(seen) => Some(seen),
                Sight::Gone => return Ok(None),
            };
            let seen = match &collection.alias {
                Some(alias) => Some(alias.shown(seen.as_ref().map_or(stored, Document::as_raw))?),
                None => seen,
            };
            let before = Before { stored, seen: seen.as_ref().map_or(stored, Document::as_raw) };
            let matched = paged::matches(unit, &collection, found.row, before.seen, filter)?;
            let Some(position) = matched else { return Ok(None) };
            change(unit, &collection, before, position).map(Some)
        });
        match result {
            Err(error) if unit.can_retry(&error)? => {}
            result => return result,
        }
    }
}

/// Inserts the document that the filter's equalities and the update make. Gives its `_id`.
pub(super) fn upsert(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &UpdateRequest<'_>,
) -> Result<Value> {
    let document = new_document(unit, request)?;
    let id =
        document.get("_id").ok_or_else(|| Error::bug("an upsert made a document without _id"))?.to_value();
    insert_new(unit, namespace, document.as_raw(), None)?;
    let outcome = UpdateOutcome { upserted: Some(id.clone()), ..UpdateOutcome::default() };
    unit.record_statement(request.statement, || Cow::Owned(outcome.encode()));
    unit.written()?;
    Ok(id)
}

pub(super) fn new_document(unit: &Unit<'_>, request: &UpdateRequest<'_>) -> Result<Document> {
    let context = request.context(unit, None, true);
    let document = request.update.document_for_upsert(&request.filter, &context)?;
    if let Some(id) = document.get("_id") {
        check_id(id)?;
    }
    Ok(document)
}

/// Inserts a document. Gives it as somebody is shown it who asked for a projection, if patterns changed it.
pub(super) fn insert_new(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    document: RawDocument<'_>,
    projection: Option<&Projection>,
) -> Result<Option<Document>> {
    if unit.cause.is_of_user() {
        check_not_blocked(unit, namespace)?;
    }
    loop {
        let collection = unit.enter_or_create(namespace)?;
        match door::write(unit, Change::insert(&collection, document, unit.cause), &|_| false) {
            Ok(shaped) => {
                return Ok(shaped.map(|head| paged::shown_new(&collection, head, document, projection)));
            }
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}

impl UpdateRequest<'_> {
    fn context(&self, unit: &Unit<'_>, position: Option<usize>, inserting: bool) -> Context {
        Context {
            position,
            inserting,
            now_millis: self.now_ms,
            timestamp: Timestamp::from_bits(unit.engine.store.now()),
        }
    }
}

/// The records that matched in the statement's snapshot. Each is matched again, as of the newest commit, before it is
/// changed.
pub(super) struct Candidates {
    collection: CollectionId,
    /// Keeps the version in which documents are seen as it is.
    _statement: Statement,
    /// What the statement's filter means for documents as they are stored.
    pub filter: Arc<Filter>,
    executor: Executor,
    /// Keeps measurements in their buckets while these are visited.
    _still: Option<Still>,
}

#[derive(Clone)]
pub(super) struct Candidate {
    pub collection: CollectionId,
    pub row: RowId,
    /// The index key by which it was found, if that is asked for.
    pub key: Option<Arc<Document>>,
    /// How well it matches a `$text`, if that is asked for, or how far it is.
    pub score: Option<f64>,
    /// Which of its places is so far.
    pub near: Option<Arc<Measured>>,
}

impl Candidates {
    /// `None` where there is no collection to look in.
    pub(super) fn find(
        unit: &mut Unit<'_>,
        namespace: &Namespace,
        mut read: ReadRequest,
    ) -> Result<Option<Candidates>> {
        unit.engine.check_search(namespace, &read)?;
        // The collection is held first, so that its schema does not change. Then comes the snapshot. Then the catalog is read
        // again: an older one may not know the arrays that the snapshot has.
        unit.see_own_writes()?;
        let Some(statement) = unit.begin_statement(namespace)? else { return Ok(None) };
        let still = hold_measurements(unit, namespace)?;
        let snapshot = unit.snapshot();
        let Some(collection) = unit.enter(namespace)? else { return Ok(None) };
        crate::read::mean(unit, &collection, &mut read, &snapshot)?;
        let asked = read.filter.clone();
        let plan = crate::read::plan_collection(unit, &collection, read, &snapshot)?;
        if !namespace.is_internal() {
            plan.check_scan(&unit.engine.settings)?;
        }
        // Planning binds a `$text` to its index. What it makes of the rest is for reading: a position in an array is found by
        // the filter that was asked.
        let filter = match plan.request.filter.text() {
            Some(query) => Arc::new(asked.with_text(query)),
            None => asked,
        };
        let executor = crate::planner::execute(plan, snapshot);
        let collection = collection.id;
        Ok(Some(Candidates { collection, _statement: statement, _still: still, filter, executor }))
    }

    pub(super) fn next(&mut self, unit: &mut Unit<'_>) -> Result<Option<Candidate>> {
        let interrupt = || unit.operation.check();
        let mut context = ExecContext::new(&interrupt);
        let found = self.executor.next_record(&mut context)?;
        let figures = context.figures;
        unit.figures.add(figures);
        Ok(found.map(|row| Candidate {
            collection: self.collection,
            row: row.id,
            key: row.key,
            score: row.score,
            near: row.near,
        }))
    }
}

/// Keeps measurements in their buckets, where the documents are such, until all that were there before have been visited.
fn hold_measurements(unit: &mut Unit<'_>, namespace: &Namespace) -> Result<Option<Still>> {
    let Some(collection) = unit.enter(namespace)? else { return Ok(None) };
    if collection.time_series.is_none() || unit.is_transaction() {
        return Ok(None);
    }
    // An insert that moves measurements may wait for what this unit holds, so that is given back first.
    unit.settle()?;
    let operation = unit.operation.clone();
    let still = collection.shared.moves.hold(|| operation.check())?;
    unit.settle_and_see_all()?;
    unit.enter(namespace)?;
    Ok(Some(still))
}

/// A read of what a write may change, in the order it is to be changed.
pub(super) fn matching(
    filter: &Arc<Filter>,
    sort: Option<&Sort>,
    hint: Option<&Hint>,
    collation: &Option<Collation>,
) -> ReadRequest {
    let (sort, hint, collation) = (sort.cloned(), hint.cloned(), collation.clone());
    let text_score = sort.as_ref().is_some_and(Sort::wants_text_score);
    let array = View::Stored;
    ReadRequest { sort, hint, collation, text_score, array, ..ReadRequest::new(filter.clone()) }
}

impl UpdateOutcome {
    pub(super) fn encode(&self) -> Document {
        let mut document = doc! {"n": self.matched as i64, "nModified": self.modified as i64};
        if let Some(id) = &self.upserted {
            document.push("upserted", id.clone());
        }
        of_kind(if self.upserted.is_some() { Kind::Insert } else { Kind::Update }, document)
    }
}
