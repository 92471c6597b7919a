//! Where references and copies stand in a document.

use kilim_bson::{Array, ArrayBuilder, Document, RawDocument, RawValue, Value, Writer, identical};
use kilim_error::Result;

use super::is_reference;
use crate::effect::Copied;
use crate::path::{Names, get, names, put};

/// How a reference is found, and where its copy goes.
#[derive(Debug, Clone)]
pub(super) enum Site {
    /// In the documents that `common` leads to, through arrays: the reference at one path, the copy at another.
    Beside { common: Names, local: Names, copy: Names },
    /// The documents that `container` leads to, through arrays, are the copies, with the reference in them.
    Inside { container: Names, local: Names },
    /// The reference at one path, the copy's fields in the document itself.
    Flat { local: Names, fields: Vec<Names> },
}

/// What is visited: a reference and its copy as it is.
type Visit<'v> = dyn FnMut(RawValue<'_>, Option<RawValue<'_>>) + 'v;
type Choose<'c> = dyn FnMut(RawValue<'_>) -> Result<Copied> + 'c;

impl Site {
    pub(super) fn new(local: &str, as_path: Option<&str>, fields: Vec<Names>) -> Site {
        let local = names(local);
        let Some(as_path) = as_path else { return Site::Flat { local, fields } };
        let copy = names(as_path);
        if local.len() > copy.len() && local.starts_with(&copy) {
            let inner = local[copy.len()..].into();
            return Site::Inside { container: copy, local: inner };
        }
        let shared = local.iter().zip(&copy).take_while(|(left, right)| left == right).count();
        // Neither is the other's container, so something is left of both.
        let shared = shared.min(local.len() - 1).min(copy.len() - 1);
        Site::Beside {
            common: local[..shared].into(),
            local: local[shared..].into(),
            copy: copy[shared..].into(),
        }
    }

    /// Whether a copy without fields leaves no trace in its document.
    pub(super) fn hides_empty_copies(&self) -> bool {
        matches!(self, Site::Inside { .. } | Site::Flat { .. })
    }

    /// Whether references and copies are the same in both.
    pub(super) fn same(&self, left: RawDocument<'_>, right: RawDocument<'_>) -> bool {
        let same = |names: &[Box<str>]| match (left.get(&names[0]), right.get(&names[0])) {
            (None, None) => true,
            (Some(left), Some(right)) => identical(left, right),
            _ => false,
        };
        match self {
            Site::Beside { common, local, copy } => match common.first() {
                Some(_) => same(common),
                None => same(local) && same(copy),
            },
            Site::Inside { container, .. } => same(container),
            Site::Flat { local, fields } => same(local) && fields.iter().all(|names| same(names)),
        }
    }

    /// Each reference with its copy as told.
    pub(super) fn pairs(&self, document: RawDocument<'_>) -> Vec<(Value, Copied)> {
        let mut pairs = Vec::new();
        self.visit(document, &mut |reference, copy| {
            let copied = match copy {
                None => Copied::Unset,
                Some(RawValue::Document(copy)) => Copied::To(copy.to_document()),
                Some(_) => Copied::Null,
            };
            pairs.push((reference.to_value(), copied));
        });
        pairs
    }

    pub(super) fn has_copies(&self, document: RawDocument<'_>) -> bool {
        let mut any = false;
        self.visit(document, &mut |_, copy| any |= copy.is_some());
        any
    }

    pub(super) fn visit(&self, document: RawDocument<'_>, visit: &mut Visit<'_>) {
        match self {
            Site::Beside { common, local, copy } => {
                each_document(document, common, &mut |document| {
                    let copies = get(document, copy);
                    match get(document, local) {
                        Some(RawValue::Array(references)) => {
                            let copies = copies.and_then(RawValue::as_array);
                            for (index, reference) in references.iter().enumerate() {
                                if is_reference(reference) {
                                    visit(reference, copies.and_then(|copies| copies.get(index)));
                                }
                            }
                        }
                        Some(reference) if is_reference(reference) => visit(reference, copies),
                        _ => {}
                    }
                });
            }
            Site::Inside { container, local } => {
                each_document(document, container, &mut |document| {
                    if let Some(reference) = get(document, local).filter(|value| is_reference(*value)) {
                        let without = put(document, local, None);
                        let copy = (!without.is_empty()).then(|| RawValue::Document(without.as_raw()));
                        visit(reference, copy);
                    }
                });
            }
            Site::Flat { local, fields } => {
                if let Some(reference) = get(document, local).filter(|value| is_reference(*value)) {
                    let mut copy = Document::new();
                    for names in fields {
                        if let Some(value) = get(document, names) {
                            copy = put(copy.as_raw(), names, Some(value));
                        }
                    }
                    visit(reference, (!copy.is_empty()).then(|| RawValue::Document(copy.as_raw())));
                }
            }
        }
    }

    pub(super) fn rewrite(&self, document: RawDocument<'_>, choose: &mut Choose<'_>) -> Result<Document> {
        match self {
            Site::Beside { common, local, copy } => {
                rewrite_documents(document, common, &mut |document| beside(document, local, copy, choose))
            }
            Site::Inside { container, local } => {
                rewrite_documents(document, container, &mut |document| inside(document, local, choose))
            }
            Site::Flat { local, fields } => flat(document, local, fields, choose),
        }
    }
}

