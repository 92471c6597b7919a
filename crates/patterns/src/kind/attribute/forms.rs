//! The two forms of attributes in a document, and one made of the other.

use std::collections::HashMap;

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, Result};

use super::{Attribute, Fields, Store};
use crate::path::{get, put};

/// The attributes of one form, in order: their names and values.
type Pairs<'a> = Vec<(&'a str, RawValue<'a>)>;

/// What a document has of each form.
#[derive(Debug, Default)]
struct Forms<'a> {
    flat: Option<Pairs<'a>>,
    array: Option<Pairs<'a>>,
}

impl Forms<'_> {
    fn are(&self, others: &Forms<'_>) -> bool {
        same(self.flat.as_deref(), others.flat.as_deref())
            && same(self.array.as_deref(), others.array.as_deref())
    }

    fn contradict_each_other(&self) -> bool {
        self.flat.is_some() && self.array.is_some() && !same(self.flat.as_deref(), self.array.as_deref())
    }
}

impl Attribute {
    /// The document as it is to be stored; none where it is so already. `before`: how it was stored, where somebody
    /// changed it.
    ///
    /// Where the forms contradict each other, the one that was changed counts. If both were, the change is refused.
    pub(super) fn stored(
        &self,
        before: Option<RawDocument<'_>>,
        after: RawDocument<'_>,
    ) -> Result<Option<Document>> {
        if self.store == Store::Flat && get(after, &self.array_names).is_none() {
            return Ok(None);
        }
        let forms = self.forms_of(after)?;
        // What cannot be read in the former document says nothing.
        let former = before.and_then(|before| self.forms_of(before).ok()).unwrap_or_default();
        if before.is_some() && forms.contradict_each_other() && forms.are(&former) {
            // From before the declaration, and nothing that this change is about.
            return Ok(None);
        }
        let pairs = match self.store {
            Store::Both => self.agreed(&former, forms)?,
            Store::Flat | Store::Kv => self.merged(&former, forms)?,
        };
        let pairs = pairs.as_deref();
        let (flat, array) = match self.store {
            Store::Flat => (pairs, None),
            Store::Kv => (None, pairs),
            Store::Both => (pairs, pairs),
        };
        let made = self.with_array(self.with_flat(after, flat).as_raw(), array);
        Ok((made.as_bytes() != after.as_bytes()).then_some(made))
    }

    /// The document with the flat form only; none where it has no other.
    pub(super) fn flattened(&self, document: RawDocument<'_>) -> Result<Option<Document>> {
        if get(document, &self.array_names).is_none() {
            return Ok(None);
        }
        let pairs = self.merged(&Forms::default(), self.forms_of(document)?)?;
        Ok(Some(self.with_array(self.with_flat(document, pairs.as_deref()).as_raw(), None)))
    }

    /// The attributes where both forms are stored: those of the form that was changed. A form that is missing says nothing
    /// beside the other: whoever replaces the whole document may know of one form only.
    fn agreed<'a>(&self, former: &Forms<'_>, forms: Forms<'a>) -> Result<Option<Pairs<'a>>> {
        let flat_changed = !same(forms.flat.as_deref(), former.flat.as_deref());
        let array_changed = !same(forms.array.as_deref(), former.array.as_deref());
        match (flat_changed, array_changed) {
            (true, false) => Ok(forms.flat.or(forms.array)),
            (false, true) => Ok(forms.array.or(forms.flat)),
            _ => match (forms.flat, forms.array) {
                (Some(flat), Some(array)) if same(Some(&flat), Some(&array)) => Ok(Some(flat)),
                (Some(flat), Some(array)) => Err(self.conflict(&flat, &array)),
                (flat, array) => Ok(flat.or(array)),
            },
        }
    }

