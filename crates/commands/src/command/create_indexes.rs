//! `createIndexes`: build indexes.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, compare_documents, doc};
use kilim_collation::Collation;
use kilim_engine::Namespace;
use kilim_engine::build::{check_for_new_collection, check_index_count, new_specs};
use kilim_engine::catalog::Collection;
use kilim_engine::index::{Index, IndexKind, IndexSpec, KeyPart, KindOptions, Wildcard};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::is_dbref_name;
use kilim_query::text::document as shell_text;
use kilim_query::time_series::TimeSeries;

use super::expiry;
use super::time_series;
use super::write_reply::required;
use crate::argument::{Argument, arguments, as_double};
use crate::dispatch::Call;

const NAME: &str = "createIndexes";
const SPEC: &str = "createIndexes.indexes";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut namespace = call.collection()?;
    call.expect(NAME, &namespace)?;
    call.describe("command");
    let view = time_series::of(call, &namespace);
    if let Some(view) = &view {
        namespace = view.on.clone();
    }
    let present = call.unit.collection(&namespace)?;
    let series = view.as_ref().and_then(|view| view.time_series.as_deref());
    let specs = parse(call, present.as_deref(), series)?;
    namespace.check_writable()?;
    let (created, collection) = match call.unit.collection(&namespace)? {
        Some(collection) => (false, collection),
        None => {
            // What cannot be made leaves no empty collection behind.
            check_for_new_collection(&namespace, &specs)?;
            call.unit.create(&namespace, Document::new())?;
            let made = call.unit.collection(&namespace)?;
            (true, made.ok_or_else(|| Error::bug("a collection just made is not there"))?)
        }
    };
    if collection.capped.is_some() && specs.iter().any(|spec| spec.expire_after_seconds.is_some()) {
        return Err(cannot_create("Cannot create TTL index on a capped collection"));
    }
    let asked = specs.len();
    let (before, added) = match call.unit.is_transaction() {
        true => create_in_transaction(call, &namespace, &collection, specs)?,
        false => {
            let built = call.engine.build_indexes(&call.operation, &namespace, specs)?;
            (built.before, built.added)
        }
    };
    // The order of a clustered collection is no index of it.
    let before = before - usize::from(collection.clustered);
    let mut reply = doc! {"numIndexesBefore": before as i32, "numIndexesAfter": (before + added) as i32};
    match added {
        0 => reply.push("note", "all indexes already exist"),
        _ if added < asked => reply.push("note", "index already exists"),
        _ => {}
    }
    if added == 0 && !created {
        return Ok(reply);
    }
    reply.push("createdCollectionAutomatically", created);
    match call.body.get("commitQuorum") {
        Some(quorum) => reply.push("commitQuorum", quorum.to_value()),
        None => reply.push("commitQuorum", "votingMembers"),
    }
    Ok(reply)
}

/// The indexes that are asked of a collection, whose collation is theirs if they say nothing of it.
fn parse(
    call: &Call<'_, '_>,
    collection: Option<&Collection>,
    series: Option<&TimeSeries>,
) -> Result<Vec<IndexSpec>> {
    let mut lenient = false;
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "indexes" => {}
            "commitQuorum" => check_quorum(&argument)?,
            "collectionUUID" => drop(argument.uuid()?),
            "ignoreUnknownIndexOptions" => lenient = argument.boolean()?,
            _ => return Err(argument.unknown()),
        }
    }
    let documents = call.request.documents(NAME, "indexes")?;
    if documents.is_empty() {
        return Err(Error::user(ErrorCode::BadValue, "Must specify at least one index to create"));
    }
    let default = collection.and_then(|collection| collection.collation.clone());
    let parse_one = |document: RawDocument<'_>| {
        let given = document;
        let of_buckets =
            series.map(|series| time_series::index_of_buckets(series, given, &default)).transpose()?;
        let document = of_buckets.as_ref().map_or(given, |(document, _)| document.as_raw());
        if let Some(value) = document.get("clustered") {
            return parse_clustered(document, value, collection, lenient, &default);
        }
        let mut spec = parse_spec(document, lenient, &default)?;
        check_not_clustered(&spec, document, collection)?;
        if let Some((_, Some(filter))) = &of_buckets {
            spec.partial = Some((filter.to_document(), filter.clone()));
        }
        if let Some(series) = collection.and_then(|collection| collection.time_series.as_deref()) {
            let in_measurements = of_buckets.is_some().then_some(given);
            time_series::mark_over_measurements(series, &mut spec, in_measurements)?;
        }
        Ok(spec)
    };
    documents.into_iter().map(parse_one).collect()
}

