//! One stage of a plan as a document, with its inputs.

use kilim_bson::{RawDocument, RawValue, Value, Writer};
use kilim_query::filter::Filter;
use kilim_query::sort::Sort;

use super::print_intervals;
use crate::index::{BoundSearch, IndexKind, IndexSpec, Multikey};
use crate::limits::SORT_BYTES_MAX;
use crate::plan::{IndexScan, Interval, Node, Project, ProjectKind, Stats, StatsTree};

/// What is shown of a stage.
#[derive(Clone, Copy)]
pub(crate) struct Style<'a> {
    /// The counts of a run.
    pub counts: bool,
    /// The projection as it was given.
    pub projection: Option<RawDocument<'a>>,
}

/// Writes a stage's fields into the open document.
pub(crate) fn write(out: &mut Writer, node: &Node, run: Option<&StatsTree>, style: Style<'_>) {
    out.append("stage", RawValue::String(name(node)));
    if let Some(filter) = filter(node) {
        out.append("filter", RawValue::Document(filter.to_document().as_raw()));
    }
    let stats = run.map(|run| &run.stats);
    let shown = stats.filter(|_| style.counts);
    if let Some(stats) = shown {
        append_counts(out, stats.advanced, stats.works, stats.need_time, stats.is_eof);
    }
    // A counting scan shows what it examined first, all others last.
    if let (Node::CountScan(_), Some(stats)) = (node, shown) {
        append_number(out, "keysExamined", stats.keys_examined);
    }
    write_own(out, node, stats, style);
    if let Some(stats) = shown {
        write_own_counts(out, node, stats);
    }
    let children = node.children();
    let below = |at: usize| run.and_then(|run| run.inputs.get(at));
    match node {
        Node::TextOr { inputs, .. } if inputs.len() < 2 => {
            out.open_document("inputStage");
            write(out, inputs.first().unwrap_or(&Node::Eof), below(0), style);
            out.close();
        }
        Node::Or { .. } | Node::TextOr { .. } | Node::SortMerge { .. } | Node::Intersection { .. } => {
            out.open_array("inputStages");
            for (at, child) in children.iter().enumerate() {
                out.open_document_at(at);
                write(out, child, below(at), style);
                out.close();
            }
            out.close();
        }
        _ => {
            for child in children {
                out.open_document("inputStage");
                write(out, child, below(0), style);
                out.close();
            }
        }
    }
}

/// MongoDB's numbers are ints where they fit.
pub(crate) fn append_number(out: &mut Writer, name: &str, number: u64) {
    match i32::try_from(number) {
        Ok(number) => out.append(name, RawValue::Int32(number)),
        Err(_) => out.append(name, RawValue::Int64(i64::try_from(number).unwrap_or(i64::MAX))),
    }
}

pub(crate) fn append_counts(out: &mut Writer, advanced: u64, works: u64, need_time: u64, is_eof: bool) {
    append_number(out, "nReturned", advanced);
    out.append("executionTimeMillisEstimate", RawValue::Int32(0));
    append_number(out, "works", works);
    append_number(out, "advanced", advanced);
    append_number(out, "needTime", need_time);
    // A snapshot never has to be given up and taken again.
    for never in ["needYield", "saveState", "restoreState"] {
        out.append(never, RawValue::Int32(0));
    }
    append_number(out, "isEOF", u64::from(is_eof));
}

fn name(node: &Node) -> &'static str {
    match node {
        Node::Eof => "EOF",
        Node::RecordCount { .. } => "RECORD_STORE_FAST_COUNT",
        Node::IdLookup { .. } => "IDHACK",
        Node::CollectionScan { .. } => "COLLSCAN",
        Node::IndexScan(scan) if scan.skipping.is_some() => "DISTINCT_SCAN",
        Node::IndexScan(_) => "IXSCAN",
        Node::Near(scan) => match scan.index.spec.kind {
            IndexKind::TwoD(_) => "GEO_NEAR_2D",
            _ => "GEO_NEAR_2DSPHERE",
        },
        Node::CountScan(_) => "COUNT_SCAN",
        Node::Fetch { .. } => "FETCH",
        Node::Or { .. } => "OR",
        Node::TextOr { .. } => "TEXT_OR",
        Node::TextMatch { .. } => "TEXT_MATCH",
        Node::Intersection { .. } => "AND_SORTED",
        Node::SortMerge { .. } => "SORT_MERGE",
        Node::Sort { .. } => "SORT",
        Node::Skip { .. } => "SKIP",
        Node::Limit { .. } => "LIMIT",
        Node::Project(Project { kind: ProjectKind::Simple, .. }) => "PROJECTION_SIMPLE",
        Node::Project(Project { kind: ProjectKind::Default, .. }) => "PROJECTION_DEFAULT",
        Node::Project(Project { kind: ProjectKind::Covered, .. }) => "PROJECTION_COVERED",
        Node::ReturnKey { .. } => "RETURN_KEY",
        Node::SortKeys { .. } => "SORT_KEY_GENERATOR",
        Node::Count { .. } => "COUNT",
        Node::Subplan { .. } => "SUBPLAN",
    }
}

