//! A `$group` over everything whose sums are constants: all it needs is a number of documents.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use super::{Behaviour, Context, Stage};

#[derive(Debug, Clone)]
pub struct CountOnly {
    id: Value,
    /// Field and what each document adds to it.
    sums: Arc<[(String, i64)]>,
}

pub(super) fn parse(_: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(spec) = value else {
        return Err(Error::location(15947, "a group's fields must be specified in an object"));
    };
    let mut id = None;
    let mut sums = Vec::new();
    for (name, value) in spec.iter() {
        if name == "_id" {
            let constant = match value {
                RawValue::String(text) => !text.starts_with('$'),
                RawValue::Document(document) => document.is_empty(),
                RawValue::Array(_) => false,
                _ => true,
            };
            if !constant {
                return Err(not_yet("$group by an expression"));
            }
            id = Some(value.to_value());
            continue;
        }
        sums.push((name.to_owned(), constant_sum(value)?));
    }
    let id = id.ok_or_else(|| Error::location(15955, "a group specification must include an _id"))?;
    out.push(Stage::CountOnly(CountOnly { id, sums: sums.into() }));
    Ok(())
}

fn constant_sum(accumulator: RawValue<'_>) -> Result<i64> {
    let operator = accumulator.as_document().and_then(|document| document.iter().next());
    match operator {
        Some(("$sum", RawValue::Int32(each))) => Ok(i64::from(each)),
        Some(("$sum", RawValue::Int64(each))) => Ok(each),
        Some(("$sum", RawValue::Double(each))) if each.fract() == 0.0 && each.abs() < 1e9 => Ok(each as i64),
        Some(("$count", RawValue::Document(nothing))) if nothing.is_empty() => Ok(1),
        Some((name, _)) => Err(not_yet(&format!("the accumulator {name} over fields"))),
        None => Err(Error::location(40234, "The field must be an accumulator object")),
    }
}

fn not_yet(what: &str) -> Error {
    Error::user(ErrorCode::NotImplemented, format!("{what} is not supported by Kilim yet"))
}

impl CountOnly {
    /// What the group gives for so many documents; nothing for none, since no group then exists.
    pub fn result(&self, count: u64) -> Option<Document> {
        if count == 0 {
            return None;
        }
        let mut document = Document::new();
        document.push("_id", self.id.clone());
        for (name, each) in self.sums.iter() {
            let sum = each.saturating_mul(count as i64);
            match i32::try_from(sum) {
                Ok(sum) => document.push(name, sum),
                Err(_) => document.push(name, sum),
            }
        }
        Some(document)
    }
}

impl Behaviour for CountOnly {
    fn to_document(&self) -> Document {
        let mut group = Document::new();
        group.push("_id", self.id.clone());
        for (name, each) in self.sums.iter() {
            let sum: Document = [("$sum", Value::from(*each))].into_iter().collect();
            group.push(name, sum);
        }
        [("$group", Value::Document(group))].into_iter().collect()
    }
}