/// `clustered` asks for an order that only `create` can give: it is there, or the request is refused.
fn parse_clustered(
    document: RawDocument<'_>,
    value: RawValue<'_>,
    collection: Option<&Collection>,
    lenient: bool,
    default: &Option<Collation>,
) -> Result<IndexSpec> {
    let in_spec = |error: Error| error.during(&format!("Error in specification {}", shell_text(document)));
    if !(Argument { command: SPEC, name: "clustered", value }).boolean()? {
        return Err(in_spec(Error::location(6_492_800, "Value 'false' for field 'clustered' is invalid")));
    }
    if document.get("unique").is_none() {
        let message = "The 'unique' field is required when 'clustered' is specified";
        return Err(in_spec(cannot_create(message)));
    }
    let Some(collection) = collection else {
        return Err(Error::location(
            6_100_900,
            "Cannot implicitly create a new collection with createIndex 'clustered' option",
        ));
    };
    let others = document.iter().filter(|(name, _)| !matches!(*name, "clustered" | "unique"));
    let others: Document = others.map(|(name, value)| (name, value.to_value())).collect();
    let spec = parse_spec(others.as_raw(), lenient, default)?;
    if !collection.clustered || spec.name != "_id_" {
        return Err(in_spec(Error::location(
            6_243_700,
            "Cannot create index with option 'clustered' that does not match an existing clustered index",
        )));
    }
    Ok(spec)
}

/// The name of a clustered collection's order is taken.
fn check_not_clustered(
    spec: &IndexSpec,
    document: RawDocument<'_>,
    collection: Option<&Collection>,
) -> Result<()> {
    let taken = collection.and_then(Collection::clustered_name);
    if spec.name == "_id_" || taken != Some(spec.name.as_str()) {
        return Ok(());
    }
    Err(Error::location(
        6_100_906,
        format!(
            "Error in specification {} :: caused by :: Cannot create an index where the name matches the clusteredIndex \
             but the key does not",
            shell_text(document)
        ),
    ))
}

/// One voter: every quorum that can be met is.
fn check_quorum(argument: &Argument<'_>) -> Result<()> {
    match argument.value {
        RawValue::String("majority" | "votingMembers") => Ok(()),
        RawValue::String("") => {
            Err(Error::user(ErrorCode::FailedToParse, "commitQuorum cannot be an empty text"))
        }
        RawValue::String(name) => Err(Error::user(
            ErrorCode::UnknownReplWriteConcern,
            format!("No write concern mode named '{name}' found in replica set configuration"),
        )),
        _ => match argument.integer()? {
            0..=50 => Ok(()),
            _ => Err(Error::user(
                ErrorCode::FailedToParse,
                "commitQuorum has to be a non-negative number and not greater than 50",
            )),
        },
    }
}

/// The fields that the specification of an `_id` index may have.
const OF_ID: [&str; 5] = ["key", "name", "ns", "v", "collation"];

/// Checks the `idIndex` of a new collection. Every collection has its `_id` index, so there is nothing to be made.
pub(super) fn check_id_index(document: RawDocument<'_>, default: &Option<Collation>) -> Result<()> {
    Written::parse(document, false)?;
    let key = document.get("key").and_then(|key| key.as_document());
    if key.is_some_and(|key| compare_documents(key, doc! {"_id": 1}.as_raw()).is_ne()) {
        let shown = shell_text(key.unwrap_or(RawDocument::empty()));
        let message = format!("The field 'key' for an _id index must be {{_id: 1}}, but got {shown}");
        return Err(Error::user(ErrorCode::BadValue, message));
    }
    if let Some((other, _)) = document.iter().find(|(name, _)| !OF_ID.contains(name)) {
        return Err(not_of_id(other, document));
    }
    parse_spec(document, false, default).map(drop)
}

fn not_of_id(field: &str, document: RawDocument<'_>) -> Error {
    let mut shown = document.to_document();
    if document.get("v").is_none() {
        shown.push("v", 2);
    }
    let shown = shell_text(shown.as_raw());
    Error::user(
        ErrorCode::InvalidIndexSpecificationOption,
        format!("The field '{field}' is not valid for an _id index specification. Specification: {shown}"),
    )
}

