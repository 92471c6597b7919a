//! What becomes of a document, and writing it down.
//!
//! The walk over the update tree yields a [`Change`] per touched value and leaves everything else alone.
//! Writing then copies untouched elements as whole byte ranges into one buffer.

use std::borrow::Cow;

use kilim_bson::{Document, RawDocument, RawValue, Value, Writer};
use kilim_error::{Error, Result};

use crate::text;

/// The largest document a client may store.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The largest document that can be built at all: mongod leaves room for its own fields.
pub(super) const BUILT_BYTES_MAX: usize = DOCUMENT_BYTES_MAX + 16 * 1024;

/// What becomes of one value. `'a` is the before-image and the update: most new values are borrowed.
#[derive(Debug)]
pub(super) enum Change<'a> {
    Keep,
    Remove,
    Set(RawValue<'a>),
    SetOwned(Value),
    /// Changes within a document; where none was, it is made.
    Fields(Vec<FieldChange<'a>>),
    /// Changes within an array, by rising index. Those beyond the end append, with nulls between.
    Elements(Vec<(usize, Change<'a>)>),
    /// The same, of elements that were chosen by `$[]` or a filter. Change events show the whole array.
    Several(Vec<(usize, Change<'a>)>),
    /// The array with elements appended from an index on.
    Appended {
        array: Value,
        from: usize,
    },
}

#[derive(Debug)]
pub(super) struct FieldChange<'a> {
    pub name: Cow<'a, str>,
    /// The field is there already; otherwise it is appended.
    pub exists: bool,
    pub change: Change<'a>,
}

impl Change<'_> {
    pub fn is_keep(&self) -> bool {
        matches!(self, Change::Keep)
    }

    /// The whole value that this change puts in place, if it does.
    pub fn new_value(&self) -> Option<RawValue<'_>> {
        match self {
            Change::Set(value) => Some(*value),
            Change::SetOwned(value) | Change::Appended { array: value, .. } => Some(value.as_raw()),
            _ => None,
        }
    }
}

/// `before` with changes to its fields.
pub(super) fn write_after(before: RawDocument<'_>, changes: &[FieldChange<'_>]) -> Result<Document> {
    let mut writer = Writer::with_capacity(before.as_bytes().len() + 256);
    write_fields(&mut writer, before, changes)?;
    let after = writer.finish();
    check_size(after.as_raw())?;
    Ok(after)
}

pub(super) fn check_size(after: RawDocument<'_>) -> Result<()> {
    let size = after.as_bytes().len();
    if size > BUILT_BYTES_MAX {
        let first = after.iter().next().map(|(name, value)| text::element(name, value)).unwrap_or_default();
        return Err(too_large_to_build(size, &first));
    }
    if size > DOCUMENT_BYTES_MAX {
        let message = format!("Resulting document after update is larger than {DOCUMENT_BYTES_MAX}");
        return Err(Error::location(17419, message));
    }
    Ok(())
}

pub(super) fn too_large_to_build(size: usize, first: &str) -> Error {
    let limit = BUILT_BYTES_MAX;
    Error::location(
        10334,
        format!(
            "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and {limit}(16MB) \
             First element: {first}"
        ),
    )
}

fn write_fields(writer: &mut Writer, before: RawDocument<'_>, changes: &[FieldChange<'_>]) -> Result<()> {
    let mut pending: Vec<&FieldChange<'_>> = changes.iter().filter(|field| field.exists).collect();
    let mut elements = before.iter();
    while let Some((name, value, bytes)) = elements.next_with_bytes() {
        match pending.iter().position(|field| field.name == name) {
            None => writer.append_elements(bytes),
            Some(at) => {
                // Out of the list, so that a second field of that name is left as it is.
                let field = pending.remove(at);
                write_change(writer, Label::Name(name), Some(value), &field.change)?;
            }
        }
    }
    for field in changes.iter().filter(|field| !field.exists) {
        write_change(writer, Label::Name(&field.name), None, &field.change)?;
    }
    Ok(())
}

fn write_elements(
    writer: &mut Writer,
    before: RawDocument<'_>,
    changes: &[(usize, Change<'_>)],
) -> Result<()> {
    let mut changes = changes.iter().peekable();
    let mut length = 0;
    let mut elements = before.iter();
    while let Some((_, value, bytes)) = elements.next_with_bytes() {
        match changes.next_if(|(index, _)| *index == length) {
            None => writer.append_elements(bytes),
            Some((index, change)) => write_change(writer, Label::Index(*index), Some(value), change)?,
        }
        length += 1;
    }
    for (index, change) in changes {
        while length < *index {
            writer.append_index(length, RawValue::Null);
            length += 1;
        }
        write_change(writer, Label::Index(*index), None, change)?;
        length += 1;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Label<'n> {
    Name(&'n str),
    Index(usize),
}

fn write_change(
    writer: &mut Writer,
    label: Label<'_>,
    before: Option<RawValue<'_>>,
    change: &Change<'_>,
) -> Result<()> {
    // One element may be multiplied by every `$[]` above it, so the size is watched while writing.
    if writer.len() > BUILT_BYTES_MAX {
        return Err(too_large_to_build(writer.len(), ""));
    }
    match change {
        Change::Keep => before.into_iter().for_each(|value| append(writer, label, value)),
        Change::Remove => match label {
            Label::Name(_) => {}
            // An array keeps its other elements where they are.
            Label::Index(index) => writer.append_index(index, RawValue::Null),
        },
        Change::Set(value) => append(writer, label, *value),
        Change::SetOwned(value) | Change::Appended { array: value, .. } => {
            append(writer, label, value.as_raw())
        }
        Change::Fields(fields) => {
            match label {
                Label::Name(name) => writer.open_document(name),
                Label::Index(index) => writer.open_document_at(index),
            }
            let before = before.and_then(RawValue::as_document).unwrap_or(RawDocument::empty());
            write_fields(writer, before, fields)?;
            writer.close();
        }
        Change::Elements(elements) | Change::Several(elements) => {
            match label {
                Label::Name(name) => writer.open_array(name),
                Label::Index(index) => writer.open_array_at(index),
            }
            let before =
                before.and_then(RawValue::as_array).map_or(RawDocument::empty(), |array| array.as_document());
            write_elements(writer, before, elements)?;
            writer.close();
        }
    }
    Ok(())
}

fn append(writer: &mut Writer, label: Label<'_>, value: RawValue<'_>) {
    match label {
        Label::Name(name) => writer.append(name, value),
        Label::Index(index) => writer.append_index(index, value),
    }
}
