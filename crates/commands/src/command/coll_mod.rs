//! `collMod`: hide or show an index, make it unique, change when documents expire, change a view.

use std::sync::Arc;

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, doc};
use kilim_engine::build::Conversion;
use kilim_engine::catalog::{Collection, View};
use kilim_engine::index::{Index, IndexSpec};
use kilim_engine::{Modification, Namespace};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::stage::Pipeline;
use kilim_query::text::document as shell_text;
use kilim_query::time_series::{Bucketing, TimeSeries};

use super::collection_options::{CollectionOptions, Expires, check_images};
use super::expiry::seconds_of_clustered;
use super::time_series;
use super::update::now_ms;
use super::{create, expiry};
use crate::argument::{Argument, arguments, check_not_null, nested};
use crate::dispatch::Call;

const NAME: &str = "collMod";
const INDEX: &str = "collMod.index";
const EXPIRES_TYPES: &str = "types '[string, long']";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.expect(NAME, &namespace)?;
    call.describe("command");
    let (mut index, mut on, mut pipeline) = (None, None, None);
    let mut bucketing = None;
    let mut conversion = Conversion::Real;
    let mut options = CollectionOptions::default();
    check_not_null(NAME, call.body, &["expireAfterSeconds"], EXPIRES_TYPES)?;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "index" => index = Some(argument.document()?),
            "dryRun" if argument.boolean()? => conversion = Conversion::DryRun,
            "dryRun" => {}
            "collectionUUID" => drop(argument.uuid()?),
            "viewOn" => on = Some(argument.string()?),
            "pipeline" => pipeline = Some(create::stages(&argument)?),
            _ if options.take(&argument)? => {}
            "expireAfterSeconds" => options.expires = Some(parse_expires(&argument)?),
            "timeseries" => bucketing = Some(parse_bucketing(&argument)?),
            _ => return Err(argument.unknown()),
        }
    }
    if options.images == Some(true) {
        check_images(&namespace)?;
    }
    let found = call.engine.collection(&namespace);
    call.engine.check_expected(&call.operation, &namespace, found.as_deref())?;
    if let Some(view) = time_series::of(call, &namespace) {
        if pipeline.is_some() || on.is_some() {
            let option = if pipeline.is_some() { "pipeline" } else { "viewOn" };
            return Err(invalid(format!("option only supported on a view: {option}")));
        }
        if conversion == Conversion::DryRun {
            return Err(invalid("dry run mode requires an index modification with unique: true."));
        }
        if let Some(option) = options.first_given().filter(|option| *option != "expireAfterSeconds") {
            return Err(invalid(format!("option not supported on a time-series collection: {option}")));
        }
        let changes = match index {
            Some(index) => modify_index_of_measurements(call, &view, index)?,
            None => Document::new(),
        };
        modify_time_series(call, &view, &options, bucketing.flatten())?;
        return Ok(changes);
    }
    // The collection that holds the buckets may be named too. Nothing more can be changed of it than by the other name.
    let of_buckets = time_series::of_either(call, &namespace);
    if bucketing.is_some() && of_buckets.is_none() {
        return Err(invalid("option only supported on a time-series collection: isTimeseriesNamespace"));
    }
    if let Some(view) = call.engine.view(&namespace) {
        if index.is_some() {
            return Err(invalid("option not supported on a view: index"));
        }
        if let Some(option) = options.first_given() {
            return Err(invalid(format!("option not supported on a view: {option}")));
        }
        return modify_view(call, &view, on, pipeline);
    }
    let Some(collection) = found else {
        return Err(Error::user(ErrorCode::NamespaceNotFound, "ns does not exist"));
    };
    if pipeline.is_some() || on.is_some() {
        let option = if pipeline.is_some() { "pipeline" } else { "viewOn" };
        return Err(invalid(format!("option only supported on a view: {option}")));
    }
    if options.resizes() && collection.capped.is_none() {
        return Err(invalid("Collection must be capped."));
    }
    if of_buckets.is_some()
        && let Some(option) = options.first_given().filter(|option| *option != "expireAfterSeconds")
    {
        return Err(invalid(format!("option not supported on a time-series collection: {option}")));
    }
    if options.expires.is_some() && !collection.clustered {
        return Err(invalid("'expireAfterSeconds' option is only supported on collections clustered by _id"));
    }
    let change = match index {
        None if conversion == Conversion::DryRun => {
            return Err(invalid("dry run mode requires an valid index modification."));
        }
        None => None,
        Some(index) => {
            let change = find_index(call, &namespace, &collection, index, conversion)?;
            if conversion == Conversion::DryRun {
                return Ok(Document::new());
            }
            Some(change)
        }
    };
    if let (Some(view), Some(bucketing)) = (of_buckets, bucketing) {
        modify_time_series(call, &view, &CollectionOptions::default(), bucketing)?;
    }
    modify(call, &namespace, change, &options)
}

