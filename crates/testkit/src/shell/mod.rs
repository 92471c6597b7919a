//! The shell's relaxed syntax for BSON, both ways: what specs are written in and reports are printed in.
//!
//! `{_id: 1, at: ISODate("2024-01-15T10:00:00Z"), price: NumberDecimal("9.90")}`. The two directions
//! agree: what [`print`](print()) writes, [`parse`](parse()) reads back to the same bytes, so types show in the text
//! (`5` is an int, `5.0` a double, `Long(5)` a long).
//!
//! Three placeholders exist beside the values. `<any>` stands for one value, `<cursor>` for an open
//! cursor's id, and `...` at a document's end for further fields. They travel as [`PLACEHOLDERS`]:
//! JavaScript values of exactly these texts, which no spec needs otherwise.

mod decimal;
mod parse;
mod print;
mod time;

pub use parse::{ParseError, Parser, parse, parse_document};
pub use print::{print, print_document};

use kilim_bson::RawValue;

pub const ANY: &str = "<any>";
pub const CURSOR: &str = "<cursor>";
/// The field name that stands for further fields.
pub const REST: &str = "...";

pub const PLACEHOLDERS: [&str; 2] = [ANY, CURSOR];

/// The placeholder that a value stands for, if it is one.
pub fn placeholder(value: RawValue<'_>) -> Option<&'static str> {
    match value {
        RawValue::JavaScript(code) => PLACEHOLDERS.into_iter().find(|known| *known == code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_as_the_same_text() {
        // Left as people write it, right as it is printed.
        let cases = [
            ("{}", "{}"),
            ("{ a : 1 , }", "{a: 1}"),
            ("{'a.b': \"x\", $set: {_id: 1}}", "{\"a.b\": \"x\", $set: {_id: 1}}"),
            ("[1, [2], {},]", "[1, [2], {}]"),
            (
                "{a: 1.0, b: 1, c: 2147483648, d: -2147483649}",
                "{a: 1.0, b: 1, c: Long(2147483648), d: Long(-2147483649)}",
            ),
            ("{a: NumberLong(\"5\"), b: Long(-5), c: NumberInt(7)}", "{a: Long(5), b: Long(-5), c: 7}"),
            (
                "{a: NaN, b: -Infinity, c: Infinity, d: -0.0, e: 1e300}",
                "{a: NaN, b: -Infinity, c: Infinity, d: -0.0, e: 1e300}",
            ),
            ("NumberDecimal('1.50')", "NumberDecimal(\"1.50\")"),
            ("ISODate(\"2024-01-15\")", "ISODate(\"2024-01-15T00:00:00.000Z\")"),
            ("new Date(-1)", "ISODate(\"1969-12-31T23:59:59.999Z\")"),
            ("ISODate('2024-01-15T10:00:00.5+02:00')", "ISODate(\"2024-01-15T08:00:00.500Z\")"),
            ("Date(9223372036854775807)", "Date(9223372036854775807)"),
            ("ObjectId(\"0123456789abcdef01234567\")", "ObjectId(\"0123456789abcdef01234567\")"),
            ("Timestamp(5, 7)", "Timestamp(5, 7)"),
            ("BinData(0, 'AAECAw==')", "BinData(0, \"AAECAw==\")"),
            ("BinData(4, \"AAECAwQFBgcICQoLDA0ODw==\")", "UUID(\"00010203-0405-0607-0809-0a0b0c0d0e0f\")"),
            ("/^a\\/b/i", "/^a\\/b/i"),
            ("RegExp('a/b', 'm')", "RegExp(\"a/b\", \"m\")"),
            (
                "[MinKey, MaxKey, undefined, null, true, false]",
                "[MinKey, MaxKey, undefined, null, true, false]",
            ),
            (
                "[Symbol('s'), Code('f()'), Code('f()', {x: 1})]",
                "[Symbol(\"s\"), Code(\"f()\"), Code(\"f()\", {x: 1})]",
            ),
            (
                "DBPointer('a.b', ObjectId('0123456789abcdef01234567'))",
                "DBPointer(\"a.b\", ObjectId(\"0123456789abcdef01234567\"))",
            ),
            ("{a: <any>, id: <cursor>, ...}", "{a: <any>, id: <cursor>, ...}"),
            ("'tab\\t quote\\' \\u00e9 \\x41 \\ud83d\\ude00'", "\"tab\\t quote' é A 😀\""),
            ("// why\n{a: 1, /* what */ b: 2} # after", "{a: 1, b: 2}"),
            (
                "{a: Repeat('xy', 3), b: Range(3), c: Nest(2)}",
                "{a: \"xyxyxy\", b: [0, 1, 2], c: {a: {a: 1}}}",
            ),
        ];
        for (source, expected) in cases {
            let value = parse(source).unwrap_or_else(|error| panic!("{source}: {error}"));
            let printed = print(value.as_raw());
            assert_eq!(printed, expected, "{source}");
            let again = parse(&printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
            assert_eq!(print(again.as_raw()), expected, "{source}");
        }
    }

    #[test]
    fn a_fault_is_reported_where_it_stands() {
        for (source, at) in
            [("{a 1}", 3), ("{a: }", 4), ("[1 2]", 3), ("{a: 1", 5), ("Foo(1)", 0), ("{a: 1} x", 7)]
        {
            let error = parse(source).expect_err(source);
            assert_eq!(error.at, at, "{source}: {error}");
        }
    }
}
