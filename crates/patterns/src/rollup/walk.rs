//! Refilling: what an accumulator that keeps a few of its rows lost, found again by walking an index.
//!
//! `$topN` and its kin, `$min`, `$max` and `$first` and `$last` keep the first few rows of some order. When one of these
//! goes, the rest is asked in that order, and only until there are enough. The index for it begins with the group's key.
//! Accumulators settle ties by the order in which children came. Entries of equal keys lie in that order, unless the index
//! has further parts behind the wanted ones: then ties come in the order of those parts, and all of them are looked at.

use kilim_bson::{Document, RawValue};
use kilim_error::{Error, Result};
use kilim_query::accumulator::{Accumulator, Kind};
use kilim_query::expression::Bindings;
use kilim_query::stage::{Group, Stage};

use super::{GroupState, Rollup, Row};
use crate::path::is_number;

/// The order in which an accumulator's rows are looked for again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Behind the group's key, in the index; nothing: children as they came.
    pub order: Vec<(Box<str>, bool)>,
    /// From the end.
    pub backward: bool,
    /// Rows whose first value is null, or none, are not wanted.
    pub passes_null: bool,
    /// Of equals at the end of what is kept, any may be the right ones: all of them are looked at.
    through_ties: bool,
}

impl Walk {
    fn new(order: Vec<(Box<str>, bool)>) -> Walk {
        Walk { order, backward: false, passes_null: false, through_ties: false }
    }

    /// How an accumulator's rows are found; none where the whole group has to be read.
    pub(super) fn of(before: &[Stage], group: &Group, accumulator: &Accumulator) -> Option<Walk> {
        // The index is over what children hold, not over what stages make of it.
        let as_stored = before.iter().all(|stage| matches!(stage, Stage::Match(_)));
        let key = group.id.as_field().filter(|_| as_stored)?.as_str();
        let walk = match accumulator.kind {
            Kind::Top | Kind::TopN | Kind::Bottom | Kind::BottomN => {
                let ends = matches!(accumulator.kind, Kind::Bottom | Kind::BottomN);
                let parts = accumulator.sort_parts().filter(|(path, _)| *path != key);
                let order = parts.map(|(path, descends)| (path.into(), descends != ends)).collect();
                Walk { through_ties: accumulator.kind == Kind::BottomN, ..Walk::new(order) }
            }
            Kind::Min | Kind::Max | Kind::MinN | Kind::MaxN => {
                let path = accumulator.input.as_field()?.as_str();
                let descends = matches!(accumulator.kind, Kind::Max | Kind::MaxN);
                if path == key {
                    return None;
                }
                let through_ties = accumulator.kind == Kind::MaxN;
                Walk { passes_null: true, through_ties, ..Walk::new(vec![(path.into(), descends)]) }
            }
            Kind::First | Kind::FirstN => Walk::new(Vec::new()),
            Kind::Last | Kind::LastN => Walk { backward: true, ..Walk::new(Vec::new()) },
            _ => return None,
        };
        // To an index `a.0` is an element of an array, to an expression it is a field.
        let ambiguous = walk.order.iter().any(|(path, _)| path.split('.').any(is_number));
        (!ambiguous && !key.split('.').any(is_number)).then_some(walk)
    }

    /// The index that it walks.
    pub fn index(&self, key_field: &str) -> Document {
        let mut index = Document::new();
        index.push(key_field, 1);
        for (path, descends) in &self.order {
            index.push(path, if *descends { -1 } else { 1 });
        }
        index
    }
}

/// An accumulator's share of a group on its way to be made again.
pub struct Refill<'r> {
    accumulator: &'r Accumulator,
    walk: &'r Walk,
    part: usize,
    /// Rows, and where they stand in the order in which children came.
    rows: Vec<(u64, Row)>,
    wanted: usize,
    counted: usize,
    /// Where the row stands that was offered last.
    last: Option<Vec<u8>>,
    /// From which row on all stand there.
    tied_from: usize,
    /// Ties do not come in the order in which children came.
    mixes_ties: bool,
}

impl Rollup {
    /// How the rows of an accumulator are found again.
    pub fn walk(&self, part: usize) -> Option<&Walk> {
        self.walks.get(part)?.as_ref()
    }

    /// Begins to make one accumulator's share of a group again.
    pub fn refill(&self, key: RawValue<'_>, part: usize) -> Result<Option<Refill<'_>>> {
        let (Some(walk), Some((_, accumulator))) = (self.walk(part), self.group.fields.get(part)) else {
            return Ok(None);
        };
        let wanted = accumulator.begin(key, Bindings::none())?.capacity();
        Ok(Some(Refill {
            accumulator,
            walk,
            part,
            rows: Vec::new(),
            wanted,
            counted: 0,
            last: None,
            tied_from: 0,
            mixes_ties: false,
        }))
    }
}

impl Refill<'_> {
    /// Rows that tie will be offered in any order, because the index has further parts.
    pub fn expect_mixed_ties(&mut self) {
        self.mixes_ties = true;
    }

    /// Offers the next row of the walk; whether there are enough now.
    pub fn offer(&mut self, came: u64, row: Row) -> Result<bool> {
        let env = row.env();
        let key = match self.accumulator.sort_key(&env) {
            Ok(Some(key)) => key,
            // To the accumulator it is not there.
            Ok(None) | Err(Error::User(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.last.as_ref() != Some(&key) {
            if self.counted >= self.wanted {
                return Ok(true);
            }
            self.tied_from = self.rows.len();
            self.last = Some(key);
        }
        self.rows.push((came, row));
        self.counted += 1;
        if self.mixes_ties && !self.walk.through_ties {
            self.forget_later_ties();
        }
        Ok(self.counted >= self.wanted && !self.walk.through_ties && !self.mixes_ties)
    }

    /// Of ties, the accumulator keeps those that came first: no more of them than it wants have to be held, however many
    /// there are. They are sorted once for many, so that a row costs little.
    fn forget_later_ties(&mut self) {
        const SPARE: usize = 64;
        let ties = &mut self.rows[self.tied_from..];
        if ties.len() > self.wanted.saturating_mul(2).saturating_add(SPARE) {
            ties.sort_by_key(|(came, _)| *came);
            self.rows.truncate(self.tied_from + self.wanted);
        }
    }

    /// A row that the walk does not come to.
    pub fn add(&mut self, came: u64, row: Row) {
        self.rows.push((came, row));
    }

    /// Puts what was found into the group.
    pub fn finish(mut self, key: RawValue<'_>, state: &mut GroupState) -> Result<()> {
        self.rows.sort_by_key(|(came, _)| *came);
        let mut made = self.accumulator.begin(key, Bindings::none())?;
        for (_, row) in &self.rows {
            let env = row.env();
            super::state::pass_over(self.accumulator.accumulate(&mut made, &env).map(drop))?;
        }
        state.set_standing(self.part, made);
        Ok(())
    }
}
