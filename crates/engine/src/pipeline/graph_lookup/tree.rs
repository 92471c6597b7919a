//! `$graphLookup` along the parents of a declared tree: the ancestors that the pattern keeps answer it.
//!
//! Down from a node, all that have it among their ancestors are one range of an index, where a search would look for the
//! children of each. Up from a node, its ancestors are listed in it.
//!
//! Invariant: the answer is that of a search. Where the two could differ, [`TreeWay::choose`] and [`TreeWay::search`] give
//! none, and the search is made: an array is nobody's parent in a tree and several in a search, a tree ends at its scope,
//! null is a value that a search looks for, and a transaction's own nodes get their ancestors with its commit.

use std::sync::Arc;

use kilim_bson::{Document, Path, RawValue, doc};
use kilim_error::Result;
use kilim_patterns::Tree;
use kilim_query::stage;

use super::super::Reader;
use super::super::lookup::{Examined, IndexProbe, rows_bytes};
use super::check_bytes;
use crate::catalog::Collection;
use crate::operator::Row;
use crate::patterns::Pattern;

pub(in crate::pipeline) struct TreeWay {
    pattern: Arc<Pattern>,
    /// Finds nodes by their `_id`s.
    by_id: Box<IndexProbe>,
    way: Way,
}

enum Way {
    /// To all below a node, by an index over their ancestors.
    Down(Box<IndexProbe>),
    /// To all above it.
    Up,
}

/// A document, and the depth at which a search would find it.
pub(super) type Found = (Row, u64);

impl TreeWay {
    /// The tree whose parents a stage follows, where its ancestors can answer for them.
    pub(in crate::pipeline) fn choose(
        stage: &stage::GraphLookup,
        collection: &Arc<Collection>,
        reader: &Reader,
    ) -> Option<TreeWay> {
        if stage.collation.is_some() || reader.patches(collection).is_some() {
            return None;
        }
        // A search reads references from documents that have their depth already.
        let depth = stage.depth_field.as_ref();
        let overwrites =
            depth.is_some_and(|depth| depth.names().first() == stage.connect_from.names().first());
        let (from, to) = (stage.connect_from.as_str(), stage.connect_to.as_str());
        let connects = |pattern: &&Arc<Pattern>| {
            let tree = pattern.kind().tree();
            tree.is_some_and(|tree| match (from, to) {
                // What lies beyond the depth is read by its ancestors too, and may be most of the tree.
                ("_id", parent) => {
                    parent == tree.parent_path() && stage.restriction.is_none() && stage.depth_max.is_none()
                }
                (parent, "_id") => parent == tree.parent_path(),
                _ => false,
            })
        };
        let pattern = reader.trees(collection).iter().filter(|_| !overwrites).find(connects)?;
        let tree = pattern.kind().tree()?;
        let snapshot = reader.snapshot();
        let probe =
            |path: &str| IndexProbe::choose(collection, &Path::parse(path), snapshot, &stage.collation);
        if probe(tree.parent_path())?.index.multikey.is_multikey() {
            return None;
        }
        let way = match to {
            "_id" => Way::Up,
            _ => Way::Down(Box::new(probe(tree.ancestors_path()?)?)),
        };
        let by_id =
            probe("_id").filter(|by_id| by_id.index.spec.unique && by_id.index.spec.key.len() == 1)?;
        Some(TreeWay { pattern: pattern.clone(), by_id: Box::new(by_id), way })
    }

    /// What a search from a value finds, in the order of depths; none where a search has to tell.
    pub(super) fn search(
        &mut self,
        start: RawValue<'_>,
        examined: &mut Examined,
    ) -> Result<Option<Vec<Found>>> {
        let Some(tree) = self.pattern.kind().tree() else { return Ok(None) };
        let start = match start {
            // One element is what it is alone.
            RawValue::Array(values) => {
                let mut values = values.iter();
                match (values.next(), values.next()) {
                    (Some(only), None) => only,
                    _ => return Ok(None),
                }
            }
            value => value,
        };
        if matches!(start, RawValue::Regex { .. }) {
            return Ok(None);
        }
        let Some(node) = node(&mut self.by_id, start, examined)? else { return Ok(None) };
        match &mut self.way {
            Way::Down(probe) => down(tree, &node, start, probe, examined),
            Way::Up => up(tree, node, &mut self.by_id, examined),
        }
    }

    /// As `explain` tells it.
    pub(in crate::pipeline) fn shown(&self, stage: &stage::GraphLookup) -> Document {
        let ancestors = self.pattern.kind().tree().and_then(Tree::ancestors_path).unwrap_or_default();
        let from = stage.connect_from.as_str();
        doc! {
            "stage": "PATTERN_REWRITE",
            "pattern": &*self.pattern.declaration.name,
            "original": {"connectFromField": from, "connectToField": stage.connect_to.as_str()},
            "rewritten": ancestors,
        }
    }
}

/// The node with an `_id`; none also where keys do not tell.
fn node(by_id: &mut IndexProbe, id: RawValue<'_>, examined: &mut Examined) -> Result<Option<Row>> {
    let mut rows = Vec::new();
    by_id.find(id, examined, &mut rows)?;
    examined.note_index(&by_id.index.spec.name);
    Ok(rows.pop())
}

fn down(
    tree: &Tree,
    node: &Row,
    start: RawValue<'_>,
    probe: &mut IndexProbe,
    examined: &mut Examined,
) -> Result<Option<Vec<Found>>> {
    let Some(own) = tree.ancestor_count(node.document()) else { return Ok(None) };
    let mut rows = Vec::new();
    examined.note_index(&probe.index.spec.name);
    if !probe.find(start, examined, &mut rows)? {
        return Ok(None);
    }
    check_bytes(rows_bytes(&rows))?;
    let mut found: Vec<Found> = Vec::with_capacity(rows.len());
    for row in rows {
        let document = row.document();
        let depth = tree.ancestor_count(document).and_then(|count| count.checked_sub(own + 1));
        match (depth, document.get("_id")) {
            // A search from a node whose `_id` is null comes to all that name no parent.
            (None, _) | (_, None | Some(RawValue::Null | RawValue::Undefined)) => return Ok(None),
            (Some(depth), Some(_)) => found.push((row, depth as u64)),
        }
    }
    found.sort_by_key(|(_, depth)| *depth);
    Ok(Some(found))
}

fn up(tree: &Tree, from: Row, by_id: &mut IndexProbe, examined: &mut Examined) -> Result<Option<Vec<Found>>> {
    let Some(ids) = tree.ancestor_ids(from.document()) else { return Ok(None) };
    let mut found: Vec<Found> = vec![(from, 0)];
    for (depth, id) in ids.iter().rev().enumerate() {
        let Some(upper) = node(by_id, id.as_raw(), examined)? else { return Ok(None) };
        found.push((upper, depth as u64 + 1));
    }
    // A root whose parent is null leads to the node whose `_id` is null, if there is one.
    Ok((!by_id.has_null()?).then_some(found))
}
