//! Regular expressions with PCRE's meaning.
//!
//! Patterns are translated ([`super::regex_syntax`]) and run by an engine of linear time; only what such an
//! engine cannot do (lookaround, backreferences, atomic groups) goes to a backtracking one, which has a
//! bound on its steps.

use std::ops::Range;
use std::sync::Arc;

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

use super::regex_syntax::translate;
use crate::interrupt::{self, BYTES_PER_TICK};

/// PCRE refuses longer patterns, because its compiled form addresses with two bytes.
const PATTERN_BYTES_MAX: usize = 32_764;
/// Memory for one compiled expression. Large counted repetitions reach it first.
const COMPILED_BYTES_MAX: usize = 10 << 20;
/// Steps of the backtracking engine on one string, after which it counts as no match.
const BACKTRACK_STEPS_MAX: usize = 1_000_000;

#[derive(Clone)]
pub struct Regex {
    pattern: Box<str>,
    options: Box<str>,
    engine: Engine,
}

#[derive(Clone)]
enum Engine {
    Linear(::regex::Regex),
    Backtracking(Arc<fancy_regex::Regex>),
}

impl Regex {
    /// Compiles a pattern with the options of MongoDB: `i`, `m`, `x`, `s`, and `u`, which is always on.
    pub fn new(pattern: &str, options: &str) -> Result<Regex> {
        if pattern.contains('\0') {
            return Err(Error::user(
                ErrorCode::BadValue,
                "Regular expression cannot contain an embedded null byte",
            ));
        }
        if let Some(flag) = invalid_flag(options) {
            return Err(Error::location(51108, format!(" invalid flag in regex options: {flag}")));
        }
        // A filter may have thousands of them.
        interrupt::check()?;
        Regex::compile_as(pattern, options, true)
            .map_err(|why| Error::location(51091, format!("Regular expression is invalid: {why}")))
    }

    /// As an expression compiles it, which has checked flags and zero bytes and has its own words around the reason.
    pub(crate) fn compile(pattern: &str, options: &str) -> Result<Regex, String> {
        Regex::compile_as(pattern, options, false)
    }

    fn compile_as(pattern: &str, options: &str, wrapped: bool) -> Result<Regex, String> {
        const TOO_LARGE: &str = "regular expression is too large";
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(TOO_LARGE.to_owned());
        }
        let translated = translate(pattern, options, wrapped)?;
        let engine = if translated.backtracking {
            let compiled = fancy_regex::RegexBuilder::new(&translated.text)
                .backtrack_limit(BACKTRACK_STEPS_MAX)
                .delegate_size_limit(COMPILED_BYTES_MAX)
                .build();
            Engine::Backtracking(Arc::new(compiled.map_err(|error| error.to_string())?))
        } else {
            let compiled =
                ::regex::RegexBuilder::new(&translated.text).size_limit(COMPILED_BYTES_MAX).build();
            Engine::Linear(compiled.map_err(|error| match error {
                ::regex::Error::CompiledTooBig(_) => TOO_LARGE.to_owned(),
                other => other.to_string(),
            })?)
        };
        Ok(Regex { pattern: pattern.into(), options: options.into(), engine })
    }

    /// Whether it is run by the engine that may take many steps on a short text.
    pub(crate) fn backtracks(&self) -> bool {
        matches!(self.engine, Engine::Backtracking(_))
    }

    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    pub fn options(&self) -> &str {
        &self.options
    }

    pub fn is_match(&self, text: &str) -> bool {
        // A search cannot be ended while it runs, so an operation that is to end begins none that may take long.
        let passes = if self.backtracks() { usize::MAX } else { text.len() / BYTES_PER_TICK };
        if passes > 0 && !interrupt::goes_on(passes) {
            return false;
        }
        match &self.engine {
            Engine::Linear(regex) => regex.is_match(text),
            Engine::Backtracking(regex) => regex.is_match(text).unwrap_or(false),
        }
    }

    /// The first match that begins at byte `start` or later; what is before is seen by assertions only. Each group's
    /// range, the whole match first, and none for a group that took no part. Fails where the backtracking engine gave up.
    pub(crate) fn find_at(&self, text: &str, start: usize) -> Result<Option<Groups>, GaveUp> {
        Ok(match &self.engine {
            Engine::Linear(regex) => regex
                .captures_at(text, start)
                .map(|found| groups(found.iter().map(|group| group.map(|m| m.range())))),
            Engine::Backtracking(regex) => regex
                .captures_from_pos(text, start)
                .map_err(|_| GaveUp)?
                .map(|found| groups(found.iter().map(|group| group.map(|m| m.range())))),
        })
    }

    /// As [`Regex::is_match`], but says when the backtracking engine gave up.
    pub(crate) fn decides(&self, text: &str) -> Result<bool, GaveUp> {
        match &self.engine {
            Engine::Linear(regex) => Ok(regex.is_match(text)),
            Engine::Backtracking(regex) => regex.is_match(text).map_err(|_| GaveUp),
        }
    }

    /// Strings and symbols are searched; a stored regular expression matches if it is the same.
    pub fn matches(&self, value: RawValue<'_>) -> bool {
        match value {
            RawValue::String(text) | RawValue::Symbol(text) => self.is_match(text),
            RawValue::Regex { pattern, options } => *pattern == *self.pattern && *options == *self.options,
            _ => false,
        }
    }
}

/// The first of the options that MongoDB does not know.
pub(crate) fn invalid_flag(options: &str) -> Option<char> {
    options.chars().find(|flag| !"imsxu".contains(*flag))
}

/// A match: its range in bytes, and those of its groups.
pub(crate) struct Groups {
    pub whole: Range<usize>,
    pub captures: Vec<Option<Range<usize>>>,
}

/// The backtracking engine took more steps than it may.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GaveUp;

fn groups(mut found: impl Iterator<Item = Option<Range<usize>>>) -> Groups {
    let whole = found.next().flatten().expect("a match has a range");
    Groups { whole, captures: found.collect() }
}

impl std::fmt::Debug for Regex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/{}", self.pattern, self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_is_to_end_searches_no_long_text() {
        struct Ended;
        impl interrupt::Interrupt for Ended {
            fn check(&self) -> Result<()> {
                Err(Error::user(ErrorCode::Interrupted, "no"))
            }
        }
        let (regex, text) = (Regex::new("b$", "").unwrap(), "a".repeat(2 << 20) + "b");
        assert!(regex.is_match(&text));
        let _installed = interrupt::install(Arc::new(Ended));
        assert!(!regex.is_match(&text));
        assert!(interrupt::settled().is_err(), "the filter tells why");
    }

    #[test]
    fn a_match_tells_where_its_groups_are() {
        for pattern in ["(b)(x)?(c)", "(b)(x)?(?=c)(c)"] {
            let regex = Regex::new(pattern, "").unwrap();
            let found = regex.find_at("abcabc", 2).unwrap().unwrap();
            assert_eq!((found.whole, found.captures), (4..6, vec![Some(4..5), None, Some(5..6)]));
        }
        assert!(Regex::new("^b", "").unwrap().find_at("ab", 1).unwrap().is_none());
        assert_eq!(Regex::new("(?<=a)b", "").unwrap().find_at("ab", 1).unwrap().unwrap().whole, 1..2);
    }
}
