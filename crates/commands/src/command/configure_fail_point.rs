//! `configureFailPoint`: make commands fail, for tests of drivers' retries.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::fail_point::{Consequence, FailCommand, FailPoint, Mode};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{as_double, nested};
use crate::dispatch::Call;

const NAME: &str = "configureFailPoint";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let name = call.body.get(NAME).and_then(RawValue::as_str).unwrap_or_default();
    let point = FailPoint::named(name)
        .ok_or_else(|| Error::user(ErrorCode::FailPointSetFailed, format!("{name} not found")))?;
    let mode = match call.body.get("mode") {
        Some(mode) => parse_mode(mode)?,
        None => {
            let message = "When setting a failpoint, you must supply a 'mode'";
            return Err(Error::user(ErrorCode::IllegalOperation, message));
        }
    };
    let data = match call.body.get("data") {
        None => RawDocument::empty(),
        Some(RawValue::Document(data)) => data,
        Some(_) => {
            return Err(Error::user(ErrorCode::TypeMismatch, "the 'data' option must be a JSON object"));
        }
    };
    let consequence = match point {
        FailPoint::FailCommand => Consequence::Command(parse_fail_command(data)?),
        _ => Consequence::Data(data.to_document()),
    };
    let fired = call.engine.fail_points.set(point, mode, consequence);
    Ok(doc! {"count": i32::try_from(fired).unwrap_or(i32::MAX)})
}

fn parse_mode(mode: RawValue<'_>) -> Result<Mode> {
    let bad = |message: &str| Err(Error::user(ErrorCode::BadValue, message));
    match mode {
        RawValue::String("off") => Ok(Mode::Off),
        RawValue::String("alwaysOn") => Ok(Mode::Always),
        RawValue::String(other) => bad(&format!("unknown mode: {other}")),
        RawValue::Document(mode) => {
            let Some((name, value)) = mode.iter().next() else {
                return bad("'mode' must be one of 'off', 'alwaysOn', '{times:n}' or '{skip:n}'");
            };
            let number = as_double(value).filter(|number| number.fract() == 0.0);
            match (name, number) {
                ("times" | "skip", None) => bad("a whole number is expected in 'mode'"),
                ("times" | "skip", Some(number)) if number < 0.0 => {
                    bad("the option to 'mode' must be positive")
                }
                ("times", Some(0.0)) => Ok(Mode::Off),
                ("times", Some(number)) => Ok(Mode::Times(number as u64)),
                ("skip", Some(number)) => Ok(Mode::Skip(number as u64)),
                ("activationProbability", _) => Err(Error::user(
                    ErrorCode::NotImplemented,
                    "configureFailPoint: 'activationProbability' is not supported by Kilim",
                )),
                _ => bad("'mode' must be one of 'off', 'alwaysOn', '{times:n}' or '{skip:n}'"),
            }
        }
        _ => Err(Error::user(ErrorCode::TypeMismatch, "'mode' must be a string or JSON object")),
    }
}

fn parse_fail_command(data: RawDocument<'_>) -> Result<FailCommand> {
    let mut point = FailCommand::default();
    let mut block = false;
    for argument in nested("configureFailPoint.data", data) {
        match argument.name {
            "failCommands" => {
                point.commands =
                    argument.array()?.iter().filter_map(RawValue::as_str).map(str::to_owned).collect();
            }
            "appName" => point.app_name = Some(argument.string()?.to_owned()),
            "namespace" => point.namespace = Some(argument.string()?.to_owned()),
            "errorCode" => point.error_code = Some(argument.integer()? as i32),
            "errorLabels" => {
                let labels = argument.array()?.iter().filter_map(RawValue::as_str).map(str::to_owned);
                point.error_labels = Some(labels.collect());
            }
            "closeConnection" => point.close_connection = argument.boolean()?,
            "writeConcernError" => point.write_concern_error = Some(argument.document()?.to_document()),
            "blockConnection" => block = argument.boolean()?,
            "blockTimeMS" => point.block_ms = argument.not_negative()?,
            // There are no internal clients.
            "failInternalCommands" => drop(argument.boolean()?),
            _ => return Err(argument.unknown()),
        }
    }
    if !block {
        point.block_ms = 0;
    }
    Ok(point)
}
