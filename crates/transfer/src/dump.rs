//! `dump`: collections to files, as of one moment.
//!
//! All cursors are opened first, at one cluster time, so that whatever is written meanwhile is in none of them. A
//! server that cannot read at a time (a standalone mongod) is dumped collection by collection, and says so; so are the
//! capped collections of a mongod, which has no snapshots of them.
//!
//! Nothing has its final name before all of it is written ([`crate::place`]).

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_client::{Client, whole};

use crate::archive::{Out, file_name, folder_name};
use crate::manifest::{Listed, Manifest};
use crate::metadata::{Metadata, PATTERNS, is_meant, is_of_buckets, is_of_users};
use crate::pages::{self, Outlier, UNAUTHORIZED};
use crate::place::Place;
use crate::{Unfinished, Watch};

/// What mongod answers where a capped collection is to be read as of a moment.
const SNAPSHOT_UNAVAILABLE: i32 = 246;
/// How the names of collections begin that are the server's own.
const SYSTEM: &str = "system.";

#[derive(Debug, Clone)]
pub struct Dump {
    /// Where the databases' folders go.
    pub folder: PathBuf,
    /// All but `config` and `local` unless one is named.
    pub database: Option<String>,
    pub collection: Option<String>,
    /// Which documents, of the one collection that is named.
    pub query: Option<Document>,
    pub gzip: bool,
    /// A dump that is in the folder goes when this one is complete.
    pub replace: bool,
    /// What is to be removed if the program ends early.
    pub unfinished: Unfinished,
}

/// What was dumped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dumped {
    pub collections: u64,
    pub documents: u64,
    /// Whether all is as of one moment.
    pub of_one_moment: bool,
}

/// A collection on its way to a file.
struct Source {
    database: String,
    collection: String,
    metadata: Metadata,
    total: u64,
    /// Which of its documents; all if none.
    filter: Option<Document>,
    /// None for a view.
    cursor: Option<Batch>,
}

/// What a server sent last.
struct Batch {
    id: i64,
    reply: Document,
    name: &'static str,
}

impl Dump {
    pub fn run(&self, client: &mut Client, watch: &mut dyn Watch) -> Result<Dumped> {
        let place = Place::prepare(&self.folder, self.replace, &self.unfinished)?;
        let mut sources = self.sources(client, watch)?;
        match (&self.database, &self.collection) {
            (Some(database), Some(collection))
                if !sources.iter().any(|source| is_meant(&source.collection, collection)) =>
            {
                bail!("there is no collection {database}.{collection}")
            }
            // A backup of nothing under a name that was mistyped would look like one.
            (Some(database), None) if sources.is_empty() => bail!("there is no database {database}"),
            _ => {}
        }
        let hello = client.hello()?;
        let at_once = hello.get("setName").is_some();
        if !at_once {
            watch.warn("the server cannot read as of one moment: what is written meanwhile may be in the dump in part");
        }
        let (session, later) = self.open_cursors(client, &mut sources, at_once)?;
        for name in &later {
            watch.warn(&format!(
                "{name} is capped, and the server cannot read it as of the moment of the others"
            ));
        }
        let mut manifest = Manifest { of_one_moment: at_once && later.is_empty(), collections: Vec::new() };
        for source in sources {
            manifest.collections.push(self.write(client, &session, source, &place, watch)?);
        }
        place.publish(&manifest)?;
        Ok(Dumped {
            collections: manifest.collections.len() as u64,
            documents: manifest.collections.iter().map(|listed| listed.documents).sum(),
            of_one_moment: manifest.of_one_moment,
        })
    }

