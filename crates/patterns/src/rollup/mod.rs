//! `computed` over another collection, and `subset`: groups of children kept merged into their parents.
//!
//! A child gives rows: itself, or what stages before the `$group` make of it ([`Rollup::rows`]). Each group has a
//! [`GroupState`] from which its fields follow at any time. A change of a child takes the rows that it gave out of
//! their groups and puts those that it gives now in. Sums take rows out exactly; what an accumulator that
//! only keeps the best of its rows loses, it cannot know again: then the group is read anew.

mod kind;
mod merge;
mod parse;
mod state;
#[cfg(test)]
mod tests;
mod upkeep;
mod walk;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, compare};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::accumulator::Kind;
use kilim_query::expression::{Bindings, Dependencies, Env};
use kilim_query::stage::{Behaviour, Cut, Found, Group, Stage, Unwind};

use crate::effect::key_bytes;
use crate::path::{Names, is_number, names};

pub(crate) use parse::Parts;
pub use state::{Gathering, GroupState, Outcome};
pub use walk::{Refill, Walk};

#[derive(Debug, Clone)]
pub struct Rollup {
    /// The collection of the children.
    pub from: Box<str>,
    /// The parent's field that equals a group's `_id`.
    pub on: Box<str>,
    when_not_matched: WhenNotMatched,
    /// Stages before the group, each of one document.
    pub(crate) before: Vec<Stage>,
    pub(crate) group: Arc<Group>,
    /// Stages behind it.
    pub(crate) behind: Vec<Stage>,
    /// The result's fields, and where they go in the parent.
    pub(crate) outputs: Vec<(Box<str>, Box<str>)>,
    /// The child's field that is the group's key, where it is one.
    key_field: Option<Box<str>>,
    /// How each accumulator's rows are found again, where an index tells.
    walks: Vec<Option<Walk>>,
    /// The first names of the paths that accumulators read; none where they read everything.
    inputs: Option<Vec<Box<str>>>,
    /// Where the outputs go, by names.
    output_names: Vec<Names>,
    on_names: Names,
    /// Where a parent shows the values that each accumulator keeps, just as it keeps them.
    shown_at: Vec<Option<Names>>,
    /// Why this could not be declared anew.
    refusal: Option<Error>,
}

/// The stages of a rollup's pipeline.
pub(crate) struct Stages {
    pub before: Vec<Stage>,
    pub group: Arc<Group>,
    pub behind: Vec<Stage>,
}

/// What becomes of a group without a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenNotMatched {
    Discard,
    /// The parent is the group's own document, made and removed with it.
    Insert,
}

/// What a child adds to a group.
#[derive(Debug, Clone)]
pub struct Row {
    /// The group's `_id`.
    pub key: Value,
    /// Equal for equal keys.
    pub key_bytes: Vec<u8>,
    /// The `_id` of the child.
    child: Value,
    /// What the accumulators read.
    pub document: Document,
}

impl Row {
    /// Whether it is the same row of the same child. Another child's may look the same and stand elsewhere.
    pub fn is_same(&self, other: &Row) -> bool {
        self.document == other.document && compare(self.child.as_raw(), other.child.as_raw()).is_eq()
    }

    /// What accumulators see of it.
    fn env(&self) -> Env<'_> {
        Env::new(self.document.as_raw(), Bindings::none())
    }
}

