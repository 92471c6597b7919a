//! Documents packed by columns, each of which can be taken out alone.
//!
//! Documents with the same fields of the same types in the same order share a form. A form has a column for each field: the
//! values of its documents one after the other, or one value where all have the same. A field that is null here and a text
//! there, or missing, is another form, so nothing is converted and every document comes out byte for byte as it went in.
//!
//! On disk, numbers little-endian:
//!
//! ```text
//! documents u32, forms u32
//! for each form        where it begins u32
//! for each document    its form u32, its place there u32               (only if there are several forms)
//! form                 documents u32, columns u32, then for each column
//!   field              type u8, bytes of the name with its end u32, the name with its end, how the values lie u8
//!   the same for all   bytes u32, the value
//!   of the same width  width u32, the values
//!   others             where each ends u32, the values
//! ```

use std::collections::HashMap;

use kilim_bson::RawDocument;

const CONSTANT: u8 = 0;
const FIXED: u8 = 1;
const VARIABLE: u8 = 2;

/// The documents of one form, while they are packed.
struct Form<'d> {
    /// Type, name and its end, field by field.
    fields: Vec<(u8, &'d [u8])>,
    /// The values, column by column.
    columns: Vec<Vec<&'d [u8]>>,
    documents: u32,
}

/// Packs documents.
pub fn pack(documents: &[RawDocument<'_>]) -> Vec<u8> {
    let mut forms: Vec<Form<'_>> = Vec::new();
    let mut known: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut places = Vec::with_capacity(documents.len());
    let (mut key, mut fields, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for document in documents {
        key.clear();
        fields.clear();
        values.clear();
        let mut elements = document.iter();
        while let Some((name, _, bytes)) = elements.next_with_bytes() {
            let head = 1 + name.len() + 1;
            key.extend_from_slice(&bytes[..head]);
            fields.push((bytes[0], &bytes[1..head]));
            values.push(&bytes[head..]);
        }
        let at = match known.get(&key) {
            Some(at) => *at,
            None => {
                known.insert(key.clone(), forms.len());
                let columns = vec![Vec::new(); fields.len()];
                forms.push(Form { fields: fields.clone(), columns, documents: 0 });
                forms.len() - 1
            }
        };
        let form = &mut forms[at];
        places.push((at as u32, form.documents));
        form.documents += 1;
        form.columns.iter_mut().zip(&values).for_each(|(column, value)| column.push(value));
    }
    let mut out = Vec::new();
    push(&mut out, documents.len());
    push(&mut out, forms.len());
    let begins_at = out.len();
    out.resize(begins_at + 4 * forms.len(), 0);
    if forms.len() > 1 {
        for (form, place) in places {
            push(&mut out, form as usize);
            push(&mut out, place as usize);
        }
    }
    for (at, form) in forms.iter().enumerate() {
        let begins = (out.len() as u32).to_le_bytes();
        out[begins_at + 4 * at..][..4].copy_from_slice(&begins);
        push(&mut out, form.documents as usize);
        push(&mut out, form.fields.len());
        for ((kind, name), values) in form.fields.iter().zip(&form.columns) {
            out.push(*kind);
            push(&mut out, name.len());
            out.extend_from_slice(name);
            push_column(&mut out, values);
        }
    }
    out
}

fn push_column(out: &mut Vec<u8>, values: &[&[u8]]) {
    let first = values.first().copied().unwrap_or_default();
    if values.iter().all(|value| *value == first) {
        out.push(CONSTANT);
        push(out, first.len());
        out.extend_from_slice(first);
    } else if values.iter().all(|value| value.len() == first.len()) {
        out.push(FIXED);
        push(out, first.len());
        values.iter().for_each(|value| out.extend_from_slice(value));
    } else {
        out.push(VARIABLE);
        let mut end = 0;
        for value in values {
            end += value.len();
            push(out, end);
        }
        values.iter().for_each(|value| out.extend_from_slice(value));
    }
}

fn push(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

/// How many documents are packed; none where the bytes are not what [`pack`] made.
pub fn packed_len(packed: &[u8]) -> Option<usize> {
    Reader { bytes: packed, at: 0 }.number()
}

/// Appends one of the packed documents; none where there is no such document, or the bytes are not what [`pack`] made.
pub fn unpack(packed: &[u8], at: usize, out: &mut Vec<u8>) -> Option<()> {
    let mut reader = Reader { bytes: packed, at: 0 };
    let (documents, forms) = (reader.number()?, reader.number()?);
    if at >= documents {
        return None;
    }
    let (mut form, mut place) = (0, at);
    if forms > 1 {
        reader.at = 8 + 4 * forms + 8 * at;
        (form, place) = (reader.number()?, reader.number()?);
    }
    reader.at = 8 + 4 * form;
    reader.at = reader.number()?;
    let (count, columns) = (reader.number()?, reader.number()?);
    if place >= count {
        return None;
    }
    let begins = out.len();
    out.extend_from_slice(&[0; 4]);
    for _ in 0..columns {
        out.push(*reader.take(1)?.first()?);
        let name = reader.number()?;
        out.extend_from_slice(reader.take(name)?);
        let lies = *reader.take(1)?.first()?;
        match lies {
            CONSTANT => {
                let bytes = reader.number()?;
                out.extend_from_slice(reader.take(bytes)?);
            }
            FIXED => {
                let width = reader.number()?;
                let values = reader.take(width.checked_mul(count)?)?;
                out.extend_from_slice(&values[width * place..][..width]);
            }
            VARIABLE => {
                let ends = reader.take(count.checked_mul(4)?)?;
                let end = |of: usize| {
                    Some(u32::from_le_bytes(ends.get(4 * of..4 * of + 4)?.try_into().ok()?) as usize)
                };
                let values = reader.take(end(count - 1)?)?;
                let from = if place == 0 { 0 } else { end(place - 1)? };
                out.extend_from_slice(values.get(from..end(place)?)?);
            }
            _ => return None,
        }
    }
    out.push(0);
    let bytes = ((out.len() - begins) as u32).to_le_bytes();
    out[begins..begins + 4].copy_from_slice(&bytes);
    Some(())
}

/// Some fields of all packed documents, read where they lie.
pub struct Walk<'b> {
    /// The columns of each form, in the places of the names.
    forms: Vec<FormColumns<'b>>,
    /// Which form each document has and its place there, where there are several forms.
    places: &'b [u8],
    documents: usize,
}

struct FormColumns<'b> {
    documents: usize,
    columns: Vec<Option<Column<'b>>>,
}

#[derive(Clone, Copy)]
struct Column<'b> {
    kind: u8,
    values: Values<'b>,
}

