//! What a node must be, from scratch.

use kilim_bson::{Document, RawDocument};
use kilim_error::Result;

use super::labels::LABEL_LIMIT;
use super::node::{Node, is_same, with_fields, with_values};
use super::{LabelSide, Nodes, Tree};

impl Tree {
    /// A node with the fields that it must have; none where it has them. Labels and order keys are not determined by the
    /// parents: where they are wrong, they are missing in the answer.
    pub(super) fn made_right(
        &self,
        document: RawDocument<'_>,
        nodes: &mut dyn Nodes,
    ) -> Result<Option<Document>> {
        let node = self.node_of(document.to_document());
        let line = self.climb(nodes, &node)?;
        let mut fields = Vec::new();
        self.fields_from_above(&self.above_of(&line), document, &mut fields);
        if self.child_count.is_some() || self.descendant_count.is_some() {
            let children = self.children_of(nodes, &node.scope, &node.id)?.len() as i64;
            let descendants = match self.descendant_count {
                Some(_) => self.count_below(nodes, &node)?,
                None => 0,
            };
            self.fields_of_counts(children, descendants, &mut fields);
        }
        let made = with_values(document, fields);
        let is_placed = match (&self.nested_sets, &self.order) {
            (Some(_), _) => self.are_labels_right(nodes, &node)?,
            (None, Some(_)) => self.is_order_right(nodes, &node)?,
            (None, None) => true,
        };
        if is_placed {
            return Ok(made);
        }
        let placing = self.order.iter().chain(self.nested_sets.iter().flatten());
        let bare: Vec<_> = placing.map(|field| (field, None)).collect();
        Ok(Some(with_fields(made.as_ref().map_or(document, Document::as_raw), &bare)))
    }

    /// Whether the labels of a node stand where they must among all others. The label before the left one is the parent's
    /// left one or the right one of a sibling; the label before the right one is the node's own or the right one of a
    /// child. If that is so for every node, the labels are those of nested sets. Without gaps the label before is the number
    /// before.
    pub(super) fn are_labels_right(&self, nodes: &mut dyn Nodes, node: &Node) -> Result<bool> {
        let Some([left, right]) = self.labels(node.document.as_raw()) else { return Ok(false) };
        if left < 1 || right >= LABEL_LIMIT || left >= right || !self.is_order_left(node, left) {
            return Ok(false);
        }
        for label in [left, right] {
            let there = nodes.labelled(node.scope.as_raw(), label, label)?;
            if there.len() != 1 {
                return Ok(false);
            }
        }
        if self.dense {
            for label in [left, right] {
                let before = nodes.next_label(node.scope.as_raw(), label, LabelSide::Below)?;
                if before.unwrap_or(0) != label - 1 {
                    return Ok(false);
                }
            }
        }
        let parent = self.parent_node(nodes, node)?;
        let is_begun = match self.owner_below(nodes, node, left)? {
            None => parent.is_none(),
            Some((other, 0)) => parent.is_some_and(|parent| is_same(&parent.id, &other.id)),
            Some((other, _)) => {
                let upper = self.parent_node(nodes, &other)?;
                match (parent, upper) {
                    (None, None) => true,
                    (Some(parent), Some(upper)) => is_same(&parent.id, &upper.id),
                    _ => false,
                }
            }
        };
        let is_ended = match self.owner_below(nodes, node, right)? {
            None => false,
            Some((other, 0)) => is_same(&other.id, &node.id),
            Some((other, _)) => other.parent.is_some_and(|parent| is_same(&parent, &node.id)),
        };
        Ok(is_begun && is_ended)
    }

    /// Beside labels, the order key is the left one.
    fn is_order_left(&self, node: &Node, left: i64) -> bool {
        match &self.order {
            Some(field) => field.whole(node.document.as_raw()) == Some(left),
            None => true,
        }
    }

    /// Whose label is the nearest below this one, and which of the two.
    fn owner_below(&self, nodes: &mut dyn Nodes, node: &Node, label: i64) -> Result<Option<(Node, usize)>> {
        let scope = node.scope.as_raw();
        let Some(below) = nodes.next_label(scope, label, LabelSide::Below)? else { return Ok(None) };
        let owners = nodes.labelled(scope, below, below)?;
        let Some(owner) = owners.into_iter().next() else { return Ok(None) };
        let end = usize::from(self.labels(owner.as_raw()).is_some_and(|[left, _]| left != below));
        Ok(Some((self.node_of(owner), end)))
    }

    /// Whether the order key of a node is its own among its siblings.
    pub(super) fn is_order_right(&self, nodes: &mut dyn Nodes, node: &Node) -> Result<bool> {
        match self.sibling_key(node).filter(|own| *own > 0 && *own < LABEL_LIMIT) {
            Some(own) => Ok(!self.is_order_taken(nodes, node, own)?),
            None => Ok(false),
        }
    }
}
