//! Long arrays that continue in pages: put in force, divided, checked and folded back.
//!
//! An array that is not divided yet is read and written as any other, so a declaration is in force at once. The job that fills
//! the pattern then writes each document again as it is to be stored.

use std::slice;
use std::sync::Arc;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Paging, elements_of, overlap, page_len};
use kilim_storage::{CommitTime, Direction, Durability, Snapshot};

use crate::catalog::{Catalog, Collection};
use crate::change::{ArrayForm, Before, Cause, Change};
use crate::engine::Engine;
use crate::ids::RecordId;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, Registry, check_over_elements};
use crate::records::{self, Newest, Paged, Records, RowId, Shape};
use crate::unit::Unit;
use crate::write::door;

impl Registry {
    /// The pattern in force that divides the arrays of a collection.
    pub(crate) fn paging_of(&self, namespace: &Namespace) -> Option<(&Arc<Pattern>, &Arc<Paging>)> {
        let own = |it: &&Arc<Pattern>| it.target == *namespace && it.state != PatternState::Unverified;
        let mut patterns = self.of(&namespace.database).iter().filter(own);
        patterns.find_map(|pattern| Some((pattern, pattern.kind().paging()?)))
    }
}

/// Gives the collections of a catalog the shapes that patterns with pages declare, and no others. `since`: a commit that has all
/// of this.
pub(crate) fn put_pages_in_force(catalog: &mut Catalog, registry: &Registry, since: CommitTime) {
    let mut shaped: Vec<Collection> = Vec::new();
    let mut shape = |collection: &Collection, shape: Shape| {
        if let Some(before) = collection.shape.paged() {
            collection.shared.old_pages.note(before.clone(), since);
        }
        shaped.push(Collection { shape, ..collection.clone() });
    };
    for collection in catalog.iter() {
        let pages = catalog.get(&collection.namespace.of_overflow());
        let paging = registry.paging_of(&collection.namespace);
        match (&collection.shape, paging, pages) {
            (now, Some((_, paging)), Some(pages)) => {
                let paged = Paged { paging: paging.clone(), overflow: pages.id };
                if now.paged().is_none_or(|now| **now != paged) {
                    shape(collection, Shape::Paged(Arc::new(paged), None));
                }
                if !matches!(pages.shape, Shape::Pages) {
                    shape(pages, Shape::Pages);
                }
            }
            (Shape::Paged(..), ..) => shape(collection, Shape::Plain),
            _ => {}
        }
        if let Shape::Pages = collection.shape {
            let of = collection.namespace.of_array();
            if of.is_none_or(|of| registry.paging_of(&of).is_none()) {
                shape(collection, Shape::Plain);
            }
        }
    }
    shaped.into_iter().for_each(|collection| catalog.insert(Arc::new(collection)));
}

/// Refuses for a pattern with pages what is not done to such patterns.
pub(crate) fn check_no_pages(pattern: &Pattern, what: &str) -> Result<()> {
    if pattern.kind().paging().is_none() || pattern.state == PatternState::Unverified {
        return Ok(());
    }
    Err(pattern.refusal(
        ErrorCode::PatternNotReady,
        None,
        format!("outlier '{}' of {} cannot be {what}", pattern.declaration.name, pattern.target),
    ))
}

