//! Counting and distinct values.

use bson::{Bson, doc};

use super::setters::{Options, setters};
use crate::Result;
use crate::collection::Collection;
use crate::command::Command;
use crate::results::{count, field};
use crate::session::{Session, sign};

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Count<'a, T> {
    collection: &'a Collection<T>,
    filter: bson::Document,
    options: Options,
    session: Option<&'a mut Session>,
}

#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Distinct<'a, T> {
    collection: &'a Collection<T>,
    field: String,
    filter: bson::Document,
    options: Options,
    session: Option<&'a mut Session>,
}

impl<'a, T> Count<'a, T> {
    pub(crate) fn new(collection: &'a Collection<T>, filter: bson::Document) -> Count<'a, T> {
        Count { collection, filter, options: Options::default(), session: None }
    }

    setters!(collation comment hint limit max_time session skip);

    pub fn run(mut self) -> Result<u64> {
        // The count command is not to be had in a transaction; a pipeline is.
        let mut pipeline = vec![doc! {"$match": self.filter}];
        let skip = self.options.take("skip").map(|skip| doc! {"$skip": skip});
        // No `$limit` takes the 0 that stands for all.
        let limit = self.options.take("limit").filter(|limit| *limit != Bson::Int64(0));
        pipeline.extend(skip);
        pipeline.extend(limit.map(|limit| doc! {"$limit": limit}));
        pipeline.push(doc! {"$group": {"_id": 1, "n": {"$sum": 1}}});
        let mut command = Command::new("aggregate", self.collection.name());
        command.set_list("pipeline", &pipeline)?;
        command.set_document("cursor", &bson::Document::new())?;
        self.options.put(&mut command)?;
        sign(self.session, &mut command);
        let reply = self.collection.database.run(command)?;
        Ok(crate::cursor::first_of(&reply).map_or(0, |counted| count(counted, "n")))
    }
}

impl<'a, T> Distinct<'a, T> {
    pub(crate) fn new(
        collection: &'a Collection<T>,
        field: String,
        filter: bson::Document,
    ) -> Distinct<'a, T> {
        Distinct { collection, field, filter, options: Options::default(), session: None }
    }

    setters!(collation comment hint max_time session);

    pub fn run(self) -> Result<Vec<Bson>> {
        let mut command = Command::new("distinct", self.collection.name());
        command.set("key", self.field.as_str());
        command.set_document("query", &self.filter)?;
        self.options.put(&mut command)?;
        sign(self.session, &mut command);
        let reply = self.collection.database.run(command)?;
        match field(reply.as_raw(), "values")? {
            Bson::Array(values) => Ok(values),
            _ => Ok(Vec::new()),
        }
    }
}
