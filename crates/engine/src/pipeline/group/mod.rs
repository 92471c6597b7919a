//! `$group`: gathers all rows into a table of groups, then gives a document for each.
//!
//! Groups come in the order of their first appearance. Beyond 100 MB the table goes to disk, if that is
//! allowed: each group as a document of its key, id and states, sorted by the key. Then the groups come in
//! the order of their keys, and what several parts know of one group is merged in the order of the
//! parts, so `$first`, `$last` and `$push` see the order of the input.

mod table;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_error::{Error, Result};
use kilim_query::accumulator::State;
use kilim_query::expression::{Bindings, Env, Fields, check_bytes};
use kilim_query::stage::{self, GroupFields};

use self::table::Table;
use super::{Budget, Opening, Step, made};
use crate::operator::{ExecContext, Row, Shown, SortBuffer, Viewer};

pub(super) struct Group {
    input: Box<dyn Step>,
    groups: Groups,
    output: Output,
}

/// The groups so far.
struct Groups {
    stage: Arc<stage::Group>,
    reads: GroupFields,
    /// The names of fields, and how these are read, where rows come as their values.
    over: Option<(Box<[Box<str>]>, GroupFields)>,
    bindings: Bindings,
    table: Table,
    /// The group of the row before: neighbours often share one.
    last: Option<usize>,
    /// Dates that all give the key of the group of the row before, where the key is a date rounded down.
    last_dates: Range<i64>,
    budget: Budget,
    /// Groups that had to leave the table.
    spilled: Option<SortBuffer>,
    key: Vec<u8>,
    /// The rows so far, where only their number counts.
    count: u64,
    only_count: bool,
    /// The most that a state of each accumulator has held, for explain.
    largest: Vec<usize>,
}

enum Output {
    /// Not all rows are in yet.
    None,
    /// The only group, which was just a number of rows.
    Count(Option<Document>),
    /// From the table: the next group, and the states of all that are left.
    Memory { group: usize, states: std::vec::IntoIter<State> },
    /// Merged from the disk: the first part of the next group.
    Disk { head: Option<Row> },
}

impl Group {
    pub(super) fn new(stage: &Arc<stage::Group>, input: Box<dyn Step>, opening: &Opening<'_>) -> Group {
        let groups = Groups::new(stage, Budget::new("$group", opening.reader.options()), opening.bindings);
        Group { input, groups, output: Output::None }
    }

    fn gather(&mut self, context: &mut ExecContext<'_>) -> Result<Output> {
        self.take_in(context)?;
        self.groups.finish(context)
    }
}

impl Groups {
    fn new(stage: &Arc<stage::Group>, budget: Budget, bindings: &Bindings) -> Groups {
        Groups {
            stage: stage.clone(),
            reads: GroupFields::of(stage),
            over: None,
            bindings: bindings.clone(),
            table: Table::new(),
            last: None,
            last_dates: 0..0,
            budget,
            spilled: None,
            key: Vec::new(),
            count: 0,
            only_count: stage.needs_only_count(),
            largest: vec![0; stage.fields.len()],
        }
    }

    /// All rows are in.
    fn finish(&mut self, context: &mut ExecContext<'_>) -> Result<Output> {
        if self.only_count {
            let count = self.count;
            return Ok(Output::Count(if count == 0 { None } else { self.stage.of_count(count) }));
        }
        if self.spilled.is_none() {
            self.measure();
            return Ok(Output::Memory { group: 0, states: self.table.take_states() });
        }
        if self.table.len() > 0 {
            self.spill(context)?;
        }
        let Some(spilled) = &mut self.spilled else { return Err(Error::bug("what was spilled is gone")) };
        spilled.finish()?;
        Ok(Output::Disk { head: spilled.next()? })
    }

