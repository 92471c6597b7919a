//! `create`: make a collection.

use kilim_bson::{Array, Document, RawDocument, RawValue, doc};
use kilim_collation::{Collation, full_spec};
use kilim_engine::Namespace;
use kilim_engine::catalog::{View, bucket_options};
use kilim_engine::change_log::IMAGES_OPTION;
use kilim_engine::index::{Holds, KeyPart};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::stage::Pipeline;
use kilim_query::text::document as shell_text;
use kilim_query::time_series::TimeSeries;

use super::collection_options::{CollectionOptions, Expires, capped_max, capped_size, check_images};
use super::create_indexes::check_id_index;
use super::expiry::seconds_of_clustered;
use super::time_series;
use super::update::now_ms;
use super::write_reply::required;
use crate::argument::{Argument, arguments, check_not_null, nested};
use crate::dispatch::Call;

const NAME: &str = "create";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    if let Some((series, options)) = parse_time_series(call.body, &namespace)? {
        if call.unit.is_transaction() {
            return Err(Error::user(
                ErrorCode::OperationNotSupportedInTransaction,
                "Cannot create a time-series collection in a multi-document transaction.",
            ));
        }
        call.engine.create_time_series(&namespace, bucket_options(&series, options.as_raw()))?;
        return Ok(Document::new());
    }
    if let Some(view) = parse_view(call.body)? {
        return create_view(call, namespace, view);
    }
    let options = parse(call.body)?;
    if options.get(IMAGES_OPTION).is_some() {
        check_images(&namespace)?;
    }
    if call.unit.is_transaction() {
        if call.unit.collection(&namespace)?.is_some() {
            return Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("Collection {namespace} already exists."),
            ));
        }
        call.unit.create(&namespace, options)?;
    } else {
        call.engine.create_collection(&namespace, options)?;
    }
    Ok(Document::new())
}

/// Options that a time-series collection cannot have.
const NOT_OF_TIME_SERIES: [&str; 10] = [
    "capped",
    "validator",
    "validationLevel",
    "validationAction",
    "clusteredIndex",
    "changeStreamPreAndPostImages",
    "viewOn",
    "pipeline",
    "idIndex",
    "autoIndexId",
];

/// What `timeseries` and the options that go with it say.
fn parse_time_series(body: RawDocument<'_>, namespace: &Namespace) -> Result<Option<(TimeSeries, Document)>> {
    let Some(argument) = arguments(NAME, body).find(|argument| argument.name == "timeseries") else {
        return Ok(None);
    };
    let series = time_series::parse(namespace, &argument)?;
    if let Some(other) = NOT_OF_TIME_SERIES.iter().find(|name| body.get(name).is_some()) {
        let message = format!("{namespace}: 'timeseries' is not allowed with '{other}'");
        return Err(Error::user(ErrorCode::InvalidOptions, message));
    }
    let others = body.iter().filter(|(name, _)| !matches!(*name, "timeseries" | "expireAfterSeconds"));
    let others: Document = others.map(|(name, value)| (name, value.to_value())).collect();
    let mut options = parse(others.as_raw())?;
    if let Some(argument) = arguments(NAME, body).find(|argument| argument.name == "expireAfterSeconds") {
        options.push("expireAfterSeconds", seconds_of_clustered(argument.integer()?, now_ms())?);
    }
    Ok(Some((series, options)))
}

/// What `viewOn` and the options that go with it say.
struct ViewOptions<'a> {
    on: &'a str,
    pipeline: Array,
    collation: Option<Collation>,
}

