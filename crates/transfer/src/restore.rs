//! `restore`: a dump's files into a server.
//!
//! Collections with their options first, then documents, then indexes: an index over what is there is built faster
//! than it is kept. Declarations of patterns come when the data that they speak of is there, and behind them the pages of long
//! arrays, which are appended to their documents.
//!
//! A dump with a manifest is checked before the server is asked for anything, so that what is incomplete or damaged
//! restores nothing. mongodump's dumps have none and are taken as they are.
//!
//! A restore gives back what was there: documents that the collection's validator would refuse today are written all
//! the same. A collection or an index that the server refuses (of a kind that it does not have) is told, and the rest
//! goes on.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kilim_bson::{Array, Document, RawValue, doc};
use kilim_client::{Client, Fault};

use crate::Watch;
use crate::archive::{self, Entry, next_document};
use crate::manifest::{Listed, Manifest};
use crate::metadata::{Metadata, PATTERNS, is_meant, is_of_buckets, is_of_users};
use crate::pages;
use crate::sink::{Refused, Sink, Update, Write};

const NAMESPACE_EXISTS: i32 = 48;
const NAMESPACE_NOT_FOUND: i32 = 26;

#[derive(Debug, Clone)]
pub struct Restore {
    /// What `dump` wrote.
    pub folder: PathBuf,
    /// Only these.
    pub database: Option<String>,
    pub collection: Option<String>,
    /// Collections of the dump are dropped first.
    pub drop: bool,
}

/// What was restored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    pub collections: u64,
    pub documents: u64,
    pub indexes: u64,
    pub refused: Refused,
}

impl Restore {
    pub fn run(&self, client: &mut Client, watch: &mut dyn Watch) -> Result<Restored> {
        let mut files = archive::files(&self.folder)?;
        let manifest = Manifest::read(&self.folder)?;
        if let Some(manifest) = &manifest {
            let wanted = |listed: &Listed| {
                self.database.as_ref().is_none_or(|asked| *asked == listed.database)
                    && self.collection.as_ref().is_none_or(|asked| {
                        is_meant(&listed.collection, asked)
                            || listed.collection == PATTERNS
                            || listed.collection == pages::pages_of(asked)
                    })
            };
            manifest.check(&self.folder, &mut files, wanted, watch)?;
        }
        let mut entries = archive::entries(&files)?;
        entries.retain(|entry| self.database.as_ref().is_none_or(|asked| *asked == entry.database));
        // Views behind what they are over, declarations behind the data, and behind these the pages of long arrays.
        let mut restored = Restored::default();
        let mut read: Vec<(Entry, Metadata)> = Vec::new();
        for mut entry in entries {
            let metadata = entry.metadata.as_deref().map(Metadata::read).transpose()?.unwrap_or_default();
            if let Some(collection) = &metadata.collection {
                entry.collection.clone_from(collection);
            }
            read.push((entry, metadata));
        }
        let mut outliers = pages::outliers(read.iter().map(|(entry, _)| entry))?;
        if let Some(asked) = &self.collection {
            outliers.retain(|outlier| outlier.is_of(asked));
            let meant: HashSet<String> = (read.iter())
                .filter(|(entry, _)| is_meant(&entry.collection, asked))
                .map(|(entry, _)| entry.database.clone())
                .collect();
            // A collection is not whole without its declarations, and the pages of its arrays.
            read.retain(|(entry, _)| {
                let is_companion = entry.collection == PATTERNS
                    || outliers.iter().any(|outlier| outlier.has_pages_in(entry));
                is_meant(&entry.collection, asked) || (is_companion && meant.contains(&entry.database))
            });
        }
        if read.is_empty() {
            bail!(
                "{} holds nothing to restore: it should have a folder for each database, with .bson files",
                self.folder.display()
            );
        }
        let of_pages = |entry: &Entry| outliers.iter().find(|outlier| outlier.has_pages_in(entry));
        read.sort_by_key(|(entry, metadata)| {
            let is_of_pages = of_pages(entry).is_some();
            (is_of_pages, entry.collection == PATTERNS, metadata.is_view, is_of_buckets(&entry.collection))
        });
        let mut new = HashSet::new();
        for (entry, metadata) in &read {
            if let (Some(outlier), Some(pages)) = (of_pages(entry), &entry.data)
                && outlier.put_in_force(client, &new, &mut restored.refused)?
            {
                let (appended, refused) = outlier.append(client, pages, watch)?;
                restored.documents += appended;
                restored.refused.append(refused);
                continue;
            }
            if self.restore(client, entry, metadata, &mut restored, watch)? {
                new.insert((&*entry.database, &*entry.collection));
            }
        }
        Ok(restored)
    }