fn parse_spec(document: RawDocument<'_>, lenient: bool, default: &Option<Collation>) -> Result<IndexSpec> {
    let written = Written::parse(document, lenient)?;
    let key = written.key.ok_or_else(|| missing("key"))?;
    let in_spec = |error: Error| error.during(&format!("Error in specification {}", shell_text(document)));
    if key.iter().count() > 32 {
        return Err(Error::location(13103, "too many compound keys"));
    }
    check_key(key).map_err(in_spec)?;
    let name = required(written.name, SPEC, "name").map_err(|_| missing("name"))?;
    check_name(name)?;
    if written.unique && written.prepare_unique {
        let shown = shell_text(document);
        return Err(cannot_create(format!(
            "Invalid index specification {shown}; cannot create an index with the 'unique' option and the \
             'prepareUnique' option"
        ))
        .during(&format!("Error in specification {shown}")));
    }
    if written.sparse && written.partial.is_some() {
        return Err(cannot_create("cannot mix \"partialFilterExpression\" and \"sparse\" options"));
    }
    let collation = match document.get("collation") {
        Some(value) => parse_collation(value, written.version, document)?,
        None => default.clone(),
    };
    // The filter is asked of documents as the index compares.
    let partial = match written.partial {
        Some(filter) => Some((filter.to_document(), parse_partial(filter, &collation).map_err(in_spec)?)),
        None => None,
    };
    let is_id = matches!(key.iter().next(), Some(("_id", direction)) if direction.is_number())
        && key.iter().count() == 1;
    if is_id {
        written.check_id(key, document, &collation, default)?;
    } else if name == "_id_" {
        return Err(Error::user(
            ErrorCode::BadValue,
            "The index name '_id_' is reserved for the _id index, which must have key pattern {_id: 1}",
        ));
    }
    let expires = written.expire_after_seconds.is_some();
    if expires && key.iter().count() > 1 {
        return Err(cannot_create(format!("{}. Index spec: {}", expiry::COMPOUND, shell_text(document))));
    }
    let Written { unique, sparse, version, projection, .. } = written;
    let shown_collation = collation.as_ref().map(Collation::to_document);
    let collated = shown_collation.as_ref().map(Document::as_raw);
    let options = KindOptions { unique, sparse, expires, version, projection, collation: collated };
    let kind = IndexKind::parse(key, &options, document)?;
    let stored_key = kind.stored_key(key);
    Ok(IndexSpec {
        unique: unique || is_id,
        prepare_unique: written.prepare_unique,
        sparse,
        hidden: written.hidden,
        expire_after_seconds: written.expire_after_seconds,
        partial,
        kind,
        collation,
        ..IndexSpec::over(if is_id { "_id_" } else { name }, stored_key)
    })
}

/// The fields of a specification, each by itself.
struct Written<'a> {
    key: Option<RawDocument<'a>>,
    name: Option<&'a str>,
    unique: bool,
    prepare_unique: bool,
    sparse: bool,
    hidden: bool,
    partial: Option<RawDocument<'a>>,
    expire_after_seconds: Option<i32>,
    version: i64,
    projection: Option<RawValue<'a>>,
}

impl<'a> Written<'a> {
    /// Whoever is lenient passes over fields that mean nothing.
    fn parse(document: RawDocument<'a>, lenient: bool) -> Result<Written<'a>> {
        let expiring = |value: RawValue<'_>| {
            let with_spec =
                |problem| cannot_create(format!("{problem}. Index spec: {}", shell_text(document)));
            expiry::seconds(value).map_err(with_spec)
        };
        let mut written = Written {
            key: None,
            name: None,
            unique: false,
            prepare_unique: false,
            sparse: false,
            hidden: false,
            partial: None,
            expire_after_seconds: None,
            version: 2,
            projection: None,
        };
        let key = document.get("key").and_then(RawValue::as_document);
        let takes_option = |name: &str| key.is_some_and(|key| IndexKind::takes_option(key, name));
        // Unlike elsewhere, null is a value here, and mostly one of the wrong type.
        for (name, value) in document {
            let argument = Argument { command: SPEC, name, value };
            match argument.name {
                "key" => written.key = Some(argument.document()?),
                "name" => written.name = Some(argument.string()?),
                "unique" => written.unique = argument.boolean()?,
                "sparse" => written.sparse = argument.boolean()?,
                "hidden" => written.hidden = argument.strict_boolean()?,
                "prepareUnique" => written.prepare_unique = argument.boolean()?,
                "partialFilterExpression" => written.partial = Some(argument.document()?),
                "v" => {
                    written.version = argument.integer()?;
                    check_version(written.version, argument.double()?)?;
                }
                "wildcardProjection" => written.projection = Some(argument.value),
                // Read by itself: it may not be null.
                "collation" => {}
                // Builds never block, whatever was asked; the namespace is the command's.
                "background" => drop(argument.boolean()?),
                "ns" => {}
                "expireAfterSeconds" => written.expire_after_seconds = Some(expiring(argument.value)?),
                // The kind of the index reads them.
                name if takes_option(name) => {}
                "weights" if matches!(argument.value, RawValue::Document(_) | RawValue::String(_)) => {
                    let shown = shell_text(document);
                    return Err(cannot_create(format!(
                        "Error in specification {shown} :: caused by :: Invalid index specification {shown}; the field \
                         'weights' can only be specified with text indexes"
                    )));
                }
                "storageEngine"
                | "weights"
                | "default_language"
                | "language_override"
                | "textIndexVersion"
                | "2dsphereIndexVersion"
                | "bits"
                | "min"
                | "max"
                | "bucketSize" => return Err(argument.unsupported()),
                "dropDups" => drop(argument.boolean()?),
                _ if lenient => {}
                other => {
                    return Err(Error::user(
                        ErrorCode::InvalidIndexSpecificationOption,
                        format!("The field '{other}' is not valid for an index specification."),
                    ));
                }
            }
        }
        Ok(written)
    }