/// Changes an index over measurements.
fn modify_index_of_measurements(
    call: &Call<'_, '_>,
    view: &View,
    index: RawDocument<'_>,
) -> Result<Document> {
    let (Some(series), Some(buckets)) = (&view.time_series, call.engine.collection(&view.on)) else {
        return Err(Error::user(ErrorCode::NamespaceNotFound, "ns does not exist"));
    };
    let index = time_series::index_change_of_buckets(series, index)?;
    let change = find_index(call, &view.on, &buckets, index.as_raw(), Conversion::Real)?;
    modify(call, &view.on, Some(change), &CollectionOptions::default())
}

/// What `timeseries` says of buckets.
fn parse_bucketing(argument: &Argument<'_>) -> Result<Option<Bucketing>> {
    let mut asked = time_series::AskedBucketing::default();
    for field in nested("collMod.timeseries", argument.document()?) {
        if !asked.take(&field)? {
            return Err(field.unknown());
        }
    }
    asked.bucketing()
}

/// Lets buckets span more time, or changes when they expire. They cannot span less: those that are there span as much as
/// they do, and searches rely on a bound.
fn modify_time_series(
    call: &Call<'_, '_>,
    view: &View,
    options: &CollectionOptions<'_>,
    bucketing: Option<Bucketing>,
) -> Result<Document> {
    let make_options = |old: RawDocument<'_>| {
        let changed = options.over(old);
        let series = old.get("timeseries").and_then(RawValue::as_document).and_then(TimeSeries::decode);
        let (Some(bucketing), Some(series)) = (bucketing, series) else { return Ok(changed) };
        if !bucketing.widens(series.bucketing) {
            return Err(invalid(match (bucketing, series.bucketing) {
                (Bucketing::By(_), Bucketing::By(_)) => {
                    "Invalid transition for timeseries.granularity. Can only transition from 'seconds' to 'minutes' or \
                     'minutes' to 'hours'."
                }
                _ => {
                    "Invalid transition for timeseries: bucketMaxSpanSeconds and bucketRoundingSeconds cannot be decreased"
                }
            }));
        }
        let series = TimeSeries { bucketing, ..series };
        let fields = changed.iter().map(|(name, value)| match name {
            "timeseries" => (name, Value::Document(series.to_document())),
            _ => (name, value.to_value()),
        });
        Ok(fields.collect())
    };
    let mut asked = Modification { options: Some(&make_options), ..Modification::default() };
    options.describe_in(&mut asked.description);
    call.engine.modify_collection(&call.operation, &view.on, &asked).map(|()| Document::new())
}

/// After how many seconds the documents of a clustered collection go, or that they stay.
fn parse_expires(argument: &Argument<'_>) -> Result<Expires> {
    match argument.value {
        RawValue::String("off") => Ok(Expires::Never),
        RawValue::String(other) => Err(invalid(format!(
            "Invalid string value for the 'clusteredIndex::expireAfterSeconds' option. Got: '{other}'. Accepted value is \
             'off'"
        ))),
        value if value.is_number() => {
            seconds_of_clustered(argument.integer()?, now_ms()).map(Expires::AfterSeconds)
        }
        _ => Err(argument.wrong_type(EXPIRES_TYPES)),
    }
}

