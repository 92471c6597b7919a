//! `$mergeObjects`: documents laid over each other.

use std::collections::HashMap;

use kilim_bson::{Document, RawDocument, Value, Writer};

use super::held::payload;

/// Fields in the order of their first appearance, each with its latest value.
#[derive(Default)]
pub struct Merged {
    fields: Vec<(Box<str>, Value)>,
    places: HashMap<Box<str>, usize>,
    bytes: usize,
}

/// A field costs its places in the list and in the map.
const FIELD_BYTES: usize = size_of::<(Box<str>, Value)>() + size_of::<(Box<str>, usize)>();

impl Merged {
    pub fn new() -> Merged {
        Merged::default()
    }

    /// Lays a document on top; how many bytes it grew.
    pub fn lay(&mut self, document: RawDocument<'_>) -> isize {
        let before = self.bytes;
        for (name, value) in document {
            self.bytes += payload(value);
            match self.places.get(name) {
                Some(&at) => {
                    let kept = &mut self.fields[at].1;
                    self.bytes -= payload(kept.as_raw());
                    *kept = value.to_value();
                }
                None => {
                    self.places.insert(name.into(), self.fields.len());
                    self.fields.push((name.into(), value.to_value()));
                    self.bytes += 2 * name.len() + FIELD_BYTES;
                }
            }
        }
        self.bytes as isize - before as isize
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn to_document(&self) -> Document {
        let mut writer = Writer::new();
        self.fields.iter().for_each(|(name, value)| writer.append(name, value.as_raw()));
        writer.finish()
    }
}
