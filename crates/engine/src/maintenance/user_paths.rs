//! Paths that patterns maintain, and that users may not write.

use kilim_bson::Path;
use kilim_error::{Error, ErrorCode, Result};

use crate::engine::Engine;
use crate::namespace::Namespace;
use crate::patterns::Pattern;

/// Refuses an update that names a path which a pattern maintains.
pub(crate) fn check_user_paths(engine: &Engine, namespace: &Namespace, paths: &[Path]) -> Result<()> {
    let Some(patterns) = engine.patterns().concerned(namespace) else { return Ok(()) };
    for pattern in patterns.iter().filter(|pattern| pattern.is_maintained() && pattern.target == *namespace) {
        let maintained = pattern.declaration.maintained_paths();
        for path in paths.iter().map(Path::as_str).filter(|path| !pattern.kind().is_user_path(path)) {
            if maintained.iter().any(|own| kilim_patterns::lies_within(path, own)) {
                return Err(read_only(pattern, path));
            }
        }
    }
    Ok(())
}

pub(crate) fn read_only(pattern: &Pattern, path: &str) -> Error {
    let from = match &pattern.source {
        Some(source) => match pattern.kind().path_in_source(path) {
            Some(field) => format!(" from {source}.{field}"),
            None => format!(" from {source}"),
        },
        None => String::new(),
    };
    let way_out = match (pattern.kind().way_out(path), &pattern.source) {
        (Some(way_out), _) => way_out,
        (None, Some(_)) => "Change the source, or dropPattern".to_owned(),
        (None, None) => "Change what it is computed from, or dropPattern".to_owned(),
    };
    pattern.refusal(
        ErrorCode::PatternFieldReadOnly,
        Some(path),
        format!(
            "Path '{path}' of {} is maintained by {} '{}'{from}. {way_out}.",
            pattern.target, pattern.declaration.kind_name, pattern.declaration.name
        ),
    )
}
