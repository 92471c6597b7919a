//! Plain JSON into a tree that keeps field order and numbers as they were written.

use kilim_error::{Error, ErrorCode, Result};

use crate::DEPTH_MAX;

/// Brackets inside each other: a document's own nesting, each level of which may be a scope within its wrapper, and the
/// wrappers at its leaves.
const BRACKETS_MAX: usize = 2 * DEPTH_MAX + 4;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    String(String),
    Array(Vec<Json<'a>>),
    Object(Vec<(String, Json<'a>)>),
}

pub(super) fn parse(text: &str) -> Result<Json<'_>> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.error("expected the end of the text"));
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn error(&self, what: &str) -> Error {
        Error::user(ErrorCode::FailedToParse, format!("invalid JSON at byte {}: {what}", self.at))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Consumes `byte` if it is next, spaces aside.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.take(byte) { Ok(()) } else { Err(self.error(&format!("expected '{}'", byte as char))) }
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>> {
        if depth > BRACKETS_MAX {
            return Err(self.error("nested too deeply"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                let mut fields = Vec::new();
                if self.take(b'}') {
                    return Ok(Json::Object(fields));
                }
                loop {
                    self.skip_space();
                    let name = self.string()?;
                    self.expect(b':')?;
                    fields.push((name, self.value(depth + 1)?));
                    if self.take(b'}') {
                        return Ok(Json::Object(fields));
                    }
                    self.expect(b',')?;
                }
            }
            Some(b'[') => {
                self.at += 1;
                let mut values = Vec::new();
                if self.take(b']') {
                    return Ok(Json::Array(values));
                }
                loop {
                    values.push(self.value(depth + 1)?);
                    if self.take(b']') {
                        return Ok(Json::Array(values));
                    }
                    self.expect(b',')?;
                }
            }
            Some(b'"') => Ok(Json::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                for (word, value) in
                    [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))]
                {
                    if self.text[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.error("expected a value"))
            }
        }
    }

    fn number(&mut self) -> Result<Json<'a>> {
        let start = self.at;
        let digits = |parser: &mut Self| {
            let from = parser.at;
            while let Some(b'0'..=b'9') = parser.peek() {
                parser.at += 1;
            }
            parser.at - from
        };
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let whole = digits(self);
        if whole == 0 || (leading_zero && whole > 1) {
            return Err(self.error("expected a number"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if digits(self) == 0 {
                return Err(self.error("expected digits behind the point"));
            }
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if digits(self) == 0 {
                return Err(self.error("expected an exponent"));
            }
        }
        Ok(Json::Number(&self.text[start..self.at]))
    }

    fn string(&mut self) -> Result<String> {
        self.expect(b'"')?;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|letter: char| letter == '"' || letter == '\\' || letter < ' ');
            let Some(plain) = plain else {
                return Err(self.error("the string does not end"));
            };
            out.push_str(&rest[..plain]);
            self.at += plain + 1;
            match rest.as_bytes()[plain] {
                b'"' => return Ok(out),
                b'\\' => out.push(self.escape()?),
                _ => return Err(self.error("a control character must be escaped")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        let kind = self.peek();
        self.at += 1;
        Ok(match kind {
            Some(letter @ (b'"' | b'\\' | b'/')) => letter as char,
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.unit()?;
                let mut code = first;
                if (0xD800..0xDC00).contains(&first) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let second = self.unit()?;
                    if !(0xDC00..0xE000).contains(&second) {
                        return Err(self.error("a surrogate stands alone"));
                    }
                    code = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                }
                char::from_u32(code).ok_or_else(|| self.error("a surrogate stands alone"))?
            }
            _ => {
                self.at -= 1;
                return Err(self.error("unknown escape"));
            }
        })
    }

    /// Four hex digits.
    fn unit(&mut self) -> Result<u32> {
        let digits =
            self.text.get(self.at..self.at + 4).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.error("expected four hex digits"))?;
        self.at += 4;
        Ok(unit)
    }
}