    /// Adds a row to its group.
    #[inline]
    fn take(&mut self, row: Shown<'_>) -> Result<()> {
        let (fetched, values);
        let (env, reads, fetched) = match row {
            Shown::Row(row) => {
                let mut env = Env::new(row.document(), &self.bindings);
                row.describe(&mut env);
                fetched = self.reads.fetch(row.document());
                (env, &self.reads, &fetched[..])
            }
            Shown::Document(document) => {
                values = self.reads.fetch(document);
                (Env::new(document, &self.bindings), &self.reads, &values[..])
            }
            Shown::Fields(values) => {
                let Some((names, reads)) = &self.over else {
                    return Err(Error::bug("a group is shown fields whose names it was not told"));
                };
                (Env::of_fields(Fields { names, values }, &self.bindings), reads, values)
            }
        };
        let stage = &self.stage;
        let date = reads.rounded_date(fetched);
        let found = if reads.constant && self.table.len() > 0 {
            Ok(0)
        } else if let (Some(last), Some(date)) = (self.last, date)
            && self.last_dates.contains(&date)
        {
            Ok(last)
        } else {
            self.last_dates = date.and_then(|date| GroupFields::same_key(stage, date)).unwrap_or(0..0);
            self.key.clear();
            reads.key_of(stage, &env, fetched, &mut self.key)?;
            match self.last {
                Some(last) if self.table.key(last) == self.key => Ok(last),
                _ => {
                    let hash = self.table.hash(&self.key);
                    self.table.find(hash, &self.key).ok_or(hash)
                }
            }
        };
        let group = match found {
            Ok(group) => group,
            Err(hash) => {
                let bytes = self.table.insert(hash, &self.key, |out| stage.append_id(&env, out))?;
                self.budget.add(bytes + stage.fields.len() * size_of::<State>());
                let group = self.table.len() - 1;
                for (_, accumulator) in &stage.fields {
                    let id = stage::id_of(self.table.id(group));
                    let state = accumulator.begin(id, &self.bindings)?;
                    self.table.push_state(state);
                }
                group
            }
        };
        self.last = Some(group);
        let states = self.table.states_mut(group, stage.fields.len());
        let grown = reads.accumulate(stage, states, &env, fetched)?;
        match grown {
            0 => {}
            grown @ 1.. => self.budget.add(grown as usize),
            shrunk => self.budget.release(shrunk.unsigned_abs()),
        }
        Ok(())
    }

    /// Notes how large states have become, before they leave the table.
    fn measure(&mut self) {
        for group in self.table.states().chunks(self.largest.len().max(1)) {
            for (largest, state) in self.largest.iter_mut().zip(group) {
                *largest = (*largest).max(state.bytes());
            }
        }
    }

    /// Writes every group to disk and empties the table.
    fn spill(&mut self, context: &mut ExecContext<'_>) -> Result<()> {
        self.budget.spill()?;
        self.measure();
        let spilled = self.spilled.get_or_insert_with(|| SortBuffer::new(None, true));
        let mut states = self.table.take_states();
        for group in 0..self.table.len() {
            context.tick()?;
            let mut writer = Writer::new();
            let key = self.table.key(group);
            writer.append("key", RawValue::Binary { subtype: 0, bytes: key });
            writer.append_elements(self.table.id(group).elements());
            writer.open_array("states");
            for (index, state) in states.by_ref().take(self.stage.fields.len()).enumerate() {
                writer.append_index(index, state.into_value().as_raw());
            }
            writer.close();
            spilled.push(key, Row::of(writer.finish()))?;
        }
        spilled.spill()?;
        self.table.clear();
        self.last = None;
        Ok(())
    }

