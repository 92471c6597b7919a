//! Candidates run against each other for a short while, as on MongoDB.
//!
//! Each does one unit of work in turn until one has a first batch or is through, or enough work was done.
//! The most productive wins; its rows are kept, so the trial is no waste.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use kilim_bson::{Document, doc};
use kilim_error::Result;
use kilim_storage::Snapshot;

use super::cache::{Remembered, Shape, signature};
use super::node::Node;
use super::{Plan, PlannerInput, ReadRequest};
use crate::layout;
use crate::operator::{ExecContext, Operator, Row, Source, StatsTree, Work};

/// Rows that end a trial: a first batch.
const TRIAL_ROWS_MAX: u64 = 101;
/// Units of work for each candidate at least, and as a part of the collection.
const TRIAL_WORKS_MIN: u64 = 10_000;
const TRIAL_COLLECTION_PART: f64 = 0.3;
/// A remembered plan that needs this many times the work it was remembered with is tried again.
const REPLAN_FACTOR: u64 = 10;

/// How a candidate did.
#[derive(Debug, Clone)]
pub struct Trial {
    pub node: Arc<Node>,
    pub stats: StatsTree,
    pub score: f64,
}

struct Candidate {
    node: Arc<Node>,
    operator: Box<Operator>,
    rows: VecDeque<Row>,
    failed: Option<kilim_error::Error>,
}

/// Picks one of several solutions, by memory or by trial.
pub(super) fn choose(
    input: &PlannerInput<'_>,
    request: ReadRequest,
    solutions: Vec<Node>,
    snapshot: &Snapshot,
) -> Result<Plan> {
    let source = Source {
        collection: input.id,
        snapshot,
        allow_disk_use: request.allow_disk_use,
        behind: input.behind,
    };
    let rows_max = request.limit.map_or(TRIAL_ROWS_MAX, |limit| limit.clamp(1, TRIAL_ROWS_MAX));
    let shape = Shape::of(&request);
    let signatures: Vec<String> = solutions.iter().map(signature).collect();
    let nodes: Vec<Arc<Node>> = solutions.into_iter().map(Arc::new).collect();
    let mut context = ExecContext::new(input.interrupt);
    if let Some(remembered) = input.cache.get(&shape) {
        if remembered.candidates == signatures {
            let winner = Candidate::new(&nodes[remembered.winner], &source);
            let works_max = remembered.works.saturating_mul(REPLAN_FACTOR);
            if let Some(candidate) = run_remembered(winner, rows_max, works_max, &mut context)? {
                let rejected = others(&nodes, remembered.winner);
                return Ok(plan_of(input, request, candidate, rejected, Vec::new()));
            }
        }
        input.cache.forget(&shape);
    }
    let mut candidates: Vec<Candidate> = nodes.iter().map(|node| Candidate::new(node, &source)).collect();
    let records = snapshot.counter(&layout::counter_key(input.id))?.count;
    let part = (records.max(0) as f64 * TRIAL_COLLECTION_PART) as u64;
    run_trial(&mut candidates, rows_max, part.max(TRIAL_WORKS_MIN), &mut context)?;
    let trials: Vec<Trial> = candidates.iter().map(Candidate::report).collect();
    let mut ranking: Vec<usize> = (0..candidates.len()).collect();
    // Stable, so that of equals the first stays first.
    ranking.sort_by(|&a, &b| trials[b].score.partial_cmp(&trials[a].score).unwrap_or(Ordering::Equal));
    let winner = ranking[0];
    if let Some(error) = candidates[winner].failed.take() {
        return Err(error);
    }
    let works = trials[winner].stats.stats.works;
    let plan = nodes[winner].clone();
    let remembered = Remembered {
        candidates: signatures,
        winner,
        works,
        plan,
        query: shown(&request),
        since: Instant::now(),
        trials: ranking.iter().map(|&at| trials[at].clone()).collect(),
    };
    let ranked = remembered.trials.clone();
    input.cache.put(shape, remembered);
    let rejected = ranking[1..].iter().map(|&at| nodes[at].clone()).collect();
    Ok(plan_of(input, request, candidates.swap_remove(winner), rejected, ranked))
}

