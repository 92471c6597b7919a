//! `waitPattern`: until a pattern is filled, nothing of it is pending, and `patternJobs` lists no job that works on it.

use std::time::{Duration, Instant};

use kilim_bson::{Document, doc};
use kilim_engine::patterns::PatternState;
use kilim_error::{Error, ErrorCode, Result};

use super::pattern_name::named_pattern;
use crate::dispatch::Call;

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let mut deadline = None;
    let pattern = named_pattern(call, "waitPattern", |argument| match argument.name {
        "timeoutMS" => {
            deadline = Instant::now().checked_add(Duration::from_millis(argument.not_negative()?));
            Ok(())
        }
        _ => Err(argument.unknown()),
    })?;
    loop {
        let seen = call.engine.operations.patterns_moved();
        let current = call.engine.pattern(&pattern.target, &pattern.declaration.name)?;
        match &current.state {
            PatternState::Building | PatternState::Verifying => {}
            PatternState::Failed(reason) => {
                return Err(Error::user(
                    ErrorCode::PatternBackfillFailed,
                    format!("'{}' has failed: {reason}", pattern.declaration.name),
                ));
            }
            _ if current.is_maintained() && call.engine.pending_of(&current)?.count > 0 => {
                if call.engine.catching_up(&current).is_some_and(|job| job.is_killed()) {
                    return Err(Error::user(
                        ErrorCode::PatternBackfillFailed,
                        format!(
                            "'{}' is behind, and its job was killed: repairPattern takes it up again",
                            pattern.declaration.name
                        ),
                    ));
                }
            }
            _ if current.is_maintained() && call.engine.has_running_job(&current) => {}
            state => return Ok(doc! {"name": &*pattern.declaration.name, "state": state.name()}),
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::user(
                ErrorCode::MaxTimeMSExpired,
                format!(
                    "'{}' is still {}: patternJobs shows how far",
                    pattern.declaration.name,
                    if current.state == PatternState::Building { "building" } else { "behind" }
                ),
            ));
        }
        call.engine.operations.wait_for_patterns(&call.operation, seen, deadline)?;
    }
}
