//! `$tree`: nodes of a declared tree, read by what the pattern maintains, or by parents where that is not filled yet.

use std::collections::HashMap;
use std::sync::Arc;

use kilim_bson::{Array, Document, RawValue, Value, array, compare, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::key_bytes;
use kilim_query::expression::{Bindings, Scope, Variables};
use kilim_query::stage::{self, Context, Owner, Pipeline, Relation};

use super::documents::Documents;
use super::{Reader, Step};
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};
use crate::patterns::{Pattern, PatternState};

/// `_id`s that one read asks for.
const ASKED_AT_ONCE: usize = 1000;

/// Read when the first row is wanted.
pub(super) struct Tree {
    reader: Reader,
    namespace: Namespace,
    stage: Box<stage::Tree>,
    found: Option<Documents>,
}

impl Tree {
    pub(super) fn new(stage: &stage::Tree, namespace: &Namespace, reader: &Reader) -> Tree {
        let (reader, namespace) = (reader.clone(), namespace.clone());
        Tree { reader, namespace, stage: Box::new(stage.clone()), found: None }
    }
}

impl Step for Tree {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if let Some(found) = &mut self.found {
            return found.next(context);
        }
        let pattern = self.pattern()?;
        let mut read = Read { reader: &self.reader, namespace: &self.namespace, pattern: &pattern, context };
        let found = read.answer(&self.stage)?;
        self.found.insert(Documents::new(found)).next(context)
    }
}

impl Tree {
    /// The pattern that keeps the tree: the only one, or the one of the name that is asked for.
    fn pattern(&self) -> Result<Arc<Pattern>> {
        let engine = self.reader.engine()?;
        let registry = engine.patterns();
        let is_tree = |pattern: &&Arc<Pattern>| {
            pattern.target == self.namespace
                && pattern.kind().tree().is_some()
                && self.stage.name.as_ref().is_none_or(|name| pattern.declaration.name == *name)
        };
        let trees: Vec<&Arc<Pattern>> =
            registry.of(&self.namespace.database).iter().filter(is_tree).collect();
        match trees[..] {
            [tree] => Ok(tree.clone()),
            [] => Err(Error::user(
                ErrorCode::PatternNotFound,
                format!("{} has no tree: createPattern declares one", self.namespace),
            )),
            _ => Err(Error::user(
                ErrorCode::BadValue,
                format!("{} has several trees: say which one by '$tree.name'", self.namespace),
            )),
        }
    }
}

struct Read<'r, 'c> {
    reader: &'r Reader,
    namespace: &'r Namespace,
    pattern: &'r Pattern,
    context: &'r mut ExecContext<'c>,
}

impl Read<'_, '_> {
    fn answer(&mut self, stage: &stage::Tree) -> Result<Vec<Document>> {
        let Some(node) = self.nodes_with(std::slice::from_ref(&stage.of))?.pop() else {
            return Ok(Vec::new());
        };
        let levels = stage.max_depth.unwrap_or(usize::MAX);
        let found = match stage.what {
            Relation::Descendants => self.descendants(&node, levels)?,
            Relation::Children => self.children(&node)?,
            Relation::Siblings => self.siblings(&node)?,
            Relation::Ancestors => self.nearest(&node, levels)?,
            Relation::Path => {
                let mut path = self.nearest(&node, levels)?;
                path.push(node.clone());
                path
            }
            Relation::Root => {
                let mut line = self.ancestors(&node)?;
                line.truncate(1);
                if line.is_empty() { vec![node.clone()] } else { line }
            }
        };
        Ok(match &stage.as_field {
            None => found,
            Some(field) => {
                let found: Array = found.into_iter().map(Value::Document).collect();
                vec![kilim_patterns::with_value(node.as_raw(), field, Some(Value::Array(found).as_raw()))]
            }
        })
    }

    /// Runs a few stages over the collection.
    fn run(&mut self, stages: Array) -> Result<Vec<Document>> {
        let variables = Variables::default();
        let scope = Scope::new(&variables);
        let context = Context::new(&scope, &self.namespace.database, Owner::View);
        let pipeline = Pipeline::parse(stages.as_raw(), &context)?;
        let mut step = self.reader.open(self.namespace, &pipeline, Bindings::none(), self.context)?;
        let mut found = Vec::new();
        while let Some(row) = step.next(self.context)? {
            found.push(row.document().to_document());
        }
        Ok(found)
    }

