//! `kilim watch`: changes as they happen, of any server with change streams.
//!
//! On a terminal each change is a line for people; in a pipe it is a line of extended JSON, whose `_id` is the token that
//! `--resume` takes.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kilim_bson::{Array, Document, JsonFormat, RawDocument, RawValue, Value, doc, to_extended_json};
use kilim_client::{Client, Fault, Uri};

use crate::connect::{Encryption, UriParser, open, text, with_password};
use crate::output::{complain, one_line, say, stdout};
use crate::text::{flow, parse_values};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// What to watch: DB.COLLECTION or DB; everything if nothing is named.
    #[arg(value_name = "NS")]
    namespace: Option<String>,

    /// Server, and perhaps database.
    #[arg(
        long,
        env = "KILIM_URI",
        hide_env_values = true,
        value_parser = UriParser,
        value_name = "URI",
        default_value = "mongodb://127.0.0.1:27017"
    )]
    uri: Uri,

    /// Stages that look at one event at a time, as in '[{$match: {operationType: "insert"}}]'.
    #[arg(long, value_name = "STAGES")]
    pipeline: Option<String>,

    /// Go on behind this token: the _id of an event, or its _data alone.
    #[arg(long, value_name = "TOKEN")]
    resume: Option<String>,

    /// Show updated documents as they are now, beside what changed.
    #[arg(long)]
    full_document: bool,

    /// Show collections and indexes being made and changed, too.
    #[arg(long)]
    expanded: bool,

    #[command(flatten)]
    encryption: Encryption,
}

const EXAMPLES: &str = "\
Examples:
  kilim watch                                   all changes of all databases
  kilim watch shop.orders                       those of one collection
  kilim watch shop --pipeline '[{$match: {kilim: {$exists: false}}}]'
      Those of one database that users made, not patterns.
  kilim watch shop.orders | jq .fullDocument    a line of JSON each
  kilim watch shop.orders --resume 8265F0...    those behind an event that was seen";

/// How often a lost connection is made again before the command gives up.
const ATTEMPTS: u32 = 10;

impl Watch {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (database, target) = self.target();
        let watches_all = self.watches_all();
        let mut stages = vec![Value::Null];
        if let Some(pipeline) = &self.pipeline {
            stages.extend(parse_pipeline(pipeline)?);
        }
        let given = self.resume.as_deref().map(parse_token).transpose()?;
        let mut token = given.clone();
        // Asked for once, not for every connection.
        let uri = with_password(&self.encryption.on(&self.uri))?;
        let is_terminal = std::io::stdout().is_terminal();
        let mut failed = 0;
        loop {
            let mut options = doc! {};
            if watches_all {
                options.push("allChangesForCluster", true);
            }
            if self.full_document {
                options.push("fullDocument", "updateLookup");
            }
            if self.expanded {
                options.push("showExpandedEvents", true);
            }
            if let Some(token) = &token {
                options.push("startAfter", token.as_raw());
            }
            stages[0] = Value::Document(doc! {"$changeStream": options});
            let stages: Array = stages.iter().cloned().collect();
            let command = doc! {"aggregate": target.clone(), "pipeline": stages, "cursor": {}};
            let fault = match follow(&uri, &database, command, &mut token, is_terminal)? {
                None => return Ok(ExitCode::SUCCESS),
                Some(Followed { fault, is_new }) => {
                    failed = if is_new { 0 } else { failed + 1 };
                    fault
                }
            };
            // As drivers do: behind a lost connection, or where the server says so, the stream goes on.
            let goes_on = match &fault {
                Fault::Lost(_) => true,
                Fault::Insecure(_) => false,
                Fault::Refused(_) => {
                    fault.has_label("ResumableChangeStreamError") || fault.code() == Some(43)
                }
            };
            if !goes_on || failed > ATTEMPTS {
                // What was given is known to whoever gave it, and may be what is wrong.
                let behind = token.as_ref().filter(|token| Some(*token) != given.as_ref());
                let behind = behind.map(|token| text(token, "_data").to_owned());
                let error = anyhow!(fault).context("the stream has ended");
                return Err(match behind {
                    Some(token) => error.context(format!("to go on: --resume {token}")),
                    None => error,
                });
            }
            complain!("kilim: {fault}; going on");
            std::thread::sleep(std::time::Duration::from_secs(u64::from(failed.min(5))));
        }
    }

    /// Whether nothing is named. The database of a URI may be the one that its user is kept in.
    fn watches_all(&self) -> bool {
        self.namespace.is_none() && self.uri.database.as_deref().is_none_or(|database| database == "admin")
    }

    /// The database, and the collection or 1.
    fn target(&self) -> (String, Value) {
        let named = self.namespace.as_deref().or(self.uri.database.as_deref());
        match named.map(|named| named.split_once('.').map_or((named, None), |(db, it)| (db, Some(it)))) {
            None => ("admin".to_owned(), Value::Int32(1)),
            Some((database, None)) => (database.to_owned(), Value::Int32(1)),
            Some((database, Some(collection))) => (database.to_owned(), Value::from(collection)),
        }
    }
}

