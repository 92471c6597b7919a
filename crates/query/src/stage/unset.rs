//! `$unset`: a `$project` that leaves fields out.

use kilim_bson::{RawValue, Writer};
use kilim_error::{Error, Result};

use super::{Context, Stage, project::Project};

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let mut fields = Writer::new();
    match value {
        RawValue::String(path) => fields.append(path, RawValue::Bool(false)),
        RawValue::Array(paths) if paths.is_empty() => {
            return refuse(31119, "a string or an array with at least one field");
        }
        RawValue::Array(paths) => {
            for path in paths.iter() {
                let RawValue::String(path) = path else {
                    return refuse(31120, "a string or an array containing only string values");
                };
                fields.append(path, RawValue::Bool(false));
            }
        }
        _ => return refuse(31002, "a string or an array"),
    }
    out.push(Stage::Project(Project::parse(name, fields.finish().as_raw(), context)?));
    Ok(())
}

fn refuse(code: i32, what: &str) -> Result<()> {
    Err(Error::location(code, format!("$unset specification must be {what}")))
}