/// The documents that a path leads to, through arrays.
fn each_document(document: RawDocument<'_>, path: &[Box<str>], visit: &mut dyn FnMut(RawDocument<'_>)) {
    let Some((first, rest)) = path.split_first() else { return visit(document) };
    match document.get(first) {
        Some(RawValue::Document(nested)) => each_document(nested, rest, visit),
        Some(RawValue::Array(array)) => {
            for element in array.iter() {
                if let RawValue::Document(nested) = element {
                    each_document(nested, rest, visit);
                }
            }
        }
        _ => {}
    }
}

fn rewrite_documents(
    document: RawDocument<'_>,
    path: &[Box<str>],
    rewrite: &mut dyn FnMut(RawDocument<'_>) -> Result<Document>,
) -> Result<Document> {
    let Some((first, rest)) = path.split_first() else { return rewrite(document) };
    let mut out = Writer::with_capacity(document.as_bytes().len() + 64);
    let mut fields = document.iter();
    while let Some((name, value, bytes)) = fields.next_with_bytes() {
        match value {
            RawValue::Document(nested) if *name == **first => {
                out.append(name, RawValue::Document(rewrite_documents(nested, rest, rewrite)?.as_raw()));
            }
            RawValue::Array(array) if *name == **first => {
                out.open_array(name);
                for (index, element) in array.iter().enumerate() {
                    match element {
                        RawValue::Document(nested) => {
                            let made = rewrite_documents(nested, rest, rewrite)?;
                            out.append_index(index, RawValue::Document(made.as_raw()));
                        }
                        other => out.append_index(index, other),
                    }
                }
                out.close();
            }
            _ => out.append_elements(bytes),
        }
    }
    Ok(out.finish())
}

fn beside(
    document: RawDocument<'_>,
    local: &[Box<str>],
    copy: &[Box<str>],
    choose: &mut Choose<'_>,
) -> Result<Document> {
    match get(document, local) {
        Some(RawValue::Array(references)) => {
            let old = get(document, copy).and_then(RawValue::as_array);
            let mut copies = ArrayBuilder::new();
            for (index, reference) in references.iter().enumerate() {
                let copied = if is_reference(reference) { choose(reference)? } else { Copied::Null };
                match copied {
                    Copied::To(copy) => copies.push(RawValue::Document(copy.as_raw())),
                    // An element cannot be missing.
                    Copied::Null | Copied::Unset => copies.push(RawValue::Null),
                    Copied::Keep => {
                        copies.push(old.and_then(|old| old.get(index)).unwrap_or(RawValue::Null));
                    }
                }
            }
            let copies: Array = copies.finish();
            Ok(put(document, copy, Some(RawValue::Array(copies.as_raw()))))
        }
        Some(reference) if is_reference(reference) => Ok(match choose(reference)? {
            Copied::Keep => document.to_document(),
            Copied::To(made) => put(document, copy, Some(RawValue::Document(made.as_raw()))),
            Copied::Null => put(document, copy, Some(RawValue::Null)),
            Copied::Unset => put(document, copy, None),
        }),
        // No reference, no copy.
        _ => Ok(put(document, copy, None)),
    }
}

/// A document that is a copy, with the reference it is a copy by.
fn inside(document: RawDocument<'_>, local: &[Box<str>], choose: &mut Choose<'_>) -> Result<Document> {
    let Some(reference) = get(document, local).filter(|value| is_reference(*value)) else {
        return Ok(only(document, local));
    };
    Ok(match choose(reference)? {
        Copied::Keep => document.to_document(),
        Copied::To(copy) => {
            // The reference first, as people write it.
            let mut made = only(document, local);
            for (name, value) in copy.iter() {
                made = match (made.get(name), value) {
                    (Some(RawValue::Document(mine)), RawValue::Document(theirs)) => {
                        let mut both = mine.to_document();
                        theirs.iter().for_each(|(name, value)| both.push(name, value));
                        put(made.as_raw(), &names(name), Some(RawValue::Document(both.as_raw())))
                    }
                    _ => put(made.as_raw(), std::slice::from_ref(&name.into()), Some(value)),
                };
            }
            made
        }
        Copied::Null | Copied::Unset => only(document, local),
    })
}

/// A document with one path of another.
fn only(document: RawDocument<'_>, path: &[Box<str>]) -> Document {
    match get(document, path) {
        Some(value) => put(RawDocument::empty(), path, Some(value)),
        None => Document::new(),
    }
}

fn flat(
    document: RawDocument<'_>,
    local: &[Box<str>],
    fields: &[Names],
    choose: &mut Choose<'_>,
) -> Result<Document> {
    let copied = match get(document, local).filter(|value| is_reference(*value)) {
        Some(reference) => choose(reference)?,
        None => Copied::Unset,
    };
    let copy = match copied {
        Copied::Keep => return Ok(document.to_document()),
        Copied::To(copy) => Some(copy),
        Copied::Null | Copied::Unset => None,
    };
    let mut made = document.to_document();
    for names in fields {
        let value = copy.as_ref().and_then(|copy| get(copy.as_raw(), names));
        made = put(made.as_raw(), names, value);
    }
    Ok(made)
}
