//! From a group to its parent's fields.

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Env};
use kilim_query::stage::Stage;

use super::{GroupState, Rollup};
use crate::path::{get, names, put};

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
        let mut made = parent.to_document();
        for ((field, _), names) in self.outputs.iter().zip(&self.output_names) {
            made = put(made.as_raw(), names, result.get(field));
        }
        Ok((made.as_bytes() != parent.as_bytes()).then_some(made))
    }

    /// The after-image of a parent whose fields stay what they were: users do not write them.
    pub fn restored(&self, before: RawDocument<'_>, after: RawDocument<'_>) -> Option<Document> {
        let mut made = after.to_document();
        for names in &self.output_names {
            made = put(made.as_raw(), names, get(before, names));
        }
        (made.as_bytes() != after.as_bytes()).then_some(made)
    }

    /// The key of the group that a parent is the parent of.
    pub fn key_of_parent(&self, parent: RawDocument<'_>) -> Option<Value> {
        get(parent, &self.on_names).map(RawValue::to_value)
    }
}