impl Rollup {
    pub(crate) fn new(
        from: &str,
        on: &str,
        when_not_matched: WhenNotMatched,
        stages: Stages,
        outputs: Vec<(Box<str>, Box<str>)>,
    ) -> Rollup {
        let Stages { before, group, behind } = stages;
        // The child's field that is the key, if no stage before the group changes it.
        let as_stored = before.iter().all(|stage| matches!(stage, Stage::Match(_)));
        // A number in its path would be a place in an array to the index, which refuses what it cannot tell apart.
        let key_field = group.id.as_field().filter(|_| as_stored).map(|field| field.as_str());
        let key_field = key_field.filter(|path| !path.split('.').any(is_number)).map(Into::into);
        let walks = group.fields.iter().map(|(_, accumulator)| Walk::of(&before, &group, accumulator));
        let mut needed = Dependencies::default();
        group.fields.iter().for_each(|(_, accumulator)| accumulator.dependencies(&mut needed));
        let first = |path: &str| path.split('.').next().unwrap_or(path).into();
        let inputs: Option<Vec<Box<str>>> =
            (!needed.whole_document).then(|| needed.fields.iter().map(|path| first(path)).collect());
        let shown_at = group.fields.iter().map(|(name, accumulator)| {
            let as_kept = matches!(accumulator.kind, Kind::TopN | Kind::BottomN | Kind::MinN);
            let output = outputs.iter().find(|(field, _)| field == name);
            output.filter(|_| as_kept && behind.is_empty()).map(|(_, path)| names(path))
        });
        Rollup {
            shown_at: shown_at.collect(),
            from: from.into(),
            on: on.into(),
            when_not_matched,
            key_field,
            walks: walks.collect(),
            inputs,
            output_names: outputs.iter().map(|(_, path)| names(path)).collect(),
            on_names: names(on),
            before,
            group,
            behind,
            outputs,
            refusal: None,
        }
    }

    /// The child's field by which a group's children are found; none where the key is computed.
    pub fn key_field(&self) -> Option<&str> {
        self.key_field.as_deref()
    }

    /// The indexes that find a group's children: all of them, or first those that an accumulator keeps.
    fn supporting_indexes(&self) -> Vec<Document> {
        let Some(key) = self.key_field() else { return Vec::new() };
        let mut walks: Vec<&Walk> = self.walks.iter().flatten().collect();
        // One that begins with another's parts serves both, except where children have to come as they came.
        walks.sort_by_key(|walk| std::cmp::Reverse(walk.order.len()));
        let mut kept: Vec<&Walk> = Vec::new();
        for walk in walks {
            let serves = |other: &&Walk| match walk.order.is_empty() {
                true => other.order.is_empty(),
                false => other.order.starts_with(&walk.order),
            };
            if !kept.iter().any(serves) {
                kept.push(walk);
            }
        }
        let mut indexes: Vec<Document> = kept.iter().map(|walk| walk.index(key)).collect();
        if indexes.is_empty() {
            let mut index = Document::new();
            index.push(key, 1);
            indexes.push(index);
        }
        indexes
    }

    /// Whether children are looked for in the order in which they came, which an index over more than the key does not
    /// tell.
    fn walks_as_they_came(&self) -> bool {
        self.walks.iter().flatten().any(|walk| walk.order.is_empty())
    }

    /// What it reads of a child.
    fn needed_paths(&self) -> Option<Vec<Box<str>>> {
        let mut needed = Dependencies::default();
        for stage in &self.before {
            let behaviour = stage.behaviour();
            behaviour.dependencies(&mut needed);
        }
        self.group.dependencies(&mut needed);
        (!needed.whole_document).then(|| needed.fields.into_iter().collect())
    }

    /// The rows that a child gives.
    pub(crate) fn rows(&self, child: RawDocument<'_>) -> Result<Vec<Row>> {
        if self.keeps_shape() {
            return Ok(match self.passes(child)? {
                true => vec![self.row(child, child.to_document())?],
                false => Vec::new(),
            });
        }
        let mut documents = vec![child.to_document()];
        for stage in &self.before {
            let mut next = Vec::with_capacity(documents.len());
            for document in documents {
                expand(stage, document, &mut next)?;
            }
            documents = next;
        }
        documents.into_iter().map(|document| self.row(child, document)).collect()
    }

    /// The rows of a child, where there is one. One that a stage fails on gives none: its write was possible before.
    pub fn rows_of(&self, child: Option<RawDocument<'_>>) -> Vec<Row> {
        child.and_then(|child| self.rows(child).ok()).unwrap_or_default()
    }

