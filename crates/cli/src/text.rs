//! Documents as people write them: the shell's way, YAML or JSON in, YAML and short values out.
//!
//! Both directions go through extended JSON where YAML has no word for a type: a date is
//! `{$date: "2024-03-01T00:00:00Z"}` in either. The shell's literals (`ISODate("2024-03-01")`) are read, too.

use std::borrow::Cow;
use std::fmt::Write;

use anyhow::{Context, Result, anyhow, bail};
use kilim_bson::{
    Document, JsonFormat, RawDocument, RawValue, Value, parse_extended_json, value_to_extended_json,
};
use kilim_client::shell;
use yaml_rust2::parser::{Event, MarkedEventReceiver, Parser};
use yaml_rust2::scanner::{Marker, TScalarStyle};
use yaml_rust2::{Yaml, YamlLoader};

/// All documents of a text: as the shell writes them where it begins with a bracket, else YAML. It may hold several.
pub(crate) fn parse_values(text: &str) -> Result<Vec<Value>> {
    if text.trim_start().starts_with(['{', '[']) {
        let found = shell::read_all(text).map_err(|mistake| anyhow!("{}", mistake.in_text(text)))?;
        return found.iter().map(|json| of_json(json)).collect();
    }
    let text = with_literals(text)?;
    let parsed = YamlLoader::load_from_str(&text).map_err(|error| {
        let at = error.marker();
        anyhow!("line {}, column {}: {}", at.line(), at.col() + 1, error.info())
    })?;
    parsed.iter().filter(|value| **value != Yaml::Null).map(value_of).collect()
}

/// A YAML text with the shell's literals, such as `ISODate("2024-03-01")`, turned into extended JSON, which YAML can read.
/// YAML alone would take them for text. In quotes they are text.
fn with_literals(text: &str) -> Result<Cow<'_, str>> {
    let mut changed = Cow::Borrowed(text);
    // What is in front of this has been looked at.
    let mut done = 0;
    loop {
        // One at a time: behind a comma within a literal, YAML sees things that are not there.
        let mut words = BareWords::default();
        // Mistakes are told by whoever reads the whole.
        let _ = Parser::new_from_str(&changed).load(&mut words, true);
        let places = words.places.iter().map(|at| offset(&changed, *at));
        let Some(at) = places.filter(|at| *at >= done).min() else { return Ok(changed) };
        let literal = shell::literal_in_yaml(&changed, at).map_err(|mut mistake| {
            // All changes so far are in front of it.
            mistake.at = (mistake.at + text.len()).saturating_sub(changed.len());
            anyhow!("{}", mistake.in_text(text))
        })?;
        match literal {
            Some((json, end)) => {
                changed.to_mut().replace_range(at..end, &json);
                done = at + json.len();
            }
            None => done = at + 1,
        }
    }
}

/// Where words stand that may be literals: their lines and columns.
#[derive(Default)]
struct BareWords {
    places: Vec<(usize, usize)>,
}

impl MarkedEventReceiver for BareWords {
    fn on_event(&mut self, event: Event, mark: Marker) {
        if let Event::Scalar(word, TScalarStyle::Plain, _, None) = event
            && shell::may_be_literal(&word)
        {
            self.places.push((mark.line(), mark.col()));
        }
    }
}

/// The byte of a line and a column; lines count from 1, columns from 0.
fn offset(text: &str, (line, column): (usize, usize)) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let rest = &text[start..];
    start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
}

/// The one document of a text.
pub(crate) fn parse_document(text: &str) -> Result<Document> {
    match <[Value; 1]>::try_from(parse_values(text)?) {
        Ok([Value::Document(document)]) => Ok(document),
        _ => bail!("expected a document such as {{status: open}}"),
    }
}

/// One value, as in `--option maxSync=500`.
pub(crate) fn parse_value(text: &str) -> Result<Value> {
    match <[Value; 1]>::try_from(parse_values(text)?) {
        Ok([value]) => Ok(value),
        Err(values) if values.is_empty() => Ok(Value::Null),
        Err(_) => bail!("expected one value"),
    }
}

