//! Pipelines: what `aggregate` and its kin were asked, stage by stage.
//!
//! A [`Stage`] is what was asked; what runs is the engine's affair. Each stage has a file with its parser,
//! a line in [`table`], and a [`Behaviour`] that explain and the optimiser read. Shorthands are resolved
//! when they are parsed (`$unset` is a `$project`, `$count` a `$group` and a `$project`), so fewer things
//! run than can be written.
//!
//! Payloads are cheap to clone: what is large lies behind an `Arc`, since a sub-pipeline is opened once for
//! every document that comes by.

mod add_fields;
mod bucket;
mod bucket_auto;
mod coll_stats;
mod count;
mod current_op;
mod densify;
mod documents;
mod facet;
mod field;
mod fill;
mod geo_near;
mod granularity;
mod graph_lookup;
mod group;
mod group_fields;
mod index_stats;
mod limit;
mod list_sessions;
mod lookup;
mod r#match;
mod merge;
mod nesting;
mod optimise;
mod out;
mod packed_buckets;
mod pattern_stats;
mod plan_cache_stats;
mod project;
mod redact;
mod refused;
mod replace_root;
mod sample;
mod set_window_fields;
mod skip;
mod sort;
mod sort_by_count;
mod table;
mod tree;
mod union_with;
mod unpack_bucket;
mod unset;
mod unwind;

use std::sync::Arc;

use kilim_bson::{Document, RawArray, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use crate::expression::{Dependencies, Expression, FoundBy, Scope};
use crate::filter::names_text;

pub use add_fields::AddFields;
pub use bucket_auto::BucketAuto;
pub use coll_stats::CollStats;
pub use current_op::CurrentOp;
pub use densify::{Bounds as DensifyBounds, Densify};
pub use documents::Documents;
pub use facet::Facet;
pub use geo_near::GeoNear;
pub use granularity::{Granularity, check as check_granularity};
pub use graph_lookup::GraphLookup;
pub use group::{Group, id_of};
pub use group_fields::GroupFields;
pub use index_stats::IndexStats;
pub use limit::Limit;
pub use list_sessions::ListSessions;
pub use lookup::{Equality, Inner, Lookup, Unwinding, foreign_values, values_at};
pub use r#match::Match;
pub use merge::{MatchedPipeline, Merge, WhenMatched, WhenNotMatched};
pub use nesting::check_nesting;
pub use out::Out;
pub use packed_buckets::PackedBuckets;
pub use pattern_stats::PatternStats;
pub use plan_cache_stats::PlanCacheStats;
pub use project::Project;
pub use redact::{Redact, Redacted};
pub use refused::no_change_stream;
pub use replace_root::ReplaceRoot;
pub use sample::Sample;
pub use set_window_fields::{SetWindowFields, check_partition};
pub use skip::Skip;
pub use sort::SortBy;
use table::line;
pub use table::{DEFINITIONS, Definition, Flow, Position, find};
pub use tree::{Relation, Tree};
pub use union_with::UnionWith;
pub use unpack_bucket::{Foremost, InOrder, UnpackBucket, on_buckets, weaker_on_buckets};
pub use unwind::{Cut, Found, Unwind};

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
    Project(Project),
    AddFields(AddFields),
    ReplaceRoot(ReplaceRoot),
    Redact(Redact),
    Unwind(Unwind),
    UnpackBucket(Arc<UnpackBucket>),
    Sort(SortBy),
    Limit(Limit),
    Skip(Skip),
    Group(Arc<Group>),
    BucketAuto(Arc<BucketAuto>),
    Sample(Sample),
    SetWindowFields(Arc<SetWindowFields>),
    Densify(Arc<Densify>),
    Facet(Facet),
    UnionWith(UnionWith),
    Lookup(Arc<Lookup>),
    GeoNear(Box<GeoNear>),
    GraphLookup(Arc<GraphLookup>),
    Merge(Arc<Merge>),
    Out(Out),
    Documents(Documents),
    CollStats(CollStats),
    IndexStats(IndexStats),
    PackedBuckets(PackedBuckets),
    PatternStats(PatternStats),
    Tree(Box<Tree>),
    PlanCacheStats(PlanCacheStats),
    CurrentOp(CurrentOp),
    ListSessions(ListSessions),
}

/// What explain and the optimiser ask of any stage.
pub trait Behaviour {
    /// The stage as explain prints it: `{$match: …}`.
    fn to_document(&self) -> Document;

