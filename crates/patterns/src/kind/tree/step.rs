//! What the change of one node means for the others.
//!
//! A node that comes, goes or moves takes all below it along: they get what they have from above anew, and labels at
//! their new place. Those above it count them. Nothing else is written, but for labels that must make room.

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use super::labels::{self, LABEL_LIMIT};
use super::lines::{Member, shown};
use super::node::{Above, Node, is_same, with_fields, with_values};
use super::shift::Shift;
use super::{Field, Forest, LabelSide, OnDelete, Tree};
use crate::effect::key_bytes;

/// The change of one node.
#[derive(Debug, Clone)]
pub struct Step {
    pub id: Value,
    /// As it was seen by whoever changed it; none where it is inserted.
    pub before: Option<Document>,
    /// None where it is deleted. What is maintained is not looked at.
    pub after: Option<Document>,
    /// Where among its new siblings it goes; behind them where nothing is said.
    pub position: Option<Position>,
    /// Nobody changed it: its fields are made anew.
    pub refresh: bool,
    /// With `refresh`: labels that are wrong are made anew for all below it too.
    pub is_thorough: bool,
}

/// A place among siblings.
#[derive(Debug, Clone)]
pub enum Position {
    First,
    Last,
    Before(Value),
    After(Value),
}

/// Notes of somebody who waits for a parent, and of the last child of a parent.
const WAITS: u8 = b'w';
const ENDS: u8 = b'e';

/// What is noted of the children of a node.
#[derive(Debug, Clone, Copy, Default)]
struct Ends {
    /// About how many there are.
    count: i64,
    /// The last label among them; none where nobody knows.
    last: Option<i64>,
    /// The left label of the node by then. If it has another by now, so have its children, and nobody knows the last.
    low: i64,
}

/// Where a node goes among labels.
struct Gap {
    /// The left label of its parent.
    low: i64,
    /// The labels on both sides.
    below: i64,
    above: i64,
    /// The number of its siblings where it goes behind them.
    siblings: Option<i64>,
}

impl Tree {
    /// Carries out a step.
    pub fn take(&self, step: &Step, forest: &mut dyn Forest) -> Result<()> {
        let mut steps = Steps { tree: self, forest, keeps_labels: false };
        if self.dense && !step.refresh && !steps.forest.is_complete() {
            let images = step.before.iter().chain(&step.after);
            let mut scopes: Vec<Value> = images.map(|image| self.scope_of(image.as_raw())).collect();
            scopes.dedup_by(|one, other| is_same(one, other));
            scopes.iter().try_for_each(|scope| self.number_all(steps.forest, scope))?;
        }
        let current = match &step.before {
            Some(_) => steps.forest.node(step.id.as_raw())?.map(|document| self.node_of(document)),
            None => None,
        };
        let after = step.after.as_ref().map(|after| {
            let from = current.as_ref().map_or(RawDocument::empty(), |node| node.document.as_raw());
            self.node_of(self.restored(from, after.as_raw()).unwrap_or_else(|| after.clone()))
        });
        match (current, after) {
            (None, None) => Ok(()),
            (Some(node), Some(_)) if step.refresh => steps.refresh(node, step.is_thorough),
            (None, Some(node)) => steps.insert(node, step.position.as_ref()),
            (Some(node), None) => steps.delete(node),
            (Some(before), Some(after)) => steps.update(before, after, step.position.as_ref()),
        }
    }

    /// Whether a change concerns the place or the name of a node.
    pub(super) fn replants(&self, before: RawDocument<'_>, after: RawDocument<'_>) -> bool {
        let read = [Some(&self.parent), self.path_of.as_ref(), self.scope.as_ref()];
        let value = |field: &Field, document| field.get(document).map_or(Value::Null, RawValue::to_value);
        read.into_iter().flatten().any(|field| {
            let (before, after) = (value(field, before), value(field, after));
            before.element_type() != after.element_type() || !is_same(&before, &after)
        })
    }
}

struct Steps<'s> {
    tree: &'s Tree,
    forest: &'s mut dyn Forest,
    /// Nodes that go to another parent keep their labels, since those are right there too.
    keeps_labels: bool,
}