    /// The next group from disk: all parts with the same key, merged.
    fn merge_next(&mut self, head: &mut Option<Row>, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let Some(spilled) = &mut self.spilled else {
            return Err(Error::bug("groups are merged before they are on disk"));
        };
        let Some(first) = head.take() else { return Ok(None) };
        let restore = |part: RawDocument<'_>| -> Result<Vec<State>> {
            let states = part.get("states").and_then(RawValue::as_array);
            let states = states.ok_or_else(|| Error::bug("a spilled group has no states"))?;
            let fields = self.stage.fields.iter().zip(states.iter());
            let id = stage::id_of(part);
            fields.map(|((_, accumulator), state)| accumulator.restore(id, &self.bindings, state)).collect()
        };
        let mut states = restore(first.document())?;
        while let Some(next) = spilled.next()? {
            context.tick()?;
            if key_of(next.document()) != key_of(first.document()) {
                *head = Some(next);
                break;
            }
            let fields = self.stage.fields.iter().zip(&mut states);
            for (((_, accumulator), state), later) in fields.zip(restore(next.document())?) {
                accumulator.merge(state, later)?;
            }
            // Each accumulator is bounded, and together they make one document.
            check_bytes(states.iter().map(State::bytes).sum())?;
        }
        let mut writer = Writer::new();
        writer.append("_id", stage::id_of(first.document()));
        for ((name, accumulator), state) in self.stage.fields.iter().zip(states) {
            accumulator.append(state, name, &mut writer);
        }
        made(writer.finish()).map(Some)
    }
}

fn key_of(part: RawDocument<'_>) -> &[u8] {
    match part.get("key") {
        Some(RawValue::Binary { bytes, .. }) => bytes,
        _ => &[],
    }
}

impl Viewer for Groups {
    fn takes_fields(&mut self, names: &[Box<str>]) -> bool {
        let takes = self.stage.reads_fields_only();
        if takes {
            self.over = Some((names.into(), GroupFields::over(&self.stage, names)));
        }
        takes
    }

    #[inline]
    fn see(&mut self, row: Shown<'_>, context: &mut ExecContext<'_>) -> Result<()> {
        context.tick()?;
        if self.only_count {
            self.count += 1;
            return Ok(());
        }
        self.take(row)?;
        match self.budget.is_exceeded() {
            true => self.spill(context),
            false => Ok(()),
        }
    }
}

impl Step for Group {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if let Output::None = self.output {
            self.output = self.gather(context)?;
        }
        context.tick()?;
        let Groups { stage, table, .. } = &self.groups;
        match &mut self.output {
            Output::None => Err(Error::bug("a group gives rows before it has all")),
            Output::Count(document) => Ok(document.take().map(Row::of)),
            Output::Memory { group, .. } if *group >= table.len() => Ok(None),
            Output::Memory { group, states } => {
                let id = table.id(*group);
                *group += 1;
                let mut writer = Writer::with_capacity(id.as_bytes().len() + 32 * stage.fields.len());
                writer.append_elements(id.elements());
                for ((name, accumulator), state) in stage.fields.iter().zip(states) {
                    accumulator.append(state, name, &mut writer);
                }
                made(writer.finish()).map(Some)
            }
            Output::Disk { head } => self.groups.merge_next(head, context),
        }
    }

    fn take_in(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        self.input.show(&mut self.groups, context)?;
        Ok(true)
    }

    fn take_rows(&mut self, rows: &[Row], context: &mut ExecContext<'_>) -> Result<bool> {
        if self.groups.only_count {
            self.groups.count += rows.len() as u64;
            return Ok(true);
        }
        for row in rows {
            self.groups.see(Shown::Row(row), context)?;
        }
        Ok(true)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }

    fn report(&self, out: &mut Writer) {
        out.open_document("maxAccumulatorMemoryUsageBytes");
        for ((name, _), largest) in self.groups.stage.fields.iter().zip(&self.groups.largest) {
            out.append(name, RawValue::Int64(*largest as i64));
        }
        out.close();
        out.append("totalOutputDataSizeBytes", RawValue::Int64(self.groups.budget.peak() as i64));
        out.append("usedDisk", RawValue::Bool(self.groups.budget.spills() > 0));
        out.append("spills", RawValue::Int64(self.groups.budget.spills() as i64));
    }
}