fn parse_view(body: RawDocument<'_>) -> Result<Option<ViewOptions<'_>>> {
    let (mut on, mut pipeline, mut id_index, mut collation) = (None, None, None, None);
    for argument in arguments(NAME, body) {
        match argument.name {
            "viewOn" => on = Some(argument.string()?),
            "pipeline" => pipeline = Some(stages(&argument)?),
            "collation" => collation = parse_collation(&argument)?,
            "idIndex" => id_index = Some(argument.document()?),
            _ => {}
        }
    }
    if let Some(RawValue::Null) = body.get("pipeline") {
        return Err(Error::location(10065, "invalid parameter: expected an object (pipeline)"));
    }
    let invalid = |message: String| Err(Error::user(ErrorCode::InvalidOptions, message));
    match (on, pipeline, id_index) {
        (None, None, _) => Ok(None),
        (None, Some(_), _) => invalid("'pipeline' requires 'viewOn' to also be specified".to_owned()),
        (Some(_), _, Some(index)) => {
            invalid(format!("'idIndex' is not allowed with 'viewOn': {}", shell_text(index)))
        }
        (Some(on), pipeline, None) => {
            // A view has no other options; those that are none of any collection are refused here too.
            let others = body.iter().filter(|(name, _)| !matches!(*name, "viewOn" | "pipeline"));
            let others: Document = others.map(|(name, value)| (name, value.to_value())).collect();
            let others = parse(others.as_raw())?;
            if others.get(IMAGES_OPTION).is_some() {
                return invalid(format!("option not supported on a view: {IMAGES_OPTION}"));
            }
            if others.get("clusteredIndex").is_some() {
                return Err(Error::location(
                    6_026_500,
                    "The 'clusteredIndex' option is not supported with views",
                ));
            }
            if on.is_empty() {
                return Err(Error::user(ErrorCode::BadValue, "'viewOn' cannot be empty"));
            }
            Ok(Some(ViewOptions { on, pipeline: pipeline.unwrap_or_default(), collation }))
        }
    }
}

/// The `pipeline` of a view: a list of documents that name known stages.
pub fn stages(argument: &Argument<'_>) -> Result<Array> {
    let stages = argument.array()?;
    for (index, value) in stages.as_document().iter() {
        let name = format!("{}.{index}", argument.name);
        Argument { command: argument.command, name: &name, value }.document()?;
    }
    Ok(stages.to_array())
}

fn create_view(call: &Call<'_, '_>, namespace: Namespace, view: ViewOptions<'_>) -> Result<Document> {
    if call.unit.is_transaction() {
        return Err(Error::user(
            ErrorCode::OperationNotSupportedInTransaction,
            format!("Cannot create a view in a multi-document transaction. NS: {namespace}"),
        ));
    }
    Pipeline::glance(view.pipeline.as_raw(), &namespace.database)?;
    call.engine.check_view_is_new(&namespace)?;
    let view = View::new(namespace, view.on, view.pipeline, view.collation)?;
    call.engine.create_view(view)?;
    Ok(Document::new())
}

/// The collation of a collection or view: what is left out is `create`'s to say, not the locale's.
fn parse_collation(argument: &Argument<'_>) -> Result<Option<Collation>> {
    let full = full_spec(argument.document()?)?;
    Collation::parse(full.as_raw())
}

fn parse(body: RawDocument<'_>) -> Result<Document> {
    let invalid = |message: &str| Err(Error::user(ErrorCode::InvalidOptions, message));
    let (mut capped, mut id_index, mut expires, mut refused) = (false, None, None, None);
    let mut collation = None;
    check_not_null(NAME, body, &["clusteredIndex"], "types '[bool, object]'")?;
    let mut options = CollectionOptions::default();
    for argument in arguments(NAME, body) {
        let mut unless = |harmless: bool| refused = refused.take().or((!harmless).then_some(argument));
        match argument.name {
            "capped" => capped = argument.boolean()?,
            "size" => options.size = Some(capped_size(&argument)?),
            "max" => options.max = Some(capped_max(&argument)?),
            "collation" => collation = parse_collation(&argument)?,
            "idIndex" => id_index = Some(argument.document()?),
            "autoIndexId" if argument.boolean()? => {}
            "autoIndexId" => {
                return Err(Error::location(
                    50001,
                    "The autoIndexId option is not allowed: every collection has one",
                ));
            }
            _ if options.take(&argument)? => {}
            "storageEngine" | "indexOptionDefaults" => unless(argument.document()?.is_empty()),
            "encryptedFields" => {
                argument.document()?;
                unless(false);
            }
            "clusteredIndex" => options.clustered = parse_clustered(argument.value)?,
            "expireAfterSeconds" => expires = Some(argument.integer()?),
            // What it once chose has no counterpart here; it never changed what a client sees.
            "flags" => drop(argument.integer()?),
            "temp" => {
                argument.boolean()?;
                return invalid("the 'temp' field is an invalid option");
            }
            _ => return Err(argument.unknown()),
        }
    }
    // An index on `_id` that says nothing of it has the collection's collation.
    if let Some(RawValue::Document(of_index)) = id_index.and_then(|index| index.get("collation"))
        && Collation::parse(of_index)? != collation
    {
        let message = "'idIndex' must have the same collation as the collection.";
        return Err(Error::user(ErrorCode::BadValue, message));
    }
    if let Some(index) = id_index {
        check_id_index(index, &collation)?;
    }
    options.collation = collation.as_ref().map(Collation::to_document);
    if options.clustered.is_some() && id_index.is_some() {
        return invalid("The 'clusteredIndex' option is not supported with the 'idIndex' option");
    }
    if options.clustered.is_some() && capped {
        return Err(Error::location(
            6_127_800,
            "Clustered capped collection only available with 'enableTestCommands' server parameter",
        ));
    }
    match (&options.clustered, expires) {
        (None, Some(_)) => {
            return invalid(
                "'expireAfterSeconds' is only supported on time-series collections or when the 'clusteredIndex' \
                 option is specified",
            );
        }
        (Some(_), Some(seconds)) => {
            options.expires = Some(Expires::AfterSeconds(seconds_of_clustered(seconds, now_ms())?));
        }
        _ => {}
    }
    match (capped, options.size, options.max) {
        (true, None, _) => return invalid("the 'size' field is required when 'capped' is true"),
        (false, size, max) if size.is_some() || max.is_some() => {
            return invalid(
                "the 'capped' field needs to be true when either the 'size' or 'max' fields are present",
            );
        }
        _ => options.capped = capped,
    }
    match refused {
        Some(argument) => Err(argument.unsupported()),
        None => Ok(options.over(RawDocument::empty())),
    }
}

/// `clusteredIndex`: the collection's own order is that of `_id`. As it is shown afterwards.
fn parse_clustered(value: RawValue<'_>) -> Result<Option<Document>> {
    let RawValue::Document(document) = value else {
        let asked = Argument { command: NAME, name: "clusteredIndex", value }.boolean()?;
        return match asked {
            false => Ok(None),
            true => Err(Error::location(
                5_979_703,
                "The 'clusteredIndex' legacy format {clusteredIndex: <bool>} is only supported for specific \
                 internal collections and vice versa",
            )),
        };
    };
    let (mut version, mut key, mut name, mut unique) = (2, None, "_id_", None);
    for argument in nested(NAME, document) {
        match argument.name {
            "v" => version = argument.integer()?,
            "key" => key = Some(argument.document()?),
            "name" => name = argument.string()?,
            "unique" => unique = Some(argument.boolean()?),
            _ => return Err(argument.unknown()),
        }
    }
    let key = required(key, NAME, "key")?;
    let unique = required(unique, NAME, "unique")?;
    let spec = doc! {"v": version as i32, "key": key.to_document(), "name": name, "unique": unique};
    let by_id = |part: &[KeyPart]| matches!(part, [KeyPart { path, descending: false, holds: Holds::Value }] if path.as_str() == "_id");
    if !unique {
        return Err(Error::location(
            5_979_700,
            "The clusteredIndex option requires unique: true to be specified",
        ));
    }
    let is_number = key.iter().all(|(_, direction)| direction.is_number());
    if !is_number || !by_id(&KeyPart::all_of(key)) {
        return Err(Error::user(
            ErrorCode::InvalidIndexSpecificationOption,
            "The clusteredIndex option is only supported for key: {_id: 1}",
        ));
    }
    if version != 2 {
        return Err(Error::location(
            5_979_704,
            format!(
                "Invalid clusteredIndex specification {}; cannot create a clusteredIndex with v={version}",
                shell_text(spec.as_raw())
            ),
        ));
    }
    Ok(Some(spec))
}
