//! Where references and copies stand in a document.

use kilim_bson::{Array, ArrayBuilder, Document, RawDocument, RawValue, Value, Writer, identical};
use kilim_error::Result;

use super::is_reference;
use crate::effect::Copied;
use crate::path::{Names, get, names, put};

/// How a reference is found, and where its copy goes.
#[derive(Debug, Clone)]
pub(super) enum Site {
    /// In the documents that `common` leads to, through arrays: the reference at one path, the copy at another. Of several
    /// references, the copies are an array in their order.
    Beside { common: Names, local: Names, copy: Names },
    /// The documents that `container` leads to, through arrays, are the copies, with the reference in them. Of several
    /// references, each field is an array in their order.
    Inside { container: Names, local: Names, fields: Vec<Names> },
    /// The reference at one path, the copy's fields in the document itself. Of several references, each field is an array
    /// in their order.
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
            return Site::Inside { container: copy, local: inner, fields };
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
                    match referred(document, local) {
                        Referred::Many(references) => {
                            let copies = copies.and_then(RawValue::as_array);
                            for (index, reference) in references.into_iter().enumerate() {
                                if is_reference(reference) {
                                    visit(reference, copies.and_then(|copies| copies.get(index)));
                                }
                            }
                        }
                        Referred::One(reference) => visit(reference, copies),
                        Referred::Nothing => {}
                    }
                });
            }
            Site::Inside { container, local, fields } => {
                each_document(document, container, &mut |document| match referred(document, local) {
                    Referred::One(reference) => {
                        let without = put(document, local, None);
                        let copy = (!without.is_empty()).then(|| RawValue::Document(without.as_raw()));
                        visit(reference, copy);
                    }
                    Referred::Many(references) => visit_many(document, &references, fields, visit),
                    Referred::Nothing => {}
                });
            }
            Site::Flat { local, fields } => match referred(document, local) {
                Referred::One(reference) => {
                    let mut copy = Document::new();
                    for names in fields {
                        if let Some(value) = get(document, names) {
                            copy = put(copy.as_raw(), names, Some(value));
                        }
                    }
                    visit(reference, (!copy.is_empty()).then(|| RawValue::Document(copy.as_raw())));
                }
                Referred::Many(references) => visit_many(document, &references, fields, visit),
                Referred::Nothing => {}
            },
        }
    }

    pub(super) fn rewrite(&self, document: RawDocument<'_>, choose: &mut Choose<'_>) -> Result<Document> {
        match self {
            Site::Beside { common, local, copy } => {
                rewrite_documents(document, common, &mut |document| beside(document, local, copy, choose))
            }
            Site::Inside { container, local, fields } => {
                rewrite_documents(document, container, &mut |document| {
                    inside(document, local, fields, choose)
                })
            }
            Site::Flat { local, fields } => flat(document, local, fields, choose),
        }
    }
}

/// What a document refers to.
enum Referred<'a> {
    Nothing,
    One(RawValue<'a>),
    /// The elements of an array, or what a path through an array leads to, in their order. Some may be no references.
    Many(Vec<RawValue<'a>>),
}

/// What lies at the path of a reference, by the rules of expressions: an array on the way leads to what its documents have.
fn referred<'a>(document: RawDocument<'a>, path: &[Box<str>]) -> Referred<'a> {
    let Some((first, rest)) = path.split_first() else { return Referred::Nothing };
    match (document.get(first), rest) {
        (Some(RawValue::Array(array)), []) => Referred::Many(array.iter().collect()),
        (Some(value), []) if is_reference(value) => Referred::One(value),
        (Some(RawValue::Document(nested)), rest) => referred(nested, rest),
        (Some(RawValue::Array(array)), rest) => {
            let mut found = Vec::new();
            for nested in array.iter().filter_map(RawValue::as_document) {
                match referred(nested, rest) {
                    Referred::Nothing if get(nested, rest).is_some() => found.push(RawValue::Null),
                    Referred::Nothing => {}
                    Referred::One(reference) => found.push(reference),
                    Referred::Many(references) => found.extend(references),
                }
            }
            Referred::Many(found)
        }
        _ => Referred::Nothing,
    }
}

