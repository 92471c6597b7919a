//! Walking a dotted path through raw bytes, with MongoDB's implicit traversal of arrays.
//!
//! A path may lead to many values: on the way, every element of an array that is a document is entered, and
//! a numeric component also selects the element of that index. What is found is handed to a visitor one
//! by one, so nothing is collected and nothing is allocated.
//!
//! Invariant: the visitor sees values in the order in which mongod looks at them, because the first match
//! decides the index that the positional operator uses.

use kilim_bson::{Component, DEPTH_MAX, RawArray, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

/// What to do with an array at the end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// Visit each element, then the array itself.
    Elements,
    /// Visit the array itself only.
    Whole,
}

/// One value that a path leads to; no value where the path ends in a missing field.
pub(crate) struct Found<'a> {
    pub value: Option<RawValue<'a>>,
    /// The index in the outermost array that was traversed implicitly.
    pub index: Option<usize>,
}

/// Visits what `path` leads to until the visitor says true; whether it did.
pub(crate) fn visit<'a, F>(document: RawDocument<'a>, path: &[Component], leaf: Leaf, visitor: &mut F) -> bool
where
    F: FnMut(Found<'a>) -> bool,
{
    Walk { leaf, visitor }.document(document, path, None)
}

/// As [`visit`], where the value stands for what the first component of the path would find.
pub(crate) fn visit_value<'a, F>(value: RawValue<'a>, rest: &[Component], leaf: Leaf, visitor: &mut F) -> bool
where
    F: FnMut(Found<'a>) -> bool,
{
    let mut walk = Walk { leaf, visitor };
    match value {
        RawValue::Array(array) => walk.array(array, rest, None),
        RawValue::Document(document) if !rest.is_empty() => walk.document(document, rest, None),
        value if rest.is_empty() => walk.found(Some(value), None),
        _ => walk.found(None, None),
    }
}

struct Walk<'v, F> {
    leaf: Leaf,
    visitor: &'v mut F,
}

impl<F> Walk<'_, F> {
    fn found<'a>(&mut self, value: Option<RawValue<'a>>, index: Option<usize>) -> bool
    where
        F: FnMut(Found<'a>) -> bool,
    {
        (self.visitor)(Found { value, index })
    }

    fn document<'a>(
        &mut self,
        document: RawDocument<'a>,
        mut path: &[Component],
        outer: Option<usize>,
    ) -> bool
    where
        F: FnMut(Found<'a>) -> bool,
    {
        let mut document = document;
        while let Some((component, rest)) = path.split_first() {
            match document.get(&component.name) {
                Some(RawValue::Array(array)) => return self.array(array, rest, outer),
                Some(RawValue::Document(nested)) if !rest.is_empty() => document = nested,
                Some(value) if rest.is_empty() => return self.found(Some(value), outer),
                Some(_) | None => return self.found(None, outer),
            }
            path = rest;
        }
        false
    }

    fn array<'a>(&mut self, array: RawArray<'a>, rest: &[Component], outer: Option<usize>) -> bool
    where
        F: FnMut(Found<'a>) -> bool,
    {
        let Some((next, after)) = rest.split_first() else {
            if self.leaf == Leaf::Elements {
                for (index, element) in array.iter().enumerate() {
                    if self.found(Some(element), outer.or(Some(index))) {
                        return true;
                    }
                }
            }
            return self.found(Some(RawValue::Array(array)), outer);
        };
        for (index, element) in array.iter().enumerate() {
            if let RawValue::Document(document) = element
                && self.document(document, rest, outer.or(Some(index)))
            {
                return true;
            }
            if next.index == Some(index) && self.addressed(element, after, outer) {
                return true;
            }
        }
        false
    }

    /// The element that a numeric component names. An explicit index is no implicit traversal: it
    /// yields no position, and what lies behind it counts its own.
    fn addressed<'a>(&mut self, element: RawValue<'a>, after: &[Component], outer: Option<usize>) -> bool
    where
        F: FnMut(Found<'a>) -> bool,
    {
        match element {
            _ if after.is_empty() => self.found(Some(element), outer),
            RawValue::Document(document) => self.document(document, after, outer),
            RawValue::Array(array) => self.array(array, after, outer),
            _ => false,
        }
    }
}

/// Whether this is a field of a DBRef, the one kind of name that may begin with a dollar anywhere in a path.
pub fn is_dbref_name(name: &str) -> bool {
    matches!(name, "$id" | "$ref" | "$db")
}

/// Refuses a path that projections and sorts cannot use.
pub(crate) fn check_field_path(path: &str) -> Result<()> {
    if path.is_empty() {
        return Err(Error::location(40352, "FieldPath cannot be constructed with empty string"));
    }
    if path.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    for name in path.split('.') {
        if name.is_empty() {
            return Err(Error::location(15998, "FieldPath field names may not be empty strings."));
        }
        if name.contains('\0') {
            // mongod's sentence goes on with the byte, which ends it.
            return Err(Error::location(16411, "FieldPath field names may not contain '"));
        }
        if name.starts_with('$') && !is_dbref_name(name) {
            return Err(Error::location(
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            ));
        }
    }
    if path.split('.').count() > DEPTH_MAX {
        return Err(Error::user(ErrorCode::Overflow, "FieldPath is too long"));
    }
    Ok(())
}
