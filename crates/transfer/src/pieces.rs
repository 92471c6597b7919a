//! JSON text taken apart into documents, without holding all of it: lines, an array, or one behind the other.
//!
//! Only strings and braces matter here; what stands between a pair of outer braces is the parser's to read.

use std::io::BufRead;

use anyhow::{Result, bail};

/// A document larger than this is a file of another kind.
const PIECE_BYTES_MAX: usize = 64 << 20;

pub(crate) struct Pieces<R> {
    input: R,
    /// Bytes read so far.
    pub read: u64,
    /// The line and the column, from 1, of the byte that was read last.
    at: (u64, u64),
    /// Where the last piece began, or what is at fault.
    pub begun: (u64, u64),
}

impl<R: BufRead> Pieces<R> {
    pub fn new(input: R) -> Pieces<R> {
        Pieces { input, read: 0, at: (1, 0), begun: (1, 1) }
    }

    /// The next document's text.
    pub fn next(&mut self) -> Result<Option<String>> {
        let mut piece: Vec<u8> = Vec::new();
        let (mut depth, mut escaped) = (0usize, false);
        // The quote that a text began with: JSON has one kind, the shell two.
        let mut quote = None;
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                match depth {
                    0 => return Ok(None),
                    _ => bail!("the text ends within a document"),
                }
            }
            let mut used = 0;
            let mut complete = false;
            for &byte in buffer {
                used += 1;
                // Further bytes of a character are none of their own.
                self.at.1 += u64::from(byte & 0xC0 != 0x80);
                if depth == 0 {
                    self.begun = self.at;
                }
                if byte == b'\n' {
                    self.at = (self.at.0 + 1, 0);
                }
                if depth == 0 {
                    match byte {
                        b'{' => depth = 1,
                        // A byte order mark may come first.
                        b'[' | b']' | b',' | b' ' | b'\t' | b'\r' | b'\n' | 0xEF | 0xBB | 0xBF => continue,
                        other => bail!("expected a document in braces, found '{}'", char::from(other)),
                    }
                    piece.push(byte);
                    continue;
                }
                piece.push(byte);
                match (byte, quote) {
                    _ if escaped => escaped = false,
                    (b'\\', Some(b'"')) => escaped = true,
                    (byte, Some(open)) if byte == open => quote = None,
                    (_, Some(_)) => {}
                    (b'"' | b'\'', None) => quote = Some(byte),
                    (b'{' | b'[', None) => depth += 1,
                    (b'}' | b']', None) => depth -= 1,
                    _ => {}
                }
                if depth == 0 {
                    complete = true;
                    break;
                }
            }
            self.input.consume(used);
            self.read += used as u64;
            if complete {
                return match String::from_utf8(piece) {
                    Ok(text) => Ok(Some(text)),
                    Err(_) => bail!("the text is not UTF-8"),
                };
            }
            if piece.len() > PIECE_BYTES_MAX {
                bail!("a document has more than {PIECE_BYTES_MAX} bytes: is this JSON?");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str, buffer: usize) -> Vec<String> {
        let mut pieces = Pieces::new(std::io::BufReader::with_capacity(buffer, text.as_bytes()));
        let mut found = Vec::new();
        while let Some(piece) = pieces.next().unwrap() {
            found.push(piece);
        }
        found
    }

    #[test]
    fn lines_arrays_and_neither() {
        let expected = [r#"{"a": 1}"#, r#"{"b": "}\"{[", "c": [{}]}"#, "{}"];
        for text in [
            "{\"a\": 1}\n{\"b\": \"}\\\"{[\", \"c\": [{}]}\n{}\n",
            "[{\"a\": 1},\n {\"b\": \"}\\\"{[\", \"c\": [{}]}, {}]",
            "\u{feff}{\"a\": 1}{\"b\": \"}\\\"{[\", \"c\": [{}]}\r\n{}",
        ] {
            for buffer in [1, 3, 4096] {
                assert_eq!(pieces(text, buffer), expected, "{text}");
            }
        }
        assert!(pieces(" [ ] ", 2).is_empty());
    }

    #[test]
    fn texts_in_single_quotes_hold_brackets_too() {
        let text = "{a: '}'} {b: 'it''s {'}";
        assert_eq!(pieces(text, 3), ["{a: '}'}", "{b: 'it''s {'}"]);
    }

    #[test]
    fn a_piece_knows_its_line() {
        let mut pieces = Pieces::new("\n[{\"a\":\n1},\n\n{}]\n{".as_bytes());
        for expected in [(2, 2), (5, 1)] {
            pieces.next().unwrap();
            assert_eq!(pieces.begun, expected);
        }
        assert!(pieces.next().is_err());
        assert_eq!(pieces.begun, (6, 1));
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for text in ["{\"a\": 1", "null", "{\"a\": \"}", "x{}"] {
            let mut pieces = Pieces::new(text.as_bytes());
            assert!(pieces.next().is_err(), "{text}");
        }
    }
}
