//! Schema changes: create, drop and rename collections.
//!
//! Every change follows one order: the collection's lock, held whole so that no writer is inside;
//! then `ids`, so that changes of the catalog follow each other; then one durable commit; then the
//! new catalog. Writers take the locks in the same order, so neither waits for the other for ever.

mod capped;
mod out;
mod view;

use std::sync::Arc;

use kilim_bson::{Document, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Durability, Space, Transaction};

pub use capped::{clone_as_capped, convert as convert_to_capped};
pub use out::out;

use crate::catalog::{Collection, forget, not_found, save};
use crate::change_log::{Kind, SchemaChange};
use crate::engine::Engine;
use crate::ids::{CollectionId, PatternId};
use crate::layout;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::owned_pages;
use crate::records::Shape;
use crate::unit::Unit;
use crate::upkeep::{are_same, ending_with, put_changes};

impl Engine {
    /// `drop`: gives back the collection that was dropped. The indexes go with it that were made for its patterns.
    pub fn drop_collection(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
    ) -> Result<Arc<Collection>> {
        let patterns = self.patterns();
        let collection = self.drop_collection_only(operation, namespace)?;
        let now = self.patterns();
        for gone in patterns.of(&namespace.database).iter().filter(|old| now.by_id(old.id).is_none()) {
            self.drop_supporting_index(operation, gone)?;
        }
        Ok(collection)
    }

    fn drop_collection_only(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
    ) -> Result<Arc<Collection>> {
        let (_turn, collection, _held) = loop {
            let turn = self.take_turn(operation, &namespace.database)?;
            if namespace.holds_definitions() {
                // Their fields stay, so they must be true.
                for pattern in self.patterns().of(&namespace.database) {
                    self.finish_pending(operation, pattern)?;
                }
                self.drop_all_patterns(operation, &namespace.database)?;
            }
            let (collection, held) = self.hold(operation, namespace)?;
            // Nobody can insert a definition now.
            if !self.holds_patterns(namespace) && !self.needs_turn(&turn, &namespace.database) {
                break (turn, collection, held);
            }
        };
        if let Shape::Pages = collection.shape {
            return Err(owned_pages(namespace));
        }
        self.leave_patterns(operation, &collection, &[collection.id])?;
        let pages = self.pages_of(&collection);
        let mut unit = match namespace.holds_definitions() {
            true => Unit::new(self, operation.clone(), Durability::Durable),
            false => self.definitions_unit(operation, &namespace.database)?,
        };
        let ids = self.ids.lock();
        let before = self.patterns();
        let ended = ending_with(&before, namespace);
        let after = before.without(&ended)?;
        put_changes(&mut unit, &before, &after, &|namespace| self.collection(namespace))?;
        for gone in [Some(&collection), pages.as_ref()].into_iter().flatten() {
            forget(unit.transaction(), gone);
            self.log(unit.transaction(), &SchemaChange::of(gone, Kind::Drop, Document::new()));
        }
        unit.settle()?;
        self.publish_patterns(after);
        self.publish(|catalog| {
            catalog.remove(namespace);
            pages.iter().for_each(|pages| drop(catalog.remove(&pages.namespace)));
        });
        drop(ids);
        ended.iter().for_each(|id| self.kill_jobs_of(*id));
        self.cursors.close_of_collection(collection.id);
        collection.end_builds();
        Ok(collection)
    }

    /// The pages of a collection's long arrays. Nobody writes to them but with the collection's documents.
    fn pages_of(&self, collection: &Collection) -> Option<Arc<Collection>> {
        self.catalog().by_id(collection.shape.paged()?.overflow).cloned()
    }

