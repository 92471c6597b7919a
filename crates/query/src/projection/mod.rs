//! Projections: which fields of a document an answer shows, and which it computes.
//!
//! A projection is a tree of field names: of what to include, of what to leave out, or of what to add
//! (`$addFields`). It is applied in one pass over the document's bytes: fields keep the document's order,
//! whole subtrees are copied as bytes, computed fields that are new come behind. `$slice` and the positional
//! `$` change arrays on the way, `$elemMatch` replaces one.
//!
//! Invariant: what is written is a valid document, and no path of the tree is a prefix of another.

mod addition;
mod apply;
mod explain;
mod meaning;
mod parse;
mod sliced;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use kilim_bson::Path;
use kilim_error::Result;

use crate::expression::Expression;
use crate::filter::Filter;
use crate::sort::Sort;

#[derive(Debug, Clone)]
pub struct Projection {
    kind: Kind,
    root: Branch,
    /// A positional `$` is in use.
    positional: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inclusion,
    Exclusion,
    /// Everything stays, computed fields are added or replaced.
    Addition,
}

#[derive(Debug, Clone, Default)]
struct Branch {
    /// In the order in which they were written, which is the order of added fields.
    children: Vec<(Box<str>, Node)>,
    /// The positional `$` ends in this subtree.
    positional: bool,
    /// A field of this subtree may be new.
    adds: bool,
}

#[derive(Debug, Clone)]
enum Node {
    /// The field as a whole, included or left out.
    Leaf,
    /// `"a.$": 1`.
    Positional,
    Slice(Slice),
    /// The filter `{field: {$elemMatch: …}}`, whose position is the element to show.
    ElemMatch(Box<Filter>),
    Computed(Box<Expression>),
    Branch(Branch),
}

/// `$slice: limit` or `$slice: [skip, limit]`. A negative skip, or a negative limit alone, counts from
/// the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    skip: Option<i32>,
    limit: i32,
}

impl Node {
    /// Whether it may add a field to a document that lacks it.
    fn adds(&self) -> bool {
        match self {
            Node::ElemMatch(_) | Node::Computed(_) => true,
            Node::Branch(branch) => branch.adds,
            Node::Leaf | Node::Positional | Node::Slice(_) => false,
        }
    }
}

impl Branch {
    fn child(&self, name: &str) -> Option<&Node> {
        self.position(name).map(|at| &self.children[at].1)
    }

    #[inline]
    fn position(&self, name: &str) -> Option<usize> {
        self.children.iter().position(|(child, _)| **child == *name)
    }

    /// Knows of each subtree whether it adds fields.
    fn mark_additions(&mut self) {
        for (_, node) in &mut self.children {
            if let Node::Branch(branch) = node {
                branch.mark_additions();
            }
        }
        self.adds = self.children.iter().any(|(_, node)| node.adds());
    }

    fn any_computed(&self, test: &dyn Fn(&Expression) -> bool) -> bool {
        self.children.iter().any(|(_, node)| match node {
            Node::Computed(expression) => test(expression),
            Node::Branch(branch) => branch.any_computed(test),
            Node::Leaf | Node::Positional | Node::Slice(_) | Node::ElemMatch(_) => false,
        })
    }

    fn give_sort(&mut self, sort: &Arc<Sort>) {
        for (_, node) in &mut self.children {
            match node {
                Node::Computed(expression) => expression.give_sort(sort),
                Node::Branch(branch) => branch.give_sort(sort),
                Node::Leaf | Node::Positional | Node::Slice(_) | Node::ElemMatch(_) => {}
            }
        }
    }

    fn optimise(&mut self) -> Result<()> {
        for (_, node) in &mut self.children {
            match node {
                Node::Computed(expression) => **expression = (**expression).clone().optimised()?,
                Node::Branch(branch) => branch.optimise()?,
                Node::Leaf | Node::Positional | Node::Slice(_) | Node::ElemMatch(_) => {}
            }
        }
        Ok(())
    }
}

impl Projection {
    fn new(kind: Kind, mut root: Branch, positional: bool) -> Projection {
        root.mark_additions();
        Projection { kind, root, positional }
    }

    /// Computes what no document influences. Fails where such a part fails; the projection is then as it
    /// was, and fails on the first document.
    pub fn optimise(&mut self) -> Result<()> {
        self.root.optimise()
    }

    /// Whether it shows the key by which documents were sorted.
    pub fn wants_sort_key(&self) -> bool {
        self.root.any_computed(&Expression::wants_sort_key)
    }

    /// Whether it shows the key of the index by which documents were found.
    pub fn wants_text_score(&self) -> bool {
        self.root.any_computed(&Expression::wants_text_score)
    }

    pub fn wants_index_key(&self) -> bool {
        self.root.any_computed(&Expression::wants_index_key)
    }

    /// The fields that show the key by which documents were sorted, and nothing else.
    pub fn sort_key_fields(&self) -> Vec<String> {
        let shows = |node: &Node| matches!(node, Node::Computed(expression) if expression.is_sort_key());
        let fields = self.root.children.iter().filter(|(_, node)| shows(node));
        fields.map(|(name, _)| name.to_string()).collect()
    }

    /// Tells what the documents are sorted by.
    pub fn give_sort(&mut self, sort: &Arc<Sort>) {
        self.root.give_sort(sort);
    }

    /// Whether documents are shown as they are.
    pub fn is_identity(&self) -> bool {
        self.kind != Kind::Inclusion && self.root.children.is_empty()
    }

    /// Whether only whole top-level fields are included or left out.
    pub fn is_simple(&self) -> bool {
        self.root.children.iter().all(|(_, node)| matches!(node, Node::Leaf))
    }

    /// Whether [`Projection::apply`] needs the index at which the filter matched, as
    /// [`Projection::position`] finds it.
    pub fn requires_position(&self) -> bool {
        self.positional
    }

    /// The paths from which the answer can be made, `_id` among them if it is shown; nothing where it
    /// takes the whole document, or computes.
    pub fn needed_fields(&self) -> Option<Vec<Path>> {
        if self.kind != Kind::Inclusion {
            return None;
        }
        let mut paths = Vec::new();
        collect(&self.root, "", &mut paths).then_some(paths)
    }
}

/// Collects the leaves below a prefix; false if one is no plain inclusion.
fn collect(branch: &Branch, prefix: &str, paths: &mut Vec<Path>) -> bool {
    branch.children.iter().all(|(name, node)| {
        let path = join(prefix, name);
        match node {
            Node::Leaf => {
                paths.push(Path::parse(&path));
                true
            }
            Node::Branch(branch) => collect(branch, &path, paths),
            _ => false,
        }
    })
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}
