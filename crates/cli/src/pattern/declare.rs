//! `kilim pattern create`: a declaration from arguments, a file or standard input.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use kilim_bson::{Document, RawValue, Value, doc};

use super::waiting;
use crate::connect::{Session, explained, text};
use crate::output::{say, show};
use crate::text::{json, parse_document, parse_value, parse_values, write_yaml};

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Create {
    /// The collection that receives the maintained fields.
    #[arg(requires = "name", required_unless_present = "file", conflicts_with = "file")]
    collection: Option<String>,

    /// A name, unique in the collection.
    #[arg(requires = "kind")]
    name: Option<String>,

    /// extendedReference, computed, subset, polymorphic or attribute.
    #[arg(requires = "spec")]
    kind: Option<String>,

    /// The kind's own document, in YAML or JSON.
    spec: Option<String>,

    /// A file that holds the declaration in YAML or JSON; - is standard input.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,

    /// An option of the declaration, such as maxSync=500; may be repeated.
    #[arg(long = "option", short, value_name = "NAME=VALUE")]
    options: Vec<String>,

    /// Check and estimate, and store nothing.
    #[arg(long)]
    dry_run: bool,

    /// Do not wait until documents from before are filled.
    #[arg(long)]
    no_wait: bool,
}

const EXAMPLES: &str = "\
Examples:
  kilim pattern create orders customerCard extendedReference \\
      '{from: customers, localField: customerId, as: customer, fields: {name: 1, email: 1}}'
  kilim pattern create products reviewStats computed \\
      '{from: reviews, pipeline: [{$group: {_id: $productId, reviewCount: {$count: {}}}}]}' \\
      --option onUserWrite=reject
  kilim pattern create --file card.yaml

card.yaml is the command itself:
  createPattern: orders
  name: customerCard
  extendedReference:
    from: customers
    localField: customerId
    as: customer
    fields: {name: 1, email: 1}";

impl Create {
    pub(super) fn run(&self, session: &mut Session, as_json: bool) -> Result<ExitCode> {
        let mut command = self.declaration()?;
        if self.dry_run {
            command.push("dryRun", true);
        }
        let (collection, name) =
            (text(&command, "createPattern").to_owned(), text(&command, "name").to_owned());
        let mut reply = session.run(command).map_err(explained)?;
        if self.dry_run {
            match as_json {
                true => say!("{}", json(&reply))?,
                false => print_dry_run(session, &collection, &reply)?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        if !self.no_wait && text(&reply, "state") != "active" {
            waiting::until_filled(session, &collection, &name, None)?;
            reply = session.pattern(&collection, &name)?;
        }
        match as_json {
            true => say!("{}", json(&reply))?,
            false => {
                let state = waiting::shown_state(&reply);
                say!("{}.{collection}: '{name}' is declared, and {state}.", session.database())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn declaration(&self) -> Result<Document> {
        let mut command = match (&self.file, &self.collection, &self.name, &self.kind, &self.spec) {
            (Some(file), ..) => {
                let text = read(file)?;
                let place = || place_of(file);
                let mut found = declarations(parse_values(&text).with_context(place)?).with_context(place)?;
                ensure!(
                    found.len() == 1,
                    "{} declares {} patterns: `kilim apply` takes several",
                    place(),
                    found.len()
                );
                found.remove(0)
            }
            (None, Some(collection), Some(name), Some(kind), Some(spec)) => {
                let mut command = doc! {"createPattern": &**collection, "name": &**name};
                command.push(kind, parse_document(spec).context("SPEC")?);
                command
            }
            _ => bail!("give COLLECTION, NAME, KIND and SPEC, or --file"),
        };
        for option in &self.options {
            let (name, value) = option
                .split_once('=')
                .ok_or_else(|| anyhow!("--option {option}: write NAME=VALUE, such as maxSync=500"))?;
            command.push(name, parse_value(value).with_context(|| format!("--option {option}"))?);
        }
        Ok(command)
    }
}

fn print_dry_run(session: &Session, collection: &str, reply: &Document) -> Result<()> {
    say!("{}.{collection}: '{}' could be declared.", session.database(), text(reply, "name"))?;
    if let Some(estimate) = reply.get("estimate").and_then(RawValue::as_document) {
        let mut shown = String::new();
        write_yaml(estimate, 1, &mut shown);
        show!("{shown}")?;
    }
    if let Some(sample) = reply.get("sample") {
        let mut shown = String::new();
        write_yaml(doc! {"sample": sample.to_value()}.as_raw(), 1, &mut shown);
        show!("{shown}")?;
    }
    Ok(())
}

/// A file's text; `-` is standard input.
pub(crate) fn read(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

pub(crate) fn place_of(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

/// The declarations in a file's documents: one, a list, or a document whose `patterns` is a list.
pub(crate) fn declarations(values: Vec<Value>) -> Result<Vec<Document>> {
    let mut found = Vec::new();
    for value in values {
        match value {
            Value::Array(list) => {
                for value in list.as_raw().iter() {
                    found.push(declaration(value)?);
                }
            }
            Value::Document(document) => match document.get("patterns") {
                Some(RawValue::Array(list)) => {
                    if let Some((other, _)) =
                        document.iter().find(|(name, _)| !["patterns", "database"].contains(name))
                    {
                        bail!("unknown field '{other}' beside 'patterns'");
                    }
                    for value in list.iter() {
                        found.push(declaration(value)?);
                    }
                }
                _ => found.push(declaration(RawValue::Document(document.as_raw()))?),
            },
            _ => bail!("expected a declaration: a document that begins with createPattern"),
        }
    }
    Ok(found)
}

fn declaration(value: RawValue<'_>) -> Result<Document> {
    let document = value.as_document().context("a declaration is a document")?;
    ensure!(
        document.get("createPattern").and_then(RawValue::as_str).is_some(),
        "a declaration begins with createPattern: <collection>, not {}",
        document.iter().next().map_or("nothing".to_owned(), |(name, _)| format!("'{name}'"))
    );
    // The command's own name stands first, wherever it stands in the file.
    let mut command = Document::new();
    for first in [true, false] {
        for (name, value) in document.iter().filter(|(name, _)| (*name == "createPattern") == first) {
            command.push(name, value.to_value());
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_one_declaration_or_many() {
        let one = "name: n\ncreatePattern: c\ncomputed: {set: {a: 1}}";
        let expected = doc! {"createPattern": "c", "name": "n", "computed": {"set": {"a": 1}}};
        for (text, count) in [
            (one.to_owned(), 1),
            (format!("{one}\n---\n{one}"), 2),
            (format!("- {}", one.replace('\n', "\n  ")), 1),
            (format!("database: shop\npatterns:\n- {}", one.replace('\n', "\n  ")), 1),
            ("patterns: []".to_owned(), 0),
        ] {
            let found = declarations(parse_values(&text).unwrap()).unwrap();
            assert_eq!(found.len(), count, "{text}");
            assert!(found.iter().all(|declaration| *declaration == expected), "{found:?}");
        }
        for text in ["name: n", "- 5", "7", "patterns: []\npattern: 1"] {
            assert!(parse_values(text).and_then(declarations).is_err(), "{text}");
        }
    }
}
