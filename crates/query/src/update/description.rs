//! What an update changed, as change events describe it: `updatedFields`, `removedFields`, `truncatedArrays` and
//! `disambiguatedPaths`.
//!
//! An update by operators is described by what its walk did ([`Described::of_changes`]): a field that was set is named, also if
//! parts of its value stayed. A pipeline, and whatever else makes a new document, is described by the difference of the two
//! documents ([`Described::of_difference`]); a difference that is not worth its size is no description, and the
//! event then shows the whole document.
//!
//! Within a document the order is mongod's: removed fields, fields with new values, new fields, then what changed inside
//! fields that stay.

use kilim_bson::{Array, Document, RawArray, RawDocument, RawElement, RawValue, Value, Writer};

use super::change::{Change, FieldChange};

/// A description in the making.
#[derive(Default)]
pub(super) struct Described<'a> {
    updated: Vec<(String, RawValue<'a>)>,
    removed: Vec<String>,
    truncated: Vec<(String, usize)>,
    /// Paths that do not say which of their parts are names and which are places in arrays.
    ambiguous: Vec<(String, Array)>,
}

/// A step of a path.
#[derive(Clone, Copy)]
enum Step<'s> {
    Field(&'s str),
    Element(usize),
}

/// How a path leads from the document to where the description is.
#[derive(Clone, Copy, Default)]
struct Trail<'t>(Option<(&'t Trail<'t>, Step<'t>)>);

impl Trail<'_> {
    /// Writes the path; whether it says which of its parts are names.
    fn write(&self, path: &mut String) -> bool {
        let Some((before, step)) = self.0 else { return true };
        let mut plain = before.write(path);
        if before.0.is_some() {
            path.push('.');
        }
        match step {
            Step::Field(name) => {
                // What a path begins with is a name, and a place has no leading zeros.
                let is_place = before.0.is_some()
                    && !name.is_empty()
                    && name.bytes().all(|byte| byte.is_ascii_digit())
                    && (name.len() == 1 || !name.starts_with('0'));
                plain &= !name.contains('.') && !is_place;
                path.push_str(name);
            }
            Step::Element(index) => path.push_str(&index.to_string()),
        }
        plain
    }

    fn parts(&self) -> Vec<Value> {
        let Some((before, step)) = self.0 else { return Vec::new() };
        let mut parts = before.parts();
        parts.push(match step {
            Step::Field(name) => Value::String(name.to_owned()),
            Step::Element(index) => Value::Int32(index as i32),
        });
        parts
    }
}

impl<'a> Described<'a> {
    /// What the changes of a walk over `before` made of it.
    pub(super) fn of_changes(
        before: RawDocument<'_>,
        after: RawDocument<'a>,
        changes: &[FieldChange<'_>],
    ) -> Described<'a> {
        let mut described = Described::default();
        described.fields(&Trail::default(), before, after, changes);
        described
    }

    fn path(&mut self, trail: &Trail<'_>) -> String {
        let mut path = String::new();
        if !trail.write(&mut path) {
            self.ambiguous.push((path.clone(), trail.parts().into_iter().collect()));
        }
        path
    }