impl Engine {
    /// Checks a pattern against arrays that continue in pages: its own, or those of another pattern.
    pub(crate) fn check_pages(&self, pattern: &Pattern) -> Result<()> {
        let registry = self.patterns();
        let Some(paging) = pattern.kind().paging() else {
            for namespace in pattern.collections() {
                if let Some((outlier, paging)) = registry.paging_of(namespace) {
                    check_apart(outlier, &paging.field, pattern)?;
                }
            }
            return Ok(());
        };
        let target = &pattern.target;
        let bad = |message: String| Error::user(ErrorCode::BadValue, message);
        let is_other =
            |it: &&Arc<Pattern>| it.declaration.name != pattern.declaration.name || it.target != *target;
        if let Some((other, _)) = registry.paging_of(target).filter(|(other, _)| is_other(other)) {
            return Err(pattern.refusal(
                ErrorCode::PatternFieldConflict,
                None,
                format!(
                    "{target} has the outlier '{}' already: one array of a collection can continue in pages",
                    other.declaration.name
                ),
            ));
        }
        if target.of_array().is_some_and(|of| registry.paging_of(&of).is_some()) {
            return Err(bad(format!("{target} holds pages, whose arrays do not continue elsewhere")));
        }
        for other in registry.of(&target.database).iter().filter(is_other) {
            check_apart(pattern, &paging.field, other)?;
        }
        let overflow = target.of_overflow();
        overflow.check_creatable()?;
        let catalog = self.catalog();
        if catalog.view(&overflow).is_some() || catalog.alias(&overflow).is_some() {
            return Err(bad(format!("pages would lie in {overflow}, which is a view")));
        }
        let Some(collection) = self.collection(target) else { return Ok(()) };
        if collection.capped.is_some() || collection.shape.versions().is_some() {
            return Err(bad(format!(
                "{target} is capped or has versions, so its arrays cannot continue in pages"
            )));
        }
        collection.check_validator(&paging.field)?;
        collection.indexes.iter().try_for_each(|index| check_over_elements(pattern, &index.spec))?;
        collection
            .building
            .iter()
            .try_for_each(|building| check_over_elements(pattern, &building.index.spec))?;
        let is_in_force = registry.paging_of(target).is_some();
        if let Some(pages) = self.collection(&overflow).filter(|_| !is_in_force)
            && (!self.is_empty(&overflow)? || pages.capped.is_some() || pages.indexes.len() > 1)
        {
            return Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("pages would lie in {overflow}, which exists and is not empty: rename or drop it"),
            ));
        }
        Ok(())
    }

    /// Makes the collection of a pattern's pages, where it has any. Gives its name.
    pub(crate) fn ensure_pages(&self, pattern: &Pattern) -> Result<Option<Namespace>> {
        if pattern.kind().paging().is_none() {
            return Ok(None);
        }
        let overflow = pattern.target.of_overflow();
        self.ensure_collection(&overflow)?;
        Ok(Some(overflow))
    }

    /// Refuses where an array that continues in pages is more than a document can hold, for a pattern that ends.
    pub(crate) fn check_folds(&self, operation: &Arc<Operation>, pattern: &Pattern) -> Result<()> {
        let Some(collection) = self.collection(&pattern.target) else { return Ok(()) };
        let Some(paged) = collection.shape.paged() else { return Ok(()) };
        self.store.settle(Durability::Relaxed)?;
        let snapshot = self.store.snapshot();
        let heads = Records::new(collection.home(), &snapshot);
        for owner in owners_in(&snapshot, paged, operation)? {
            operation.check()?;
            if let Some(head) = heads.get(owner.into())? {
                records::whole(&snapshot, paged, owner.into(), head.document())?;
            }
        }
        Ok(())
    }

    /// Folds all arrays that continue in pages back into their documents, for a pattern that ends. All of them are looked at
    /// before the first is folded. The caller holds the collection and its pages.
    pub(crate) fn fold_pages(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<()> {
        self.check_folds(operation, pattern)?;
        let Some(collection) = self.collection(&pattern.target) else { return Ok(()) };
        let Some(paged) = collection.shape.paged() else { return Ok(()) };
        let owners = owners_in(&self.store.snapshot(), paged, operation)?;
        let mut unit = Unit::new(self, operation.clone(), Durability::Durable);
        unit.write_in_held(&[collection.id, paged.overflow]);
        for owner in owners {
            let row: RowId = owner.into();
            let Some(head) = unit.lock_record(&collection, row)? else { continue };
            let source = Newest { transaction: unit.transaction(), in_snapshot: false };
            if let Some(whole) = records::whole(&source, paged, row, head.document())? {
                let before = Before::of(head.document());
                let cause = Cause::Pattern(slice::from_ref(pattern));
                let mut change = Change::update(&collection, row, before, whole.as_raw(), cause);
                change.array = ArrayForm::Folded;
                door::write(&mut unit, change, &|_| false)?;
                unit.written()?;
            }
        }
        unit.settle()
    }
}

