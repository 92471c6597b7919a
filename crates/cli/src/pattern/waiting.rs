//! Waiting for a pattern to be filled, with a bar to look at.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use kilim_bson::{Document, RawValue, doc};
use kilim_client::whole;

use crate::connect::{Session, explained, text};
use crate::progress::Progress;

const MAX_TIME_MS_EXPIRED: i32 = 50;
/// How long the server waits before it is asked how far it is.
const TURN_MS: i64 = 150;

/// Gives the state that the pattern reaches; `limit` is for impatient scripts.
pub(crate) fn until_filled(
    session: &mut Session,
    collection: &str,
    name: &str,
    limit: Option<Duration>,
) -> Result<String> {
    let started = Instant::now();
    let mut progress = Progress::new(format!("filling {collection}.{name}"));
    loop {
        let left = limit.map(|limit| limit.saturating_sub(started.elapsed()).as_millis() as i64);
        let turn = left.map_or(TURN_MS, |left| left.min(TURN_MS));
        match session.run(doc! {"waitPattern": collection, "name": name, "timeoutMS": turn}) {
            Ok(reply) => match text(&reply, "state") {
                state @ ("active" | "paused") => return Ok(state.to_owned()),
                state => {
                    progress.clear();
                    return Err(anyhow!(
                        "{collection}.{name} is {state}: `kilim pattern verify {collection} {name}` shows what is wrong, \
                         `kilim pattern repair {collection} {name}` puts it right"
                    ));
                }
            },
            Err(fault) if fault.code() == Some(MAX_TIME_MS_EXPIRED) => {
                if left.is_some_and(|left| left <= turn) {
                    progress.clear();
                    return Err(anyhow!(
                        "{collection}.{name} is still being filled. It goes on by itself: \
                         `kilim pattern jobs` shows how far"
                    ));
                }
            }
            Err(fault) => return Err(explained(fault)),
        }
        progress.show(job_progress(session, collection, name));
    }
}

/// How far the work on a pattern is: done, and of how many.
pub(crate) fn job_progress(session: &mut Session, collection: &str, name: &str) -> Option<(i64, i64)> {
    let namespace = format!("{}.{collection}", session.database());
    let jobs = session.all(doc! {"patternJobs": 1}).ok()?;
    let own = jobs.iter().find(|job| text(job, "ns") == namespace && text(job, "pattern") == name)?;
    share(own)
}

pub(crate) fn share(job: &Document) -> Option<(i64, i64)> {
    whole(job.get("done")).zip(whole(job.get("total")))
}

/// A state, and how much of it is behind: `building 63%`.
pub(crate) fn shown_state(pattern: &Document) -> String {
    let state = text(pattern, "state");
    let progress = pattern.get("progress").and_then(RawValue::as_document).map(|it| it.to_document());
    match progress.as_ref().and_then(share) {
        Some((done, total)) if total > 0 => format!("{state} {}%", done.clamp(0, total) * 100 / total),
        _ => state.to_owned(),
    }
}