#[derive(Clone, Copy)]
enum Values<'b> {
    Constant(&'b [u8]),
    Fixed { width: usize, values: &'b [u8] },
    Variable { ends: &'b [u8], values: &'b [u8] },
}

/// Begins to read fields of the packed documents; none where the bytes are not what [`pack`] made.
pub fn walk<'b>(packed: &'b [u8], names: &[Box<str>]) -> Option<Walk<'b>> {
    let mut reader = Reader { bytes: packed, at: 0 };
    let (documents, forms) = (reader.number()?, reader.number()?);
    let begins = reader.take(forms.checked_mul(4)?)?;
    let places = match forms {
        ..=1 => &[][..],
        _ => reader.take(documents.checked_mul(8)?)?,
    };
    let form = |begins: &[u8]| {
        reader.at = u32::from_le_bytes(begins.try_into().ok()?) as usize;
        reader.form(names)
    };
    let forms = begins.chunks_exact(4).map(form).collect::<Option<_>>()?;
    Some(Walk { forms, places, documents })
}

impl<'b> Walk<'b> {
    /// Tells of each name the type and the value that a document has under it; none where there is no such document, or the
    /// bytes are not what [`pack`] made.
    #[inline]
    pub fn row(&self, at: usize, mut tell: impl FnMut(usize, Option<(u8, &'b [u8])>)) -> Option<()> {
        if at >= self.documents {
            return None;
        }
        let number =
            |bytes: &[u8], at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?) as usize);
        let (form, place) = match self.forms.len() {
            ..=1 => (0, at),
            _ => (number(self.places, 8 * at)?, number(self.places, 8 * at + 4)?),
        };
        let form = self.forms.get(form)?;
        if place >= form.documents {
            return None;
        }
        for (at, column) in form.columns.iter().enumerate() {
            let Some(column) = column else {
                tell(at, None);
                continue;
            };
            let value = match column.values {
                Values::Constant(value) => value,
                Values::Fixed { width, values } => values.get(width * place..width * (place + 1))?,
                Values::Variable { ends, values } => {
                    let from = if place == 0 { 0 } else { number(ends, 4 * (place - 1))? };
                    values.get(from..number(ends, 4 * place)?)?
                }
            };
            tell(at, Some((column.kind, value)));
        }
        Some(())
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Reader<'b> {
    fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(bytes)?)?;
        self.at += bytes;
        Some(taken)
    }

    /// The columns of these names in a form. Of a name that is there twice, the first counts.
    fn form(&mut self, names: &[Box<str>]) -> Option<FormColumns<'b>> {
        let (documents, columns) = (self.number()?, self.number()?);
        let mut found = vec![None; names.len()];
        for _ in 0..columns {
            let kind = *self.take(1)?.first()?;
            let name = self.number()?;
            let name = self.take(name)?.strip_suffix(&[0])?;
            let values = match *self.take(1)?.first()? {
                CONSTANT => {
                    let bytes = self.number()?;
                    Values::Constant(self.take(bytes)?)
                }
                FIXED => {
                    let width = self.number()?;
                    Values::Fixed { width, values: self.take(width.checked_mul(documents)?)? }
                }
                VARIABLE => {
                    let ends = self.take(documents.checked_mul(4)?)?;
                    let bytes = u32::from_le_bytes(*ends.last_chunk()?) as usize;
                    Values::Variable { ends, values: self.take(bytes)? }
                }
                _ => return None,
            };
            if let Some(at) = names.iter().position(|each| each.as_bytes() == name) {
                found[at].get_or_insert(Column { kind, values });
            }
        }
        Some(FormColumns { documents, columns: found })
    }

    fn number(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?) as usize)
    }
}