/// Refuses that two patterns have to do with one array.
fn check_apart(outlier: &Pattern, field: &str, other: &Pattern) -> Result<()> {
    if other.kind().paging().is_some() || other.state == PatternState::Unverified {
        return Ok(());
    }
    let readings = other.kind().readings();
    let mut paths = Vec::new();
    if other.target == outlier.target {
        paths.extend(other.kind().written_paths());
        paths.extend(other.kind().removed_paths());
        paths.extend(readings.target);
        paths.extend(other.kind().key_path().map(Into::into));
    }
    let is_source = other.source.as_ref() == Some(&outlier.target);
    let reads_all = is_source && readings.source.is_none();
    if is_source {
        paths.extend(readings.source.into_iter().flatten());
    }
    let breaks_versions = other.target == outlier.target && other.kind().version_step().is_some();
    let has_rules = other.target == outlier.target && other.kind().rules().is_some_and(|_| true);
    if reads_all || breaks_versions || has_rules || paths.iter().any(|path| overlap(path, field)) {
        return Err(outlier.refusal(
            ErrorCode::PatternFieldConflict,
            Some(field),
            format!(
                "{} '{}' of {} has to do with '{field}' of {}, which continues in pages: a pattern sees the inline part only",
                other.declaration.kind_name, other.declaration.name, other.target, outlier.target
            ),
        ));
    }
    Ok(())
}

/// The records of documents that have pages.
pub(crate) fn owners_in(snapshot: &Snapshot, paged: &Paged, operation: &Operation) -> Result<Vec<RecordId>> {
    let mut owners: Vec<RecordId> = Vec::new();
    for (at, page) in records::ids(snapshot, paged.overflow, .., Direction::Forward).enumerate() {
        if at % 1024 == 0 {
            operation.check()?;
        }
        let owner = records::page_owner(page?);
        if owners.last() != Some(&owner) {
            owners.push(owner);
        }
    }
    Ok(owners)
}

/// Stores a document as its pattern divides it. None if its collection is gone, false if it is stored so already.
pub(crate) fn repage(unit: &mut Unit<'_>, pattern: &Arc<Pattern>, record: RecordId) -> Result<Option<bool>> {
    loop {
        unit.operation.check()?;
        let Some(collection) = unit.enter(&pattern.target)? else { return Ok(None) };
        let Some(paged) = collection.shape.paged() else { return Ok(Some(false)) };
        let row: RowId = record.into();
        let result = unit.lock_record(&collection, row).and_then(|head| {
            let Some(head) = head else { return Ok(false) };
            let source = Newest { transaction: unit.transaction(), in_snapshot: false };
            if expected(&source, paged, row, head.document())?.is_none() {
                return Ok(false);
            }
            let whole = records::whole_of_pages(&source, paged, row, head.document())?;
            let after = whole.as_ref().map_or(head.document(), Document::as_raw);
            let cause = Cause::Pattern(slice::from_ref(pattern));
            let mut change = Change::update(&collection, row, Before::of(head.document()), after, cause);
            change.array = ArrayForm::Whole;
            door::write(unit, change, &|_| false)?;
            Ok(true)
        });
        match result {
            Ok(repaged) => return unit.written().map(|()| Some(repaged)),
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}

/// A document with the flag and the count that follow from its array and its pages; none where it has them and its array is
/// divided as it should be.
pub(crate) fn expected<S: records::Source>(
    source: &S,
    paged: &Paged,
    row: RowId,
    head: RawDocument<'_>,
) -> Result<Option<Document>> {
    let paging = &paged.paging;
    let (mut pages, mut further, mut is_sound) = (0, 0, true);
    for page in records::page_walk(source, paged, row) {
        let page = page?;
        let page = page.document();
        let id = page.get("_id").and_then(RawValue::as_document);
        let of = id.and_then(|id| id.get("of")).map(RawValue::to_value);
        let own = head.get("_id").map(RawValue::to_value);
        let bytes = |id: &Option<Value>| id.clone().map(|id| doc! {"": id}.into_bytes());
        is_sound &=
            bytes(&of) == bytes(&own) && elements_of(page).is_some_and(|own| own.len() == page_len(page));
        pages += 1;
        further += page_len(page) as u64;
    }
    let array = paging.array(head);
    let inline = array.map_or(0, RawArray::len) as u64;
    let has_pages = pages > 0 || array.is_some_and(|array| paging.inline_len(array, false).is_some());
    let expected = paging.head(head, usize::MAX, inline + further, has_pages);
    let is_same = expected.as_bytes() == head.as_bytes();
    let is_divided = pages > 0 || !has_pages;
    Ok((!(is_same && is_sound && is_divided)).then_some(expected))
}
