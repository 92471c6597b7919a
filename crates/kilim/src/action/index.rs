//! `createIndexes`.

use std::time::Duration;

use kilim_bson::Document;

use crate::Result;
use crate::collection::Collection;
use crate::command::{Command, encode};

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct CreateIndex<'a, T> {
    collection: &'a Collection<T>,
    key: bson::Document,
    name: Option<String>,
    unique: bool,
    sparse: bool,
    expire_after: Option<Duration>,
    partial: Option<bson::Document>,
}

impl<'a, T> CreateIndex<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, key: bson::Document) -> CreateIndex<'a, T> {
        let (name, unique, sparse, expire_after, partial) = (None, false, false, None, None);
        CreateIndex { collection, key, name, unique, sparse, expire_after, partial }
    }

    /// A name other than the one that the key makes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// No two documents may have the same key.
    pub fn unique(mut self, unique: bool) -> Self {
        self.unique = unique;
        self
    }

    /// Documents without the fields are not in it.
    pub fn sparse(mut self, sparse: bool) -> Self {
        self.sparse = sparse;
        self
    }

    /// Documents are deleted so long after the date in the key's field.
    pub fn expire_after(mut self, time: Duration) -> Self {
        self.expire_after = Some(time);
        self
    }

    /// Only documents that match are in it.
    pub fn partial_filter(mut self, filter: bson::Document) -> Self {
        self.partial = Some(filter);
        self
    }

    /// Makes the index; its name.
    pub fn run(self) -> Result<String> {
        let key = encode(&self.key)?;
        let name = self.name.unwrap_or_else(|| name_of(&key));
        let mut index = Command::new("key", key.as_raw());
        index.set("name", name.as_str());
        if self.unique {
            index.set("unique", true);
        }
        if self.sparse {
            index.set("sparse", true);
        }
        if let Some(time) = self.expire_after {
            index.set("expireAfterSeconds", i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        }
        index.set_optional("partialFilterExpression", self.partial.as_ref())?;
        let mut command = Command::new("createIndexes", self.collection.name());
        command.set_statements("indexes", index);
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
