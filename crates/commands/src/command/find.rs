//! `find`: select documents.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_engine::catalog::Collection;
use kilim_engine::cursor::{Batch, Cursor, CursorSource};
use kilim_engine::plan::{Hint, KeyRange, Keys, ReadRequest};
use kilim_engine::tail::Tail;
use kilim_engine::{Namespace, read};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;

use super::aggregate::{self, Asked};
use crate::about::About;
use crate::argument::{Argument, arguments, check_not_null};
use crate::concern::ReadConcern;
use crate::dispatch::Call;
use crate::reply::while_executing;
use crate::request::is_generic;
use crate::variables::variables;
use crate::{cursor_reply, through_view};

pub const NAME: &str = "FindCommandRequest";

/// Options that are true or false and nothing else.
const FLAGS: [&str; 7] = [
    "singleBatch",
    "noCursorTimeout",
    "allowDiskUse",
    "allowPartialResults",
    "tailable",
    "awaitData",
    "showRecordId",
];

/// A parsed `find`.
pub struct Find {
    pub request: ReadRequest,
    pub batch_size: Option<usize>,
    pub single_batch: bool,
    pub immortal: bool,
    pub tailable: bool,
    pub awaits: bool,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    // mongod looks at the options first.
    let namespace = call.namespace();
    let about = match &namespace {
        Ok(namespace) => About::of(call, namespace)?,
        Err(_) => About::Nothing,
    };
    let variables = variables(call, NAME, &about)?;
    if about.is_piped() {
        return run_through_view(call, namespace?, variables);
    }
    let find = parse(call.body, &variables)?;
    let namespace = namespace?;
    call.expect(NAME, &namespace)?;
    namespace.check_readable()?;
    call.describe("query");
    call.engine.metrics.queried.add(1);
    let executing = |error| while_executing("Executor error during find command", error);
    if find.tailable
        && let Some(collection) = call.unit.collection(&namespace)?
    {
        check_tailable(call)?;
        return run_tailable(call, namespace, &collection, find).map_err(executing);
    }
    let reading =
        read::plan(&mut call.unit, &namespace, find.request).map_err(|error| match error.code() {
            // A sort may run out of memory while plans are tried against each other.
            ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed => executing(error),
            _ => error,
        })?;
    let collection = reading.collection.as_ref().map(|collection| collection.id);
    let mut cursor = Cursor::new(namespace, CursorSource::Executor(Box::new(reading.execute())));
    cursor.collection = collection;
    cursor.immortal = find.immortal;
    cursor_reply::first_batch(call, cursor, Batch::first(find.batch_size), find.single_batch)
        .map_err(executing)
}

/// A tailable cursor reads on in newer states.
fn check_tailable(call: &Call<'_, '_>) -> Result<()> {
    if call.unit.is_transaction() {
        return Err(Error::user(
            ErrorCode::InvalidOptions,
            "It is illegal to open a tailable cursor in a transaction",
        ));
    }
    if let Some(ReadConcern::Snapshot { .. }) = call.generic.read_concern {
        return Err(Error::user(
            ErrorCode::SnapshotUnavailable,
            "Reading from capped collections with readConcern snapshot is not supported",
        ));
    }
    Ok(())
}

/// A tailable cursor, which stays open at the end of a capped collection.
fn run_tailable(
    call: &mut Call<'_, '_>,
    namespace: Namespace,
    collection: &Collection,
    find: Find,
) -> Result<Document> {
    if collection.capped.is_none() {
        return Err(not_capped());
    }
    if find.request.filter.text().is_some() {
        let message = "text and tailable cursor not allowed in same query";
        return Err(Error::user(ErrorCode::BadValue, message));
    }
    collection.shared.scans.total.add(1);
    collection.shared.scans.tailed.add(1);
    let mut tail = Tail::new(collection.home(), find.request);
    read::go_on(call.engine, &mut tail, &call.unit.snapshot())?;
    let mut cursor = Cursor::new(namespace, CursorSource::Tail(Box::new(tail)));
    cursor.collection = Some(collection.id);
    cursor.immortal = find.immortal;
    cursor.awaits = find.awaits;
    cursor_reply::first_batch(call, cursor, Batch::first(find.batch_size), false)
}

fn not_capped() -> Error {
    Error::user(
        ErrorCode::BadValue,
        "error processing query: tailable cursor requested on non capped collection",
    )
}

