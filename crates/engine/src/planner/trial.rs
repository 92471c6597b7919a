//! Candidates run against each other for a short while, as on MongoDB.
//!
//! Each does one unit of work in turn until one has a first batch or is through, or enough work was done.
//! The most productive wins; its rows are kept, so the trial is no waste.
//!
//! A unit of work of most plans reads a key and its record. An intersection reads keys, most of them for nothing, and
//! few records: its units are those of the others by what they cost. Unlike on MongoDB, where each key counts as much
//! as a key with its record, it wins where it reads less.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use kilim_bson::{Document, doc};
use kilim_error::Result;
use kilim_storage::Snapshot;

use super::{Plan, PlannerInput};
use crate::figures::Figures;
use crate::operator::{ExecContext, Operator, ReadContext, Row, STEPS_PER_SEEK, Worked};
use crate::plan::{Node, QueryShape, ReadRequest, Remembered, StatsTree, Trial, signature};
use crate::records::Records;

/// Rows that end a trial: a first batch.
const TRIAL_ROWS_MAX: u64 = 101;
/// Units of work for each candidate at least, and as a part of the collection.
const TRIAL_WORKS_MIN: u64 = 10_000;
const TRIAL_COLLECTION_PART: f64 = 0.3;
/// A remembered plan that needs this many times the work it was remembered with is tried again.
const REPLAN_FACTOR: u64 = 10;

/// What reading a record costs, in keys, where it is in memory: 0.6 us, and 0.28 us for a key. One from a compressed
/// block takes 9 us, so an intersection that wins by this wins by far more where memory is short.
const RECORD_KEYS: u64 = 2;
/// What a scan that goes on elsewhere costs, in keys.
const SEEK_KEYS: u64 = STEPS_PER_SEEK as u64;
/// What a unit of work of a plan with one index costs, in keys.
const UNIT_KEYS: u64 = 1 + RECORD_KEYS;
/// An intersection must need this much less than another plan, in percent, since the sums above are rough.
const INTERSECTION_MARGIN: u64 = 120;
/// Before this many units there is nothing to win.
const INTERSECTION_UNITS_MIN: u64 = TRIAL_ROWS_MAX;

struct Candidate {
    node: Arc<Node>,
    operator: Box<Operator>,
    rows: VecDeque<Row>,
    failed: Option<kilim_error::Error>,
    /// Of an intersection: what it has cost so far, in keys.
    spent: Option<u64>,
}

/// Picks one of several solutions, by memory or by trial.
pub(super) fn choose(
    input: &PlannerInput<'_>,
    request: ReadRequest,
    solutions: Vec<Node>,
    snapshot: &Snapshot,
) -> Result<Plan> {
    let records = Records::new(input.home.clone(), snapshot).through(input.patches).viewed(request.array);
    let source = ReadContext { records, allow_disk_use: request.allow_disk_use };
    let rows_max = request.limit.map_or(TRIAL_ROWS_MAX, |limit| limit.clamp(1, TRIAL_ROWS_MAX));
    let shape = QueryShape::of(&request);
    let signatures: Vec<String> = solutions.iter().map(signature).collect();
    let nodes: Vec<Arc<Node>> = solutions.into_iter().map(Arc::new).collect();
    let mut context = ExecContext::new(input.interrupt);
    let remembered = if request.explained { None } else { input.cache.get(&shape) };
    if let Some(remembered) = remembered {
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
    let records = input.home.counts(snapshot)?.count;
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
        index_filter_set: input.cache.filters.concern(&request),
        plan,
        query: shown(&request),
        since: Instant::now(),
        trials: ranking.iter().map(|&at| trials[at].clone()).collect(),
    };
    let ranked = remembered.trials.clone();
    if !request.explained {
        input.cache.put(shape, remembered);
    }
    let rejected = ranking[1..].iter().map(|&at| nodes[at].clone()).collect();
    Ok(plan_of(input, request, candidates.swap_remove(winner), rejected, ranked))
}

/// The query as the plan cache tells of it.
fn shown(request: &ReadRequest) -> Document {
    let mut sort = Document::new();
    for part in request.sort.iter().flat_map(|sort| sort.parts()) {
        sort.push(part.user_path(), if part.descending { -1 } else { 1 });
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
        home: input.home.clone(),
        root: winner.node,
        request,
        rejected,
        trials,
        indexes: input.indexes.clone(),
        started: Some((winner.operator, winner.rows)),
        index_filter_set: false,
        patches: input.patches.cloned(),
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
            Worked::Row(row) => candidate.rows.push_back(row),
            Worked::NeedTime => {}
            Worked::Eof => return Ok(Some(candidate)),
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
    for units in 1..=works_max {
        let mut decided = false;
        let mut alive = false;
        for candidate in candidates.iter_mut().filter(|candidate| candidate.failed.is_none()) {
            let done = match candidate.spent {
                None => candidate.work(rows_max, context),
                Some(_) => candidate.work_for(units * UNIT_KEYS, rows_max, context),
            };
            match done {
                Ok(done) => decided |= done && (candidate.spent.is_none() || units >= INTERSECTION_UNITS_MIN),
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
    fn new(node: &Arc<Node>, source: &ReadContext) -> Candidate {
        Candidate {
            node: node.clone(),
            operator: Box::new(Operator::new(node, source)),
            rows: VecDeque::new(),
            failed: None,
            spent: node.any(&|node| matches!(node, Node::Intersection { .. })).then_some(0),
        }
    }

    /// Does one unit of work; whether that was the last one, because there are rows enough or no more.
    fn work(&mut self, rows_max: u64, context: &mut ExecContext<'_>) -> Result<bool> {
        match self.operator.work(context)? {
            Worked::Row(row) => self.rows.push_back(row),
            Worked::NeedTime => {}
            Worked::Eof => return Ok(true),
        }
        Ok(self.rows.len() as u64 >= rows_max)
    }

    /// Works until it has cost `keys` or more.
    fn work_for(&mut self, keys: u64, rows_max: u64, context: &mut ExecContext<'_>) -> Result<bool> {
        let cost = |context: &ExecContext<'_>| {
            let Figures { keys_examined, docs_examined, .. } = context.figures;
            keys_examined + docs_examined * RECORD_KEYS + context.seeks * SEEK_KEYS
        };
        let mut spent = self.spent.unwrap_or(0);
        let mut done = self.operator.is_eof() || self.rows.len() as u64 >= rows_max;
        while spent < keys && !done {
            let before = cost(context);
            done = self.work(rows_max, context)?;
            // What sorts, skips or counts reads nothing, and takes its time as well.
            spent += (cost(context) - before).max(1);
            self.spent = Some(spent);
        }
        Ok(done)
    }

    fn report(&self) -> Trial {
        let stats = self.operator.stats();
        let units = match self.spent {
            None => Some(stats.stats.works),
            Some(keys) => Some(keys.div_ceil(UNIT_KEYS))
                .filter(|units| *units >= INTERSECTION_UNITS_MIN)
                .map(|units| units * INTERSECTION_MARGIN / 100),
        };
        let score = match units {
            _ if self.failed.is_some() => 0.0,
            Some(units) => score(&self.node, &stats, units),
            // Better than to fail.
            None => f64::MIN_POSITIVE,
        };
        Trial { node: self.node.clone(), stats, score }
    }
}

/// Rows per unit of work, with small bonuses that break ties, and a large one for being through.
fn score(node: &Node, stats: &StatsTree, works: u64) -> f64 {
    let works = works.max(1) as f64;
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
