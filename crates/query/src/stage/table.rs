//! The stages there are: their names, what they do to the documents that come by, and where each may stand.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

use super::{Context, Owner, Stage};
use super::{
    add_fields, bucket, bucket_auto, coll_stats, count, current_op, densify, documents, facet, fill,
    geo_near, graph_lookup, group, index_stats, limit, list_sessions, lookup, r#match, merge, out,
    packed_buckets, pattern_stats, plan_cache_stats, project, redact, refused, replace_root, sample,
    set_window_fields, skip, sort, sort_by_count, tree, union_with, unpack_bucket, unset, unwind,
};

/// Reads the value of a stage called `name` and appends what it stands for.
pub type Parse =
    fn(name: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()>;

/// Refuses what stands in the way of knowing which collections a stage reads and writes.
pub type Glance = fn(name: &str, value: RawValue<'_>, database: &str) -> Result<()>;

/// One line of the table.
#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    pub parse: Parse,
    /// What is looked at before the first stage is parsed.
    pub glance: Option<Glance>,
    pub flow: Flow,
    pub position: Position,
    /// Looks by itself at whether it runs over a collection or a database.
    pub any_target: bool,
    /// How a view that has it is refused, where it is neither a stage that writes nor let in.
    pub refused_in_view: Option<(ErrorCode, &'static str)>,
    /// Reads no collection, so it stands first in a pipeline over a database.
    pub sourceless: bool,
    pub in_facet: bool,
    pub in_lookup: bool,
    pub in_union_with: bool,
    pub in_update: bool,
    pub in_transaction: bool,
    /// Tells what this node knows now, whatever the reader's concern.
    pub local_only: bool,
}

/// What a stage does to the documents that come by: whether it needs one, some or all of them, and what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Brings documents of its own.
    Source,
    /// Decides on each document alone, and passes it on as it is.
    Selects,
    /// Passes on as many as it was told, as they are.
    Cuts,
    /// Makes one document of each, in the same order.
    Maps,
    /// Goes document by document and may give any number for each.
    Streams,
    /// Holds the documents themselves until it has seen all of them.
    Holds,
    /// Makes new documents of what it gathers, and gives them once it has seen everything.
    Gathers,
    /// Writes into a collection.
    Writes,
}

impl Flow {
    /// Whether what comes out of it came in as it is.
    pub fn passes_as_is(self) -> bool {
        matches!(self, Flow::Selects | Flow::Cuts)
    }

    /// Whether each document's fate depends on it alone.
    pub fn is_of_one_document(self) -> bool {
        matches!(self, Flow::Selects | Flow::Maps)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    Any,
    First,
    Last,
}

const fn stage(name: &'static str, flow: Flow, parse: Parse, help: &'static str) -> Definition {
    Definition {
        name,
        help,
        parse,
        glance: None,
        flow,
        position: Position::Any,
        any_target: false,
        refused_in_view: None,
        sourceless: false,
        in_facet: true,
        in_lookup: true,
        in_union_with: true,
        in_update: false,
        in_transaction: true,
        local_only: false,
    }
}

impl Definition {
    const fn glanced(self, glance: Glance) -> Definition {
        Definition { glance: Some(glance), ..self }
    }

    /// Gives documents of its own: stands first, and not within `$facet`.
    const fn first(self) -> Definition {
        Definition { position: Position::First, in_facet: false, ..self }
    }

    const fn over_any_target(self) -> Definition {
        Definition { any_target: true, ..self }
    }

    const fn refused_in_view(self, code: ErrorCode, message: &'static str) -> Definition {
        Definition { refused_in_view: Some((code, message)), ..self }
    }

    /// Needs no collection: for pipelines over a database.
    const fn sourceless(self) -> Definition {
        Definition { sourceless: true, ..self }
    }

    /// Writes: stands last, and in no sub-pipeline.
    const fn last(self) -> Definition {
        Definition {
            position: Position::Last,
            in_facet: false,
            in_lookup: false,
            in_union_with: false,
            in_transaction: false,
            ..self
        }
    }

    const fn not_in_facet(self) -> Definition {
        Definition { in_facet: false, ..self }
    }

    /// Tells of more than a snapshot holds.
    const fn not_in_transaction(self) -> Definition {
        Definition { in_transaction: false, ..self }
    }

    const fn local_only(self) -> Definition {
        Definition { local_only: true, in_transaction: false, ..self }
    }

    /// A function of one document, which updates may use.
    const fn in_update(self) -> Definition {
        Definition { in_update: true, ..self }
    }
}

/// In alphabetical order.
pub static DEFINITIONS: &[Definition] = &[
    stage(
        "$_internalPackedBuckets",
        Flow::Source,
        packed_buckets::parse,
        "the buckets that the pattern 'bucket' packs, as their view shows them",
    )
    .first(),
    stage(
        "$_internalUnpackBucket",
        Flow::Streams,
        unpack_bucket::parse,
        "the measurements of buckets, as time-series collections show them",
    ),
    stage("$addFields", Flow::Maps, add_fields::parse, "computed fields beside those that are there")
        .in_update(),
    stage("$bucket", Flow::Gathers, bucket::parse, "documents between given boundaries, gathered"),
    stage(
        "$bucketAuto",
        Flow::Holds,
        bucket_auto::parse,
        "documents divided into buckets of about equal size",
    ),
    stage("$changeStream", Flow::Source, refused::misplaced_change_stream, "changes as they happen")
        .first()
        .refused_in_view(
            ErrorCode::OptionNotSupportedOnView,
            "$changeStream cannot be used in a view definition",
        ),
    stage(
        "$changeStreamSplitLargeEvent",
        Flow::Maps,
        refused::outside_a_change_stream,
        "large events of a change stream in fragments",
    ),
    stage("$collStats", Flow::Source, coll_stats::parse, "sizes and counts of the collection")
        .glanced(coll_stats::glance)
        .first()
        .not_in_transaction(),
    stage("$count", Flow::Gathers, count::parse, "the number of documents"),
    stage("$currentOp", Flow::Source, current_op::parse, "what runs now")
        .glanced(current_op::glance)
        .first()
        .sourceless()
        .local_only(),
    stage("$densify", Flow::Streams, densify::parse, "documents for the gaps in a sequence"),
    stage("$documents", Flow::Source, documents::parse, "documents that an expression gives")
        .first()
        .sourceless()
        .refused_in_view(ErrorCode::InvalidNamespace, "'$documents' cannot be used in a view definition"),
    stage("$facet", Flow::Gathers, facet::parse, "several pipelines over the same documents")
        .glanced(facet::glance)
        .not_in_facet(),
    stage("$fill", Flow::Streams, fill::parse, "values for fields that are missing"),
    stage("$geoNear", Flow::Streams, geo_near::parse, "documents by their distance from a point").first(),
    stage(
        "$graphLookup",
        Flow::Streams,
        graph_lookup::parse,
        "documents that references lead to, step by step",
    )
    .glanced(graph_lookup::glance),
    stage("$group", Flow::Gathers, group::parse, "one document for each different key"),
    stage("$indexStats", Flow::Source, index_stats::parse, "how often each index was used")
        .first()
        .not_in_transaction(),
    stage("$limit", Flow::Cuts, limit::parse, "the first documents"),
    stage("$listLocalSessions", Flow::Source, list_sessions::parse, "sessions of this node")
        .glanced(list_sessions::glance)
        .first()
        .sourceless()
        .local_only(),
    stage("$listSessions", Flow::Source, list_sessions::parse, "sessions")
        .glanced(list_sessions::glance)
        .first()
        .over_any_target()
        .not_in_transaction(),
    stage("$lookup", Flow::Streams, lookup::parse, "documents of another collection that go with each")
        .glanced(lookup::glance),
    stage("$match", Flow::Selects, r#match::parse, "the documents that match a filter"),
    stage("$merge", Flow::Writes, merge::parse, "write into a collection, document by document")
        .glanced(merge::glance)
        .last(),
    stage("$out", Flow::Writes, out::parse, "write into a collection, in place of what is there")
        .glanced(out::glance)
        .last(),
    stage("$patternStats", Flow::Source, pattern_stats::parse, "what patterns did, and how they are doing")
        .first()
        .over_any_target()
        .not_in_transaction(),
    stage("$planCacheStats", Flow::Source, plan_cache_stats::parse, "which plans are remembered")
        .first()
        .local_only(),
    stage("$project", Flow::Maps, project::parse, "some fields, all but some, or computed ones").in_update(),
    stage("$redact", Flow::Streams, redact::parse, "documents without the parts that are not let through"),
    stage("$replaceRoot", Flow::Maps, replace_root::parse, "another document in the place of each")
        .in_update(),
    stage("$replaceWith", Flow::Maps, replace_root::parse_with, "another document in the place of each")
        .in_update(),
    stage("$sample", Flow::Holds, sample::parse, "some documents, chosen at random"),
    stage("$set", Flow::Maps, add_fields::parse, "computed fields beside those that are there").in_update(),
    stage(
        "$setWindowFields",
        Flow::Holds,
        set_window_fields::parse,
        "values computed from the documents around each document",
    ),
    stage("$shardedDataDistribution", Flow::Source, refused::parse, "how collections are spread over shards")
        .first()
        .sourceless(),
    stage("$skip", Flow::Cuts, skip::parse, "all but the first documents"),
    stage("$sort", Flow::Holds, sort::parse, "documents in order"),
    stage(
        "$sortByCount",
        Flow::Gathers,
        sort_by_count::parse,
        "how often each value comes, the most frequent first",
    ),
    stage("$tree", Flow::Source, tree::parse, "nodes of a declared tree, by where they stand to one of them")
        .first(),
    stage("$unionWith", Flow::Streams, union_with::parse, "documents of another collection behind")
        .glanced(union_with::glance)
        .not_in_transaction(),
    stage("$unset", Flow::Maps, unset::parse, "all but some fields").in_update(),
    stage("$unwind", Flow::Streams, unwind::parse, "one document for each element of an array"),
];

/// The line of a stage that there is. A constant, so that a stage without a line does not compile.
pub(super) const fn line(name: &str) -> &'static Definition {
    let mut at = 0;
    while at < DEFINITIONS.len() {
        if is_same(DEFINITIONS[at].name, name) {
            return &DEFINITIONS[at];
        }
        at += 1;
    }
    panic!("every stage has a line in the table")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

pub fn find(name: &str) -> Option<&'static Definition> {
    let at = DEFINITIONS.binary_search_by(|definition| definition.name.cmp(name)).ok()?;
    DEFINITIONS.get(at)
}

/// Refuses a pipeline over a database that would need a collection, before anything else is looked at.
pub(super) fn check_target(definitions: &[&'static Definition], context: &Context<'_>) -> Result<()> {
    match (context.owner, definitions.first()) {
        (Owner::Database, None) => {
            Err(misplaced("{aggregate: 1} is not valid for an empty pipeline.".to_owned()))
        }
        (Owner::Database, Some(first)) if first.any_target => Ok(()),
        (Owner::Database, Some(first)) if !first.sourceless => Err(misplaced(format!(
            "{{aggregate: 1}} is not valid for '{}'; a collection is required.",
            first.name
        ))),
        _ => Ok(()),
    }
}

/// Refuses stages of a `$facet` whose own pipelines hold what a `$facet` may not.
pub(super) fn check_pipelines_in_facet(stages: &[(&'static Definition, &str, RawValue<'_>)]) -> Result<()> {
    match stages.iter().find(|(.., operand)| holds_what_no_facet_may(*operand)) {
        Some((definition, ..)) => Err(not_in_facet(definition.name)),
        None => Ok(()),
    }
}

fn holds_what_no_facet_may(operand: RawValue<'_>) -> bool {
    let pipeline = operand.as_document().and_then(|operand| operand.get("pipeline"));
    let stages = pipeline.and_then(RawValue::as_array).into_iter().flat_map(|stages| stages.iter());
    stages.filter_map(RawValue::as_document).filter_map(|stage| stage.iter().next()).any(|(name, operand)| {
        let definition = find(name);
        definition.is_some_and(|definition| !definition.in_facet) || holds_what_no_facet_may(operand)
    })
}

fn not_in_facet(name: &str) -> Error {
    Error::location(40600, format!("{name} is not allowed to be used within a $facet stage"))
}

/// Refuses stages where they may not stand, in mongod's order of looking.
pub(super) fn check_places(definitions: &[&'static Definition], context: &Context<'_>) -> Result<()> {
    let last = definitions.len().saturating_sub(1);
    for (at, definition) in definitions.iter().enumerate() {
        let name = definition.name;
        match context.owner {
            Owner::Facet if !definition.in_facet => {
                return Err(not_in_facet(name));
            }
            Owner::Lookup if !definition.in_lookup => {
                return Err(Error::location(
                    51047,
                    format!("{name} is not allowed within a $lookup's sub-pipeline"),
                ));
            }
            Owner::UnionWith if !definition.in_union_with => {
                return Err(Error::location(
                    31441,
                    format!("{name} is not allowed within a $unionWith's sub-pipeline"),
                ));
            }
            Owner::Update if !definition.in_update => {
                return Err(Error::user(
                    ErrorCode::InvalidOptions,
                    format!("{name} is not allowed to be used within an update"),
                ));
            }
            _ => {}
        }
        if context.in_transaction && !definition.in_transaction {
            return Err(Error::user(
                ErrorCode::OperationNotSupportedInTransaction,
                match (definition.local_only, definition.position) {
                    (true, _) => format!(
                        "Operation not permitted in transaction :: caused by :: Aggregation stage {name} cannot run \
                         within a multi-document transaction."
                    ),
                    (_, Position::Last) => format!("{name} cannot be used in a transaction"),
                    _ => format!("Stage not supported inside of a multi-document transaction: {name}"),
                },
            ));
        }
        match definition.position {
            Position::First if at != 0 => {
                return Err(Error::location(
                    40602,
                    format!("{name} is only valid as the first stage in a pipeline"),
                ));
            }
            Position::Last if at != last => {
                return Err(Error::location(
                    40601,
                    format!("{name} can only be the final stage in the pipeline"),
                ));
            }
            _ => {}
        }
    }
    match (context.owner, definitions.first()) {
        (Owner::Collection, Some(first)) if first.sourceless => {
            Err(misplaced(format!("'{}' can only be run with {{aggregate: 1}}", first.name)))
        }
        _ => Ok(()),
    }
}

fn misplaced(message: String) -> Error {
    Error::user(ErrorCode::InvalidNamespace, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(DEFINITIONS.is_sorted_by(|one, next| one.name < next.name));
    }

    #[test]
    fn what_brings_documents_stands_first_and_what_writes_stands_last() {
        for definition in DEFINITIONS {
            let is_first = definition.position == Position::First;
            assert!(definition.flow != Flow::Source || is_first, "{definition:?}");
            // Besides sources, what decides how the collection is read.
            assert!(
                !is_first || definition.flow == Flow::Source || definition.name == "$geoNear",
                "{definition:?}"
            );
            assert_eq!(
                definition.flow == Flow::Writes,
                definition.position == Position::Last,
                "{definition:?}"
            );
        }
    }
}
