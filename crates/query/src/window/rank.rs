//! `$rank`, `$denseRank` and `$documentNumber`: where a document stands in its partition.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, Result};

use super::bounds::Frame;
use super::{Asked, Function, Parsed, Slide};
use crate::accumulator::Number;
use crate::expression::{Bindings, Dependencies, Env, Evaluated, Expression, FieldPath};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Equals share a place, and leave a gap behind.
    Rank,
    /// Equals share a place.
    Dense,
    Number,
}

#[derive(Debug, Clone)]
struct Rank {
    kind: Kind,
    by: FieldPath,
    collation: Option<Collation>,
}

pub(super) fn parse(asked: &Asked<'_, '_>) -> Result<Parsed> {
    if asked.description.iter().nth(1).is_some() {
        return Err(Error::location(5_371_601, "Rank style window functions take no other arguments"));
    }
    let Some(by) = asked.sort_path() else {
        return Err(Error::location(
            5_371_602,
            format!(
                "{} must be specified with a top level sortBy expression with exactly one element",
                asked.name
            ),
        ));
    };
    if !matches!(asked.operand, RawValue::Document(operand) if operand.is_empty()) {
        return Err(Error::location(5_371_603, "(None) must be specified with '{}' as the value"));
    }
    let kind = match asked.name {
        "$rank" => Kind::Rank,
        "$denseRank" => Kind::Dense,
        _ => Kind::Number,
    };
    let rank = Rank { kind, by: by?, collation: asked.collation() };
    Ok((Arc::new(rank), None, Frame::UP_TO_CURRENT))
}

impl Function for Rank {
    fn begin(&self, _: &Frame, _: &Bindings) -> Result<Box<dyn Slide>> {
        Ok(Box::new(Place { rank: self.clone(), last: None, documents: 0, different: 0, place: 0 }))
    }

    fn operand(&self) -> Value {
        Value::Document(Document::new())
    }

    fn expressions(&self) -> Vec<&Expression> {
        Vec::new()
    }

    fn dependencies(&self, needed: &mut Dependencies) {
        needed.field(self.by.as_str());
    }
}

struct Place {
    rank: Rank,
    /// The sort value of the document before.
    last: Option<Evaluated<'static>>,
    documents: i64,
    different: i64,
    place: i64,
}

impl Slide for Place {
    fn enter(&mut self, env: &Env<'_>) -> Result<()> {
        self.documents += 1;
        if self.rank.kind == Kind::Number {
            self.place = self.documents;
            return Ok(());
        }
        let value = self.rank.by.evaluate(env.root);
        let same = |last: &Evaluated<'_>| last.compare(&value, collator(&self.rank.collation)).is_eq();
        if !self.last.as_ref().is_some_and(same) {
            self.different += 1;
            self.place = if self.rank.kind == Kind::Rank { self.documents } else { self.different };
            self.last = Some(value.into_owned());
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        Err(Error::bug("a document leaves the frame of a rank"))
    }

    fn value(&mut self) -> Result<Evaluated<'_>> {
        Ok(Number::int_or_long(self.place).into())
    }

    fn bytes(&self) -> usize {
        size_of::<Place>()
    }
}
