//! `$redact`: documents without the parts that are not let through.

use kilim_error::Result;
use kilim_query::expression::{Bindings, Env};
use kilim_query::stage::{self, Redacted};

use super::{Opening, Step};
use crate::operator::{ExecContext, Row, RowData};

pub(super) struct Redact {
    stage: stage::Redact,
    bindings: Bindings,
    input: Box<dyn Step>,
}

impl Redact {
    pub(super) fn new(stage: &stage::Redact, input: Box<dyn Step>, opening: &Opening<'_>) -> Redact {
        Redact { stage: stage.clone(), bindings: opening.bindings.clone(), input }
    }
}

impl Step for Redact {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        while let Some(row) = self.input.next(context)? {
            context.tick()?;
            let mut env = Env::new(row.document(), &self.bindings);
            row.describe_key(&mut env);
            match self.stage.apply(&env)? {
                Redacted::Kept => return Ok(Some(row)),
                Redacted::Pruned => {}
                Redacted::Changed(document) => {
                    return Ok(Some(row.with(RowData::Document(document))));
                }
            }
        }
        Ok(None)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
