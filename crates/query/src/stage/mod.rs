//! Pipelines: what `aggregate` and its kin were asked, stage by stage.
//!
//! A [`Stage`] is what was asked; what runs is the engine's affair. Each stage has a file with its parser,
//! a line in [`table`], and a [`Behaviour`] that explain and the optimiser read. Shorthands are resolved
//! when they are parsed (`$unset` is a `$project`, `$count` a `$group` and a `$project`), so fewer things
//! run than can be written.
//!
//! Payloads are cheap to clone: what is large lies behind an `Arc`, since a sub-pipeline is opened once for
//! every document that comes by.

mod count_only;
mod documents;
mod limit;
mod r#match;
mod refused;
mod skip;
mod sort;
mod table;

use kilim_bson::{Document, RawArray};
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::{Dependencies, Scope};

pub use count_only::CountOnly;
pub use documents::Documents;
pub use limit::Limit;
pub use r#match::Match;
pub use skip::Skip;
pub use sort::SortBy;
pub use table::{DEFINITIONS, Definition, find};

/// More stages than this are refused, as on MongoDB.
const STAGES_MAX: usize = 1000;
/// Sub-pipelines within sub-pipelines, as on MongoDB.
const DEPTH_MAX: usize = 20;

/// A parsed pipeline.
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    pub stages: Vec<Stage>,
}

/// One step of a pipeline.
#[derive(Debug, Clone)]
pub enum Stage {
    Match(Match),
    Sort(SortBy),
    Limit(Limit),
    Skip(Skip),
    Documents(Documents),
    CountOnly(CountOnly),
}

/// What explain and the optimiser ask of any stage.
pub trait Behaviour {
    /// The stage as explain prints it: `{$match: …}`.
    fn to_document(&self) -> Document;

    /// Adds what it reads of its input, and says whether that is all that is needed of it.
    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        needed.whole_document = true;
        Beyond::Nothing
    }

    /// What it does to the paths of a document, for a `$match` that would rather go first.
    fn modified(&self) -> Modified {
        Modified::Unknown
    }

    /// Names each collection that it reads beside its input, those of its sub-pipelines included.
    fn collections(&self, _visit: &mut dyn FnMut(&str, &str)) {}
}

/// What a stage's input must have beside what the stage itself reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beyond {
    /// Whatever the stages behind it read.
    Later,
    /// Nothing: it makes new documents.
    Nothing,
}

/// What a stage does to paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Modified {
    /// It may change which documents there are, or anything in them: no `$match` passes it.
    Unknown,
    /// These paths, and what lies below and above them. The others pass as they are.
    Paths(Paths),
    /// All but these.
    AllBut(Paths),
}

/// Some paths, and among the changed ones those that only got a new name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    pub paths: Vec<Box<str>>,
    /// New name and old name.
    pub renamed: Vec<(Box<str>, Box<str>)>,
}

impl Stage {
    pub fn behaviour(&self) -> &dyn Behaviour {
        match self {
            Stage::Match(stage) => stage,
            Stage::Sort(stage) => stage,
            Stage::Limit(stage) => stage,
            Stage::Skip(stage) => stage,
            Stage::Documents(stage) => stage,
            Stage::CountOnly(stage) => stage,
        }
    }
}

/// Where a pipeline stands, which decides on what it may hold and on what its names mean.
#[derive(Clone, Copy)]
pub struct Context<'s> {
    /// What variables mean in its expressions.
    pub scope: &'s Scope<'s>,
    pub database: &'s str,
    pub place: Place,
    /// How many pipelines this one lies within.
    pub depth: usize,
}

/// What a pipeline belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A command over a collection.
    Collection,
    /// A command over a database: `{aggregate: 1}`.
    Database,
    /// The definition of a view.
    View,
    Lookup,
    UnionWith,
    Facet,
    /// An update, or what `$merge` does to a document that is there.
    Update,
}

impl<'s> Context<'s> {
    pub fn new(scope: &'s Scope<'s>, database: &'s str, place: Place) -> Context<'s> {
        Context { scope, database, place, depth: 0 }
    }

    /// The context of a pipeline within this one. Where that has variables of its own, its scope is another:
    /// `Context { scope: &inner, ..context.within(place)? }`.
    pub fn within(&self, place: Place) -> Result<Context<'s>> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::user(
                ErrorCode::MaxSubPipelineDepthExceeded,
                format!("Maximum number of nested sub-pipelines exceeded. Limit is {DEPTH_MAX}"),
            ));
        }
        Ok(Context { place, depth: self.depth + 1, ..*self })
    }
}

impl Pipeline {
    pub fn parse(stages: RawArray<'_>, context: &Context<'_>) -> Result<Pipeline> {
        let count = stages.len();
        if count > STAGES_MAX {
            return Err(Error::user(
                ErrorCode::FailedToParse,
                format!("Pipeline length must be no longer than {STAGES_MAX} stages"),
            ));
        }
        let mut pipeline = Pipeline::default();
        let mut definitions = Vec::with_capacity(count);
        for stage in stages.iter() {
            let Some(stage) = stage.as_document() else {
                return Err(Error::user(
                    ErrorCode::TypeMismatch,
                    "Each element of the 'pipeline' array must be an object",
                ));
            };
            let mut fields = stage.iter();
            let (Some((name, value)), None) = (fields.next(), fields.next()) else {
                return Err(Error::location(
                    40323,
                    "A pipeline stage specification object must contain exactly one field.",
                ));
            };
            let definition = find(name).ok_or_else(|| {
                Error::location(40324, format!("Unrecognized pipeline stage name: '{name}'"))
            })?;
            (definition.parse)(name, value, context, &mut pipeline.stages)?;
            definitions.push(definition);
        }
        table::check_places(&definitions, context)?;
        Ok(pipeline)
    }

    /// The collections that it reads beside its own, by database and name; some may come twice.
    pub fn collections(&self, visit: &mut dyn FnMut(&str, &str)) {
        self.stages.iter().for_each(|stage| stage.behaviour().collections(visit));
    }

    /// The stages as explain prints them.
    pub fn to_documents(&self) -> impl Iterator<Item = Document> {
        self.stages.iter().map(|stage| stage.behaviour().to_document())
    }
}
