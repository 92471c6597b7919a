//! Resume tokens, in mongod's form: hexadecimal digits whose order is the order of events.
//!
//! The bytes are those of a mongod key: the commit time, the version 1, whether it is an event's or a mark between events,
//! the index in a transaction, whether it is an invalidation's, the collection's UUID, and what the event is about. Programs
//! read the time out of them, so that part is exact. Numbers that are no integers of 64 bits stand in the last part as
//! bytes of their own; nobody but Kilim reads that part, and it only has to be the same each time.

use kilim_bson::{Document, RawDocument, RawValue, Writer, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::LogPosition;

use super::Record;

/// A place in the stream of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub position: LogPosition,
    pub named: Named,
    /// The number of a fragment of an event that was split. Of a token that a client sent it is known once the event is.
    pub fragment: Option<u32>,
    /// The whole of it.
    bytes: Vec<u8>,
}

/// What a token names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// Everything before its time has been seen.
    Mark,
    Event,
    /// The end of a stream, behind the event that ended it.
    Invalidation,
}

const TIMESTAMP: u8 = 0x82;
const ZERO: u8 = 0x29;
const VERSION: [u8; 2] = [0x2b, 0x02];
const EVENT: [u8; 3] = [0x2c, 0x01, 0x00];
const FALSE: u8 = 0x6e;
const TRUE: u8 = 0x6f;
const END: u8 = 0x04;
const BINARY: u8 = 0x5a;
const OBJECT: u8 = 0x46;
const ARRAY: u8 = 0x50;
const TEXT: u8 = 0x3c;
const NUMBER: u8 = 0x1e;

