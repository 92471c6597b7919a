//! Skip and limit.

use kilim_error::Result;

use super::{ExecContext, Operator, Stats, Worked};

pub(super) struct Skip {
    pub(super) input: Box<Operator>,
    left: u64,
}

impl Skip {
    pub(super) fn new(count: u64, input: Box<Operator>) -> Skip {
        Skip { input, left: count }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        let work = self.input.work(context)?;
        if let Worked::Row(_) = work
            && self.left > 0
        {
            self.left -= 1;
            stats.skip_left = self.left;
            return Ok(Worked::NeedTime);
        }
        Ok(work)
    }
}

pub(super) struct Limit {
    pub(super) input: Box<Operator>,
    left: u64,
}

impl Limit {
    pub(super) fn new(count: u64, input: Box<Operator>) -> Limit {
        Limit { input, left: count }
    }

    pub(super) fn is_finished(&mut self) -> bool {
        self.left == 0 || self.input.is_finished()
    }

    pub(super) fn work(&mut self, context: &mut ExecContext<'_>) -> Result<Worked> {
        if self.left == 0 {
            return Ok(Worked::Eof);
        }
        let work = self.input.work(context)?;
        if let Worked::Row(_) = work {
            self.left -= 1;
        }
        Ok(work)
    }
}
