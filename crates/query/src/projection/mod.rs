//! Projections: which fields of a document an answer shows.
//!
//! A projection is a tree of field names, either of what to include or of what to leave out, and is applied
//! in one pass over the document's bytes: fields keep the document's order, whole subtrees are
//! copied as bytes. `$slice` and the positional `$` change arrays on the way, `$elemMatch` replaces one.
//!
//! Invariant: what is written is a valid document, and no path of the tree is a prefix of another.

mod apply;
mod expression_name;
mod parse;
#[cfg(test)]
mod tests;

use kilim_bson::Path;

use crate::filter::Filter;

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
}

#[derive(Debug, Clone, Default)]
struct Branch {
    /// In the order in which they were written, which is the order of added fields.
    children: Vec<(Box<str>, Node)>,
    /// The positional `$` ends in this subtree.
    positional: bool,
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
    Branch(Branch),
}

/// `$slice: limit` or `$slice: [skip, limit]`. A negative skip, or a negative limit alone, counts from
/// the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    skip: Option<i32>,
    limit: i32,
}

impl Branch {
    fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|(child, _)| **child == *name).map(|(_, node)| node)
    }
}

impl Projection {
    /// Whether documents are shown as they are.
    pub fn is_identity(&self) -> bool {
        self.kind == Kind::Exclusion && self.root.children.is_empty()
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
    /// takes the whole document.
    pub fn needed_fields(&self) -> Option<Vec<Path>> {
        if self.kind == Kind::Exclusion {
            return None;
        }
        let mut paths = Vec::new();
        collect(&self.root, "", &mut paths).then_some(paths)
    }
}

/// Collects the leaves below a prefix; false if one is no plain inclusion.
fn collect(branch: &Branch, prefix: &str, paths: &mut Vec<Path>) -> bool {
    branch.children.iter().all(|(name, node)| {
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
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