    /// The keys of the groups that a child's rows are in, as bytes.
    pub fn groups_of(&self, child: RawDocument<'_>) -> Result<Vec<Vec<u8>>> {
        if self.keeps_shape() {
            return Ok(match self.passes(child)? {
                true => vec![key_bytes(self.key_of(child)?.as_raw())],
                false => Vec::new(),
            });
        }
        Ok(self.rows(child)?.into_iter().map(|row| row.key_bytes).collect())
    }

    /// Whether a child that passes is its own one row.
    fn keeps_shape(&self) -> bool {
        self.before.iter().all(|stage| matches!(stage, Stage::Match(_)))
    }

    fn passes(&self, child: RawDocument<'_>) -> Result<bool> {
        for stage in &self.before {
            if let Stage::Match(stage) = stage
                && !stage.filter.matches(child)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn row(&self, child: RawDocument<'_>, document: Document) -> Result<Row> {
        let key = self.key_of(document.as_raw())?;
        let child = child.get("_id").map_or(Value::Null, RawValue::to_value);
        // Of the key as a parent has it: a group is found from either side.
        let key_bytes = key_bytes(key.as_raw());
        Ok(Row { key, key_bytes, child, document })
    }

    /// The group's `_id` that a row leads to.
    fn key_of(&self, row: RawDocument<'_>) -> Result<Value> {
        let mut out = kilim_bson::Writer::new();
        self.group.append_id(&Env::new(row, Bindings::none()), &mut out)?;
        Ok(out.finish().get("_id").map_or(Value::Null, RawValue::to_value))
    }

    /// Whether two children give the same rows, as far as accumulators look.
    fn same_rows(&self, left: &[Row], right: &[Row]) -> Result<bool> {
        if left.len() != right.len() {
            return Ok(false);
        }
        let mut key = (Vec::new(), Vec::new());
        for (left, right) in left.iter().zip(right) {
            if left.key_bytes != right.key_bytes {
                return Ok(false);
            }
            key.0.clear();
            key.1.clear();
            self.inputs_of(left, &mut key.0)?;
            self.inputs_of(right, &mut key.1)?;
            if key.0 != key.1 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Everything of a row that a group's fields depend on, as bytes: types and digits count.
    fn inputs_of(&self, row: &Row, out: &mut Vec<u8>) -> Result<()> {
        let Some(inputs) = &self.inputs else {
            out.extend_from_slice(row.document.as_bytes());
            return Ok(());
        };
        for name in inputs {
            match row.document.get(name) {
                Some(value) => {
                    let mut writer = kilim_bson::Writer::new();
                    writer.append("", value);
                    out.extend_from_slice(&writer.finish_bytes());
                }
                None => out.push(0),
            }
        }
        Ok(())
    }
}

/// What a stage makes of one document.
fn expand(stage: &Stage, document: Document, out: &mut Vec<Document>) -> Result<()> {
    let env = Env::new(document.as_raw(), Bindings::none());
    match stage {
        Stage::Match(stage) => {
            if stage.filter.matches(document.as_raw())? {
                out.push(document);
            }
        }
        Stage::AddFields(stage) => out.push(stage.apply(&env)?),
        Stage::Project(stage) => out.push(stage.apply(&env)?),
        Stage::ReplaceRoot(stage) => out.push(stage.apply(&env)?),
        Stage::Unwind(stage) => unwind(stage, document, out),
        _ => return Err(Error::user(ErrorCode::PatternBadExpression, "a stage that is not of one document")),
    }
    Ok(())
}

fn unwind(stage: &Unwind, document: Document, out: &mut Vec<Document>) {
    let mut cut = Cut::default();
    let root = document.as_raw();
    match stage.find(root, &mut cut) {
        Found::Elements => out.extend((0..cut.len()).map(|element| stage.row(root, &cut, element))),
        Found::Empty if stage.preserve => out.push(stage.without(root, &cut)),
        Found::Empty => {}
        Found::Nothing if !stage.preserve => {}
        Found::Value | Found::Nothing => {
            let made = stage.unindexed(root);
            out.push(made.unwrap_or(document));
        }
    }
}