    /// The same for one that explain shows as several.
    fn to_documents(&self) -> Vec<Document> {
        vec![self.to_document()]
    }

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
    /// The name of what was asked; a shorthand has the name of the stage that it stands for.
    pub fn name(&self) -> &'static str {
        self.definition().name
    }

    /// Its line of the table, which the compiler has found.
    pub fn definition(&self) -> &'static Definition {
        match self {
            Stage::Match(_) => const { line("$match") },
            Stage::Project(_) => const { line("$project") },
            Stage::AddFields(_) => const { line("$addFields") },
            Stage::ReplaceRoot(_) => const { line("$replaceRoot") },
            Stage::Redact(_) => const { line("$redact") },
            Stage::Unwind(_) => const { line("$unwind") },
            Stage::UnpackBucket(_) => const { line("$_internalUnpackBucket") },
            Stage::Sort(_) => const { line("$sort") },
            Stage::Limit(_) => const { line("$limit") },
            Stage::Skip(_) => const { line("$skip") },
            Stage::Group(_) => const { line("$group") },
            Stage::BucketAuto(_) => const { line("$bucketAuto") },
            Stage::Sample(_) => const { line("$sample") },
            Stage::SetWindowFields(_) => const { line("$setWindowFields") },
            Stage::Densify(_) => const { line("$densify") },
            Stage::Facet(_) => const { line("$facet") },
            Stage::UnionWith(_) => const { line("$unionWith") },
            Stage::Lookup(_) => const { line("$lookup") },
            Stage::GeoNear(_) => const { line("$geoNear") },
            Stage::GraphLookup(_) => const { line("$graphLookup") },
            Stage::Merge(_) => const { line("$merge") },
            Stage::Out(_) => const { line("$out") },
            Stage::Documents(_) => const { line("$documents") },
            Stage::CollStats(_) => const { line("$collStats") },
            Stage::IndexStats(_) => const { line("$indexStats") },
            Stage::PackedBuckets(_) => const { line("$_internalPackedBuckets") },
            Stage::PatternStats(_) => const { line("$patternStats") },
            Stage::Tree(_) => const { line("$tree") },
            Stage::PlanCacheStats(_) => const { line("$planCacheStats") },
            Stage::CurrentOp(_) => const { line("$currentOp") },
            Stage::ListSessions(_) => const { line("$listSessions") },
        }
    }

    /// What it does to the documents that come by.
    pub fn flow(&self) -> Flow {
        self.definition().flow
    }

    pub fn behaviour(&self) -> &dyn Behaviour {
        match self {
            Stage::Match(stage) => stage,
            Stage::Project(stage) => stage,
            Stage::AddFields(stage) => stage,
            Stage::ReplaceRoot(stage) => stage,
            Stage::Redact(stage) => stage,
            Stage::Unwind(stage) => stage,
            Stage::UnpackBucket(stage) => &**stage,
            Stage::Sort(stage) => stage,
            Stage::Limit(stage) => stage,
            Stage::Skip(stage) => stage,
            Stage::Group(stage) => &**stage,
            Stage::BucketAuto(stage) => &**stage,
            Stage::Sample(stage) => stage,
            Stage::SetWindowFields(stage) => &**stage,
            Stage::Densify(stage) => &**stage,
            Stage::Facet(stage) => stage,
            Stage::UnionWith(stage) => stage,
            Stage::Lookup(stage) => &**stage,
            Stage::GeoNear(stage) => &**stage,
            Stage::GraphLookup(stage) => &**stage,
            Stage::Merge(stage) => &**stage,
            Stage::Out(stage) => stage,
            Stage::Documents(stage) => stage,
            Stage::CollStats(stage) => stage,
            Stage::IndexStats(stage) => stage,
            Stage::PackedBuckets(stage) => stage,
            Stage::PatternStats(stage) => stage,
            Stage::Tree(stage) => &**stage,
            Stage::PlanCacheStats(stage) => stage,
            Stage::CurrentOp(stage) => stage,
            Stage::ListSessions(stage) => stage,
        }
    }
}

/// Where a pipeline stands, which decides on what it may hold and on what its names mean.
#[derive(Clone, Copy)]
pub struct Context<'s> {
    /// What variables mean in its expressions.
    pub scope: &'s Scope<'s>,
    pub database: &'s str,
    pub owner: Owner,
    /// How many pipelines this one lies within.
    pub depth: usize,
    /// The command belongs to a multi-document transaction.
    pub in_transaction: bool,
}

