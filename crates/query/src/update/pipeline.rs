//! Updates that are pipelines: each stage computes a new document from the one before it.

use std::cmp::Ordering;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Writer, compare};
use kilim_error::{Error, ErrorCode, Result};

use super::{change, is_index, storage, upsert};
use crate::expression::{Bindings, Env, Scope};
use crate::stage::{Context, Modified, Pipeline, Place, Stage};
use crate::text;

/// Stages that name collections are refused once they are parsed, so it does not matter where those would be.
const DATABASE: &str = "update";

#[derive(Debug, Clone)]
pub(super) struct PipelineUpdate {
    stages: Vec<Stage>,
    /// The paths that stages may change, without array indexes; none where they may change all.
    touched: Option<Vec<Box<[Box<str>]>>>,
}

impl PipelineUpdate {
    pub fn parse(stages: RawArray<'_>, scope: &Scope<'_>) -> Result<PipelineUpdate> {
        let mut pipeline = Pipeline::parse(stages, &Context::new(scope, DATABASE, Place::Update))?;
        // What cannot be computed beforehand fails on the first document, if there is one: so it does on mongod.
        let _ = pipeline.fold();
        let touched = pipeline.stages.iter().map(touched).collect::<Option<Vec<_>>>();
        Ok(PipelineUpdate { stages: pipeline.stages, touched: touched.map(|paths| paths.concat()) })
    }

    pub fn touched(&self) -> Option<&[Box<[Box<str>]>]> {
        self.touched.as_deref()
    }

    /// The document after, or none where nothing changed.
    pub fn apply(&self, before: RawDocument<'_>) -> Result<Option<Document>> {
        let Some(after) = self.run(before)? else { return Ok(None) };
        // Compared as the stages left it: a pipeline that drops the `_id` counts as a change.
        if after.as_bytes() == before.as_bytes() {
            return Ok(None);
        }
        if let Some(id) = after.get("_id") {
            storage::check_id(id)?;
        }
        let after = with_id_of(before, after)?;
        check_storable(after.as_raw())?;
        Ok(Some(after))
    }

    /// The document to insert, made of the one that the filter describes.
    pub fn insert(&self, described: Document) -> Result<Document> {
        let after = match self.run(described.as_raw())? {
            Some(after) => with_id_of(described.as_raw(), after)?,
            None => described,
        };
        match after.get("_id") {
            Some(RawValue::Array(_)) => return Err(storage::array_as_id("(immutable) field")),
            Some(id) => storage::check_id(id)?,
            None => {}
        }
        let after = upsert::with_id_first(after.as_raw())?;
        check_storable(after.as_raw())?;
        Ok(after)
    }

    /// What the stages make of a document; none where there are no stages.
    fn run(&self, before: RawDocument<'_>) -> Result<Option<Document>> {
        let mut current: Option<Document> = None;
        for stage in &self.stages {
            let input = current.as_ref().map_or(before, Document::as_raw);
            let env = Env::new(input, Bindings::none());
            let made = match stage {
                Stage::Project(stage) => stage.apply(&env)?,
                Stage::AddFields(stage) => stage.apply(&env)?,
                Stage::ReplaceRoot(stage) => stage.apply(&env)?,
                _ => return Err(Error::bug("a stage that an update cannot run")),
            };
            current = Some(made);
        }
        Ok(current)
    }
}

/// The document with its `_id` first: its own if that is the same, else the one it had.
fn with_id_of(before: RawDocument<'_>, after: Document) -> Result<Document> {
    let mut fields = after.iter();
    let first = fields.next();
    let own = match first {
        Some(("_id", id)) => Some(id),
        _ => after.get("_id"),
    };
    let Some(id) = before.get("_id") else { return Ok(after) };
    if let Some(own) = own
        && compare(own, id) != Ordering::Equal
    {
        let message = format!(
            "After applying the update, the (immutable) field '_id' was found to have been altered to {}",
            text::element("_id", own)
        );
        return Err(Error::user(ErrorCode::ImmutableField, message));
    }
    if matches!(first, Some(("_id", _))) {
        return Ok(after);
    }
    let mut writer = Writer::with_capacity(after.as_bytes().len() + 32);
    writer.append("_id", own.unwrap_or(id));
    let mut fields = after.iter();
    while let Some((name, _, bytes)) = fields.next_with_bytes() {
        if name != "_id" {
            writer.append_elements(bytes);
        }
    }
    Ok(writer.finish())
}

fn check_storable(document: RawDocument<'_>) -> Result<()> {
    change::check_size(document)?;
    storage::check_depth(RawValue::Document(document), 0)
}

/// The paths that a stage may change; none where it may change all.
fn touched(stage: &Stage) -> Option<Vec<Box<[Box<str>]>>> {
    let Modified::Paths(paths) = stage.behaviour().modified() else { return None };
    let renamed = paths.renamed.iter().map(|(new, _)| new);
    let names = |path: &Box<str>| path.split('.').filter(|name| !is_index(name)).map(Into::into).collect();
    Some(paths.paths.iter().chain(renamed).map(names).collect())
}