    fn sources(&self, client: &mut Client, watch: &mut dyn Watch) -> Result<Vec<Source>> {
        let databases = match &self.database {
            Some(database) => vec![database.clone()],
            None => database_names(client)?,
        };
        let mut sources = Vec::new();
        for database in databases {
            folder_name(&database)?;
            let companions = match &self.collection {
                Some(collection) => self.companions(client, &database, collection)?,
                None => Vec::new(),
            };
            for entry in client.all(&database, doc! {"listCollections": 1})? {
                let name = entry.get("name").and_then(RawValue::as_str).unwrap_or_default().to_owned();
                let companion = companions.iter().find(|(companion, _)| *companion == name);
                let meant = self.collection.as_ref().is_none_or(|asked| is_meant(&name, asked));
                let asked = meant || companion.is_some();
                let of_users = is_of_users(&database, &name);
                let of_buckets = is_of_buckets(&name);
                if !asked || (name.starts_with(SYSTEM) && !of_users && !of_buckets) {
                    continue;
                }
                if of_users && !may_read(client, &database, &name)? {
                    watch.warn(&format!("{database}.{name} is left out: this user may not read it"));
                    continue;
                }
                file_name(&name)?;
                let is_view = entry.get("type").and_then(RawValue::as_str) == Some("view");
                let is_time_series = entry.get("type").and_then(RawValue::as_str) == Some("timeseries");
                let indexes = match is_view || of_buckets {
                    true => Vec::new(),
                    false => client.all(&database, doc! {"listIndexes": &*name})?,
                };
                let total = match is_view || is_time_series {
                    true => 0,
                    false => whole(client.run(&database, doc! {"count": &*name})?.get("n")).unwrap_or(0),
                };
                sources.push(Source {
                    metadata: Metadata::of_entry(entry.as_raw(), indexes),
                    database: database.clone(),
                    collection: name,
                    total: total.max(0) as u64,
                    filter: match companion {
                        Some((_, filter)) if !meant => filter.clone(),
                        _ => self.query.clone(),
                    },
                    cursor: None,
                });
            }
        }
        Ok(sources)
    }

    /// What one collection is not whole without, and which documents of it: its declarations, and the pages of its arrays.
    fn companions(
        &self,
        client: &mut Client,
        database: &str,
        collection: &str,
    ) -> Result<Vec<(String, Option<Document>)>> {
        if collection == PATTERNS {
            return Ok(Vec::new());
        }
        let declared = pages::declarations(client, database, collection)?;
        let outliers: Vec<Outlier> =
            declared.iter().filter_map(|declared| Outlier::of(database, declared)).collect();
        let mut companions = Vec::new();
        if !declared.is_empty() {
            companions.push((PATTERNS.to_owned(), Some(doc! {"target": collection})));
        }
        if let Some(field) = outliers.iter().find_map(Outlier::shortened)
            && self.query.is_some()
        {
            bail!(
                "'{field}' of {database}.{collection} continues in pages, which --query cannot choose: dump the whole \
                 collection, or write what matches with 'kilim export'"
            );
        }
        if !outliers.is_empty() && self.query.is_none() {
            companions.push((pages::pages_of(collection), None));
        }
        Ok(companions)
    }

    /// Opens a cursor for each collection, in a session: its cursors end with it, should this program die. Says which
    /// collections could not be read as of the moment of the others.
    fn open_cursors(
        &self,
        client: &mut Client,
        sources: &mut [Source],
        at_once: bool,
    ) -> Result<(Document, Vec<String>)> {
        let session = client.run("admin", doc! {"startSession": 1})?;
        let session =
            session.get("id").and_then(RawValue::as_document).context("the server gave no session")?;
        let mut session_id = Document::new();
        session_id.push("id", session.get("id").context("the server gave no session")?);
        let (mut time, mut later) = (None, Vec::new());
        for source in sources.iter_mut().filter(|source| source.holds_documents()) {
            let mut find =
                doc! {"find": &*source.collection, "noCursorTimeout": true, "lsid": session_id.clone()};
            if let Some(filter) = &source.filter {
                find.push("filter", filter.as_raw());
            }
            // The cursors of many collections wait for their turn with nothing in memory.
            find.push("batchSize", 0);
            let anytime = find.clone();
            if at_once {
                let mut concern = doc! {"level": "snapshot"};
                if let Some(time) = time {
                    concern.push("atClusterTime", RawValue::Timestamp(time));
                }
                find.push("readConcern", concern.as_raw());
            }
            let reply = match client.run(&source.database, find) {
                Err(fault) if fault.code() == Some(SNAPSHOT_UNAVAILABLE) && source.is_capped() => {
                    later.push(format!("{}.{}", source.database, source.collection));
                    client.run(&source.database, anytime)?
                }
                reply => reply?,
            };
            let cursor =
                reply.get("cursor").and_then(RawValue::as_document).context("the reply holds no cursor")?;
            if let (None, Some(RawValue::Timestamp(at))) = (time, cursor.get("atClusterTime")) {
                time = Some(at);
            }
            source.cursor = Some(Batch::of(reply, "firstBatch")?);
        }
        Ok((session_id, later))
    }

