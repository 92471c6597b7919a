//! What a command is about: what its namespace is the name of, looked up once for all that follows from it.

use std::sync::Arc;

use kilim_bson::RawDocument;
use kilim_collation::Collation;
use kilim_engine::Namespace;
use kilim_engine::catalog::{Collection, SYSTEM_VIEWS, View};
use kilim_error::{Error, ErrorCode, Result};

use crate::dispatch::Call;

pub enum About {
    Collection(Arc<Collection>),
    View(Arc<View>),
    /// The collection that lists the views.
    Views,
    /// A name that nothing has yet, or a database.
    Nothing,
}

impl About {
    pub fn of(call: &mut Call<'_, '_>, namespace: &Namespace) -> Result<About> {
        if let Some(collection) = call.unit.collection(namespace)? {
            return Ok(About::Collection(collection));
        }
        Ok(match call.engine.view(namespace) {
            Some(view) => About::View(view),
            None if namespace.collection == SYSTEM_VIEWS => About::Views,
            None => About::Nothing,
        })
    }

    /// What a command's first field names. Where that is no name, the command itself tells.
    pub fn of_command(call: &mut Call<'_, '_>, command: RawDocument<'_>) -> Result<About> {
        let name = command.iter().next().and_then(|(_, value)| value.as_str());
        match name.map(|collection| Namespace::parse(call.generic.database, collection)) {
            Some(Ok(namespace)) => About::of(call, &namespace),
            _ => Ok(About::Nothing),
        }
    }

    /// Whether it is read by a pipeline.
    pub fn is_piped(&self) -> bool {
        matches!(self, About::View(_) | About::Views)
    }

    /// The collation that a command runs under: the one that it names itself, else that of what it is about.
    pub fn collation(&self, named: Option<Option<Collation>>) -> Result<Option<Collation>> {
        match self {
            About::Collection(collection) => Ok(named.unwrap_or_else(|| collection.collation.clone())),
            About::View(view) if view.time_series.is_some() => {
                Ok(named.unwrap_or_else(|| view.collation.clone()))
            }
            About::View(view) if named.as_ref().is_some_and(|named| *named != view.collation) => {
                Err(Error::user(
                    ErrorCode::OptionNotSupportedOnView,
                    "Cannot override a view's default collation",
                ))
            }
            About::View(view) => Ok(view.collation.clone()),
            About::Views | About::Nothing => Ok(named.flatten()),
        }
    }
}
