//! `$unwind`: one document for each element of an array.
//!
//! A row is the document's bytes up to the array, the element, and the bytes behind: what stays the same is
//! copied once and looked at by nobody. Only where the element's index goes into a field that is there, or
//! lies deeper, is the row written anew.

use std::ops::Range;
use std::sync::Arc;

use kilim_bson::{Document, ElementType, RawDocument, RawValue, Writer, doc};
use kilim_error::{Error, Result};

use super::{Behaviour, Beyond, Context, Modified, Paths, Stage};
use crate::expression::{Dependencies, FieldPath};
use crate::projection::Projection;

#[derive(Debug, Clone)]
pub struct Unwind {
    pub path: FieldPath,
    /// Where the element's index goes.
    pub index: Option<FieldPath>,
    /// Documents without elements are kept.
    pub preserve: bool,
    /// What later stages read, where it is not everything: the rest need not be copied into every row.
    pub narrow: Option<Arc<Projection>>,
}

pub(super) fn parse(_: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let (mut path, mut index, mut preserve) = ("", None, false);
    match value {
        RawValue::String(text) => path = text,
        RawValue::Document(options) => {
            for (name, value) in options {
                let kind = value.element_type().name();
                match (name, value) {
                    ("path", RawValue::String(text)) => path = text,
                    ("path", _) => {
                        return Err(Error::location(
                            28808,
                            format!("expected a string as the path for $unwind stage, got {kind}"),
                        ));
                    }
                    ("preserveNullAndEmptyArrays", RawValue::Bool(flag)) => preserve = flag,
                    ("preserveNullAndEmptyArrays", _) => {
                        return Err(Error::location(
                            28809,
                            format!(
                                "expected a boolean for the preserveNullAndEmptyArrays option to $unwind stage, got \
                                 {kind}"
                            ),
                        ));
                    }
                    ("includeArrayIndex", RawValue::String(text)) if !text.is_empty() => {
                        if text.starts_with('$') {
                            return Err(Error::location(
                                28822,
                                format!(
                                    "includeArrayIndex option to $unwind stage should not be prefixed with a '$': \
                                     {text}"
                                ),
                            ));
                        }
                        index = Some(text);
                    }
                    ("includeArrayIndex", _) => {
                        return Err(Error::location(
                            28810,
                            format!(
                                "expected a non-empty string for the includeArrayIndex  option to $unwind stage, got \
                                 {kind}"
                            ),
                        ));
                    }
                    _ => {
                        return Err(Error::location(
                            28811,
                            format!("unrecognized option to $unwind stage: {name}"),
                        ));
                    }
                }
            }
        }
        _ => {
            return Err(Error::location(
                15981,
                format!(
                    "expected either a string or an object as specification for $unwind stage, got {}",
                    value.element_type().name()
                ),
            ));
        }
    }
    if path.is_empty() {
        return Err(Error::location(28812, "no path specified to $unwind stage"));
    }
    let Some(path) = path.strip_prefix('$') else {
        return Err(Error::location(
            28818,
            format!("path option to $unwind stage should be prefixed with a '$': {path}"),
        ));
    };
    let path = FieldPath::parse(path)?;
    let index = index.map(FieldPath::parse).transpose()?;
    out.push(Stage::Unwind(Unwind { path, index, preserve, narrow: None }));
    Ok(())
}

/// Where in a document's bytes the field lies that is unwound. Holds no document, so that it can lie beside one.
#[derive(Debug, Default, Clone)]
pub struct Cut {
    /// The field, its type and name included.
    hole: Range<usize>,
    /// The lengths of the documents around it, the outermost first.
    lengths: Vec<usize>,
    /// The array's elements, their types and names included.
    elements: Vec<Range<usize>>,
}

/// What a document has at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// An array with elements: see [`Cut::len`].
    Elements,
    /// An array without.
    Empty,
    /// A value that is no array and stands for its only element.
    Value,
    /// Null, undefined or nothing.
    Nothing,
}

impl Cut {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }
}

impl Unwind {
    /// Of a path alone.
    pub fn of(path: FieldPath) -> Unwind {
        Unwind { path, index: None, preserve: false, narrow: None }
    }

