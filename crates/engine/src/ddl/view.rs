//! Views made, changed and dropped. Their definitions change under the same lock as collections do.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Durability, Space};

use crate::catalog::{Catalog, SYSTEM_VIEWS, View, not_found};
use crate::change_log::{Kind, SchemaChange};
use crate::engine::{Engine, new_uuid};
use crate::layout;
use crate::namespace::Namespace;

impl Engine {
    /// `create` with `viewOn`.
    pub fn create_view(&self, view: View) -> Result<()> {
        view.namespace.check_creatable()?;
        view.check_on()?;
        let _ids = self.ids.lock();
        let catalog = self.catalog();
        self.check_view_is_new(&view.namespace)?;
        self.check_case(&view.namespace.database)?;
        self.put_view(&catalog, view, Kind::Create)
    }

    /// Refuses a name that is taken.
    pub fn check_view_is_new(&self, namespace: &Namespace) -> Result<()> {
        let catalog = self.catalog();
        catalog.check_no_alias(namespace)?;
        self.patterns().check_no_restored_alias(namespace)?;
        let message = if catalog.view(namespace).is_some() {
            "Namespace already exists".to_owned()
        } else if catalog.get(namespace).is_some() {
            format!("Cannot create collection {namespace} - collection already exists.")
        } else {
            return Ok(());
        };
        Err(Error::user(ErrorCode::NamespaceExists, message))
    }

    /// `collMod` of a view: gives it another definition.
    pub fn modify_view(&self, view: View) -> Result<()> {
        view.check_on()?;
        let _ids = self.ids.lock();
        let catalog = self.catalog();
        let Some(now) = catalog.view(&view.namespace) else { return Err(not_found(&view.namespace)) };
        if now.shows_packed {
            return Err(now.is_no_collection());
        }
        self.put_view(&catalog, view, Kind::Modify)
    }

    fn put_view(&self, catalog: &Catalog, mut view: View, kind: Kind) -> Result<()> {
        catalog.check_view(&view)?;
        let uuid = catalog.views_uuid(&view.namespace.database);
        view.uuid = uuid.or_else(|| Some(new_uuid(self.environment())));
        let mut transaction = self.store.begin();
        let key = layout::view_meta_key(&view.namespace);
        transaction.put(Space::Meta, key, view.to_stored().into_bytes());
        self.log_view(&mut transaction, &view, kind);
        transaction.commit(Durability::Durable)?;
        self.publish(|catalog| catalog.insert_view(Arc::new(view)));
        Ok(())
    }

    /// `drop` of a view; whether there was one.
    pub fn drop_view(&self, namespace: &Namespace) -> Result<bool> {
        let _ids = self.ids.lock();
        let catalog = self.catalog();
        let Some(view) = catalog.view(namespace) else { return Ok(false) };
        if view.shows_packed {
            return Err(view.is_no_collection());
        }
        let mut transaction = self.store.begin();
        transaction.delete(Space::Meta, &layout::view_meta_key(namespace));
        let dropped = SchemaChange::of_view(view, Kind::Drop, Document::new());
        self.log(&mut transaction, &dropped);
        transaction.commit(Durability::Durable)?;
        self.publish(|catalog| {
            catalog.remove_view(namespace);
        });
        Ok(true)
    }

    /// `drop` of `system.views`: all views of a database go, and no event tells of it, as on MongoDB.
    pub fn drop_views(&self, database: &str) -> Result<()> {
        let _ids = self.ids.lock();
        let catalog = self.catalog();
        let system_views =
            || Namespace { database: database.to_owned(), collection: SYSTEM_VIEWS.to_owned() };
        if catalog.database_views(database).any(|view| view.time_series.is_some()) {
            return Err(Error::user(
                ErrorCode::CommandFailed,
                format!(
                    "cannot drop collection {} when time-series collections are present.",
                    system_views()
                ),
            ));
        }
        let views: Vec<Namespace> =
            catalog.database_views(database).map(|view| view.namespace.clone()).collect();
        if views.is_empty() {
            return Err(not_found(&system_views()));
        }
        let mut transaction = self.store.begin();
        for view in &views {
            transaction.delete(Space::Meta, &layout::view_meta_key(view));
        }
        transaction.commit(Durability::Durable)?;
        self.publish(|catalog| {
            for view in &views {
                catalog.remove_view(view);
            }
        });
        Ok(())
    }
}