    fn matching(&mut self, filter: Document) -> Result<Vec<Document>> {
        self.run(array![doc! {"$match": filter}])
    }

    /// The nodes with these ids, in no order.
    fn nodes_with(&mut self, ids: &[Value]) -> Result<Vec<Document>> {
        let ids: Array = ids.iter().cloned().collect();
        self.matching(doc! {"_id": {"$in": ids}})
    }

    /// The nodes of the same tree as this one that match a filter, by a sort if there is one.
    fn matching_within(
        &mut self,
        node: &Document,
        mut filter: Document,
        sort: Option<Document>,
    ) -> Result<Vec<Document>> {
        let Some(tree) = self.pattern.kind().tree() else { return Ok(Vec::new()) };
        let scope = tree.scope_of(node.as_raw());
        if let Some(path) = tree.scope_path() {
            filter.push(path, doc! {"$eq": scope.clone()});
        }
        let stages = [Some(doc! {"$match": filter}), sort.map(|sort| doc! {"$sort": sort})];
        let mut found = self.run(stages.into_iter().flatten().map(Value::Document).collect())?;
        // An array is a scope of its own, and matches what is in it.
        found.retain(|other| compare(tree.scope_of(other.as_raw()).as_raw(), scope.as_raw()).is_eq());
        Ok(found)
    }

    fn is_filled(&self) -> bool {
        self.pattern.state == PatternState::Suspect
            || self.pattern.is_filled_at(self.reader.snapshot().commit_time())
    }

    /// All below a node, in the order of the tree.
    fn descendants(&mut self, node: &Document, levels: usize) -> Result<Vec<Document>> {
        let Some(tree) = self.pattern.kind().tree() else { return Ok(Vec::new()) };
        let id = id_of(node);
        let is_filled = self.is_filled();
        let labels = tree.labels(node.as_raw()).filter(|_| is_filled).zip(tree.label_paths());
        if let Some(([left, right], [left_path, _])) = labels {
            let mut range = Document::new();
            range.push(left_path, doc! {"$gt": left, "$lt": right});
            let mut sort = Document::new();
            sort.push(left_path, 1);
            let found = self.matching_within(node, range, Some(sort))?;
            return Ok(if levels == usize::MAX { found } else { self.arranged(found, &id, levels) });
        }
        if let Some(path) = tree.ancestors_path().filter(|_| is_filled) {
            let mut filter = Document::new();
            filter.push(path, doc! {"$eq": id.clone()});
            let found = self.matching_within(node, filter, None)?;
            return Ok(self.arranged(found, &id, levels));
        }
        // Level by level. Whoever names null names no parent, also where a node has it as its `_id`.
        let is_named = |id: &Value| !matches!(id, Value::Null);
        let mut level: Vec<Value> = Some(id.clone()).into_iter().filter(is_named).collect();
        let (mut all, mut depth) = (Vec::new(), 0);
        while !level.is_empty() && depth < levels && depth <= tree.max_depth() {
            let mut next = Vec::new();
            for ids in level.chunks(ASKED_AT_ONCE) {
                let mut filter = Document::new();
                filter.push(tree.parent_path(), doc! {"$in": ids.iter().cloned().collect::<Array>()});
                next.extend(self.matching_within(node, filter, None)?);
            }
            level = next.iter().map(id_of).filter(is_named).collect();
            all.extend(next);
            depth += 1;
        }
        Ok(self.arranged(all, &id, levels))
    }

    /// Nodes below one in the order of the tree, down to a number of levels.
    fn arranged(&self, nodes: Vec<Document>, root: &Value, levels: usize) -> Vec<Document> {
        let Some(tree) = self.pattern.kind().tree() else { return Vec::new() };
        let mut children: HashMap<Vec<u8>, Vec<Document>> = HashMap::new();
        for node in nodes {
            let parent = tree.parent_of(node.as_raw()).unwrap_or(RawValue::Null);
            children.entry(key_bytes(parent)).or_default().push(node);
        }
        children.values_mut().for_each(|siblings| self.put_in_order(siblings));
        let mut arranged = Vec::new();
        let top = children.remove(&key_bytes(root.as_raw())).unwrap_or_default();
        let mut open: Vec<(Document, usize)> = top.into_iter().rev().map(|node| (node, 1)).collect();
        while let Some((node, depth)) = open.pop() {
            if depth > levels {
                continue;
            }
            let below = children.remove(&key_bytes(id_of(&node).as_raw())).unwrap_or_default();
            open.extend(below.into_iter().rev().map(|node| (node, depth + 1)));
            arranged.push(node);
        }
        arranged
    }