    /// Looks for the field. What `cut` held before is forgotten, its memory is used again.
    pub fn find(&self, root: RawDocument<'_>, cut: &mut Cut) -> Found {
        let base = root.as_bytes().as_ptr() as usize;
        let offset = |bytes: &[u8]| bytes.as_ptr() as usize - base;
        cut.lengths.clear();
        cut.elements.clear();
        let mut document = root;
        let mut names = self.path.names().iter();
        let mut next = names.next();
        while let Some(name) = next {
            cut.lengths.push(offset(document.as_bytes()));
            let mut fields = document.iter();
            let found = loop {
                match fields.next_with_bytes() {
                    None => return Found::Nothing,
                    Some((field, value, bytes)) if *field == **name => break (value, bytes),
                    Some(_) => {}
                }
            };
            next = names.next();
            match found {
                (RawValue::Document(nested), _) if next.is_some() => document = nested,
                _ if next.is_some() => return Found::Nothing,
                (RawValue::Array(array), bytes) => {
                    cut.hole = offset(bytes)..offset(bytes) + bytes.len();
                    let mut elements = array.as_document().iter();
                    while let Some((_, _, bytes)) = elements.next_with_bytes() {
                        cut.elements.push(offset(bytes)..offset(bytes) + bytes.len());
                    }
                    return if cut.is_empty() { Found::Empty } else { Found::Elements };
                }
                (RawValue::Null | RawValue::Undefined, _) => return Found::Nothing,
                _ => return Found::Value,
            }
        }
        Found::Nothing
    }

    /// The document with one element in the place of its array.
    pub fn row(&self, root: RawDocument<'_>, cut: &Cut, element: usize) -> Document {
        let bytes = root.as_bytes();
        let value = &bytes[cut.elements[element].clone()];
        let name_end = value.iter().position(|byte| *byte == 0).unwrap_or(0) + 1;
        let name = self.path.names().last().map_or("", |name| &**name);
        let header = (value[0], name, &value[name_end..]);
        self.with_index(self.filled(root, cut, Some(header)), Some(element as i64))
    }

    /// A document whose array is empty, without it.
    pub fn without(&self, root: RawDocument<'_>, cut: &Cut) -> Document {
        let below = self.index.as_ref().and_then(|index| index.names().strip_prefix(self.path.names()));
        let Some((name, below)) = self.path.names().last().zip(below) else {
            return self.with_index(self.filled(root, cut, None), None);
        };
        // The index goes where the array was, or into a document there.
        let field = match below {
            [] => self.filled(root, cut, Some((ElementType::Null as u8, name, &[]))),
            below => {
                let document = set(RawDocument::empty(), below, RawValue::Null);
                self.filled(root, cut, Some((ElementType::Document as u8, name, document.as_bytes())))
            }
        };
        // SAFETY: as in `with_index`.
        unsafe { Document::from_validated(field) }
    }

    /// A document that stays as it is but for the index, which is null; none where nobody asked for the index.
    pub fn unindexed(&self, root: RawDocument<'_>) -> Option<Document> {
        let path = self.index.as_ref()?;
        Some(set(root, path.names(), RawValue::Null))
    }

    fn filled(&self, root: RawDocument<'_>, cut: &Cut, field: Option<(u8, &str, &[u8])>) -> Vec<u8> {
        let bytes = root.as_bytes();
        let added = field.map_or(0, |(_, name, value)| 1 + name.len() + 1 + value.len());
        // Room for an index beside.
        let mut out = Vec::with_capacity(bytes.len() - cut.hole.len() + added + 32);
        out.extend_from_slice(&bytes[..cut.hole.start]);
        if let Some((kind, name, value)) = field {
            out.push(kind);
            out.extend_from_slice(name.as_bytes());
            out.push(0);
            out.extend_from_slice(value);
        }
        out.extend_from_slice(&bytes[cut.hole.end..]);
        for &at in &cut.lengths {
            let mut length = [0; 4];
            length.copy_from_slice(&bytes[at..at + 4]);
            let length = u32::from_le_bytes(length) as usize - cut.hole.len() + added;
            out[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
        }
        out
    }

    fn with_index(&self, bytes: Vec<u8>, index: Option<i64>) -> Document {
        // SAFETY: the bytes of a document, with one field replaced by another and the lengths around it corrected.
        let document = unsafe { Document::from_validated(bytes) };
        let Some(path) = &self.index else { return document };
        let value = index.map_or(RawValue::Null, RawValue::Int64);
        match path.names() {
            [name] if document.get(name).is_none() => {
                let mut writer = Writer::resume(document);
                writer.append(name, value);
                writer.finish()
            }
            names => set(document.as_raw(), names, value),
        }
    }
}

/// The document with a value at a path. What is no document on the way gives way to one.
fn set(document: RawDocument<'_>, path: &[Box<str>], value: RawValue<'_>) -> Document {
    let mut writer = Writer::with_capacity(document.as_bytes().len() + 64);
    write_set(&mut writer, document, path, value);
    writer.finish()
}

fn write_set(writer: &mut Writer, document: RawDocument<'_>, path: &[Box<str>], value: RawValue<'_>) {
    let Some((name, rest)) = path.split_first() else { return };
    let put = |writer: &mut Writer, below: RawDocument<'_>| {
        if rest.is_empty() {
            writer.append(name, value);
        } else {
            writer.open_document(name);
            write_set(writer, below, rest, value);
            writer.close();
        }
    };
    let mut done = false;
    let mut fields = document.iter();
    while let Some((field, old, bytes)) = fields.next_with_bytes() {
        if *field == **name && !done {
            put(writer, old.as_document().unwrap_or(RawDocument::empty()));
            done = true;
        } else {
            writer.append_elements(bytes);
        }
    }
    if !done {
        put(writer, RawDocument::empty());
    }
}

