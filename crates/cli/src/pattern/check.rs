//! `kilim pattern verify` and `repair`: one pattern, those of a collection, or all.

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use kilim_bson::{Document, RawValue, doc};
use kilim_client::whole;

use super::FOUND;
use super::overview::collection;
use super::waiting::job_progress;
use crate::connect::{Session, explained, text};
use crate::output::say;
use crate::progress::Progress;
use crate::table::Table;
use crate::text::{flow, grouped, json_lines, parse_document};

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Only patterns of this collection.
    collection: Option<String>,

    /// Only the pattern of this name.
    name: Option<String>,

    /// Only documents that match, such as '{status: open}'.
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,

    /// Only a share of the documents, such as 0.01.
    #[arg(long, value_name = "SHARE")]
    sample: Option<f64>,

    /// Show at most so many wrong documents a pattern.
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: u32,
}

impl Check {
    pub(super) fn run(
        &self,
        command: &'static str,
        session: &mut Session,
        as_json: bool,
    ) -> Result<ExitCode> {
        let filter = self.filter.as_deref().map(parse_document).transpose().context("--filter")?;
        let chosen = match (&self.collection, &self.name) {
            (Some(collection), Some(name)) => vec![session.pattern(collection, name)?],
            (collection, _) => session.patterns(collection.as_deref())?,
        };
        if chosen.is_empty() {
            self.check_place(session)?;
        }
        let chosen = versions_first(chosen);
        let (mut replies, mut faults) = (Vec::new(), Vec::new());
        for pattern in &chosen {
            let mut command = doc! {command: collection(pattern), "name": text(pattern, "name"), "limit": i64::from(self.limit)};
            if let Some(filter) = &filter {
                command.push("filter", filter.clone());
            }
            if let Some(sample) = self.sample {
                command.push("sample", sample);
            }
            match self.watched(command, pattern, session) {
                Ok(mut reply) => {
                    reply.push("ns", text(pattern, "ns"));
                    replies.push(reply);
                }
                // The others are looked at all the same.
                Err(fault) => faults.push(fault),
            }
        }
        if replies.is_empty() && faults.len() == 1 {
            return Err(faults.remove(0));
        }
        let wrong: i64 = replies.iter().map(|reply| whole(reply.get("wrong")).unwrap_or(0)).sum();
        match as_json {
            true => say!("{}", json_lines(&replies))?,
            false if chosen.is_empty() => say!("there are no patterns to check.")?,
            false if replies.is_empty() => {}
            false => self.print(command, &replies, faults.is_empty())?,
        }
        let faults: Vec<String> = faults.iter().map(|fault| format!("{fault:#}")).collect();
        ensure!(faults.is_empty(), "{} of {} patterns: {}", faults.len(), chosen.len(), faults.join("; "));
        Ok(if wrong > 0 && command == "verifyPattern" { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
    }

    /// Refuses a collection or a database that is not there: that nothing is wrong with it would be true of any name.
    fn check_place(&self, session: &mut Session) -> Result<()> {
        let collections = session.collections()?;
        let database = session.database();
        ensure!(!collections.is_empty(), "there is no database {database}");
        if let Some(asked) = &self.collection {
            ensure!(collections.contains(asked), "there is no collection {database}.{asked}");
        }
        Ok(())
    }

    /// Runs the command while a second connection looks how far it is.
    fn watched(&self, command: Document, pattern: &Document, session: &mut Session) -> Result<Document> {
        let (collection, name) = (collection(pattern), text(pattern, "name"));
        let mut progress = Progress::new(format!("checking {collection}.{name}"));
        let mut beside = session.another()?;
        let result =
            progress.during(move || job_progress(&mut beside, collection, name), || session.run(command));
        result.map_err(|fault| explained(fault).context(anyhow!("{collection}.{name}")))
    }

    fn print(&self, command: &str, replies: &[Document], is_all: bool) -> Result<()> {
        let mut table = Table::new(&["COLLECTION", "NAME", "#CHECKED", "#WRONG", "STATE"]);
        for reply in replies {
            let number = |name| grouped(whole(reply.get(name)).unwrap_or(0));
            table.row([
                collection(reply).to_owned(),
                text(reply, "name").to_owned(),
                number("checked"),
                number("wrong"),
                text(reply, "state").to_owned(),
            ]);
        }
        table.print()?;
        let mut wrong = 0;
        for reply in replies {
            let found = whole(reply.get("wrong")).unwrap_or(0);
            wrong += found;
            let examples = reply.get("examples").and_then(RawValue::as_array);
            let examples: Vec<_> =
                examples.iter().flat_map(|list| list.iter()).filter_map(RawValue::as_document).collect();
            if examples.is_empty() {
                continue;
            }
            let heading = format!("{}.{}", collection(reply), text(reply, "name"));
            match (examples.len() as i64) < found {
                true => say!("\n{heading}, {} of {} wrong:", examples.len(), grouped(found))?,
                false => say!("\n{heading}:")?,
            }
            let mut table = Table::new(&["_ID", "PATH", "STORED", "EXPECTED"]);
            for example in examples {
                let value = |name| example.get(name).map_or("(missing)".to_owned(), flow);
                let path = example.get("path").and_then(RawValue::as_str).unwrap_or_default().to_owned();
                table.row([value("_id"), path, value("stored"), value("expected")]);
            }
            table.print()?;
        }
        match (wrong, command) {
            (0, _) if is_all => say!("\nAll true.")?,
            (0, _) => say!("\nThese are true.")?,
            (_, "repairPattern") => say!("\nWhat was wrong has been put right.")?,
            _ => say!("\n`kilim pattern repair` puts it right; a paused pattern is resumed instead.")?,
        }
        Ok(())
    }
}

/// The patterns with steps between versions in front, those of lower versions first: after a restore the others cannot be put in
/// force before the versions of what they read.
fn versions_first(mut patterns: Vec<Document>) -> Vec<Document> {
    patterns.sort_by_key(|pattern| {
        let is_step = text(pattern, "kind") == "schemaVersion";
        let spec = pattern.get("spec").and_then(RawValue::as_document).filter(|_| is_step);
        let version = |name| spec.and_then(|spec| whole(spec.get(name))).unwrap_or(i64::MAX);
        (!is_step, version("from").min(version("to")))
    });
    patterns
}
