//! Up from a node to its root, and down to all below it.

use kilim_bson::{Document, RawDocument, RawValue, Value, compare};
use kilim_error::{Error, ErrorCode, Result};

use super::node::{Above, Node, is_same};
use super::{Nodes, Tree};

/// A node of a subtree. The list of them has parents before their children, and siblings in their order.
pub(super) struct Member {
    pub node: Node,
    /// The place of its parent in the list; its own for the first.
    pub parent: usize,
}

impl Tree {
    /// The node with an `_id` in a scope.
    pub(super) fn look_up(&self, nodes: &mut dyn Nodes, scope: &Value, id: &Value) -> Result<Option<Node>> {
        let found = nodes.node(id.as_raw())?.map(|document| self.node_of(document));
        Ok(found.filter(|node| is_same(&node.scope, scope)))
    }

    /// The parent of a node, where it is there.
    pub(super) fn parent_node(&self, nodes: &mut dyn Nodes, node: &Node) -> Result<Option<Node>> {
        match &node.parent {
            Some(parent) => self.look_up(nodes, &node.scope, parent),
            None => Ok(None),
        }
    }

    /// Those above a node, from its parent to its root.
    pub(super) fn climb(&self, nodes: &mut dyn Nodes, node: &Node) -> Result<Vec<Node>> {
        let mut line: Vec<Node> = Vec::new();
        if node.parent.as_ref().is_some_and(|parent| is_same(parent, &node.id)) {
            return Err(self.cycle(node));
        }
        loop {
            let lower = line.last().unwrap_or(node);
            let Some(upper) = self.parent_node(nodes, lower)? else { break };
            if is_same(&upper.id, &node.id) {
                return Err(self.cycle(node));
            }
            if line.len() == self.max_depth {
                // Round in a circle that does not lead through the node, or up a line that is too long.
                return match line.iter().any(|other| is_same(&other.id, &upper.id)) {
                    true => Err(self.cycle(&upper)),
                    false => Err(self.too_deep(node)),
                };
            }
            line.push(upper);
        }
        // A node that is new may have those below it that wait for it.
        let waits_for = line.last().and_then(|top| top.parent.as_ref());
        match waits_for.is_some_and(|parent| is_same(parent, &node.id)) {
            true => Err(self.cycle(node)),
            false => Ok(line),
        }
    }

    /// What a node gets from those above it, given these.
    pub(super) fn above_of(&self, line: &[Node]) -> Above {
        let below = |above: Above, upper: &Node| self.above_children(&above, upper);
        line.iter().rev().fold(self.above_root(), below)
    }

    /// The children of a node in their order. One whose `_id` is null has none: whoever names null names no parent.
    pub(super) fn children_of(&self, nodes: &mut dyn Nodes, scope: &Value, id: &Value) -> Result<Vec<Node>> {
        match id {
            Value::Null => Ok(Vec::new()),
            id => self.naming(nodes, scope, Some(id)),
        }
    }

    /// The nodes of a scope that name this parent, or those that name none, in their order.
    pub(super) fn naming(
        &self,
        nodes: &mut dyn Nodes,
        scope: &Value,
        parent: Option<&Value>,
    ) -> Result<Vec<Node>> {
        let children = nodes.children(parent.map_or(RawValue::Null, Value::as_raw))?.into_iter();
        let own = |child: &Document| self.names_parent(child.as_raw(), scope, parent);
        let mut children: Vec<Node> = children.filter(own).map(|document| self.node_of(document)).collect();
        children.sort_by(|one, other| {
            let key = |node: &Node| self.sibling_key(node).unwrap_or(i64::MAX);
            let by_id = || compare(one.id.as_raw(), other.id.as_raw());
            key(one).cmp(&key(other)).then_with(by_id)
        });
        Ok(children)
    }

    /// Whether another node of its scope has a node's parent and its order key.
    pub(super) fn is_order_taken(&self, nodes: &mut dyn Nodes, node: &Node, order: i64) -> Result<bool> {
        let parent = node.parent.as_ref();
        let others = nodes.children_at(parent.map_or(RawValue::Null, Value::as_raw), order)?;
        Ok(others.iter().map(Document::as_raw).any(|other| {
            self.sibling_key_of(other) == Some(order)
                && self.names_parent(other, &node.scope, parent)
                && other.get("_id").is_none_or(|id| !compare(id, node.id.as_raw()).is_eq())
        }))
    }

    /// Whether a document of a scope names this parent, or none.
    fn names_parent(&self, document: RawDocument<'_>, scope: &Value, parent: Option<&Value>) -> bool {
        is_same(&self.scope_of(document), scope)
            && match (self.parent_of(document), parent) {
                (None, None) => true,
                (Some(named), Some(parent)) => compare(named, parent.as_raw()).is_eq(),
                _ => false,
            }
    }

