//! Reading and writing at a dotted path that leads through documents only.

use kilim_bson::{Document, RawDocument, RawValue, Writer, compare};

/// A path's names; never empty.
pub(crate) type Names = Box<[Box<str>]>;

pub(crate) fn names(path: &str) -> Names {
    path.split('.').map(Into::into).collect()
}

/// Whether one path leads to the other or into it.
pub fn overlap(left: &str, right: &str) -> bool {
    let within = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    within(left, right) || within(right, left)
}

/// Whether `inner` is `outer` or lies within it.
pub fn lies_within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether it can be the path of a field that a pattern writes: names with dots between them.
pub(crate) fn is_path(path: &str) -> bool {
    !path.split('.').any(|step| step.is_empty() || step.starts_with('$'))
}

/// Whether a step of a path is a number: a place in an array to an index, a field to an expression.
pub(crate) fn is_number(step: &str) -> bool {
    !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit())
}

/// What lies at a path.
pub(crate) fn get<'a>(document: RawDocument<'a>, names: &[Box<str>]) -> Option<RawValue<'a>> {
    let (first, rest) = names.split_first()?;
    match (document.get(first)?, rest) {
        (value, []) => Some(value),
        (RawValue::Document(nested), rest) => get(nested, rest),
        _ => None,
    }
}

/// The values at a path that an index over it has keys for: through arrays, and the elements of the last one.
pub(crate) fn visit_values<'a>(
    document: RawDocument<'a>,
    names: &[Box<str>],
    visit: &mut dyn FnMut(RawValue<'a>),
) {
    let Some((first, rest)) = names.split_first() else { return };
    match (document.get(first), rest) {
        (Some(RawValue::Array(array)), []) => array.iter().for_each(visit),
        (Some(value), []) => visit(value),
        (Some(RawValue::Document(nested)), rest) => visit_values(nested, rest, visit),
        (Some(RawValue::Array(array)), rest) => {
            for nested in array.iter().filter_map(RawValue::as_document) {
                visit_values(nested, rest, visit);
            }
        }
        _ => {}
    }
}

/// Whether a document has a value at a path, as an index over it would find it.
pub fn has_value(document: RawDocument<'_>, path: &str, value: RawValue<'_>) -> bool {
    let mut found = false;
    visit_values(document, &names(path), &mut |own| found |= compare(own, value).is_eq());
    found
}

/// The document with another value at a path, or with none. Documents on the way are made where they are
/// missing; what stands in the way of a value gives way to it.
pub(crate) fn put(document: RawDocument<'_>, names: &[Box<str>], value: Option<RawValue<'_>>) -> Document {
    let mut out = Writer::with_capacity(document.as_bytes().len() + 64);
    put_into(document, names, value, &mut out);
    out.finish()
}

/// `put` for those who have the path as a text.
pub fn with_value(document: RawDocument<'_>, path: &str, value: Option<RawValue<'_>>) -> Document {
    put(document, &names(path), value)
}

fn put_into(document: RawDocument<'_>, names: &[Box<str>], value: Option<RawValue<'_>>, out: &mut Writer) {
    let Some((first, rest)) = names.split_first() else {
        out.append_elements(document.elements());
        return;
    };
    let mut met = false;
    let mut fields = document.iter();
    while let Some((name, old, bytes)) = fields.next_with_bytes() {
        if *name != **first {
            out.append_elements(bytes);
        } else if !std::mem::replace(&mut met, true) {
            put_field(first, Some(old), rest, value, out);
        }
    }
    if !met {
        put_field(first, None, rest, value, out);
    }
}

fn put_field(
    name: &str,
    old: Option<RawValue<'_>>,
    rest: &[Box<str>],
    value: Option<RawValue<'_>>,
    out: &mut Writer,
) {
    match (rest, old, value) {
        ([], _, Some(value)) => out.append(name, value),
        ([], _, None) => {}
        (rest, Some(RawValue::Document(nested)), value) => {
            out.open_document(name);
            put_into(nested, rest, value, out);
            out.close();
        }
        (rest, _, value @ Some(_)) => {
            out.open_document(name);
            put_into(RawDocument::empty(), rest, value, out);
            out.close();
        }
        // There is nothing to take away.
        (_, Some(old), None) => out.append(name, old),
        (_, None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Value, doc};

    use super::*;

    #[test]
    fn paths_overlap_where_one_leads_into_the_other() {
        assert!(overlap("a", "a") && overlap("a", "a.b") && overlap("a.b", "a"));
        assert!(!overlap("a", "ab") && !overlap("a.b", "a.c"));
        assert!(lies_within("a.b", "a") && !lies_within("a", "a.b"));
    }

    #[test]
    fn a_value_is_put_where_the_path_leads() {
        let put = |document: Document, path: &str, value: Option<Value>| {
            put(document.as_raw(), &names(path), value.as_ref().map(Value::as_raw))
        };
        let one = || Some(Value::Int32(1));
        assert_eq!(put(doc! {"x": 0}, "a", one()), doc! {"x": 0, "a": 1});
        assert_eq!(put(doc! {"a": 0, "x": 0}, "a", one()), doc! {"a": 1, "x": 0});
        assert_eq!(put(doc! {"a": {"x": 0}}, "a.b", one()), doc! {"a": {"x": 0, "b": 1}});
        assert_eq!(put(doc! {}, "a.b", one()), doc! {"a": {"b": 1}});
        assert_eq!(put(doc! {"a": 5}, "a.b", one()), doc! {"a": {"b": 1}});
        assert_eq!(put(doc! {"a": {"b": 1, "c": 2}}, "a.b", None), doc! {"a": {"c": 2}});
        assert_eq!(put(doc! {"a": 5}, "a.b", None), doc! {"a": 5});
        assert_eq!(put(doc! {"x": 0}, "a.b", None), doc! {"x": 0});
    }
}
