//! Collections described anew: made, held against writers, given other options.
//!
//! Every change follows one order: the collection's lock, held whole so that no writer is inside; then `ids`, so that
//! changes of the catalog follow each other; then one durable commit; then the new catalog. Writers take the locks in the
//! same order, so neither waits for the other for ever.

use std::sync::Arc;
use std::time::Duration;

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{CommitTime, Durability, Environment, Transaction};

use super::Engine;
use crate::catalog::{
    Capped, Collection, Held, Ids, Shared, Validation, View, not_found, save, time_series_of,
};
use crate::change_log::{IMAGES_OPTION, Kind, SchemaChange};
use crate::ids::{CollectionId, IndexId, SessionId};
use crate::index::{Index, IndexSpec, Multikey, Usage, collation_of};
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::owned_pages;
use crate::records::Shape;

/// Makes other options of those that a collection has, or refuses to.
pub type ChangeOptions<'m> = &'m dyn Fn(RawDocument<'_>) -> Result<Document>;

/// Makes another specification of an index's.
pub type ChangeIndex<'m> = &'m dyn Fn(&mut IndexSpec);

/// What `collMod` asks of a collection.
#[derive(Default)]
pub struct Modification<'m> {
    pub options: Option<ChangeOptions<'m>>,
    /// Changes what an index is, without a change of its entries: whether it is hidden, when documents expire.
    pub index: Option<(IndexId, ChangeIndex<'m>)>,
    /// What the event says of it.
    pub description: Document,
    /// What the event says of the index before.
    pub index_before: Option<Document>,
}

/// Options in the order in which events have them.
fn images_first(options: &Document) -> impl Iterator<Item = (&str, RawValue<'_>)> {
    let images = options.iter().filter(|(name, _)| *name == IMAGES_OPTION);
    images.chain(options.iter().filter(|(name, _)| *name != IMAGES_OPTION))
}

/// Short turns: while somebody waits for a collection as a whole, new writers wait behind it.
const TURN: Duration = Duration::from_millis(10);

impl Engine {
    /// `create`: fails where the collection exists, unless with the same options.
    pub fn create_collection(&self, namespace: &Namespace, options: Document) -> Result<CommitTime> {
        let mut ids = self.ids.lock();
        if let Some(view) = self.view(namespace) {
            let kind = if view.time_series.is_some() { "timeseries collection" } else { "view" };
            return Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("A {kind} already exists. NS: {namespace}"),
            ));
        }
        if let Some(existing) = self.collection(namespace) {
            if existing.options == options {
                return Ok(self.store.last_commit_time());
            }
            return Err(exists(namespace));
        }
        let mut transaction = self.store.begin();
        let collection = self.new_collection(&mut ids, namespace, options)?;
        save(&mut transaction, &collection);
        self.log_created(&mut transaction, &collection, None);
        ids.save(&mut transaction);
        let time = transaction.commit(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(Arc::new(collection)));
        Ok(time)
    }

    /// `create` with `timeseries`: makes the collection of buckets, whose measurements are seen under this name.
    pub fn create_time_series(&self, namespace: &Namespace, options: Document) -> Result<CommitTime> {
        let mut ids = self.ids.lock();
        let buckets = namespace.of_buckets();
        let taken = |what: String| Err(Error::user(ErrorCode::NamespaceExists, what));
        if let Some(view) = self.view(namespace) {
            let is_same = |existing: Arc<Collection>| existing.options == options;
            if view.time_series.is_some() && self.collection(&buckets).is_some_and(is_same) {
                return Ok(self.store.last_commit_time());
            }
            return taken(match view.time_series {
                Some(_) => format!("A timeseries collection already exists. NS: {namespace}"),
                None => format!("A view already exists. NS: {namespace}"),
            });
        }
        if let Some(taken_by) = [namespace, &buckets].into_iter().find(|name| self.collection(name).is_some())
        {
            return taken(format!("Collection {taken_by} already exists."));
        }
        namespace.check_creatable()?;
        if namespace.of_measurements().is_some() {
            return Err(Error::user(
                ErrorCode::InvalidNamespace,
                format!(
                    "{namespace} is the name of a collection of buckets, not of a time-series collection"
                ),
            ));
        }
        self.catalog().check_no_alias(namespace)?;
        self.patterns().check_no_restored_alias(namespace)?;
        self.patterns().check_no_patterns(namespace)?;
        let mut transaction = self.store.begin();
        let collection = self.new_collection(&mut ids, &buckets, options)?;
        save(&mut transaction, &collection);
        self.log_created(&mut transaction, &collection, None);
        ids.save(&mut transaction);
        let time = transaction.commit(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(Arc::new(collection)));
        Ok(time)
    }

    /// Makes a collection that is filled before it is renamed. It is marked in the catalog, so that the next start
    /// drops it if that never happens.
    pub(crate) fn create_temporary(&self, namespace: &Namespace, options: Document) -> Result<()> {
        let mut ids = self.ids.lock();
        if self.collection(namespace).is_some() {
            return Err(exists(namespace));
        }
        let mut transaction = self.store.begin();
        let collection = Collection { temporary: true, ..self.new_collection(&mut ids, namespace, options)? };
        save(&mut transaction, &collection);
        self.log_created(&mut transaction, &collection, None);
        ids.save(&mut transaction);
        transaction.commit(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(Arc::new(collection)));
        Ok(())
    }

    /// The collection, made where it is missing, for the first write into it.
    ///
    /// Its commit is only queued: the write that follows is queued behind it, so it is durable no later
    /// than that write, which alone is waited for.
    pub(crate) fn ensure_collection(&self, namespace: &Namespace) -> Result<Arc<Collection>> {
        if let Some(collection) = self.collection(namespace) {
            return Ok(collection);
        }
        let mut ids = self.ids.lock();
        if let Some(collection) = self.collection(namespace) {
            return Ok(collection);
        }
        let collection = Arc::new(self.new_collection(&mut ids, namespace, Document::new())?);
        let mut transaction = self.store.begin();
        save(&mut transaction, &collection);
        self.log_created(&mut transaction, &collection, None);
        ids.save(&mut transaction);
        let _queued = transaction.enqueue(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(collection.clone()));
        Ok(collection)
    }

    /// A collection made inside a transaction: known to it alone until it commits.
    pub(crate) fn create_in_transaction(
        &self,
        transaction: &mut Transaction,
        of: (SessionId, i64),
        namespace: &Namespace,
        options: Document,
    ) -> Result<Arc<Collection>> {
        let collection = Arc::new(self.new_collection(&mut self.ids.lock(), namespace, options)?);
        save(transaction, &collection);
        self.log_created(transaction, &collection, Some(of));
        Ok(collection)
    }

    /// Commits a transaction that made collections.
    pub(crate) fn commit_created(
        &self,
        mut transaction: Transaction,
        created: Vec<Arc<Collection>>,
        durability: Durability,
    ) -> Result<CommitTime> {
        let ids = self.ids.lock();
        let taken = |name: &Namespace| self.collection(name).is_some() || self.view(name).is_some();
        if created.iter().any(|collection| taken(&collection.namespace)) {
            return Err(Error::Conflict("a collection of that name was made meanwhile"));
        }
        ids.save(&mut transaction);
        let time = transaction.commit(durability)?;
        self.publish(|catalog| created.into_iter().for_each(|collection| catalog.insert(collection)));
        Ok(time)
    }

    /// Tells the change log of a new collection. Of one with buckets it tells the view of the measurements.
    pub(crate) fn log_created(
        &self,
        transaction: &mut Transaction,
        collection: &Collection,
        session: Option<(SessionId, i64)>,
    ) {
        if let Some(view) = View::of_buckets(collection) {
            // One in the making gets its name without a word, so nothing is told of it.
            if !collection.temporary {
                self.log_view(transaction, &view, Kind::Create);
            }
            return;
        }
        let mut about = Document::new();
        let comes_first = |name: &str| matches!(name, "capped" | "size" | "max" | IMAGES_OPTION);
        let (first, others): (Vec<_>, Vec<_>) =
            images_first(&collection.options).partition(|(name, _)| comes_first(name));
        first.into_iter().for_each(|(name, value)| about.push(name, value));
        if collection.temporary {
            about.push("temp", true);
        }
        others.into_iter().for_each(|(name, value)| about.push(name, value));
        if !collection.clustered
            && let Some(id) = collection.indexes.first()
        {
            about.push("idIndex", id.spec.to_document());
        }
        let created = SchemaChange::of(collection, Kind::Create, doc! {"operationDescription": about});
        self.log(transaction, &SchemaChange { session, ..created });
    }

    /// Tells the change log of a view that is made or changed.
    pub(crate) fn log_view(&self, transaction: &mut Transaction, view: &View, kind: Kind) {
        let details = doc! {"operationDescription": view.options()};
        self.log(transaction, &SchemaChange::of_view(view, kind, details));
    }

    /// Tells the change log of a schema change.
    pub(crate) fn log(&self, transaction: &mut Transaction, change: &SchemaChange<'_>) {
        if self.store.logs() {
            change.log(transaction);
        }
    }

    fn new_collection(&self, ids: &mut Ids, namespace: &Namespace, options: Document) -> Result<Collection> {
        namespace.check_creatable()?;
        self.check_case(&namespace.database)?;
        self.check_no_view(namespace)?;
        self.catalog().check_no_alias(namespace)?;
        self.patterns().check_no_restored_alias(namespace)?;
        let collation = collation_of(options.as_raw())?;
        if collation.is_some() {
            self.patterns().check_no_patterns(namespace)?;
        }
        let specs = [IndexSpec::id(collation.clone())]
            .into_iter()
            .chain(self.patterns().indexes_for_patterns(namespace));
        let indexes = specs.map(|spec| {
            Arc::new(Index {
                id: ids.next_index(),
                spec,
                multikey: Multikey::default(),
                usage: Usage::default(),
                ready_since: 0,
            })
        });
        let indexes: Vec<Arc<Index>> = indexes.collect();
        let validation = Validation::of(options.as_raw())?;
        let time_series = time_series_of(options.as_raw());
        if time_series.is_some() != namespace.of_measurements().is_some() {
            return Err(Error::user(
                ErrorCode::InvalidOptions,
                format!("{namespace} is made by the create command of its time-series collection"),
            ));
        }
        Ok(Collection {
            id: ids.next_collection(),
            uuid: new_uuid(self.environment()),
            namespace: namespace.clone(),
            temporary: false,
            capped: Capped::of(options.as_raw()),
            clustered: options.get("clusteredIndex").is_some(),
            time_series,
            options,
            collation,
            validation,
            indexes: indexes.into(),
            building: Arc::from([]),
            shape: Shape::Plain,
            alias: None,
            shared: Arc::new(Shared::new(0)),
        })
    }

    /// Refuses a database that differs from another in case only.
    pub(crate) fn check_case(&self, database: &str) -> Result<()> {
        match self.catalog().database_of_other_case(database) {
            Some(other) => Err(Error::location(
                13297,
                format!(
                    "db already exists with different case already have: [{other}] trying to create [{database}]"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Takes a collection's lock whole: waits until no writer and no open transaction is inside.
    pub(crate) fn hold(
        &self,
        operation: &Operation,
        namespace: &Namespace,
    ) -> Result<(Arc<Collection>, Held)> {
        loop {
            let found = self.collection(namespace);
            self.check_expected(operation, namespace, found.as_deref())?;
            let collection = found.ok_or_else(|| not_found(namespace))?;
            let held = self.hold_whole(operation, &collection)?;
            // Dropped or renamed while we waited: look again by name.
            match self.collection(namespace) {
                Some(now) if now.id == collection.id => return Ok((now, held)),
                Some(_) => {}
                None => return Err(not_found(namespace)),
            }
        }
    }

    /// As [`Engine::hold`], of a collection whose description may be old by then.
    pub(crate) fn hold_whole(&self, operation: &Operation, collection: &Collection) -> Result<Held> {
        loop {
            match collection.shared.lock.try_write_arc_for(TURN) {
                Some(held) => return Ok(held),
                None => operation.check()?,
            }
        }
    }

    /// As [`Engine::hold_whole`], when no statement is between two documents that it changes.
    pub(crate) fn hold_between_statements(
        &self,
        operation: &Operation,
        collection: &Collection,
    ) -> Result<[Held; 2]> {
        loop {
            // Both in one turn: a statement that waits for one of them may hold the other.
            if let Some(statements) = collection.shared.statements.try_write_arc_for(TURN)
                && let Some(held) = collection.shared.lock.try_write_arc_for(TURN)
            {
                return Ok([statements, held]);
            }
            operation.check()?;
        }
    }

    /// Replaces a collection's description, on disk and in memory. The caller holds the collection.
    pub(crate) fn replace_collection(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut Collection, &mut Transaction),
    ) -> Result<Arc<Collection>> {
        let ids = self.ids.lock();
        let current = self.collection(namespace).ok_or_else(|| not_found(namespace))?;
        let mut changed = (*current).clone();
        let mut transaction = self.store.begin();
        change(&mut changed, &mut transaction);
        save(&mut transaction, &changed);
        ids.save(&mut transaction);
        transaction.commit(Durability::Durable)?;
        let changed = Arc::new(changed);
        self.publish(|catalog| catalog.insert(changed.clone()));
        Ok(changed)
    }

    /// `collMod` of a collection: one commit, with its event.
    pub fn modify_collection(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        asked: &Modification<'_>,
    ) -> Result<()> {
        let (collection, _held) = self.hold(operation, namespace)?;
        if let Shape::Pages = collection.shape {
            return Err(owned_pages(namespace));
        }
        let mut described = (*collection).clone();
        if let Some(options) = asked.options {
            described.set_options(options(collection.options.as_raw())?)?;
        }
        if let Some(paged) = collection.shape.paged() {
            described.check_validator(&paged.paging.field)?;
        }
        let changed = self.replace_collection(namespace, |collection, transaction| {
            self.log_modified(transaction, collection, asked);
            let unpacking = collection.time_series.as_ref().map(|series| series.unpacking());
            collection.options = described.options;
            collection.validation = described.validation;
            collection.capped = described.capped;
            collection.time_series = described.time_series;
            // Of measurements it tells when their view is another one, and nothing else.
            if let Some(view) = View::of_buckets(collection)
                && collection.time_series.as_ref().map(|series| series.unpacking()) != unpacking
            {
                self.log_view(transaction, &view, Kind::Modify);
            }
            if let Some((id, change)) = asked.index {
                collection.change_index(id, change);
            }
        })?;
        if asked.index.is_some() {
            changed.shared.plan_cache.clear();
        }
        Ok(())
    }

    /// Tells the change log of indexes that come or go, in one event.
    pub(crate) fn log_indexes(
        &self,
        transaction: &mut Transaction,
        kind: Kind,
        collection: &Collection,
        indexes: &[&IndexSpec],
        session: Option<(SessionId, i64)>,
    ) {
        let indexes: Array = indexes.iter().map(|spec| Value::Document(as_told(spec))).collect();
        let details = doc! {"operationDescription": {"indexes": indexes}};
        self.log(transaction, &SchemaChange { session, ..SchemaChange::of(collection, kind, details) });
    }

    /// Tells the change log of a `collMod`.
    fn log_modified(&self, transaction: &mut Transaction, collection: &Collection, asked: &Modification<'_>) {
        let mut before = Document::new();
        before.push("uuid", Value::Binary { subtype: 4, bytes: collection.uuid.as_slice().into() });
        images_first(&collection.options).for_each(|(name, value)| before.push(name, value));
        let mut before = doc! {"collectionOptions": before};
        if let Some(options) = &asked.index_before {
            before.push("indexOptions", options.clone());
        }
        let details = doc! {"operationDescription": asked.description.clone(), "stateBeforeChange": before};
        self.log(transaction, &SchemaChange::of(collection, Kind::Modify, details));
    }

    /// Replaces a collection's description in memory alone, for what does not outlive the process.
    pub(crate) fn replace_in_memory(&self, id: CollectionId, change: impl FnOnce(&mut Collection)) {
        let _ids = self.ids.lock();
        let catalog = self.catalog();
        let Some(current) = catalog.by_id(id) else { return };
        let mut changed = (**current).clone();
        change(&mut changed);
        self.publish(|catalog| catalog.insert(Arc::new(changed)));
    }

    /// Widens what is known of an index's arrays before the keys that need it are written.
    ///
    /// Queued ahead of those keys, so it is durable no later than they are. A wider set than the keys
    /// need is harmless: the planner is only more careful.
    pub(crate) fn widen_multikey(&self, id: CollectionId, index: IndexId, seen: &Multikey) -> Result<()> {
        let _ids = self.ids.lock();
        let catalog = self.catalog();
        let Some(current) = catalog.by_id(id) else { return Ok(()) };
        let mut changed = (**current).clone();
        changed.widen_multikey(index, seen);
        let mut transaction = self.store.begin();
        save(&mut transaction, &changed);
        let _queued = transaction.enqueue(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(Arc::new(changed)));
        Ok(())
    }

    /// Refuses to take a view for a collection.
    pub fn check_no_view(&self, namespace: &Namespace) -> Result<()> {
        match self.view(namespace) {
            Some(view) => Err(view.is_no_collection()),
            None => Ok(()),
        }
    }
}

fn exists(namespace: &Namespace) -> Error {
    Error::user(ErrorCode::NamespaceExists, format!("Collection already exists. NS: {namespace}"))
}

/// An index as events tell of it: mongod has these before the key there, and behind it in listIndexes.
fn as_told(spec: &IndexSpec) -> Document {
    const FIRST: [&str; 4] = ["v", "unique", "prepareUnique", "hidden"];
    let (document, mut told) = (spec.to_document(), Document::new());
    for name in FIRST {
        if let Some(value) = document.get(name) {
            told.push(name, value);
        }
    }
    for (name, value) in document.iter().filter(|(name, _)| !FIRST.contains(name)) {
        told.push(name, value);
    }
    told
}

/// A random UUID (version 4).
pub fn new_uuid(environment: &Environment) -> [u8; 16] {
    let bits = u128::from(environment.random()) << 64 | u128::from(environment.random());
    let mut bytes = bits.to_le_bytes();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}
