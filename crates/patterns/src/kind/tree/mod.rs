//! `tree`: nodes that name their parents, and what follows from that.
//!
//! Users write one field, the parent's `_id`. Everything else is derived: the ancestors, the path, the depth, the counts of
//! children and descendants, the place among siblings, the labels of nested sets. A parent is looked for in the node's own
//! scope. A node whose parent is missing counts as a root until the parent comes.
//!
//! A change of one node is a [`Step`]. [`Tree::take`] carries it out on a [`Forest`], which is how an interpreter shows the
//! nodes and takes what is written: the write path, a transaction's commit and `explain` have one each. `corrected` says
//! from scratch what a node must be.
//!
//! Invariant: after any sequence of steps every node is as [`Kind::corrected`] says.

mod behind;
mod check;
mod dense;
mod kind;
mod labels;
mod lines;
mod node;
mod parse;
mod shift;
mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::Result;

use super::Kind;
use crate::path::Names;

pub use self::shift::{Shift, StoredRange, stored_ranges};
pub use self::step::{Position, Step};

/// A tree as it was declared.
#[derive(Debug, Clone)]
pub struct Tree {
    parent: Field,
    ancestors: Option<Field>,
    path: Option<Field>,
    /// Where the labels of nested sets are: the left one and the right one.
    nested_sets: Option<[Field; 2]>,
    /// The labels have no gaps.
    dense: bool,
    depth: Option<Field>,
    child_count: Option<Field>,
    descendant_count: Option<Field>,
    order: Option<Field>,
    separator: Box<str>,
    /// What a node is called in paths; none stands for its `_id`.
    path_of: Option<Field>,
    /// The field that says which of several trees a node belongs to.
    scope: Option<Field>,
    max_depth: usize,
    on_delete: OnDelete,
}

/// A field of the documents.
#[derive(Debug, Clone)]
struct Field {
    path: Box<str>,
    names: Names,
}

/// What becomes of the children of a deleted node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDelete {
    /// The deletion is refused.
    Restrict,
    /// They are deleted with all below them.
    Cascade,
    /// They become children of the deleted node's parent.
    Reparent,
}

/// Nodes as they are read.
pub trait Nodes {
    /// The document with this `_id`.
    fn node(&mut self, _id: RawValue<'_>) -> Result<Option<Document>> {
        Ok(None)
    }

    /// The documents that name this `_id` as their parent, in no order. For null, those that name none.
    fn children(&mut self, _id: RawValue<'_>) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }

    /// Those of them that have this order key. There may be others among the answer.
    fn children_at(&mut self, id: RawValue<'_>, _order: i64) -> Result<Vec<Document>> {
        self.children(id)
    }

    /// Visits the documents that name this `_id` as their parent, where they need not be kept.
    fn visit_children(&mut self, id: RawValue<'_>, visit: &mut dyn FnMut(RawDocument<'_>)) -> Result<()> {
        self.children(id)?.iter().for_each(|child| visit(child.as_raw()));
        Ok(())
    }

    /// The nearest label of a scope below this one, or above it.
    fn next_label(&mut self, _scope: RawValue<'_>, _from: i64, _side: LabelSide) -> Result<Option<i64>> {
        Ok(None)
    }

