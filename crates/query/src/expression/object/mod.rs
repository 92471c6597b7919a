//! Documents and their fields.

mod field;
mod merge_objects;
mod pairs;

use super::{Arguments, Fold, Operator};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$getField", "a field by its whole name", Arguments::Special(field::parse_get), field::get)
        .folds(Fold::Forgiving)
        .shown_by(field::show_get),
    Operator::new(
        "$setField",
        "a document with a field put in",
        Arguments::Special(field::parse_set),
        field::set,
    )
    .folds(Fold::Forgiving)
    .shown_by(field::show_set),
    Operator::new(
        "$unsetField",
        "a document without a field",
        Arguments::Special(field::parse_unset),
        field::set,
    )
    .folds(Fold::Forgiving)
    .shown_by(field::show_set),
    Operator::new("$mergeObjects", "documents put over each other", Arguments::Any, merge_objects::evaluate),
    Operator::new("$objectToArray", "fields as an array", Arguments::Exactly(1), pairs::object_to_array),
    Operator::new(
        "$arrayToObject",
        "an array's pairs as fields",
        Arguments::Exactly(1),
        pairs::array_to_object,
    ),
];
