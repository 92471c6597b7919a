//! Counting and distinct values.

use bson::Bson;

use crate::Result;
use crate::collection::Collection;
use crate::command::Command;
use crate::results::{count, field};
use crate::session::Session;

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Count<'a, T> {
    collection: &'a Collection<T>,
    filter: bson::Document,
    session: Option<&'a mut Session>,
}

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Distinct<'a, T> {
    collection: &'a Collection<T>,
    field: String,
    filter: bson::Document,
    session: Option<&'a mut Session>,
}

impl<'a, T> Count<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, filter: bson::Document) -> Count<'a, T> {
        Count { collection, filter, session: None }
    }

    /// In a session's transaction.
    pub fn session(mut self, session: &'a mut Session) -> Self {
        self.session = Some(session);
        self
    }

    pub fn run(self) -> Result<u64> {
        // The count command is not to be had in a transaction; a pipeline is.
        let group = bson::doc! {"$group": {"_id": 1, "n": {"$sum": 1}}};
        let pipeline = [bson::doc! {"$match": self.filter}, group];
        let mut counting = self.collection.aggregate(pipeline);
        if let Some(session) = self.session {
            counting = counting.session(session);
        }
        match counting.run::<bson::RawDocumentBuf>()?.next().transpose()? {
            Some(counted) => {
                let counted = kilim_bson::Document::parse(counted.into_bytes());
                Ok(counted.map_or(0, |counted| count(counted.as_raw(), "n")))
            }
            None => Ok(0),
        }
    }
}

impl<'a, T> Distinct<'a, T> {
    pub(crate) fn new(
        collection: &'a Collection<T>,
        field: String,
        filter: bson::Document,
    ) -> Distinct<'a, T> {
        Distinct { collection, field, filter, session: None }
    }

    /// In a session's transaction.
    pub fn session(mut self, session: &'a mut Session) -> Self {
        self.session = Some(session);
        self
    }

    pub fn run(self) -> Result<Vec<Bson>> {
        let mut command = Command::new("distinct", self.collection.name());
        command.set("key", self.field.as_str());
        command.set_document("query", &self.filter)?;
        if let Some(session) = self.session {
            session.sign(&mut command);
        }
        let reply = self.collection.database.run(command)?;
        match field(reply.as_raw(), "values")? {
            Bson::Array(values) => Ok(values),
            _ => Ok(Vec::new()),
        }
    }
}
