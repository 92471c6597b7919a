//! Renames: a collection gets another name, and its patterns follow.

use std::sync::Arc;

use kilim_bson::{Document, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Transaction;

use crate::catalog::{Collection, View, forget, not_found, save};
use crate::change_log::{Kind, SchemaChange};
use crate::engine::Engine;
use crate::fail_point::Moment;
use crate::ids::{CollectionId, PatternId};
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::owned_pages;
use crate::records::Shape;
use crate::upkeep::{are_same, ending_with, put_changes};

impl Engine {
    /// `renameCollection`: ids stay, so nothing but the catalog changes, across databases too. A target that
    /// is dropped goes in the same commit. Across databases the change log tells of a copy (module `across`).
    pub fn rename_collection(
        &self,
        operation: &Arc<Operation>,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        self.check_names_of_rename(from, to)?;
        loop {
            let turn = self.take_turn(operation, &from.database)?;
            let (collection, target) = (self.collection(from), self.collection(to));
            self.check_expected(operation, from, collection.as_deref())?;
            self.check_expected(operation, to, target.as_deref())?;
            let collection = collection.ok_or_else(|| not_found(from))?;
            if from == to {
                return Err(Error::user(ErrorCode::IllegalOperation, "Can't rename a collection to itself"));
            }
            let is_pages = |name: &&Namespace| {
                self.collection(name).is_some_and(|collection| matches!(collection.shape, Shape::Pages))
            };
            if let Some(pages) = [from, to].into_iter().find(is_pages) {
                return Err(owned_pages(pages));
            }
            if target.is_some() && !drop_target {
                return Err(Error::user(ErrorCode::NamespaceExists, "target namespace exists"));
            }
            if collection.collation.is_some() {
                self.patterns().check_no_patterns(to)?;
            }
            // Patterns follow, so nobody may be on his way from one of their collections to another.
            let related = self.related_collections([from, to]);
            let concerned = || self.existing(related.iter().chain([from, to]));
            let all = concerned();
            self.moments.pass(Moment::RenameLooked);
            let _held = self.hold_together(operation, &all)?;
            if self.needs_turn(&turn, &from.database) {
                continue;
            }
            // Dropped, renamed or made while we waited. Asked before the first document of the target goes; what is held
            // stays as it is then.
            let seen = |name: &Namespace| self.collection(name).map(|now| now.id);
            let is_as_seen = || {
                seen(from) == Some(collection.id)
                    && seen(to) == target.as_ref().map(|target| target.id)
                    && self.related_collections([from, to]).iter().all(|name| related.contains(name))
                    && are_same(&all, &concerned())
            };
            if !is_as_seen() {
                continue;
            }
            let held: Vec<CollectionId> = all.iter().map(|each| each.id).collect();
            if from.database != to.database || from.holds_definitions() || to.holds_definitions() {
                // Refused before anything is done.
                self.patterns_renamed(&self.patterns(), from, to, &mut || PatternId(0))?;
            }
            // As it is now: an index may have been built while we waited, and its entries go with the documents.
            if let Some(target) = self.collection(to) {
                self.leave_patterns(operation, &target, &held)?;
            }
            self.moments.pass(Moment::RenameEmptied);
            let is_across = from.database != to.database;
            let mut told = match is_across {
                true => self.tell_of_copy(operation, &collection, to)?,
                false => None,
            };
            let mut unit = self.definitions_unit(operation, &from.database)?;
            let mut ids = self.ids.lock();
            let (Some(current), true) = (self.collection(from), is_as_seen()) else { continue };
            let displaced = self.collection(to);
            self.check_case(&to.database)?;
            let renamed =
                Arc::new(Collection { namespace: to.clone(), temporary: false, ..(*current).clone() });
            self.catalog().check_aliases_free(&renamed)?;
            self.check_name_of_measurements_free(to)?;
            let pages = self.pages_of(&current);
            let displaced_pages = displaced.as_ref().and_then(|displaced| self.pages_of(displaced));
            let moved = pages
                .as_ref()
                .map(|pages| Arc::new(Collection { namespace: to.of_overflow(), ..(**pages).clone() }));
            if let Some(moved) = &moved
                && displaced_pages.is_none()
                && (self.collection(&moved.namespace).is_some() || self.view(&moved.namespace).is_some())
            {
                return Err(Error::user(
                    ErrorCode::NamespaceExists,
                    format!(
                        "the pages of long arrays would lie in {}, which exists already",
                        moved.namespace
                    ),
                ));
            }
            let buckets = to.of_packed();
            let is_taken = self.catalog().documents(&buckets).is_some()
                || self.view(&buckets).is_some_and(|view| !view.shows_packed);
            if current.shape.bucketing().is_some() && is_taken {
                return Err(Error::user(
                    ErrorCode::NamespaceExists,
                    format!("buckets would be shown as {buckets}, which exists already"),
                ));
            }
            let before = self.patterns();
            let ended = ending_with(&before, to);
            let mut next = || PatternId(ids.next_index().0);
            let (after, filled) = self.patterns_renamed(&before, from, to, &mut next)?;
            let by_then = |namespace: &Namespace| match namespace == to {
                true => Some(renamed.clone()),
                false => self.collection(namespace),
            };
            put_changes(&mut unit, &before, &after, &by_then)?;
            for displaced in displaced.iter().chain(&displaced_pages) {
                forget(unit.transaction(), displaced);
            }
            save(unit.transaction(), &renamed);
            moved.iter().for_each(|moved| save(unit.transaction(), moved));
            let dropped = displaced.as_ref().map(|displaced| displaced.uuid);
            match (is_across, &told) {
                (false, _) => self.log_renamed(unit.transaction(), from, &renamed, dropped),
                (true, told) => {
                    if let Some(told) = told {
                        self.log_renamed(unit.transaction(), told.namespace(), &renamed, dropped);
                    }
                    let gone = SchemaChange::of(&current, Kind::Drop, Document::new());
                    self.log(unit.transaction(), &gone);
                }
            }
            ids.save(unit.transaction());
            unit.settle()?;
            told.iter_mut().for_each(|told| told.is_renamed = true);
            self.publish_renamed(after, |catalog| {
                catalog.remove(from);
                catalog.insert(renamed);
                for gone in pages.iter().chain(&displaced_pages) {
                    catalog.remove(&gone.namespace);
                }
                moved.into_iter().for_each(|moved| catalog.insert(moved));
            });
            drop(ids);
            displaced.iter().for_each(|displaced| displaced.end_builds());
            ended.iter().for_each(|id| self.kill_jobs_of(*id));
            for pattern in self.patterns().iter().filter(|pattern| filled.contains(&pattern.id)) {
                self.begin_filling(pattern);
            }
            self.resume_pending()?;
            for closed in [Some(current), displaced].into_iter().flatten() {
                self.cursors.close_of_collection(closed.id);
            }
            return Ok(());
        }
    }

    /// Refuses a collection of buckets where another collection or view has the name of its measurements.
    fn check_name_of_measurements_free(&self, buckets: &Namespace) -> Result<()> {
        let Some(name) = buckets.of_measurements() else { return Ok(()) };
        let is_other = |view: Arc<View>| view.time_series.is_none();
        match self.collection(&name).is_some() || self.view(&name).is_some_and(is_other) {
            true => Err(Error::user(ErrorCode::NamespaceExists, format!("{name} exists already"))),
            false => Ok(()),
        }
    }

    /// Refuses names that no rename can begin or end with, whatever collections there are.
    fn check_names_of_rename(&self, from: &Namespace, to: &Namespace) -> Result<()> {
        to.check_creatable()?;
        // What a stage has put together for a time-series collection takes its place.
        let takes_place =
            to.of_measurements().is_some() && self.collection(from).is_some_and(|made| made.temporary);
        if (from.of_measurements().is_some() || to.of_measurements().is_some()) && !takes_place {
            return Err(Error::user(
                ErrorCode::IllegalOperation,
                "Renaming system.buckets collections is not allowed",
            ));
        }
        if self.view(from).is_some() {
            return Err(Error::user(
                ErrorCode::CommandNotSupportedOnView,
                format!("cannot rename view: {from}"),
            ));
        }
        if self.view(to).is_some() {
            return Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("a view already exists with that name: {to}"),
            ));
        }
        self.catalog().check_no_alias(from)?;
        self.catalog().check_no_alias(to)?;
        self.patterns().check_no_restored_alias(to)
    }

    /// Tells the change log that a collection has another name, and which one went for it. Of buckets that a stage has put
    /// together it tells the view of their measurements, where that is new.
    pub(super) fn log_renamed(
        &self,
        transaction: &mut Transaction,
        from: &Namespace,
        renamed: &Collection,
        dropped: Option<[u8; 16]>,
    ) {
        if let Some(view) = View::of_buckets(renamed) {
            if dropped.is_none() {
                self.log_view(transaction, &view, Kind::Create);
            }
            return;
        }
        let to = doc! {"db": &*renamed.namespace.database, "coll": &*renamed.namespace.collection};
        let mut about = doc! {"to": to.clone()};
        if let Some(uuid) = dropped {
            about.push("dropTarget", Value::Binary { subtype: 4, bytes: uuid.as_slice().into() });
        }
        let details = doc! {"to": to, "operationDescription": about};
        let rename = SchemaChange::of(renamed, Kind::Rename, details);
        self.log(transaction, &SchemaChange { namespace: from, ..rename });
    }
}
