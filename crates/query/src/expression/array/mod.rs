//! Arrays.
//!
//! Elements are copied as bytes from array to array, and what is built is bounded as every value is.

mod build;
mod element;
mod search;
mod sort_array;
mod zip;

use kilim_bson::{Array, RawValue, Writer};
use kilim_error::Result;

pub(super) use self::search::bound;
use super::memory::check_bytes;
use super::{Arguments, Evaluated, Fold, Operator};
use crate::filter::number::exact_i64;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$arrayElemAt", "the element at a place", Arguments::Exactly(2), element::array_elem_at),
    Operator::new("$first", "the first element", Arguments::Exactly(1), element::first),
    Operator::new("$last", "the last element", Arguments::Exactly(1), element::last),
    Operator::new("$slice", "a part of an array", Arguments::Between(2, 3), element::slice),
    Operator::new("$size", "how many elements there are", Arguments::Exactly(1), element::size),
    Operator::new("$isArray", "whether it is an array", Arguments::Exactly(1), element::is_array),
    Operator::new("$in", "whether an array has a value", Arguments::Exactly(2), search::is_in)
        .prepared_by(search::prepare_in),
    Operator::new(
        "$indexOfArray",
        "the place of a value in an array",
        Arguments::Between(2, 4),
        search::index_of_array,
    )
    .prepared_by(search::prepare_index_of_array)
    .rewritten_by(search::rewrite_index_of_array),
    Operator::new("$concatArrays", "arrays one behind the other", Arguments::Any, build::concat_arrays)
        .folds(Fold::Associative),
    Operator::new(
        "$reverseArray",
        "elements from last to first",
        Arguments::Exactly(1),
        build::reverse_array,
    ),
    Operator::new("$range", "numbers from start up to end", Arguments::Between(2, 3), build::range),
    Operator::new(
        "$sortArray",
        "elements in order",
        Arguments::Special(sort_array::parse),
        sort_array::evaluate,
    )
    .folds(Fold::Never)
    .shown_by(sort_array::show),
    Operator::new("$zip", "elements of arrays side by side", Arguments::Special(zip::parse), zip::evaluate)
        .folds(Fold::Never)
        .shown_by(zip::show),
];

/// An array being written.
pub(super) struct Building {
    writer: Writer,
    len: usize,
}

impl Building {
    pub(super) fn new() -> Building {
        Building { writer: Writer::new(), len: 0 }
    }

    pub(super) fn push(&mut self, value: RawValue<'_>) -> Result<()> {
        let index = self.len;
        self.write(|writer| writer.append_index(index, value))
    }

    /// Where the next element goes: `write` writes that element and nothing else.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Writer)) -> Result<()> {
        write(&mut self.writer);
        self.written()
    }

    /// The same for an element whose writing may fail.
    pub(super) fn try_write(&mut self, write: impl FnOnce(usize, &mut Writer) -> Result<()>) -> Result<()> {
        write(self.len, &mut self.writer)?;
        self.written()
    }

    fn written(&mut self) -> Result<()> {
        self.len += 1;
        check_bytes(self.writer.len())
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> usize {
        self.writer.len()
    }

    pub(super) fn finish(self) -> Evaluated<'static> {
        Array::from_document(self.writer.finish()).into()
    }
}

/// The 32-bit integer that a number is, if it is one.
pub(super) fn integral(value: RawValue<'_>) -> Option<i32> {
    exact_i64(value)?.try_into().ok()
}
