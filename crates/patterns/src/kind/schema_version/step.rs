//! A step between two versions.

use std::collections::BTreeMap;

use kilim_bson::{Document, RawDocument, RawValue, Value, Writer};
use kilim_query::filter::Filter;

use super::conversion::Conversion;

/// What one declaration says.
#[derive(Debug)]
pub struct VersionStep {
    /// The field that has a document's version.
    pub field: Box<str>,
    pub from: i32,
    pub to: i32,
    pub(super) up: Conversion,
    /// None where the older version is not shown any more.
    pub(super) down: Option<Conversion>,
    pub check: VersionCheck,
    pub on_error: OnError,
    /// What documents of the newer version must match.
    pub(super) validator: Option<Filter>,
    /// Whether a job converts what is stored.
    pub in_background: bool,
    /// Documents of one commit of that job.
    pub batch: u32,
    /// Its pause after each.
    pub throttle_ms: u32,
    /// The names of versions as collections.
    pub(super) aliases: BTreeMap<i32, Box<str>>,
}

/// Which documents are converted for a trial before the step is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionCheck {
    All,
    Sample,
    None,
}

/// What becomes of a document that cannot be converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The step is not put in force, the document is not written.
    Block,
    /// It stays as it is, and is seen so.
    KeepOld,
}

impl VersionStep {
    /// The version that a document says it has; none where it says none that can be one.
    pub fn says(&self, document: RawDocument<'_>) -> Option<i32> {
        version_in(document.get(&self.field)?)
    }

    /// The paths whose values differ between the versions; none where that may be all but `_id`.
    pub fn touched(&self) -> Option<Vec<Box<str>>> {
        let mut paths = self.up.touched()?;
        if let Some(down) = &self.down {
            paths.extend(down.touched()?);
        }
        paths.push(self.field.clone());
        paths.sort_unstable();
        paths.dedup();
        Some(paths)
    }

    /// Whether there is a way back.
    pub fn has_down(&self) -> bool {
        self.down.is_some()
    }

    /// The newer version as a value.
    pub fn to_value(&self) -> Value {
        Value::Int32(self.to)
    }

    /// The document of a declaration that leads back; none where there is no way.
    pub fn reversed(&self, spec: &Document) -> Option<Document> {
        let down = self.down.as_ref()?;
        let mut reversed = Document::new();
        for (name, value) in spec.iter() {
            match name {
                "from" => reversed.push(name, self.to),
                "to" => reversed.push(name, self.from),
                "up" => reversed.push(name, down.stages.clone()),
                "down" => reversed.push(name, self.up.stages.clone()),
                // It is about the version that is given up.
                "validator" => {}
                _ => reversed.push(name, value),
            }
        }
        Some(reversed)
    }

    /// The document with this version in it: where it has one, else behind `_id`.
    pub(super) fn with_version(&self, document: RawDocument<'_>, version: i32) -> Document {
        with_version(document, &self.field, version)
    }
}

/// The version that a value stands for.
pub(super) fn version_in(value: RawValue<'_>) -> Option<i32> {
    match value {
        RawValue::Int32(number) => Some(number),
        RawValue::Int64(number) => i32::try_from(number).ok(),
        RawValue::Double(number) if number.fract() == 0.0 => i32::try_from(number as i64).ok(),
        _ => None,
    }
}

pub(super) fn with_version(document: RawDocument<'_>, field: &str, version: i32) -> Document {
    let has_one = document.get(field).is_some();
    let mut out = Writer::with_capacity(document.as_bytes().len() + field.len() + 8);
    let mut is_written = false;
    if !has_one && document.iter().next().is_none_or(|(name, _)| name != "_id") {
        out.append(field, RawValue::Int32(version));
        is_written = true;
    }
    let mut fields = document.iter();
    while let Some((name, _, bytes)) = fields.next_with_bytes() {
        if name == field {
            if !std::mem::replace(&mut is_written, true) {
                out.append(field, RawValue::Int32(version));
            }
            continue;
        }
        out.append_elements(bytes);
        if !has_one && !std::mem::replace(&mut is_written, true) {
            out.append(field, RawValue::Int32(version));
        }
    }
    out.finish()
}
