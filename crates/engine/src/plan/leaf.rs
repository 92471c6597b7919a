//! The predicates of a conjunction that an index could serve, each with its full path.
//!
//! `$elemMatch` is looked into: `{a: {$elemMatch: {b: 1, c: 2}}}` has the leaves `a.b` and `a.c`, both
//! about one element of `a`. That they share it is what allows their bounds to be combined.

use std::borrow::Cow;

use kilim_bson::Path;
use kilim_query::filter::{Filter, Predicate};

/// One predicate that bounds can be built from.
#[derive(Debug, Clone)]
pub struct Leaf<'f> {
    /// Which conjunct it is, or is within.
    pub conjunct: usize,
    pub path: Cow<'f, Path>,
    pub predicate: &'f Predicate,
    /// The `$elemMatch`es around it: how many components of the path lead to the array, and which one it is.
    pub elements: Vec<(usize, u32)>,
    /// The leaf is the conjunct, so exact bounds make the conjunct superfluous.
    pub whole: bool,
}

/// The leaves of all conjuncts, in order.
pub fn leaves_of(conjuncts: &[Filter]) -> Vec<Leaf<'_>> {
    let mut collector = Collector { leaves: Vec::new(), next_element: 0 };
    for (conjunct, filter) in conjuncts.iter().enumerate() {
        if let Filter::Field { path, predicate } = filter {
            collector.field(conjunct, None, path, predicate, &[], true);
        }
    }
    // Where candidates are equally good the first is taken, so their order is mongod's.
    collector
        .leaves
        .sort_by(|a, b| a.predicate.rank().cmp(&b.predicate.rank()).then_with(|| a.path.cmp(&b.path)));
    collector.leaves
}

/// The place of a filter among its siblings, as mongod orders them: by kind, then by path.
pub fn place(filter: &Filter) -> (u8, &str) {
    match filter {
        Filter::And(_) => (0, ""),
        Filter::Or(_) => (1, ""),
        Filter::Nor(_) => (19, ""),
        Filter::True | Filter::False => (21, ""),
        Filter::Expr(_) => (22, ""),
        Filter::Text(_) => (23, ""),
        Filter::JsonSchema(_) => (29, ""),
        Filter::Field { predicate: Predicate::Not(_), .. } => (18, ""),
        Filter::Field { path, predicate } => (predicate.rank(), path.as_str()),
    }
}

struct Collector<'f> {
    leaves: Vec<Leaf<'f>>,
    next_element: u32,
}

impl<'f> Collector<'f> {
    fn field(
        &mut self,
        conjunct: usize,
        prefix: Option<&Path>,
        path: &'f Path,
        predicate: &'f Predicate,
        elements: &[(usize, u32)],
        whole: bool,
    ) {
        let path = match prefix {
            Some(prefix) => Cow::Owned(Path::parse(&format!("{prefix}.{path}"))),
            None => Cow::Borrowed(path),
        };
        let mut elements = elements.to_vec();
        match predicate {
            Predicate::ElemMatchObject(inner) => {
                elements.push((path.components().len(), self.element()));
                let conjuncts = match &**inner {
                    Filter::And(conjuncts) => &conjuncts[..],
                    one => std::slice::from_ref(one),
                };
                for filter in conjuncts {
                    if let Filter::Field { path: below, predicate } = filter {
                        self.field(conjunct, Some(&path), below, predicate, &elements, false);
                    }
                }
            }
            Predicate::ElemMatchValue(_) => {
                elements.push((path.components().len(), self.element()));
                self.leaves.push(Leaf { conjunct, path, predicate, elements, whole: false });
            }
            predicate => self.leaves.push(Leaf { conjunct, path, predicate, elements, whole }),
        }
    }

    fn element(&mut self) -> u32 {
        self.next_element += 1;
        self.next_element
    }
}

/// All paths that a filter has predicates on, each once.
pub fn paths_of(filter: &Filter) -> Vec<Path> {
    let mut paths = Vec::new();
    collect(filter, &mut paths);
    paths
}

fn collect(filter: &Filter, paths: &mut Vec<Path>) {
    match filter {
        Filter::And(parts) | Filter::Or(parts) => parts.iter().for_each(|part| collect(part, paths)),
        Filter::Field { .. } => {
            for leaf in leaves_of(std::slice::from_ref(filter)) {
                if !paths.contains(&leaf.path) {
                    paths.push(leaf.path.into_owned());
                }
            }
        }
        _ => {}
    }
}
