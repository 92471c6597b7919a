//! Operators: what runs. Each pulls rows from its inputs, one unit of work at a time.
//!
//! A unit of work reads at most one key or one record, and may yield no row. That bounds the time
//! between two checks for interruption, lets candidates be tried in turns, and gives explain true counts.
//! Operators own what they read from, so an [`Executor`] can wait in a cursor between two getMores.

mod bounded;
mod collection_scan;
mod count;
mod count_scan;
mod executor;
mod fetch;
mod id_lookup;
mod index_scan;
mod intersection;
mod key_ranges;
mod near;
mod project;
mod return_key;
mod row;
mod sort;
mod sort_buffer;
mod sort_merge;
mod spill;
mod step;
mod text;
mod union;
mod window;

use kilim_error::Result;
use kilim_query::interrupt;

pub(crate) use bounded::Bounded;
pub use executor::Executor;
pub(crate) use index_scan::STEPS_PER_SEEK;
pub use near::Measured;
pub(crate) use near::measured;
pub use row::{Row, RowData};
pub(crate) use sort_buffer::SortBuffer;
pub use step::{Shown, Step, Viewer};

use crate::figures::Figures;
use crate::ids::RecordId;
use crate::plan::{Node, Stats, StatsTree};
use crate::records::Records;

/// What a running plan may ask of its caller.
pub struct ExecContext<'a> {
    pub(crate) interrupt: &'a dyn Fn() -> Result<()>,
    works: u32,
    /// Times that a scan of an intersection went on elsewhere.
    pub(crate) seeks: u64,
    /// What was done in it.
    pub figures: Figures,
}

/// Units of work between two checks: an interrupt is noticed within microseconds, at no cost that shows.
const WORKS_PER_CHECK: u32 = 128;

impl<'a> ExecContext<'a> {
    pub fn new(interrupt: &'a dyn Fn() -> Result<()>) -> ExecContext<'a> {
        ExecContext { interrupt, works: 0, seeks: 0, figures: Figures::default() }
    }

    pub(crate) fn tick(&mut self) -> Result<()> {
        self.works += 1;
        if self.works >= WORKS_PER_CHECK {
            self.works = 0;
            (self.interrupt)()?;
        }
        // Where rows are large, the work on them counts for more than their number.
        interrupt::tick()
    }
}

/// The outcome of one unit of work.
pub(crate) enum Worked<R = Row> {
    Row(R),
    /// Nothing to show yet.
    NeedTime,
    Eof,
}

impl<R> Worked<R> {
    /// Counts it.
    fn note(&self, stats: &mut Stats) {
        stats.works += 1;
        match self {
            Worked::Row(_) => stats.advanced += 1,
            Worked::NeedTime => stats.need_time += 1,
            Worked::Eof => stats.is_eof = true,
        }
    }

    fn blind(self) -> Worked<()> {
        match self {
            Worked::Row(_) => Worked::Row(()),
            Worked::NeedTime => Worked::NeedTime,
            Worked::Eof => Worked::Eof,
        }
    }
}

/// A node of a running plan.
pub struct Operator {
    stats: Stats,
    kind: Kind,
    /// Where arrays continue in pages, rows go through a plan as they are stored: filters look at pages by themselves. The
    /// operator that finds them in the end gives them as much of their arrays as was asked for, by these.
    unfolds: Option<Box<Records>>,
}

enum Kind {
    Eof,
    RecordCount(count::RecordCount),
    IdLookup(id_lookup::IdLookup),
    CollectionScan(collection_scan::CollectionScan),
    IndexScan(Box<index_scan::IndexScanner>),
    Near(Box<near::NearScanner>),
    CountScan(Box<count_scan::CountScan>),
    Fetch(fetch::Fetch),
    Union(union::Union),
    Intersection(Box<intersection::Intersection>),
    TextOr(Box<text::TextOr>),
    TextMatch(text::TextMatch),
    SortMerge(sort_merge::SortMerge),
    Sort(Box<sort::Sorter>),
    Skip(window::Skip),
    Limit(window::Limit),
    Project(Box<project::Projector>),
    ReturnKey(Box<return_key::ReturnKey>),
    Count(count::Count),
    Subplan(Box<Operator>),
}

/// What operators are made with.
pub(crate) struct ReadContext {
    pub records: Records,
    pub allow_disk_use: bool,
}

impl Operator {
    /// The operators of a plan.
    pub(crate) fn new(root: &Node, source: &ReadContext) -> Operator {
        Operator::make(root, source, source.records.unfolds())
    }

