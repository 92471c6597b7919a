//! The document that an upsert inserts: what the filter demands, then the update.

use std::collections::BTreeMap;

use kilim_bson::{Document, ObjectId, Path, RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, ErrorCode, Result};

use super::{change, storage};
use crate::filter::{Comparison, Filter, Predicate};

/// Equalities by path. mongod sorts them by the text of the path, and so come the fields.
pub(super) type Equalities<'f> = BTreeMap<&'f str, &'f Value>;

/// What the filter demands to be equal.
pub(super) fn equalities(filter: &Filter) -> Result<Equalities<'_>> {
    let mut equalities = Equalities::new();
    collect(filter, &mut equalities, &|_| Ok(true))?;
    Ok(equalities)
}

/// The document that the equalities describe: operators start from it.
pub(super) fn document_from(equalities: &Equalities<'_>) -> Result<Document> {
    if equalities.contains_key("") {
        return Err(Error::user(ErrorCode::IllegalOperation, "Cannot call setValue on the root object"));
    }
    let mut fields: Vec<(&str, Field<'_>)> = Vec::new();
    for (path, value) in equalities {
        storage::check_depth(value.as_raw(), path.split('.').count())?;
        insert(&mut fields, path, value);
    }
    let mut writer = Writer::new();
    write(&mut writer, &fields);
    Ok(writer.finish())
}

/// The `_id` that the filter demands: all that a replacement takes from it.
pub(super) fn id_from_filter(filter: &Filter) -> Result<Option<&Value>> {
    let mut equalities = Equalities::new();
    collect(filter, &mut equalities, &|path| match path.strip_prefix("_id") {
        Some("") => Ok(true),
        Some(rest) if rest.starts_with('.') => {
            let message =
                format!("field at '_id' must be exactly specified, field at sub-path '{path}'found");
            Err(Error::user(ErrorCode::NotExactValueField, message))
        }
        _ => Ok(false),
    })?;
    Ok(equalities.remove("_id"))
}

fn collect<'f>(
    filter: &'f Filter,
    equalities: &mut Equalities<'f>,
    wanted: &dyn Fn(&str) -> Result<bool>,
) -> Result<()> {
    match filter {
        Filter::And(children) => children.iter().try_for_each(|child| collect(child, equalities, wanted)),
        Filter::Field { path, predicate: Predicate::Compare(Comparison::Eq, value) } => {
            if wanted(path.as_str())? {
                check_new(path, equalities)?;
                equalities.insert(path.as_str(), value);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Refuses a path that another equality has set already, wholly or in part.
fn check_new(path: &Path, equalities: &Equalities<'_>) -> Result<()> {
    let path = path.as_str();
    let refuse = |message| Err(Error::user(ErrorCode::NotSingleValueField, message));
    if equalities.contains_key(path) {
        return refuse(format!("cannot infer query fields to set, path '{path}' is matched twice"));
    }
    let within =
        |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
    for other in equalities.keys() {
        let (inner, outer) = if within(path, other) { (path, *other) } else { (*other, path) };
        // A last empty step counts for nothing.
        if inner.strip_suffix('.') == Some(outer) {
            return refuse(format!("cannot infer query fields to set, path '{inner}' is matched twice"));
        }
        if within(inner, outer) {
            let message =
                format!("cannot infer query fields to set, both paths '{inner}' and '{outer}' are matched");
            return refuse(message);
        }
    }
    Ok(())
}

enum Field<'f> {
    Value(&'f Value),
    Document(Vec<(&'f str, Field<'f>)>),
}

fn insert<'f>(fields: &mut Vec<(&'f str, Field<'f>)>, path: &'f str, value: &'f Value) {
    let Some((name, rest)) = path.split_once('.') else {
        fields.push((path, Field::Value(value)));
        return;
    };
    let at = match fields.iter().position(|(field, _)| *field == name) {
        Some(at) => at,
        None => {
            fields.push((name, Field::Document(Vec::new())));
            fields.len() - 1
        }
    };
    if let Field::Document(inner) = &mut fields[at].1 {
        insert(inner, rest, value);
    }
}

fn write(writer: &mut Writer, fields: &[(&str, Field<'_>)]) {
    for (name, field) in fields {
        match field {
            Field::Value(value) => writer.append(name, value.as_raw()),
            Field::Document(inner) => {
                writer.open_document(name);
                write(writer, inner);
                writer.close();
            }
        }
    }
}

/// The document with its `_id` first, a new one where it has none.
pub(super) fn with_id_first(document: RawDocument<'_>) -> Result<Document> {
    let id = document.get("_id").unwrap_or_else(|| RawValue::ObjectId(ObjectId::new()));
    let mut writer = Writer::with_capacity(document.as_bytes().len() + 32);
    writer.append("_id", id);
    let mut elements = document.iter();
    while let Some((name, _, bytes)) = elements.next_with_bytes() {
        if name != "_id" {
            writer.append_elements(bytes);
        }
    }
    let document = writer.finish();
    change::check_size(document.as_raw())?;
    Ok(document)
}
