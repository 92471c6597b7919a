//! What a projection reads of a document, and what it does to its paths: for those who arrange stages.

use kilim_bson::{Document, RawDocument, Writer};

use super::{Branch, Kind, Node, Projection, join};
use crate::expression::Dependencies;
use crate::stage::{Beyond, Modified, Paths};

impl Projection {
    /// What of a document somebody needs.
    pub fn of_needed(needed: &Dependencies, document: RawDocument<'_>) -> Document {
        if needed.whole_document {
            return document.to_document();
        }
        let mut root = Branch::default();
        // In order, so that what lies below a needed path comes after it.
        for path in &needed.fields {
            root.include(path);
        }
        let projection = Projection::new(Kind::Inclusion, root, false);
        let mut writer = Writer::new();
        match projection.apply(document, None, &mut writer) {
            Ok(()) => writer.finish(),
            Err(_) => document.to_document(),
        }
    }

    /// Adds the fields that it reads, and says what else must be there.
    pub fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        for (name, node) in &self.root.children {
            self.node_dependencies(name, node, needed);
        }
        match self.kind {
            Kind::Inclusion => Beyond::Nothing,
            Kind::Exclusion | Kind::Addition => Beyond::Later,
        }
    }

    fn node_dependencies(&self, path: &str, node: &Node, needed: &mut Dependencies) {
        match node {
            Node::Leaf if self.kind == Kind::Exclusion => {}
            Node::Leaf | Node::Positional | Node::Slice(_) | Node::ElemMatch(_) => needed.field(path),
            Node::Computed(expression) => expression.dependencies(needed),
            Node::Branch(branch) => {
                // Where fields are added the shape of what is there matters too: arrays are entered, the rest
                // gives way.
                if branch.adds {
                    needed.field(path);
                }
                for (name, node) in &branch.children {
                    self.node_dependencies(&join(path, name), node, needed);
                }
            }
        }
    }

    /// The top-level fields that an addition adds or changes.
    pub fn added_names(&self) -> Vec<Box<str>> {
        self.root.children.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The top-level fields that are left of these, and those that are new.
    pub fn shown_names(&self, names: &[Box<str>]) -> Vec<Box<str>> {
        let named = |name: &str| self.root.child(name);
        match self.kind {
            Kind::Inclusion => self.added_names(),
            Kind::Exclusion => {
                names.iter().filter(|name| !matches!(named(name), Some(Node::Leaf))).cloned().collect()
            }
            Kind::Addition => {
                let new = self.added_names().into_iter().filter(|name| !names.contains(name));
                names.iter().cloned().chain(new).collect()
            }
        }
    }

    /// What becomes of a document's paths.
    pub fn modified(&self) -> Modified {
        let mut paths = Paths::default();
        self.root_paths(&mut paths);
        match self.kind {
            Kind::Inclusion => Modified::AllBut(paths),
            Kind::Exclusion | Kind::Addition => Modified::Paths(paths),
        }
    }

    fn root_paths(&self, paths: &mut Paths) {
        for (name, node) in &self.root.children {
            match node {
                Node::Computed(expression) => {
                    let renamed = expression.as_field().filter(|path| path.names().len() == 1);
                    match renamed {
                        Some(old) => paths.renamed.push((name.clone(), old.as_str().into())),
                        None if self.kind != Kind::Inclusion => paths.paths.push(name.clone()),
                        None => {}
                    }
                }
                node => self.node_paths(name, node, paths),
            }
        }
    }

    fn node_paths(&self, path: &str, node: &Node, paths: &mut Paths) {
        match node {
            Node::Leaf => paths.paths.push(path.into()),
            Node::Branch(branch) => self.branch_paths(path, branch, paths),
            // They change what they show.
            Node::Positional | Node::Slice(_) | Node::ElemMatch(_) | Node::Computed(_) => {
                if self.kind != Kind::Inclusion {
                    paths.paths.push(path.into());
                }
            }
        }
    }

    fn branch_paths(&self, path: &str, branch: &Branch, paths: &mut Paths) {
        for (name, node) in &branch.children {
            self.node_paths(&join(path, name), node, paths);
        }
    }
}

impl Branch {
    /// Includes a path, unless more is included already.
    fn include(&mut self, path: &str) {
        let (first, rest) = match path.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let at = self.position(first).unwrap_or_else(|| {
            self.children.push((first.into(), Node::Branch(Branch::default())));
            self.children.len() - 1
        });
        match (&mut self.children[at].1, rest) {
            (Node::Branch(nested), Some(rest)) => nested.include(rest),
            (node, None) => *node = Node::Leaf,
            _ => {}
        }
    }
}
