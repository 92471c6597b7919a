//! Putting what was found into a document.

use kilim_bson::{Document, RawDocument, RawValue, Writer};

use crate::operator::Row;

/// What goes to a path.
#[derive(Clone, Copy)]
pub(crate) enum Placed<'a> {
    /// An array of the rows' documents.
    Rows(&'a [Row]),
    Value(RawValue<'a>),
    /// The path's parents are there, it itself is not.
    Nothing,
}

/// The document with something else at a path. What stands in the way on its way becomes a document.
pub(crate) fn place(
    document: RawDocument<'_>,
    names: &[Box<str>],
    placed: Placed<'_>,
    size: usize,
) -> Document {
    let mut writer = Writer::with_capacity(document.as_bytes().len() + size + 64);
    write(&mut writer, Some(document), names, placed);
    writer.finish()
}

/// The same, at the end of the document and of each document on the path's way.
pub(crate) fn append(
    document: RawDocument<'_>,
    names: &[Box<str>],
    placed: Placed<'_>,
    size: usize,
) -> Document {
    let mut writer = Writer::with_capacity(document.as_bytes().len() + size + 64);
    write_behind(&mut writer, Some(document), names, placed);
    writer.finish()
}

fn write_behind(
    writer: &mut Writer,
    document: Option<RawDocument<'_>>,
    names: &[Box<str>],
    placed: Placed<'_>,
) {
    let Some((name, rest)) = names.split_first() else { return };
    let mut within = None;
    if let Some(document) = document {
        match document.get(name) {
            None => writer.append_elements(document.elements()),
            Some(value) => {
                within = value.as_document();
                let mut fields = document.iter();
                while let Some((field, _, bytes)) = fields.next_with_bytes() {
                    if *field != **name {
                        writer.append_elements(bytes);
                    }
                }
            }
        }
    }
    if rest.is_empty() {
        write_leaf(writer, name, placed);
    } else {
        writer.open_document(name);
        write_behind(writer, within, rest, placed);
        writer.close();
    }
}

fn write(writer: &mut Writer, document: Option<RawDocument<'_>>, names: &[Box<str>], placed: Placed<'_>) {
    let Some((name, rest)) = names.split_first() else { return };
    let mut done = false;
    if let Some(document) = document {
        match document.get(name) {
            None => writer.append_elements(document.elements()),
            Some(_) => {
                let mut fields = document.iter();
                while let Some((field, value, bytes)) = fields.next_with_bytes() {
                    if *field == **name && !done {
                        write_field(writer, name, value.as_document(), rest, placed);
                        done = true;
                    } else {
                        writer.append_elements(bytes);
                    }
                }
            }
        }
    }
    if !done {
        write_field(writer, name, None, rest, placed);
    }
}

fn write_field(
    writer: &mut Writer,
    name: &str,
    within: Option<RawDocument<'_>>,
    rest: &[Box<str>],
    placed: Placed<'_>,
) {
    if !rest.is_empty() {
        writer.open_document(name);
        write(writer, within, rest, placed);
        writer.close();
        return;
    }
    write_leaf(writer, name, placed);
}

fn write_leaf(writer: &mut Writer, name: &str, placed: Placed<'_>) {
    match placed {
        Placed::Nothing => {}
        Placed::Value(value) => writer.append(name, value),
        Placed::Rows(rows) => {
            writer.open_array(name);
            for (at, row) in rows.iter().enumerate() {
                writer.append_index(at, RawValue::Document(row.document()));
            }
            writer.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{RawValue, doc};

    use super::*;

    fn check(document: Document, path: &str, placed: Placed<'_>, expected: Document) {
        let names: Vec<Box<str>> = path.split('.').map(Into::into).collect();
        assert_eq!(place(document.as_raw(), &names, placed, 0), expected);
    }

    #[test]
    fn a_value_takes_its_place() {
        let one = Placed::Value(RawValue::Int32(1));
        check(doc! {"a": 5, "b": 6}, "a", one, doc! {"a": 1, "b": 6});
        check(doc! {"a": 5}, "b", one, doc! {"a": 5, "b": 1});
        check(doc! {"a": 5, "b": 6}, "a.b", one, doc! {"a": {"b": 1}, "b": 6});
        check(doc! {"a": {"b": 5, "c": 6}}, "a.b", one, doc! {"a": {"b": 1, "c": 6}});
        check(doc! {"a": [1]}, "a.b.c", one, doc! {"a": {"b": {"c": 1}}});
    }

    #[test]
    fn a_value_goes_to_the_end() {
        let names = ["a".into(), "b".into()];
        let one = Placed::Value(RawValue::Int32(1));
        let document = doc! {"a": {"b": 5, "c": 6}, "d": 7};
        assert_eq!(append(document.as_raw(), &names, one, 0), doc! {"d": 7, "a": {"c": 6, "b": 1}});
    }

    #[test]
    fn nothing_leaves_the_parents() {
        check(doc! {"a": 5, "b": 6}, "a", Placed::Nothing, doc! {"b": 6});
        check(doc! {"a": 5}, "a.b", Placed::Nothing, doc! {"a": {}});
    }

    #[test]
    fn rows_become_an_array() {
        let rows = [Row::of(doc! {"x": 1}), Row::of(doc! {})];
        check(doc! {}, "a", Placed::Rows(&rows), doc! {"a": [{"x": 1}, {}]});
    }
}
