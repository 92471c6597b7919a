//! Documents as people type them into mongosh: `{at: {$gt: ISODate("2024-03-01")}, name: /^a/i, status: open}`.
//!
//! Names need no quotes, and neither do words, as in YAML. Beside JSON there are the shell's constructors and regular
//! expressions. Everything is turned into extended JSON, which has a word for each type; what is none of this is a mistake
//! at a place. A filter that was read as something else than its author meant would match nothing, and say nothing.
//!
//! Data are read the same way, as mongoimport reads them, but for plain words: there `tru` is a mistake and no text.

use std::borrow::Cow;
use std::fmt;

use kilim_bson::{
    Decimal128, Document, JsonFormat, ObjectId, RawValue, Timestamp, Value, doc, parse_extended_json,
    value_to_extended_json,
};

/// Brackets inside each other; a document has fewer levels.
const DEPTH_MAX: usize = 250;

/// What is wrong, and at which byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    pub at: usize,
    message: String,
}

impl Mistake {
    /// The line and the column in the text that was read, both from 1.
    pub fn place(&self, text: &str) -> (u64, u64) {
        let before = &text[..text.floor_char_boundary(self.at)];
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        (before.matches('\n').count() as u64 + 1, column as u64 + 1)
    }

    /// With its place in the text that was read.
    pub fn in_text(&self, text: &str) -> String {
        let (line, column) = self.place(text);
        format!("line {line}, column {column}: {}", self.message)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

type Result<T> = std::result::Result<T, Mistake>;

/// The documents and lists of a text, each as extended JSON. Several are separated by `---`, as in YAML.
pub fn read_all(text: &str) -> Result<Vec<String>> {
    let mut reader = Reader { text, at: 0, depth: 0, takes_words: true };
    let mut found = Vec::new();
    loop {
        found.push(reader.value()?);
        reader.skip();
        match reader.rest().strip_prefix("---") {
            Some(behind) if behind.trim().is_empty() => return Ok(found),
            Some(_) => reader.at += 3,
            None if reader.rest().is_empty() => return Ok(found),
            None => return reader.fail("expected nothing more"),
        }
    }
}

/// The document of a text that is data: every text is in quotes.
pub fn read_document(text: &str) -> Result<Document> {
    let mut reader = Reader { text, at: 0, depth: 0, takes_words: false };
    let json = reader.value()?;
    reader.skip();
    if !reader.rest().is_empty() {
        return reader.fail("expected nothing more");
    }
    parse_extended_json(&json).map_err(|error| Mistake { at: 0, message: error.to_string() })
}

/// The literal that stands at a place of a YAML text, as extended JSON, and where it ends. None if it is plain text.
pub fn literal_in_yaml(text: &str, at: usize) -> Result<Option<(String, usize)>> {
    let mut reader = Reader { text, at, depth: 0, takes_words: true };
    let is_regex = reader.rest().starts_with('/');
    let json = match reader.literal() {
        Ok(Some(json)) => json,
        Ok(None) => return Ok(None),
        // `/usr/bin` is a path.
        Err(_) if is_regex => return Ok(None),
        Err(mistake) => return Err(mistake),
    };
    let behind = reader.rest().lines().next().unwrap_or_default().trim_start();
    match behind.is_empty() || behind.starts_with([',', '}', ']', '#']) {
        true => Ok(Some((json, reader.at))),
        false if is_regex => Ok(None),
        false => reader.fail("expected nothing more behind the value; text is written in quotes"),
    }
}

/// Whether a bare word of YAML may be a literal of the shell.
pub fn may_be_literal(word: &str) -> bool {
    let call = word.strip_prefix("new ").map_or(word, str::trim_start);
    let name = identifier(call);
    word.starts_with('/')
        || constant(word).is_some()
        || word == UNDEFINED
        || (!name.is_empty() && call[name.len()..].starts_with('('))
        || (word.starts_with("new ") && usage(name).is_some())
}

const UNDEFINED: &str = "undefined";

/// Objects of JavaScript whose members people expect to be values, such as `Math.PI`.
const OBJECTS: &[&str] = &["Math", "Number", "Date", "JSON", "Object", "Array", "String", "this", "db"];

fn constant(word: &str) -> Option<Value> {
    Some(match word {
        "NaN" => Value::Double(f64::NAN),
        "Infinity" | "+Infinity" => Value::Double(f64::INFINITY),
        "-Infinity" => Value::Double(f64::NEG_INFINITY),
        "MinKey" => Value::MinKey,
        "MaxKey" => Value::MaxKey,
        _ => return None,
    })
}

/// The word that a text begins with.
fn identifier(text: &str) -> &str {
    let is_letter = |character: char| character.is_alphanumeric() || matches!(character, '_' | '$');
    let end = text.find(|character: char| !is_letter(character)).unwrap_or(text.len());
    if text.starts_with(|first: char| first.is_ascii_digit()) { "" } else { &text[..end] }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    /// Whether a plain word is a text.
    takes_words: bool,
}

impl<'t> Reader<'t> {
    fn value(&mut self) -> Result<String> {
        self.skip();
        match self.next() {
            None => self.fail("expected a value"),
            Some('{') => self.nested(Reader::object),
            Some('[') => self.nested(Reader::array),
            Some('"') => Ok(quoted(&self.double_quoted()?)),
            Some('\'') => Ok(quoted(&self.single_quoted()?)),
            Some(_) => match self.literal()? {
                Some(json) => Ok(json),
                None => self.word(),
            },
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<String>) -> Result<String> {
        if self.depth == DEPTH_MAX {
            return self.fail("nested too deeply");
        }
        self.depth += 1;
        let json = read(self)?;
        self.depth -= 1;
        Ok(json)
    }

    fn object(&mut self) -> Result<String> {
        let start = self.at;
        self.at += 1;
        let mut json = String::from("{");
        let mut names: Vec<String> = Vec::new();
        while !self.take('}') {
            self.skip();
            let place = self.at;
            let name = self.name()?;
            if names.contains(&name) {
                return fail(place, format!("'{name}' is there twice"));
            }
            if !self.take(':') {
                return self.fail("expected a colon behind the name");
            }
            json.push_str(if names.is_empty() { "" } else { "," });
            json.push_str(&quoted(&name));
            json.push(':');
            json.push_str(&self.value()?);
            names.push(name);
            if !self.take(',') {
                if self.take('}') {
                    break;
                }
                return self.fail("expected a comma or }");
            }
        }
        json.push('}');
        // Found here, a wrapper such as {$date: "soon"} has a place.
        if names.iter().any(|name| name.starts_with('$')) {
            of_json(&json).map_err(|message| Mistake { at: start, message })?;
        }
        Ok(json)
    }

    fn array(&mut self) -> Result<String> {
        self.at += 1;
        let mut values = Vec::new();
        while !self.take(']') {
            values.push(self.value()?);
            if !self.take(',') {
                if self.take(']') {
                    break;
                }
                return self.fail("expected a comma or ]");
            }
        }
        Ok(format!("[{}]", values.join(",")))
    }

    fn name(&mut self) -> Result<String> {
        let start = self.at;
        let name = match self.next() {
            Some('"') => self.double_quoted()?,
            Some('\'') => self.single_quoted()?,
            _ => {
                let ends =
                    |character: char| matches!(character, ':' | ',' | '"' | '\n') || is_bracket(character);
                let end = self.rest().find(ends).unwrap_or(self.rest().len());
                let name = self.rest()[..end].trim_end().to_owned();
                self.at += end;
                name
            }
        };
        match () {
            () if name.is_empty() && self.at == start => self.fail("expected a name"),
            () if name.contains('\0') => fail(start, "a name holds no zero byte"),
            () => Ok(name),
        }
    }

    /// A regular expression, a constant, or what a constructor makes.
    fn literal(&mut self) -> Result<Option<String>> {
        let start = self.at;
        if self.next() == Some('/') {
            return self.regex().map(Some);
        }
        let mut name = identifier(self.rest());
        let mut is_new = false;
        if name == "new" && self.rest()[name.len()..].starts_with([' ', '\t']) {
            let behind = self.rest()[name.len()..].trim_start();
            is_new =
                usage(identifier(behind)).is_some() || behind[identifier(behind).len()..].starts_with('(');
            if is_new {
                self.at = self.text.len() - behind.len();
                name = identifier(behind);
            }
        }
        if self.rest()[name.len()..].starts_with('(') && !name.is_empty() {
            let place = self.at;
            self.at += name.len() + 1;
            let arguments = self.arguments()?;
            return construct(name, &arguments).map(Some).map_err(|message| Mistake { at: place, message });
        }
        if is_new {
            // JavaScript takes `new Date` for `new Date()`.
            self.at += name.len();
            return construct(name, &[]).map(Some).map_err(|message| Mistake { at: start, message });
        }
        let word = self.bare();
        if word == UNDEFINED {
            return self.fail("undefined is no value that is stored or found: write null");
        }
        let value = constant(word);
        self.at += if value.is_some() { word.len() } else { 0 };
        Ok(value.map(json_of))
    }

    fn arguments(&mut self) -> Result<Vec<Value>> {
        let mut arguments = Vec::new();
        while !self.take(')') {
            self.skip();
            let place = self.at;
            let json = self.nested(Reader::value)?;
            arguments.push(of_json(&json).map_err(|message| Mistake { at: place, message })?);
            if !self.take(',') {
                if self.take(')') {
                    break;
                }
                return self.fail("expected a comma or )");
            }
        }
        Ok(arguments)
    }

    fn regex(&mut self) -> Result<String> {
        let start = self.at;
        let (mut escaped, mut in_class) = (false, false);
        for (offset, character) in self.rest().char_indices().skip(1) {
            match character {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => {
                    let pattern = self.text[start + 1..start + offset].to_owned();
                    self.at = start + offset + 1;
                    let options = identifier(self.rest()).to_owned();
                    let Some(value) = regex(&pattern, &options) else {
                        return self.fail("the options of a regular expression are i, m, s, u and x");
                    };
                    self.at += options.len();
                    return Ok(json_of(value));
                }
                _ => {}
            }
        }
        self.fail("a regular expression ends with a slash on its line; text is written in quotes")
    }

    /// A number, a constant of JSON, or a plain word.
    fn word(&mut self) -> Result<String> {
        let start = self.at;
        let word = self.bare();
        let odd =
            |character: char| matches!(character, '(' | '"' | '`' | '=' | '*' | '<' | '>' | ';' | '|' | '!');
        if word.is_empty() {
            return self.fail("expected a value");
        }
        if let Some(at) = word.find(": ").or(word.ends_with(':').then(|| word.len() - 1)) {
            return fail(start + at, "expected a comma in front of the next name");
        }
        if let Some(at) = word.find(odd) {
            return fail(
                start + at,
                format!("'{word}' is no value: text with such characters is written in quotes"),
            );
        }
        self.at += word.len();
        if let Some(json) = plain(word) {
            return Ok(json);
        }
        if let Some((object, _)) = word.split_once('.')
            && OBJECTS.contains(&object)
        {
            return fail(start, format!("'{word}' is no value: JavaScript is not run here"));
        }
        match word.starts_with(|first: char| first.is_alphabetic() || matches!(first, '_' | '$')) {
            true if self.takes_words => Ok(quoted(word)),
            true => fail(start, format!("'{word}' is no value: text is written in quotes")),
            false => fail(
                start,
                format!("'{word}' is neither a number nor a plain word: such text is written in quotes"),
            ),
        }
    }

    /// What stands here up to a comma, a bracket, a comment or the line's end.
    fn bare(&self) -> &'t str {
        let rest = &self.text[self.at..];
        let ends = |character: char| {
            matches!(character, ',' | '\n' | '\r') || (is_bracket(character) && character != '(')
        };
        let end = rest.find(ends).unwrap_or(rest.len());
        let end = rest[..end].find(" #").unwrap_or(end);
        rest[..end].trim_end()
    }

    /// As in JSON, with JavaScript's `\x` and `\'`.
    fn double_quoted(&mut self) -> Result<String> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        while let Some(character) = self.next() {
            self.at += character.len_utf8();
            match character {
                '"' => return Ok(text),
                '\\' => text.push(self.escaped()?),
                plain => text.push(plain),
            }
        }
        fail(start, "the quoted text has no end")
    }

    fn escaped(&mut self) -> Result<char> {
        let place = self.at - 1;
        let Some(character) = self.next() else { return fail(place, "the quoted text has no end") };
        self.at += character.len_utf8();
        Ok(match character {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '0' => '\0',
            '"' | '\'' | '\\' | '/' => character,
            'x' => char::from_u32(self.hexadecimal(2)?).unwrap_or_default(),
            'u' => {
                let mut unit = self.hexadecimal(4)?;
                if (0xd800..0xdc00).contains(&unit) && self.rest().starts_with("\\u") {
                    self.at += 2;
                    let low = self.hexadecimal(4)?;
                    unit = 0x10000 + ((unit - 0xd800) << 10) + low.wrapping_sub(0xdc00);
                }
                match char::from_u32(unit) {
                    Some(character) => character,
                    None => return fail(place, "half a character"),
                }
            }
            other => {
                return fail(place, format!("there is no \\{other} in quoted text; a backslash is \\\\"));
            }
        })
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<u32> {
        let text = self.rest().get(..digits).filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match text.and_then(|text| u32::from_str_radix(text, 16).ok()) {
            Some(number) => {
                self.at += digits;
                Ok(number)
            }
            None => self.fail(format!("expected {digits} hexadecimal digits")),
        }
    }

    /// As in YAML: two quotes are one, and nothing else is special.
    fn single_quoted(&mut self) -> Result<String> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        while let Some(character) = self.next() {
            self.at += character.len_utf8();
            if character == '\'' {
                if self.next() != Some('\'') {
                    return Ok(text);
                }
                self.at += 1;
            }
            text.push(character);
        }
        fail(start, "the quoted text has no end")
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn next(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Goes on behind spaces and comments.
    fn skip(&mut self) {
        loop {
            let trimmed = self.rest().trim_start();
            self.at = self.text.len() - trimmed.len();
            if trimmed.starts_with('#') || trimmed.starts_with("//") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if trimmed.starts_with("/*") {
                self.at += trimmed.find("*/").map_or(trimmed.len(), |end| end + 2);
            } else {
                return;
            }
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        self.skip();
        let found = self.next() == Some(wanted);
        self.at += if found { wanted.len_utf8() } else { 0 };
        found
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        fail(self.at, message)
    }
}

fn fail<T>(at: usize, message: impl Into<String>) -> Result<T> {
    Err(Mistake { at, message: message.into() })
}

fn is_bracket(character: char) -> bool {
    matches!(character, '{' | '}' | '[' | ']' | '(' | ')')
}

/// A number, a truth value or null, in the words of YAML.
fn plain(word: &str) -> Option<String> {
    let radix =
        |prefix, radix| word.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok());
    let whole = radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| word.parse().ok());
    if let Some(whole) = whole {
        return Some(whole.to_string());
    }
    Some(match word {
        "~" | "null" => "null".to_owned(),
        "true" | "True" | "TRUE" => "true".to_owned(),
        "false" | "False" | "FALSE" => "false".to_owned(),
        ".nan" | ".NaN" | ".NAN" => json_of(Value::Double(f64::NAN)),
        ".inf" | "+.inf" => json_of(Value::Double(f64::INFINITY)),
        "-.inf" => json_of(Value::Double(f64::NEG_INFINITY)),
        // Rust reads "inf" and "nan", too, which are words.
        _ if word.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
            && word.contains(|digit: char| digit.is_ascii_digit()) =>
        {
            json_of(Value::Double(word.parse().ok()?))
        }
        _ => return None,
    })
}

fn quoted(text: &str) -> String {
    value_to_extended_json(RawValue::String(text), JsonFormat::Relaxed)
}

/// Exactly the type that it has.
fn json_of(value: Value) -> String {
    value_to_extended_json(value.as_raw(), JsonFormat::Canonical)
}

fn of_json(json: &str) -> std::result::Result<Value, String> {
    let document = parse_extended_json(&format!("{{\"v\":{json}}}")).map_err(|error| error.to_string())?;
    document.get("v").map(RawValue::to_value).ok_or_else(|| "expected a value".to_owned())
}

/// The shell's constructors, and how each is written.
const CONSTRUCTORS: [(&str, &str); 19] = [
    ("ISODate", r#"ISODate("2024-03-01T12:30:00Z")"#),
    ("Date", r#"new Date("2024-03-01T12:30:00Z"), or of milliseconds since 1970"#),
    ("ObjectId", r#"ObjectId("…"), of 24 hexadecimal digits"#),
    ("NumberInt", "NumberInt(5)"),
    ("Int32", "Int32(5)"),
    ("NumberLong", r#"NumberLong("5")"#),
    ("Long", r#"Long("5")"#),
    ("NumberDecimal", r#"NumberDecimal("1.50")"#),
    ("Decimal128", r#"Decimal128("1.50")"#),
    ("Double", "Double(1.5)"),
    ("UUID", r#"UUID("c8edabc3-f738-4ca3-b68d-ab92a91478a3")"#),
    ("Timestamp", "Timestamp(1709296200, 1), of seconds and a counter"),
    ("BinData", r#"BinData(0, "…"), of a subtype and base64"#),
    ("HexData", r#"HexData(0, "…"), of a subtype and hexadecimal digits"#),
    ("RegExp", r#"RegExp("^a", "i")"#),
    ("MinKey", "MinKey()"),
    ("MaxKey", "MaxKey()"),
    ("Code", r#"Code("…")"#),
    ("DBRef", r#"DBRef("collection", id)"#),
];

fn usage(name: &str) -> Option<&'static str> {
    CONSTRUCTORS.iter().find(|(known, _)| *known == name).map(|(_, usage)| *usage)
}

fn construct(name: &str, arguments: &[Value]) -> std::result::Result<String, String> {
    let Some(usage) = usage(name) else {
        let known: Vec<&str> = CONSTRUCTORS.iter().map(|(known, _)| *known).collect();
        return Err(format!(
            "there is no {name}(…); there are {}. Text is written in quotes",
            known.join(", ")
        ));
    };
    constructed(name, arguments).map(json_of).ok_or_else(|| format!("it is written {usage}"))
}

fn constructed(name: &str, arguments: &[Value]) -> Option<Value> {
    Some(match (name, arguments) {
        ("ISODate" | "Date", []) => Value::DateTime(
            std::time::UNIX_EPOCH.elapsed().ok().and_then(|since| since.as_millis().try_into().ok())?,
        ),
        ("ISODate" | "Date", [Value::String(text)]) => date(text)?,
        ("Date", [Value::Int32(_) | Value::Int64(_)]) => Value::DateTime(integer(&arguments[0])?),
        ("ObjectId", [Value::String(text)]) => {
            let is_hex = text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            Value::ObjectId(ObjectId::parse_hex(text).filter(|_| is_hex)?)
        }
        ("NumberInt" | "Int32", [value]) => Value::Int32(integer(value)?.try_into().ok()?),
        ("NumberLong" | "Long", [value]) => Value::Int64(integer(value)?),
        ("NumberDecimal" | "Decimal128", [Value::String(text)]) => {
            Value::Decimal128(Decimal128::parse_exact(text).ok()?)
        }
        ("NumberDecimal" | "Decimal128", [Value::Int32(_) | Value::Int64(_)]) => {
            Value::Decimal128(Decimal128::parse_exact(&integer(&arguments[0])?.to_string()).ok()?)
        }
        ("NumberDecimal" | "Decimal128", [Value::Double(value)]) => {
            Value::Decimal128(Decimal128::parse_exact(&format!("{value}")).ok()?)
        }
        ("Double", [Value::Double(value)]) => Value::Double(*value),
        ("Double", [Value::String(text)]) => Value::Double(text.trim().parse().ok()?),
        ("Double", [value]) => Value::Double(integer(value)? as f64),
        ("UUID", [Value::String(text)]) => {
            let digits: String = text.chars().filter(|digit| *digit != '-').collect();
            Value::Binary { subtype: 4, bytes: hexadecimal(&digits).filter(|bytes| bytes.len() == 16)? }
        }
        ("Timestamp", [Value::Document(parts)]) => {
            timestamp(&parts.get("t")?.to_value(), &parts.get("i")?.to_value())?
        }
        ("Timestamp", [seconds, counter]) => timestamp(seconds, counter)?,
        ("BinData", [subtype, Value::String(text)]) => {
            let subtype = u8::try_from(integer(subtype)?).ok()?;
            let wrapper = format!(r#"{{"$binary":{{"base64":{},"subType":"{subtype:02x}"}}}}"#, quoted(text));
            of_json(&wrapper).ok()?
        }
        ("HexData", [subtype, Value::String(text)]) => {
            Value::Binary { subtype: integer(subtype)?.try_into().ok()?, bytes: hexadecimal(text)? }
        }
        ("RegExp", [Value::String(pattern)]) => regex(pattern, "")?,
        ("RegExp", [Value::String(pattern), Value::String(options)]) => regex(pattern, options)?,
        ("RegExp", [Value::Regex { pattern, options }]) => regex(pattern, options)?,
        ("MinKey", []) => Value::MinKey,
        ("MaxKey", []) => Value::MaxKey,
        ("Code", [Value::String(code)]) => Value::JavaScript(code.clone()),
        ("DBRef", [Value::String(collection), id]) => {
            Value::Document(doc! {"$ref": &**collection, "$id": id.clone()})
        }
        ("DBRef", [Value::String(collection), id, Value::String(database)]) => {
            let reference: Document = doc! {"$ref": &**collection, "$id": id.clone(), "$db": &**database};
            Value::Document(reference)
        }
        _ => return None,
    })
}

/// A date as ISO 8601 has it; without a zone it is UTC, without a time midnight.
fn date(text: &str) -> Option<Value> {
    let (day, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let (clock, zone) = match time.find(['Z', '+', '-']) {
        Some(at) => time.split_at(at),
        None => (time, "Z"),
    };
    let clock: Cow<'_, str> = if clock.len() == 5 { format!("{clock}:00").into() } else { clock.into() };
    let whole = format!("{day}T{clock}{zone}");
    of_json(&format!("{{\"$date\":{}}}", quoted(&whole))).ok()
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int32(value) => Some(i64::from(*value)),
        Value::Int64(value) => Some(*value),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn timestamp(seconds: &Value, counter: &Value) -> Option<Value> {
    let part = |value| u32::try_from(integer(value)?).ok();
    Some(Value::Timestamp(Timestamp { seconds: part(seconds)?, increment: part(counter)? }))
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Options in the order in which they are stored.
fn regex(pattern: &str, options: &str) -> Option<Value> {
    let mut options: Vec<char> = options.chars().collect();
    options.sort_unstable();
    options.dedup();
    let are_known = options.iter().all(|option| "imsux".contains(*option));
    (are_known && !pattern.contains('\0'))
        .then(|| Value::Regex { pattern: pattern.to_owned(), options: options.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_the_shell_are_what_they_say() {
        for (text, json) in [
            (r#"ISODate("2024-03-01T12:30:00Z")"#, r#"{"$date":"2024-03-01T12:30:00Z"}"#),
            (r#"ISODate("2024-03-01")"#, r#"{"$date":"2024-03-01T00:00:00Z"}"#),
            (r#"ISODate('2024-03-01 12:30+02:00')"#, r#"{"$date":"2024-03-01T10:30:00Z"}"#),
            (r#"new Date("2024-03-01T12:30:00.5")"#, r#"{"$date":"2024-03-01T12:30:00.500Z"}"#),
            ("new Date(1000)", r#"{"$date":"1970-01-01T00:00:01Z"}"#),
            (r#"ObjectId("0123456789abcdef01234567")"#, r#"{"$oid":"0123456789abcdef01234567"}"#),
            ("NumberInt(5)", r#"{"$numberInt":"5"}"#),
            ("NumberLong(5)", r#"{"$numberLong":"5"}"#),
            (r#"Long("-9223372036854775808")"#, r#"{"$numberLong":"-9223372036854775808"}"#),
            (r#"NumberDecimal("1.50")"#, r#"{"$numberDecimal":"1.50"}"#),
            ("Decimal128(3)", r#"{"$numberDecimal":"3"}"#),
            ("Double(3)", r#"{"$numberDouble":"3.0"}"#),
            (
                r#"UUID("c8edabc3-f738-4ca3-b68d-ab92a91478a3")"#,
                r#"{"$uuid":"c8edabc3-f738-4ca3-b68d-ab92a91478a3"}"#,
            ),
            ("Timestamp(5, 7)", r#"{"$timestamp":{"t":5,"i":7}}"#),
            ("Timestamp({t: 5, i: 7})", r#"{"$timestamp":{"t":5,"i":7}}"#),
            (r#"BinData(128, "AAEC")"#, r#"{"$binary":{"base64":"AAEC","subType":"80"}}"#),
            (r#"HexData(0, "000102")"#, r#"{"$binary":{"base64":"AAEC","subType":"00"}}"#),
            ("/^a[/,}]\\/b/mi", r#"{"$regularExpression":{"pattern":"^a[/,}]\\/b","options":"im"}}"#),
            (r#"RegExp("a b", "i")"#, r#"{"$regularExpression":{"pattern":"a b","options":"i"}}"#),
            ("MinKey", r#"{"$minKey":1}"#),
            ("MaxKey()", r#"{"$maxKey":1}"#),
            ("-Infinity", r#"{"$numberDouble":"-Infinity"}"#),
            (r#"DBRef("c", 1)"#, r#"{"$ref":"c","$id":1}"#),
            // And what JSON and YAML have.
            ("0x10", "16"),
            ("2147483648", "2147483648"),
            ("1e3", r#"{"$numberDouble":"1000.0"}"#),
            ("two words", r#""two words""#),
            ("$total", r#""$total""#),
            ("~", "null"),
            (r#"{$date: "2024-03-01T00:00:00Z"}"#, r#"{"$date":"2024-03-01T00:00:00Z"}"#),
            (r#""a\"\\\u00e9\ud83d\ude00""#, r#""a\"\\é😀""#),
            (r"'^\d+ it''s'", r#""^\\d+ it's""#),
        ] {
            let expected = of_json(json).unwrap();
            for text in
                [format!("{{v: {text}}}"), format!("{{\"v\":{text} , }}"), format!("{{v: {text} # so\n}}")]
            {
                let read =
                    read_all(&text).unwrap_or_else(|mistake| panic!("{text}: {}", mistake.in_text(&text)));
                let read = parse_extended_json(&read[0]).unwrap();
                let read = read.get("v").map(RawValue::to_value);
                assert_eq!(format!("{read:?}"), format!("{:?}", Some(&expected)), "{text}");
            }
        }
        assert!(read_all("{at: {$lt: new Date}}").is_ok());
        assert_eq!(read_all("{a: 1}\n---\n[{b: 2}]\n---\n").unwrap().len(), 2);
    }

    #[test]
    fn data_hold_no_text_without_quotes() {
        let read = read_document(
            r#"{_id: ObjectId("0123456789abcdef01234567"), "n": NumberLong(5), 'r': /a/, t: true}"#,
        );
        let json = r#"{"_id": {"$oid": "0123456789abcdef01234567"}, "n": {"$numberLong": "5"},
            "r": {"$regularExpression": {"pattern": "a", "options": ""}}, "t": true}"#;
        assert_eq!(read.unwrap(), parse_extended_json(json).unwrap());
        for (text, place) in
            [("{a: tru}", (1, 5)), ("{a: 1}\n x", (2, 2)), ("[1]", (1, 1)), ("{a: [b]}", (1, 6))]
        {
            assert_eq!(read_document(text).expect_err(text).place(text), place, "{text}");
        }
    }

    #[test]
    fn what_is_none_of_it_is_refused_at_its_place() {
        for (text, place) in [
            ("{at: {$gt: ISODte(\"2024\")}}", "line 1, column 12"),
            ("{at:\n {$gt: ISODate(\"soon\")}}", "line 2, column 8"),
            ("{a: ISODate(\"2024-01-01\"}", "line 1, column 25"),
            ("{_id: ObjectId(\"123\")}", "line 1, column 7"),
            ("{_id: ObjectId(123)}", "line 1, column 7"),
            ("{a: NumberInt(3000000000)}", "line 1, column 5"),
            ("{a: /b/q}", "line 1, column 8"),
            ("{a: /usr}", "line 1, column 5"),
            ("{a: 2024-01-01}", "line 1, column 5"),
            ("{a: 5 * 60}", "line 1, column 7"),
            ("{a: 1 b: 2}", "line 1, column 8"),
            ("{a: undefined}", "line 1, column 5"),
            ("{a: Math.PI}", "line 1, column 5"),
            ("{a: 1, a: 2}", "line 1, column 8"),
            ("{ü: {$date: \"soon\"}}", "line 1, column 5"),
            ("{a: \"b}", "line 1, column 5"),
            ("{a: \"\\q\"}", "line 1, column 6"),
            ("{a: 'it's'}", "line 1, column 9"),
            ("{a: }", "line 1, column 5"),
            ("{a}", "line 1, column 3"),
            ("{: 1}", "line 1, column 2"),
            ("[1,,2]", "line 1, column 4"),
            ("{a: 1", "line 1, column 6"),
            ("{a: 1} {", "line 1, column 8"),
            ("{a: x(1) y}", "line 1, column 5"),
        ] {
            let mistake = read_all(text).expect_err(text).in_text(text);
            assert!(mistake.starts_with(&format!("{place}: ")), "{text}: {mistake}");
        }
        let deep = format!("{{a: {}{}}}", "[".repeat(300), "]".repeat(300));
        assert!(read_all(&deep).is_err());
    }
}