    /// Refuses what the index on `_id` cannot be.
    fn check_id(
        &self,
        key: RawDocument<'_>,
        document: RawDocument<'_>,
        collation: &Option<Collation>,
        default: &Option<Collation>,
    ) -> Result<()> {
        if KeyPart::all_of(key).iter().any(|part| part.descending) {
            return Err(Error::user(
                ErrorCode::BadValue,
                "The field 'key' for an _id index must be {_id: 1}",
            ));
        }
        if collation != default {
            return Err(Error::user(
                ErrorCode::BadValue,
                format!(
                    "The _id index must have the same collation as the collection. Index collation: {}, collection \
                     collation: {}",
                    shown_collation(collation),
                    shown_collation(default)
                ),
            ));
        }
        if self.expire_after_seconds.is_some() {
            return Err(not_of_id("expireAfterSeconds", document));
        }
        if self.sparse || self.partial.is_some() || self.hidden || self.unique {
            return Err(Error::user(
                ErrorCode::InvalidIndexSpecificationOption,
                "an _id index specification has a key and a name, and no further options",
            ));
        }
        Ok(())
    }
}

/// An index's own collation, which is more than a command's: it may be neither null nor empty.
fn parse_collation(value: RawValue<'_>, version: i64, spec: RawDocument<'_>) -> Result<Option<Collation>> {
    let in_spec = |error: Error| error.during(&format!("Error in specification {}", shell_text(spec)));
    let RawValue::Document(collation) = value else {
        let kind = value.element_type().name();
        let message = format!("The field 'collation' must be an object, but got {kind}");
        return Err(in_spec(Error::user(ErrorCode::TypeMismatch, message)));
    };
    if collation.is_empty() {
        let message = "The field 'collation' cannot be an empty object.";
        return Err(in_spec(Error::user(ErrorCode::BadValue, message)));
    }
    if version < 2 {
        return Err(in_spec(cannot_create(format!(
            "Invalid index specification {}; cannot create an index with the 'collation' option and v={version}",
            shell_text(spec)
        ))));
    }
    Collation::parse(collation).map_err(|error| {
        let mut shown = spec.to_document();
        if spec.get("v").is_none() {
            shown.push("v", 2);
        }
        error.during(&format!(
            "failed to add collation information to index spec for index creation: {}",
            shell_text(shown.as_raw())
        ))
    })
}

fn shown_collation(collation: &Option<Collation>) -> String {
    let document = match collation {
        Some(collation) => collation.to_document(),
        None => doc! {"locale": "simple"},
    };
    shell_text(document.as_raw())
}

fn missing(field: &str) -> Error {
    Error::user(
        ErrorCode::FailedToParse,
        format!("The '{field}' field is a required property of an index specification"),
    )
}

fn cannot_create(message: impl Into<String>) -> Error {
    Error::user(ErrorCode::CannotCreateIndex, message)
}

fn check_version(version: i64, written: f64) -> Result<()> {
    match version {
        _ if written.fract() != 0.0 => {
            let message =
                format!("Index version must be representable as a 32-bit integer, but got {written}");
            Err(Error::user(ErrorCode::BadValue, message))
        }
        1 | 2 => Ok(()),
        0 => Err(cannot_create("Invalid index specification: index version 0 is no longer supported")),
        other => Err(cannot_create(format!("Invalid index specification: unknown index version {other}"))),
    }
}

fn check_name(name: &str) -> Result<()> {
    match name {
        "" => Err(cannot_create("index name cannot be empty")),
        "*" => Err(Error::user(ErrorCode::BadValue, "The index name '*' is not valid.")),
        _ if name.contains('\0') => Err(cannot_create("index name cannot contain a null byte")),
        _ => Ok(()),
    }
}

