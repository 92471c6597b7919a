//! `create`: make a collection.

use kilim_bson::{Array, Document, RawDocument, RawValue};
use kilim_engine::Namespace;
use kilim_engine::index::KeyPart;
use kilim_engine::view::View;
use kilim_engine::write::shell_text;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::stage::Pipeline;

use super::collection_options::{CollectionOptions, capped_max, capped_size};
use super::write_reply::check_collation;
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "create";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    if let Some(view) = parse_view(call.body)? {
        return create_view(call, namespace, view);
    }
    let options = parse(call.body)?;
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

/// What `viewOn` and the options that go with it say.
struct ViewOptions<'a> {
    on: &'a str,
    pipeline: Array,
}

fn parse_view(body: RawDocument<'_>) -> Result<Option<ViewOptions<'_>>> {
    let (mut on, mut pipeline, mut id_index) = (None, None, None);
    for argument in arguments(NAME, body) {
        match argument.name {
            "viewOn" => on = Some(argument.string()?),
            "pipeline" => pipeline = Some(stages(&argument)?),
            "collation" => check_collation(&argument)?,
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
            parse(others.as_raw())?;
            if on.is_empty() {
                return Err(Error::user(ErrorCode::BadValue, "'viewOn' cannot be empty"));
            }
            Ok(Some(ViewOptions { on, pipeline: pipeline.unwrap_or_default() }))
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
    Pipeline::check_names(view.pipeline.as_raw())?;
    call.engine.check_view_is_new(&namespace)?;
    let view = View::new(namespace, view.on, view.pipeline, None)?;
    call.engine.create_view(view)?;
    Ok(Document::new())
}

fn parse(body: RawDocument<'_>) -> Result<Document> {
    let invalid = |message: &str| Err(Error::user(ErrorCode::InvalidOptions, message));
    let (mut capped, mut id_index, mut refused) = (false, false, None);
    let mut options = CollectionOptions::default();
    for argument in arguments(NAME, body) {
        let mut unless = |harmless: bool| refused = refused.take().or((!harmless).then_some(argument));
        match argument.name {
            "capped" => capped = argument.boolean()?,
            "size" => options.size = Some(capped_size(&argument)?),
            "max" => options.max = Some(capped_max(&argument)?),
            "collation" => check_collation(&argument)?,
            "idIndex" => {
                check_id_index(argument.document()?)?;
                id_index = true;
            }
            "autoIndexId" if argument.boolean()? => {}
            "autoIndexId" => {
                return Err(Error::location(
                    50001,
                    "The autoIndexId option is not allowed: every collection has one",
                ));
            }
            _ if options.take(&argument)? => {}
            "storageEngine" | "indexOptionDefaults" => unless(argument.document()?.is_empty()),
            "timeseries" | "changeStreamPreAndPostImages" | "encryptedFields" => {
                argument.document()?;
                unless(false);
            }
            "expireAfterSeconds" | "clusteredIndex" => unless(false),
            // What it once chose has no counterpart here; it never changed what a client sees.
            "flags" => drop(argument.integer()?),
            "temp" => return invalid("the 'temp' field is an invalid option"),
            _ => return Err(argument.unknown()),
        }
    }
    let _ = id_index;
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

/// Every collection has its `_id` index; asking for just that changes nothing.
fn check_id_index(spec: RawDocument<'_>) -> Result<()> {
    let refuse = |code, message: &str| Err(Error::user(code, message));
    let (Some(RawValue::Document(key)), Some(RawValue::String(_))) = (spec.get("key"), spec.get("name"))
    else {
        return refuse(ErrorCode::FailedToParse, "an index specification has a 'key' and a 'name'");
    };
    match KeyPart::all_of(key).as_slice() {
        [KeyPart { path, descending: false, hashed: false }] if path.as_str() == "_id" => Ok(()),
        _ => refuse(ErrorCode::BadValue, "The field 'key' for an _id index must be {_id: 1}"),
    }
}
