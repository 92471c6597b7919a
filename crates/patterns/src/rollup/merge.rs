//! From a group to its parent's fields.

use kilim_bson::{Document, RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Env};
use kilim_query::stage::Stage;

use super::{GroupState, Rollup};
use crate::path::{Names, get, names, put};

impl Rollup {
    /// The pipeline's result for a group. What a stage behind the group fails to compute (a share of nothing) is
    /// null.
    pub fn result_of(&self, key: RawValue<'_>, state: &GroupState) -> Result<Document> {
        let mut result = self.group_document(key, state)?;
        for stage in &self.behind {
            let env = Env::new(result.as_raw(), Bindings::none());
            let (made, names) = match stage {
                Stage::AddFields(stage) => (stage.apply(&env), stage.projection.added_names()),
                Stage::Project(stage) => {
                    let all: Vec<Box<str>> = result.iter().map(|(name, _)| name.into()).collect();
                    (stage.apply(&env), stage.projection.shown_names(&all))
                }
                _ => {
                    return Err(Error::user(
                        ErrorCode::PatternBadExpression,
                        "a stage that is not of one group",
                    ));
                }
            };
            result = match made {
                Err(Error::User(_)) => {
                    let computed = names.iter().filter(|name| &***name != "_id");
                    computed.fold(result.clone(), |result, name| {
                        put(result.as_raw(), &self::names(name), Some(RawValue::Null))
                    })
                }
                made => made?,
            };
        }
        Ok(result)
    }

    /// The parent with the group's fields; none if it has them.
    pub fn merged(
        &self,
        parent: RawDocument<'_>,
        key: RawValue<'_>,
        state: &GroupState,
    ) -> Result<Option<Document>> {
        let result = self.result_of(key, state)?;
        let made = self.with_outputs(parent, |field, _| result.get(field));
        Ok((made.as_bytes() != parent.as_bytes()).then_some(made))
    }

    /// A parent with other values in its maintained fields.
    fn with_outputs<'v>(
        &self,
        parent: RawDocument<'_>,
        value: impl Fn(&str, &Names) -> Option<RawValue<'v>>,
    ) -> Document {
        let outputs = || self.outputs.iter().zip(&self.output_names);
        if self.output_names.iter().any(|names| names.len() > 1) {
            let put = |made: Document, ((field, _), names): (&(Box<str>, Box<str>), &Names)| {
                put(made.as_raw(), names, value(field, names))
            };
            return outputs().fold(parent.to_document(), put);
        }
        // In one go: each where it stands, those that are new at the end.
        let mut out = Writer::with_capacity(parent.as_bytes().len() + 256);
        let mut met = vec![false; self.outputs.len()];
        let mut fields = parent.iter();
        while let Some((name, _, bytes)) = fields.next_with_bytes() {
            let Some(at) = self.outputs.iter().position(|(_, path)| **path == *name) else {
                out.append_elements(bytes);
                continue;
            };
            if !std::mem::replace(&mut met[at], true)
                && let Some(value) = value(&self.outputs[at].0, &self.output_names[at])
            {
                out.append(name, value);
            }
        }
        for (((field, path), names), _) in outputs().zip(met).filter(|(_, met)| !met) {
            if let Some(value) = value(field, names) {
                out.append(path, value);
            }
        }
        out.finish()
    }

    /// The after-image of a parent whose fields stay what they were: users do not write them.
    pub fn restored(&self, before: RawDocument<'_>, after: RawDocument<'_>) -> Option<Document> {
        let made = self.with_outputs(after, |_, names| get(before, names));
        (made.as_bytes() != after.as_bytes()).then_some(made)
    }

    /// The key of the group that a parent is the parent of.
    pub fn key_of_parent(&self, parent: RawDocument<'_>) -> Option<Value> {
        get(parent, &self.on_names).map(RawValue::to_value)
    }
}
