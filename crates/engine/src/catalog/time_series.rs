//! Time-series collections: a collection of buckets, and its measurements under a name of their own.
//!
//! The collection `system.buckets.X` holds documents as any other does. `X` is a view of it whose pipeline unpacks them, so
//! reads, plans, dumps and checks need nothing of their own. The view follows from the collection's options and is stored
//! nowhere: one commit makes both, and one drops both.

use std::sync::Arc;

use kilim_bson::{Array, Document, Path, RawDocument, RawValue, Value, doc};
use kilim_query::time_series::{META, TimeSeries};
use kilim_storage::Snapshot;

use super::{Collection, View};

/// What a collection's options say of its buckets.
pub(crate) fn of(options: RawDocument<'_>) -> Option<Arc<TimeSeries>> {
    TimeSeries::decode(options.get("timeseries").and_then(RawValue::as_document)?).map(Arc::new)
}

impl View {
    /// The measurements of a collection of buckets.
    pub(crate) fn of_buckets(collection: &Collection) -> Option<View> {
        let series = collection.time_series.as_ref()?;
        let namespace = collection.namespace.of_measurements()?;
        let pipeline: Array = [Value::Document(series.unpacking())].into_iter().collect();
        let on = &collection.namespace.collection;
        let mut view = View::new(namespace, on, pipeline, collection.collation.clone()).ok()?;
        view.time_series = Some(series.clone());
        Some(view)
    }
}

/// The options of the collection of buckets: those that `create` was given, and what follows from them. As on MongoDB.
pub fn bucket_options(series: &TimeSeries, given: RawDocument<'_>) -> Document {
    let time = &*series.time_field;
    let bounds = || {
        let mut properties = Document::new();
        properties.push(time, doc! {"bsonType": "date"});
        doc! {"bsonType": "object", "required": vec![Value::from(time)], "properties": properties}
    };
    let mut control = doc! {"version": {"bsonType": "number"}};
    control.push("min", bounds());
    control.push("max", bounds());
    control.push("closed", doc! {"bsonType": "bool"});
    let names = |names: &[&str]| names.iter().map(|name| Value::from(*name)).collect::<Vec<Value>>();
    let mut fields = doc! {"_id": {"bsonType": "objectId"}};
    fields.push(
        "control",
        doc! {"bsonType": "object", "required": names(&["version", "min", "max"]), "properties": control},
    );
    fields.push("data", doc! {"bsonType": "object"});
    fields.push(META, Document::new());
    let schema = doc! {
        "bsonType": "object",
        "required": names(&["_id", "control", "data"]),
        "properties": fields,
        "additionalProperties": false,
    };
    let mut options = doc! {"validator": {"$jsonSchema": schema}};
    if let Some(collation) = given.get("collation") {
        options.push("collation", collation);
    }
    options.push("clusteredIndex", true);
    if let Some(seconds) = given.get("expireAfterSeconds") {
        options.push("expireAfterSeconds", seconds);
    }
    options.push("timeseries", series.to_document());
    options
}

/// Of the options of a collection of buckets those that its measurements are shown with.
pub(super) fn shown_options(buckets: RawDocument<'_>) -> Document {
    let shown = ["collation", "expireAfterSeconds", "timeseries"];
    let given = shown.iter().filter_map(|name| Some((*name, buckets.get(name)?.to_value())));
    given.collect()
}

impl Collection {
    /// Paths in measurements whose bounds tell of all values between them, in every bucket that a snapshot has: those that
    /// indexes are over.
    pub(crate) fn measured_paths(&self, snapshot: &Snapshot) -> Vec<Path> {
        let ready = self.indexes.iter().filter(|index| index.ready_since <= snapshot.commit_time());
        let over = ready.filter_map(|index| index.spec.measurements.as_ref());
        over.flat_map(|over| over.paths().iter().cloned()).collect()
    }

    /// Paths of places in measurements that indexes are over, in a snapshot.
    pub(crate) fn measured_places(&self, snapshot: &Snapshot) -> Vec<Path> {
        let ready = self.indexes.iter().filter(|index| index.ready_since <= snapshot.commit_time());
        let over = ready.filter_map(|index| index.spec.measurements.as_ref());
        over.flat_map(|over| over.places().iter().cloned()).collect()
    }

    /// The options of the time-series collection that it holds the buckets of.
    pub fn measurement_options(&self) -> Document {
        shown_options(self.options.as_raw())
    }
}