fn value_of(yaml: &Yaml) -> Result<Value> {
    let mut json = String::new();
    write_json(yaml, &mut json)?;
    of_json(&json)
}

/// A value as extended JSON.
fn of_json(json: &str) -> Result<Value> {
    let document =
        parse_extended_json(&format!("{{\"value\":{json}}}")).map_err(|error| anyhow!("{error}"))?;
    document.get("value").map(RawValue::to_value).context("a value was written")
}

fn write_json(yaml: &Yaml, out: &mut String) -> Result<()> {
    match yaml {
        Yaml::Null => out.push_str("null"),
        Yaml::Boolean(value) => write!(out, "{value}")?,
        Yaml::Integer(value) => write!(out, "{value}")?,
        Yaml::Real(text) => match yaml.as_f64() {
            Some(value) if value.is_finite() => write!(out, "{value:?}")?,
            Some(value) if value.is_nan() => out.push_str(r#"{"$numberDouble":"NaN"}"#),
            Some(value) if value > 0.0 => out.push_str(r#"{"$numberDouble":"Infinity"}"#),
            Some(_) => out.push_str(r#"{"$numberDouble":"-Infinity"}"#),
            None => bail!("'{text}' is no number"),
        },
        Yaml::String(text) => write_quoted(text, out),
        Yaml::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_json(value, out)?;
            }
            out.push(']');
        }
        Yaml::Hash(fields) => {
            out.push('{');
            for (at, (name, value)) in fields.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                match name {
                    Yaml::String(name) => write_quoted(name, out),
                    Yaml::Integer(name) => write_quoted(&name.to_string(), out),
                    Yaml::Boolean(name) => write_quoted(&name.to_string(), out),
                    _ => bail!("a field's name is a word, not a list or a document"),
                }
                out.push(':');
                write_json(value, out)?;
            }
            out.push('}');
        }
        Yaml::Alias(_) | Yaml::BadValue => bail!("an alias that names nothing"),
    }
    Ok(())
}

fn write_quoted(text: &str, out: &mut String) {
    out.push_str(&value_to_extended_json(RawValue::String(text), JsonFormat::Relaxed));
}

/// A document as block YAML, each line indented by `depth` steps; small parts stay on one line.
pub(crate) fn write_yaml(document: RawDocument<'_>, depth: usize, out: &mut String) {
    const LINE: usize = 88;
    for (name, value) in document.iter() {
        out.push_str(&"  ".repeat(depth));
        write_word(name, out);
        out.push(':');
        let short = flow(value);
        match value {
            RawValue::Document(inner) if depth * 2 + name.len() + short.len() > LINE => {
                out.push('\n');
                write_yaml(inner, depth + 1, out);
            }
            RawValue::Array(inner) if depth * 2 + name.len() + short.len() > LINE => {
                out.push('\n');
                for element in inner.iter() {
                    let _ = writeln!(out, "{}- {}", "  ".repeat(depth + 1), flow(element));
                }
            }
            _ => {
                let _ = writeln!(out, " {short}");
            }
        }
    }
}

/// A value on one line: YAML's flow style, which is also how the shell shows it, nearly.
pub(crate) fn flow(value: RawValue<'_>) -> String {
    let mut out = String::new();
    write_flow(value, &mut out);
    out
}

fn write_flow(value: RawValue<'_>, out: &mut String) {
    match value {
        RawValue::Document(document) if document.is_empty() => out.push_str("{}"),
        RawValue::Document(document) => {
            for (at, (name, value)) in document.iter().enumerate() {
                out.push_str(if at == 0 { "{ " } else { ", " });
                write_word(name, out);
                out.push_str(": ");
                write_flow(value, out);
            }
            out.push_str(" }");
        }
        RawValue::Array(array) => {
            for (at, value) in array.iter().enumerate() {
                out.push_str(if at == 0 { "[" } else { ", " });
                write_flow(value, out);
            }
            out.push_str(if array.is_empty() { "[]" } else { "]" });
        }
        RawValue::String(text) => write_word(text, out),
        other => out.push_str(&value_to_extended_json(other, JsonFormat::Relaxed)),
    }
}

