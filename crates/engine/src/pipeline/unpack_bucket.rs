//! `$_internalUnpackBucket`: buckets in, measurements out.

use std::collections::BTreeSet;
use std::sync::Arc;

use kilim_error::Result;
use kilim_query::expression::Dependencies;
use kilim_query::interrupt;
use kilim_query::stage::{self, Beyond, Stage};
use kilim_query::time_series::Rows;

use super::Step;
use crate::operator::{ExecContext, Row};

pub(super) struct UnpackBucket {
    stage: Arc<stage::UnpackBucket>,
    input: Box<dyn Step>,
    /// What is left of the bucket at hand.
    rows: Option<Rows>,
}

/// Tells each stage of this kind which fields the stages behind it read.
pub(super) fn narrow(stages: &mut [Stage]) {
    for at in 0..stages.len() {
        let wanted = wanted(&stages[at + 1..]);
        if let Stage::UnpackBucket(stage) = &mut stages[at] {
            Arc::make_mut(stage).wanted = wanted;
        }
    }
}

/// The fields that stages read, if these are not all.
fn wanted(stages: &[Stage]) -> Option<Arc<[Box<str>]>> {
    let mut needed = Dependencies::default();
    stages.iter().find(|stage| stage.behaviour().dependencies(&mut needed) == Beyond::Nothing)?;
    if needed.whole_document {
        return None;
    }
    let first = |path: &str| Box::from(path.split('.').next().unwrap_or(path));
    let names: BTreeSet<Box<str>> = needed.fields.iter().map(|path| first(path)).collect();
    Some(names.into_iter().collect())
}

impl UnpackBucket {
    pub(super) fn new(stage: &Arc<stage::UnpackBucket>, input: Box<dyn Step>) -> UnpackBucket {
        UnpackBucket { stage: stage.clone(), input, rows: None }
    }
}

impl Step for UnpackBucket {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        loop {
            context.tick()?;
            if let Some(measurement) = self.rows.as_mut().and_then(Iterator::next) {
                interrupt::copied(measurement.as_bytes().len())?;
                return Ok(Some(Row::of(measurement)));
            }
            let Some(bucket) = self.input.next(context)? else { return Ok(None) };
            self.rows = self.stage.rows(bucket.document());
        }
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
