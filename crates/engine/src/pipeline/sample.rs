//! `$sample`: a uniform choice of the rows that come by, in random order.
//!
//! Every row draws a random number, and those with the least are kept: no more than the sample is ever in
//! memory, and every choice is equally likely.

use kilim_error::Result;
use kilim_query::stage;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::{Opening, Step};
use crate::operator::{ExecContext, Row, SortBuffer};

pub(super) struct Sample {
    size: u64,
    buffer: SortBuffer,
    chance: SmallRng,
    input: Box<dyn Step>,
}

impl Sample {
    pub(super) fn new(stage: stage::Sample, input: Box<dyn Step>, opening: &Opening<'_>) -> Sample {
        let buffer = SortBuffer::new(Some(stage.size), opening.reader.options().allow_disk_use);
        // A database that is gone ends the pipeline at its first row.
        let seed = opening.reader.engine().map_or(0, |engine| engine.environment().random());
        let chance = SmallRng::seed_from_u64(seed);
        Sample { size: stage.size, buffer, chance, input }
    }
}

impl Step for Sample {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if !self.buffer.is_finished() {
            self.take_in(context)?;
            self.buffer.finish()?;
        }
        self.buffer.next()
    }

    fn take_in(&mut self, context: &mut ExecContext<'_>) -> Result<bool> {
        while self.size > 0
            && let Some(row) = self.input.next(context)?
        {
            context.tick()?;
            self.buffer.push(&self.chance.random::<u64>().to_be_bytes(), row)?;
        }
        Ok(true)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