/// Bare where nothing else could be meant, quoted otherwise.
fn write_word(text: &str, out: &mut String) {
    const TAKEN: [&str; 15] = [
        "true",
        "false",
        "null",
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "nan",
        "inf",
        "infinity",
        "minkey",
        "maxkey",
        "undefined",
    ];
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_$.".contains(c))
        // `on` is a field of `computed`, and only YAML 1.1 takes it for a truth value.
        && (text == "on" || !TAKEN.contains(&&*text.to_ascii_lowercase()));
    if plain { out.push_str(text) } else { write_quoted(text, out) }
}

/// Documents for machines: a JSON array with a document a line.
pub(crate) fn json_lines(documents: &[Document]) -> String {
    let lines: Vec<String> = documents.iter().map(json).collect();
    match lines.is_empty() {
        true => "[]".to_owned(),
        false => format!("[\n{}\n]", lines.join(",\n")),
    }
}

/// A reply, without what only drivers need.
pub(crate) fn json(document: &Document) -> String {
    const FOR_DRIVERS: [&str; 3] = ["ok", "$clusterTime", "operationTime"];
    let told = document.iter().filter(|(name, _)| !FOR_DRIVERS.contains(name));
    let told: Document = told.map(|(name, value)| (name, value.to_value())).collect();
    kilim_bson::to_extended_json(told.as_raw(), JsonFormat::Relaxed)
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::*;

    #[test]
    fn yaml_and_json_give_the_same_document() {
        let expected = doc! {"createPattern": "orders", "computed": {"on": "_id", "n": 1, "f": 1.5,
        "pipeline": [{"$match": {"hidden": {"$ne": true}}}]}};
        for text in [
            "createPattern: orders\ncomputed:\n  on: _id\n  n: 1\n  f: 1.5\n  pipeline:\n    - $match: {hidden: {$ne: true}}\n",
            "{createPattern: orders, computed: {on: _id, n: 1, f: 1.5, pipeline: [{$match: {hidden: {$ne: true}}}]}}",
            "{\"createPattern\": \"orders\",\t\"computed\": {\"on\": \"_id\", \"n\": 1, \"f\": 1.5,\n\t\"pipeline\": [{\"$match\": {\"hidden\": {\"$ne\": true}}}]}}",
        ] {
            assert_eq!(parse_document(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn names_need_no_space_behind_their_colon() {
        let expected =
            doc! {"a": 1, "b": {"$gt": "x:y", "n": [1, {"c": "it's"}]}, "d.e": "http://k", "f": -1};
        for text in [
            r#"{a:1,b:{$gt:"x:y",n:[1,{c:"it's"}]},'d.e':"http://k",f:-1}"#,
            r#"{ "a":1, b: {$gt:'x:y', n: [1,{c: it's}]}, d.e: http://k, f:-1 }"#,
            "{a: 1,\n b:\n  {$gt:\t'x:y',n:[1,{c:it's}]},d.e:http://k, f: -1}",
        ] {
            assert_eq!(parse_document(text).unwrap(), expected, "{text}");
        }
        assert_eq!(parse_document("{}").unwrap(), doc! {});
        assert_eq!(parse_document("{_id:-1}").unwrap(), doc! {"_id": -1});
    }

    #[test]
    fn what_is_written_as_yaml_reads_back() {
        let document = doc! {"name": "on", "a": "no", "b": "$total", "c": "two words", "d": "", "e": [],
        "f": {"on": 1, "g": [1, 2.5, null, true, {"x": "1"}]}, "when": Value::DateTime(1_709_251_200_000),
        "long": {"one": "a".repeat(40), "two": "b".repeat(40), "three": ["c".repeat(80), "it's: \"so\""]}};
        let mut text = String::new();
        write_yaml(document.as_raw(), 0, &mut text);
        assert_eq!(parse_document(&text).unwrap(), document, "{text}");
    }

    #[test]
    fn texts_that_look_like_literals_read_back_as_texts() {
        for text in [
            "MinKey",
            "maxkey",
            "NaN",
            "-Infinity",
            "undefined",
            "/a/",
            "/usr/bin",
            "new Date()",
            "ISODate(1)",
            "f(x)",
            "2024-03-01",
            "5",
            "0x10",
            "~",
            "null",
            "{}",
            "a: b",
            "# a",
            "it's",
            "\\d",
            "\"",
            "two\nlines",
            "",
        ] {
            let document = doc! {"name": text, "nested": {"list": [text, {"deep": text}]}};
            let mut block = String::new();
            write_yaml(document.as_raw(), 0, &mut block);
            assert_eq!(parse_document(&block).unwrap(), document, "{block}");
            let line = flow(RawValue::Document(document.as_raw()));
            assert_eq!(parse_document(&line).unwrap(), document, "{line}");
        }
    }

    #[test]
    fn no_text_makes_the_readers_panic() {
        use rand::seq::IndexedRandom;
        use rand::{Rng, SeedableRng};
        let pieces = [
            "{",
            "}",
            "[",
            "]",
            "(",
            ")",
            ":",
            ": ",
            ",",
            "\"",
            "'",
            "/",
            "\\",
            "\n",
            "\r",
            " ",
            "#",
            "-",
            "- ",
            "---",
            "new ",
            "Date",
            "ISODate",
            "ObjectId",
            "Timestamp",
            "MinKey",
            "$date",
            "a",
            "é",
            "😀",
            "5",
            "0x",
            "//",
            "/*",
            "*/",
            "*",
            "&",
            "!",
            "|",
            ">",
            "~",
            "\u{2028}",
            "\u{feff}",
            "\t",
        ];
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        for _ in 0..20_000 {
            let length = random.random_range(1..24);
            let text: String = (0..length).map(|_| *pieces.choose(&mut random).unwrap()).collect();
            let _ = parse_values(&text);
            let _ = parse_values(&format!("{{a: {text}}}"));
        }
    }

    #[test]
    fn yaml_knows_the_literals_of_the_shell() {
        let expected = doc! {"at": Value::DateTime(1_709_251_200_000), "list": [Value::MinKey, "MinKey", "/usr/bin"],
        "ü": {"t": Value::Timestamp(kilim_bson::Timestamp { seconds: 1, increment: 2 }), "n": 5_i64},
        "r": Value::Regex { pattern: "a{2,3}".into(), options: "i".into() }, "text": "ISODate(\"2024-03-01\")",
        "say": "call f(x) now"};
        let text = "at: ISODate(\"2024-03-01\")\nlist: [MinKey, 'MinKey', /usr/bin]\n\
            ü: {t: Timestamp(1, 2), n: NumberLong(5)} # so\nr: /a{2,3}/i\n\
            text: 'ISODate(\"2024-03-01\")'\nsay: call f(x) now\n";
        assert_eq!(parse_document(text).unwrap(), expected);
        for (text, place) in [
            ("a: 1\nb: ISODte(\"2024-03-01\")", "line 2, column 4: "),
            ("b: {c: MinKey, d: ObjectId(1)}", "line 1, column 19: "),
            ("b: ISODate(\"2024-03-01\") + 1", "line 1, column 25: "),
        ] {
            let error = parse_document(text).unwrap_err().to_string();
            assert!(error.starts_with(place), "{text}: {error}");
        }
    }

    #[test]
    fn a_mistake_in_yaml_is_named_with_its_line() {
        let error = parse_document("a: 1\nb: {c: 2\n").unwrap_err().to_string();
        assert!(error.starts_with("line "), "{error}");
        assert!(parse_document("- 1").is_err());
        assert!(parse_document("a: 1\na: 2").is_err());
    }

    #[test]
    fn large_numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (-1234567, "-1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
