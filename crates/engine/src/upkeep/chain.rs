//! Patterns that read what others maintain: refused if what they read could be pending.

use std::sync::Arc;

use kilim_error::{ErrorCode, Result};

use crate::engine::Engine;
use crate::maintenance::{is_async, is_read_by_others, is_same, reader_of};
use crate::patterns::Pattern;

impl Engine {
    /// Refuses a pattern of which something could be pending while others read it, or which would read what may be pending.
    pub(crate) fn check_chain(&self, pattern: &Pattern) -> Result<()> {
        let registry = self.patterns();
        let others = registry.of(&pattern.target.database);
        let named = |other: &Pattern| format!("'{}' of {}", other.declaration.name, other.target);
        if is_async(pattern)
            && let Some(reader) = reader_of(others, pattern)
        {
            return Err(pattern.refusal(
                ErrorCode::PatternFieldConflict,
                None,
                format!(
                    "mode: \"async\" would leave {} '{}' behind, and {} reads what it maintains: declare it with mode: \
                     \"sync\"",
                    pattern.declaration.kind_name,
                    pattern.declaration.name,
                    named(reader)
                ),
            ));
        }
        let own = [Arc::new(pattern.clone())];
        for other in others.iter().filter(|other| !is_same(other, pattern) && is_read_by_others(&own, other))
        {
            if is_async(other) {
                return Err(pattern.refusal(
                    ErrorCode::PatternFieldConflict,
                    None,
                    format!(
                        "it would read what {} maintains, which may be behind (mode: \"async\"): declare that one with \
                         mode: \"sync\"",
                        named(other)
                    ),
                ));
            }
            if self.pending_of(other)?.count > 0 {
                return Err(pattern.refusal(
                    ErrorCode::PatternNotReady,
                    None,
                    format!(
                        "it would read what {} maintains, which is behind now: waitPattern until it is not",
                        named(other)
                    ),
                ));
            }
        }
        Ok(())
    }
}