/// The two digits of each byte.
const HEXADECIMAL: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut all = [[0; 2]; 256];
    let mut byte = 0;
    while byte < all.len() {
        all[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    all
};

impl Token {
    /// A mark: all events before a time have been seen.
    pub fn mark(time: u64) -> Token {
        let position = LogPosition { time, index: 0 };
        let mut bytes = begin(position, false);
        bytes.extend_from_slice(&[FALSE, END]);
        Token { position, named: Named::Mark, fragment: None, bytes }
    }

    /// The token of an event, or of the invalidation behind it.
    pub fn of(record: &Record<'_>, position: LogPosition, invalidates: bool) -> Token {
        let mut bytes = begin(position, true);
        bytes.push(if invalidates { TRUE } else { FALSE });
        if let Some(uuid) = &record.uuid {
            bytes.extend_from_slice(&[BINARY, 16, 4]);
            bytes.extend_from_slice(uuid);
        }
        if let Some(id) = record.id() {
            bytes.push(OBJECT);
            field(&mut bytes, "_id", id);
            bytes.push(0);
        } else if record.kind.is_described() {
            let about = record.details().and_then(|details| details.get("operationDescription"));
            let mut about_it = doc! {"operationType": record.kind.name()};
            about_it.push("operationDescription", about.unwrap_or(RawValue::Document(RawDocument::empty())));
            value(&mut bytes, RawValue::Document(about_it.as_raw()));
        }
        bytes.push(END);
        let named = if invalidates { Named::Invalidation } else { Named::Event };
        Token { position, named, fragment: None, bytes }
    }

    /// The token of a fragment of the event that this one names.
    pub fn of_fragment(&self, fragment: u32) -> Token {
        let mut bytes = self.bytes[..self.bytes.len() - 1].to_vec();
        integer(&mut bytes, i64::from(fragment));
        bytes.push(END);
        Token { fragment: Some(fragment), bytes, ..*self }
    }

    pub fn to_document(&self) -> Document {
        let mut document = Writer::with_capacity(2 * self.bytes.len() + 32);
        self.append_to(&mut document);
        document.finish()
    }

    /// Appends its field to a document that is being written.
    pub fn append_to(&self, document: &mut Writer) {
        // Most tokens fit; each event has one.
        let (mut small, mut large) = ([0; 192], Vec::new());
        let length = 2 * self.bytes.len();
        let text = match small.get_mut(..length) {
            Some(text) => text,
            None => {
                large.resize(length, 0);
                &mut large[..]
            }
        };
        let (pairs, _) = text.as_chunks_mut::<2>();
        for (byte, digits) in self.bytes.iter().zip(pairs) {
            *digits = HEXADECIMAL[usize::from(*byte)];
        }
        document.append("_data", RawValue::String(std::str::from_utf8(text).unwrap_or_default()));
    }

    /// This token, which a client sent, if it names the event of that one, or a fragment of it. What it has behind its end
    /// does not count.
    pub fn naming(&self, event: &Token) -> Option<Token> {
        let (_, all) = event.bytes.split_last()?;
        let rest = self.bytes.strip_prefix(all)?;
        let fragment = match rest.first()? {
            &END => None,
            _ => Some(read_index(rest).filter(|(_, rest)| rest.first() == Some(&END))?.0),
        };
        Some(Token { fragment, ..self.clone() })
    }
}

fn begin(position: LogPosition, event: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(64);
    bytes.push(TIMESTAMP);
    bytes.extend_from_slice(&position.time.to_be_bytes());
    bytes.extend_from_slice(&VERSION);
    match event {
        true => bytes.extend_from_slice(&EVENT),
        false => bytes.push(ZERO),
    }
    integer(&mut bytes, i64::from(position.index));
    bytes
}

/// The type byte that stands before a field's name in an object.
fn type_byte(value: RawValue<'_>) -> u8 {
    match value {
        RawValue::MinKey => 0x0a,
        RawValue::Null | RawValue::Undefined => 0x14,
        RawValue::String(_) | RawValue::Symbol(_) => TEXT,
        RawValue::Document(_) => OBJECT,
        RawValue::Array(_) => ARRAY,
        RawValue::ObjectId(_) => 0x64,
        RawValue::Bool(_) => FALSE,
        RawValue::DateTime(_) => 0x78,
        RawValue::Timestamp(_) => TIMESTAMP,
        RawValue::MaxKey => 0xf0,
        other if other.is_number() => NUMBER,
        _ => BINARY,
    }
}

fn field(bytes: &mut Vec<u8>, name: &str, of: RawValue<'_>) {
    bytes.push(type_byte(of));
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    value(bytes, of);
}

fn value(bytes: &mut Vec<u8>, of: RawValue<'_>) {
    match of {
        RawValue::String(text) => {
            bytes.push(TEXT);
            // A zero within is marked, since one ends the text.
            for byte in text.bytes() {
                bytes.push(byte);
                if byte == 0 {
                    bytes.push(0xff);
                }
            }
            bytes.push(0);
        }
        RawValue::Document(document) => {
            bytes.push(OBJECT);
            document.iter().for_each(|(name, of)| field(bytes, name, of));
            bytes.push(0);
        }
        RawValue::Array(array) => {
            bytes.push(ARRAY);
            array.iter().for_each(|element| value(bytes, element));
            bytes.push(0);
        }
        RawValue::ObjectId(id) => {
            bytes.push(0x64);
            bytes.extend_from_slice(&id.to_bytes());
        }
        RawValue::Bool(truth) => bytes.push(if truth { TRUE } else { FALSE }),
        RawValue::DateTime(millis) => {
            bytes.push(0x78);
            bytes.extend_from_slice(&((millis as u64) ^ (1 << 63)).to_be_bytes());
        }
        RawValue::Timestamp(time) => {
            bytes.push(TIMESTAMP);
            bytes.extend_from_slice(&time.seconds.to_be_bytes());
            bytes.extend_from_slice(&time.increment.to_be_bytes());
        }
        RawValue::Int32(number) => integer(bytes, number.into()),
        RawValue::Int64(number) => integer(bytes, number),
        RawValue::Double(number) if number.fract() == 0.0 && number.abs() < 9.0e15 => {
            integer(bytes, number as i64)
        }
        RawValue::Binary { subtype, bytes: binary } if binary.len() < 255 => {
            bytes.extend_from_slice(&[BINARY, binary.len() as u8, subtype]);
            bytes.extend_from_slice(binary);
        }
        RawValue::Null | RawValue::Undefined | RawValue::MinKey | RawValue::MaxKey => {
            bytes.push(type_byte(of))
        }
        other => {
            let mut wrapped = Document::new();
            wrapped.push("", other);
            bytes.push(BINARY);
            bytes.extend_from_slice(wrapped.as_bytes());
        }
    }
}

/// The number shifted by one, in as few bytes as it takes; a negative one is the complement of its absolute.
fn integer(bytes: &mut Vec<u8>, number: i64) {
    if number == 0 {
        return bytes.push(ZERO);
    }
    let magnitude = u128::from(number.unsigned_abs()) << 1;
    let all = magnitude.to_be_bytes();
    let from = all.iter().position(|byte| *byte != 0).unwrap_or(15).max(7);
    let length = (16 - from) as u8;
    match number > 0 {
        true => {
            bytes.push(ZERO + 1 + length);
            bytes.extend_from_slice(&all[from..]);
        }
        false => {
            bytes.push(ZERO - 1 - length);
            bytes.extend(all[from..].iter().map(|byte| !byte));
        }
    }
}

/// Reads a token that a client sent.
pub fn parse_token(token: RawDocument<'_>) -> Result<Token> {
    let Some(RawValue::String(text)) = token.get("_data") else {
        let shown = kilim_query::text::document(token);
        let shown =
            if token.is_empty() { "{}".to_owned() } else { shown.replace("{ ", "{").replace(" }", "}") };
        return Err(Error::location(
            40647,
            format!("Bad resume token: _data of missing or of wrong type. Expected string, got {shown}"),
        ));
    };
    let digits: Option<Vec<u8>> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0).ok_or_else(|| {
        Error::user(ErrorCode::FailedToParse, "resume token string was not a valid hex string")
    })?;
    if digits.is_empty() {
        return Err(Error::location(40649, "invalid empty resume token"));
    }
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    match token.get("_typeBits") {
        None => {}
        Some(RawValue::Binary { bytes: [], .. }) => {}
        Some(RawValue::Binary { .. }) => {
            return Err(Error::location(50854, "Invalid resume token: wrong type for version"));
        }
        Some(_) => {
            let shown = kilim_query::text::document(token).replace("{ ", "{").replace(" }", "}");
            let message = format!("Bad resume token: _typeBits of wrong type {shown}");
            return Err(Error::location(40648, message));
        }
    }
    let (position, named) = read(&bytes)?;
    Ok(Token { position, named, fragment: None, bytes })
}