fn filter(node: &Node) -> Option<&Filter> {
    match node {
        Node::CollectionScan { filter, .. } | Node::Fetch { filter, .. } => filter.as_deref(),
        Node::IndexScan(scan) => scan.shown.as_ref(),
        Node::TextOr { filter, .. } => filter.as_deref(),
        _ => None,
    }
}

fn write_own(out: &mut Writer, node: &Node, stats: Option<&Stats>, style: Style<'_>) {
    match node {
        Node::CollectionScan { backward, .. } => append_direction(out, *backward),
        Node::IndexScan(scan) => {
            append_index(out, scan);
            append_direction(out, scan.backward);
            append_bounds(out, scan);
        }
        Node::Near(scan) => {
            out.append("keyPattern", RawValue::Document(scan.index.spec.key_document.as_raw()));
            out.append("indexName", RawValue::String(&scan.index.spec.name));
            out.append("indexVersion", RawValue::Int32(2));
        }
        Node::CountScan(scan) => {
            append_index(out, scan);
            append_range(out, scan);
        }
        Node::Sort { sort, limit, input } => {
            append_sort(out, sort);
            append_number(out, "memLimit", SORT_BYTES_MAX as u64);
            if let Some(limit) = limit {
                append_number(out, "limitAmount", *limit);
            }
            // A sort of rows that come with a score carries more than documents.
            let scores = input.any(&|node| matches!(node, Node::TextOr { .. }));
            out.append("type", RawValue::String(if scores { "default" } else { "simple" }));
        }
        Node::TextMatch { search, .. } => append_search(out, search),
        Node::SortMerge { sort, .. } => append_sort(out, sort),
        // What is left of it, as MongoDB shows.
        Node::Skip { count, .. } => {
            append_number(out, "skipAmount", stats.map_or(*count, |stats| stats.skip_left));
        }
        Node::Limit { count, .. } => append_number(out, "limitAmount", *count),
        Node::Project(_) => {
            let given = style.projection.unwrap_or(RawDocument::empty());
            out.append("transformBy", RawValue::Document(given));
        }
        _ => {}
    }
}

fn write_own_counts(out: &mut Writer, node: &Node, stats: &Stats) {
    match node {
        Node::CollectionScan { .. } => append_number(out, "docsExamined", stats.docs_examined),
        Node::IdLookup { .. } => {
            append_number(out, "keysExamined", stats.keys_examined);
            append_number(out, "docsExamined", stats.docs_examined);
        }
        Node::IndexScan(_) => {
            append_number(out, "keysExamined", stats.keys_examined);
            append_number(out, "seeks", stats.seeks);
            append_number(out, "dupsTested", stats.dups_tested);
            append_number(out, "dupsDropped", stats.dups_dropped);
        }
        Node::TextMatch { .. } => append_number(out, "docsRejected", stats.docs_rejected),
        Node::TextOr { .. } => append_number(out, "docsExamined", stats.docs_examined),
        Node::Fetch { .. } => {
            append_number(out, "docsExamined", stats.docs_examined);
            append_number(out, "alreadyHasObj", stats.already_had_document);
        }
        Node::Or { .. } | Node::SortMerge { .. } => {
            append_number(out, "dupsTested", stats.dups_tested);
            append_number(out, "dupsDropped", stats.dups_dropped);
        }
        Node::Intersection { .. } => {
            for (at, failed) in stats.failed.into_iter().enumerate() {
                append_number(out, &format!("failedAnd_{at}"), failed);
            }
        }
        Node::Sort { .. } => {
            append_number(out, "totalDataSizeSorted", stats.sorted_bytes);
            out.append("usedDisk", RawValue::Bool(stats.spills > 0));
            append_number(out, "spills", stats.spills);
        }
        Node::Count { .. } | Node::RecordCount { .. } => {
            append_number(out, "nCounted", stats.counted);
            append_number(out, "nSkipped", stats.skipped);
        }
        _ => {}
    }
}

fn append_direction(out: &mut Writer, backward: bool) {
    out.append("direction", RawValue::String(if backward { "backward" } else { "forward" }));
}

fn append_sort(out: &mut Writer, sort: &Sort) {
    out.open_document("sortPattern");
    for part in sort.parts() {
        part.append_to(out);
    }
    out.close();
}

