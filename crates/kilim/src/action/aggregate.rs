//! `aggregate`.

use bson::Bson;

use super::setters::{Options, setters};
use crate::Result;
use crate::command::Command;
use crate::cursor::{Batches, Cursor, Paging};
use crate::database::Database;
use crate::session::{Session, sign};

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Aggregate<'a> {
    database: &'a Database,
    /// None for a pipeline whose first stage reads no collection.
    collection: Option<&'a str>,
    pipeline: Vec<bson::Document>,
    batch_size: Option<u32>,
    options: Options,
    session: Option<&'a mut Session>,
}

impl<'a> Aggregate<'a> {
    pub(crate) fn new(
        database: &'a Database,
        collection: Option<&'a str>,
        pipeline: Vec<bson::Document>,
    ) -> Aggregate<'a> {
        let options = Options::default();
        Aggregate { database, collection, pipeline, batch_size: None, options, session: None }
    }

    setters!(allow_disk_use bypass_document_validation collation comment hint let_vars max_time session);

    /// How many documents are in memory at a time.
    pub fn batch_size(mut self, documents: u32) -> Self {
        self.batch_size = Some(documents.max(1));
        self
    }

    /// What comes out has a type of its own.
    pub fn run<R>(self) -> Result<Cursor<R>> {
        let mut command = match self.collection {
            Some(collection) => Command::new("aggregate", collection),
            None => Command::new("aggregate", 1),
        };
        command.set_list("pipeline", &self.pipeline)?;
        let mut cursor = bson::Document::new();
        if let Some(size) = self.batch_size {
            cursor.insert("batchSize", Bson::Int64(size.into()));
        }
        command.set_document("cursor", &cursor)?;
        self.options.put(&mut command)?;
        let signature = sign(self.session, &mut command);
        let reply = self.database.run(command)?;
        let paging = Paging { batch_size: self.batch_size, signature, ..Paging::default() };
        Ok(Cursor::new(Batches::of(self.database.clone(), reply, paging)))
    }
}