/// What a token says, refused as mongod refuses it where it is cut or not one.
fn read(bytes: &[u8]) -> Result<(LogPosition, Named)> {
    let cut = || Error::user(ErrorCode::Overflow, "the resume token ends too early");
    let other = || Error::user(ErrorCode::FailedToParse, "the resume token was not made by MongoDB or Kilim");
    let lacks =
        |code: i32, what: &str| Error::location(code, format!("Resume Token does not contain {what}"));
    let (kind, rest) = bytes.split_first().ok_or_else(cut)?;
    if *kind != TIMESTAMP {
        return Err(Error::location(50811, format!("KeyString format error: Unknown type: {kind}")));
    }
    let (time, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
    // Each number must be there, and all of it.
    let rest = match (rest, rest.strip_prefix(&VERSION)) {
        (_, Some(rest)) => rest,
        ([], _) => return Err(lacks(50796, "version")),
        ([0x2b], _) => return Err(cut()),
        _ => return Err(other()),
    };
    let (event, rest) = match (rest, rest.strip_prefix(&EVENT), rest.strip_prefix(&[ZERO])) {
        (_, Some(rest), _) => (true, rest),
        (_, _, Some(rest)) => (false, rest),
        ([], ..) => return Err(lacks(51055, "tokenType")),
        (rest, ..) if EVENT.starts_with(rest) => return Err(cut()),
        _ => return Err(other()),
    };
    let (index, rest) = match rest {
        [] => return Err(lacks(50793, "txnOpIndex")),
        [0x2b..=0x2d] | [0x2c..=0x2d, _] | [0x2d, _, _] => return Err(cut()),
        rest => read_index(rest).ok_or_else(other)?,
    };
    let named = match (event, rest.first()) {
        (_, None) => return Err(lacks(50872, "fromInvalidate")),
        (true, Some(&TRUE)) => Named::Invalidation,
        (true, Some(&FALSE)) => Named::Event,
        (false, Some(&FALSE)) => Named::Mark,
        _ => return Err(other()),
    };
    Ok((LogPosition { time: u64::from_be_bytes(*time), index }, named))
}

/// A number that is not negative, and what follows it.
fn read_index(bytes: &[u8]) -> Option<(u32, &[u8])> {
    Some(match *bytes {
        [ZERO, ref rest @ ..] => (0, rest),
        [0x2b, one, ref rest @ ..] => (u32::from(one) >> 1, rest),
        [0x2c, one, two, ref rest @ ..] => (u32::from_be_bytes([0, 0, one, two]) >> 1, rest),
        [0x2d, one, two, three, ref rest @ ..] => (u32::from_be_bytes([0, one, two, three]) >> 1, rest),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(token: &Token) -> String {
        token.to_document().get("_data").and_then(RawValue::as_str).unwrap().to_owned()
    }

    #[test]
    fn tokens_of_any_length_are_their_bytes_in_hexadecimal() {
        let position = LogPosition { time: 1, index: 0 };
        for length in [0, 1, 95, 96, 97, 5000] {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let expected: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            let token = Token { position, named: Named::Event, fragment: None, bytes };
            assert_eq!(text(&token), expected);
        }
    }

    /// From mongod 6.0.5.
    #[test]
    fn numbers_and_documents_have_the_bytes_of_mongod() {
        for (id, expected) in [
            (doc! {"_id": 1}, "461E5F6964002B0200"),
            (doc! {"_id": -3}, "461E5F69640027F900"),
            (doc! {"_id": 300}, "461E5F6964002C025800"),
            (doc! {"_id": 70000}, "461E5F6964002D0222E000"),
            (doc! {"_id": 0}, "461E5F6964002900"),
            (doc! {"_id": "str"}, "463C5F6964003C7374720000"),
            (doc! {"_id": {"a": 1, "b": "x"}}, "46465F696400461E61002B023C62003C78000000"),
            (doc! {"_id": true}, "466E5F6964006F00"),
            (doc! {"_id": "a\0b"}, "463C5F6964003C6100FF620000"),
        ] {
            let mut bytes = Vec::new();
            value(&mut bytes, RawValue::Document(id.as_raw()));
            let text: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            assert_eq!(text, expected, "{id:?}");
        }
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let mark = Token::mark(0x6AFB_D9D0_0000_0006);
        assert_eq!(text(&mark), "826AFBD9D0000000062B0229296E04");
        assert_eq!(parse_token(mark.to_document().as_raw()).unwrap(), mark);
        let text = "826afbd3540000001e2b022c01002b046e5a1004";
        let token = parse_token(doc! {"_data": text}.as_raw()).unwrap();
        assert_eq!(token.position, LogPosition { time: 0x6AFB_D354_0000_001E, index: 2 });
        assert_eq!(token.named, Named::Event);
    }

    #[test]
    fn the_token_of_a_fragment_names_its_event_and_follows_its_neighbours() {
        let position = LogPosition { time: 0x6AFB_D9D0_0000_0006, index: 0 };
        let mut bytes = begin(position, true);
        bytes.extend_from_slice(&[FALSE, END]);
        let event = Token { position, named: Named::Event, fragment: None, bytes };
        let sent: Vec<Token> =
            (0..3).map(|at| parse_token(event.of_fragment(at).to_document().as_raw()).unwrap()).collect();
        for (at, sent) in (0..).zip(&sent) {
            assert_eq!(sent.naming(&event).unwrap().fragment, Some(at));
        }
        let texts: Vec<String> = [&event].into_iter().chain(&sent).map(text).collect();
        assert!(texts.is_sorted());
        assert_eq!(event.naming(&event).unwrap().fragment, None);
        assert!(Token::mark(7).naming(&event).is_none());
    }

    #[test]
    fn what_is_no_token_is_refused() {
        for (token, code) in [
            (doc! {"_data": "zz"}, 9),
            (doc! {"_data": ""}, 40649),
            (doc! {}, 40647),
            (doc! {"_data": "82"}, 15),
            (doc! {"_data": "FF"}, 50811),
            (doc! {"_data": "826AFE960700000013"}, 50796),
            (doc! {"_data": "826AFE9607000000132B"}, 15),
            (doc! {"_data": "826AFE9607000000132B02"}, 51055),
            (doc! {"_data": "826AFE9607000000132B022C01"}, 15),
            (doc! {"_data": "826AFE9607000000132B022C0100"}, 50793),
            (doc! {"_data": "826AFE9607000000132B022C010029"}, 50872),
            (doc! {"_data": "826AFE9607000000132B0229"}, 50793),
            (doc! {"_data": "826AFE9607000000132B022929"}, 50872),
            (doc! {"_data": "826AFE9607000000132B0229296E04", "_typeBits": 1}, 40648),
        ] {
            assert_eq!(parse_token(token.as_raw()).unwrap_err().code().0, code, "{token:?}");
        }
    }
}
