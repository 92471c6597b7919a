//! Collections: what can be asked of one.

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;

use crate::Result;
use crate::action::{
    Aggregate, Count, CreateIndex, Delete, Distinct, Find, FindAndModify, FindOne, InsertMany, InsertOne,
    Modify, Scope, Update, UpdateModifications, Watch, Watched,
};
use crate::command::{Command, encode};
use crate::cursor::{Batches, Cursor, Paging};
use crate::database::Database;
use crate::results::count;

/// A collection of documents that are read and written as `T`.
pub struct Collection<T> {
    pub(crate) database: Database,
    name: String,
    kind: PhantomData<fn() -> T>,
}

impl<T> Collection<T> {
    pub(crate) fn new(database: Database, name: &str) -> Collection<T> {
        Collection { database, name: name.to_owned(), kind: PhantomData }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database that it is in.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The same collection, of another type.
    pub fn of_type<U>(&self) -> Collection<U> {
        Collection::new(self.database.clone(), &self.name)
    }

    /// The documents that match.
    pub fn find(&self, filter: bson::Document) -> Find<'_, T> {
        Find::new(self, filter)
    }

    /// The first document that matches.
    pub fn find_one(&self, filter: bson::Document) -> FindOne<'_, T> {
        FindOne::first(self, filter)
    }

    /// Runs a pipeline.
    pub fn aggregate(&self, pipeline: impl IntoIterator<Item = bson::Document>) -> Aggregate<'_> {
        Aggregate::new(&self.database, Some(&self.name), pipeline.into_iter().collect())
    }

    /// The changes of the collection, as they happen.
    ///
    /// ```
    /// # use kilim::{Database, bson::{doc, Document}};
    /// # fn main() -> kilim::Result<()> {
    /// let database = Database::in_memory()?;
    /// let orders = database.collection::<Document>("orders");
    /// let mut changes = orders.watch().run::<Document>()?;
    /// orders.insert_one(doc! {"_id": 1, "total": 12}).run()?;
    /// let event = changes.next().expect("the stream goes on")?;
    /// assert_eq!(event.get_str("operationType").unwrap(), "insert");
    /// assert_eq!(event.get_document("fullDocument").unwrap(), &doc! {"_id": 1, "total": 12});
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch(&self) -> Watch<'_> {
        Watch::new(&self.database, Watched::Collection(&self.name))
    }

    /// How many documents match.
    pub fn count_documents(&self, filter: bson::Document) -> Count<'_, T> {
        Count::new(self, filter)
    }

    /// How many documents there are, at no cost.
    pub fn estimated_document_count(&self) -> Result<u64> {
        let reply = self.database.run(Command::new("count", self.name()))?;
        Ok(count(reply.as_raw(), "n"))
    }

    /// The different values of a field among the documents that match.
    pub fn distinct(&self, field: impl Into<String>, filter: bson::Document) -> Distinct<'_, T> {
        Distinct::new(self, field.into(), filter)
    }

    /// Changes the first document that matches.
    pub fn update_one(
        &self,
        filter: bson::Document,
        update: impl Into<UpdateModifications>,
    ) -> Update<'_, T> {
        Update::new(self, filter, update.into(), Scope::One)
    }

    /// Changes all documents that match.
    pub fn update_many(
        &self,
        filter: bson::Document,
        update: impl Into<UpdateModifications>,
    ) -> Update<'_, T> {
        Update::new(self, filter, update.into(), Scope::Many)
    }

    /// Deletes the first document that matches.
    pub fn delete_one(&self, filter: bson::Document) -> Delete<'_, T> {
        Delete::new(self, filter, Scope::One)
    }

    /// Deletes all documents that match.
    pub fn delete_many(&self, filter: bson::Document) -> Delete<'_, T> {
        Delete::new(self, filter, Scope::Many)
    }

    /// Changes the first document that matches, and returns it as it was or is.
    pub fn find_one_and_update(
        &self,
        filter: bson::Document,
        update: impl Into<UpdateModifications>,
    ) -> FindAndModify<'_, T> {
        FindAndModify::new(self, filter, Modify::Update(update.into()))
    }

    /// Deletes the first document that matches, and returns it.
    pub fn find_one_and_delete(&self, filter: bson::Document) -> FindAndModify<'_, T> {
        FindAndModify::new(self, filter, Modify::Delete)
    }

    /// Makes an index, or finds that it is there.
    ///
    /// ```
    /// # use kilim::{Database, bson::{doc, Document}};
    /// # fn main() -> kilim::Result<()> {
    /// # let users = Database::in_memory()?.collection::<Document>("users");
    /// let name = users.create_index(doc! {"mail": 1}).unique(true).run()?;
    /// assert_eq!(name, "mail_1");
    /// users.insert_one(doc! {"mail": "ada@example.org"}).run()?;
    /// let twice = users.insert_one(doc! {"mail": "ada@example.org"}).run();
    /// assert!(twice.unwrap_err().is_duplicate_key());
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_index(&self, key: bson::Document) -> CreateIndex<'_, T> {
        CreateIndex::new(self, key)
    }

    /// The indexes, as MongoDB describes them.
    pub fn list_indexes(&self) -> Result<Cursor<bson::Document>> {
        let reply = self.database.run(Command::new("listIndexes", self.name()))?;
        Ok(Cursor::new(Batches::of(self.database.clone(), reply, Paging::default())))
    }

    pub fn drop_index(&self, name: &str) -> Result<()> {
        let mut command = Command::new("dropIndexes", self.name());
        command.set("index", name);
        self.database.run(command).map(drop)
    }

    /// Drops the collection, with its indexes.
    pub fn drop(&self) -> Result<()> {
        match self.database.run(Command::new("drop", self.name())) {
            Err(error) if error.code() == Some(NAMESPACE_NOT_FOUND) => Ok(()),
            other => other.map(drop),
        }
    }
}

const NAMESPACE_NOT_FOUND: i32 = 26;

impl<T: Serialize> Collection<T> {
    /// Inserts a document. One without `_id` gets one.
    pub fn insert_one(&self, document: impl Borrow<T>) -> InsertOne<'_, T> {
        InsertOne::new(self, encode(document.borrow()))
    }

    /// Inserts documents, in batches.
    pub fn insert_many(&self, documents: impl IntoIterator<Item = impl Borrow<T>>) -> InsertMany<'_, T> {
        InsertMany::new(self, documents.into_iter().map(|document| encode(document.borrow())).collect())
    }

    /// Puts a document in the place of the first that matches; `_id` stays.
    pub fn replace_one(&self, filter: bson::Document, replacement: impl Borrow<T>) -> Update<'_, T> {
        Update::replacement(self, filter, encode(replacement.borrow()))
    }

    /// The same, and returns the document as it was or is.
    pub fn find_one_and_replace(
        &self,
        filter: bson::Document,
        replacement: impl Borrow<T>,
    ) -> FindAndModify<'_, T> {
        FindAndModify::new(self, filter, Modify::Replace(encode(replacement.borrow())))
    }
}

impl<T> Clone for Collection<T> {
    fn clone(&self) -> Collection<T> {
        self.of_type()
    }
}

impl<T> fmt::Debug for Collection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collection").field("database", &self.database.name).field("name", &self.name).finish()
    }
}
