//! An older version of a collection's documents, under a name of its own.
//!
//! It is the same collection: the same records, the same lock. Documents are shown in the older version
//! (module `patches`), and what is written is stored in the current one (module `write`). Indexes over paths that differ
//! between versions are not among its indexes, for their keys are made of documents of the current version.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::Versions;
use kilim_query::expression::Dependencies;

use super::{Catalog, Collection};
use crate::index::IndexSpec;
use crate::namespace::Namespace;

/// What a name shows of a collection.
#[derive(Debug)]
pub struct Alias {
    /// The name under which the collection shows the current version.
    pub base: Namespace,
    pub version: i32,
    pub(crate) versions: Versions,
}

impl Alias {
    /// A document of the current version as it is shown under this name.
    pub(crate) fn shown(&self, document: RawDocument<'_>) -> Result<Document> {
        self.versions.shown(document, self.version)
    }
}

impl Collection {
    /// The older versions that are shown of its documents.
    pub(super) fn aliases(&self) -> Vec<Collection> {
        let Some(versions) = self.shape.versions() else { return Vec::new() };
        let names = versions.aliases(&self.namespace.collection);
        let of = |(version, name): (i32, Box<str>)| {
            let namespace = Namespace { database: self.namespace.database.clone(), collection: name.into() };
            let alias = Alias { base: self.namespace.clone(), version, versions: versions.clone() };
            let is_same = |spec: &IndexSpec| !differs(versions, spec);
            let indexes = self.indexes.iter().filter(|index| is_same(&index.spec)).cloned().collect();
            Collection {
                namespace,
                indexes,
                building: Arc::from([]),
                alias: Some(Arc::new(alias)),
                ..self.clone()
            }
        };
        names.into_iter().map(of).collect()
    }

    /// The name by which patterns know its documents.
    pub(crate) fn base(&self) -> &Namespace {
        self.alias.as_ref().map_or(&self.namespace, |alias| &alias.base)
    }
}

impl Catalog {
    /// Refuses to take the name of an older version for a collection of its own.
    pub fn check_no_alias(&self, namespace: &Namespace) -> Result<()> {
        match self.alias(namespace) {
            Some(alias) => Err(Error::user(
                ErrorCode::VersionInUse,
                format!(
                    "{namespace} is version {} of {}: documents are read and written there, all else is asked of {}",
                    alias.version, alias.base, alias.base
                ),
            )),
            None => Ok(()),
        }
    }
}

impl Catalog {
    /// Refuses names of older versions that are taken by other collections. Those of the collection whose place it takes
    /// become free.
    pub(crate) fn check_aliases_free(&self, collection: &Collection) -> Result<()> {
        let displaced = self.get(&collection.namespace).map(|displaced| displaced.id);
        let taken = |alias: &Collection| {
            let name = &alias.namespace;
            let becomes_free = |found: &Collection| found.alias.is_some() && Some(found.id) == displaced;
            let other = |found: &Arc<Collection>| found.id != collection.id && !becomes_free(found);
            self.documents(name).is_some_and(other) || self.view(name).is_some()
        };
        match collection.aliases().iter().find(|alias| taken(alias)) {
            Some(alias) => Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("an older version would be shown as {}, which exists already", alias.namespace),
            )),
            None => Ok(()),
        }
    }
}

/// Whether an index has other keys for documents of other versions.
pub(crate) fn differs(versions: &Versions, spec: &IndexSpec) -> bool {
    let mut needed = Dependencies::default();
    if let Some((_, condition)) = &spec.partial {
        condition.dependencies(&mut needed);
    }
    spec.depends_on(|path| versions.touches(path.as_str()))
        || needed.whole_document
        || needed.fields.iter().any(|path| versions.touches(path))
}