impl Steps<'_> {
    fn insert(&mut self, node: Node, position: Option<&Position>) -> Result<()> {
        let waits = match self.forest.is_complete() {
            true => self.forest.note(&note_key(WAITS, &node.scope, Some(&node.id)))?.is_some(),
            false => true,
        };
        let members = match waits {
            true => {
                self.forest.set_note(&note_key(WAITS, &node.scope, Some(&node.id)), None)?;
                self.tree.subtree(self.forest, node)?
            }
            false => vec![Member { node, parent: 0 }],
        };
        let top = &members[0].node;
        let children = members.iter().skip(1).filter(|member| member.parent == 0).count();
        let (line, above) = self.line_of(top, waits)?;
        if self.tree.nested_sets.is_some() {
            // Those that waited were roots.
            for root in members.iter().skip(1).filter(|member| member.parent == 0) {
                self.forget_end(&root.node, None)?;
            }
        }
        self.count(&line, 1, members.len() as i64)?;
        let counts = Some((children as i64, members.len() as i64 - 1));
        self.graft(members, line.first(), above, position, counts)
    }

    fn delete(&mut self, node: Node) -> Result<()> {
        let children = self.tree.children_of(self.forest, &node.scope, &node.id)?;
        let mut gone = 1;
        let mut labels: Vec<i64> = self.tree.labels(node.document.as_raw()).into_iter().flatten().collect();
        match self.tree.on_delete {
            _ if children.is_empty() => {}
            OnDelete::Restrict => return Err(self.tree.not_empty(&node, children.len())),
            OnDelete::Cascade => {
                let members = self.tree.subtree(self.forest, node.clone())?;
                gone = members.len();
                labels = self.tree.labels_within(&members);
                for member in members.iter().skip(1).rev() {
                    self.drop_notes(&member.node)?;
                    self.forest.remove(member.node.id.as_raw())?;
                }
            }
            OnDelete::Reparent => {
                // Without the labels of the node, those of its children are right for children of its parent.
                self.keeps_labels = self.tree.nested_sets.is_some();
                for child in children {
                    let parent = node.parent.clone().or(Some(Value::Null));
                    let moved = with_fields(child.document.as_raw(), &[(&self.tree.parent, parent)]);
                    let moved = self.tree.node_of(moved);
                    self.relocate(child, moved, None)?;
                }
            }
        }
        let line = self.line_above(&node)?;
        self.count(&line, -1, -(gone as i64))?;
        self.forget_end(&node, line.first())?;
        self.drop_notes(&node)?;
        self.forest.remove(node.id.as_raw())?;
        match self.tree.dense {
            true => self.tree.close_ranks(self.forest, &node.scope, labels),
            false => Ok(()),
        }
    }

    fn update(&mut self, before: Node, after: Node, position: Option<&Position>) -> Result<()> {
        if !is_same(&before.scope, &after.scope) {
            let children = self.tree.children_of(self.forest, &before.scope, &before.id)?;
            if !children.is_empty() {
                return Err(self.tree.not_empty(&before, children.len()));
            }
            let line = self.line_above(&before)?;
            self.count(&line, -1, -1)?;
            self.forget_end(&before, line.first())?;
            self.drop_notes(&before)?;
            // Not in its old place when its new one is looked for.
            self.lift(&[Member { node: before, parent: 0 }])?;
            return self.insert(after, position);
        }
        let same_parent = match (&before.parent, &after.parent) {
            (None, None) => true,
            (Some(one), Some(other)) => is_same(one, other),
            _ => false,
        };
        if !same_parent || position.is_some() {
            return self.relocate(before, after, position);
        }
        if self.tree.path.is_none()
            || self.tree.name_of(before.document.as_raw()) == self.tree.name_of(after.document.as_raw())
        {
            return self.forest.write(after.id.as_raw(), after.document);
        }
        let (_, above) = self.line_of(&after, false)?;
        let (members, left) = self.taken_along(after, &above)?;
        self.leave_below(&members[0].node, left, None)?;
        self.rename(members, above)
    }

    /// The nodes that are written with one that gets something else from above: all below it, or, if they are left to a job,
    /// itself. Then also how many are left.
    fn taken_along(&mut self, node: Node, above: &Above) -> Result<(Vec<Member>, u64)> {
        let Some(most) = self.forest.most_at_once().filter(|_| self.tree.leaves_to_jobs()) else {
            return Ok((self.tree.subtree(self.forest, node)?, 0));
        };
        let mut fields = Vec::new();
        self.tree.fields_from_above(above, node.document.as_raw(), &mut fields);
        if self.tree.nested_sets.is_none()
            && !self.forest.is_behind()
            && with_values(node.document.as_raw(), fields).is_none()
        {
            // Another place among the same siblings: nothing changes below.
            return Ok((vec![Member { node, parent: 0 }], 0));
        }
        if let Some(members) = self.tree.subtree_of(self.forest, node.clone(), most)? {
            return Ok((members, 0));
        }
        let (below, levels) = self.tree.extent(self.forest, &node)?;
        match above.depth() + levels > self.tree.max_depth {
            true => Err(self.tree.too_deep(&node)),
            false => Ok((vec![Member { node, parent: 0 }], below)),
        }
    }

    fn leave_below(&mut self, node: &Node, count: u64, shift: Option<Shift>) -> Result<()> {
        match count {
            0 => Ok(()),
            count => self.forest.leave_below(node.id.as_raw(), count, shift),
        }
    }

    /// A node goes to another parent, or to another place among its siblings.
    fn relocate(&mut self, before: Node, after: Node, position: Option<&Position>) -> Result<()> {
        let old = self.line_above(&before)?;
        // Also where what is above is stored: a parent that lies below the node is found on the way up.
        let line = self.tree.climb(self.forest, &after)?;
        let above = self.tree.above_of(&line);
        // From here on it is no child of its old parent.
        self.forest.write(after.id.as_raw(), after.document.clone())?;
        let (mut members, left) = self.taken_along(after, &above)?;
        if let (Some(parent), None) = (&members[0].node.parent, line.first()) {
            if position.is_some() {
                return Err(self.tree.parent_missing(&members[0].node));
            }
            self.await_parent(&members[0].node, parent)?;
        }
        let size = members.len() as i64 + left as i64;
        // Those above both places count it before and after.
        let shared =
            old.iter().rev().zip(line.iter().rev()).take_while(|(one, other)| is_same(&one.id, &other.id));
        let shared = shared.count();
        self.count_line(&old[..old.len() - shared], -size)?;
        self.count_line(&line[..line.len() - shared], size)?;
        let same_parent = old.first().map(|node| &node.id).zip(line.first().map(|node| &node.id));
        if !same_parent.is_some_and(|(one, other)| is_same(one, other)) {
            self.count_children(old.first(), -1)?;
            self.count_children(line.first(), 1)?;
        }
        self.forget_end(&before, old.first())?;
        if left == 0 || self.tree.nested_sets.is_none() || self.keeps_labels {
            self.leave_below(&members[0].node, left, None)?;
            return self.graft(members, line.first(), above, position, None);
        }
        match self.shift_to(&before, &members[0].node, line.first(), position)? {
            Some((moved, shift)) => {
                self.leave_below(&moved, left, Some(shift))?;
                self.rename(vec![Member { node: moved, parent: 0 }], above)
            }
            // There is no gap that is wide enough, so all below get other labels now.
            None => {
                members = self.tree.subtree(self.forest, members.remove(0).node)?;
                self.graft(members, line.first(), above, position, None)
            }
        }
    }

    /// A node with labels at its new place, as far from each other as they were, and the distance for the labels below it. None
    /// where there is no room for that.
    fn shift_to(
        &mut self,
        before: &Node,
        node: &Node,
        parent: Option<&Node>,
        position: Option<&Position>,
    ) -> Result<Option<(Node, Shift)>> {
        let Some([left, right]) = self.tree.labels(before.document.as_raw()) else { return Ok(None) };
        self.lift(&[Member { node: node.clone(), parent: 0 }])?;
        let scope = node.scope.as_raw();
        let from = self.forest.next_label(scope, left, LabelSide::Above)?.filter(|from| *from < right);
        let to = self.forest.next_label(scope, right, LabelSide::Below)?.filter(|to| *to > left);
        let key = self.ends_key(node, parent);
        let ends = self.ends(&key)?;
        let gap = self.gap(node, parent, position, ends)?;
        let start = labels::range_in_gap(gap.below, gap.above, right - left + 1, gap.siblings);
        let (Some(from), Some(to), Some(start)) = (from, to, start) else { return Ok(None) };
        let by = start - left;
        self.note_end(&key, gap.low, gap.siblings.is_some(), right + by)?;
        let mut fields = Vec::new();
        self.tree.fields_of_labels([left + by, right + by], &mut fields);
        let document = with_values(node.document.as_raw(), fields).unwrap_or_else(|| node.document.clone());
        let moved = Node { document, ..node.clone() };
        Ok(Some((moved, Shift { scope: node.scope.clone(), from, to, by })))
    }

    /// Makes the fields of a node anew.
    fn refresh(&mut self, node: Node, is_thorough: bool) -> Result<()> {
        let line = self.tree.climb(self.forest, &node)?;
        let above = self.tree.above_of(&line);
        if let (Some(parent), None) = (&node.parent, line.first()) {
            self.await_parent(&node, parent)?;
        }
        let mut fields = Vec::new();
        self.tree.fields_from_above(&above, node.document.as_raw(), &mut fields);
        if self.tree.child_count.is_some() || self.tree.descendant_count.is_some() {
            let children = self.tree.children_of(self.forest, &node.scope, &node.id)?.len() as i64;
            let descendants = match self.tree.descendant_count {
                Some(_) => self.tree.count_below(self.forest, &node)?,
                None => 0,
            };
            self.tree.fields_of_counts(children, descendants, &mut fields);
        }
        let made = with_values(node.document.as_raw(), fields).unwrap_or_else(|| node.document.clone());
        let node = Node { document: made, ..node };
        self.forest.write(node.id.as_raw(), node.document.clone())?;
        if !self.tree.has_order() {
            return Ok(());
        }
        // From here on somebody knows that the parent has children.
        let ends = self.ends_key(&node, line.first());
        if !self.tree.dense && self.forest.note(&ends)?.is_none() {
            self.set_ends(&ends, Ends { count: 1, last: None, low: 0 })?;
        }
        if self.tree.nested_sets.is_none() {
            return match self.tree.is_order_right(self.forest, &node)? {
                true => Ok(()),
                false => self.reorder(node, None),
            };
        }
        if self.tree.are_labels_right(self.forest, &node)? {
            return Ok(());
        }
        if self.tree.dense {
            return self.tree.number_all(self.forest, &node.scope);
        }
        if !is_thorough {
            for at in (0..line.len()).rev() {
                self.ensure_labels(&line[at], line.get(at + 1))?;
            }
            let parent = self.again(line.first())?;
            return self.relabel(vec![Member { node, parent: 0 }], parent.as_ref());
        }
        // The uppermost that is wrong goes with all below it, so that none of them becomes wrong by that.
        for at in (0..line.len()).rev() {
            let Some(upper) = self.again(line.get(at))? else { continue };
            if !self.tree.are_labels_right(self.forest, &upper)? {
                let members = self.tree.subtree(self.forest, upper)?;
                let parent = self.again(line.get(at + 1))?;
                return self.relabel(members, parent.as_ref());
            }
        }
        let members = self.tree.subtree(self.forest, node)?;
        let parent = self.again(line.first())?;
        self.relabel(members, parent.as_ref())
    }

    /// Gives the nodes of a subtree labels behind their siblings, whatever they have.
    fn relabel(&mut self, members: Vec<Member>, parent: Option<&Node>) -> Result<()> {
        self.lift(&members)?;
        // What was noted goes with labels that were wrong.
        let ends = self.ends_key(&members[0].node, parent);
        let count = self.ends(&ends)?.map_or(0, |ends| ends.count - 1).max(0);
        self.set_ends(&ends, Ends { count, last: None, low: 0 })?;
        self.label(&members, parent, None)
    }

    /// Gives a node labels within its parent's, unless it has such.
    fn ensure_labels(&mut self, node: &Node, parent: Option<&Node>) -> Result<()> {
        let (Some(node), parent) = (self.again(Some(node))?, self.again(parent)?) else { return Ok(()) };
        let labels = |node: &Node| self.tree.labels(node.document.as_raw());
        let [low, high] = parent.as_ref().map_or(Some([0, LABEL_LIMIT]), labels).unwrap_or([0, LABEL_LIMIT]);
        if labels(&node).is_some_and(|[left, right]| low < left && left < right && right < high) {
            return Ok(());
        }
        self.relabel(vec![Member { node, parent: 0 }], parent.as_ref())
    }

    /// A node as it is by now.
    fn again(&mut self, node: Option<&Node>) -> Result<Option<Node>> {
        match node {
            Some(node) => self.tree.look_up(self.forest, &node.scope, &node.id),
            None => Ok(None),
        }
    }

    /// Puts a subtree below a parent: the fields from above, the place among siblings, the labels. `counts`: the children
    /// and the descendants of the first, where it is new.
    fn graft(
        &mut self,
        members: Vec<Member>,
        parent: Option<&Node>,
        above: Above,
        position: Option<&Position>,
        counts: Option<(i64, i64)>,
    ) -> Result<()> {
        let labels = match &self.tree.nested_sets {
            Some(_) if !self.keeps_labels => {
                self.lift(&members[usize::from(counts.is_some())..])?;
                Some(self.places_for(&members, parent, position)?)
            }
            _ => None,
        };
        let order = match (&self.tree.nested_sets, &self.tree.order) {
            (None, Some(_)) => Some(self.order_key(&members[0].node, position)?),
            _ => None,
        };
        let aboves = self.aboves(&members, above)?;
        for (at, (member, above)) in members.into_iter().zip(aboves).enumerate() {
            let Node { id, document, .. } = member.node;
            let mut fields = Vec::new();
            self.tree.fields_from_above(&above, document.as_raw(), &mut fields);
            if let (0, Some((children, descendants))) = (at, counts) {
                self.tree.fields_of_counts(children, descendants, &mut fields);
            }
            if let Some(labels) = &labels {
                self.tree.fields_of_labels(labels[at], &mut fields);
            }
            if let (0, Some(order), Some(field)) = (at, order, &self.tree.order) {
                fields.push((field, Value::Int64(order)));
            }
            let made = with_values(document.as_raw(), fields).unwrap_or(document);
            self.forest.write(id.as_raw(), made)?;
        }
        Ok(())
    }

    /// Gives the nodes of a subtree what they get from above, and nothing else.
    fn rename(&mut self, members: Vec<Member>, above: Above) -> Result<()> {
        let aboves = self.aboves(&members, above)?;
        for (Member { node, .. }, above) in members.into_iter().zip(aboves) {
            let mut fields = Vec::new();
            self.tree.fields_from_above(&above, node.document.as_raw(), &mut fields);
            let made = with_values(node.document.as_raw(), fields).unwrap_or(node.document);
            self.forest.write(node.id.as_raw(), made)?;
        }
        Ok(())
    }

    /// What each node of a subtree gets from above, given what the first gets.
    fn aboves(&self, members: &[Member], above: Above) -> Result<Vec<Above>> {
        let mut aboves: Vec<Above> = Vec::with_capacity(members.len());
        for (at, member) in members.iter().enumerate() {
            let own = match at {
                0 => above.clone(),
                _ => self.tree.above_children(&aboves[member.parent], &members[member.parent].node),
            };
            if own.depth() > self.tree.max_depth {
                return Err(self.tree.too_deep(&members[0].node));
            }
            aboves.push(own);
        }
        Ok(aboves)
    }

    /// Those above a node, as far as somebody has to know them; and what it gets from them. `is_awaited`: somebody below
    /// it is there already.
    fn line_of(&mut self, node: &Node, is_awaited: bool) -> Result<(Vec<Node>, Above)> {
        let is_parent_enough = !is_awaited
            && self.tree.descendant_count.is_none()
            && self.forest.is_complete()
            && !self.forest.is_behind();
        if is_parent_enough
            && let Some(parent) = self.tree.parent_node(self.forest, node)?
            && let Some(above) = self.tree.stored_above_children(&parent)
        {
            return match above.depth() > self.tree.max_depth {
                true => Err(self.tree.too_deep(node)),
                false => Ok((vec![parent], above)),
            };
        }
        let line = self.tree.climb(self.forest, node)?;
        if let (Some(parent), None) = (&node.parent, line.first()) {
            self.await_parent(node, parent)?;
        }
        let above = self.tree.above_of(&line);
        Ok((line, above))
    }

    /// Those above a node, as far as they count it.
    fn line_above(&mut self, node: &Node) -> Result<Vec<Node>> {
        match self.tree.descendant_count {
            Some(_) => match self.tree.climb(self.forest, node) {
                // What was there before the declaration may go round in a circle. Whoever breaks it is let through.
                Err(Error::User(_)) if !self.forest.is_complete() => Ok(Vec::new()),
                line => line,
            },
            None => Ok(self.tree.parent_node(self.forest, node)?.into_iter().collect()),
        }
    }

    /// So many more children and descendants for those above a node.
    fn count(&mut self, line: &[Node], children: i64, descendants: i64) -> Result<()> {
        let Some((parent, further)) = line.split_first() else { return Ok(()) };
        let Tree { child_count, descendant_count, .. } = self.tree;
        let counts = [(child_count, children), (descendant_count, descendants)];
        let counts: Vec<(&Field, i64)> =
            counts.into_iter().filter_map(|(field, more)| Some((field.as_ref()?, more))).collect();
        self.add(parent, &counts)?;
        self.count_line(further, descendants)
    }

    fn count_line(&mut self, line: &[Node], descendants: i64) -> Result<()> {
        let Some(field) = &self.tree.descendant_count else { return Ok(()) };
        line.iter().try_for_each(|node| self.add(node, &[(field, descendants)]))
    }

    fn count_children(&mut self, parent: Option<&Node>, children: i64) -> Result<()> {
        match (&self.tree.child_count, parent) {
            (Some(field), Some(parent)) => self.add(parent, &[(field, children)]),
            _ => Ok(()),
        }
    }

    fn add(&mut self, node: &Node, counts: &[(&Field, i64)]) -> Result<()> {
        if counts.is_empty() {
            return Ok(());
        }
        let Some(document) = self.forest.node(node.id.as_raw())? else { return Ok(()) };
        let is_complete = self.forest.is_complete();
        let mut fields = Vec::with_capacity(counts.len());
        for (field, more) in counts {
            match field.whole(document.as_raw()) {
                Some(known) => fields.push((*field, Some(Value::Int64(known + more)))),
                None if is_complete => fields.push((*field, Some(Value::Int64(*more)))),
                // It is counted when it is filled.
                None => {}
            }
        }
        match fields.is_empty() {
            true => Ok(()),
            false => self.forest.write(node.id.as_raw(), with_fields(document.as_raw(), &fields)),
        }
    }

    /// Notes that somebody waits for a parent.
    fn await_parent(&mut self, node: &Node, parent: &Value) -> Result<()> {
        self.forest.set_note(&note_key(WAITS, &node.scope, Some(parent)), Some(Vec::new()))
    }

    /// Takes the labels of nodes of one scope off, so that nobody meets them.
    fn lift(&mut self, members: &[Member]) -> Result<()> {
        members.iter().try_for_each(|member| self.tree.take_labels_off(self.forest, &member.node))?;
        match members.first() {
            Some(first) if self.tree.dense => {
                let gone = self.tree.labels_within(members);
                self.tree.close_ranks(self.forest, &first.node.scope, gone)
            }
            _ => Ok(()),
        }
    }

    /// Labels the nodes of a subtree, which have none.
    fn label(
        &mut self,
        members: &[Member],
        parent: Option<&Node>,
        position: Option<&Position>,
    ) -> Result<()> {
        let places = self.places_for(members, parent, position)?;
        for (member, labels) in members.iter().zip(places) {
            let mut fields = Vec::new();
            self.tree.fields_of_labels(labels, &mut fields);
            let document = &member.node.document;
            let made = with_values(document.as_raw(), fields).unwrap_or_else(|| document.clone());
            self.forest.write(member.node.id.as_raw(), made)?;
        }
        Ok(())
    }

    /// Labels for the nodes of a subtree, which have none, at a place below a parent.
    fn places_for(
        &mut self,
        members: &[Member],
        parent: Option<&Node>,
        position: Option<&Position>,
    ) -> Result<Vec<[i64; 2]>> {
        let node = &members[0].node;
        if self.tree.dense {
            let below = self.rank_below(node, parent, position)?;
            let labels = self.tree.open_ranks(self.forest, &node.scope, below, members.len() * 2)?;
            return Ok(assigned(members, &labels));
        }
        if let Some(upper) = parent
            && self.tree.labels(upper.document.as_raw()).is_none()
        {
            // It was there before the declaration, and is not filled yet.
            let mut line = self.tree.climb(self.forest, node)?;
            line.reverse();
            for at in 0..line.len() {
                self.ensure_labels(&line[at], at.checked_sub(1).map(|above| &line[above]))?;
            }
        }
        let key = self.ends_key(node, parent);
        let ends = self.ends(&key)?;
        let Gap { low, below, above, siblings } = self.gap(node, parent, position, ends)?;
        let count = members.len() * 2;
        let (labels, low) = match labels::in_gap(below, above, count, siblings) {
            Some(labels) => (labels, low),
            None => {
                let labels = self.make_room(&node.scope, below, count)?;
                let parent = self.again(parent)?;
                (labels, self.range_of(parent.as_ref())[0])
            }
        };
        let places = assigned(members, &labels);
        self.note_end(&key, low, siblings.is_some(), places[0][1])?;
        self.note_ends(members, &places)?;
        Ok(places)
    }

    /// Notes one more child. `own`: its right label.
    fn note_end(&mut self, key: &[u8], low: i64, is_last: bool, own: i64) -> Result<()> {
        // Whatever made room knows no last child any more.
        let ends = self.ends(key)?.unwrap_or_default();
        let last = match is_last {
            true => Some(own),
            false => ends.last.filter(|_| ends.low == low).map(|last| last.max(own)),
        };
        self.set_ends(key, Ends { count: ends.count + 1, last, low })
    }

    /// The labels between which those of a node's children are; those of the roots where there is no node.
    fn range_of(&self, node: Option<&Node>) -> [i64; 2] {
        let labels = node.and_then(|node| self.tree.labels(node.document.as_raw()));
        labels.unwrap_or([0, LABEL_LIMIT])
    }

    /// Notes the last children within a subtree.
    fn note_ends(&mut self, members: &[Member], places: &[[i64; 2]]) -> Result<()> {
        let mut ends = vec![Ends::default(); members.len()];
        for (member, [_, right]) in members.iter().zip(places).skip(1) {
            let Ends { count, last, low } = &mut ends[member.parent];
            *count += 1;
            *last = (*last).max(Some(*right));
            *low = places[member.parent][0];
        }
        for (member, ends) in members.iter().zip(ends).filter(|(_, ends)| ends.count > 0) {
            self.set_ends(&note_key(ENDS, &member.node.scope, Some(&member.node.id)), ends)?;
        }
        Ok(())
    }

    /// The gap where a node goes.
    fn gap(
        &mut self,
        node: &Node,
        parent: Option<&Node>,
        position: Option<&Position>,
        ends: Option<Ends>,
    ) -> Result<Gap> {
        let parent = self.again(parent)?;
        let [low, high] = self.range_of(parent.as_ref());
        let scope = node.scope.as_raw();
        let (below, above) = match position {
            None | Some(Position::Last) => {
                let below = match ends {
                    Some(Ends { last: Some(last), low: noted, .. })
                        if noted == low && low < last && last < high =>
                    {
                        last
                    }
                    None if self.forest.is_complete() => low,
                    _ => self.forest.next_label(scope, high, LabelSide::Below)?.unwrap_or(low).max(low),
                };
                (below, high)
            }
            Some(Position::First) => {
                let above = self.forest.next_label(scope, low, LabelSide::Above)?.unwrap_or(high);
                (low, above.min(high))
            }
            Some(Position::Before(sibling)) => {
                let [left, _] = self.labels_of_sibling(node, parent.as_ref(), sibling)?;
                let below = self.forest.next_label(scope, left, LabelSide::Below)?.unwrap_or(low);
                (below.max(low), left)
            }
            Some(Position::After(sibling)) => {
                let [_, right] = self.labels_of_sibling(node, parent.as_ref(), sibling)?;
                let above = self.forest.next_label(scope, right, LabelSide::Above)?.unwrap_or(high);
                (right, above.min(high))
            }
        };
        let goes_last = matches!(position, None | Some(Position::Last));
        let siblings = goes_last.then(|| ends.map_or(0, |ends| ends.count));
        Ok(match self.forest.reserved(scope)? {
            Some([_, last]) if goes_last && (below..above).contains(&last) => {
                Gap { low, below: last, above, siblings }
            }
            Some([first, _]) if (below..above).contains(&first) => Gap { low, below, above: first, siblings },
            _ => Gap { low, below, above, siblings },
        })
    }

    /// The label behind which a node goes where labels have no gaps.
    fn rank_below(&mut self, node: &Node, parent: Option<&Node>, position: Option<&Position>) -> Result<i64> {
        // Labels that went may have moved its own.
        let parent = self.again(parent)?;
        let own = parent.as_ref().and_then(|parent| self.tree.labels(parent.document.as_raw()));
        Ok(match (position, own) {
            (Some(Position::Before(sibling)), _) => {
                self.labels_of_sibling(node, parent.as_ref(), sibling)?[0] - 1
            }
            (Some(Position::After(sibling)), _) => self.labels_of_sibling(node, parent.as_ref(), sibling)?[1],
            (Some(Position::First), own) => own.map_or(0, |[left, _]| left),
            (None | Some(Position::Last), Some([_, right])) => right - 1,
            (None | Some(Position::Last), None) => {
                let scope = node.scope.as_raw();
                self.forest.next_label(scope, LABEL_LIMIT, LabelSide::Below)?.unwrap_or(0)
            }
        })
    }

    fn labels_of_sibling(&mut self, node: &Node, parent: Option<&Node>, sibling: &Value) -> Result<[i64; 2]> {
        let found = self.tree.look_up(self.forest, &node.scope, sibling)?;
        let found = found.filter(|found| !is_same(&found.id, &node.id));
        let upper = match &found {
            Some(found) => self.tree.parent_node(self.forest, found)?,
            None => return Err(no_sibling(node, sibling)),
        };
        let same = match (&upper, parent) {
            (None, None) => true,
            (Some(upper), Some(parent)) => is_same(&upper.id, &parent.id),
            _ => false,
        };
        let labels = found.and_then(|found| self.tree.labels(found.document.as_raw()));
        labels.filter(|_| same).ok_or_else(|| no_sibling(node, sibling))
    }

    /// Spreads the labels around a place, for new ones behind `below`.
    fn make_room(&mut self, scope: &Value, below: i64, count: usize) -> Result<Vec<i64>> {
        let tree = self.tree;
        // Labels are spread over all numbers around the place, so none can be reserved.
        self.forest.settle_labels(scope.as_raw())?;
        let room = labels::make_room(below, count, |from, to| {
            let mut there: Vec<(i64, (Node, usize))> = Vec::new();
            for document in self.forest.labelled(scope.as_raw(), from, to)? {
                let node = tree.node_of(document);
                let labels = tree.labels(node.document.as_raw()).into_iter().flatten().enumerate();
                there.extend(
                    labels
                        .filter(|(_, label)| (from..=to).contains(label))
                        .map(|(end, label)| (label, (node.clone(), end))),
                );
            }
            there.sort_by_key(|(label, _)| *label);
            Ok(there)
        })?;
        for ((node, end), label) in room.moved {
            // It may have been written just now, for its other label.
            let Some(document) = self.forest.node(node.id.as_raw())? else { continue };
            let Some(mut labels) = tree.labels(document.as_raw()) else { continue };
            labels[end] = label;
            let mut fields = Vec::new();
            tree.fields_of_labels(labels, &mut fields);
            if let Some(made) = with_values(document.as_raw(), fields) {
                self.forest.write(node.id.as_raw(), made)?;
            }
            for parent in [node.parent.as_ref(), None] {
                let key = note_key(ENDS, scope, parent);
                if let Some(ends) = self.ends(&key)? {
                    self.set_ends(&key, Ends { last: None, ..ends })?;
                }
            }
        }
        Ok(room.new)
    }

    /// The siblings of a node, by the parent that they name.
    fn siblings(&mut self, node: &Node) -> Result<Vec<Node>> {
        let mut siblings = self.tree.naming(self.forest, &node.scope, node.parent.as_ref())?;
        siblings.retain(|other| !is_same(&other.id, &node.id));
        Ok(siblings)
    }

    /// Gives a node another order key.
    fn reorder(&mut self, node: Node, position: Option<&Position>) -> Result<()> {
        let Some(field) = &self.tree.order else { return Ok(()) };
        let key = self.order_key(&node, position)?;
        let made = with_fields(node.document.as_raw(), &[(field, Some(Value::Int64(key)))]);
        self.forest.write(node.id.as_raw(), made)
    }

    /// An order key at a place among siblings.
    fn order_key(&mut self, node: &Node, position: Option<&Position>) -> Result<i64> {
        let key = self.ends_key(node, None);
        let ends = self.ends(&key)?;
        let known = match ends {
            Some(Ends { last, .. }) => last,
            None if self.forest.is_complete() => Some(0),
            None => None,
        };
        let count = ends.map_or(0, |ends| ends.count) + 1;
        let goes_last = matches!(position, None | Some(Position::Last));
        if let (true, Some(last)) = (goes_last, known)
            && let Some(order) = labels::behind(last)
        {
            self.set_ends(&key, Ends { count, last: Some(order), low: 0 })?;
            return Ok(order);
        }
        let siblings = self.siblings(node)?;
        let keys: Vec<i64> = siblings.iter().map(|other| self.tree.sibling_key(other).unwrap_or(0)).collect();
        let place = match position {
            None | Some(Position::Last) => siblings.len(),
            Some(Position::First) => 0,
            Some(Position::Before(id) | Position::After(id)) => {
                let found = siblings.iter().position(|other| is_same(&other.id, id));
                let found = found.ok_or_else(|| no_sibling(node, id))?;
                found + usize::from(matches!(position, Some(Position::After(_))))
            }
        };
        let below = if place == 0 { 0 } else { keys[place - 1] };
        let found = match keys.get(place) {
            Some(above) => labels::between(below, *above),
            None => labels::behind(below),
        };
        let order = match found {
            Some(order) => order,
            None => self.spread_siblings(&siblings, below)?,
        };
        let last = if place == siblings.len() { Some(order) } else { None };
        self.set_ends(&key, Ends { count, last, low: 0 })?;
        Ok(order)
    }

    /// Spreads the order keys of siblings around a place, for a new one behind `below`.
    fn spread_siblings(&mut self, siblings: &[Node], below: i64) -> Result<i64> {
        let tree = self.tree;
        let room = labels::make_room(below, 1, |from, to| {
            let keys = siblings.iter().map(|node| (tree.sibling_key(node).unwrap_or(0), node));
            Ok(keys.filter(|(key, _)| (from..=to).contains(key)).collect())
        })?;
        for (node, key) in room.moved {
            if let Some(field) = &tree.order
                && let Some(document) = self.forest.node(node.id.as_raw())?
            {
                let made = with_fields(document.as_raw(), &[(field, Some(Value::Int64(key)))]);
                self.forest.write(node.id.as_raw(), made)?;
            }
        }
        room.new.first().copied().ok_or_else(|| Error::bug("room was made for nothing"))
    }

    /// Where the last child beside a node is noted. Order keys go by the parent that is named, labels by the one that is
    /// there.
    fn ends_key(&self, node: &Node, parent: Option<&Node>) -> Vec<u8> {
        match self.tree.nested_sets {
            Some(_) => note_key(ENDS, &node.scope, parent.map(|parent| &parent.id)),
            None => note_key(ENDS, &node.scope, node.parent.as_ref()),
        }
    }

    fn ends(&mut self, key: &[u8]) -> Result<Option<Ends>> {
        Ok(self.forest.note(key)?.and_then(|note| Ends::decode(&note)))
    }

    fn set_ends(&mut self, key: &[u8], ends: Ends) -> Result<()> {
        self.forest.set_note(key, Some(ends.encode()))
    }

    /// A node leaves its siblings: if it was the last of them, nobody knows the last one.
    fn forget_end(&mut self, node: &Node, parent: Option<&Node>) -> Result<()> {
        if !self.tree.has_order() {
            return Ok(());
        }
        let key = self.ends_key(node, parent);
        let Some(Ends { count, last, low }) = self.ends(&key)? else { return Ok(()) };
        let own = match self.tree.nested_sets {
            Some(_) => self.tree.labels(node.document.as_raw()).map(|[_, right]| right),
            None => self.tree.sibling_key(node),
        };
        let last = last.filter(|last| own.is_some_and(|own| own != *last));
        self.set_ends(&key, Ends { count: (count - 1).max(0), last, low })
    }

    /// Forgets what was noted of a node that goes.
    fn drop_notes(&mut self, node: &Node) -> Result<()> {
        if !self.tree.has_order() {
            return Ok(());
        }
        self.forest.set_note(&note_key(ENDS, &node.scope, Some(&node.id)), None)
    }
}