/// How a stream was left.
struct Followed {
    fault: Fault,
    /// It has shown something, or moved on.
    is_new: bool,
}

/// Opens a stream and shows its events, until it ends (none) or something goes wrong. An error of its own is one of the
/// output, which nobody reads any more.
fn follow(
    uri: &Uri,
    database: &str,
    command: Document,
    token: &mut Option<Document>,
    is_terminal: bool,
) -> Result<Option<Followed>> {
    let mut is_new = false;
    let mut client = match token.is_some() {
        false => open(uri)?,
        // It was there before: it may come again.
        true => match Client::open(uri) {
            Ok(client) => client,
            Err(fault) => return Ok(Some(Followed { fault, is_new })),
        },
    };
    client.wait_at_most(None)?;
    let mut reply = match client.run(database, command) {
        Ok(reply) => reply,
        Err(fault) => return Ok(Some(Followed { fault, is_new })),
    };
    let mut batch = "firstBatch";
    loop {
        let Some(cursor) = reply.get("cursor").and_then(RawValue::as_document) else {
            bail!("the server's reply has no cursor");
        };
        let events = cursor.get(batch).and_then(RawValue::as_array);
        for event in events.iter().flat_map(|events| events.iter()).filter_map(RawValue::as_document) {
            match is_terminal {
                true => say!("{}", readable(event))?,
                false => say!("{}", to_extended_json(event, JsonFormat::Relaxed))?,
            }
            is_new = true;
            if let Some(RawValue::Document(seen)) = event.get("_id") {
                *token = Some(seen.to_document());
            }
        }
        stdout().flush()?;
        if let Some(RawValue::Document(seen)) = cursor.get("postBatchResumeToken") {
            *token = Some(seen.to_document());
        }
        let id = match cursor.get("id") {
            Some(RawValue::Int64(0)) | None => return Ok(None),
            Some(id) => id.to_value(),
        };
        let namespace = cursor.get("ns").and_then(RawValue::as_str).unwrap_or_default();
        let collection = namespace.split_once('.').map_or(namespace, |(_, name)| name).to_owned();
        if !is_terminal && is_unread() {
            return Ok(None);
        }
        let more = doc! {"getMore": id, "collection": collection, "maxTimeMS": 10_000};
        reply = match client.run(database, more) {
            Ok(reply) => reply,
            Err(fault) => return Ok(Some(Followed { fault, is_new })),
        };
        batch = "nextBatch";
    }
}

/// Whether nobody reads the output any more. Without an event to write this would not be noticed.
fn is_unread() -> bool {
    let mut output = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    // SAFETY: the call looks at one structure, which it is given, and waits for nothing.
    let found = unsafe { libc::poll(&raw mut output, 1, 0) };
    found == 1 && output.revents & libc::POLLERR != 0
}