    /// `unfolds`: the rows that come out are to have as much of their arrays as was asked for.
    fn make(node: &Node, source: &ReadContext, unfolds: bool) -> Operator {
        let unfolds_here = unfolds && !node.takes_found_rows();
        let make = |node: &Node| Operator::make(node, source, unfolds && !unfolds_here);
        let input = |node: &Node| Box::new(make(node));
        let kind = match node {
            Node::Eof => Kind::Eof,
            Node::RecordCount { skip, limit } => {
                Kind::RecordCount(count::RecordCount::new(*skip, *limit, source))
            }
            Node::IdLookup { index, id } => Kind::IdLookup(id_lookup::IdLookup::new(index, id, source)),
            Node::CollectionScan { from, filter, backward, is_natural, ordered_by } => {
                let order = match ordered_by {
                    Some(index) => collection_scan::Order::By(index),
                    None if *is_natural || *backward => collection_scan::Order::Insertion,
                    None => collection_scan::Order::Any,
                };
                Kind::CollectionScan(collection_scan::CollectionScan::new(
                    *from,
                    filter.clone(),
                    *backward,
                    order,
                    source,
                ))
            }
            Node::IndexScan(scan) => {
                Kind::IndexScan(Box::new(index_scan::IndexScanner::new(scan.clone(), source)))
            }
            Node::Near(scan) => Kind::Near(Box::new(near::NearScanner::new(scan.clone(), source))),
            Node::CountScan(scan) => {
                Kind::CountScan(Box::new(count_scan::CountScan::new(scan.clone(), source)))
            }
            Node::Fetch { filter, input: below } => {
                Kind::Fetch(fetch::Fetch::new(filter.clone(), input(below), source))
            }
            Node::Or { inputs } => Kind::Union(union::Union::new(inputs.iter().map(make).collect())),
            Node::Intersection { inputs } => {
                Kind::Intersection(Box::new(intersection::Intersection::new(inputs.each_ref().map(make))))
            }
            Node::TextOr { search, inputs, fetches, .. } => Kind::TextOr(Box::new(text::TextOr::new(
                search.clone(),
                inputs.iter().map(make).collect(),
                *fetches,
                source,
            ))),
            Node::TextMatch { search, input: below, .. } => {
                Kind::TextMatch(text::TextMatch::new(search.clone(), input(below)))
            }
            Node::SortMerge { inputs, sort, apart } => {
                let running = inputs.iter().map(make).collect();
                Kind::SortMerge(sort_merge::SortMerge::new(inputs, running, sort.clone(), *apart))
            }
            Node::Sort { sort, limit, input: below } => {
                let reads_records = matches!(**below, Node::TextMatch { fetches: false, .. });
                Kind::Sort(Box::new(sort::Sorter::new(
                    sort.clone(),
                    *limit,
                    input(below),
                    reads_records,
                    source,
                )))
            }
            Node::Skip { count, input: below } => Kind::Skip(window::Skip::new(*count, input(below))),
            Node::Limit { count, input: below } => Kind::Limit(window::Limit::new(*count, input(below))),
            // Shown by explain, but no work: what follows takes the fields it wants from the record.
            Node::Project(project) if project.narrowing && project.cover.is_empty() => {
                Kind::Subplan(input(&project.input))
            }
            Node::Project(project) => {
                Kind::Project(Box::new(project::Projector::new(project, input(&project.input), source)))
            }
            Node::Count { skip, limit, input: below } => {
                Kind::Count(count::Count::new(*skip, *limit, input(below)))
            }
            Node::ReturnKey { sort_keys, sort, input: below } => {
                let sort = sort.clone().filter(|_| !sort_keys.is_empty());
                Kind::ReturnKey(Box::new(return_key::ReturnKey::new(
                    sort_keys.clone(),
                    sort,
                    below,
                    input(below),
                    source,
                )))
            }
            Node::Subplan { input: below } | Node::SortKeys { input: below } => Kind::Subplan(input(below)),
        };
        let skip_left = if let Node::Skip { count, .. } = node { *count } else { 0 };
        let unfolds = unfolds_here.then(|| Box::new(source.records.clone()));
        Operator { stats: Stats { skip_left, ..Stats::default() }, kind, unfolds }
    }

    /// Does one unit of work.
    pub(crate) fn work(&mut self, context: &mut ExecContext<'_>) -> Result<Worked> {
        let stats = &mut self.stats;
        let work = match &mut self.kind {
            Kind::Eof => Worked::Eof,
            Kind::RecordCount(count) => count.work(stats)?,
            Kind::IdLookup(lookup) => lookup.work(stats, context)?,
            Kind::CollectionScan(scan) => scan.work(stats, context)?,
            Kind::IndexScan(scan) => scan.work(stats, context)?,
            Kind::Near(scan) => scan.work(stats, context)?,
            Kind::CountScan(scan) => scan.work(stats, context)?,
            Kind::Fetch(fetch) => fetch.work(stats, context)?,
            Kind::Union(union) => union.work(stats, context)?,
            Kind::Intersection(both) => both.work(stats, context)?,
            Kind::TextOr(terms) => terms.work(stats, context)?,
            Kind::TextMatch(found) => found.work(stats, context)?,
            Kind::SortMerge(merge) => merge.work(stats, context)?,
            Kind::Sort(sorter) => sorter.work(stats, context)?,
            Kind::Skip(skip) => skip.work(stats, context)?,
            Kind::Limit(limit) => limit.work(context)?,
            Kind::Project(projector) => projector.work(context)?,
            Kind::ReturnKey(keys) => keys.work(context)?,
            Kind::Count(count) => count.work(stats, context)?,
            Kind::Subplan(input) => input.work(context)?,
        };
        work.note(stats);
        match (work, &self.unfolds) {
            (Worked::Row(row), Some(records)) => row.unfolded(records).map(Worked::Row),
            (work, _) => Ok(work),
        }
    }

