//! `kilim pattern list`, `show` and `jobs`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_client::whole;

use super::waiting::{share, shown_state};
use super::{Named, drawing};
use crate::connect::{Session, explained, text};
use crate::output::{say, show};
use crate::progress::Progress;
use crate::table::Table;
use crate::text::{grouped, json, json_lines, write_yaml};

/// How long to wait before the jobs are looked at again.
const TURN: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only patterns of this collection.
    collection: Option<String>,

    /// Print declarations, as `kilim apply` reads them.
    #[arg(long, conflicts_with = "json")]
    yaml: bool,
}

impl List {
    pub(super) fn run(&self, session: &mut Session, as_json: bool) -> Result<ExitCode> {
        let mut patterns = session.patterns(self.collection.as_deref())?;
        patterns.sort_by(|a, b| (text(a, "ns"), text(a, "name")).cmp(&(text(b, "ns"), text(b, "name"))));
        if as_json {
            say!("{}", json_lines(&patterns))?;
        } else if self.yaml {
            show!("{}", as_file(session.database(), &patterns))?;
        } else if patterns.is_empty() {
            let place = match &self.collection {
                Some(collection) => format!("{}.{collection}", session.database()),
                None => session.database().to_owned(),
            };
            say!("{place} has no patterns. `kilim pattern create --help` shows how to declare one.")?;
        } else {
            print_patterns(&patterns)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_patterns(patterns: &[Document]) -> Result<()> {
    let mut table =
        Table::new(&["COLLECTION", "NAME", "KIND", "STATE", "MAINTAINS", "#WRITES", "#PENDING", "#DRIFT"]);
    for pattern in patterns {
        let counter = |name| grouped(counter(pattern, name));
        table.row([
            collection(pattern).to_owned(),
            text(pattern, "name").to_owned(),
            text(pattern, "kind").to_owned(),
            shown_state(pattern),
            fields(pattern).join(", "),
            counter("maintained"),
            counter("pendingSources"),
            counter("drift"),
        ]);
    }
    table.print()?;
    for pattern in patterns.iter().filter(|pattern| pattern.get("reason").is_some()) {
        let name = format!("{}.{}", collection(pattern), text(pattern, "name"));
        say!("\n{name} has failed: {}", text(pattern, "reason"))?;
    }
    Ok(())
}

/// The patterns as a file that declares them.
fn as_file(database: &str, patterns: &[Document]) -> String {
    let mut out = String::new();
    write_yaml(doc! {"database": database}.as_raw(), 0, &mut out);
    out.push_str(if patterns.is_empty() { "patterns: []\n" } else { "patterns:\n" });
    for pattern in patterns {
        let mut block = String::new();
        write_yaml(declaration(pattern).as_raw(), 2, &mut block);
        // The first line of an element begins with its dash.
        out.push_str("  - ");
        out.push_str(block.trim_start());
    }
    out
}

/// The command that declares a listed pattern.
pub(crate) fn declaration(pattern: &Document) -> Document {
    let mut command = doc! {"createPattern": collection(pattern), "name": text(pattern, "name")};
    if let Some(spec) = pattern.get("spec") {
        command.push(text(pattern, "kind"), spec.to_value());
    }
    let options = pattern.get("options").and_then(RawValue::as_document);
    for (name, value) in options.iter().flat_map(|options| options.iter()) {
        command.push(name, value.to_value());
    }
    command
}

/// The collection of a listed pattern.
pub(crate) fn collection(pattern: &Document) -> &str {
    text(pattern, "ns").split_once('.').map_or("", |(_, collection)| collection)
}

fn fields(pattern: &Document) -> Vec<String> {
    let fields = pattern.get("fields").and_then(RawValue::as_array);
    fields
        .into_iter()
        .flat_map(|fields| fields.iter())
        .filter_map(RawValue::as_str)
        .map(str::to_owned)
        .collect()
}

fn counter(pattern: &Document, name: &str) -> i64 {
    let counters = pattern.get("counters").and_then(RawValue::as_document);
    counters.and_then(|counters| whole(counters.get(name))).unwrap_or(0)
}

pub(super) fn show(named: &Named, session: &mut Session, as_json: bool) -> Result<ExitCode> {
    let pattern = session.pattern(&named.collection, &named.name)?;
    if as_json {
        say!("{}", json(&pattern))?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("{} '{}' of {}", text(&pattern, "kind"), named.name, text(&pattern, "ns"))?;
    say!("  state      {}", shown_state(&pattern))?;
    if pattern.get("reason").is_some() {
        say!("  reason     {}", text(&pattern, "reason"))?;
    }
    say!("  maintains  {}", fields(&pattern).join(", "))?;
    if let Some(counters) = pattern.get("counters").and_then(RawValue::as_document) {
        print_counters(counters)?;
    }
    say!()?;
    let mut shown = String::new();
    write_yaml(declaration(&pattern).as_raw(), 0, &mut shown);
    show!("{shown}")?;
    drawing::draw(session, &named.collection, &pattern)?;
    Ok(ExitCode::SUCCESS)
}

fn print_counters(counters: RawDocument<'_>) -> Result<()> {
    let shown = counters.iter().map(|(name, value)| {
        let words = match name {
            "maintained" => "documents maintained",
            "userWritesReplaced" => "user writes replaced",
            "pendingSources" => "sources pending",
            "drift" => "documents found wrong",
            other => other,
        };
        format!("{} {words}", grouped(whole(Some(value)).unwrap_or(0)))
    });
    say!("  counters   {}", shown.collect::<Vec<_>>().join(", "))?;
    Ok(())
}

#[derive(Debug, Args)]
pub(crate) struct Jobs {
    /// End this job; its pattern becomes failed, and repair resumes it.
    #[arg(long, value_name = "ID")]
    kill: Option<i64>,

    /// Wait until all of them have ended.
    #[arg(long, conflicts_with = "kill")]
    wait: bool,
}

impl Jobs {
    pub(super) fn run(&self, session: &mut Session, as_json: bool) -> Result<ExitCode> {
        if let Some(id) = self.kill {
            let reply = session.run(doc! {"killPatternJob": id}).map_err(explained)?;
            match as_json {
                true => say!("{}", json(&reply))?,
                false => say!("job {id} was told to end.")?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut jobs = session.all(doc! {"patternJobs": 1}).map_err(explained)?;
        if self.wait {
            let mut progress = Progress::new("working");
            // One that was killed stays until its pattern is repaired.
            while jobs.iter().any(|job| text(job, "state") != "killed") {
                let shares = jobs.iter().filter_map(share);
                progress.show(shares.reduce(|sum, next| (sum.0 + next.0, sum.1 + next.1)));
                std::thread::sleep(TURN);
                jobs = session.all(doc! {"patternJobs": 1}).map_err(explained)?;
            }
        }
        if as_json {
            say!("{}", json_lines(&jobs))?;
        } else if jobs.is_empty() {
            say!("nothing is being done in the background.")?;
        } else {
            print_jobs(&jobs)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_jobs(jobs: &[Document]) -> Result<()> {
    let mut table =
        Table::new(&["#ID", "COLLECTION", "PATTERN", "KIND", "STATE", "#DONE", "#OF", "#PERCENT"]);
    for job in jobs {
        let (done, total) = share(job).unwrap_or_default();
        let percent = if total > 0 { done.clamp(0, total) * 100 / total } else { 0 };
        table.row([
            whole(job.get("id")).unwrap_or_default().to_string(),
            collection(job).to_owned(),
            text(job, "pattern").to_owned(),
            text(job, "kind").to_owned(),
            text(job, "state").to_owned(),
            grouped(done),
            grouped(total),
            percent.to_string(),
        ]);
    }
    table.print()?;
    for job in jobs.iter().filter(|job| !text(job, "error").is_empty()) {
        say!("\njob {}: {}", whole(job.get("id")).unwrap_or_default(), text(job, "error"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::declare::declarations;
    use crate::text::parse_values;

    #[test]
    fn a_listing_as_yaml_declares_the_same_again() {
        let listed = doc! {"name": "card", "kind": "extendedReference", "ns": "shop.orders.open",
        "spec": {"from": "customers", "localField": "c", "as": "x", "fields": {"name": 1, "city": "$address.city"},
                 "while": {"status": {"$ne": "shipped"}}, "onSourceDelete": "keep"},
        "options": {"onUserWrite": "reject"}, "state": "active"};
        let text = as_file("shop", &[listed.clone(), listed.clone()]);
        let found = declarations(parse_values(&text).unwrap()).unwrap();
        assert_eq!(found, [declaration(&listed), declaration(&listed)], "{text}");
    }
}
