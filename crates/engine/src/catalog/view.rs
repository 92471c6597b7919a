//! Views: pipelines with a name, read as if they were collections.
//!
//! A view holds nothing: whoever reads it runs its pipeline over what it is on, which may be a view again.
//! Definitions are part of the catalog, and change under the same lock as collections do.
//!
//! Invariant: views do not read each other in a circle, nor deeper than [`DEPTH_MAX`].

use std::sync::Arc;

use kilim_bson::{Array, Document, RawArray, RawDocument, RawValue, Timestamp, Value, doc};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::names;
use kilim_query::stage::{self, Context, Flow, Owner, Pipeline, Stage};
use kilim_query::time_series::TimeSeries;

use super::{Catalog, Collection};
use crate::index::collation_of;
use crate::namespace::Namespace;

/// Views on views, as on MongoDB.
pub const DEPTH_MAX: usize = 20;

/// The collection in which MongoDB keeps a database's views. Here it is only read, and made up.
pub const SYSTEM_VIEWS: &str = "system.views";

/// One view at one moment.
#[derive(Debug, Clone)]
pub struct View {
    pub namespace: Namespace,
    /// The collection or view below, of the same database.
    pub on: Namespace,
    /// As it was given.
    pub pipeline: Array,
    /// How texts compare in what it reads, and for whoever reads it.
    pub collation: Option<Collation>,
    /// It shows the buckets of a collection that a pattern packs.
    pub shows_packed: bool,
    /// What it shows, where it is a time-series collection: the measurements of buckets.
    pub time_series: Option<Arc<TimeSeries>>,
    /// That of its database's `system.views`, which tokens of its events carry. Views of earlier versions have none.
    pub uuid: Option<[u8; 16]>,
    /// All that it reads.
    reads: Vec<Namespace>,
}

impl View {
    /// Checks the pipeline, but not yet how the view stands to others.
    pub fn new(
        namespace: Namespace,
        on: &str,
        pipeline: Array,
        collation: Option<Collation>,
    ) -> Result<View> {
        let on = Namespace { database: namespace.database.clone(), collection: on.to_owned() };
        let invalid = |error| invalid_pipeline(&namespace, error);
        check_stages(&namespace, pipeline.as_raw()).map_err(invalid)?;
        let mut view = View {
            namespace: namespace.clone(),
            on,
            pipeline,
            collation,
            shows_packed: false,
            time_series: None,
            uuid: None,
            reads: Vec::new(),
        };
        let variables = Variables::at(0, Timestamp::from_bits(0));
        let mut reads = vec![view.on.clone()];
        view.parse(&variables).map_err(invalid)?.collections(&mut |database, collection| {
            reads.push(Namespace { database: database.to_owned(), collection: collection.to_owned() });
        });
        view.reads = reads;
        Ok(view)
    }

    pub fn parse(&self, variables: &Variables) -> Result<Pipeline> {
        let scope = Scope::new(variables);
        let context = Context::new(&scope, &self.namespace.database, Owner::View);
        let mut pipeline = Pipeline::parse(self.pipeline.as_raw(), &context)?;
        if let (Some(_), None, Some(Stage::UnpackBucket(stage))) =
            (&self.time_series, &self.collation, pipeline.stages.first_mut())
        {
            Arc::make_mut(stage).texts_by_bytes = true;
        }
        Ok(pipeline)
    }

    /// Refuses what mongod does not let a view stand on.
    pub fn check_on(&self) -> Result<()> {
        let Namespace { database, collection } = &self.on;
        names::check_parts(database, collection)?;
        match collection.contains('$') {
            true => Err(Error::user(
                ErrorCode::InvalidNamespace,
                format!("invalid name for 'viewOn': {collection}"),
            )),
            false => Ok(()),
        }
    }

    /// The `options` of listCollections, and but for its name the document in `system.views`.
    pub fn options(&self) -> Document {
        let mut options = doc! {"viewOn": &self.on.collection};
        options.push("pipeline", Value::Array(self.pipeline.clone()));
        if let Some(collation) = &self.collation {
            options.push("collation", collation.to_document());
        }
        options
    }

    /// As `system.views` has it.
    pub fn to_document(&self) -> Document {
        let mut document = doc! {"_id": self.namespace.to_string()};
        for (name, value) in self.options().iter() {
            document.push(name, value.to_value());
        }
        document
    }

    /// What `meta` holds: the document of `system.views`, and the UUID.
    pub(crate) fn to_stored(&self) -> Document {
        let mut document = self.to_document();
        if let Some(uuid) = self.uuid {
            document.push(UUID, Value::Binary { subtype: 4, bytes: uuid.into() });
        }
        document
    }

    /// Reads back what `meta` holds.
    pub(crate) fn decode(document: RawDocument<'_>) -> Option<View> {
        let (database, collection) = document.get("_id")?.as_str()?.split_once('.')?;
        let namespace = Namespace { database: database.to_owned(), collection: collection.to_owned() };
        let on = document.get("viewOn")?.as_str()?;
        let pipeline = document.get("pipeline")?.as_array()?.to_array();
        let collation = collation_of(document).ok()?;
        let uuid = match document.get(UUID) {
            Some(RawValue::Binary { bytes, .. }) => Some(bytes.try_into().ok()?),
            _ => None,
        };
        let checked = View::new(namespace.clone(), on, pipeline.clone(), collation.clone());
        // An earlier version may have accepted what is refused now. Such a view must be there to be dropped; reading it
        // parses the pipeline again and fails.
        let view = checked.unwrap_or_else(|_| {
            let on = Namespace { database: namespace.database.clone(), collection: on.to_owned() };
            View {
                reads: vec![on.clone()],
                namespace,
                on,
                pipeline,
                collation,
                shows_packed: false,
                time_series: None,
                uuid,
            }
        });
        Some(View { uuid, ..view })
    }
}

