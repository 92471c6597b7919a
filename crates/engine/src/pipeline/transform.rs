//! Stages that make one document of one: `$project`, `$addFields`, `$replaceRoot`.

use std::sync::Arc;

use kilim_error::Result;
use kilim_query::expression::{Bindings, Env};
use kilim_query::projection::Projection;
use kilim_query::stage::{ReplaceRoot, check_nesting};

use super::{Opening, Step};
use crate::operator::{ExecContext, Row, RowData};

pub(super) struct Transform {
    change: Change,
    bindings: Bindings,
    input: Box<dyn Step>,
}

enum Change {
    Project(Arc<Projection>),
    ReplaceRoot(ReplaceRoot),
}

impl Transform {
    pub(super) fn project(
        projection: &Arc<Projection>,
        input: Box<dyn Step>,
        opening: &Opening<'_>,
    ) -> Transform {
        Transform { change: Change::Project(projection.clone()), bindings: opening.bindings.clone(), input }
    }

    pub(super) fn replace_root(
        stage: &ReplaceRoot,
        input: Box<dyn Step>,
        opening: &Opening<'_>,
    ) -> Transform {
        Transform { change: Change::ReplaceRoot(stage.clone()), bindings: opening.bindings.clone(), input }
    }
}

impl Step for Transform {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let Some(row) = self.input.next(context)? else { return Ok(None) };
        context.tick()?;
        let mut env = Env::new(row.document(), &self.bindings);
        row.describe(&mut env);
        let document = match &self.change {
            Change::Project(projection) if projection.is_identity() => return Ok(Some(row)),
            Change::Project(projection) => projection.made_of(&env)?,
            Change::ReplaceRoot(stage) => stage.apply(&env)?,
        };
        check_nesting(document.as_raw())?;
        Ok(Some(row.with(RowData::Document(document))))
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
