//! `$collStats`: sizes and counts of the collection.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::field::{NUMBERS, given, unknown, wrong_type};
use super::{Behaviour, Context, Stage};
use crate::filter::number;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollStats {
    pub count: bool,
    /// What sizes are divided by, where they are wanted.
    pub storage_scale: Option<i64>,
    pub latency: Option<Latencies>,
    /// How often the collection was read as a whole.
    pub scans: bool,
}

/// How long operations on the collection took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latencies {
    pub histograms: bool,
}

pub(super) fn glance(name: &str, value: RawValue<'_>, _: &str) -> Result<()> {
    parse_specification(name, value).map(drop)
}

pub(super) fn parse(name: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    out.push(Stage::CollStats(parse_specification(name, value)?));
    Ok(())
}

fn parse_specification(name: &str, value: RawValue<'_>) -> Result<CollStats> {
    let RawValue::Document(spec) = value else {
        return Err(Error::location(
            5447000,
            format!("$collStats must take a nested object but found: {}", crate::text::element(name, value)),
        ));
    };
    let mut stage = CollStats { count: false, storage_scale: None, latency: None, scans: false };
    for (name, value) in given(spec) {
        let path = format!("$collStats.{name}");
        if !matches!(name, "count" | "storageStats" | "latencyStats" | "queryExecStats") {
            return Err(unknown(&path));
        }
        let RawValue::Document(options) = value else {
            return Err(wrong_type(&path, value, "type 'object'"));
        };
        match name {
            "count" => stage.count = true,
            "storageStats" => stage.storage_scale = Some(parse_scale(options)?),
            "latencyStats" => stage.latency = Some(parse_latencies(options)?),
            _ if options.is_empty() => stage.scans = true,
            _ => {
                let found = crate::text::document(options);
                return Err(Error::location(31170, format!("expected an empty object, but got {found}")));
            }
        }
    }
    Ok(stage)
}

fn parse_latencies(options: RawDocument<'_>) -> Result<Latencies> {
    let mut histograms = false;
    for (name, value) in options {
        match (name, value) {
            ("histograms", RawValue::Bool(wanted)) => histograms = wanted,
            ("histograms", other) => {
                let found = other.element_type().name();
                let message = format!("Field 'histograms' should be a boolean value, but found: {found}");
                return Err(Error::user(ErrorCode::TypeMismatch, message));
            }
            _ => return Err(unknown(&format!("$collStats.latencyStats.{name}"))),
        }
    }
    Ok(Latencies { histograms })
}

fn parse_scale(options: RawDocument<'_>) -> Result<i64> {
    let mut scale = 1;
    for (name, value) in given(options) {
        let path = format!("$collStats.storageStats.{name}");
        match name {
            "scale" => {
                let number = number::truncated_i64(value).ok_or_else(|| wrong_type(&path, value, NUMBERS))?;
                scale = number.unwrap_or(0);
                if scale < 1 {
                    return Err(Error::location(
                        51024,
                        format!("BSON field 'scale' value must be >= 1, actual value '{scale}'"),
                    ));
                }
            }
            "waitForLock" | "numericOnly" if matches!(value, RawValue::Bool(_)) => {}
            "waitForLock" | "numericOnly" => return Err(wrong_type(&path, value, "type 'bool'")),
            // As on mongod, which looks at no others.
            _ => {}
        }
    }
    Ok(scale)
}

impl Behaviour for CollStats {
    fn to_document(&self) -> Document {
        let mut spec = Document::new();
        if let Some(latencies) = self.latency {
            spec.push("latencyStats", doc! {"histograms": latencies.histograms});
        }
        if let Some(scale) = self.storage_scale {
            spec.push("storageStats", doc! {"scale": scale});
        }
        if self.count {
            spec.push("count", Document::new());
        }
        if self.scans {
            spec.push("queryExecStats", Document::new());
        }
        doc! {"$collStats": spec}
    }
}
