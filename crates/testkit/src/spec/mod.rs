//! Specs: what a server must answer, as files that people read. The format is in `specs/README.md`.
//!
//! A [`SpecFile`] is parsed into cases of steps. A [`Runner`] runs a case against a server and gives
//! each step's [`Answer`], which is compared with the expectation or, when recording, written in its
//! place.
//!
//! Invariant: expectations of a case whose target names mongod come from mongod only.

mod answer;
mod matching;
mod parse;
mod plan;
mod record;
mod run;

use std::path::PathBuf;

use kilim_bson::Document;

pub use answer::Answer;
pub use parse::parse;
pub use record::record;
pub(crate) use run::default_index_name;
pub use run::{CaseResult, Mismatch, Runner};

pub struct SpecFile {
    pub path: PathBuf,
    pub text: String,
    /// The comment at the head of the file.
    pub about: String,
    pub cases: Vec<Case>,
}

#[derive(Clone)]
pub struct Case {
    pub title: String,
    /// Where it begins, counted from 1.
    pub line: usize,
    pub target: Target,
    /// Why Kilim does not pass it yet.
    pub fails: Option<String>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Both servers answer alike; recorded from mongod.
    Both,
    /// Kilim only, and why; written by hand.
    Kilim(String),
    /// Something that mongod does and Kilim does not intend to, and why.
    Mongod(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    Mongod,
    Kilim,
}

#[derive(Clone)]
pub struct Step {
    pub line: usize,
    pub action: Action,
    pub session: Option<String>,
    pub expectation: Option<Expectation>,
    /// The line behind the command: where an expectation is recorded.
    pub end_line: usize,
}

#[derive(Clone)]
pub enum Action {
    Given {
        collection: String,
        documents: Vec<Document>,
    },
    Index {
        collection: String,
        key: Document,
        options: Document,
    },
    /// A command that must succeed; its reply is not looked at.
    Do(Document),
    /// Opens a transaction in the step's session: its commands join until it is committed or aborted.
    Begin,
    Run(Document),
    Docs {
        unordered: bool,
        command: Document,
    },
    Error {
        message: bool,
        command: Document,
    },
    WriteError(Document),
    Plan(Document),
}

impl Action {
    /// Whether the step has an expectation.
    pub fn is_question(&self) -> bool {
        !matches!(self, Action::Given { .. } | Action::Index { .. } | Action::Do(_) | Action::Begin)
    }
}

/// The lines between `----` and the next blank line.
#[derive(Clone)]
pub struct Expectation {
    /// The line of `----`, counted from 1.
    pub line: usize,
    pub lines: Vec<String>,
}

impl Target {
    pub fn includes(&self, server: Against) -> bool {
        match self {
            Target::Both => true,
            Target::Kilim(_) => server == Against::Kilim,
            Target::Mongod(_) => server == Against::Mongod,
        }
    }
}