    /// Does one unit of work for somebody who wants to know of rows and not to have them.
    fn pass(&mut self, context: &mut ExecContext<'_>) -> Result<Worked<()>> {
        match &mut self.kind {
            Kind::IndexScan(scan) => {
                let found = scan.find_to_count(&mut self.stats, context)?;
                found.note(&mut self.stats);
                Ok(found)
            }
            Kind::CountScan(scan) => {
                let found = scan.find(&mut self.stats, context)?;
                found.note(&mut self.stats);
                Ok(found.blind())
            }
            _ => Ok(self.work(context)?.blind()),
        }
    }

    /// Does units of work that each would give a row, so many at most, without a look at these rows; as far as there is a way.
    /// Gives how many. The last unit gave a row.
    fn pass_ahead(&mut self, context: &mut ExecContext<'_>, max: usize) -> Result<u64> {
        let passed = match &mut self.kind {
            Kind::IndexScan(scan) => scan.pass(&mut self.stats, context, max)?,
            Kind::CountScan(scan) => scan.pass(&mut self.stats, context, max)?,
            _ => 0,
        } as u64;
        self.stats.works += passed;
        self.stats.advanced += passed;
        Ok(passed)
    }

    /// Has an index scan in the order of record ids go on at a record, or the first behind it.
    fn seek_record(&mut self, record: RecordId) {
        if let Kind::IndexScan(scan) = &mut self.kind {
            scan.seek_record(&mut self.stats, record);
        }
    }

    /// Works until there is a row.
    pub(crate) fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        loop {
            match self.work(context)? {
                Worked::Row(row) => return Ok(Some(row)),
                Worked::NeedTime => {}
                Worked::Eof => return Ok(None),
            }
        }
    }

    /// Shows all rows that are left. Names: the fields that are looked at.
    fn show(
        &mut self,
        names: &[Box<str>],
        viewer: &mut dyn Viewer,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        if let Kind::CollectionScan(scan) = &mut self.kind
            && scan.show(&mut self.stats, names, viewer, context)?
        {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Subplan(input) => {
                input.show(names, viewer, context)?;
                let Stats { works, advanced, need_time, is_eof, .. } = input.stats;
                self.stats = Stats { works, advanced, need_time, is_eof, ..self.stats.clone() };
                Ok(())
            }
            _ => {
                while let Some(row) = self.next(context)? {
                    viewer.see(Shown::Row(&row), context)?;
                }
                Ok(())
            }
        }
    }

    pub fn stats(&self) -> StatsTree {
        let inputs = match &self.kind {
            Kind::Eof
            | Kind::RecordCount(_)
            | Kind::IdLookup(_)
            | Kind::CollectionScan(_)
            | Kind::IndexScan(_)
            | Kind::Near(_)
            | Kind::CountScan(_) => Vec::new(),
            Kind::Fetch(fetch) => vec![fetch.input.stats()],
            Kind::Union(union) => union.inputs.iter().map(Operator::stats).collect(),
            Kind::Intersection(both) => both.inputs.iter().map(Operator::stats).collect(),
            Kind::TextOr(terms) => terms.inputs.iter().map(Operator::stats).collect(),
            Kind::TextMatch(found) => vec![found.input.stats()],
            Kind::SortMerge(merge) => merge.inputs.iter().map(Operator::stats).collect(),
            Kind::Sort(sorter) => vec![sorter.input.stats()],
            Kind::Skip(skip) => vec![skip.input.stats()],
            Kind::Limit(limit) => vec![limit.input.stats()],
            Kind::Project(projector) => vec![projector.input.stats()],
            Kind::ReturnKey(keys) => vec![keys.input.stats()],
            Kind::Count(count) => vec![count.input.stats()],
            Kind::Subplan(input) => vec![input.stats()],
        };
        StatsTree { stats: self.stats.clone(), inputs }
    }

    /// Whether nothing is left, for a caller that need not ask again to know.
    pub(crate) fn is_finished(&mut self) -> bool {
        let finished = match &mut self.kind {
            Kind::IdLookup(lookup) => lookup.done,
            Kind::Limit(limit) => limit.is_finished(),
            Kind::Project(projector) => projector.input.is_finished(),
            Kind::ReturnKey(keys) => keys.input.is_finished(),
            Kind::SortMerge(merge) => merge.is_finished(),
            _ => false,
        };
        self.stats.is_eof |= finished;
        self.stats.is_eof
    }

    /// Whether a whole answer is known, so that the operator need not be worked again.
    pub(crate) fn is_eof(&self) -> bool {
        self.stats.is_eof
    }
}