    /// Whether the collection was not there before.
    fn restore(
        &self,
        client: &mut Client,
        entry: &Entry,
        metadata: &Metadata,
        restored: &mut Restored,
        watch: &mut dyn Watch,
    ) -> Result<bool> {
        let Entry { database, collection, .. } = entry;
        let shown = format!("{database}.{collection}");
        if is_of_users(database, collection) {
            return self.restore_users(client, entry, restored, watch).map(|()| false);
        }
        // Says how old the documents of users are, to a mongod.
        if database == "admin" && collection == "system.version" {
            return Ok(false);
        }
        if let Some(asked) = &self.collection
            && collection == PATTERNS
            && asked != PATTERNS
        {
            return restore_declarations(client, entry, asked, self.drop, restored).map(|()| false);
        }
        // What their time-series collection is told was told before.
        if is_of_buckets(collection) {
            return self.restore_buckets(client, entry, restored, watch).map(|()| false);
        }
        if self.drop {
            match client.run(database, doc! {"drop": &**collection}) {
                Err(fault) if fault.code() != Some(NAMESPACE_NOT_FOUND) => {
                    return Err(fault).with_context(|| format!("cannot drop {shown}"));
                }
                _ => {}
            }
        }
        // A server lets a collection be created again that is the same.
        let is_new = !exists(client, database, collection)?;
        match create(client, database, collection, metadata) {
            Ok(()) => {}
            Err(fault) if fault.code() == Some(NAMESPACE_EXISTS) => {
                watch.warn(&format!("{shown} exists: documents are added to it (--drop would replace it)"));
            }
            Err(Fault::Refused(why)) => {
                restored.refused.add(format!("cannot create {shown}: {}", why.message));
                return Ok(false);
            }
            Err(fault) => return Err(fault).with_context(|| format!("cannot create {shown}")),
        }
        restored.collections += 1;
        if let Some(data) = &entry.data {
            let (written, refused) = insert_file(client, database, collection, data, Write::Insert, watch)?;
            restored.documents += written;
            restored.refused.append(refused);
        }
        let is_own = |index: &&Document| index.get("name").and_then(RawValue::as_str) == Some("_id_");
        let clustered = |index: &&Document| index.get("clustered").is_some();
        let wanted = metadata.indexes.iter().filter(|index| !is_own(index) && !clustered(index));
        let collated = metadata.options.get("collation").is_some();
        let wanted: Vec<Document> = wanted.map(|index| index_for_creation(index, collated)).collect();
        if !wanted.is_empty() {
            watch.moved(&format!("{shown}: indexes"), 0, wanted.len() as u64);
            self.make_indexes(client, entry, &wanted, restored)?;
        }
        Ok(is_new)
    }

    /// The measurements of a time-series collection, which is there by now.
    fn restore_buckets(
        &self,
        client: &mut Client,
        entry: &Entry,
        restored: &mut Restored,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let Entry { database, collection, data, .. } = entry;
        if let Some(data) = data {
            let (written, refused) = insert_file(client, database, collection, data, Write::Insert, watch)?;
            restored.documents += written;
            restored.refused.append(refused);
        }
        Ok(())
    }

    /// Users and roles: one that is there stays, or with `drop` gets what the dump says. Those of others stay in any case,
    /// or a restore would lock somebody out.
    fn restore_users(
        &self,
        client: &mut Client,
        entry: &Entry,
        restored: &mut Restored,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let Entry { database, collection, .. } = entry;
        restored.collections += 1;
        if let Some(data) = &entry.data {
            let by = ["_id".to_owned()];
            let write = match self.drop {
                true => Write::Update { fields: &by, how: Update::Replace },
                false => Write::Insert,
            };
            let (written, refused) = insert_file(client, database, collection, data, write, watch)?;
            restored.documents += written;
            restored.refused.append(refused);
        }
        Ok(())
    }

