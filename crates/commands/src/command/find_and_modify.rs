//! `findAndModify`: change or remove one document and return it.

use std::sync::Arc;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Writer, doc};
use kilim_engine::plan::Hint;
use kilim_engine::write::{self, FindAndModifyRequest, Modification, UpdateRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Env, Scope};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_query::update::Update;

use super::find::{check_hint_not_null, parse_hint, parse_sort};
use super::update::{now_ms, parse_array_filters};
use super::write_reply::{StatementIds, check_statement_ids, push_caused};
use crate::about::About;
use crate::argument::arguments;
use crate::dispatch::Call;
use crate::reply::while_executing;
use crate::variables::variables;

const NAME: &str = "findAndModify";

pub struct Options<'a> {
    pub filter: RawDocument<'a>,
    pub sort: RawDocument<'a>,
    pub fields: RawDocument<'a>,
    pub update: Option<RawValue<'a>>,
    pub array_filters: Option<RawArray<'a>>,
    pub hint: Option<Hint>,
    pub remove: bool,
    pub new: bool,
    pub upsert: bool,
    bypass_validation: bool,
}

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    namespace.check_readable()?;
    call.describe("command");
    let options = Options::parse(call.body)?;
    namespace.check_writable()?;
    namespace.check_creatable()?;
    call.unit.bypass_validation = options.bypass_validation;
    check_statement_ids(call.body, 1)?;
    let about = About::of(call, &namespace)?;
    let variables = variables(call, NAME, &about)?;
    let scope = Scope::new(&variables);
    // In mongod's order, which decides on the error where several are at fault.
    let nothing = doc! {};
    let update = options.update.unwrap_or(RawValue::Document(nothing.as_raw()));
    let update = Update::parse_in(update, options.array_filters, false, &scope)?;
    let filter = Arc::new(options.filter(&scope)?);
    let scope = scope.of_found_by(filter.found_by());
    let sort = parse_sort(options.sort, &scope)?;
    let projection = match options.fields.is_empty() {
        true => None,
        false => Some(Projection::parse_in(options.fields, &scope)?),
    };
    if projection.as_ref().is_some_and(Projection::requires_position) {
        filter.check_for_position()?;
    }
    if options.new && projection.as_ref().is_some_and(Projection::requires_position) {
        return Err(Error::user(
            ErrorCode::BadValue,
            "cannot use a positional projection and return the new document",
        ));
    }
    if projection.as_ref().is_some_and(Projection::wants_sort_key) {
        return Err(Error::user(
            ErrorCode::BadValue,
            "Cannot use a $meta sortKey projection in findAndModify commands.",
        ));
    }
    let request = FindAndModifyRequest {
        target: UpdateRequest {
            filter: filter.clone(),
            update: &update,
            multi: false,
            upsert: options.upsert,
            hint: options.hint,
            collation: variables.collation().clone(),
            now_ms: now_ms(),
            statement: StatementIds::of(call.body).at(0),
            projection: projection.as_ref(),
        },
        modification: match options.remove {
            true => Modification::Remove,
            false => Modification::Update { new: options.new },
        },
        sort,
        tells_score: projection.as_ref().is_some_and(Projection::wants_text_score),
        tells_key: projection.as_ref().is_some_and(Projection::wants_index_key),
    };
    let executing = |error| while_executing("Plan executor error during findAndModify", error);
    let modified = write::find_and_modify(&mut call.unit, &namespace, &request).map_err(executing)?;

    let mut last_error = doc! {"n": i32::from(modified.matched || modified.upserted.is_some())};
    if !modified.removes {
        last_error.push("updatedExisting", modified.matched);
    }
    if let Some(id) = modified.upserted {
        last_error.push("upserted", id);
    }
    let mut reply = doc! {"lastErrorObject": last_error};
    match (modified.value, projection) {
        (Some(value), Some(projection)) => {
            let position = projection.position(&filter, value.as_raw())?;
            let mut writer = Writer::new();
            let mut env = Env::new(value.as_raw(), Bindings::none());
            env.score = modified.score;
            env.place = modified.near.as_deref().map(|measured| measured.place.as_raw());
            env.key = modified.key.as_ref().map(Document::as_raw);
            projection.apply_in(&env, position, &mut writer).map_err(executing)?;
            reply.push("value", writer.finish());
        }
        (value, _) => reply.push("value", value),
    }
    if let Some(&id) = call.unit.retried().first() {
        reply.push("retriedStmtId", id);
    }
    push_caused(&mut reply, &call.unit.caused);
    Ok(reply)
}

impl<'a> Options<'a> {
    pub fn parse(body: RawDocument<'a>) -> Result<Options<'a>> {
        let mut options = Options {
            filter: RawDocument::empty(),
            sort: RawDocument::empty(),
            fields: RawDocument::empty(),
            update: None,
            array_filters: None,
            hint: None,
            remove: false,
            new: false,
            upsert: false,
            bypass_validation: false,
        };
        check_hint_not_null(body)?;
        for argument in arguments(NAME, body) {
            match argument.name {
                "query" => options.filter = argument.document()?,
                "sort" => options.sort = argument.document()?,
                "fields" => options.fields = argument.document()?,
                "update" => options.update = Some(argument.value),
                "arrayFilters" => options.array_filters = Some(parse_array_filters(&argument)?),
                "hint" => options.hint = parse_hint(&argument)?,
                "remove" => options.remove = argument.boolean()?,
                "new" => options.new = argument.boolean()?,
                "upsert" => options.upsert = argument.boolean()?,
                "bypassDocumentValidation" => options.bypass_validation = argument.boolean()?,
                // Among the variables by now.
                "let" => drop(argument.document()?),
                "collation" => {}
                "encryptionInformation" | "legacyRuntimeConstants" => return Err(argument.unsupported()),
                _ => return Err(argument.unknown()),
            }
        }
        options.check()?;
        Ok(options)
    }

    pub fn filter(&self, scope: &Scope<'_>) -> Result<Filter> {
        match self.upsert {
            true => Filter::parse_for_upsert(self.filter, scope),
            false => Filter::parse_in(self.filter, scope),
        }
    }

    fn check(&self) -> Result<()> {
        let refuse = |message: &str| Err(Error::user(ErrorCode::FailedToParse, message));
        match (self.remove, self.update.is_some()) {
            (true, true) => return refuse("Cannot specify both an update and remove=true"),
            (false, false) => return refuse("Either an update or remove=true must be specified"),
            _ => {}
        }
        if self.remove && self.upsert {
            return refuse("Cannot specify both upsert=true and remove=true ");
        }
        if self.remove && self.new {
            return refuse(
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            );
        }
        if self.array_filters.is_some() && self.update.is_some_and(|update| update.as_array().is_some()) {
            return refuse("Cannot specify arrayFilters and a pipeline update");
        }
        if self.remove && self.array_filters.is_some() {
            return refuse("Cannot specify arrayFilters and remove=true");
        }
        Ok(())
    }
}
