//! Text to values: a hand-written descent over the shell's literals and constructors.

use std::fmt;

use kilim_bson::{Array, Document, ObjectId, Timestamp, Value, Writer};

use super::{ANY, CURSOR, REST, decimal, time};

/// What was wrong, and at which byte.
#[derive(Debug, Clone)]
pub struct ParseError {
    pub at: usize,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.message, self.at)
    }
}

impl std::error::Error for ParseError {}

type Result<T> = std::result::Result<T, ParseError>;

/// Reads one value and nothing after it.
pub fn parse(text: &str) -> Result<Value> {
    let mut parser = Parser::new(text, 0);
    let value = parser.value()?;
    match parser.peek() {
        None => Ok(value),
        Some(_) => parser.fail("expected nothing more"),
    }
}

pub fn parse_document(text: &str) -> Result<Document> {
    match parse(text)? {
        Value::Document(document) => Ok(document),
        _ => Err(ParseError { at: 0, message: "expected a document".to_owned() }),
    }
}

/// A reader at a place in a text, for formats that hold values among other things.
pub struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str, at: usize) -> Parser<'a> {
        Parser { text, at }
    }

    /// The byte behind what was read.
    pub fn position(&self) -> usize {
        self.at
    }

    pub fn value(&mut self) -> Result<Value> {
        match self.peek() {
            None => self.fail("expected a value"),
            Some(b'{') => Ok(Value::Document(self.document()?)),
            Some(b'[') => self.array(),
            Some(b'"' | b'\'') => Ok(Value::String(self.text()?)),
            Some(b'/') => self.regex(),
            Some(b'<') => self.placeholder(),
            Some(b'0'..=b'9' | b'-' | b'+' | b'.') => self.number(),
            Some(_) => self.word(),
        }
    }

    pub fn document(&mut self) -> Result<Document> {
        self.expect(b'{')?;
        let mut writer = Writer::new();
        while !self.take(b'}') {
            if self.text[self.at..].starts_with(REST) {
                self.at += REST.len();
                writer.append(REST, Value::JavaScript(ANY.to_owned()).as_raw());
                self.expect(b'}')?;
                break;
            }
            let name = self.name()?;
            self.expect(b':')?;
            let value = self.value()?;
            writer.append(&name, value.as_raw());
            if !self.take(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        Ok(writer.finish())
    }

    fn array(&mut self) -> Result<Value> {
        self.expect(b'[')?;
        let mut values = Vec::new();
        while !self.take(b']') {
            values.push(self.value()?);
            if !self.take(b',') {
                self.expect(b']')?;
                break;
            }
        }
        Ok(Value::Array(values.into_iter().collect()))
    }

    fn name(&mut self) -> Result<String> {
        let start = self.at;
        let name = match self.peek() {
            Some(b'"' | b'\'') => self.text()?,
            _ => self.identifier()?.to_owned(),
        };
        if name.contains('\0') {
            self.at = start;
            return self.fail("a field name holds no zero byte");
        }
        Ok(name)
    }

    fn identifier(&mut self) -> Result<&'a str> {
        self.skip();
        let rest = &self.text[self.at..];
        let length = rest
            .find(|character: char| !(character.is_alphanumeric() || matches!(character, '_' | '$')))
            .unwrap_or(rest.len());
        if length == 0 {
            return self.fail("expected a name");
        }
        self.at += length;
        Ok(&rest[..length])
    }

    fn text(&mut self) -> Result<String> {
        let quote = self.peek().unwrap_or_default();
        if quote != b'"' && quote != b'\'' {
            return self.fail("expected a quoted text");
        }
        self.at += 1;
        let mut text = String::new();
        loop {
            let Some(character) = self.text[self.at..].chars().next() else {
                return self.fail("the text is not closed");
            };
            self.at += character.len_utf8();
            match character {
                '\n' => return self.fail("the text is not closed on its line"),
                '\\' => text.push(self.escape()?),
                quoted if quoted as u32 == u32::from(quote) => return Ok(text),
                plain => text.push(plain),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let Some(character) = self.text[self.at..].chars().next() else {
            return self.fail("the text is not closed");
        };
        self.at += character.len_utf8();
        Ok(match character {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '0' => '\0',
            'x' => self.unit(2)?.try_into().or_else(|_| self.fail("not a character"))?,
            'u' => {
                let mut unit = self.unit(4)?;
                if (0xd800..0xdc00).contains(&unit) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let low = self.unit(4)?;
                    unit = 0x10000 + ((unit - 0xd800) << 10) + low.wrapping_sub(0xdc00);
                }
                unit.try_into().or_else(|_| self.fail("not a character"))?
            }
            other => other,
        })
    }

    fn unit(&mut self, digits: usize) -> Result<u32> {
        let hex = self.text.get(self.at..self.at + digits).unwrap_or_default();
        match u32::from_str_radix(hex, 16) {
            Ok(unit) => {
                self.at += digits;
                Ok(unit)
            }
            Err(_) => self.fail("expected hexadecimal digits"),
        }
    }

    fn regex(&mut self) -> Result<Value> {
        self.expect(b'/')?;
        let start = self.at;
        let mut escaped = false;
        for (offset, character) in self.text[start..].char_indices() {
            match character {
                '\n' => break,
                '/' if !escaped => {
                    let pattern = self.text[start..start + offset].to_owned();
                    self.at = start + offset + 1;
                    let rest = &self.text[self.at..];
                    let length = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
                    self.at += length;
                    return Ok(Value::Regex { pattern, options: rest[..length].to_owned() });
                }
                _ => escaped = character == '\\' && !escaped,
            }
        }
        self.fail("the regular expression is not closed on its line")
    }

    fn placeholder(&mut self) -> Result<Value> {
        for known in [ANY, CURSOR] {
            if self.text[self.at..].starts_with(known) {
                self.at += known.len();
                return Ok(Value::JavaScript(known.to_owned()));
            }
        }
        self.fail("expected <any> or <cursor>")
    }

    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        if matches!(bytes[self.at], b'-' | b'+') {
            self.at += 1;
        }
        if self.text[self.at..].starts_with("Infinity") {
            self.at += "Infinity".len();
            return Ok(Value::Double(if bytes[start] == b'-' { f64::NEG_INFINITY } else { f64::INFINITY }));
        }
        while let Some(&byte) = bytes.get(self.at) {
            let sign_of_exponent = matches!(byte, b'-' | b'+') && matches!(bytes[self.at - 1], b'e' | b'E');
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || sign_of_exponent) {
                break;
            }
            self.at += 1;
        }
        let digits = &self.text[start..self.at];
        let value = if digits.contains(['.', 'e', 'E']) {
            digits.parse().ok().map(Value::Double)
        } else {
            digits
                .parse::<i64>()
                .ok()
                .map(|value| i32::try_from(value).map_or(Value::Int64(value), Value::Int32))
        };
        value.map_or_else(
            || {
                self.at = start;
                self.fail("not a number")
            },
            Ok,
        )
    }

    /// A constant or a constructor call.
    fn word(&mut self) -> Result<Value> {
        let start = self.at;
        let mut word = self.identifier()?;
        if word == "new" {
            word = self.identifier()?;
        }
        let constant = match word {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            "undefined" => Some(Value::Undefined),
            "NaN" => Some(Value::Double(f64::NAN)),
            "Infinity" => Some(Value::Double(f64::INFINITY)),
            "MinKey" => Some(Value::MinKey),
            "MaxKey" => Some(Value::MaxKey),
            _ => None,
        };
        let mut arguments = Vec::new();
        let called = self.take(b'(');
        if called {
            while !self.take(b')') {
                arguments.push(self.value()?);
                if !self.take(b',') {
                    self.expect(b')')?;
                    break;
                }
            }
        }
        let value = match (constant, called) {
            (Some(constant), _) if arguments.is_empty() => Some(constant),
            (None, true) => construct(word, &arguments),
            _ => None,
        };
        value.map_or_else(
            || {
                self.at = start;
                self.fail(&format!("cannot make a value of {word}"))
            },
            Ok,
        )
    }

    /// The next byte that is neither space nor comment.
    pub fn peek(&mut self) -> Option<u8> {
        self.skip();
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let comment = if trimmed.starts_with("//") || trimmed.starts_with('#') {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if trimmed.starts_with("/*") {
                trimmed.find("*/").map_or(trimmed.len(), |end| end + 2)
            } else {
                return;
            };
            self.at += comment;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.take(byte) { Ok(()) } else { self.fail(&format!("expected `{}`", byte as char)) }
    }

    pub fn fail<T>(&self, message: &str) -> Result<T> {
        Err(ParseError { at: self.at, message: message.to_owned() })
    }
}

