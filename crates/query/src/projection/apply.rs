//! The pass over a document that writes what the projection shows.

use kilim_bson::{RawArray, RawDocument, RawValue, Writer};
use kilim_error::{Error, Result};

use crate::filter::Filter;

use super::{Branch, Kind, Node, Projection, Slice};

impl Projection {
    /// Where the filter matched, for [`Projection::apply`]; nothing unless
    /// [`Projection::requires_position`].
    pub fn position(&self, filter: &Filter, document: RawDocument<'_>) -> Option<usize> {
        if !self.positional {
            return None;
        }
        filter.written_position(document)
    }

    /// Appends the fields that the projection shows to the document open in `out`.
    pub fn apply(&self, document: RawDocument<'_>, position: Option<usize>, out: &mut Writer) -> Result<()> {
        if self.is_identity() {
            out.append_elements(document.elements());
            return Ok(());
        }
        let mut pass = Pass { projection: self, position, writer: out };
        pass.fields(document, &self.root, Scope { positional: self.positional, slices: true })?;
        pass.added_fields(document)
    }
}

struct Pass<'p> {
    projection: &'p Projection,
    position: Option<usize>,
    writer: &'p mut Writer,
}

/// What still applies below.
#[derive(Clone, Copy)]
struct Scope {
    /// No array has been met yet: the first one is reduced to the matched element.
    positional: bool,
    /// `$slice` does not reach into arrays within arrays.
    slices: bool,
}

/// Where a value goes: under a name, or to the next index of an array.
#[derive(Clone, Copy)]
enum Place<'n> {
    Field(&'n str),
    Index(usize),
}

impl Pass<'_> {
    fn includes(&self) -> bool {
        self.projection.kind == Kind::Inclusion
    }

    fn fields(&mut self, document: RawDocument<'_>, branch: &Branch, scope: Scope) -> Result<()> {
        let mut fields = document.iter();
        while let Some((name, value, bytes)) = fields.next_with_bytes() {
            match branch.child(name) {
                None if self.includes() => {}
                None => self.writer.append_elements(bytes),
                Some(Node::Leaf) if self.includes() => self.writer.append_elements(bytes),
                Some(Node::Leaf) => {}
                Some(Node::Positional) => match value {
                    RawValue::Array(array) if scope.positional => {
                        let element = self.matched(array)?;
                        self.writer.open_array(name);
                        self.writer.append_index(0, element);
                        self.writer.close();
                    }
                    _ => self.writer.append_elements(bytes),
                },
                Some(Node::Slice(slice)) => match value {
                    RawValue::Array(array) if scope.slices => self.slice(name, array, *slice),
                    _ => self.writer.append_elements(bytes),
                },
                // An inclusion adds it behind all others.
                Some(Node::ElemMatch(_)) if self.includes() => {}
                Some(Node::ElemMatch(filter)) => {
                    let position = filter.matches_with_position(document)?.flatten();
                    self.single(name, value, position);
                }
                Some(Node::Branch(nested)) => {
                    self.nested(Place::Field(name), value, nested, scope)?;
                }
            }
        }
        Ok(())
    }

    /// A value that a branch leads into; whether anything was written.
    fn nested(
        &mut self,
        place: Place<'_>,
        value: RawValue<'_>,
        branch: &Branch,
        scope: Scope,
    ) -> Result<bool> {
        match value {
            RawValue::Document(document) => {
                match place {
                    Place::Field(name) => self.writer.open_document(name),
                    Place::Index(index) => self.writer.open_document_at(index),
                }
                let done = self.fields(document, branch, scope);
                self.writer.close();
                done?;
            }
            RawValue::Array(array) => {
                let (scope, selected) = match scope.positional && branch.positional {
                    true => (Scope { positional: false, ..scope }, Some(self.matched(array)?)),
                    false => (scope, None),
                };
                match place {
                    Place::Field(name) => self.writer.open_array(name),
                    Place::Index(index) => self.writer.open_array_at(index),
                }
                let done = match selected {
                    Some(element) => self
                        .nested(Place::Index(0), element, branch, scope)
                        .and_then(|written| written.then_some(()).ok_or_else(mismatch)),
                    None => self.elements(array.iter(), branch, scope),
                };
                self.writer.close();
                done?;
            }
            _ if self.includes() => return Ok(false),
            scalar => match place {
                Place::Field(name) => self.writer.append(name, scalar),
                Place::Index(index) => self.writer.append_index(index, scalar),
            },
        }
        Ok(true)
    }

    fn elements<'a>(
        &mut self,
        elements: impl Iterator<Item = RawValue<'a>>,
        branch: &Branch,
        scope: Scope,
    ) -> Result<()> {
        let mut index = 0;
        for element in elements {
            let slices = scope.slices && !matches!(element, RawValue::Array(_));
            if self.nested(Place::Index(index), element, branch, Scope { slices, ..scope })? {
                index += 1;
            }
        }
        Ok(())
    }

    /// The element at which the filter matched.
    fn matched<'a>(&self, array: RawArray<'a>) -> Result<RawValue<'a>> {
        let position = self.position.ok_or_else(|| {
            Error::location(51246, "positional operator '.$' couldn't find a matching element in the array")
        })?;
        array.get(position).ok_or_else(|| Error::location(51247, "positional operator '.$' element mismatch"))
    }

    fn slice(&mut self, name: &str, array: RawArray<'_>, slice: Slice) {
        let (skip, take) = slice.range(array.len());
        self.writer.open_array(name);
        for (index, element) in array.iter().skip(skip).take(take).enumerate() {
            self.writer.append_index(index, element);
        }
        self.writer.close();
    }

    /// An array of the one element that matched, if one did.
    fn single(&mut self, name: &str, value: RawValue<'_>, position: Option<usize>) {
        let element = value.as_array().zip(position).and_then(|(array, position)| array.get(position));
        if let Some(element) = element {
            self.writer.open_array(name);
            self.writer.append_index(0, element);
            self.writer.close();
        }
    }

    fn added_fields(&mut self, document: RawDocument<'_>) -> Result<()> {
        if !self.includes() {
            return Ok(());
        }
        let projection = self.projection;
        for (name, node) in &projection.root.children {
            if let Node::ElemMatch(filter) = node
                && let Some(value) = document.get(name)
            {
                self.single(name, value, filter.matches_with_position(document)?.flatten());
            }
        }
        Ok(())
    }
}

/// The position, found in one array, leads to nothing in the array that is shown.
fn mismatch() -> Error {
    Error::location(51247, "positional operator '.$' element mismatch")
}

impl Slice {
    /// How many elements to skip and how many to take of an array of that length.
    fn range(self, length: usize) -> (usize, usize) {
        let from_end = |count: i32| length.saturating_sub(count.unsigned_abs() as usize);
        let take = self.limit.unsigned_abs() as usize;
        match self.skip {
            Some(skip) if skip < 0 => (from_end(skip), take),
            Some(skip) => (skip as usize, take),
            None if self.limit < 0 => (from_end(self.limit), take),
            None => (0, take),
        }
    }
}
