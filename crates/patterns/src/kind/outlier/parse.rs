//! The declaration as it is written.

use std::sync::Arc;

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::{Outlier, PLACE, Paging};
use crate::argument;
use crate::kind::Kind;

/// Beyond these an inline part or a page would be a document that is too large to be rewritten for one element.
const LIMIT_MAX: i64 = 100_000;
const BYTES_MAX: i64 = 8 * 1024 * 1024;
const PAGE_SIZE_MAX: i64 = 100_000;

const KEEP: [(&str, ()); 1] = [("first", ())];
const READ: [(&str, bool); 2] = [("preview", false), ("whole", true)];

pub(in crate::kind) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    let (mut field, mut limit, mut max_bytes, mut page_size) = (None, 500, 65_536, 1000);
    let (mut flag, mut count, mut whole) = (Box::from("hasOverflow"), None, false);
    for (name, value) in spec {
        match name {
            "field" => field = Some(parse_name(name, value)?),
            "limit" => limit = argument::whole(PLACE, name, value, 1, LIMIT_MAX)? as usize,
            "maxBytes" => max_bytes = argument::whole(PLACE, name, value, 64, BYTES_MAX)? as usize,
            "pageSize" => page_size = argument::whole(PLACE, name, value, 1, PAGE_SIZE_MAX)? as usize,
            "keep" => argument::choice(PLACE, name, value, &KEEP)?,
            "flag" => flag = parse_name(name, value)?,
            "count" => count = Some(parse_name(name, value)?),
            "read" => whole = argument::choice(PLACE, name, value, &READ)?,
            _ => return Err(argument::unknown(PLACE, name)),
        }
    }
    let field = field.ok_or_else(|| argument::missing(PLACE, "field"))?;
    let count = count.unwrap_or_else(|| format!("{field}Count").into());
    if field == flag || field == count || flag == count {
        return Err(Error::user(
            ErrorCode::BadValue,
            "'outlier.field', 'outlier.flag' and 'outlier.count' must be three different fields",
        ));
    }
    Ok(Arc::new(Outlier {
        paging: Arc::new(Paging { field, limit, max_bytes, page_size, flag, count, whole }),
    }))
}

/// The name of a field of the document itself.
fn parse_name(name: &str, value: RawValue<'_>) -> Result<Box<str>> {
    let given = argument::text(PLACE, name, value)?;
    let is_path = given.is_empty() || given.contains('.') || given.starts_with('$') || given.contains('\0');
    if is_path || given == "_id" {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!("'outlier.{name}' is '{given}', but must be the name of a field of the document itself"),
        ));
    }
    Ok(given.into())
}
