//! Arrays that continue in pages (the pattern `outlier`). A dump has such a document with its inline part, and its pages as
//! documents of another collection. A restore appends the pages once the declaration is there again, which divides the array anew.
//!
//! So such a collection is three things: its documents, its pages and its declaration. Whoever moves one collection alone moves
//! all three, or refuses.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use kilim_bson::{Document, RawValue, Value, doc};
use kilim_client::{Client, Fault};

use crate::Watch;
use crate::archive::{self, Entry, next_document};
use crate::metadata::PATTERNS;
use crate::sink::Refused;

/// A declared outlier of a dump.
pub(crate) struct Outlier {
    database: String,
    collection: String,
    name: String,
    field: String,
    /// Documents were dumped with their whole arrays.
    whole: bool,
}

/// What a server answers to those who may not.
pub(crate) const UNAUTHORIZED: i32 = 13;

/// Updates of one command, and what they have together at most.
const UPDATES: usize = 100;
const UPDATES_BYTES: usize = 8 << 20;

/// The outliers that the declarations of a dump speak of.
pub(crate) fn outliers<'e>(entries: impl Iterator<Item = &'e Entry>) -> Result<Vec<Outlier>> {
    let mut found = Vec::new();
    for Entry { database, data, .. } in entries.filter(|entry| entry.collection == PATTERNS) {
        let Some(path) = data else { continue };
        let mut file = archive::open(path)?;
        while let Some(declared) =
            next_document(&mut file).with_context(|| format!("{} is damaged", path.display()))?
        {
            found.extend(Outlier::of(database, &declared));
        }
    }
    Ok(found)
}

/// What a server's collection of declarations says of one collection. None of it on a server that knows of no patterns.
pub(crate) fn declarations(client: &mut Client, database: &str, collection: &str) -> Result<Vec<Document>> {
    match client.all(database, doc! {"find": PATTERNS, "filter": {"target": collection}}) {
        // Somebody who may read one collection alone. Where that may have pages, some of them could go unnoticed.
        Err(fault) if fault.code() == Some(UNAUTHORIZED) => {
            let pages =
                doc! {"listCollections": 1, "nameOnly": true, "filter": {"name": pages_of(collection)}};
            match client.all(database, pages)?.is_empty() {
                true => Ok(Vec::new()),
                false => Err(fault).with_context(|| {
                    format!("{database}.{collection} may have arrays that continue in pages, and {database}.{PATTERNS} says so")
                }),
            }
        }
        found => Ok(found?),
    }
}

/// The collection that has the pages of another.
pub(crate) fn pages_of(collection: &str) -> String {
    format!("{collection}{PAGES}")
}

/// How the names of collections end that have pages.
const PAGES: &str = ".overflow";

/// Whether a declaration is one of this collection.
pub(crate) fn declares(declared: &Document, collection: &str) -> bool {
    declared.get("target").and_then(RawValue::as_str) == Some(collection)
}

impl Outlier {
    pub(crate) fn of(database: &str, declared: &Document) -> Option<Outlier> {
        let text = |name: &str| declared.get(name).and_then(RawValue::as_str).map(str::to_owned);
        let definition = declared.get("definition").and_then(RawValue::as_document)?;
        let outlier = definition.get("outlier").and_then(RawValue::as_document)?;
        Some(Outlier {
            database: database.to_owned(),
            collection: text("target")?,
            name: text("name")?,
            field: outlier.get("field").and_then(RawValue::as_str)?.to_owned(),
            whole: outlier.get("read").and_then(RawValue::as_str) == Some("whole"),
        })
    }

    pub(crate) fn is_of(&self, collection: &str) -> bool {
        self.collection == collection
    }

    /// The array whose documents show only a part, if they do.
    pub(crate) fn shortened(&self) -> Option<&str> {
        (!self.whole).then_some(&*self.field)
    }