    /// Writes a collection's files; what the manifest says of them.
    fn write(
        &self,
        client: &mut Client,
        session: &Document,
        mut source: Source,
        place: &Place<'_>,
        watch: &mut dyn Watch,
    ) -> Result<Listed> {
        let database = folder_name(&source.database)?;
        let folder = place.unfinished.join(database);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let file = file_name(&source.collection)?;
        let shown = format!("{}.{}", source.database, source.collection);
        let unwritable = || format!("cannot write {shown}");
        let mut listed = Listed {
            database: source.database.clone(),
            collection: source.collection.clone(),
            documents: 0,
            files: Vec::new(),
        };
        if !is_of_buckets(&source.collection) {
            let (mut metadata, name) = Out::create(&folder, &format!("{file}.metadata.json"), self.gzip)?;
            source.metadata.write(&source.collection, &mut metadata).with_context(unwritable)?;
            let sum = metadata.finish().with_context(unwritable)?;
            listed.files.push((format!("{database}/{name}"), sum));
        }
        let Some(mut batch) = source.cursor.take() else { return Ok(listed) };
        let (mut data, name) = Out::create(&folder, &format!("{file}.bson"), self.gzip)?;
        loop {
            for document in batch.documents() {
                data.write_all(document.as_bytes()).with_context(unwritable)?;
                listed.documents += 1;
            }
            watch.moved(&shown, listed.documents, source.total);
            if batch.id == 0 {
                break;
            }
            let more = doc! {"getMore": batch.id, "collection": &*source.collection, "lsid": session.clone()};
            batch = Batch::of(client.run(&source.database, more)?, "nextBatch")?;
        }
        let sum = data.finish().with_context(unwritable)?;
        listed.files.push((format!("{database}/{name}"), sum));
        Ok(listed)
    }
}

impl Source {
    /// A view shows those of others, a time-series collection those of its buckets.
    fn holds_documents(&self) -> bool {
        let is_shown = self.metadata.is_time_series && !is_of_buckets(&self.collection);
        !self.metadata.is_view && !is_shown
    }

    fn is_capped(&self) -> bool {
        matches!(self.metadata.options.get("capped"), Some(RawValue::Bool(true)))
    }
}

impl Batch {
    fn of(reply: Document, name: &'static str) -> Result<Batch> {
        let cursor =
            reply.get("cursor").and_then(RawValue::as_document).context("the reply holds no cursor")?;
        let id = whole(cursor.get("id")).unwrap_or(0);
        Ok(Batch { id, reply, name })
    }

    fn documents(&self) -> impl Iterator<Item = RawDocument<'_>> {
        let cursor = self.reply.get("cursor").and_then(RawValue::as_document);
        let batch = cursor.and_then(|cursor| cursor.get(self.name)?.as_array());
        batch.into_iter().flat_map(|batch| batch.iter().filter_map(RawValue::as_document))
    }
}

/// Whether somebody who may dump the rest may read users and roles, too.
fn may_read(client: &mut Client, database: &str, name: &str) -> Result<bool> {
    match client.run(database, doc! {"find": name, "limit": 1, "projection": {"_id": 1}}) {
        Ok(_) => Ok(true),
        Err(fault) if fault.code() == Some(UNAUTHORIZED) => Ok(false),
        Err(fault) => Err(fault.into()),
    }
}

fn database_names(client: &mut Client) -> Result<Vec<String>> {
    let reply = client.run("admin", doc! {"listDatabases": 1, "nameOnly": true})?;
    let databases = reply.get("databases").and_then(RawValue::as_array);
    let names = databases.into_iter().flat_map(|list| list.iter().filter_map(RawValue::as_document));
    let names = names.filter_map(|database| database.get("name")?.as_str());
    Ok(names.filter(|name| !matches!(*name, "config" | "local")).map(str::to_owned).collect())
}
