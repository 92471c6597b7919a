//! Which plan won for a query of some shape.
//!
//! A shape is a query without its values. An entry names the winner among the candidates it was chosen
//! from and how much work the decision took. It is trusted only while the candidates are the same, so a new
//! or dropped index needs no invalidation, and only as long as it does not turn out ten times dearer.
//!
//! Invariant: the cache changes which plan is run, never what the plan returns.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilim_bson::Document;
use kilim_query::filter::{Filter, Predicate};
use parking_lot::Mutex;

use super::node::Node;
use super::{IndexFilters, Purpose, ReadRequest, Trial};

/// Shapes remembered per collection. An application has dozens; one that builds queries from user input
/// may have any number.
const ENTRIES_MAX: usize = 1000;

/// A query without its values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueryShape(Box<str>);

#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    pub candidates: Vec<String>,
    pub winner: usize,
    /// Units of work the winner needed in its trial.
    pub works: u64,
    /// An index filter said what it might use.
    pub index_filter_set: bool,
    /// The winner as it was then, with the values of that query, and the query.
    pub plan: Arc<Node>,
    pub query: Document,
    pub since: Instant,
    /// How the candidates did, best first.
    pub trials: Vec<Trial>,
}

/// What is told of a remembered plan.
pub struct RememberedPlan {
    pub shape: QueryShape,
    pub works: u64,
    /// An index filter says what it may use.
    pub index_filter_set: bool,
    /// The plan as explain shows it.
    pub plan: Document,
    /// Filter and sort of the query that made it remembered.
    pub query: Document,
    pub age: Duration,
    /// How each candidate did, and the score it got; the first one won.
    pub trials: Vec<(Document, f64)>,
}

/// The shapes of one collection and their winners.
#[derive(Default)]
pub struct PlanCache {
    entries: Mutex<Entries>,
    /// What its queries may choose from.
    pub filters: IndexFilters,
}

#[derive(Default)]
struct Entries {
    by_shape: HashMap<QueryShape, (u64, Arc<Remembered>)>,
    clock: u64,
}

impl PlanCache {
    pub(crate) fn get(&self, shape: &QueryShape) -> Option<Arc<Remembered>> {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let now = entries.clock;
        let (used, remembered) = entries.by_shape.get_mut(shape)?;
        *used = now;
        Some(remembered.clone())
    }

    pub(crate) fn put(&self, shape: QueryShape, remembered: Remembered) {
        let mut entries = self.entries.lock();
        entries.clock += 1;
        let now = entries.clock;
        entries.by_shape.insert(shape, (now, Arc::new(remembered)));
        if entries.by_shape.len() > ENTRIES_MAX {
            // The older half goes at once, so that the search for it is paid for by many insertions.
            let mut ages: Vec<u64> = entries.by_shape.values().map(|(used, _)| *used).collect();
            let middle = ages.len() / 2;
            let (_, &mut median, _) = ages.select_nth_unstable(middle);
            entries.by_shape.retain(|_, (used, _)| *used >= median);
        }
    }

    /// Forgets one shape.
    pub fn forget(&self, shape: &QueryShape) {
        self.entries.lock().by_shape.remove(shape);
    }

    /// Forgets everything, as `planCacheClear` does.
    pub fn clear(&self) {
        self.entries.lock().by_shape.clear();
    }

    /// All that is remembered, for `$planCacheStats`.
    pub fn list(&self) -> Vec<RememberedPlan> {
        let entries = self.entries.lock();
        let tell = |(shape, (_, remembered)): (&QueryShape, &(u64, Arc<Remembered>))| RememberedPlan {
            shape: shape.clone(),
            works: remembered.works,
            index_filter_set: remembered.index_filter_set,
            plan: super::explain::plan_document(&remembered.plan),
            query: remembered.query.clone(),
            age: remembered.since.elapsed(),
            trials: (remembered.trials.iter())
                .map(|trial| (super::explain::trial_document(trial), trial.score))
                .collect(),
        };
        entries.by_shape.iter().map(tell).collect()
    }

    pub fn len(&self) -> usize {
        self.entries.lock().by_shape.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for PlanCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlanCache({} shapes)", self.len())
    }
}

impl QueryShape {
    pub fn of(request: &ReadRequest) -> QueryShape {
        let mut text = String::new();
        push_filter(&mut text, &request.filter);
        if let Some(sort) = request.sort.as_ref().filter(|sort| !sort.is_empty()) {
            text.push('|');
            for part in sort.parts() {
                text.push_str(if part.descending { "-" } else { "+" });
                text.push_str(part.path.as_str());
            }
        }
        if let Some(needed) = request.projection.as_ref().and_then(|projection| projection.needed_fields()) {
            text.push('|');
            for path in needed {
                text.push_str(path.as_str());
                text.push(',');
            }
        }
        if request.purpose == Purpose::Count {
            text.push_str("|count");
        }
        if let Some(collation) = &request.collation {
            let _ = write!(text, "|{collation:?}");
        }
        QueryShape(text.into())
    }

    /// The eight digits that explain prints as `queryHash`.
    pub fn hash(&self) -> String {
        format!("{:08X}", hash32(self.0.as_bytes(), 0))
    }

