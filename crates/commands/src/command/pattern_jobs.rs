//! `patternJobs` and `killPatternJob`: background work on patterns.

use kilim_bson::{Document, Value, doc};
use kilim_engine::Namespace;
use kilim_engine::cursor::{Batch, Cursor, CursorSource};
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
    cursor_reply::first_batch(
        call,
        Cursor::new(namespace, CursorSource::List(documents.into_iter())),
        batch,
        false,
    )
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use kilim_bson::RawValue;
    use kilim_engine::{Durability, Engine, EngineOptions};

    use super::*;
    use crate::{Client, Request};

    fn ask(client: &mut Client, mut command: Document) -> Document {
        command.push("$db", "test");
        let body = command.as_raw();
        let request = Request { body, sequences: Vec::new(), exhaust_allowed: false, legacy_hello: false };
        let reply = crate::run(client, request).document;
        assert!(matches!(reply.get("ok"), Some(RawValue::Double(1.0))), "{reply:?}");
        reply
    }

    #[test]
    fn a_check_is_listed_while_somebody_waits_for_it() {
        let durability = Durability::Relaxed;
        let storage = kilim_engine::StorageOptions::default();
        let options = EngineOptions { data: None, durability, storage, test_commands: false };
        let engine = Engine::open(options).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut client = Client::new(engine.clone(), 1, address, address);
        let documents: Vec<Document> = (0..1000).map(|id| doc! {"_id": id, "n": id}).collect();
        ask(&mut client, doc! {"insert": "c", "documents": documents});
        let twice = doc! {"set": {"twice": {"$multiply": ["$n", 2]}}};
        ask(&mut client, doc! {"createPattern": "c", "name": "twice", "computed": twice});
        ask(&mut client, doc! {"waitPattern": "c", "name": "twice"});
        let seen = AtomicBool::new(false);
        let jobs = |client: &mut Client| -> Vec<Document> {
            let reply = ask(client, doc! {"patternJobs": 1});
            let batch =
                reply.get("cursor").and_then(RawValue::as_document).and_then(|it| it.get("firstBatch"));
            let jobs = batch.and_then(RawValue::as_array).unwrap();
            jobs.iter().filter_map(RawValue::as_document).map(|job| job.to_document()).collect()
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = Client::new(engine.clone(), 2, address, address);
                while !seen.load(Ordering::Relaxed) {
                    ask(&mut other, doc! {"verifyPattern": "c", "name": "twice"});
                }
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            while !seen.load(Ordering::Relaxed) {
                let jobs = jobs(&mut client);
                // The job that filled the pattern may still be there. How many there are to do is known soon after a check
                // began.
                let text =
                    |job: &Document, name: &str| job.get(name).and_then(RawValue::as_str).map(str::to_owned);
                let begun = jobs.iter().find(|job| {
                    text(job, "kind").as_deref() == Some("verify")
                        && matches!(job.get("total"), Some(RawValue::Int64(1000)))
                });
                if let Some(job) = begun {
                    // Set first: the other thread goes on for ever if this one fails before.
                    seen.store(true, Ordering::Relaxed);
                    assert_eq!(text(job, "pattern").as_deref(), Some("twice"));
                    assert_eq!(text(job, "ns").as_deref(), Some("test.c"));
                    assert_eq!(text(job, "state").as_deref(), Some("running"));
                }
                if Instant::now() > deadline {
                    seen.store(true, Ordering::Relaxed);
                    panic!("never listed");
                }
            }
        });
        assert!(jobs(&mut client).is_empty());
        engine.close().unwrap();
    }
}