/// The query as the plan cache tells of it.
fn shown(request: &ReadRequest) -> Document {
    let mut sort = Document::new();
    for part in request.sort.iter().flat_map(|sort| sort.parts()) {
        sort.push(part.path.as_str(), if part.descending { -1 } else { 1 });
    }
    doc! {"query": request.filter.to_document(), "sort": sort, "projection": {}}
}

fn others(nodes: &[Arc<Node>], winner: usize) -> Vec<Arc<Node>> {
    let losers = nodes.iter().enumerate().filter(|(at, _)| *at != winner);
    losers.map(|(_, node)| node.clone()).collect()
}

fn plan_of(
    input: &PlannerInput<'_>,
    request: ReadRequest,
    winner: Candidate,
    rejected: Vec<Arc<Node>>,
    trials: Vec<Trial>,
) -> Plan {
    Plan {
        collection: input.id,
        root: winner.node,
        request,
        rejected,
        trials,
        indexes: input.indexes.clone(),
        started: Some((winner.operator, winner.rows)),
        behind: input.behind.cloned(),
    }
}

/// Runs a remembered plan up to a first batch; `None` if that takes too much work.
fn run_remembered(
    mut candidate: Candidate,
    rows_max: u64,
    works_max: u64,
    context: &mut ExecContext<'_>,
) -> Result<Option<Candidate>> {
    let mut works = 0;
    while (candidate.rows.len() as u64) < rows_max {
        match candidate.operator.work(context)? {
            Work::Row(row) => candidate.rows.push_back(row),
            Work::NeedTime => {}
            Work::Eof => return Ok(Some(candidate)),
        }
        works += 1;
        if works > works_max {
            return Ok(None);
        }
    }
    Ok(Some(candidate))
}

fn run_trial(
    candidates: &mut [Candidate],
    rows_max: u64,
    works_max: u64,
    context: &mut ExecContext<'_>,
) -> Result<()> {
    for _ in 0..works_max {
        let mut decided = false;
        let mut alive = false;
        for candidate in candidates.iter_mut().filter(|candidate| candidate.failed.is_none()) {
            match candidate.operator.work(context) {
                Ok(Work::Row(row)) => {
                    candidate.rows.push_back(row);
                    decided |= candidate.rows.len() as u64 >= rows_max;
                }
                Ok(Work::NeedTime) => {}
                Ok(Work::Eof) => decided = true,
                // A sort may run out of memory where another plan needs none. An interrupt, though, is for all.
                Err(error)
                    if error.code() == kilim_error::ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed =>
                {
                    candidate.failed = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            alive = true;
        }
        if decided || !alive {
            return Ok(());
        }
    }
    Ok(())
}

impl Candidate {
    fn new(node: &Arc<Node>, source: &Source<'_>) -> Candidate {
        Candidate {
            node: node.clone(),
            operator: Box::new(Operator::new(node, source)),
            rows: VecDeque::new(),
            failed: None,
        }
    }

    fn report(&self) -> Trial {
        let stats = self.operator.stats();
        let score = if self.failed.is_some() { 0.0 } else { score(&self.node, &stats) };
        Trial { node: self.node.clone(), stats, score }
    }
}

/// Rows per unit of work, with small bonuses that break ties, and a large one for being through.
fn score(node: &Node, stats: &StatsTree) -> f64 {
    let works = stats.stats.works.max(1) as f64;
    // A counting plan gives no rows; what it counted stands for them.
    let rows = (stats.stats.advanced + stats.stats.counted) as f64;
    let bonus = (1.0 / (10.0 * works)).min(1e-4);
    let has = |test: &dyn Fn(&Node) -> bool| node.any(&|node| test(node));
    let fetches =
        has(&|node| matches!(node, Node::Project(_))) && has(&|node| matches!(node, Node::Fetch { .. }));
    let sorts = has(&|node| matches!(node, Node::Sort { .. }));
    let mut score = 1.0 + rows / works + bonus;
    if !fetches {
        score += bonus;
    }
    if !sorts {
        score += bonus;
    }
    if stats.stats.is_eof {
        score += 1.0;
    }
    score
}