fn construct(name: &str, arguments: &[Value]) -> Option<Value> {
    Some(match (name, arguments) {
        ("NumberLong" | "Long", [value]) => Value::Int64(integer(value)?),
        ("NumberInt" | "Int32", [value]) => Value::Int32(integer(value)?.try_into().ok()?),
        ("Double", [Value::Double(value)]) => Value::Double(*value),
        ("Double", [value]) => Value::Double(integer(value)? as f64),
        ("NumberDecimal" | "Decimal128", [Value::String(text)]) => Value::Decimal128(decimal::parse(text)?),
        ("ObjectId", [Value::String(hex)]) => Value::ObjectId(ObjectId::parse_hex(hex)?),
        ("ISODate" | "Date", [Value::String(text)]) => Value::DateTime(time::parse(text)?),
        ("Date", [value]) => Value::DateTime(integer(value)?),
        ("Timestamp", [seconds, increment]) => Value::Timestamp(Timestamp {
            seconds: integer(seconds)?.try_into().ok()?,
            increment: integer(increment)?.try_into().ok()?,
        }),
        ("BinData", [subtype, Value::String(text)]) => {
            Value::Binary { subtype: integer(subtype)?.try_into().ok()?, bytes: base64(text)? }
        }
        ("UUID", [Value::String(text)]) => {
            let hex: String = text.chars().filter(|character| *character != '-').collect();
            let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok());
            Value::Binary {
                subtype: 4,
                bytes: bytes.collect::<Option<Vec<u8>>>().filter(|it| it.len() == 16)?,
            }
        }
        ("RegExp", [Value::String(pattern)]) => {
            Value::Regex { pattern: pattern.clone(), options: String::new() }
        }
        ("RegExp", [Value::String(pattern), Value::String(options)]) => {
            Value::Regex { pattern: pattern.clone(), options: options.clone() }
        }
        ("Symbol", [Value::String(text)]) => Value::Symbol(text.clone()),
        ("Code", [Value::String(code)]) => Value::JavaScript(code.clone()),
        ("Code", [Value::String(code), Value::Document(scope)]) => {
            Value::JavaScriptWithScope { code: code.clone(), scope: scope.clone() }
        }
        ("DBPointer", [Value::String(namespace), Value::ObjectId(id)]) => {
            Value::DbPointer { namespace: namespace.clone(), id: *id }
        }
        // Three that no shell has: limits are tested with values too large to write down.
        ("Repeat", [Value::String(text), count]) => {
            Value::String(text.repeat(integer(count)?.try_into().ok()?))
        }
        ("Range", [count]) => {
            Value::Array((0..i32::try_from(integer(count)?).ok()?).map(Value::Int32).collect::<Array>())
        }
        ("Nest", [depth]) => {
            let mut value = Value::Int32(1);
            for _ in 0..integer(depth)? {
                value = Value::Document([("a", value)].into_iter().collect());
            }
            value
        }
        _ => return None,
    })
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int32(value) => Some(i64::from(*value)),
        Value::Int64(value) => Some(*value),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut group, mut bits) = (0u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        group = group << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((group >> bits) as u8);
            group &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}