    fn fields(
        &mut self,
        trail: &Trail<'_>,
        before: RawDocument<'_>,
        after: RawDocument<'a>,
        changes: &[FieldChange<'_>],
    ) {
        let is_inner = |field: &FieldChange<'_>| {
            field.exists
                && match &field.change {
                    Change::Fields(_) => matches!(after.get(&field.name), Some(RawValue::Document(_))),
                    Change::Elements(_) | Change::Appended { .. } => true,
                    _ => false,
                }
        };
        for field in changes.iter().filter(|field| matches!(field.change, Change::Remove)) {
            let removed = self.path(&Trail(Some((trail, Step::Field(&field.name)))));
            self.removed.push(removed);
        }
        for existing in [true, false] {
            let set = |field: &&FieldChange<'_>| {
                field.exists == existing
                    && !matches!(field.change, Change::Remove | Change::Keep)
                    && !is_inner(field)
            };
            for field in changes.iter().filter(set) {
                self.update(&Trail(Some((trail, Step::Field(&field.name)))), after.get(&field.name));
            }
        }
        for field in changes.iter().filter(|field| is_inner(field)) {
            let within = Trail(Some((trail, Step::Field(&field.name))));
            self.inner(&within, before.get(&field.name), after.get(&field.name), &field.change);
        }
    }

    /// What changed inside a value. A value that was not there before is named whole: a listener that follows a path into
    /// it would find nothing there.
    fn inner(
        &mut self,
        trail: &Trail<'_>,
        before: Option<RawValue<'_>>,
        after: Option<RawValue<'a>>,
        change: &Change<'_>,
    ) {
        let Some(before) = before else { return self.update(trail, after) };
        match (change, after) {
            (Change::Fields(fields), Some(RawValue::Document(document))) => {
                self.fields(trail, before.as_document().unwrap_or(RawDocument::empty()), document, fields)
            }
            (Change::Appended { from, .. }, Some(RawValue::Array(array))) if *from > 0 => {
                for (index, value) in array.iter().enumerate().skip(*from) {
                    self.update(&Trail(Some((trail, Step::Element(index)))), Some(value));
                }
            }
            (Change::Elements(elements), Some(RawValue::Array(array))) => {
                let before = before.as_array();
                for (index, change) in elements {
                    let within = Trail(Some((trail, Step::Element(*index))));
                    let was = before.and_then(|before| before.get(*index));
                    self.inner(&within, was, array.get(*index), change);
                }
            }
            (_, value) => self.update(trail, value),
        }
    }

    fn update(&mut self, trail: &Trail<'_>, value: Option<RawValue<'a>>) {
        let path = self.path(trail);
        self.updated.push((path, value.unwrap_or(RawValue::Null)));
    }

    /// How two documents differ; none if the difference is about as large as the document.
    pub(super) fn of_difference(
        before: RawDocument<'a>,
        after: RawDocument<'a>,
        always: bool,
    ) -> Option<Described<'a>> {
        let difference = differ(before, after);
        if !always && difference.bytes() + EVENT_BYTES >= after.as_bytes().len() {
            return None;
        }
        let mut described = Described::default();
        described.difference(&Trail::default(), &difference);
        Some(described)
    }

    fn difference(&mut self, trail: &Trail<'_>, difference: &Difference<'a>) {
        match difference {
            Difference::Fields { removed, updated, inserted, inner } => {
                for name in removed {
                    let path = self.path(&Trail(Some((trail, Step::Field(name)))));
                    self.removed.push(path);
                }
                for (name, value) in updated.iter().chain(inserted) {
                    self.update(&Trail(Some((trail, Step::Field(name)))), Some(*value));
                }
                for (name, inner) in inner {
                    self.difference(&Trail(Some((trail, Step::Field(name)))), inner);
                }
            }
            Difference::Elements { length, elements } => {
                if let Some(length) = length {
                    let path = self.path(trail);
                    self.truncated.push((path, *length));
                }
                for (index, element) in elements {
                    let within = Trail(Some((trail, Step::Element(*index))));
                    match element {
                        Element::Set(value) => self.update(&within, Some(*value)),
                        Element::Inner(inner) => self.difference(&within, inner),
                    }
                }
            }
        }
    }

    pub(super) fn into_document(self) -> Document {
        let mut writer = Writer::with_capacity(128);
        writer.open_document("updatedFields");
        self.updated.iter().for_each(|(path, value)| writer.append(path, *value));
        writer.close();
        writer.open_array("removedFields");
        for (index, path) in self.removed.iter().enumerate() {
            writer.append_index(index, RawValue::String(path));
        }
        writer.close();
        writer.open_array("truncatedArrays");
        for (index, (path, length)) in self.truncated.iter().enumerate() {
            writer.open_document_at(index);
            writer.append("field", RawValue::String(path));
            writer.append("newSize", RawValue::Int32(*length as i32));
            writer.close();
        }
        writer.close();
        if !self.ambiguous.is_empty() {
            writer.open_document("disambiguatedPaths");
            self.ambiguous
                .iter()
                .for_each(|(path, parts)| writer.append(path, RawValue::Array(parts.as_raw())));
            writer.close();
        }
        writer.finish()
    }
}

/// What mongod's record of a difference takes beside it.
const EVENT_BYTES: usize = 15;

/// A difference in the form that mongod records, because its size decides what an event shows.
enum Difference<'a> {
    Fields {
        removed: Vec<&'a str>,
        updated: Vec<(&'a str, RawValue<'a>)>,
        inserted: Vec<(&'a str, RawValue<'a>)>,
        inner: Vec<(&'a str, Difference<'a>)>,
    },
    Elements {
        /// Of the array, if it got shorter.
        length: Option<usize>,
        elements: Vec<(usize, Element<'a>)>,
    },
}

