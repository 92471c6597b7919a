//! `createIndexes`.

use std::time::Duration;

use kilim_bson::Document;

use super::setters::{Options, setters};
use crate::Result;
use crate::collection::Collection;
use crate::command::{Command, encode};
use crate::session::{Session, sign};

/// Options of the index; the others are the command's.
const OF_INDEX: [&str; 7] = [
    "unique",
    "sparse",
    "hidden",
    "expireAfterSeconds",
    "partialFilterExpression",
    "wildcardProjection",
    "collation",
];

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct CreateIndex<'a, T> {
    collection: &'a Collection<T>,
    key: bson::Document,
    name: Option<String>,
    options: Options,
    session: Option<&'a mut Session>,
}

impl<'a, T> CreateIndex<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, key: bson::Document) -> CreateIndex<'a, T> {
        CreateIndex { collection, key, name: None, options: Options::default(), session: None }
    }

    setters!(collation comment max_time session);

    /// A name other than the one that the key makes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// No two documents may have the same key.
    pub fn unique(mut self, unique: bool) -> Self {
        self.options.set("unique", unique);
        self
    }

    /// Documents without the fields are not in it.
    pub fn sparse(mut self, sparse: bool) -> Self {
        self.options.set("sparse", sparse);
        self
    }

    /// No query uses it; it is kept all the same.
    pub fn hidden(mut self, hidden: bool) -> Self {
        self.options.set("hidden", hidden);
        self
    }

    /// Documents are deleted so long after the date in the key's field.
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.options.set_count("expireAfterSeconds", time.as_secs());
        self
    }

    /// Only documents that match are in it.
    pub fn partial_filter_expression(mut self, filter: bson::Document) -> Self {
        self.options.set("partialFilterExpression", filter);
        self
    }

    /// Which paths an index on `$**` has, or which it has not.
    ///
    /// ```
    /// # use kilim::{Database, bson::{doc, Document}};
    /// # fn main() -> kilim::Result<()> {
    /// # let products = Database::in_memory()?.collection::<Document>("products");
    /// products.create_index(doc! {"$**": 1}).wildcard_projection(doc! {"size": 1, "colour": 1}).run()?;
    /// products.insert_one(doc! {"_id": 1, "colour": "red"}).run()?;
    /// let red = products.find_one(doc! {"colour": "red"}).hint("$**_1").run()?;
    /// assert_eq!(red, Some(doc! {"_id": 1, "colour": "red"}));
    /// # Ok(())
    /// # }
    /// ```
    pub fn wildcard_projection(mut self, projection: bson::Document) -> Self {
        self.options.set("wildcardProjection", projection);
        self
    }

    /// Makes the index; its name.
    pub fn run(mut self) -> Result<String> {
        let key = encode(&self.key)?;
        let name = self.name.unwrap_or_else(|| name_of(&key));
        let mut index = Command::new("key", key.as_raw());
        index.set("name", name.as_str());
        self.options.put_some(&OF_INDEX, &mut index)?;
        let mut command = Command::new("createIndexes", self.collection.name());
        command.set_statements("indexes", index);
        self.options.put(&mut command)?;
        sign(self.session, &mut command);
        self.collection.database.run(command)?;
        Ok(name)
    }
}

/// As drivers name indexes: fields and directions with underscores between.
fn name_of(key: &Document) -> String {
    use kilim_bson::RawValue::{Double, Int32, Int64, String as Text};
    let part = |(field, kind)| match kind {
        Int32(direction) => format!("{field}_{direction}"),
        Int64(direction) => format!("{field}_{direction}"),
        Double(direction) => format!("{field}_{direction}"),
        Text(kind) => format!("{field}_{kind}"),
        _ => format!("{field}_"),
    };
    key.iter().map(part).collect::<Vec<String>>().join("_")
}
