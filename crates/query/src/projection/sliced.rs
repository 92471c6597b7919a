//! `$slice` of a field of the document itself, for whoever can read a part of an array without the rest.

use super::{Branch, Kind, Node, Projection, Slice};
use crate::expression::Dependencies;

impl Projection {
    /// The part of a field's array that is shown, where `$slice` says it.
    pub fn slice_of(&self, field: &str) -> Option<Slice> {
        match self.root.child(field)? {
            Node::Slice(slice) => Some(*slice),
            _ => None,
        }
    }

    /// The projection of documents whose arrays were cut by their `$slice` already.
    pub fn with_slice_done(&self, field: &str) -> Projection {
        let mut done = self.clone();
        if let Some(at) = done.root.position(field) {
            match self.kind {
                Kind::Inclusion => done.root.children[at].1 = Node::Leaf,
                Kind::Exclusion | Kind::Addition => drop(done.root.children.remove(at)),
            }
        }
        done
    }

    /// Whether a computed field is made of anything that `reads` says yes to.
    pub fn computes_from(&self, reads: &dyn Fn(&Dependencies) -> bool) -> bool {
        fn computes(node: &Node, reads: &dyn Fn(&Dependencies) -> bool) -> bool {
            match node {
                Node::Computed(expression) => {
                    let mut needed = Dependencies::default();
                    expression.dependencies(&mut needed);
                    reads(&needed)
                }
                Node::Branch(Branch { children, .. }) => {
                    children.iter().any(|(_, node)| computes(node, reads))
                }
                Node::Leaf | Node::Slice(_) | Node::Positional | Node::ElemMatch(_) => false,
            }
        }
        self.root.children.iter().any(|(_, node)| computes(node, reads))
    }

    /// Whether it looks for an element in a field: by `$elemMatch`, or by the position where the filter matched.
    pub fn seeks_in(&self, field: &str) -> bool {
        fn seeks(node: &Node) -> bool {
            match node {
                Node::Positional | Node::ElemMatch(_) => true,
                Node::Branch(Branch { children, .. }) => children.iter().any(|(_, node)| seeks(node)),
                Node::Leaf | Node::Slice(_) | Node::Computed(_) => false,
            }
        }
        self.root.child(field).is_some_and(seeks)
    }
}
