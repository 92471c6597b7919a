//! `extendedReference` as it is written.

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;

use super::{CopyFields, OnMissing, OnSourceDelete, Reference, Site};
use crate::argument;
use crate::expression::{refuse_chance, undetermined};
use crate::path::{is_number, lies_within, names, overlap};

const PLACE: &str = "extendedReference";

const ON_SOURCE_DELETE: [(&str, OnSourceDelete); 5] = [
    ("keep", OnSourceDelete::Keep),
    ("unset", OnSourceDelete::Unset),
    ("null", OnSourceDelete::Null),
    ("cascade", OnSourceDelete::Cascade),
    ("restrict", OnSourceDelete::Restrict),
];
const ON_MISSING: [(&str, OnMissing); 2] = [("null", OnMissing::Null), ("reject", OnMissing::Reject)];

impl Reference {
    pub(super) fn parse(spec: RawDocument<'_>) -> Result<Reference> {
        let (mut from, mut local, mut fields, mut while_filter) = (None, None, None, None);
        let (mut foreign, mut as_path) = ("_id", None);
        let (mut on_source_delete, mut on_missing) = (OnSourceDelete::Keep, OnMissing::Null);
        for (name, value) in spec {
            match name {
                "from" => from = Some(argument::text(PLACE, name, value)?),
                "localField" => local = Some(path(name, value)?),
                "foreignField" => foreign = path(name, value)?,
                "as" => {
                    as_path = Some(match value {
                        RawValue::Null => None,
                        value => Some(path(name, value)?),
                    });
                }
                "fields" => {
                    refuse_chance(&format!("'{PLACE}.{name}'"), value)?;
                    fields = Some(CopyFields::parse(argument::document(PLACE, name, value)?)?);
                }
                "while" => {
                    let filter = argument::document(PLACE, name, value)?;
                    let place = format!("'{PLACE}.{name}'");
                    refuse_chance(&place, value)?;
                    let parsed = Filter::parse(filter).map_err(|error| undetermined(&place, error))?;
                    while_filter = Some(parsed);
                }
                "onSourceDelete" => {
                    on_source_delete = argument::choice(PLACE, name, value, &ON_SOURCE_DELETE)?
                }
                "onMissing" => on_missing = argument::choice(PLACE, name, value, &ON_MISSING)?,
                _ => return Err(argument::unknown(PLACE, name)),
            }
        }
        if let Some(local) = local.filter(|local| local.split('.').any(is_number)) {
            let message = format!(
                "'{PLACE}.localField' is '{local}': a number in it could be a field or a place in an array; name a field"
            );
            return Err(Error::user(ErrorCode::BadValue, message));
        }
        let from = from.ok_or_else(|| argument::missing(PLACE, "from"))?;
        let local = local.ok_or_else(|| argument::missing(PLACE, "localField"))?;
        let fields = fields.ok_or_else(|| argument::missing(PLACE, "fields"))?;
        let as_path = as_path.ok_or_else(|| argument::missing(PLACE, "as"))?;
        let clash = |message: String| Err(Error::user(ErrorCode::PatternFieldConflict, message));
        match as_path {
            Some(copy) if lies_within(copy, local) => {
                return clash(format!(
                    "'{PLACE}.as' ({copy}) would overwrite the reference ({local}): choose another path"
                ));
            }
            Some("_id") => return clash(format!("'{PLACE}.as' cannot be '_id': choose another path")),
            Some(copy) if lies_within(local, copy) => {
                let inner = &local[copy.len() + 1..];
                if let Some(field) = fields.names().find(|field| overlap(field, inner)) {
                    return clash(format!(
                        "'{PLACE}.fields.{field}' would overwrite the reference ({local}): call the copy something else"
                    ));
                }
            }
            Some(_) => {}
            None => {
                if let Some(field) =
                    fields.names().find(|field| overlap(field, local) || overlap(field, "_id"))
                {
                    return clash(format!(
                        "'{PLACE}.fields.{field}' would overwrite the reference or the _id: call the copy something else"
                    ));
                }
            }
        }
        let flat = fields.names().map(names).collect();
        Ok(Reference {
            site: Site::new(local, as_path, flat),
            from: from.into(),
            local_field: local.into(),
            foreign_names: names(foreign),
            foreign_field: foreign.into(),
            as_path: as_path.map(Into::into),
            fields,
            while_filter,
            on_source_delete,
            on_missing,
        })
    }
}

fn path<'a>(name: &str, value: RawValue<'a>) -> Result<&'a str> {
    let path = argument::text(PLACE, name, value)?;
    match path.split('.').any(|step| step.is_empty() || step.starts_with('$')) {
        true => Err(Error::user(
            ErrorCode::BadValue,
            format!(
                "'{PLACE}.{name}' is '{path}', which is no path: write field names with dots between them"
            ),
        )),
        false => Ok(path),
    }
}
