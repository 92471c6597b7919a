//! From a group to its parent's fields.

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Env};
use kilim_query::stage::Stage;

use super::{GroupState, Rollup};
use crate::path::{get, names, put};

impl Rollup {
    /// The pipeline's result for a group.
    pub fn result_of(&self, key: RawValue<'_>, state: &GroupState) -> Result<Document> {
        let mut result = self.group_document(key, state)?;
        for stage in &self.behind {
            let env = Env::new(result.as_raw(), Bindings::none());
            result = match stage {
                Stage::AddFields(stage) => stage.apply(&env)?,
                Stage::Project(stage) => stage.apply(&env)?,
                _ => {
                    return Err(Error::user(
                        ErrorCode::PatternBadExpression,
                        "a stage that is not of one group",
                    ));
                }
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
        let mut made = parent.to_document();
        for (field, path) in &self.outputs {
            made = put(made.as_raw(), &names(path), result.get(field));
        }
        Ok((made.as_bytes() != parent.as_bytes()).then_some(made))
    }

    /// The after-image of a parent whose fields stay what they were: users do not write them.
    pub fn restored(&self, before: RawDocument<'_>, after: RawDocument<'_>) -> Option<Document> {
        let mut made = after.to_document();
        for (_, path) in &self.outputs {
            let names = names(path);
            made = put(made.as_raw(), &names, get(before, &names));
        }
        (made.as_bytes() != after.as_bytes()).then_some(made)
    }

    /// The key of the group that a parent is the parent of.
    pub fn key_of_parent(&self, parent: RawDocument<'_>) -> Option<Value> {
        get(parent, &names(&self.on)).map(RawValue::to_value)
    }
}