/// The labels of a subtree: each node's enclose those of all below it.
fn assigned(members: &[Member], labels: &[i64]) -> Vec<[i64; 2]> {
    let mut places = vec![[0; 2]; members.len()];
    let (mut open, mut labels): (Vec<usize>, _) = (Vec::new(), labels.iter());
    let mut next = || labels.next().copied().unwrap_or_default();
    for (at, member) in members.iter().enumerate() {
        while at > 0 && open.last().is_some_and(|last| *last != member.parent) {
            if let Some(closed) = open.pop() {
                places[closed][1] = next();
            }
        }
        places[at][0] = next();
        open.push(at);
    }
    while let Some(closed) = open.pop() {
        places[closed][1] = next();
    }
    places
}

/// Where something is noted of a node; of the roots where it is none.
fn note_key(kind: u8, scope: &Value, id: Option<&Value>) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend(key_bytes(scope.as_raw()));
    if let Some(id) = id {
        key.extend(key_bytes(id.as_raw()));
    }
    key
}

fn no_sibling(node: &Node, sibling: &Value) -> Error {
    let message = format!(
        "{} is no child of the parent that {} goes to",
        shown(sibling.as_raw()),
        shown(node.id.as_raw())
    );
    Error::user(ErrorCode::BadValue, message)
}

impl Ends {
    fn encode(self) -> Vec<u8> {
        let numbers = [self.count, self.last.unwrap_or(0), self.low];
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn decode(note: &[u8]) -> Option<Ends> {
        let number = |at: usize| Some(i64::from_le_bytes(note.get(at..at + 8)?.try_into().ok()?));
        // A note of an older program does not say to which left label the last one belongs.
        let low = number(16);
        let last = number(8).filter(|last| *last > 0 && low.is_some());
        Some(Ends { count: number(0)?, last, low: low.unwrap_or(0) })
    }
}