    /// The documents of a scope with a label in this range, whose ends belong to it.
    fn labelled(&mut self, _scope: RawValue<'_>, _from: i64, _to: i64) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }

    /// All documents of a scope.
    fn all(&mut self, _scope: RawValue<'_>) -> Result<Vec<Document>> {
        Ok(Vec::new())
    }
}

/// Nodes as they are read and written: reads show what was written before.
pub trait Forest: Nodes {
    /// The document of this `_id` becomes another.
    fn write(&mut self, id: RawValue<'_>, document: Document) -> Result<()>;

    /// The document of this `_id` is deleted.
    fn remove(&mut self, id: RawValue<'_>) -> Result<()>;

    /// What was noted under this key. Notes say what would take a walk to find out.
    fn note(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    fn set_note(&mut self, key: &[u8], note: Option<Vec<u8>>) -> Result<()>;

    /// Whether all nodes have their fields, and what could be noted is noted. It is not so while documents from before the
    /// declaration are being filled.
    fn is_complete(&self) -> bool;

    /// Whether nodes may have stored something that a job has yet to write anew ([`Forest::leave_below`]).
    fn is_behind(&self) -> bool {
        false
    }

    /// How many nodes below one that moves are written with it. If there are more, they are left to a job. None if all are
    /// written, however many there are.
    fn most_at_once(&self) -> Option<usize> {
        None
    }

    /// Leaves all nodes below one to a job, which gives them what they get from above, and their labels the distance by which
    /// they moved.
    fn leave_below(&mut self, _id: RawValue<'_>, _count: u64, _shift: Option<Shift>) -> Result<()> {
        Ok(())
    }

    /// The first and the last label of a scope that a job has yet to write anew. No label is given out between them.
    fn reserved(&mut self, _scope: RawValue<'_>) -> Result<Option<[i64; 2]>> {
        Ok(None)
    }

    /// Writes the labels of a scope that a job has yet to write. From here on nothing is reserved.
    fn settle_labels(&mut self, _scope: RawValue<'_>) -> Result<()> {
        Ok(())
    }
}

/// In which direction a label is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelSide {
    Below,
    Above,
}

pub(super) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    Ok(Arc::new(Tree::parse(spec)?))
}

impl Tree {
    /// The path of the field that names a node's parent.
    pub fn parent_path(&self) -> &str {
        &self.parent.path
    }

    pub fn order_path(&self) -> Option<&str> {
        self.order.as_ref().map(|field| &*field.path)
    }

    pub fn scope_path(&self) -> Option<&str> {
        self.scope.as_ref().map(|field| &*field.path)
    }

    pub fn ancestors_path(&self) -> Option<&str> {
        self.ancestors.as_ref().map(|field| &*field.path)
    }

    /// The paths of the left and the right label.
    pub fn label_paths(&self) -> Option<[&str; 2]> {
        self.nested_sets.as_ref().map(|fields| [&*fields[0].path, &*fields[1].path])
    }

    pub fn max_depth(&self) -> usize {
        self.max_depth
    }

    /// Whether siblings have an order that is kept.
    pub fn has_order(&self) -> bool {
        self.order.is_some() || self.nested_sets.is_some()
    }

    /// The labels of a document, where it has both.
    pub fn labels(&self, document: RawDocument<'_>) -> Option<[i64; 2]> {
        let fields = self.nested_sets.as_ref()?;
        Some([fields[0].whole(document)?, fields[1].whole(document)?])
    }

    /// What tells the place of a document among its siblings, where that is kept.
    pub fn sibling_key_of(&self, document: RawDocument<'_>) -> Option<i64> {
        let field = match (&self.nested_sets, &self.order) {
            (Some([left, _]), _) => left,
            (None, order) => order.as_ref()?,
        };
        field.whole(document)
    }

    /// The ancestors that a document has stored.
    pub fn ancestor_ids(&self, document: RawDocument<'_>) -> Option<Vec<Value>> {
        let stored = self.ancestors.as_ref()?.get(document)?.as_array()?;
        Some(stored.iter().map(RawValue::to_value).collect())
    }

    /// How many ancestors a document has stored.
    pub fn ancestor_count(&self, document: RawDocument<'_>) -> Option<usize> {
        Some(self.ancestors.as_ref()?.get(document)?.as_array()?.iter().count())
    }

    /// The scope of a document; null where it has none, or none is declared.
    pub fn scope_of(&self, document: RawDocument<'_>) -> Value {
        let value = self.scope.as_ref().and_then(|field| field.get(document));
        value.map_or(Value::Null, RawValue::to_value)
    }

    /// Whether every step has to be alone in its scope. Where nothing but what is above a node is kept, new leaves do not
    /// get in each other's way.
    pub fn excludes_others(&self, step: &Step) -> bool {
        let writes_others = self.child_count.is_some() || self.descendant_count.is_some() || self.has_order();
        writes_others || step.before.is_some() || step.after.is_none() || step.refresh
    }
}