    /// `dropDatabase`: collections and views go in one commit, so that a crash leaves all of them or none. Patterns go
    /// in a commit before. Collections that are made meanwhile stay: otherwise writers could keep this from ending.
    pub fn drop_database(&self, operation: &Arc<Operation>, name: &str) -> Result<()> {
        // Their patterns say how their records are to be read, so these go together.
        let is_shaped = |collection: &&Arc<Collection>| {
            collection.shape.versions().is_some() || collection.shape.paged().is_some()
        };
        for collection in self.catalog().database(name).filter(is_shaped) {
            self.drop_collection(operation, &collection.namespace)?;
        }
        loop {
            self.drop_all_patterns(operation, name)?;
            let mut all: Vec<Arc<Collection>> = self.catalog().database(name).cloned().collect();
            // By id, as everybody does who holds several.
            all.sort_unstable_by_key(|collection| collection.id);
            let _held = self.hold_together(operation, &all)?;
            let ids = self.ids.lock();
            if !self.patterns().of(name).is_empty() {
                // Declared while we waited.
                continue;
            }
            // What was dropped, renamed or given an index while we waited is taken as it is now.
            let catalog = self.catalog();
            let now = all.iter().filter_map(|seen| catalog.by_id(seen.id));
            let gone: Vec<Arc<Collection>> =
                now.filter(|collection| collection.namespace.database == name).cloned().collect();
            let views: Vec<Namespace> =
                catalog.database_views(name).map(|view| view.namespace.clone()).collect();
            let mut transaction = self.store.begin();
            for collection in &gone {
                forget(&mut transaction, collection);
                let dropped = SchemaChange::of(collection, Kind::Drop, Document::new());
                self.log(&mut transaction, &dropped);
            }
            if !gone.is_empty() || !views.is_empty() {
                let database = Namespace { database: name.to_owned(), collection: String::new() };
                let dropped = SchemaChange::without_uuid(&database, Kind::DropDatabase, Document::new());
                self.log(&mut transaction, &dropped);
            }
            for view in &views {
                transaction.delete(Space::Meta, &layout::view_meta_key(view));
            }
            transaction.commit(Durability::Durable)?;
            self.publish(|catalog| {
                for collection in &gone {
                    catalog.remove(&collection.namespace);
                }
                for view in &views {
                    catalog.remove_view(view);
                }
            });
            drop(ids);
            for collection in gone {
                self.cursors.close_of_collection(collection.id);
                collection.end_builds();
            }
            return Ok(());
        }
    }

    /// `renameCollection`: ids stay, so nothing but the catalog changes, across databases too. A target that
    /// is dropped goes in the same commit.
    pub fn rename_collection(
        &self,
        operation: &Arc<Operation>,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        to.check_creatable()?;
        if from.of_measurements().is_some() || to.of_measurements().is_some() {
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
        loop {
            let turn = self.take_turn(operation, &from.database)?;
            let collection = self.collection(from).ok_or_else(|| not_found(from))?;
            if from == to {
                return Err(Error::user(ErrorCode::IllegalOperation, "Can't rename a collection to itself"));
            }
            if let Some(pages) = [&collection.namespace, to]
                .into_iter()
                .find(|name| self.collection(name).is_some_and(|it| matches!(it.shape, Shape::Pages)))
            {
                return Err(owned_pages(pages));
            }
            let target = self.collection(to);
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
            let _held = self.hold_together(operation, &all)?;
            if self.needs_turn(&turn, &from.database) {
                continue;
            }
            let held: Vec<CollectionId> = all.iter().map(|each| each.id).collect();
            if from.database != to.database || from.holds_definitions() || to.holds_definitions() {
                // Refused before anything is done.
                self.patterns_renamed(&self.patterns(), from, to, &mut || PatternId(0))?;
            }
            if let Some(target) = &target
                && self.collection(to).is_some_and(|now| now.id == target.id)
            {
                self.leave_patterns(operation, target, &held)?;
            }
            let mut unit = self.definitions_unit(operation, &from.database)?;
            let mut ids = self.ids.lock();
            // Dropped, renamed or made while we waited: look again by name.
            let (current, displaced) = match (self.collection(from), self.collection(to)) {
                (Some(current), displaced)
                    if current.id == collection.id
                        && displaced.as_ref().map(|now| now.id) == target.as_ref().map(|seen| seen.id) =>
                {
                    (current, displaced)
                }
                _ => continue,
            };
            if self.related_collections([from, to]) != related || !are_same(&all, &concerned()) {
                continue;
            }
            self.check_case(&to.database)?;
            let renamed =
                Arc::new(Collection { namespace: to.clone(), temporary: false, ..(*current).clone() });
            self.catalog().check_aliases_free(&renamed)?;
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
            self.log_renamed(unit.transaction(), from, &renamed, dropped);
            ids.save(unit.transaction());
            unit.settle()?;
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

    /// Tells the change log that a collection has another name, and which one went for it.
    fn log_renamed(
        &self,
        transaction: &mut Transaction,
        from: &Namespace,
        renamed: &Collection,
        dropped: Option<[u8; 16]>,
    ) {
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