/// A view is read by its pipeline, and the find's own behind it.
fn run_through_view(call: &mut Call<'_, '_>, namespace: Namespace, variables: Variables) -> Result<Document> {
    let filter = call.body.get("filter").and_then(RawValue::as_document);
    if filter.is_some_and(|filter| filter.get("$text").is_some()) {
        return Err(Error::user(
            ErrorCode::IndexNotFound,
            format!("text index required for $text query (no such collection '{namespace}')"),
        ));
    }
    let stages = through_view::find(call.body)?;
    let mut hint = None;
    let (mut batch_size, mut allow_disk_use) = (None, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "hint" => hint = parse_hint(&argument)?,
            "sort" if through_view::is_natural(argument.document()?) => hint = Hint::parse(argument.value)?,
            "batchSize" => batch_size = Some(argument.not_negative()? as usize),
            "allowDiskUse" => allow_disk_use = Some(argument.strict_boolean()?),
            _ => {}
        }
    }
    // Everything else is checked as in any find; filter and projection are the pipeline's to read.
    let others = call.body.iter().filter(|(name, _)| !matches!(*name, "filter" | "projection" | "sort"));
    let others: Document = others.map(|(name, value)| (name, value.to_value())).collect();
    if parse(others.as_raw(), &variables)?.tailable {
        return Err(not_capped());
    }
    call.expect(NAME, &namespace)?;
    call.describe("query");
    call.engine.metrics.queried.add(1);
    let cursor = Asked::of_view(namespace, &stages, variables, hint, allow_disk_use).open(call)?;
    cursor_reply::first_batch(call, cursor, Batch::first(batch_size), false).map_err(aggregate::executing)
}

pub fn parse(body: RawDocument<'_>, variables: &Variables) -> Result<Find> {
    let written = Written::parse(body)?;
    written.check()?;
    let scope = Scope::new(variables);
    let filter = Arc::new(Filter::parse_in(written.filter, &scope)?);
    let scope = scope.of_found_by(filter.found_by());
    let mut projection = match written.projection.is_empty() {
        true => None,
        false => Some(Projection::parse_in(written.projection, &scope)?),
    };
    if projection.as_ref().is_some_and(Projection::requires_position) {
        filter.check_for_position()?;
    }
    if written.show_record_id {
        projection = Some(Projection::showing_record_id(projection)?);
    }
    let sort = parse_sort(written.sort, &scope)?;
    let forwards = |sort: &Sort| sort.is_natural() && sort.parts().iter().all(|part| !part.descending);
    if written.tailable && sort.as_ref().is_some_and(|sort| !forwards(sort)) {
        return Err(Error::user(
            ErrorCode::BadValue,
            "cannot use tailable option with a sort other than {$natural: 1}",
        ));
    }
    if let Some(projection) = projection.as_mut().filter(|projection| projection.wants_sort_key()) {
        let sort = sort.clone().ok_or_else(|| {
            Error::user(ErrorCode::BadValue, "cannot use sortKey $meta projection without a sort")
        })?;
        projection.give_sort(&Arc::new(sort));
    }
    let keys = match &projection {
        // All else that is asked to be shown is not.
        _ if written.return_key => {
            let sort_keys = projection.take().map_or(Vec::new(), |projection| projection.sort_key_fields());
            Keys::Returned { sort_keys }
        }
        Some(projection) if projection.wants_index_key() => Keys::Kept,
        _ => Keys::Hidden,
    };
    let text_score = sort.as_ref().is_some_and(Sort::wants_text_score)
        || projection.as_ref().is_some_and(Projection::wants_text_score);
    Ok(Find {
        request: ReadRequest {
            text_score,
            sort,
            projection,
            keys,
            skip: written.skip,
            limit: (written.limit > 0).then_some(written.limit),
            hint: written.hint,
            range: (written.range != KeyRange::default()).then(|| Box::new(written.range)),
            collation: variables.collation().clone(),
            allow_disk_use: written.allow_disk_use,
            ..ReadRequest::new(filter)
        },
        batch_size: written.batch_size,
        single_batch: written.single_batch,
        immortal: written.immortal,
        tailable: written.tailable,
        awaits: written.await_data,
    })
}

/// The fields of a `find`, each by itself.
struct Written<'a> {
    filter: RawDocument<'a>,
    projection: RawDocument<'a>,
    sort: RawDocument<'a>,
    skip: u64,
    limit: u64,
    batch_size: Option<usize>,
    hint: Option<Hint>,
    range: KeyRange,
    single_batch: bool,
    immortal: bool,
    allow_disk_use: bool,
    tailable: bool,
    await_data: bool,
    show_record_id: bool,
    return_key: bool,
}

