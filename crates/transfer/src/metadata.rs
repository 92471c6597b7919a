//! What a dump says of a collection beside its documents: options and indexes, as mongodump writes them.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use kilim_bson::{
    Array, Document, JsonFormat, RawDocument, RawValue, doc, parse_extended_json, to_extended_json,
};

use crate::archive;

/// Where databases keep their declarations.
pub(crate) const PATTERNS: &str = "kilim.patterns";

/// Whether a collection holds the server's users or roles. Of the server's own collections these alone are dumped.
pub(crate) fn is_of_users(database: &str, collection: &str) -> bool {
    database == "admin" && matches!(collection, "system.users" | "system.roles")
}

/// The collection that holds the buckets of a time-series collection. As mongodump does it, its documents are dumped under
/// its own name, and all that is said of it is what is said of the time-series collection.
const BUCKETS: &str = "system.buckets.";

pub(crate) fn is_of_buckets(collection: &str) -> bool {
    collection.starts_with(BUCKETS)
}

/// Whether a collection is meant by this name: it, or its buckets.
pub(crate) fn is_meant(collection: &str, name: &str) -> bool {
    collection.strip_prefix(BUCKETS).unwrap_or(collection) == name
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Metadata {
    pub options: Document,
    pub indexes: Vec<Document>,
    pub is_view: bool,
    pub is_time_series: bool,
    /// Where a file says it: its own name may be shortened.
    pub collection: Option<String>,
}

impl Metadata {
    /// From an entry of listCollections.
    pub fn of_entry(entry: RawDocument<'_>, indexes: Vec<Document>) -> Metadata {
        let options = entry.get("options").and_then(RawValue::as_document);
        Metadata {
            options: options.map(RawDocument::to_document).unwrap_or_default(),
            indexes,
            is_view: entry.get("type").and_then(RawValue::as_str) == Some("view"),
            is_time_series: options.is_some_and(|options| options.get("timeseries").is_some()),
            collection: None,
        }
    }

    pub fn write(&self, collection: &str, out: &mut impl Write) -> Result<()> {
        let indexes: Array = self.indexes.iter().map(|index| index.clone().into()).collect();
        let document = doc! {
            "options": self.options.clone(),
            "indexes": indexes,
            "collectionName": collection,
            "type": match (self.is_view, self.is_time_series) {
                (true, _) => "view",
                (_, true) => "timeseries",
                _ => "collection",
            },
        };
        out.write_all(to_extended_json(document.as_raw(), JsonFormat::Canonical).as_bytes())?;
        Ok(())
    }

    pub fn read(path: &Path) -> Result<Metadata> {
        let unreadable = || format!("{} is no metadata of a collection", path.display());
        let mut text = String::new();
        archive::open(path)?.read_to_string(&mut text).with_context(unreadable)?;
        let document = parse_extended_json(&text).with_context(unreadable)?;
        let indexes = document.get("indexes").and_then(RawValue::as_array);
        let indexes = indexes.into_iter().flat_map(|list| list.iter().filter_map(RawValue::as_document));
        Ok(Metadata {
            indexes: indexes.map(RawDocument::to_document).collect(),
            collection: document.get("collectionName").and_then(RawValue::as_str).map(str::to_owned),
            ..Metadata::of_entry(document.as_raw(), Vec::new())
        })
    }
}