    /// Whether a file of the dump has its pages.
    pub(crate) fn has_pages_in(&self, entry: &Entry) -> bool {
        let pages_of = entry.collection.strip_suffix(PAGES);
        self.database == entry.database && pages_of == Some(&self.collection)
    }

    /// Has the server put the declaration in force, which divides no array yet: those of the dump are short. Where the server
    /// knows of no patterns, or refuses, this says no. So it does where the collection is not among the `new` ones: its
    /// documents may have these elements already.
    pub(crate) fn put_in_force(
        &self,
        client: &mut Client,
        new: &HashSet<(&str, &str)>,
        refused: &mut Refused,
    ) -> Result<bool> {
        let shown = format!("{}.{}", self.database, self.collection);
        let mut refuse = |why: &str| refused.add(format!("the pages of {shown} are not appended: {why}"));
        if !new.contains(&(&*self.database, &*self.collection)) {
            refuse("the collection was there before (--drop would replace it)");
            return Ok(false);
        }
        let command = doc! {"repairPattern": &*self.collection, "name": &*self.name};
        match client.run(&self.database, command) {
            Ok(_) => Ok(true),
            Err(Fault::Refused(why)) => {
                refuse(&why.message);
                Ok(false)
            }
            Err(lost) => Err(lost.into()),
        }
    }

    /// Appends the pages of a file to their documents; how many there were.
    pub(crate) fn append(
        &self,
        client: &mut Client,
        path: &Path,
        watch: &mut dyn Watch,
    ) -> Result<(u64, Refused)> {
        let shown = format!("{}.{}", self.database, self.collection);
        let (mut pages, mut refused) = (0, Refused::default());
        if self.whole {
            return Ok((pages, refused));
        }
        let mut file = archive::open(path)?;
        let (mut updates, mut bytes): (Vec<Value>, usize) = (Vec::new(), 0);
        loop {
            let page = next_document(&mut file).with_context(|| format!("{} is damaged", path.display()))?;
            let is_full = updates.len() == UPDATES || bytes > UPDATES_BYTES;
            if is_full || (page.is_none() && !updates.is_empty()) {
                let sent = std::mem::take(&mut updates);
                pages += self.send(client, sent, &mut refused)?;
                watch.moved(&format!("{shown}: pages"), pages, pages);
                bytes = 0;
            }
            let Some(page) = page else { return Ok((pages, refused)) };
            bytes += page.as_bytes().len();
            updates.push(self.update_by(&page)?);
        }
    }

    fn update_by(&self, page: &Document) -> Result<Value> {
        let id = page.get("_id").and_then(RawValue::as_document).and_then(|id| id.get("of"));
        let (Some(id), Some(elements)) = (id, page.get("elements")) else {
            bail!("a document of {}.{}.overflow is no page", self.database, self.collection);
        };
        let push = doc! {"$push": {(&*self.field): {"$each": elements}}};
        Ok(doc! {"q": {"_id": id}, "u": push}.into())
    }

    fn send(&self, client: &mut Client, updates: Vec<Value>, refused: &mut Refused) -> Result<u64> {
        let asked = updates.len() as u64;
        let command =
            doc! {"update": &*self.collection, "updates": updates, "bypassDocumentValidation": true};
        let reply = client.run(&self.database, command)?;
        let failed = reply.get("writeErrors").and_then(RawValue::as_array);
        let failed = failed.and_then(|failed| failed.iter().next()).and_then(RawValue::as_document);
        let why = match failed {
            Some(failed) => failed.get("errmsg").and_then(RawValue::as_str).unwrap_or_default(),
            None => "they have no document",
        };
        let matched = match reply.get("n") {
            Some(RawValue::Int32(matched)) => u64::try_from(matched).unwrap_or(0),
            _ => 0,
        };
        if matched < asked {
            let lost = asked - matched;
            refused.add(format!("{lost} pages of {}.{} are lost: {why}", self.database, self.collection));
        }
        Ok(matched)
    }
}