enum Element<'a> {
    Set(RawValue<'a>),
    Inner(Difference<'a>),
}

impl Difference<'_> {
    /// The size of the document that mongod records: `{d: {…}, u: {…}, i: {…}, sNAME: …}`, or `{a: true, l: n, uINDEX: …}`.
    fn bytes(&self) -> usize {
        // A length and a zero.
        const DOCUMENT: usize = 5;
        // A type and a zero behind the name.
        const ELEMENT: usize = 2;
        let section = |fields: usize| if fields == 0 { 0 } else { ELEMENT + 1 + DOCUMENT + fields };
        let values = |fields: &[(&str, RawValue<'_>)]| -> usize {
            fields.iter().map(|(name, value)| ELEMENT + name.len() + value_bytes(*value)).sum()
        };
        match self {
            Difference::Fields { removed, updated, inserted, inner } => {
                let removed: usize = removed.iter().map(|name| ELEMENT + name.len() + 1).sum();
                let inner: usize =
                    inner.iter().map(|(name, inner)| ELEMENT + 1 + name.len() + inner.bytes()).sum();
                DOCUMENT + section(removed) + section(values(updated)) + section(values(inserted)) + inner
            }
            Difference::Elements { length, elements } => {
                let length = if length.is_some() { ELEMENT + 1 + 4 } else { 0 };
                let elements: usize = elements
                    .iter()
                    .map(|(index, element)| {
                        let value = match element {
                            Element::Set(value) => value_bytes(*value),
                            Element::Inner(inner) => inner.bytes(),
                        };
                        ELEMENT + 1 + digits(*index) + value
                    })
                    .sum();
                DOCUMENT + (ELEMENT + 1 + 1) + length + elements
            }
        }
    }
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |digits| digits as usize + 1)
}

/// What a value takes in a document, without its type and name.
fn value_bytes(value: RawValue<'_>) -> usize {
    let mut writer = Writer::with_capacity(64);
    writer.append("", value);
    // A length, a type, an empty name; the last zero is still to come.
    writer.len().saturating_sub(4 + 2)
}

fn differ<'a>(before: RawDocument<'a>, after: RawDocument<'a>) -> Difference<'a> {
    let (mut removed, mut updated, mut inserted, mut inner) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut old, mut new) = (before.iter(), after.iter());
    let (mut was, mut is) = (old.next_element(), new.next_element());
    while let (Some(one), Some(other)) = (&was, &is) {
        if one.name != other.name {
            removed.push(one.name);
            was = old.next_element();
            continue;
        }
        match changed(one, other) {
            None => {}
            Some(Element::Set(value)) => updated.push((other.name, value)),
            Some(Element::Inner(difference)) => inner.push((other.name, difference)),
        }
        (was, is) = (old.next_element(), new.next_element());
    }
    removed.extend(was.map(|element| element.name).into_iter().chain(old.map(|(name, _)| name)));
    inserted.extend(is.map(|element| (element.name, element.value())).into_iter().chain(new));
    // A field that comes back at another place is only new.
    removed.retain(|name| !inserted.iter().any(|(back, _)| back == name));
    Difference::Fields { removed, updated, inserted, inner }
}

/// How a value changed; none if it did not.
fn changed<'a>(before: &RawElement<'a>, after: &RawElement<'a>) -> Option<Element<'a>> {
    if before.element_type() == after.element_type() && before.value_bytes() == after.value_bytes() {
        return None;
    }
    let (difference, whole) = match (before.value(), after.value()) {
        (RawValue::Document(before), RawValue::Document(after)) => {
            (differ(before, after), after.as_bytes().len())
        }
        (RawValue::Array(before), RawValue::Array(after)) => {
            (differ_in_elements(before, after), after.as_bytes().len())
        }
        (_, after) => return Some(Element::Set(after)),
    };
    Some(if difference.bytes() < whole { Element::Inner(difference) } else { Element::Set(after.value()) })
}

fn differ_in_elements<'a>(before: RawArray<'a>, after: RawArray<'a>) -> Difference<'a> {
    let (mut old, mut new) = (before.as_document().iter(), after.as_document().iter());
    let (mut length, mut elements) = (0, Vec::new());
    while let Some(is) = new.next_element() {
        let element = match old.next_element() {
            None => Some(Element::Set(is.value())),
            Some(was) => changed(&was, &is),
        };
        elements.extend(element.map(|element| (length, element)));
        length += 1;
    }
    Difference::Elements { length: old.next_element().map(|_| length), elements }
}

/// What two documents differ in, as change events describe it; none if that is about as large as the document. If
/// `always`, it is described all the same.
pub fn describe_difference(
    before: RawDocument<'_>,
    after: RawDocument<'_>,
    always: bool,
) -> Option<Document> {
    Described::of_difference(before, after, always).map(Described::into_document)
}