impl<'a> Written<'a> {
    fn parse(body: RawDocument<'a>) -> Result<Written<'a>> {
        let mut written = Written {
            filter: RawDocument::empty(),
            projection: RawDocument::empty(),
            sort: RawDocument::empty(),
            skip: 0,
            limit: 0,
            batch_size: None,
            hint: None,
            range: KeyRange::default(),
            single_batch: false,
            immortal: false,
            // As on MongoDB, a sort that needs more memory than it may have goes to disk unless told not to.
            allow_disk_use: true,
            tailable: false,
            await_data: false,
            show_record_id: false,
            return_key: false,
        };
        let mut has_null = false;
        let taken = body.iter().skip(1).try_for_each(|(name, value)| match value {
            RawValue::Null | RawValue::Undefined => {
                has_null = true;
                Ok(())
            }
            _ if is_generic(name) => Ok(()),
            _ => written.take(&Argument { command: NAME, name, value }),
        });
        // mongod looks at some types before all else. What it refuses there is refused here too, or null.
        if has_null || taken.is_err() {
            check_types(body)?;
        }
        taken.map(|()| written)
    }

    fn take(&mut self, argument: &Argument<'a>) -> Result<()> {
        match argument.name {
            "filter" => self.filter = argument.document()?,
            "projection" => self.projection = argument.document()?,
            "sort" => self.sort = argument.document()?,
            "skip" => self.skip = argument.not_negative()?,
            "limit" => self.limit = argument.not_negative()?,
            "batchSize" => self.batch_size = Some(argument.not_negative()? as usize),
            "hint" => self.hint = parse_hint(argument)?,
            "singleBatch" => self.single_batch = argument.strict_boolean()?,
            "noCursorTimeout" => self.immortal = argument.strict_boolean()?,
            "allowDiskUse" => self.allow_disk_use = argument.strict_boolean()?,
            // Among the variables by now.
            "let" => drop(argument.document()?),
            "collation" => {}
            // One node, no shards: there is nothing partial to allow, no log to replay.
            "allowPartialResults" | "oplogReplay" => drop(argument.strict_boolean()?),
            "tailable" => self.tailable = argument.strict_boolean()?,
            "awaitData" => self.await_data = argument.strict_boolean()?,
            "showRecordId" => self.show_record_id = argument.strict_boolean()?,
            "returnKey" => self.return_key = argument.strict_boolean()?,
            "collectionUUID" => drop(argument.uuid()?),
            "mirrored" => match argument.strict_boolean()? {
                false => {}
                true => return Err(argument.unsupported()),
            },
            "min" if !argument.document()?.is_empty() => {
                self.range.min = Some(argument.document()?.to_document());
            }
            "max" if !argument.document()?.is_empty() => {
                self.range.max = Some(argument.document()?.to_document());
            }
            "min" | "max" | "readOnce" | "runtimeConstants" | "legacyRuntimeConstants" => {
                match argument.value {
                    RawValue::Document(document) if document.is_empty() => {}
                    RawValue::Bool(false) => {}
                    _ => return Err(argument.unsupported()),
                }
            }
            _ => return Err(argument.unknown()),
        }
        Ok(())
    }

    /// Refuses fields that do not go together.
    fn check(&self) -> Result<()> {
        if let (Some(min), Some(max)) = (&self.range.min, &self.range.max)
            && !min.iter().map(|(name, _)| name).eq(max.iter().map(|(name, _)| name))
        {
            return Err(Error::location(51176, "min and max must have the same field names"));
        }
        if self.await_data && !self.tailable {
            return Err(Error::user(
                ErrorCode::FailedToParse,
                "Cannot set 'awaitData' without also setting 'tailable'",
            ));
        }
        if self.tailable && self.single_batch {
            return Err(Error::user(
                ErrorCode::BadValue,
                "cannot use tailable option with the 'singleBatch' option",
            ));
        }
        Ok(())
    }
}

/// Refuses what mongod refuses before it looks at anything else: unlike elsewhere, null is not absent here.
fn check_types(body: RawDocument<'_>) -> Result<()> {
    for name in ["filter", "projection", "sort"] {
        if body.get(name).is_some_and(|value| value.as_document().is_none()) {
            return Err(Error::user(
                ErrorCode::TypeMismatch,
                format!("Expected field {name}to be of type object"),
            ));
        }
    }
    check_not_null(NAME, body, &FLAGS, "type 'bool'")?;
    check_not_null(NAME, body, &["min", "max"], "type 'object'")?;
    if let Some(value) = body.get("returnKey").filter(|value| value.as_bool().is_none()) {
        let found = value.element_type().name();
        let message = format!("Field 'returnKey' should be a boolean value, but found: {found}");
        return Err(Error::user(ErrorCode::TypeMismatch, message));
    }
    check_hint_not_null(body)
}

pub fn parse_sort(sort: RawDocument<'_>, scope: &Scope<'_>) -> Result<Option<Sort>> {
    match sort.is_empty() {
        true => Ok(None),
        false => Sort::parse_in(sort, scope).map(Some),
    }
}

/// A hint of null is no hint's absence, in no command.
pub fn check_hint_not_null(options: RawDocument<'_>) -> Result<()> {
    match options.get("hint") {
        Some(value @ RawValue::Null) => Hint::parse(value).map(drop),
        _ => Ok(()),
    }
}

pub fn parse_hint(argument: &Argument<'_>) -> Result<Option<Hint>> {
    match argument.value {
        RawValue::String(_) | RawValue::Document(_) => Hint::parse(argument.value),
        _ => Err(Error::user(ErrorCode::FailedToParse, "Hint must be a string or an object")),
    }
}