/// The index that is to change, and the change. An index that is to be unique is made so here, in a commit of its own.
fn find_index<'a>(
    call: &Call<'_, '_>,
    namespace: &Namespace,
    collection: &Collection,
    index: RawDocument<'a>,
    conversion: Conversion,
) -> Result<(Arc<Index>, Change<'a>, Document)> {
    let change = Change::parse(index)?;
    let (found, what) = match (change.name, change.key) {
        (Some(name), None) => (collection.index_named(name), name.to_owned()),
        (None, Some(key)) => {
            (collection.indexes.iter().find(|index| index.spec.has_key(key)), shell_text(key))
        }
        (Some(_), Some(_)) => return Err(invalid("Cannot specify both key pattern and name.")),
        (None, None) => return Err(invalid("Must specify either index name or key pattern.")),
    };
    let Some(found) = found else {
        let message = format!("cannot find index {what} for ns {namespace}");
        return Err(Error::user(ErrorCode::IndexNotFound, message));
    };
    if collection.clustered && found.is_id() {
        return Err(match change.hidden {
            Some(_) => {
                Error::location(6_011_800, "The 'hidden' option is not supported for a clusteredIndex")
            }
            None => {
                let message = format!("cannot find index {what} for ns {namespace}");
                Error::user(ErrorCode::IndexNotFound, message)
            }
        });
    }
    let reply = change.reply(&found.spec)?;
    if change.hidden == Some(true) {
        call.engine.check_may_hide(collection, found.id)?;
    }
    if conversion == Conversion::DryRun && !change.unique {
        return Err(invalid("dry run mode requires an index modification with unique: true."));
    }
    if change.unique && !found.spec.unique {
        call.engine.make_unique(&call.operation, namespace, found, conversion)?;
    }
    // One that became unique is another index by now.
    let now = match change.unique {
        true => call.engine.collection(namespace).and_then(|now| now.index_named(&found.spec.name).cloned()),
        false => None,
    };
    Ok((now.unwrap_or_else(|| found.clone()), change, reply))
}

/// Changes an index and options in one commit, whose event says what was asked.
fn modify(
    call: &Call<'_, '_>,
    namespace: &Namespace,
    index: Option<(Arc<Index>, Change<'_>, Document)>,
    options: &CollectionOptions<'_>,
) -> Result<Document> {
    const PARSING: &str = "Parsing of collection validator failed";
    let mut asked = Modification::default();
    let (make_options, change_spec);
    let mut reply = Document::new();
    if let Some((index, change, changes)) = index {
        reply = changes;
        if !reply.is_empty() {
            let (after, before) = described(&index.spec.name, reply.as_raw());
            asked.description.push("index", after);
            asked.index_before = Some(before);
            change_spec = move |spec: &mut IndexSpec| change.apply_to(spec);
            asked.index = Some((index.id, &change_spec));
        }
    }
    let given = options.first_given();
    if given.is_some() {
        make_options = |old: RawDocument<'_>| Ok(options.spelt_out_over(old));
        asked.options = Some(&make_options);
        options.describe_in(&mut asked.description);
    }
    match call.engine.modify_collection(&call.operation, namespace, &asked) {
        Err(error) if given.is_some() => Err(match (options.validator, options.validation_level) {
            (Some(_), _) => error.during(PARSING),
            (None, Some(_)) => error.during(PARSING).during("Failed to set validationLevel"),
            (None, None) => error.during(PARSING).during("Failed to set validationAction"),
        }),
        modified => modified.map(|()| reply),
    }
}

/// What the event says of an index, and of its state before: the reply's fields that end in `_new` and `_old`.
fn described(name: &str, reply: RawDocument<'_>) -> (Document, Document) {
    let mut after = doc! {"name": name};
    let mut before = Document::new();
    for (field, value) in reply.iter() {
        if let Some(field) = field.strip_suffix("_new") {
            after.push(field, value);
        } else if let Some(field) = field.strip_suffix("_old") {
            before.push(field, value);
        }
    }
    (after, before)
}

/// Gives a view another definition, or a part of one.
fn modify_view(
    call: &Call<'_, '_>,
    view: &View,
    on: Option<&str>,
    pipeline: Option<Array>,
) -> Result<Document> {
    let on = on.unwrap_or(&view.on.collection);
    if on.is_empty() {
        return Err(Error::user(ErrorCode::BadValue, "'viewOn' cannot be empty"));
    }
    let pipeline = pipeline.unwrap_or_else(|| view.pipeline.clone());
    Pipeline::glance(pipeline.as_raw(), &view.namespace.database)?;
    let changed = View::new(view.namespace.clone(), on, pipeline, view.collation.clone())?;
    call.engine.modify_view(changed)?;
    Ok(Document::new())
}

fn invalid(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::InvalidOptions, message)
}