impl Behaviour for Unwind {
    fn to_document(&self) -> Document {
        let mut options = doc! {"path": format!("${}", self.path.as_str())};
        if self.preserve {
            options.push("preserveNullAndEmptyArrays", true);
        }
        if let Some(index) = &self.index {
            options.push("includeArrayIndex", index.as_str());
        }
        doc! {"$unwind": options}
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        needed.field(self.path.as_str());
        Beyond::Later
    }

    fn modified(&self) -> Modified {
        let index = self.index.iter().map(|path| path.as_str().into());
        let paths = std::iter::once(self.path.as_str().into()).chain(index).collect();
        Modified::Paths(Paths { paths, ..Paths::default() })
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    fn unwind(path: &str, index: Option<&str>, preserve: bool) -> Unwind {
        let parse = |path: &str| FieldPath::parse(path).expect("a path");
        Unwind { index: index.map(parse), preserve, ..Unwind::of(parse(path)) }
    }

    fn rows(stage: &Unwind, document: &Document) -> Vec<Document> {
        let mut cut = Cut::default();
        match stage.find(document.as_raw(), &mut cut) {
            Found::Elements => (0..cut.len()).map(|at| stage.row(document.as_raw(), &cut, at)).collect(),
            Found::Empty => vec![stage.without(document.as_raw(), &cut)],
            _ => stage.unindexed(document.as_raw()).into_iter().collect(),
        }
    }

    #[test]
    fn an_element_takes_the_place_of_its_array() {
        let document = doc! {"_id": 1, "a": {"b": {"c": [1, "x", {"d": 2}], "e": 5}}, "f": 6};
        assert_eq!(
            rows(&unwind("a.b.c", None, false), &document),
            [
                doc! {"_id": 1, "a": {"b": {"c": 1, "e": 5}}, "f": 6},
                doc! {"_id": 1, "a": {"b": {"c": "x", "e": 5}}, "f": 6},
                doc! {"_id": 1, "a": {"b": {"c": {"d": 2}, "e": 5}}, "f": 6},
            ]
        );
        assert_eq!(
            rows(&unwind("a.b.c", Some("i"), false), &document)[1],
            doc! {"_id": 1, "a": {"b": {"c": "x", "e": 5}}, "f": 6, "i": 1i64}
        );
        assert_eq!(
            rows(&unwind("a.b.c", Some("a.i"), false), &document)[2],
            doc! {"_id": 1, "a": {"b": {"c": {"d": 2}, "e": 5}, "i": 2i64}, "f": 6}
        );
        assert_eq!(
            rows(&unwind("a.b.c", Some("f"), false), &document)[0],
            doc! {"_id": 1, "a": {"b": {"c": 1, "e": 5}}, "f": 0i64}
        );
    }

    #[test]
    fn an_empty_array_goes() {
        let document = doc! {"_id": 1, "a": {"b": []}, "c": 2};
        assert_eq!(rows(&unwind("a.b", None, true), &document), [doc! {"_id": 1, "a": {}, "c": 2}]);
        assert_eq!(
            rows(&unwind("a.b", Some("a.i"), true), &document),
            [doc! {"_id": 1, "a": {"i": null}, "c": 2}]
        );
        assert_eq!(
            rows(&unwind("a.b", Some("a.b.i"), true), &document),
            [doc! {"_id": 1, "a": {"b": {"i": null}}, "c": 2}]
        );
        assert_eq!(
            rows(&unwind("a.b", Some("a.b"), true), &document),
            [doc! {"_id": 1, "a": {"b": null}, "c": 2}]
        );
    }
}
