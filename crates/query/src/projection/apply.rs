//! The pass over a document that writes what the projection shows.

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Writer};
use kilim_error::{Error, Result};

use crate::expression::{Bindings, Env, Place, VALUE_BYTES_MAX};
use crate::filter::Filter;
use crate::interrupt;

use super::{Branch, Kind, Node, Projection, Slice};

impl Projection {
    /// Where the filter matched, for [`Projection::apply`]; nothing unless
    /// [`Projection::requires_position`].
    pub fn position(&self, filter: &Filter, document: RawDocument<'_>) -> Result<Option<usize>> {
        if !self.positional {
            return Ok(None);
        }
        filter.written_position(document)
    }

    /// Appends the fields that the projection shows to the document open in `out`.
    pub fn apply(&self, document: RawDocument<'_>, position: Option<usize>, out: &mut Writer) -> Result<()> {
        self.apply_in(&Env::new(document, Bindings::none()), position, out)
    }

    /// The document that the projection makes of another.
    pub fn made_of(&self, env: &Env<'_>) -> Result<Document> {
        let room = match self.kind {
            Kind::Inclusion => 128,
            Kind::Exclusion | Kind::Addition => env.root.as_bytes().len() + 64,
        };
        let mut out = Writer::with_capacity(room);
        self.apply_in(env, None, &mut out)?;
        Ok(out.finish())
    }

    /// As [`Projection::apply`], where expressions see more than the document.
    pub fn apply_in(&self, env: &Env<'_>, position: Option<usize>, out: &mut Writer) -> Result<()> {
        if self.is_identity() {
            out.append_elements(env.root.elements());
            return Ok(());
        }
        let mut pass = Pass { kind: self.kind, position, env, writer: out };
        pass.fields(env.root, &self.root, Scope { positional: self.positional, slices: true })
            .map_err(|error| self.root.first_error(env, env.root).unwrap_or(error))
    }
}

impl Branch {
    /// Of several expressions that fail, mongod tells of the first as written; the pass meets them in the
    /// order of the document.
    fn first_error(&self, env: &Env<'_>, document: RawDocument<'_>) -> Option<Error> {
        self.children.iter().find_map(|(name, node)| match node {
            Node::Computed(expression) => expression.evaluate(env).err(),
            Node::Branch(branch) => match document.get(name) {
                // There is nothing that the fields would be added to.
                Some(RawValue::Array(array)) if array.is_empty() => None,
                Some(RawValue::Document(nested)) => branch.first_error(env, nested),
                _ => branch.first_error(env, RawDocument::empty()),
            },
            Node::Leaf | Node::Positional | Node::Slice(_) | Node::ElemMatch(_) => None,
        })
    }
}

struct Pass<'p, 'a> {
    kind: Kind,
    position: Option<usize>,
    /// Expressions see the document as it came in, wherever in it they stand.
    env: &'p Env<'a>,
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

/// Elements that are to be copied as they are, gathered while they lie next to each other.
struct Run<'a> {
    all: &'a [u8],
    start: usize,
    end: usize,
}

impl<'a> Run<'a> {
    fn of(document: RawDocument<'a>) -> Run<'a> {
        Run { all: document.elements(), start: 0, end: 0 }
    }

    /// Takes the next element in.
    #[inline]
    fn keep(&mut self, bytes: &[u8]) {
        self.end += bytes.len();
    }

    /// Writes what was gathered, and passes over the next element.
    #[inline]
    fn skip(&mut self, bytes: &[u8], writer: &mut Writer) {
        self.write(writer);
        self.start = self.end + bytes.len();
        self.end = self.start;
    }

    fn write(&self, writer: &mut Writer) {
        if self.start < self.end {
            writer.append_elements(&self.all[self.start..self.end]);
        }
    }
}

/// Which children have been met.
#[derive(Default)]
struct Met {
    first: u64,
    more: Vec<usize>,
}

impl Met {
    /// Notes a child; whether it is met for the first time.
    fn note(&mut self, child: usize) -> bool {
        let known = self.knows(child);
        match child {
            0..64 => self.first |= 1 << child,
            _ if !known => self.more.push(child),
            _ => {}
        }
        !known
    }

    fn knows(&self, child: usize) -> bool {
        match child {
            0..64 => self.first & (1 << child) != 0,
            _ => self.more.contains(&child),
        }
    }
}

impl Pass<'_, '_> {
    /// Called where a projection may write much: at each computed field, and at each element of an array.
    #[inline]
    fn check(&self) -> Result<()> {
        interrupt::tick()?;
        match self.writer.len() > VALUE_BYTES_MAX {
            // What mongod answers when it cannot serialise a document that a stage made.
            true => Err(Error::location(
                13548,
                format!("a stage cannot make a document of more than {VALUE_BYTES_MAX} bytes"),
            )),
            false => Ok(()),
        }
    }

