//! `setParameter`: changes a setting of the running server.

use kilim_bson::{Document, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::parameter::{self, Parameter, Setter};
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let refuse = |message: String| Error::user(ErrorCode::InvalidOptions, message);
    let mut changes: Vec<(&Parameter, Setter, Argument<'_>)> = Vec::new();
    for argument in arguments("setParameter", call.body) {
        let parameter = parameter::find(argument.name)
            .ok_or_else(|| refuse(format!("attempted to set unrecognized parameter [{}]", argument.name)))?;
        let set = parameter
            .set
            .ok_or_else(|| refuse(format!("not allowed to change [{}] at runtime", argument.name)))?;
        changes.push((parameter, set, argument));
    }
    let mut was = None;
    for (parameter, set, argument) in changes {
        let before = (parameter.get)(call.engine);
        set(call.engine, &argument)?;
        was = Some(before);
    }
    let was = was.ok_or_else(|| refuse("no option found to set".to_owned()))?;
    Ok(doc! {"was": was})
}