/// What a pipeline belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
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
    pub fn new(scope: &'s Scope<'s>, database: &'s str, owner: Owner) -> Context<'s> {
        Context { scope, database, owner, depth: 0, in_transaction: false }
    }

    /// The context of a pipeline within this one. Where that has variables of its own, its scope is another:
    /// `Context { scope: &inner, ..context.within(owner)? }`.
    pub fn within(&self, owner: Owner) -> Result<Context<'s>> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::user(
                ErrorCode::MaxSubPipelineDepthExceeded,
                format!("Maximum number of nested sub-pipelines exceeded. Limit is {DEPTH_MAX}"),
            ));
        }
        Ok(Context { owner, depth: self.depth + 1, ..*self })
    }
}

impl Pipeline {
    /// Refuses what is no list of known stages, without a look at what they say.
    pub fn check_names(stages: RawArray<'_>) -> Result<()> {
        stages.iter().try_for_each(|stage| named(stage).map(drop))
    }

    /// The same, and of what stages read and write, through all pipelines within. mongod looks so far before it
    /// looks at any expression, so these faults are told first.
    pub fn glance(stages: RawArray<'_>, database: &str) -> Result<()> {
        stages.iter().try_for_each(|stage| {
            let (definition, name, value) = named(stage)?;
            definition.glance.map_or(Ok(()), |glance| glance(name, value, database))
        })
    }

    pub fn parse(stages: RawArray<'_>, context: &Context<'_>) -> Result<Pipeline> {
        let count = stages.len();
        if count > STAGES_MAX {
            return Err(Error::user(
                ErrorCode::FailedToParse,
                format!("Pipeline length must be no longer than {STAGES_MAX} stages"),
            ));
        }
        let written = stages.iter().map(named).collect::<Result<Vec<_>>>()?;
        let definitions: Vec<&Definition> = written.iter().map(|(definition, ..)| *definition).collect();
        table::check_target(&definitions, context)?;
        // A pipeline within `$facet` gets the documents of the one around it.
        let found_by = match written.first() {
            _ if context.owner == Owner::Facet => context.scope.found_by(),
            Some((_, "$match", RawValue::Document(filter))) if names_text(*filter) => FoundBy::Text,
            Some((_, "$geoNear", _)) => FoundBy::Distance,
            _ => FoundBy::Fields,
        };
        let scope = context.scope.of_found_by(found_by);
        let context = &Context { scope: &scope, ..*context };
        let mut pipeline = Pipeline::default();
        for (definition, name, value) in &written {
            (definition.parse)(name, *value, context, &mut pipeline.stages)?;
        }
        if context.owner == Owner::Facet {
            table::check_pipelines_in_facet(&written)?;
        }
        table::check_places(&definitions, context)?;
        pipeline.check_texts(context.owner)?;
        pipeline.give_sorts()?;
        Ok(pipeline)
    }

    /// A `$text` needs an index, which only the first stage can have.
    fn check_texts(&self, owner: Owner) -> Result<()> {
        for (at, stage) in self.stages.iter().enumerate() {
            let Stage::Match(stage) = stage else { continue };
            match stage.filter.text() {
                None => {}
                Some(_) if owner == Owner::Facet => {
                    let message = "query requires text score metadata, but it is not available";
                    return Err(Error::location(40218, message));
                }
                Some(_) if at > 0 => {
                    let message = "$match with $text is only allowed as the first pipeline stage";
                    return Err(Error::location(17313, message));
                }
                Some(_) => stage.filter.check_text()?,
            }
        }
        Ok(())
    }

    /// Whether it asks for the score of a `$text`.
    pub fn wants_text_score(&self) -> bool {
        self.stages.iter().any(|stage| match stage {
            Stage::Project(stage) => stage.projection.wants_text_score(),
            Stage::AddFields(stage) => stage.projection.wants_text_score(),
            Stage::ReplaceRoot(stage) => stage.expression.wants_text_score(),
            Stage::Group(stage) => {
                group::any_expression(&stage.id, &stage.fields, Expression::wants_text_score)
            }
            Stage::BucketAuto(stage) => {
                group::any_expression(&stage.group_by, &stage.fields, Expression::wants_text_score)
            }
            Stage::Redact(stage) => stage.expression.wants_text_score(),
            Stage::Sort(stage) => stage.sort.wants_text_score(),
            Stage::Facet(stage) => stage.facets.iter().any(|(_, pipeline)| pipeline.wants_text_score()),
            _ => false,
        })
    }

