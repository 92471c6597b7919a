//! Labels without gaps (`dense`): those of a scope with `n` nodes are 1 to `2n`, as in textbooks.
//!
//! Labels that go close ranks: all behind them move down. Labels that come move all behind their place up. So a change in the
//! middle writes about half of the nodes of its scope, and one at the end writes what it adds and the nodes above it.
//!
//! While documents from before the declaration are being filled, labels are missing. Whoever meets that numbers the whole
//! scope, once; from then on every step finds it numbered.

use std::collections::HashMap;

use kilim_bson::{Value, compare};
use kilim_error::Result;

use super::labels::LABEL_LIMIT;
use super::lines::Member;
use super::node::{Node, with_fields, with_values};
use super::{Forest, Tree};
use crate::effect::key_bytes;

impl Tree {
    /// Labels of a scope are gone: those behind them move down.
    pub(super) fn close_ranks(
        &self,
        forest: &mut dyn Forest,
        scope: &Value,
        mut gone: Vec<i64>,
    ) -> Result<()> {
        gone.sort_unstable();
        let Some(first) = gone.first() else { return Ok(()) };
        self.shift(forest, scope, *first, |label| -(gone.partition_point(|gone| *gone < label) as i64))
    }

    /// Labels for `count` that come behind `below`: those that were there move up.
    pub(super) fn open_ranks(
        &self,
        forest: &mut dyn Forest,
        scope: &Value,
        below: i64,
        count: usize,
    ) -> Result<Vec<i64>> {
        let count = count as i64;
        self.shift(forest, scope, below + 1, |label| if label > below { count } else { 0 })?;
        Ok((below + 1..=below + count).collect())
    }

    /// Adds something to the labels of a scope from one on.
    fn shift(
        &self,
        forest: &mut dyn Forest,
        scope: &Value,
        from: i64,
        more: impl Fn(i64) -> i64,
    ) -> Result<()> {
        for document in forest.labelled(scope.as_raw(), from, LABEL_LIMIT - 1)? {
            let node = self.node_of(document);
            if let Some(labels) = self.labels(node.document.as_raw()) {
                let shifted = labels.map(|label| if label < from { label } else { label + more(label) });
                self.write_labels(forest, &node, shifted)?;
            }
        }
        Ok(())
    }

    fn write_labels(&self, forest: &mut dyn Forest, node: &Node, labels: [i64; 2]) -> Result<()> {
        let mut fields = Vec::new();
        self.fields_of_labels(labels, &mut fields);
        match with_values(node.document.as_raw(), fields) {
            Some(made) => forest.write(node.id.as_raw(), made),
            None => Ok(()),
        }
    }

    /// Numbers all nodes of a scope. Siblings keep the order that they have; those without labels come behind them. Nodes of
    /// a circle have no place, and no labels.
    pub(super) fn number_all(&self, forest: &mut dyn Forest, scope: &Value) -> Result<()> {
        let nodes: Vec<Node> =
            forest.all(scope.as_raw())?.into_iter().map(|document| self.node_of(document)).collect();
        let by_id: HashMap<Vec<u8>, usize> =
            nodes.iter().enumerate().map(|(at, node)| (key_bytes(node.id.as_raw()), at)).collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        let mut roots = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            match node.parent.as_ref().and_then(|parent| by_id.get(&key_bytes(parent.as_raw()))) {
                Some(parent) => children[*parent].push(at),
                None => roots.push(at),
            }
        }
        let sort = |siblings: &mut Vec<usize>| {
            let key = |at: usize| self.sibling_key(&nodes[at]).unwrap_or(i64::MAX);
            siblings.sort_by(|one, other| {
                let by_id = || compare(nodes[*one].id.as_raw(), nodes[*other].id.as_raw());
                key(*one).cmp(&key(*other)).then_with(by_id)
            });
        };
        sort(&mut roots);
        children.iter_mut().for_each(sort);

        let mut labels: Vec<[i64; 2]> = vec![[0; 2]; nodes.len()];
        let (mut next, mut open) = (1, Vec::new());
        open.extend(roots.into_iter().rev().map(|root| (root, 0)));
        while let Some((at, end)) = open.pop() {
            labels[at][end] = next;
            next += 1;
            if end == 0 {
                open.push((at, 1));
                open.extend(children[at].iter().rev().map(|child| (*child, 0)));
            }
        }
        for (node, labels) in nodes.iter().zip(labels) {
            match labels {
                [0, _] => self.take_labels_off(forest, node)?,
                labels => self.write_labels(forest, node, labels)?,
            }
        }
        Ok(())
    }

    /// Takes the labels of a node off, so that nobody meets them.
    pub(super) fn take_labels_off(&self, forest: &mut dyn Forest, node: &Node) -> Result<()> {
        let Some([left, right]) = &self.nested_sets else { return Ok(()) };
        let raw = node.document.as_raw();
        if left.get(raw).is_none() && right.get(raw).is_none() {
            return Ok(());
        }
        let bare = with_fields(raw, &[(left, None), (right, None)]);
        forest.write(node.id.as_raw(), bare)
    }

    /// The labels that the nodes of a subtree have.
    pub(super) fn labels_within(&self, members: &[Member]) -> Vec<i64> {
        let labels = members.iter().filter_map(|member| self.labels(member.node.document.as_raw()));
        labels.flatten().collect()
    }
}
