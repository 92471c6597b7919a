//! Columns of a table: their names, which may be paths, and what their text means.
//!
//! A column is a field's path, or with a type `path.kind()` as mongoimport writes it: `price.double()`,
//! `born.date(%Y-%m-%d)`. A date's argument is a format of `$dateFromString`; without one it is ISO 8601.

use anyhow::{Context, Result, anyhow, bail};
use kilim_bson::{
    Document, JsonFormat, RawDocument, RawValue, Value, calendar, doc, parse_extended_json,
    value_to_extended_json,
};
use kilim_query::expression::{Bindings, Env, Expression, Scope, Variables};

#[derive(Debug, Clone)]
pub struct Column {
    pub path: Vec<String>,
    pub kind: ColumnKind,
}

/// What a column's text is.
#[derive(Debug, Clone)]
pub enum ColumnKind {
    /// A number if it looks like one, else text.
    Auto,
    String,
    Boolean,
    Int32,
    Int64,
    Double,
    Decimal,
    /// Hexadecimal or base64.
    Binary(BinaryText),
    ObjectId,
    Date(Box<Option<Expression>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryText {
    Hex,
    Base64,
}

impl Column {
    /// A column whose text is what it looks like.
    pub fn plain(name: &str) -> Result<Column> {
        let path: Vec<String> = name.split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            bail!("'{name}' is no path of a field");
        }
        Ok(Column { path, kind: ColumnKind::Auto })
    }

    /// `path.kind(argument)`.
    pub fn typed(text: &str) -> Result<Column> {
        let parts = text.strip_suffix(')').and_then(|text| text.split_once('('));
        let parts = parts.and_then(|(left, argument)| Some((left.rsplit_once('.')?, argument)));
        let Some(((name, kind), argument)) = parts else {
            bail!("'{text}' names no type: write it as in price.double() or born.date(%Y-%m-%d)");
        };
        let kind = match (kind, argument) {
            ("auto", "") => ColumnKind::Auto,
            ("string", "") => ColumnKind::String,
            ("boolean", "") => ColumnKind::Boolean,
            ("int32", "") => ColumnKind::Int32,
            ("int64", "") => ColumnKind::Int64,
            ("double", "") => ColumnKind::Double,
            ("decimal", "") => ColumnKind::Decimal,
            ("objectId", "") => ColumnKind::ObjectId,
            ("binary", "hex") => ColumnKind::Binary(BinaryText::Hex),
            ("binary", "base64") => ColumnKind::Binary(BinaryText::Base64),
            ("date", "") => ColumnKind::Date(Box::new(None)),
            ("date", format) => ColumnKind::Date(Box::new(Some(date_by(format)?))),
            _ => bail!(
                "'{text}': types are auto(), string(), boolean(), int32(), int64(), double(), decimal(), objectId(), \
                 binary(hex), binary(base64), date() and date(FORMAT)"
            ),
        };
        Ok(Column { kind, ..Column::plain(name)? })
    }

    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// What a cell's text means.
    pub fn value(&self, text: &str) -> Result<Value> {
        self.kind.value(text).with_context(|| format!("column '{}': '{text}'", self.name()))
    }
}

impl ColumnKind {
    fn value(&self, text: &str) -> Result<Value> {
        Ok(match self {
            ColumnKind::Auto => auto(text),
            ColumnKind::String => Value::from(text),
            ColumnKind::Boolean => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "1" => Value::from(true),
                "false" | "no" | "0" => Value::from(false),
                _ => bail!("is neither true nor false"),
            },
            ColumnKind::Int32 => Value::from(text.trim().parse::<i32>().context("is no int32")?),
            ColumnKind::Int64 => Value::from(text.trim().parse::<i64>().context("is no int64")?),
            ColumnKind::Double => Value::from(text.trim().parse::<f64>().context("is no double")?),
            ColumnKind::Decimal => extended(&format!("{{\"$numberDecimal\":{}}}", quoted(text.trim())))
                .context("is no decimal")?,
            ColumnKind::ObjectId => {
                // As an export writes it, or the digits alone.
                let digits = text.strip_prefix("ObjectId(").and_then(|text| text.strip_suffix(')'));
                extended(&format!("{{\"$oid\":{}}}", quoted(digits.unwrap_or(text))))
                    .context("is no ObjectId")?
            }
            ColumnKind::Binary(BinaryText::Base64) => binary(text).context("is no base64")?,
            ColumnKind::Binary(BinaryText::Hex) => {
                let bytes = hex(text).context("is no hexadecimal text")?;
                RawValue::Binary { subtype: 0, bytes: &bytes }.to_value()
            }
            ColumnKind::Date(format) => match format.as_ref() {
                Some(expression) => {
                    let root = doc! {"v": text};
                    let env = Env::new(root.as_raw(), Bindings::none());
                    let date = expression.evaluate(&env).map_err(|error| anyhow!("{error}"))?;
                    date.raw().context("is no date")?.to_value()
                }
                None => iso_date(text).context("is no date as in 2024-03-01T12:30:00Z")?,
            },
        })
    }
}

