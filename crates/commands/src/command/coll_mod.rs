//! `collMod`: hide or show an index, make it unique, change when documents expire, change a view.

use kilim_bson::{Array, Document, RawDocument, RawValue};
use kilim_engine::Namespace;
use kilim_engine::build::Conversion;
use kilim_engine::catalog::{Collection, View};
use kilim_engine::index::{IndexSpec, KeyPart};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::stage::Pipeline;
use kilim_query::text::document as shell_text;

use super::collection_options::{CollectionOptions, Expires};
use super::expiry::seconds_of_clustered;
use super::update::now_ms;
use super::{create, expiry};
use crate::argument::{Argument, arguments, check_not_null, nested};
use crate::dispatch::Call;

const NAME: &str = "collMod";
const INDEX: &str = "collMod.index";
const EXPIRES_TYPES: &str = "types '[string, long']";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    let (mut index, mut on, mut pipeline) = (None, None, None);
    let mut conversion = Conversion::Real;
    let mut options = CollectionOptions::default();
    check_not_null(NAME, call.body, &["expireAfterSeconds"], EXPIRES_TYPES)?;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "index" => index = Some(argument.document()?),
            "dryRun" if argument.boolean()? => conversion = Conversion::DryRun,
            "dryRun" => {}
            "viewOn" => on = Some(argument.string()?),
            "pipeline" => pipeline = Some(create::stages(&argument)?),
            _ if options.take(&argument)? => {}
            "expireAfterSeconds" => options.expires = Some(parse_expires(&argument)?),
            "timeseries" | "changeStreamPreAndPostImages" => {
                return Err(argument.unsupported());
            }
            _ => return Err(argument.unknown()),
        }
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
    let Some(collection) = call.engine.collection(&namespace) else {
        return Err(Error::user(ErrorCode::NamespaceNotFound, "ns does not exist"));
    };
    if pipeline.is_some() || on.is_some() {
        let option = if pipeline.is_some() { "pipeline" } else { "viewOn" };
        return Err(invalid(format!("option only supported on a view: {option}")));
    }
    if options.resizes() && collection.capped.is_none() {
        return Err(invalid("Collection must be capped."));
    }
    if options.expires.is_some() && !collection.clustered {
        return Err(invalid("'expireAfterSeconds' option is only supported on collections clustered by _id"));
    }
    let reply = match index {
        None if conversion == Conversion::DryRun => {
            return Err(invalid("dry run mode requires an valid index modification."));
        }
        None => Document::new(),
        Some(index) => change_index(call, &namespace, &collection, index, conversion)?,
    };
    if options.first_given().is_some() {
        change_options(call, &namespace, &options)?;
    }
    Ok(reply)
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

fn change_index(
    call: &Call<'_, '_>,
    namespace: &Namespace,
    collection: &Collection,
    index: RawDocument<'_>,
    conversion: Conversion,
) -> Result<Document> {
    let change = Change::parse(index)?;
    let (found, what) = match (change.name, change.key) {
        (Some(name), None) => (collection.index_named(name), name.to_owned()),
        (None, Some(key)) => {
            let parts = KeyPart::all_of(key);
            (collection.indexes.iter().find(|index| index.spec.key == parts), shell_text(key))
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
    if conversion == Conversion::DryRun && !change.unique {
        return Err(invalid("dry run mode requires an index modification with unique: true."));
    }
    if change.unique && !found.spec.unique {
        call.engine.make_unique(&call.operation, namespace, found, conversion)?;
    }
    if conversion == Conversion::DryRun {
        return Ok(Document::new());
    }
    // One that became unique is another index by now.
    let found = match change.unique {
        true => call.engine.collection(namespace).and_then(|now| now.index_named(&found.spec.name).cloned()),
        false => Some(found.clone()),
    };
    if let Some(found) = found
        && !reply.is_empty()
    {
        call.engine.change_index(&call.operation, namespace, found.id, |spec| {
            spec.hidden = change.hidden.unwrap_or(spec.hidden);
            spec.expire_after_seconds = change.expire_after_seconds.or(spec.expire_after_seconds);
            spec.prepare_unique = change.prepare_unique.unwrap_or(spec.prepare_unique) && !spec.unique;
        })?;
    }
    Ok(reply)
}

/// Gives a collection another validator, or has it asked in another way.
fn change_options(call: &Call<'_, '_>, namespace: &Namespace, options: &CollectionOptions<'_>) -> Result<()> {
    const PARSING: &str = "Parsing of collection validator failed";
    let changed = call.engine.change_options(&call.operation, namespace, |old| options.spelt_out_over(old));
    changed.map_err(|error| match (options.validator, options.validation_level) {
        (Some(_), _) => error.during(PARSING),
        (None, Some(_)) => error.during(PARSING).during("Failed to set validationLevel"),
        (None, None) => error.during(PARSING).during("Failed to set validationAction"),
    })
}

/// Gives a view another definition, or a part of one.
fn modify_view(
    call: &Call<'_, '_>,
    view: &View,
    on: Option<&str>,
    pipeline: Option<Array>,
) -> Result<Document> {
    if on.is_none() && pipeline.is_none() {
        return Ok(Document::new());
    }
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
            if prepare && !spec.has_ordered_keys() {
                return Err(invalid("a hashed or a wildcard index cannot become unique"));
            }
            reply.push("prepareUnique_old", spec.prepare_unique);
            reply.push("prepareUnique_new", prepare);
        }
        Ok(reply)
    }
}