/// The field of a stored view that `system.views` does not show. On disk.
const UUID: &str = "uuid";

impl Catalog {
    /// The UUID of a database's `system.views`, if there is a view that has it.
    pub fn views_uuid(&self, database: &str) -> Option<[u8; 16]> {
        self.database_views(database).find_map(|view| view.uuid)
    }

    /// Refuses a view that would read itself, or stand too high.
    pub(crate) fn check_view(&self, view: &View) -> Result<()> {
        let mut path = vec![view.namespace.clone()];
        let below = self.depth_below(view, view, &mut path)?;
        let above = self.depth_above(&view.namespace, DEPTH_MAX);
        if below + above + 1 > DEPTH_MAX {
            return Err(Error::user(
                ErrorCode::ViewDepthLimitExceeded,
                format!("View depth limit exceeded; maximum depth is {DEPTH_MAX}"),
            ));
        }
        // A pipeline has one collation throughout.
        let below = view.reads.iter().filter_map(|name| self.view(name));
        let above = self.views().filter(|other| other.reads.contains(&view.namespace));
        match below.chain(above).find(|other| other.collation != view.collation) {
            None => Ok(()),
            Some(other) => Err(Error::user(
                ErrorCode::OptionNotSupportedOnView,
                format!("View {} has conflicting collation with view {}", view.namespace, other.namespace),
            )),
        }
    }

    /// How many views lie below `from`, on the longest way.
    fn depth_below(&self, start: &View, from: &View, path: &mut Vec<Namespace>) -> Result<usize> {
        let mut deepest = 0;
        for next in &from.reads {
            if *next == start.namespace {
                let shown: Vec<String> =
                    std::iter::once(next).chain(&*path).chain([next]).map(Namespace::to_string).collect();
                return Err(Error::user(
                    ErrorCode::GraphContainsCycle,
                    format!("View cycle detected: {}", shown.join(" => ")),
                ));
            }
            let Some(view) = self.view(next) else { continue };
            // Those that are there form no circle, so this ends.
            path.push(next.clone());
            deepest = deepest.max(1 + self.depth_below(start, view, path)?);
            path.pop();
        }
        Ok(deepest)
    }

    /// How many views lie above, on the longest way; no more than `most` are counted.
    fn depth_above(&self, namespace: &Namespace, most: usize) -> usize {
        if most == 0 {
            return 0;
        }
        let readers = self.views().filter(|view| view.reads.contains(namespace));
        readers.map(|view| 1 + self.depth_above(&view.namespace, most - 1)).max().unwrap_or(0)
    }
}

fn invalid_pipeline(view: &Namespace, error: Error) -> Error {
    match error {
        Error::User(mut user) => {
            user.message = format!("Invalid pipeline for view {view} :: caused by :: {}", user.message);
            Error::User(user)
        }
        other => other,
    }
}

/// Refuses stages that no view may have, wherever they stand.
fn check_stages(view: &Namespace, stages: RawArray<'_>) -> Result<()> {
    for (at, stage) in stages.iter().enumerate() {
        let name = stage.as_document().and_then(|stage| stage.iter().next()).map(|(name, _)| name);
        let Some(definition) = name.and_then(stage::find) else { continue };
        let name = definition.name;
        if definition.flow == Flow::Writes {
            return Err(Error::user(
                ErrorCode::OptionNotSupportedOnView,
                format!(
                    "The aggregation stage {name} in location {at} of the pipeline cannot be used in the view \
                     definition of {view} because it writes to disk"
                ),
            ));
        }
        if let Some((code, message)) = definition.refused_in_view {
            return Err(Error::user(code, message));
        }
    }
    Ok(())
}

impl View {
    /// The buckets of a collection whose measurements are packed.
    pub(super) fn of_packed(collection: &Collection) -> Option<View> {
        collection.shape.bucketing()?;
        let stage: Value = doc! {"$_internalPackedBuckets": {}}.into();
        let pipeline: Array = [stage].into_iter().collect();
        let on = &collection.namespace.collection;
        let view =
            View::new(collection.namespace.of_packed(), on, pipeline, collection.collation.clone()).ok()?;
        Some(View { shows_packed: true, ..view })
    }

    /// The refusal of what only a collection can do.
    pub fn is_no_collection(&self) -> Error {
        let namespace = &self.namespace;
        if self.shows_packed {
            return Error::user(
                ErrorCode::CollectionOwnedByPattern,
                format!(
                    "{namespace} shows the buckets of {}, which a pattern packs: ask and change the measurements there",
                    self.on
                ),
            );
        }
        let message = match self.time_series {
            Some(_) => format!("Namespace {namespace} is a timeseries collection"),
            None => format!("Namespace {namespace} is a view, not a collection"),
        };
        Error::user(ErrorCode::CommandNotSupportedOnView, message)
    }
}