/// Visits several references whose copies are spread over arrays, one a field.
fn visit_many(
    document: RawDocument<'_>,
    references: &[RawValue<'_>],
    fields: &[Names],
    visit: &mut Visit<'_>,
) {
    for (index, reference) in references.iter().enumerate().filter(|(_, value)| is_reference(**value)) {
        let mut copy = Document::new();
        for names in fields {
            let values = get(document, names).and_then(RawValue::as_array);
            if let Some(value) = values.and_then(|values| values.get(index)) {
                copy = put(copy.as_raw(), names, Some(value));
            }
        }
        visit(*reference, (!copy.is_empty()).then(|| RawValue::Document(copy.as_raw())));
    }
}

/// The document with an array in each field of a copy: what the copies of several references have there.
fn with_many(
    document: RawDocument<'_>,
    references: &[RawValue<'_>],
    fields: &[Names],
    choose: &mut Choose<'_>,
) -> Result<Document> {
    let mut chosen = Vec::with_capacity(references.len());
    for reference in references {
        chosen.push(if is_reference(*reference) { choose(*reference)? } else { Copied::Null });
    }
    let mut made = document.to_document();
    for names in fields {
        let old = get(document, names).and_then(RawValue::as_array);
        let mut values = ArrayBuilder::new();
        for (index, copied) in chosen.iter().enumerate() {
            let value = match copied {
                Copied::To(copy) => get(copy.as_raw(), names),
                Copied::Keep => old.and_then(|old| old.get(index)),
                Copied::Null | Copied::Unset => None,
            };
            // An element cannot be missing.
            values.push(value.unwrap_or(RawValue::Null));
        }
        made = put(made.as_raw(), names, Some(RawValue::Array(values.finish().as_raw())));
    }
    Ok(made)
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
    match referred(document, local) {
        Referred::Many(references) => {
            let old = get(document, copy).and_then(RawValue::as_array);
            let mut copies = ArrayBuilder::new();
            for (index, reference) in references.into_iter().enumerate() {
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
        Referred::One(reference) => Ok(match choose(reference)? {
            Copied::Keep => document.to_document(),
            Copied::To(made) => put(document, copy, Some(RawValue::Document(made.as_raw()))),
            Copied::Null => put(document, copy, Some(RawValue::Null)),
            Copied::Unset => put(document, copy, None),
        }),
        // No reference, no copy.
        Referred::Nothing => Ok(put(document, copy, None)),
    }
}

/// A document that is a copy, with the reference it is a copy by.
fn inside(
    document: RawDocument<'_>,
    local: &[Box<str>],
    fields: &[Names],
    choose: &mut Choose<'_>,
) -> Result<Document> {
    let reference = match referred(document, local) {
        Referred::One(reference) => reference,
        Referred::Many(references) => {
            let bare = only(document, local);
            return with_many(document, &references, fields, choose)
                .map(|made| spread_over(&bare, made.as_raw(), fields));
        }
        Referred::Nothing => return Ok(only(document, local)),
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

/// A document with one path of another, and with the whole array where the path leads through one.
fn only(document: RawDocument<'_>, path: &[Box<str>]) -> Document {
    let end = (1..=path.len()).find(|end| matches!(get(document, &path[..*end]), Some(RawValue::Array(_))));
    let path = &path[..end.unwrap_or(path.len())];
    match get(document, path) {
        Some(value) => put(RawDocument::empty(), path, Some(value)),
        None => Document::new(),
    }
}

/// A document with some fields of another.
fn spread_over(document: &Document, other: RawDocument<'_>, fields: &[Names]) -> Document {
    fields.iter().fold(document.clone(), |made, names| put(made.as_raw(), names, get(other, names)))
}

fn flat(
    document: RawDocument<'_>,
    local: &[Box<str>],
    fields: &[Names],
    choose: &mut Choose<'_>,
) -> Result<Document> {
    let copied = match referred(document, local) {
        Referred::One(reference) => choose(reference)?,
        Referred::Many(references) => return with_many(document, &references, fields, choose),
        Referred::Nothing => Copied::Unset,
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
