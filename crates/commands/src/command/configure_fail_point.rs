//! `configureFailPoint: "failCommand"`: make commands fail, for tests of drivers' retries.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::fail_point::FailCommand;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{arguments, nested};
use crate::dispatch::Call;

const NAME: &str = "configureFailPoint";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    match call.body.get(NAME) {
        Some(RawValue::String("failCommand")) => {}
        _ => return Err(Error::user(ErrorCode::FailPointSetFailed, "the only fail point is failCommand")),
    }
    let (mut mode, mut data) = (None, RawDocument::empty());
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "mode" => mode = Some(argument.value),
            "data" => data = argument.document()?,
            _ => return Err(argument.unknown()),
        }
    }
    let mode = mode.ok_or_else(|| Error::user(ErrorCode::IllegalOperation, "a fail point needs a 'mode'"))?;
    let point = parse(mode, data)?;
    call.engine.fail_points.set(point);
    Ok(doc! {"count": 0})
}

fn parse(mode: RawValue<'_>, data: RawDocument<'_>) -> Result<Option<FailCommand>> {
    let (mut times, mut skip) = (None, 0);
    match mode {
        RawValue::String("off") => return Ok(None),
        RawValue::String("alwaysOn") => {}
        RawValue::Document(mode) => {
            for argument in nested("configureFailPoint.mode", mode) {
                match argument.name {
                    "times" => times = Some(argument.not_negative()?),
                    "skip" => skip = argument.not_negative()?,
                    _ => return Err(argument.unknown()),
                }
            }
        }
        RawValue::String(other) => {
            return Err(Error::user(ErrorCode::BadValue, format!("unknown mode of a fail point: {other}")));
        }
        _ => return Err(Error::user(ErrorCode::TypeMismatch, "'mode' must be a string or an object")),
    }
    if times == Some(0) {
        return Ok(None);
    }
    let mut point = FailCommand {
        times,
        skip,
        commands: Default::default(),
        app_name: None,
        error_code: None,
        error_labels: None,
        close_connection: false,
        write_concern_error: None,
        block_ms: 0,
    };
    let mut block = false;
    for argument in nested("configureFailPoint.data", data) {
        match argument.name {
            "failCommands" => {
                point.commands =
                    argument.array()?.iter().filter_map(RawValue::as_str).map(str::to_owned).collect();
            }
            "appName" => point.app_name = Some(argument.string()?.to_owned()),
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
            "namespace" => return Err(argument.unsupported()),
            _ => return Err(argument.unknown()),
        }
    }
    if !block {
        point.block_ms = 0;
    }
    Ok(Some(point))
}