fn check_key(key: RawDocument<'_>) -> Result<()> {
    if key.is_empty() {
        return Err(cannot_create("Index keys cannot be an empty object"));
    }
    IndexKind::check_key(key)?;
    for (position, (path, direction)) in key.iter().enumerate() {
        if key.iter().take(position).any(|(earlier, _)| earlier == path) {
            return Err(Error::user(
                ErrorCode::BadValue,
                format!("the field '{path}' appears twice in the key"),
            ));
        }
        if path.is_empty() || path.split('.').any(str::is_empty) {
            return Err(cannot_create("Index keys cannot be an empty field."));
        }
        let illegal = |(at, name): (usize, &str)| name.starts_with('$') && (at == 0 || !is_dbref_name(name));
        if path.split('.').enumerate().any(illegal) && !Wildcard::is_wildcard(path) {
            return Err(cannot_create(
                "Index key contains an illegal field name: field name starts with '$'.",
            ));
        }
        match direction {
            value if as_double(value) == Some(0.0) => {
                return Err(cannot_create("Values in the index key pattern cannot be 0."));
            }
            value if as_double(value).is_some_and(f64::is_nan) => {
                return Err(cannot_create("Values in the index key pattern cannot be NaN."));
            }
            RawValue::Int32(_) | RawValue::Int64(_) | RawValue::Double(_) | RawValue::Decimal128(_) => {}
            RawValue::String(kind) => IndexKind::check_name(kind)?,
            other => {
                return Err(cannot_create(format!(
                    "Values in v:2 index key pattern cannot be of type {}. Only numbers > 0, numbers < 0, and \
                     strings are allowed.",
                    other.element_type().name()
                )));
            }
        }
    }
    Ok(())
}

/// The operators that a planner can prove implied: no more are allowed in a partial index.
fn parse_partial(filter: RawDocument<'_>, collation: &Option<Collation>) -> Result<Filter> {
    let variables = Variables::default().under(collation.clone());
    let parsed = Filter::parse_in(filter, &Scope::new(&variables))?;
    check_partial(&parsed, 0)?;
    Ok(parsed)
}

pub(super) fn check_partial(filter: &Filter, depth: usize) -> Result<()> {
    use kilim_query::filter::Predicate;
    let refuse = || {
        Err(cannot_create(
            "unsupported expression in partial index: only $eq, $gt, $gte, $lt, $lte, $in, $exists: true, $type, $and and $or are allowed",
        ))
    };
    match filter {
        Filter::True | Filter::False => Ok(()),
        Filter::And(children) | Filter::Or(children) if depth < 8 => {
            children.iter().try_for_each(|child| check_partial(child, depth + 1))
        }
        Filter::Field {
            predicate: Predicate::Compare(..) | Predicate::In(_) | Predicate::Exists | Predicate::Type(_),
            ..
        } => Ok(()),
        Filter::Text(_) => Err(Error::user(ErrorCode::BadValue, "$text is not allowed in this context")),
        // What the planner takes from an expression stands before it.
        Filter::Expr(_) | Filter::Field { predicate: Predicate::Expr(..), .. } => {
            Err(Error::user(ErrorCode::QueryFeatureNotAllowed, "$expr is not allowed in this context"))
        }
        _ => refuse(),
    }
}

/// Inside a transaction an index can only join a collection that is still empty.
fn create_in_transaction(
    call: &mut Call<'_, '_>,
    namespace: &Namespace,
    collection: &Collection,
    specs: Vec<IndexSpec>,
) -> Result<(usize, usize)> {
    let before = collection.indexes.len();
    let specs = new_specs(collection, specs)?;
    let number = specs.len();
    if number == 0 {
        return Ok((before, 0));
    }
    check_index_count(collection, &specs)?;
    let count = collection.home().counts(&call.unit.snapshot())?.count;
    let empty = count == 0;
    let ids: Vec<_> = specs.iter().map(|_| call.engine.next_index_id()).collect();
    let added = empty
        && call.unit.change_created(namespace, |collection| {
            let new = specs.into_iter().zip(ids).map(|(spec, id)| {
                Arc::new(Index {
                    id,
                    spec,
                    multikey: Default::default(),
                    usage: Default::default(),
                    ready_since: 0,
                })
            });
            collection.indexes = collection.indexes.iter().cloned().chain(new).collect();
        });
    if added {
        return Ok((before, number));
    }
    Err(Error::user(
        ErrorCode::OperationNotSupportedInTransaction,
        format!(
            "Cannot create new indexes on existing collection {namespace} in a multi-document transaction."
        ),
    ))
}