    /// The eight digits of `planCacheKey`: the shape together with the indexes it may use.
    pub fn key(&self, indexes: impl Iterator<Item = u32>) -> String {
        let hash = indexes.fold(hash32(self.0.as_bytes(), 0), |hash, id| hash32(&id.to_le_bytes(), hash));
        format!("{hash:08X}")
    }
}

/// FNV-1a, continued from `seed`.
fn hash32(bytes: &[u8], seed: u32) -> u32 {
    bytes.iter().fold(0x811c_9dc5 ^ seed, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn push_filter(text: &mut String, filter: &Filter) {
    let mut list = |name: &str, children: &[Filter]| {
        text.push_str(name);
        text.push('[');
        children.iter().for_each(|child| push_filter(text, child));
        text.push(']');
    };
    match filter {
        Filter::True => {}
        Filter::False => text.push_str("false"),
        Filter::And(children) => list("and", children),
        Filter::Or(children) => list("or", children),
        Filter::Nor(children) => list("nor", children),
        Filter::Field { path, predicate } => {
            // The path's length keeps names apart that contain the shape's own punctuation.
            let _ = write!(text, "{}:{}", path.as_str().len(), path.as_str());
            push_predicate(text, predicate);
        }
        // What indexes could do for it stands beside it.
        Filter::Expr(_) => text.push_str("$expr"),
        Filter::Text(_) => text.push_str("$text"),
        Filter::JsonSchema(_) => text.push_str("$jsonSchema"),
    }
}

fn push_predicate(text: &mut String, predicate: &Predicate) {
    match predicate {
        Predicate::Compare(comparison, _) => text.push_str(comparison.operator()),
        Predicate::Expr(comparison, _) => text.push_str(comparison.expr_operator()),
        Predicate::In(_) => text.push_str("$in"),
        Predicate::Regex(_) => text.push_str("$re"),
        Predicate::Exists => text.push_str("$exists"),
        Predicate::Type(_) => text.push_str("$type"),
        Predicate::Mod { .. } => text.push_str("$mod"),
        Predicate::Size(_) => text.push_str("$size"),
        Predicate::Bits(_) => text.push_str("$bits"),
        Predicate::Geo(geo) => text.push_str(match geo.shape.is_planar() {
            true => "$geo_plane",
            false => "$geo",
        }),
        Predicate::Near(_) => text.push_str("$near"),
        Predicate::ElemMatchObject(inner) => {
            text.push_str("$elem{");
            push_filter(text, inner);
            text.push('}');
        }
        Predicate::ElemMatchValue(list) => {
            text.push_str("$elem(");
            list.iter().for_each(|predicate| push_predicate(text, predicate));
            text.push(')');
        }
        Predicate::All(list) => {
            text.push_str("$all(");
            list.iter().for_each(|predicate| push_predicate(text, predicate));
            text.push(')');
        }
        Predicate::Not(inner) => {
            text.push_str("$not(");
            push_predicate(text, inner);
            text.push(')');
        }
    }
}

/// A plan without its values: which indexes, in which direction, with bounds on which parts.
pub(crate) fn signature(node: &Node) -> String {
    let mut text = String::new();
    push_node(&mut text, node);
    text
}

fn push_node(text: &mut String, node: &Node) {
    match node {
        Node::Eof => text.push_str("eof"),
        Node::RecordCount { .. } => text.push_str("records"),
        Node::IdLookup { .. } => text.push_str("id"),
        Node::CollectionScan { backward, .. } => {
            let _ = write!(text, "scan{}", u8::from(*backward));
        }
        Node::IndexScan(scan) | Node::CountScan(scan) => {
            let _ = write!(text, "ix{}{}", scan.index.id.0, if scan.backward { "-" } else { "+" });
            text.extend(scan.bounds.iter().map(|list| if list.is_full() { '.' } else { '#' }));
            if scan.index.spec.kind.is_seen_by_path() {
                scan.index.spec.key.iter().for_each(|part| text.push_str(part.path.as_str()));
            }
        }
        Node::Near(scan) => {
            let _ = write!(text, "near{}", scan.index.id.0);
        }
        Node::Fetch { filter, .. } => text.push_str(if filter.is_some() { "test" } else { "fetch" }),
        Node::Or { .. } => text.push_str("or"),
        Node::TextOr { .. } => text.push_str("textor"),
        Node::TextMatch { .. } => text.push_str("text"),
        Node::Intersection { .. } => text.push_str("and"),
        Node::SortMerge { .. } => text.push_str("merge"),
        Node::Sort { .. } => text.push_str("sort"),
        Node::Skip { .. } => text.push_str("skip"),
        Node::Limit { .. } => text.push_str("limit"),
        Node::Project(_) => text.push_str("project"),
        Node::ReturnKey { .. } => text.push_str("keys"),
        Node::SortKeys { .. } => text.push_str("sortkeys"),
        Node::Count { .. } => text.push_str("count"),
        Node::Subplan { .. } => text.push_str("sub"),
    }
    text.push('(');
    match node {
        // How many scans a list of points becomes is a matter of values.
        Node::SortMerge { inputs, .. } => inputs.iter().take(1).for_each(|child| push_node(text, child)),
        node => node.children().iter().for_each(|child| push_node(text, child)),
    }
    text.push(')');
}