    /// Tells stages that show the key by which documents were sorted what they were sorted by.
    fn give_sorts(&mut self) -> Result<()> {
        let mut sorted = None;
        let mut changed = false;
        for stage in &mut self.stages {
            let wants = match stage {
                Stage::Project(stage) => stage.projection.wants_sort_key(),
                Stage::AddFields(stage) => stage.projection.wants_sort_key(),
                Stage::ReplaceRoot(stage) => stage.expression.wants_sort_key(),
                _ => false,
            };
            if wants {
                let sort = match (&sorted, changed) {
                    (Some(sort), false) => sort,
                    // The key was made of what the document was then.
                    (Some(_), true) => {
                        return Err(Error::user(
                            ErrorCode::NotImplemented,
                            "{$meta: \"sortKey\"} is not supported behind stages that change documents",
                        ));
                    }
                    (None, _) => {
                        return Err(Error::user(
                            ErrorCode::BadValue,
                            "cannot use sortKey $meta projection without a sort",
                        ));
                    }
                };
                match stage {
                    Stage::Project(stage) => Arc::make_mut(&mut stage.projection).give_sort(sort),
                    Stage::AddFields(stage) => Arc::make_mut(&mut stage.projection).give_sort(sort),
                    Stage::ReplaceRoot(stage) => Arc::make_mut(&mut stage.expression).give_sort(sort),
                    _ => {}
                }
            }
            match stage {
                Stage::Sort(stage) => (sorted, changed) = (Some(stage.sort.clone()), false),
                stage if stage.flow().passes_as_is() => {}
                _ => changed = true,
            }
        }
        Ok(())
    }

    /// Whether it shows the keys of the index by which its documents were found.
    pub fn wants_index_keys(&self) -> bool {
        self.stages.iter().any(|stage| match stage {
            Stage::Project(stage) => stage.projection.wants_index_key(),
            Stage::AddFields(stage) => stage.projection.wants_index_key(),
            Stage::ReplaceRoot(stage) => stage.expression.wants_index_key(),
            Stage::Group(stage) => {
                group::any_expression(&stage.id, &stage.fields, Expression::wants_index_key)
            }
            Stage::BucketAuto(stage) => {
                group::any_expression(&stage.group_by, &stage.fields, Expression::wants_index_key)
            }
            Stage::Redact(stage) => stage.expression.wants_index_key(),
            Stage::SetWindowFields(stage) => stage.wants_index_key(),
            Stage::Lookup(stage) => stage.variables.definitions.iter().any(|(_, it)| it.wants_index_key()),
            Stage::GraphLookup(stage) => stage.start_with.wants_index_key(),
            _ => false,
        })
    }

    /// Computes what no document influences, in the pipelines within as well. Fails where such a part fails; a
    /// pipeline that is run all the same fails on the first document that comes to it. A pipeline of a lookup is
    /// folded by the lookup, for it may fail only once there is a document.
    ///
    /// Not a part of parsing: whatever cannot be parsed, anywhere, is told first.
    pub fn fold(&mut self) -> Result<()> {
        let mut stages = self.stages.iter_mut();
        let folded = stages.try_for_each(|stage| match stage {
            Stage::Match(stage) => stage.filter.check_folded(),
            Stage::Project(stage) => stage.fold(),
            Stage::AddFields(stage) => stage.fold(),
            Stage::ReplaceRoot(stage) => stage.fold(),
            Stage::Redact(stage) => stage.fold(),
            Stage::Group(stage) => group::check_folded(&stage.id, &stage.fields),
            Stage::BucketAuto(stage) => group::check_folded(&stage.group_by, &stage.fields),
            Stage::SetWindowFields(stage) => stage.check_folded(),
            Stage::Facet(stage) => stage.fold(),
            Stage::UnionWith(stage) => stage.fold(),
            _ => Ok(()),
        });
        folded.map_err(|error| error.during("Failed to optimize pipeline"))
    }

    /// The collections that it reads beside its own, by database and name; some may come twice.
    pub fn collections(&self, visit: &mut dyn FnMut(&str, &str)) {
        self.stages.iter().for_each(|stage| stage.behaviour().collections(visit));
    }

    /// The stages as explain prints them.
    pub fn to_documents(&self) -> Vec<Document> {
        self.stages.iter().flat_map(|stage| stage.behaviour().to_documents()).collect()
    }

    /// Adds what the whole of it needs of the documents it reads.
    pub fn dependencies(&self, needed: &mut Dependencies) {
        for stage in &self.stages {
            if stage.behaviour().dependencies(needed) == Beyond::Nothing {
                return;
            }
        }
        // What comes out at the end is seen whole.
        needed.whole_document = true;
    }
}

/// The definition, the name and the value of a stage as it was written.
fn named(stage: RawValue<'_>) -> Result<(&'static Definition, &str, RawValue<'_>)> {
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
    let definition = find(name)
        .ok_or_else(|| Error::location(40324, format!("Unrecognized pipeline stage name: '{name}'")))?;
    Ok((definition, name, value))
}