/// An event as a line for people: when, what, where, and what of it.
fn readable(event: RawDocument<'_>) -> String {
    let part = |name: &str| event.get(name).and_then(RawValue::as_document);
    let word = |name: &str| event.get(name).and_then(RawValue::as_str).unwrap_or_default();
    let mut shown = String::new();
    if let Some(time @ RawValue::DateTime(_)) = event.get("wallTime") {
        let time = flow(time);
        let plain = time.strip_prefix("{\"$date\":\"").and_then(|time| time.strip_suffix("\"}"));
        shown.push_str(plain.unwrap_or(&time));
        shown.push_str("  ");
    }
    if event.get("operationType").is_some() {
        shown.push_str(&format!("{:<8}", word("operationType")));
    }
    let mut pieces = Vec::new();
    if let Some(ns) = part("ns") {
        let names = ["db", "coll"].into_iter().filter_map(|name| ns.get(name)?.as_str());
        pieces.push(names.collect::<Vec<_>>().join("."));
    }
    if let Some(to) = part("to") {
        let names = ["db", "coll"].into_iter().filter_map(|name| to.get(name)?.as_str());
        pieces.push(format!("to {}", names.collect::<Vec<_>>().join(".")));
    }
    if let Some(id) = part("documentKey").and_then(|key| key.get("_id")) {
        pieces.push(flow(id));
    }
    match part("updateDescription") {
        Some(told) => {
            if let Some(updated) =
                told.get("updatedFields").and_then(RawValue::as_document).filter(|it| !it.is_empty())
            {
                pieces.push(format!("set {}", flow(RawValue::Document(updated))));
            }
            let removed = told.get("removedFields").and_then(RawValue::as_array);
            if let Some(removed) = removed.filter(|removed| removed.iter().next().is_some()) {
                pieces.push(format!("unset {}", flow(RawValue::Array(removed))));
            }
            let truncated = told.get("truncatedArrays").and_then(RawValue::as_array);
            if let Some(truncated) = truncated.filter(|truncated| truncated.iter().next().is_some()) {
                pieces.push(format!("truncate {}", flow(RawValue::Array(truncated))));
            }
        }
        None => pieces.extend(part("fullDocument").map(|document| flow(RawValue::Document(document)))),
    }
    if let Some(pattern) = part("kilim").and_then(|mark| mark.get("pattern")).and_then(RawValue::as_str) {
        pieces.push(format!("by pattern {pattern}"));
    }
    for piece in pieces {
        shown.push_str("  ");
        shown.push_str(&piece);
    }
    one_line(&shown).into_owned()
}

fn parse_pipeline(text: &str) -> Result<Vec<Value>> {
    let values = parse_values(text).context("--pipeline")?;
    let stages = match values.as_slice() {
        [Value::Array(stages)] => stages.as_raw().iter().map(RawValue::to_value).collect(),
        _ => values,
    };
    match stages.iter().all(|stage| matches!(stage, Value::Document(_))) {
        true => Ok(stages),
        false => bail!("--pipeline takes stages, as in '[{{$match: {{operationType: \"insert\"}}}}]'"),
    }
}

/// A token as it is shown: `{_data: "82…"}`, or the digits alone.
fn parse_token(text: &str) -> Result<Document> {
    if !text.trim_start().starts_with('{') {
        return Ok(doc! {"_data": text.trim()});
    }
    match parse_values(text).context("--resume")?.as_slice() {
        [Value::Document(token)] => Ok(token.clone()),
        _ => bail!("--resume takes one token, as in {{_data: \"82...\"}}, or its digits"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_lines_for_people() {
        let time = Value::DateTime(1_795_068_443_879);
        let shown = readable(doc! {"wallTime": time, "operationType": "drop", "ns": {"db": "shop"}}.as_raw());
        assert_eq!(shown, "2026-11-19T06:07:23.879Z  drop      shop");
        let projected = readable(doc! {"_id": {"_data": "82"}, "fullDocument": {"a": 1}}.as_raw());
        assert_eq!(projected.trim_start(), "{ a: 1 }");
        let event = doc! {
            "_id": {"_data": "82"}, "operationType": "update", "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": 7},
            "updateDescription": {"updatedFields": {"a": 1}, "removedFields": ["b"], "truncatedArrays": []},
            "kilim": {"pattern": "sums", "patterns": ["sums"]},
        };
        let shown = readable(event.as_raw());
        assert_eq!(shown, "update    shop.orders  7  set { a: 1 }  unset [b]  by pattern sums");
    }

    #[test]
    fn an_event_is_one_line_whatever_its_names_are() {
        let event = doc! {"operationType": "drop", "ns": {"db": "shop", "coll": "a\x1b[2J\ninsert  shop.b"}};
        assert_eq!(readable(event.as_raw()), "drop      shop.a\\u001b[2J\\ninsert  shop.b");
    }

    #[test]
    fn a_token_is_taken_as_it_is_shown_or_by_its_digits() {
        let token = doc! {"_data": "82AB"};
        assert_eq!(parse_token("82AB").unwrap(), token);
        assert_eq!(parse_token("{\"_data\": \"82AB\"}").unwrap(), token);
        assert!(parse_token("{} {}").is_err());
    }
}