#[derive(Default)]
struct Change<'a> {
    name: Option<&'a str>,
    key: Option<RawDocument<'a>>,
    hidden: Option<bool>,
    expire_after_seconds: Option<i32>,
    prepare_unique: Option<bool>,
    unique: bool,
}

impl<'a> Change<'a> {
    fn parse(document: RawDocument<'a>) -> Result<Change<'a>> {
        let mut change = Change::default();
        let mut given = false;
        for argument in nested(INDEX, document) {
            match argument.name {
                "name" => change.name = Some(argument.string()?),
                "keyPattern" => change.key = Some(argument.document()?),
                "hidden" => change.hidden = Some(argument.boolean()?),
                "expireAfterSeconds" => {
                    argument.double()?;
                    change.expire_after_seconds =
                        Some(expiry::at_most_ever(argument.value).map_err(invalid)?);
                }
                "prepareUnique" => change.prepare_unique = Some(argument.boolean()?),
                "unique" => {
                    given = true;
                    change.unique = argument.boolean()?;
                }
                "forceNonUnique" => return Err(argument.unsupported()),
                _ => return Err(argument.unknown()),
            }
        }
        if given && !change.unique {
            return Err(Error::user(ErrorCode::BadValue, "Cannot make index non-unique"));
        }
        let others = change.hidden.is_some() || change.prepare_unique.is_some();
        if !given && !others && change.expire_after_seconds.is_none() {
            return Err(invalid("no expireAfterSeconds, hidden, unique, or prepareUnique field"));
        }
        Ok(change)
    }

    fn apply_to(&self, spec: &mut IndexSpec) {
        spec.hidden = self.hidden.unwrap_or(spec.hidden);
        spec.expire_after_seconds = self.expire_after_seconds.or(spec.expire_after_seconds);
        spec.prepare_unique = self.prepare_unique.unwrap_or(spec.prepare_unique) && !spec.unique;
    }

    /// What it changes of an index, before and after; empty where nothing.
    fn reply(&self, spec: &IndexSpec) -> Result<Document> {
        let is_id = spec.name == "_id_";
        let mut reply = Document::new();
        if let Some(seconds) = self.expire_after_seconds {
            if is_id {
                return Err(invalid("the _id field does not support TTL indexes"));
            }
            if spec.key.len() > 1 {
                return Err(invalid(expiry::COMPOUND));
            }
            if let Some(old) = spec.expire_after_seconds {
                reply.push("expireAfterSeconds_old", i64::from(old));
            }
            reply.push("expireAfterSeconds_new", i64::from(seconds));
        }
        if let Some(hidden) = self.hidden {
            if is_id {
                return Err(Error::user(ErrorCode::BadValue, "can't hide _id index"));
            }
            if hidden != spec.hidden {
                reply.push("hidden_old", spec.hidden);
                reply.push("hidden_new", hidden);
            }
        }
        if self.unique && !spec.unique {
            if !spec.prepare_unique {
                return Err(invalid(
                    "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first.",
                ));
            }
            reply.push("unique_new", true);
        }
        if let Some(prepare) = self.prepare_unique
            && prepare != spec.prepare_unique
            && !spec.unique
        {
            if prepare && (self.hidden.is_some() || self.expire_after_seconds.is_some()) {
                return Err(invalid("prepareUnique cannot be combined with any other modification."));
            }
            if prepare && !spec.has_ordered_keys() {
                return Err(invalid("a hashed or a wildcard index cannot become unique"));
            }
            reply.push("prepareUnique_old", spec.prepare_unique);
            reply.push("prepareUnique_new", prepare);
        }
        Ok(reply)
    }
}