    /// The attributes where one form is stored: those of both, for a user may have added some in the other.
    fn merged<'a>(&self, former: &Forms<'_>, forms: Forms<'a>) -> Result<Option<Pairs<'a>>> {
        let (Some(flat), Some(array)) = (&forms.flat, &forms.array) else {
            return Ok(forms.flat.or(forms.array));
        };
        let mut all = flat.clone();
        let places = places(flat);
        let (former_flat, former_array) = (former.flat.as_deref(), former.array.as_deref());
        let former = (places_in(former_flat), places_in(former_array));
        for &(name, value) in array {
            let Some((_, own)) = places.get(name).map(|at| &mut all[*at]) else {
                all.push((name, value));
                continue;
            };
            if same_value(*own, value) {
                continue;
            }
            let is_new = |form: Option<&[(&str, RawValue<'_>)]>, places: &Places<'_>, value: RawValue<'_>| {
                let known = form.zip(places.get(name)).map(|(form, at)| form[*at].1);
                !known.is_some_and(|known| same_value(known, value))
            };
            match (is_new(former_flat, &former.0, *own), is_new(former_array, &former.1, value)) {
                (true, false) => {}
                (false, true) => *own = value,
                _ => return Err(self.conflict(flat, array)),
            }
        }
        Ok(Some(all))
    }

    fn forms_of<'a>(&'a self, document: RawDocument<'a>) -> Result<Forms<'a>> {
        let array = get(document, &self.array_names).map(|array| self.pairs_of(array)).transpose()?;
        Ok(Forms { flat: self.flat_of(document)?, array })
    }

    /// The flat form; none where the document has none.
    fn flat_of<'a>(&'a self, document: RawDocument<'a>) -> Result<Option<Pairs<'a>>> {
        match &self.fields {
            Fields::Within { path, names } => match get(document, names) {
                None | Some(RawValue::Null) => Ok(None),
                Some(RawValue::Document(fields)) => {
                    let found: Pairs<'_> = fields.iter().collect();
                    match twice(&found) {
                        None => Ok(Some(found)),
                        Some(name) => Err(self.refusal(path, &format!("has the field '{name}' twice"))),
                    }
                }
                Some(_) if self.store == Store::Flat => Ok(None),
                Some(other) => {
                    let kind = other.element_type().name();
                    Err(self.refusal(path, &format!("must be a document of attributes, not of type {kind}")))
                }
            },
            Fields::Listed(listed) => {
                let values = listed.iter().map(|(path, names)| Some((&**path, get(document, names)?)));
                let found: Pairs<'_> = values.flatten().collect();
                Ok(Some(found).filter(|found| !found.is_empty()))
            }
        }
    }

    /// The k/v form.
    fn pairs_of<'a>(&self, array: RawValue<'a>) -> Result<Pairs<'a>> {
        let refused = |reason: &str| Err(self.refusal(&self.array, reason));
        let Some(array) = array.as_array() else {
            return refused("must be an array of attributes, {k: name, v: value}");
        };
        let mut pairs: Pairs<'a> = Vec::new();
        for element in array.iter() {
            let Some(element) = element.as_document() else {
                return refused("has an element that is not {k: name, v: value}");
            };
            let name = element.get("k").and_then(RawValue::as_str);
            let (Some(name), Some(value)) = (name, element.get("v")) else {
                return refused("has an element without a text as 'k', or without 'v'");
            };
            if let Some((other, _)) = element.iter().find(|(field, _)| !["k", "v", "u"].contains(field)) {
                return refused(&format!("has an element with '{other}' beside 'k', 'v' and 'u'"));
            }
            let unit = element.get("u").map(RawValue::as_str);
            if unit.is_some_and(|unit| unit != self.units.get(name).map(|unit| &**unit)) {
                return refused(&format!("gives '{name}' a unit that 'units' does not have for it"));
            }
            if !self.fields.may_have(name) {
                return refused(&format!("has '{name}', which is no attribute of the pattern's 'paths'"));
            }
            pairs.push((name, value));
        }
        match twice(&pairs) {
            None => Ok(pairs),
            Some(name) => refused(&format!("has '{name}' twice: an array can be the value of one")),
        }
    }

    /// The document with another flat form, or without it.
    fn with_flat(&self, document: RawDocument<'_>, pairs: Option<&[(&str, RawValue<'_>)]>) -> Document {
        match &self.fields {
            Fields::Within { names, .. } => match pairs {
                Some(pairs) => {
                    let mut fields = Writer::with_capacity(256);
                    pairs.iter().for_each(|(name, value)| fields.append(name, *value));
                    put(document, names, Some(RawValue::Document(fields.finish().as_raw())))
                }
                // A null in its place says nothing and is the user's.
                None if matches!(get(document, names), Some(RawValue::Null)) => document.to_document(),
                None => put(document, names, None),
            },
            Fields::Listed(listed) => {
                let value =
                    |path: &str| pairs?.iter().find(|(name, _)| *name == path).map(|(_, value)| *value);
                let with =
                    |made: Document, path: &str, names: &[Box<str>]| put(made.as_raw(), names, value(path));
                listed.iter().fold(document.to_document(), |made, (path, names)| with(made, path, names))
            }
        }
    }

    /// The document with another k/v form, or without it.
    fn with_array(&self, document: RawDocument<'_>, pairs: Option<&[(&str, RawValue<'_>)]>) -> Document {
        let Some(pairs) = pairs else { return put(document, &self.array_names, None) };
        let mut elements = Writer::with_capacity(512);
        for (at, (name, value)) in pairs.iter().enumerate() {
            elements.open_document_at(at);
            elements.append("k", RawValue::String(name));
            elements.append("v", *value);
            if let Some(unit) = self.units.get(*name) {
                elements.append("u", RawValue::String(unit));
            }
            elements.close();
        }
        let elements = elements.finish();
        let array = kilim_bson::RawArray::from_document(elements.as_raw());
        put(document, &self.array_names, Some(RawValue::Array(array)))
    }

    fn conflict(&self, flat: &[(&str, RawValue<'_>)], array: &[(&str, RawValue<'_>)]) -> Error {
        let (in_flat, in_array) = (places(flat), places(array));
        let lacks =
            |form: &[(&str, RawValue<'_>)], places: &Places<'_>, (name, value): (&str, RawValue<'_>)| {
                !places.get(name).is_some_and(|at| same_value(form[*at].1, value))
            };
        let of_flat = flat.iter().find(|one| lacks(array, &in_array, **one));
        let differing = of_flat.or_else(|| array.iter().find(|one| lacks(flat, &in_flat, **one)));
        let name = differing.map_or("", |(name, _)| name);
        let path = self.fields.path_of(name).unwrap_or_else(|| name.to_owned());
        let reason =
            format!("says something else of '{name}' than '{path}' does: write one of the two forms");
        self.refusal(&self.array, &reason)
    }

    fn refusal(&self, path: &str, reason: &str) -> Error {
        Error::user(ErrorCode::PatternFieldConflict, format!("'{path}' {reason}"))
    }
}

/// Where each name stands in a form. There may be very many.
type Places<'a> = HashMap<&'a str, usize>;

fn places<'a>(pairs: &[(&'a str, RawValue<'_>)]) -> Places<'a> {
    pairs.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect()
}

fn places_in<'a>(pairs: Option<&[(&'a str, RawValue<'_>)]>) -> Places<'a> {
    pairs.map(places).unwrap_or_default()
}

/// A name that is there twice.
fn twice<'a>(pairs: &[(&'a str, RawValue<'_>)]) -> Option<&'a str> {
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.windows(2).find(|both| both[0] == both[1]).map(|both| both[0])
}

/// Whether two forms say the same, in whatever order.
fn same(left: Option<&[(&str, RawValue<'_>)]>, right: Option<&[(&str, RawValue<'_>)]>) -> bool {
    match (left, right) {
        (None, None) => true,
        (Some(left), Some(right)) if left.len() == right.len() => {
            left.iter().zip(right).all(|(one, other)| same_pair(*one, *other)) || {
                let places = places(right);
                let is_there = |(name, value): &(&str, RawValue<'_>)| {
                    places.get(*name).is_some_and(|at| same_value(right[*at].1, *value))
                };
                left.iter().all(is_there)
            }
        }
        _ => false,
    }
}

fn same_pair(left: (&str, RawValue<'_>), right: (&str, RawValue<'_>)) -> bool {
    left.0 == right.0 && same_value(left.1, right.1)
}

/// To the byte: `1` and `1.0` are two values.
fn same_value(left: RawValue<'_>, right: RawValue<'_>) -> bool {
    let bytes = |value: RawValue<'_>| {
        let mut out = Writer::new();
        out.append("", value);
        out.finish()
    };
    left.element_type() == right.element_type() && bytes(left).as_bytes() == bytes(right).as_bytes()
}