    /// What tells the place of a node among its siblings.
    pub(super) fn sibling_key(&self, node: &Node) -> Option<i64> {
        self.sibling_key_of(node.document.as_raw())
    }

    /// A node with all below it.
    pub(super) fn subtree(&self, nodes: &mut dyn Nodes, root: Node) -> Result<Vec<Member>> {
        Ok(self.subtree_of(nodes, root, usize::MAX)?.unwrap_or_default())
    }

    /// A node with all below it, if these are not more than `most`.
    pub(super) fn subtree_of(
        &self,
        nodes: &mut dyn Nodes,
        root: Node,
        most: usize,
    ) -> Result<Option<Vec<Member>>> {
        let mut members: Vec<Member> = Vec::new();
        let mut open: Vec<(Node, usize)> = vec![(root, 0)];
        while let Some((node, parent)) = open.pop() {
            let at = members.len();
            let children = self.children_of(nodes, &node.scope, &node.id)?;
            if children
                .iter()
                .any(|child| is_same(&child.id, &members.first().map_or(&node, |one| &one.node).id))
            {
                return Err(self.cycle(&node));
            }
            open.extend(children.into_iter().rev().map(|child| (child, at)));
            members.push(Member { node, parent });
            if members.len() + open.len() - 1 > most {
                return Ok(None);
            }
        }
        Ok(Some(members))
    }

    /// How many nodes are below one, and on how many levels.
    pub(super) fn extent(&self, nodes: &mut dyn Nodes, root: &Node) -> Result<(u64, usize)> {
        let (mut count, mut levels, mut level) = (0, 0, vec![root.id.clone()]);
        loop {
            let mut next = Vec::new();
            for id in level.iter().filter(|id| !matches!(id, Value::Null)) {
                nodes.visit_children(id.as_raw(), &mut |child| {
                    if self.names_parent(child, &root.scope, Some(id)) {
                        next.push(child.get("_id").map_or(Value::Null, RawValue::to_value));
                    }
                })?;
            }
            if next.is_empty() {
                return Ok((count, levels));
            }
            if next.iter().any(|id| is_same(id, &root.id)) {
                return Err(self.cycle(root));
            }
            count += next.len() as u64;
            levels += 1;
            if levels > self.max_depth {
                return Err(self.too_deep(root));
            }
            level = next;
        }
    }

    /// How many nodes are below one.
    pub(super) fn count_below(&self, nodes: &mut dyn Nodes, node: &Node) -> Result<i64> {
        let (mut count, mut open) = (0, vec![node.id.clone()]);
        while let Some(id) = open.pop() {
            for child in self.children_of(nodes, &node.scope, &id)? {
                if is_same(&child.id, &node.id) {
                    return Err(self.cycle(node));
                }
                count += 1;
                open.push(child.id);
            }
        }
        Ok(count)
    }

    pub(super) fn cycle(&self, node: &Node) -> Error {
        let id = shown(node.id.as_raw());
        let parent = node.parent.as_ref().map_or_else(|| "null".to_owned(), |parent| shown(parent.as_raw()));
        Error::user(
            ErrorCode::TreeCycle,
            format!(
                "{id} cannot be below {parent}, which is the node itself or lies below it: choose another parent"
            ),
        )
    }

    pub(super) fn too_deep(&self, node: &Node) -> Error {
        Error::user(
            ErrorCode::TreeDepthExceeded,
            format!(
                "{} or a node below it would have more than {} ancestors, which is maxDepth: choose a parent further up, or \
                 modifyPattern with another maxDepth",
                shown(node.id.as_raw()),
                self.max_depth
            ),
        )
    }

    pub(super) fn not_empty(&self, node: &Node, children: usize) -> Error {
        Error::user(
            ErrorCode::TreeNotEmpty,
            format!(
                "{} has {children} children: delete or move them first, or declare onDelete: \"cascade\" or \"reparent\"",
                shown(node.id.as_raw())
            ),
        )
    }

    pub(super) fn parent_missing(&self, node: &Node) -> Error {
        let parent = node.parent.as_ref().map_or(RawValue::Null, Value::as_raw);
        Error::user(
            ErrorCode::TreeParentMissing,
            format!(
                "{} is no node of the tree of {}: choose another parent, or insert it first",
                shown(parent),
                shown(node.id.as_raw())
            ),
        )
    }
}

/// A node in a message.
pub(super) fn shown(id: RawValue<'_>) -> String {
    kilim_query::text::document(kilim_bson::doc! {"_id": id}.as_raw())
}
