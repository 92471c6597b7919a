//! `$sortByCount`: a `$group` that counts, and a `$sort` that puts the largest groups first.

use std::sync::Arc;

use kilim_bson::{RawValue, doc};
use kilim_error::{Error, Result};

use super::{Context, Group, SortBy, Stage};
use crate::accumulator::Accumulator;
use crate::expression::Expression;
use crate::sort::Sort;

const NO_EXPRESSION: &str =
    "the sortByCount field must be defined as a $-prefixed path or an expression inside an object";

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    match value {
        RawValue::Document(document) => {
            if !document.iter().next().is_some_and(|(name, _)| name.starts_with('$')) {
                return Err(Error::location(40147, NO_EXPRESSION));
            }
        }
        RawValue::String(text) if text.starts_with('$') => {}
        RawValue::String(_) => return Err(Error::location(40148, NO_EXPRESSION)),
        _ => {
            return Err(Error::location(
                40149,
                "the sortByCount field must be specified as a string or as an object",
            ));
        }
    }
    let id = Expression::parse(value, context.scope)?.optimised_if_it_can_be();
    out.push(Stage::Group(Arc::new(Group {
        id,
        fields: vec![("count".into(), Accumulator::count())],
        collation: context.scope.collation().clone(),
    })));
    let sort = Arc::new(Sort::parse(doc! {"count": -1}.as_raw())?);
    out.push(Stage::Sort(SortBy::new(sort)));
    Ok(())
}