    /// All in one go; if one of them is refused, one by one, so that the others are there.
    fn make_indexes(
        &self,
        client: &mut Client,
        Entry { database, collection, .. }: &Entry,
        wanted: &[Document],
        restored: &mut Restored,
    ) -> Result<()> {
        let mut make = |indexes: &[Document]| {
            let list: Array = indexes.iter().map(|index| index.clone().into()).collect();
            client.run(database, doc! {"createIndexes": &**collection, "indexes": list}).map(drop)
        };
        match make(wanted) {
            Ok(()) => restored.indexes += wanted.len() as u64,
            Err(Fault::Refused(_)) => {
                for index in wanted {
                    match make(std::slice::from_ref(index)) {
                        Ok(()) => restored.indexes += 1,
                        Err(Fault::Refused(why)) => {
                            let name = index.get("name").and_then(RawValue::as_str).unwrap_or_default();
                            restored.refused.add(format!(
                                "cannot make the index {name} of {database}.{collection}: {}",
                                why.message
                            ));
                        }
                        Err(lost) => return Err(lost.into()),
                    }
                }
            }
            Err(lost) => return Err(lost.into()),
        }
        Ok(())
    }
}

/// The declarations of one collection. Those of others stay as they are. With `drop`, one that is not in force is replaced:
/// those in force went with their collection.
fn restore_declarations(
    client: &mut Client,
    entry: &Entry,
    asked: &str,
    drop: bool,
    restored: &mut Restored,
) -> Result<()> {
    let Entry { database, collection, data, .. } = entry;
    let Some(path) = data else { return Ok(()) };
    let (mut file, mut declared) = (archive::open(path)?, Vec::new());
    while let Some(next) =
        next_document(&mut file).with_context(|| format!("{} is damaged", path.display()))?
    {
        if pages::declares(&next, asked) {
            declared.push(next);
        }
    }
    for declared in declared.iter().filter(|_| drop) {
        let name = declared.get("name").and_then(RawValue::as_str).unwrap_or_default();
        match client.run(database, doc! {"dropPattern": asked, "name": name}) {
            // It is not there, or the server knows of no patterns.
            Ok(_) | Err(Fault::Refused(_)) => {}
            Err(lost) => return Err(lost.into()),
        }
    }
    let mut sink = Sink::new(client, database, collection, Write::Insert, false).past_validators();
    declared.into_iter().try_for_each(|declared| sink.push(declared, None))?;
    sink.flush()?;
    restored.documents += sink.written;
    restored.refused.append(sink.refused);
    Ok(())
}

fn exists(client: &mut Client, database: &str, collection: &str) -> Result<bool> {
    let command = doc! {"listCollections": 1, "filter": {"name": collection}, "nameOnly": true};
    let reply = client.run(database, command)?;
    let cursor = reply.get("cursor").and_then(RawValue::as_document);
    let listed = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
    Ok(listed.is_some_and(|listed| !listed.is_empty()))
}

fn create(client: &mut Client, database: &str, collection: &str, metadata: &Metadata) -> Result<(), Fault> {
    let mut command = doc! {"create": collection};
    for (name, value) in metadata.options.iter() {
        match (name, value) {
            // What the server knows by itself, or older ones wrote.
            ("uuid" | "autoIndexId" | "flags", _) => {}
            ("clusteredIndex", RawValue::Document(index)) => {
                command.push(name, for_creation(&index.to_document()).as_raw());
            }
            _ => command.push(name, value),
        }
    }
    client.run(database, command).map(drop)
}

/// An index of a collection. Where the collection has a collation, an index that says nothing of it would get that
/// one, while in a dump it means the simple one.
fn index_for_creation(index: &Document, collated: bool) -> Document {
    let mut asked = for_creation(index);
    if collated && asked.get("collation").is_none() {
        asked.push("collation", doc! {"locale": "simple"});
    }
    asked
}

/// An index as it is asked for: without what a server adds.
fn for_creation(index: &Document) -> Document {
    let kept = index.iter().filter(|(name, _)| !matches!(*name, "ns" | "background" | "v"));
    kept.map(|(name, value)| (name, value.to_value())).collect()
}

fn insert_file(
    client: &mut Client,
    database: &str,
    collection: &str,
    path: &Path,
    write: Write<'_>,
    watch: &mut dyn Watch,
) -> Result<(u64, Refused)> {
    let shown = format!("{database}.{collection}");
    let total = fs::metadata(path).map_or(0, |file| file.len());
    let mut file = archive::open(path)?;
    let mut sink = Sink::new(client, database, collection, write, false).past_validators();
    let mut done = 0;
    while let Some(document) =
        next_document(&mut file).with_context(|| format!("{} is damaged", path.display()))?
    {
        done += document.as_bytes().len() as u64;
        sink.push(document, None)?;
        // A compressed file holds more than its length.
        watch.moved(&shown, done, total.max(done));
    }
    sink.flush()?;
    Ok((sink.written, sink.refused))
}
