//! Updates that are pipelines: each stage computes a new document from the one before it.

use std::cmp::Ordering;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Writer, compare};
use kilim_error::{Error, ErrorCode, Result};

use super::{change, is_index, storage, upsert};
use crate::expression::{Bindings, Dependencies, Env, Scope};
use crate::stage::{Context, Modified, Owner, Pipeline, Stage, check_nesting};
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
        // Not folded, as it is not on mongod: parts that always fail do so on the first document, if there is one.
        let pipeline = Pipeline::parse(stages, &Context::new(scope, DATABASE, Owner::Update))?;
        let touched = pipeline.stages.iter().map(touched).collect::<Option<Vec<_>>>();
        Ok(PipelineUpdate { stages: pipeline.stages, touched: touched.map(|paths| paths.concat()) })
    }

    pub fn touched(&self) -> Option<&[Box<[Box<str>]>]> {
        self.touched.as_deref()
    }

    /// The fields that stages look at, before or after others have set them.
    pub fn computes_from(&self) -> Dependencies {
        let mut needed = Dependencies::default();
        for stage in &self.stages {
            stage.behaviour().dependencies(&mut needed);
        }
        needed
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
        let after = self.run(described.as_raw())?.unwrap_or_else(|| described.clone());
        if let Some(RawValue::Array(_)) = after.get("_id") {
            return Err(storage::array_as_id("(immutable) field"));
        }
        let after = with_id_of(described.as_raw(), after)?;
        if let Some(id) = after.get("_id") {
            storage::check_id(id)?;
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
            check_nesting(made.as_raw())?;
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
    let names = |path: &str| path.split('.').filter(|name| !is_index(name)).map(Into::into).collect();
    Some(paths.paths.iter().chain(renamed).map(|path| names(path)).collect())
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Path, Value, array, doc};

    use crate::update::{Context, Update};

    fn update(stages: kilim_bson::Array) -> Update {
        Update::parse(Value::Array(stages).as_raw(), None, false).expect("a pipeline")
    }

    fn context() -> Context {
        Context {
            position: None,
            inserting: false,
            now_millis: 0,
            timestamp: kilim_bson::Timestamp::from_bits(0),
        }
    }

    #[test]
    fn what_stages_may_change_is_known() {
        let touches = |stages, path: &str| update(stages).may_touch(&Path::parse(path));
        let set = || array![{"$set": {"a.b": 1, "c": "$d"}}, {"$unset": "e"}];
        for touched in ["a", "a.b", "a.b.x", "a.0.b", "c", "e.f"] {
            assert!(touches(set(), touched), "{touched}");
        }
        for untouched in ["a.c", "d", "_id"] {
            assert!(!touches(set(), untouched), "{untouched}");
        }
        assert!(touches(array![{"$replaceWith": {"a": 1}}], "b"));
        assert!(touches(array![{"$project": {"a": 1}}], "b"));
    }

    #[test]
    fn the_id_stays_first_and_the_same() {
        let before = doc! {"_id": 1, "a": 2};
        let after = |stages| update(stages).apply(before.as_raw(), &context()).map(|applied| applied.after);
        let replaced = after(array![{"$replaceWith": {"b": "$a", "_id": 1.0}}]).expect("the same id");
        assert_eq!(replaced.expect("a change"), doc! {"_id": 1.0, "b": 2});
        let dropped = after(array![{"$unset": ["_id", "a"]}]).expect("no id");
        assert_eq!(dropped.expect("a change"), doc! {"_id": 1});
        assert!(after(array![{"$set": {"a": 2}}]).expect("no change").is_none());
        let error = after(array![{"$set": {"_id": 2}}]).expect_err("another id");
        assert_eq!(error.code(), kilim_error::ErrorCode::ImmutableField);
    }
}