/// Numbers as numbers, everything else as text, as mongoimport guesses.
fn auto(text: &str) -> Value {
    if let Ok(number) = text.parse::<i32>() {
        return Value::from(number);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Value::from(number);
    }
    // "inf" and "nan" are words more often than numbers.
    let looks =
        text.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.'));
    match text.parse::<f64>() {
        Ok(number) if looks && number.is_finite() => Value::from(number),
        _ => Value::from(text),
    }
}

fn date_by(format: &str) -> Result<Expression> {
    /// What is said of a format that no text could have.
    const BAD_FORMAT: [i32; 2] = [18535, 18536];
    let call = doc! {"$dateFromString": {"dateString": "$v", "format": format}};
    let expression = Expression::parse(RawValue::Document(call.as_raw()), &Scope::new(&Variables::default()));
    let expression = expression.map_err(|error| anyhow!("date({format}): {error}"))?;
    let tried = doc! {"v": "2000-01-01"};
    match expression.evaluate(&Env::new(tried.as_raw(), Bindings::none())) {
        Err(error) if BAD_FORMAT.contains(&error.code().0) => bail!("date({format}): {error}"),
        _ => Ok(expression.clone()),
    }
}

fn iso_date(text: &str) -> Result<Value> {
    let whole = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        _ => text.replacen(' ', "T", 1),
    };
    extended(&format!("{{\"$date\":{}}}", quoted(&whole)))
}

