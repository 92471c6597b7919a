//! Texts.
//!
//! Case knows ASCII only, and places count bytes or code points, as each operator says. A text that an operator
//! makes is bounded as mongod bounds it ([`STRING_BYTES_MAX`]).

mod coerce;
mod concat;
mod index_of;
mod letter_case;
mod regex;
mod replace;
mod split;
mod substr;
mod trim;

use kilim_error::{Error, Result};

use super::{Arguments, Evaluated, Fold, Operator};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("$concat", "texts one behind the other", Arguments::Any, concat::evaluate)
        .folds(Fold::Associative),
    Operator::new(
        "$indexOfBytes",
        "the place of a text, in bytes",
        Arguments::Between(2, 4),
        index_of::bytes,
    ),
    Operator::new(
        "$indexOfCP",
        "the place of a text, in code points",
        Arguments::Between(2, 4),
        index_of::code_points,
    ),
    Operator::new("$trim", "a text without blanks at its ends", Arguments::Named(&trim::NAMED), trim::both),
    Operator::new("$ltrim", "a text without blanks in front", Arguments::Named(&trim::NAMED), trim::left),
    Operator::new("$rtrim", "a text without blanks behind", Arguments::Named(&trim::NAMED), trim::right),
    Operator::new("$regexFind", "the first match", Arguments::Named(&regex::NAMED), regex::find)
        .folds(Fold::Never)
        .prepared_by(regex::prepare),
    Operator::new("$regexFindAll", "all matches", Arguments::Named(&regex::NAMED), regex::find_all)
        .folds(Fold::Never)
        .prepared_by(regex::prepare),
    Operator::new("$regexMatch", "whether there is a match", Arguments::Named(&regex::NAMED), regex::matches)
        .folds(Fold::Never)
        .prepared_by(regex::prepare),
    Operator::new(
        "$replaceOne",
        "a text with one part replaced",
        Arguments::Named(&replace::NAMED),
        replace::one,
    )
    .folds(Fold::Never),
    Operator::new(
        "$replaceAll",
        "a text with parts replaced",
        Arguments::Named(&replace::NAMED),
        replace::all,
    )
    .folds(Fold::Never),
    Operator::new("$split", "a text's parts between delimiters", Arguments::Exactly(2), split::evaluate),
    Operator::new("$strLenBytes", "how many bytes", Arguments::Exactly(1), substr::len_bytes),
    Operator::new("$strLenCP", "how many code points", Arguments::Exactly(1), substr::len_code_points),
    Operator::new("$strcasecmp", "order without regard to case", Arguments::Exactly(2), letter_case::compare),
    Operator::new("$substr", "a part, in bytes", Arguments::Special(substr::parse_old), substr::bytes),
    Operator::new("$substrBytes", "a part, in bytes", Arguments::Exactly(3), substr::bytes),
    Operator::new("$substrCP", "a part, in code points", Arguments::Exactly(3), substr::code_points),
    Operator::new("$toLower", "in small letters", Arguments::Exactly(1), letter_case::to_lower),
    Operator::new("$toUpper", "in capital letters", Arguments::Exactly(1), letter_case::to_upper),
];

/// What a text may hold: less than a document's 16 MiB.
const STRING_BYTES_MAX: usize = (16 << 20) - 1;

/// Refuses a text of that many bytes.
fn check_len(bytes: usize) -> Result<()> {
    if bytes > STRING_BYTES_MAX {
        return Err(Error::location(16_493, "Tried to create string longer than 16MB"));
    }
    Ok(())
}

/// A part of a text, borrowed where the text is.
fn part<'a>(text: Evaluated<'a>, range: std::ops::Range<usize>) -> Evaluated<'a> {
    use kilim_bson::{RawValue, Value};
    match text {
        Evaluated::Raw(RawValue::String(text)) => Evaluated::Raw(RawValue::String(&text[range])),
        Evaluated::Owned(Value::String(mut text)) => {
            text.truncate(range.end);
            text.drain(..range.start);
            text.into()
        }
        other => other,
    }
}
