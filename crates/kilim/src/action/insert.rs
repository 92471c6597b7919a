//! `insert`.

use bson::Bson;
use kilim_bson::{Document, RawDocument, Writer};

use super::setters::{Options, setters};
use crate::Result;
use crate::collection::Collection;
use crate::command::Command;
use crate::error::Error;
use crate::results::{InsertManyResult, InsertOneResult, check_writes, field};
use crate::session::{Session, sign};

/// What one command may carry, as on the wire.
const BATCH_DOCUMENTS: usize = 100_000;
const BATCH_BYTES: usize = 48_000_000;

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct InsertOne<'a, T> {
    collection: &'a Collection<T>,
    document: Result<Document>,
    options: Options,
    session: Option<&'a mut Session>,
}

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct InsertMany<'a, T> {
    collection: &'a Collection<T>,
    documents: Result<Vec<Document>>,
    ordered: bool,
    options: Options,
    session: Option<&'a mut Session>,
}

impl<'a, T> InsertOne<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, document: Result<Document>) -> InsertOne<'a, T> {
        InsertOne { collection, document, options: Options::default(), session: None }
    }

    setters!(bypass_document_validation comment session);

    pub fn run(self) -> Result<InsertOneResult> {
        let document = with_id(self.document?);
        insert(self.collection, std::slice::from_ref(&document), true, &self.options, self.session)?;
        Ok(InsertOneResult { inserted_id: field(document.as_raw(), "_id")? })
    }
}

impl<'a, T> InsertMany<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, documents: Result<Vec<Document>>) -> InsertMany<'a, T> {
        InsertMany { collection, documents, ordered: true, options: Options::default(), session: None }
    }

    /// Whether one that is refused ends the insert: true unless told otherwise.
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self
    }

    setters!(bypass_document_validation comment session);

    pub fn run(mut self) -> Result<InsertManyResult> {
        let documents: Vec<Document> = self.documents?.into_iter().map(with_id).collect();
        let ids: Result<Vec<Bson>> =
            documents.iter().map(|document| field(document.as_raw(), "_id")).collect();
        let mut refused = Vec::new();
        let mut first = 0;
        while first < documents.len() {
            let mut bytes = 0;
            let fits = |document: &&Document| {
                bytes += document.as_bytes().len();
                bytes <= BATCH_BYTES
            };
            let count = documents[first..].iter().take(BATCH_DOCUMENTS).take_while(fits).count().max(1);
            let batch = &documents[first..first + count];
            let session = self.session.as_deref_mut();
            match insert(self.collection, batch, self.ordered, &self.options, session) {
                Ok(()) => {}
                Err(Error::Writes(errors)) => {
                    refused.extend(errors.into_iter().map(|mut error| {
                        error.index += first;
                        error
                    }));
                    if self.ordered {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
            first += count;
        }
        match refused.is_empty() {
            true => Ok(InsertManyResult { inserted_ids: ids? }),
            false => Err(Error::Writes(refused)),
        }
    }
}

fn insert<T>(
    collection: &Collection<T>,
    documents: &[Document],
    ordered: bool,
    options: &Options,
    session: Option<&mut Session>,
) -> Result<()> {
    let mut command = Command::new("insert", collection.name());
    command.set("ordered", ordered);
    options.put(&mut command)?;
    sign(session, &mut command);
    let raw: Vec<RawDocument<'_>> = documents.iter().map(Document::as_raw).collect();
    let database = &collection.database;
    let reply = command.run_with(&database.shared.engine, &database.name, vec![("documents", raw)])?;
    check_writes(reply.as_raw())
}

/// With a new `_id` where there is none, ahead of everything else.
fn with_id(document: Document) -> Document {
    if document.get("_id").is_some() {
        return document;
    }
    let mut writer = Writer::with_capacity(document.as_bytes().len() + 17);
    writer.append("_id", kilim_bson::RawValue::ObjectId(kilim_bson::ObjectId::new()));
    writer.append_elements(document.as_raw().elements());
    writer.finish()
}
