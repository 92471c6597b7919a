//! `computed` over another collection, and `subset`: groups of children kept merged into their parents.
//!
//! A child gives rows: itself, or what stages before the `$group` make of it ([`Rollup::rows`]). Each group has a
//! [`GroupState`] from which its fields follow at any time. A change of a child takes the rows that it gave out of
//! their groups and puts those that it gives now in. Sums take rows out exactly; what an accumulator that
//! only keeps the best of its rows loses, it cannot know again: then the group is read anew.

mod merge;
mod state;
#[cfg(test)]
mod tests;
mod upkeep;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, encode_value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Dependencies, Env};
use kilim_query::stage::{Behaviour, Cut, Found, Group, Stage, Unwind};

pub use state::{GroupState, Outcome};
pub use upkeep::Upkeep;

#[derive(Debug, Clone)]
pub struct Rollup {
    /// The collection of the children.
    pub from: Box<str>,
    /// The parent's field that equals a group's `_id`.
    pub on: Box<str>,
    pub when_not_matched: WhenNotMatched,
    /// Stages before the group, each of one document.
    pub(crate) before: Vec<Stage>,
    pub(crate) group: Arc<Group>,
    /// Stages behind it.
    pub(crate) behind: Vec<Stage>,
    /// The result's fields, and where they go in the parent.
    pub(crate) outputs: Vec<(Box<str>, Box<str>)>,
    /// The child's field that is the group's key, where it is one.
    pub(crate) key_field: Option<Box<str>>,
    /// An order by which the best children of a group are found again: for a supporting index.
    pub(crate) order: Vec<(Box<str>, bool)>,
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
    /// What the accumulators read.
    pub document: Document,
}

impl Rollup {
    pub fn maintained_paths(&self) -> Vec<Box<str>> {
        self.outputs.iter().map(|(_, path)| path.clone()).collect()
    }

    /// The child's field by which a group's children are found; none where the key is computed.
    pub fn key_field(&self) -> Option<&str> {
        self.key_field.as_deref()
    }

    /// The parts of the index that finds a group's children, best first.
    pub fn supporting_index(&self) -> Option<Document> {
        let mut key = Document::new();
        key.push(self.key_field()?, 1);
        for (path, descending) in &self.order {
            key.push(path, if *descending { -1 } else { 1 });
        }
        Some(key)
    }

    /// What it reads of a child.
    pub fn needed_paths(&self) -> Option<Vec<Box<str>>> {
        let mut needed = Dependencies::default();
        for stage in &self.before {
            let behaviour = stage.behaviour();
            behaviour.dependencies(&mut needed);
        }
        self.group.dependencies(&mut needed);
        (!needed.whole_document).then(|| needed.fields.into_iter().collect())
    }

    /// The rows that a child gives.
    pub fn rows(&self, child: RawDocument<'_>) -> Result<Vec<Row>> {
        let mut documents = vec![child.to_document()];
        for stage in &self.before {
            let mut next = Vec::with_capacity(documents.len());
            for document in documents {
                expand(stage, document, &mut next)?;
            }
            documents = next;
        }
        documents.into_iter().map(|document| self.row(document)).collect()
    }

    fn row(&self, document: Document) -> Result<Row> {
        let env = Env::new(document.as_raw(), Bindings::none());
        let mut key_bytes = Vec::new();
        self.group.key_of(&env, &mut key_bytes)?;
        let mut out = kilim_bson::Writer::new();
        self.group.append_id(&env, &mut out)?;
        let key = out.finish().get("_id").map_or(Value::Null, RawValue::to_value);
        Ok(Row { key, key_bytes, document })
    }

    /// Whether two children give the same rows, as far as accumulators look.
    pub fn same_rows(&self, left: &[Row], right: &[Row]) -> Result<bool> {
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
        let mut needed = Dependencies::default();
        for (_, accumulator) in &self.group.fields {
            accumulator.dependencies(&mut needed);
        }
        if needed.whole_document {
            out.extend_from_slice(row.document.as_bytes());
            return Ok(());
        }
        for path in &needed.fields {
            let names = crate::path::names(path);
            match row.document.get(&names[0]) {
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

    /// The bytes of a group's key.
    pub fn key_bytes(key: RawValue<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_value(&mut bytes, key, false);
        bytes
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
