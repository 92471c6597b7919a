//! `resumePattern`: maintain a paused pattern again, and fill what it missed.

use kilim_bson::{Document, doc};
use kilim_engine::patterns::PatternState;
use kilim_error::{Error, ErrorCode, Result};

use super::pattern_name::named_pattern;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let pattern = named_pattern(call, "resumePattern", |argument| Err(argument.unknown()))?;
    if pattern.state != PatternState::Paused {
        return Err(Error::user(
            ErrorCode::PatternNotReady,
            format!(
                "'{}' is {}, not paused: there is nothing to resume",
                pattern.declaration.name,
                pattern.state.name()
            ),
        ));
    }
    let pattern = call.engine.restart_pattern(&call.operation, &pattern)?;
    let job = call.engine.begin_filling(&pattern) as i64;
    Ok(doc! {"name": &*pattern.declaration.name, "state": pattern.state.name(), "jobId": job})
}
