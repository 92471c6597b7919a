//! `kilim apply`: make the patterns of a database what a file says.
//!
//! The plan is shown before anything is done. A second run finds nothing to do; one that was interrupted
//! goes on where it stopped, because the plan is made from what the server has.

mod plan;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use kilim_bson::{Document, RawValue, Value, doc};
use kilim_client::Fault;

use self::plan::{Plan, Step, What};
use crate::confirm::confirmed;
use crate::connect::{Place, Session, explained};
use crate::output::{say, show};
use crate::pattern::{FOUND, declarations, place_of, read, waiting};
use crate::text::{json, parse_values};

const NAMESPACE_EXISTS: i32 = 48;
const NOT_IMPLEMENTED: i32 = 238;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    /// The declarations, in YAML or JSON; - is standard input.
    file: PathBuf,

    #[command(flatten)]
    place: Place,

    /// Do not ask.
    #[arg(long, short)]
    yes: bool,

    /// Drop the database's patterns that the file does not name; their fields stay as plain ones.
    #[arg(long)]
    prune: bool,

    /// Show the plan and change nothing; exit code 3 if there is something to do.
    #[arg(long, conflicts_with = "yes")]
    check: bool,

    /// Do not wait until documents from before are filled.
    #[arg(long)]
    no_wait: bool,

    /// Print the plan as JSON, for programs.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
patterns.yaml:
  database: shop                  # unless the URI or --db names one
  patterns:
    - createPattern: orders       # the fields of the createPattern command
      name: customerCard
      extendedReference:
        from: customers
        localField: customerId
        as: customer
        fields: {name: 1, email: 1}
    - createPattern: products
      name: recent
      subset: {from: reviews, foreignField: productId, as: recentReviews, sort: {date: -1}, limit: 5}

Examples:
  kilim apply patterns.yaml                 shows the plan, asks, applies it
  kilim apply patterns.yaml --yes --prune   for scripts; what the file no longer names is dropped
  kilim apply patterns.yaml --check         for CI: exit code 3 if the server differs
  kilim pattern list --yaml --db shop       writes such a file

Exit codes: 0 as declared, 1 failed, 2 the command line is wrong, 3 --check found something to do.";

impl Apply {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (database, declared) = read_file(&self.file)?;
        let mut session = self.place.open(database.as_deref())?;
        let existing = session.patterns(None)?;
        let collections = session.collections()?;
        let plan = Plan::make(declared, &existing, &collections, self.prune)
            .with_context(|| place_of(&self.file))?;
        if self.json {
            say!("{}", json(&plan.to_document(session.database())))?;
        } else {
            say!("Patterns of {} at {}:", session.database(), self.place.uri.server())?;
            show!("{plan}")?;
        }
        if let Some(Step { what: What::Impossible { reason, .. }, .. }) = plan.impossible() {
            bail!("{reason}. Nothing was changed");
        }
        if self.check {
            return Ok(if plan.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) });
        }
        if plan.is_empty() {
            self.say("Nothing to do.")?;
            return Ok(ExitCode::SUCCESS);
        }
        if !self.yes && !confirmed("Apply?")? {
            bail!("nothing was changed");
        }
        let total = plan.to_do().count();
        for (done, step) in plan.to_do().enumerate() {
            self.apply(step, &mut session).with_context(|| {
                format!("cannot {step}; of {total} steps {done} were done before. Run it again to go on")
            })?;
        }
        self.say(&format!("Done: {total} {}.", if total == 1 { "step" } else { "steps" }))?;
        Ok(ExitCode::SUCCESS)
    }

    fn apply(&self, step: &Step, session: &mut Session) -> Result<()> {
        let Step { collection, name, what } = step;
        let started = Instant::now();
        let (command, verb) = match what {
            What::Source { .. } => (doc! {"create": &**collection}, "created"),
            What::Create { command, .. } => (command.clone(), "created"),
            What::Modify { command, .. } => (command.clone(), "modified"),
            What::Drop => (doc! {"dropPattern": &**collection, "name": &**name}, "dropped"),
            What::Unchanged { .. } | What::Impossible { .. } | What::LeftAlone => return Ok(()),
        };
        match session.run(command) {
            // Somebody else was faster.
            Err(fault) if matches!(what, What::Source { .. }) && fault.code() == Some(NAMESPACE_EXISTS) => {}
            result => drop(result.map_err(|fault| refused(what, fault))?),
        }
        let mut state = String::new();
        if !self.no_wait && !matches!(what, What::Drop | What::Source { .. }) {
            state = waiting::until_filled(session, collection, name, None)?;
            state = format!(", {state} after {:.1} s", started.elapsed().as_secs_f64());
        }
        self.say(&format!("{verb} {}{state}", step.subject()))
    }

    fn say(&self, line: &str) -> Result<()> {
        if !self.json {
            say!("{line}")?;
        }
        Ok(())
    }
}

fn refused(what: &What, fault: Fault) -> anyhow::Error {
    match (what, fault.code()) {
        (What::Modify { .. }, Some(NOT_IMPLEMENTED)) => explained(fault).context(
            "If nothing has to maintain the fields for a moment: `kilim pattern drop` keeps them as they are, \
             and `kilim apply` then declares the pattern anew.",
        ),
        _ => explained(fault),
    }
}

/// The database that the file names, if it does, and its declarations.
fn read_file(file: &Path) -> Result<(Option<String>, Vec<Document>)> {
    let values = parse_values(&read(file)?).with_context(|| place_of(file))?;
    ensure!(!values.is_empty(), "{} is empty: see `kilim apply --help`", place_of(file));
    let database = values.iter().find_map(|value| match value {
        Value::Document(document) => document.get("database").and_then(RawValue::as_str).map(str::to_owned),
        _ => None,
    });
    Ok((database, declarations(values).with_context(|| place_of(file))?))
}