    fn put_in_order(&self, siblings: &mut [Document]) {
        let Some(tree) = self.pattern.kind().tree() else { return };
        siblings.sort_by(|one, other| {
            let key = |node: &Document| tree.sibling_key_of(node.as_raw()).unwrap_or(i64::MAX);
            let by_id = || compare(id_of(one).as_raw(), id_of(other).as_raw());
            key(one).cmp(&key(other)).then_with(by_id)
        });
    }

    fn children(&mut self, node: &Document) -> Result<Vec<Document>> {
        match id_of(node) {
            // Whoever names null names no parent.
            Value::Null => Ok(Vec::new()),
            id => self.children_named(node, id),
        }
    }

    /// The nodes of the same tree that name this parent.
    fn children_named(&mut self, node: &Document, parent: Value) -> Result<Vec<Document>> {
        let Some(tree) = self.pattern.kind().tree() else { return Ok(Vec::new()) };
        let mut filter = Document::new();
        filter.push(tree.parent_path(), doc! {"$eq": parent.clone()});
        let mut found = self.matching_within(node, filter, None)?;
        // An array that has the parent in it is no parent.
        found.retain(|child| {
            let own = tree.parent_of(child.as_raw()).unwrap_or(RawValue::Null);
            compare(own, parent.as_raw()).is_eq()
        });
        self.put_in_order(&mut found);
        Ok(found)
    }

    /// The other nodes that name the same parent.
    fn siblings(&mut self, node: &Document) -> Result<Vec<Document>> {
        let Some(tree) = self.pattern.kind().tree() else { return Ok(Vec::new()) };
        let parent = tree.parent_of(node.as_raw()).map_or(Value::Null, RawValue::to_value);
        let mut found = self.children_named(node, parent)?;
        let own = id_of(node);
        found.retain(|other| !compare(id_of(other).as_raw(), own.as_raw()).is_eq());
        Ok(found)
    }

    /// Those above a node, from the root on.
    fn ancestors(&mut self, node: &Document) -> Result<Vec<Document>> {
        let Some(tree) = self.pattern.kind().tree() else { return Ok(Vec::new()) };
        let is_filled = self.is_filled();
        if let Some(ids) = tree.ancestor_ids(node.as_raw()).filter(|_| is_filled) {
            let found = self.nodes_with(&ids)?;
            let mut by_id: HashMap<Vec<u8>, Document> =
                found.into_iter().map(|node| (key_bytes(id_of(&node).as_raw()), node)).collect();
            return Ok(ids.iter().filter_map(|id| by_id.remove(&key_bytes(id.as_raw()))).collect());
        }
        let (mut line, mut at): (Vec<Document>, Document) = (Vec::new(), node.clone());
        while let Some(parent) = tree.parent_of(at.as_raw()).map(RawValue::to_value)
            && line.len() <= tree.max_depth()
        {
            let found = self.nodes_with(&[parent])?.pop();
            let scope = tree.scope_of(node.as_raw());
            let same =
                |upper: &Document| compare(tree.scope_of(upper.as_raw()).as_raw(), scope.as_raw()).is_eq();
            let Some(upper) = found.filter(same) else { break };
            line.push(upper.clone());
            at = upper;
        }
        line.reverse();
        Ok(line)
    }

    /// The nearest of those above a node, so many levels up.
    fn nearest(&mut self, node: &Document, levels: usize) -> Result<Vec<Document>> {
        let mut line = self.ancestors(node)?;
        let far = line.len().saturating_sub(levels);
        line.drain(..far);
        Ok(line)
    }
}

fn id_of(node: &Document) -> Value {
    node.get("_id").map_or(Value::Null, RawValue::to_value)
}
