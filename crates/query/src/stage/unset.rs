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
        RawValue::String(path) => leave_out(&mut fields, path)?,
        RawValue::Array(paths) if paths.is_empty() => {
            return refuse(31119, "a string or an array with at least one field");
        }
        RawValue::Array(paths) => {
            for path in paths.iter() {
                let RawValue::String(path) = path else {
                    return refuse(31120, "a string or an array containing only string values");
                };
                leave_out(&mut fields, path)?;
            }
        }
        _ => return refuse(31002, "a string or an array"),
    }
    out.push(Stage::Project(Project::parse(name, fields.finish().as_raw(), context)?));
    Ok(())
}

fn leave_out(fields: &mut Writer, path: &str) -> Result<()> {
    // No field's name holds a zero byte. mongod reads what is behind it as something else, most often as a path
    // without a name.
    if path.contains('\0') {
        return Err(Error::location(
            40_352,
            "Invalid $unset :: caused by :: FieldPath cannot be constructed with empty string",
        ));
    }
    fields.append(path, RawValue::Bool(false));
    Ok(())
}

fn refuse(code: i32, what: &str) -> Result<()> {
    Err(Error::location(code, format!("$unset specification must be {what}")))
}