    fn includes(&self) -> bool {
        self.kind == Kind::Inclusion
    }

    fn fields(&mut self, document: RawDocument<'_>, branch: &Branch, scope: Scope) -> Result<()> {
        let mut met = Met::default();
        let mut run = Run::of(document);
        let mut fields = document.iter();
        while let Some(element) = fields.next_element() {
            let (name, bytes) = (element.name, element.bytes);
            let Some(child) = branch.position(name) else {
                match self.includes() {
                    true => run.skip(bytes, self.writer),
                    false => run.keep(bytes),
                }
                continue;
            };
            match &branch.children[child].1 {
                Node::Leaf => match self.includes() {
                    true => run.keep(bytes),
                    false => run.skip(bytes, self.writer),
                },
                Node::Positional => match element.value() {
                    RawValue::Array(array) if scope.positional => {
                        run.skip(bytes, self.writer);
                        let element = self.matched(array)?;
                        self.writer.open_array(name);
                        self.writer.append_index(0, element);
                        self.writer.close();
                    }
                    _ => run.keep(bytes),
                },
                Node::Slice(slice) => match element.value() {
                    RawValue::Array(array) if scope.slices => {
                        run.skip(bytes, self.writer);
                        self.slice(name, array, *slice);
                    }
                    _ => run.keep(bytes),
                },
                // An inclusion adds them behind all others.
                Node::ElemMatch(_) | Node::Computed(_) if self.includes() => run.skip(bytes, self.writer),
                Node::ElemMatch(filter) => {
                    run.skip(bytes, self.writer);
                    met.note(child);
                    let position = filter.matches_with_position(document)?.flatten();
                    self.single(name, element.value(), position);
                }
                Node::Computed(expression) => match met.note(child) {
                    true => {
                        run.skip(bytes, self.writer);
                        expression.append(self.env, Place::Field(name), self.writer)?;
                        self.check()?;
                    }
                    // A second field of that name stays.
                    false => run.keep(bytes),
                },
                Node::Branch(nested) => {
                    run.skip(bytes, self.writer);
                    met.note(child);
                    self.nested(Place::Field(name), element.value(), nested, scope)?;
                }
            }
        }
        run.write(self.writer);
        if branch.adds { self.added(document, branch, &met) } else { Ok(()) }
    }

    /// Fields that are new, in the order in which they were asked for.
    fn added(&mut self, document: RawDocument<'_>, branch: &Branch, met: &Met) -> Result<()> {
        for (child, (name, node)) in branch.children.iter().enumerate() {
            match node {
                Node::Computed(expression) if !met.knows(child) => {
                    expression.append(self.env, Place::Field(name), self.writer)?;
                    self.check()?;
                }
                Node::ElemMatch(filter) if !met.knows(child) => {
                    if let Some(value) = document.get(name) {
                        let position = filter.matches_with_position(document)?.flatten();
                        self.single(name, value, position);
                    }
                }
                Node::Branch(nested) if nested.adds && !met.knows(child) => {
                    self.made(Place::Field(name), nested)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A document of nothing but computed fields.
    fn made(&mut self, place: Place<'_>, branch: &Branch) -> Result<()> {
        place.open_document(self.writer);
        let done = self.added(RawDocument::empty(), branch, &Met::default());
        self.writer.close();
        done
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
                place.open_document(self.writer);
                let done = self.fields(document, branch, scope);
                self.writer.close();
                done?;
            }
            RawValue::Array(array) => {
                let (scope, selected) = match scope.positional && branch.positional {
                    true => (Scope { positional: false, ..scope }, Some(self.matched(array)?)),
                    false => (scope, None),
                };
                place.open_array(self.writer);
                let done = match selected {
                    Some(element) => self
                        .nested(Place::Index(0), element, branch, scope)
                        .and_then(|written| written.then_some(()).ok_or_else(mismatch)),
                    None => self.elements(array.iter(), branch, scope),
                };
                self.writer.close();
                done?;
            }
            // What has no fields gives way to what is computed.
            _ if branch.adds => self.made(place, branch)?,
            _ if self.includes() => return Ok(false),
            scalar => place.append(scalar, self.writer),
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
            self.check()?;
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
}

/// The position, found in one array, leads to nothing in the array that is shown.
fn mismatch() -> Error {
    Error::location(51247, "positional operator '.$' element mismatch")
}

impl Slice {
    /// How many elements to skip and how many to take of an array of that length.
    pub fn range(self, length: usize) -> (usize, usize) {
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
