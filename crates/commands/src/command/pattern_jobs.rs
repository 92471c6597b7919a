//! `patternJobs` and `killPatternJob`: background work on patterns.

use kilim_bson::{Document, Value, doc};
use kilim_engine::Namespace;
use kilim_engine::cursor::{Batch, Cursor, Source};
use kilim_error::{Error, ErrorCode, Result};

use super::list_indexes::cursor_batch;
use crate::argument::{Argument, arguments};
use crate::cursor_reply;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let database = call.generic.database;
    call.describe("command");
    let mut batch = Batch::first(Some(usize::MAX));
    for argument in arguments("patternJobs", call.body) {
        match argument.name {
            "cursor" => batch = cursor_batch(&argument)?,
            _ => return Err(argument.unknown()),
        }
    }
    let now = call.engine.now_millis();
    let jobs = call.engine.jobs.lock().clone();
    let own = jobs.iter().filter(|job| job.pattern.target.database == database);
    let documents: Vec<Document> = own
        .map(|job| {
            let (done, total) = job.progress();
            let mut shown = doc! {
                "id": job.id as i64,
                "pattern": &*job.pattern.declaration.name,
                "ns": job.pattern.target.to_string(),
                "kind": job.kind.name(),
                "state": job.state(),
                "done": done as i64,
                "total": total as i64,
                "startedAt": Value::DateTime(now - job.started.elapsed().as_millis() as i64),
            };
            if let Some(error) = job.error() {
                shown.push("error", error);
            }
            shown
        })
        .collect();
    let namespace = Namespace { database: database.to_owned(), collection: "$cmd.patternJobs".to_owned() };
    cursor_reply::first_batch(call, Cursor::new(namespace, Source::List(documents.into_iter())), batch, false)
}

pub fn run_kill(call: &mut Call<'_, '_>) -> Result<Document> {
    const NAME: &str = "killPatternJob";
    call.describe("command");
    if let Some(argument) = arguments(NAME, call.body).next() {
        return Err(argument.unknown());
    }
    let (name, value) = call.body.iter().next().ok_or_else(|| Error::bug("a command without a field"))?;
    let id = Argument { command: NAME, name, value }.integer()?;
    let jobs = call.engine.jobs.lock();
    let own = jobs
        .iter()
        .find(|job| i64::try_from(job.id) == Ok(id) && job.pattern.target.database == call.generic.database);
    match own {
        Some(job) => job.kill(),
        None => {
            let message = format!("there is no pattern job {id}: it may have ended");
            return Err(Error::user(ErrorCode::NoSuchKey, message));
        }
    }
    Ok(Document::new())
}