fn binary(text: &str) -> Result<Value> {
    extended(&format!("{{\"$binary\":{{\"base64\":{},\"subType\":\"00\"}}}}", quoted(text)))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

/// A value that extended JSON has a wrapper for.
fn extended(json: &str) -> Result<Value> {
    let document = parse_extended_json(&format!("{{\"v\":{json}}}"))?;
    document.get("v").map(RawValue::to_value).context("nothing is there")
}

fn quoted(text: &str) -> String {
    let document = doc! {"v": text};
    value_to_extended_json(document.get("v").unwrap_or(RawValue::Null), JsonFormat::Relaxed)
}

/// Makes a document of a row: paths become nested documents.
pub(crate) fn row(columns: &[Column], cells: &csv::StringRecord, keep_blanks: bool) -> Result<Document> {
    let mut root = Branch::default();
    for (column, text) in columns.iter().zip(cells) {
        if text.is_empty() && !keep_blanks {
            continue;
        }
        root.put(&column.path, column.value(text)?)
            .with_context(|| format!("column '{}' lies inside another column", column.name()))?;
    }
    Ok(root.to_document())
}

/// A document being put together.
#[derive(Default)]
struct Branch(Vec<(String, Node)>);

enum Node {
    Value(Value),
    Branch(Branch),
}

impl Branch {
    fn put(&mut self, path: &[String], value: Value) -> Option<()> {
        let (name, rest) = path.split_first()?;
        let at = self.0.iter().position(|(own, _)| own == name);
        if rest.is_empty() {
            return at.is_none().then(|| self.0.push((name.clone(), Node::Value(value))));
        }
        let at = at.unwrap_or_else(|| {
            self.0.push((name.clone(), Node::Branch(Branch::default())));
            self.0.len() - 1
        });
        match &mut self.0[at].1 {
            Node::Branch(branch) => branch.put(rest, value),
            Node::Value(_) => None,
        }
    }

    fn to_document(&self) -> Document {
        let mut document = Document::new();
        for (name, node) in &self.0 {
            match node {
                Node::Value(value) => document.push(name, value.as_raw()),
                Node::Branch(branch) => document.push(name, branch.to_document().as_raw()),
            }
        }
        document
    }
}

/// A field's text in a table.
pub(crate) fn cell(document: RawDocument<'_>, path: &[String]) -> String {
    let mut found = Some(RawValue::Document(document));
    for name in path {
        found = match found {
            Some(RawValue::Document(document)) => document.get(name),
            Some(RawValue::Array(array)) => name.parse().ok().and_then(|index| array.get(index)),
            _ => None,
        };
    }
    match found {
        None | Some(RawValue::Null | RawValue::Undefined) => String::new(),
        Some(RawValue::String(text)) => text.to_owned(),
        Some(RawValue::ObjectId(id)) => format!("ObjectId({id})"),
        Some(RawValue::DateTime(millis)) => iso_text(millis),
        Some(RawValue::Decimal128(decimal)) => decimal.to_string(),
        Some(RawValue::Double(number)) if number.is_nan() => "NaN".to_owned(),
        Some(RawValue::Double(number)) if number.is_infinite() => {
            if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        Some(value) => value_to_extended_json(value, JsonFormat::Relaxed),
    }
}

/// A date as `date()` reads it. Where its year has no four digits, the number of milliseconds.
fn iso_text(millis: i64) -> String {
    const DAY: i64 = 86_400_000;
    let (year, month, day) = calendar::civil(millis.div_euclid(DAY));
    if !(0..=9999).contains(&year) {
        return millis.to_string();
    }
    let time = millis.rem_euclid(DAY);
    let (hour, minute) = (time / 3_600_000, time / 60_000 % 60);
    let (second, fraction) = (time / 1000 % 60, time % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_holds_what_its_type_reads() {
        let json = r#"{"id": {"$oid": "0123456789abcdef01234567"}, "old": {"$date": {"$numberLong": "-1"}},
            "new": {"$date": {"$numberLong": "1577836800000"}}, "price": {"$numberDecimal": "1.50"},
            "nan": {"$numberDouble": "NaN"}, "n": {"$numberDouble": "1.5"}}"#;
        let document = parse_extended_json(json).unwrap();
        for (column, text) in [
            ("id.objectId()", "ObjectId(0123456789abcdef01234567)"),
            ("old.date()", "1969-12-31T23:59:59.999Z"),
            ("new.date()", "2020-01-01T00:00:00.000Z"),
            ("price.decimal()", "1.50"),
            ("nan.double()", "NaN"),
            ("n.double()", "1.5"),
        ] {
            let column = Column::typed(column).unwrap();
            let cell = cell(document.as_raw(), &column.path);
            assert_eq!(cell, text);
            let read = column.value(&cell).unwrap();
            let stored = document.get(&column.path[0]).unwrap();
            assert_eq!(format!("{:?}", read.as_raw()), format!("{stored:?}"), "{text}");
        }
    }

    fn of(columns: &[&str], cells: &[&str]) -> Result<Document> {
        let columns: Vec<Column> = columns.iter().map(|text| Column::typed(text)).collect::<Result<_>>()?;
        row(&columns, &csv::StringRecord::from(cells.to_vec()), false)
    }

    #[test]
    fn a_row_becomes_a_document() {
        let columns = [
            "_id.int64()",
            "name.string()",
            "at.when.date()",
            "at.day.date(%d.%m.%Y)",
            "price.decimal()",
            "ok.boolean()",
            "raw.binary(hex)",
            "guess.auto()",
            "none.auto()",
        ];
        let cells = ["7", "007", "2024-03-01", "29.02.2024", "1.50", "Yes", "00ff", "2.5", ""];
        let json = r#"{"_id": {"$numberLong": "7"}, "name": "007", "at": {"when": {"$date": "2024-03-01T00:00:00Z"},
            "day": {"$date": "2024-02-29T00:00:00Z"}}, "price": {"$numberDecimal": "1.50"}, "ok": true,
            "raw": {"$binary": {"base64": "AP8=", "subType": "00"}}, "guess": 2.5}"#;
        assert_eq!(of(&columns, &cells).unwrap(), parse_extended_json(json).unwrap());
    }

    #[test]
    fn what_a_cell_is_not_is_told() {
        for (column, cell) in
            [("n.int32()", "x"), ("n.int32()", "3000000000"), ("d.date()", "soon"), ("b.boolean()", "2")]
        {
            let error = format!("{:#}", of(&[column], &[cell]).unwrap_err());
            assert!(error.contains(cell) && error.contains("column"), "{error}");
        }
        for column in ["n", "n.int()", "n.date", "a..b.int32()", "d.date(%Q)"] {
            assert!(Column::typed(column).is_err(), "{column}");
        }
        assert!(of(&["a.int32()", "a.b.int32()"], &["1", "2"]).is_err());
    }
}