/// What a search string asks for, by the index that it is asked of.
fn append_search(out: &mut Writer, bound: &BoundSearch) {
    let spec = &bound.index.spec;
    let before = bound.text().map_or(0, |text| text.parts_before());
    out.open_document("indexPrefix");
    for (path, direction) in spec.key_document.as_raw().iter().take(before) {
        out.append(path, direction);
    }
    out.close();
    out.append("indexName", RawValue::String(&spec.name));
    let list = |out: &mut Writer, name: &str, texts: &mut dyn Iterator<Item = &String>| {
        out.open_array(name);
        texts.enumerate().for_each(|(at, text)| out.append_index(at, RawValue::String(text)));
        out.close();
    };
    let search = &bound.search;
    out.open_document("parsedTextQuery");
    list(out, "terms", &mut search.terms.iter());
    list(out, "negatedTerms", &mut search.negated_terms.iter());
    list(out, "phrases", &mut search.phrases.iter());
    list(out, "negatedPhrases", &mut search.negated_phrases.iter());
    out.close();
    let version = bound.text().map_or(0, |text| text.version().number());
    out.append("textIndexVersion", RawValue::Int32(version));
}

fn append_index(out: &mut Writer, scan: &IndexScan) {
    let spec = &scan.index.spec;
    out.append("keyPattern", RawValue::Document(spec.key_document.as_raw()));
    out.append("indexName", RawValue::String(&spec.name));
    if let Some(collation) = &spec.collation {
        out.append("collation", RawValue::Document(collation.to_document().as_raw()));
    }
    out.append("isMultiKey", RawValue::Bool(scan.index.multikey.is_multikey()));
    if !spec.kind.takes_arrays() {
        return append_options(out, spec);
    }
    out.open_document("multiKeyPaths");
    for (at, part) in spec.key.iter().enumerate() {
        out.open_array(part.path.as_str());
        let bits = scan.index.multikey.array_bits(at);
        let mut prefix = String::new();
        let mut shown = 0;
        for (at, component) in part.path.components().iter().enumerate() {
            if at > 0 {
                prefix.push('.');
            }
            prefix.push_str(&component.name);
            if bits & Multikey::bit_of(at) != 0 {
                out.append_index(shown, RawValue::String(&prefix));
                shown += 1;
            }
        }
        out.close();
    }
    out.close();
    append_options(out, spec);
}

fn append_options(out: &mut Writer, spec: &IndexSpec) {
    out.append("isUnique", RawValue::Bool(spec.unique));
    out.append("isSparse", RawValue::Bool(spec.sparse));
    out.append("isPartial", RawValue::Bool(spec.partial.is_some()));
    out.append("indexVersion", RawValue::Int32(2));
}

fn append_bounds(out: &mut Writer, scan: &IndexScan) {
    out.open_document("indexBounds");
    // mongod shows nothing of a range that was given, nor of a search term.
    let shown = if scan.range.is_some() || scan.is_of_one_term() { &[][..] } else { &scan.bounds[..] };
    for (part, list) in scan.index.spec.key.iter().zip(shown) {
        out.open_array(part.path.as_str());
        let collated = scan.index.spec.collation.is_some();
        let shown = print_intervals(list, part.descending != scan.backward, collated);
        for (at, text) in shown.iter().enumerate() {
            out.append_index(at, RawValue::String(text));
        }
        out.close();
    }
    out.close();
}

/// The two ends of a counted range, as keys.
fn append_range(out: &mut Writer, scan: &IndexScan) {
    let nothing =
        Interval::new(crate::plan::Cut::after(Value::MaxKey), crate::plan::Cut::before(Value::MinKey));
    let mut inclusive = (true, true);
    let mut ends: Vec<(&str, Value, Value)> = Vec::new();
    for (part, list) in scan.index.spec.key.iter().zip(&scan.bounds) {
        let interval = list.intervals().first().unwrap_or(&nothing);
        // Behind an exclusive end, the other parts are those that make it exclude the whole of it.
        let (low_inclusive, high_inclusive) = (!interval.low.after, interval.high.after);
        let (mut first, mut last) = (interval.low.endpoint.stored(), interval.high.endpoint.stored());
        let mut this = (low_inclusive, high_inclusive);
        if part.descending {
            std::mem::swap(&mut first, &mut last);
            this = (high_inclusive, low_inclusive);
        }
        if !inclusive.0 {
            first = if part.descending { Value::MinKey } else { Value::MaxKey };
        }
        if !inclusive.1 {
            last = if part.descending { Value::MaxKey } else { Value::MinKey };
        }
        ends.push((part.path.as_str(), first, last));
        inclusive = (inclusive.0 && this.0, inclusive.1 && this.1);
    }
    out.open_document("indexBounds");
    out.open_document("startKey");
    ends.iter().for_each(|(name, first, _)| out.append(name, first.as_raw()));
    out.close();
    out.append("startKeyInclusive", RawValue::Bool(inclusive.0));
    out.open_document("endKey");
    ends.iter().for_each(|(name, _, last)| out.append(name, last.as_raw()));
    out.close();
    out.append("endKeyInclusive", RawValue::Bool(inclusive.1));
    out.close();
}
