//! Schema changes: create, drop and rename collections.
//!
//! Every change follows one order: the collection's lock, held whole so that no writer is inside;
//! then `ids`, so that changes of the catalog follow each other; then one durable commit; then the
//! new catalog. Writers take the locks in the same order, so neither waits for the other for ever.

mod across;
mod capped;
mod out;
mod rename;
mod view;

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::Result;
use kilim_storage::{Durability, Space};

pub use capped::{clone_as_capped, convert as convert_to_capped};
pub use out::{out, out_measurements};

use crate::catalog::{Collection, View, forget};
use crate::change_log::{Kind, SchemaChange};
use crate::engine::Engine;
use crate::layout;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::Pattern;
use crate::patterns::owned_pages;
use crate::records::Shape;
use crate::unit::Unit;
use crate::upkeep::{ending_with, put_changes};

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
        // Of buckets it tells that the view of their measurements goes.
        let measurements = View::of_buckets(&collection);
        for gone in [Some(&collection), pages.as_ref()].into_iter().flatten() {
            forget(unit.transaction(), gone);
            let dropped = match &measurements {
                Some(view) => SchemaChange::of_view(view, Kind::Drop, Document::new()),
                None => SchemaChange::of(gone, Kind::Drop, Document::new()),
            };
            // Of buckets in the making nobody has been told that there is a view.
            if !(gone.temporary && measurements.is_some()) {
                self.log(unit.transaction(), &dropped);
            }
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
    pub(super) fn pages_of(&self, collection: &Collection) -> Option<Arc<Collection>> {
        self.catalog().by_id(collection.shape.paged()?.overflow).cloned()
    }

    /// `dropPattern`: its fields stay as plain fields with the right values. The collection of its pages goes, which are empty.
    pub fn drop_pattern(&self, operation: &Arc<Operation>, pattern: &Arc<Pattern>) -> Result<()> {
        self.end_pattern(operation, pattern)?;
        let overflow = pattern.target.of_overflow();
        if pattern.kind().paging().is_some() && self.collection(&overflow).is_some() {
            self.drop_collection(operation, &overflow)?;
        }
        Ok(())
    }

    /// `dropDatabase`: collections and views go in one commit, so that a crash leaves all of them or none. Patterns go
    /// in a commit before. Collections that are made meanwhile stay: otherwise writers could keep this from ending.
    pub fn drop_database(&self, operation: &Arc<Operation>, name: &str) -> Result<()> {
        // Their patterns say how their records are to be read, so these go together.
        let is_shaped = |collection: &&Arc<Collection>| {
            let shape = &collection.shape;
            shape.versions().is_some() || shape.paged().is_some() || shape.bucketing().is_some()
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
                let dropped = SchemaChange::of_database(&database, Kind::DropDatabase);
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
}
