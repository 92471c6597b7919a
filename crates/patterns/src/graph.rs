//! How the patterns of a database depend on each other.
//!
//! A pattern reads paths of its source and of its target and maintains paths of its target. One that reads what
//! another maintains comes behind it. Paths, not collections, are what depends: two collections may copy from
//! each other as long as no copy is copied back. A pattern that makes documents or removes them maintains their `_id`.
//!
//! Invariant: a set of patterns that was accepted has no circle, so there is an order in which each change is
//! carried through once.

use kilim_error::{Error, ErrorCode, Result};

use crate::declaration::Declaration;
use crate::kind::Readings;
use crate::path::{lies_within, overlap};

/// Paths of a collection. None stands for all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reading<'d> {
    collection: &'d str,
    paths: Option<Vec<Box<str>>>,
}

impl Declaration {
    /// What it reads, apart from what it maintains itself: of its source first, where it has one.
    fn readings(&self) -> Vec<Reading<'_>> {
        let Readings { source, mut target } = self.kind.readings();
        // A reference may lie within its copy.
        target.retain(|path| !self.is_own(path));
        let of_source = self.source().map(|from| Reading { collection: from, paths: source });
        let of_target = Reading { collection: &self.target, paths: Some(target) };
        of_source.into_iter().chain([of_target]).collect()
    }

    fn is_own(&self, path: &str) -> bool {
        self.maintained_paths().iter().any(|own| lies_within(path, own))
    }

    /// A path that it reads and the other maintains. Where the other makes documents of the collection that this one
    /// reads, or removes them, that is their `_id`: which documents there are is read with every path. So is it where
    /// both have one target and the other makes its documents, or removes some that mean something for others to this one.
    pub fn reads_from(&self, other: &Declaration) -> Option<Box<str>> {
        if self.target == other.target && self.name == other.name {
            return self.reads_itself();
        }
        let is_source = self.source() == Some(&*other.target);
        let is_made = self.target == other.target && other.kind.makes_documents();
        let is_related = self.target == other.target && self.kind.relates_targets();
        if (is_source || is_related) && other.kind.comes_and_goes() || is_made {
            return Some("_id".into());
        }
        let mut maintained = other.kind.written_paths();
        maintained.extend(other.kind.removed_paths());
        let readings = self.readings();
        let on_target = readings.iter().filter(|reading| *reading.collection == *other.target);
        let meets = |reading: &Reading<'_>, path: &str| match &reading.paths {
            None => true,
            Some(paths) => paths.iter().any(|read| overlap(read, path)),
        };
        on_target.flat_map(|reading| maintained.iter().filter(|path| meets(reading, path))).next().cloned()
    }

    /// A collection that copies from itself may not copy what was copied. What it needs to find the place does not
    /// count: the reference may lie within the copy.
    fn reads_itself(&self) -> Option<Box<str>> {
        if self.source() == Some(&*self.target) && self.kind.makes_documents() {
            return Some("_id".into());
        }
        let readings = self.readings();
        let source = readings.first().filter(|_| self.source() == Some(&*self.target))?;
        let maintained = self.maintained_paths();
        maintained.into_iter().find(|path| match &source.paths {
            None => true,
            Some(paths) => paths.iter().any(|read| overlap(read, path)),
        })
    }

    fn title(&self) -> String {
        format!("{}.{}", self.target, self.name)
    }
}

/// The declarations of one database, each behind those that it reads from.
pub fn in_order<'d>(declarations: &[&'d Declaration]) -> Result<Vec<&'d Declaration>> {
    let mut walk = Walk {
        declarations,
        state: vec![Visit::Not; declarations.len()],
        path: Vec::new(),
        done: Vec::new(),
    };
    for at in 0..declarations.len() {
        walk.visit(at)?;
    }
    Ok(walk.done)
}

/// Refuses a date that one declaration sets (`touch`) where the other maintains or reads something. The date comes behind all
/// evaluation, so nobody who reads it would be told.
fn check_touch(setting: &Declaration, other: &Declaration) -> Result<()> {
    let Some(touch) = setting.options.touch.as_ref().map(|path| path.as_str()) else { return Ok(()) };
    let refuse = |what: String| {
        let message = format!("'touch' of '{}' names '{touch}', {what}: choose another field", setting.name);
        Err(Error::user(ErrorCode::PatternFieldConflict, message))
    };
    if overlap(touch, "_id") {
        return refuse("which never changes".to_owned());
    }
    let maintained = other.maintained_paths();
    if setting.target == other.target
        && let Some(path) = maintained.iter().find(|path| overlap(path, touch))
    {
        return refuse(format!("where '{}' maintains '{path}'", other.name));
    }
    let readings = other.readings();
    let of_target = readings.iter().filter(|reading| *reading.collection == *setting.target);
    for Reading { paths, .. } in of_target {
        match paths.as_ref().map(|paths| paths.iter().find(|path| overlap(path, touch))) {
            None => return refuse(format!("and '{}' reads whole documents", other.name)),
            Some(Some(path)) => return refuse(format!("and '{}' reads '{path}'", other.name)),
            Some(None) => {}
        }
    }
    Ok(())
}

/// Refuses a new declaration that claims what another maintains.
pub fn check_claims(new: &Declaration, others: &[&Declaration]) -> Result<()> {
    check_touch(new, new)?;
    for other in others.iter().filter(|other| other.target != new.target || other.name != new.name) {
        check_touch(new, other)?;
        check_touch(other, new)?;
    }
    for other in others.iter().filter(|other| other.target == new.target && other.name != new.name) {
        if new.kind.makes_documents() && other.kind.makes_documents() {
            return Err(Error::user(
                ErrorCode::PatternFieldConflict,
                format!(
                    "the documents of {} are made and removed by {} '{}' already: two patterns would remove each other's;                      choose another collection",
                    new.target, other.kind_name, other.name
                ),
            ));
        }
        let removed_by = |one: &Declaration, maintained: &Declaration| {
            let removed = one.kind.removed_paths().into_iter();
            let kept = maintained.maintained_paths();
            removed.into_iter().find(|path| kept.iter().any(|own| overlap(own, path)))
        };
        if let Some(path) = removed_by(new, other).or_else(|| removed_by(other, new)) {
            return Err(Error::user(
                ErrorCode::PatternFieldConflict,
                format!(
                    "Path '{path}' of {} would be maintained by one of '{}' and '{}' and removed by the other: choose another \
                     path",
                    new.target, new.name, other.name
                ),
            ));
        }
        // The steps of one collection's versions share the field that has the version.
        if new.kind.version_step().is_some() && other.kind.version_step().is_some() {
            continue;
        }
        for path in new.maintained_paths() {
            if let Some(taken) = other.maintained_paths().iter().find(|taken| overlap(taken, &path)) {
                return Err(Error::user(
                    ErrorCode::PatternFieldConflict,
                    format!(
                        "Path '{path}' of {} is maintained by {} '{}' already (as '{taken}'): choose another path, or \
                         drop that pattern",
                        new.target, other.kind_name, other.name
                    ),
                ));
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Not,
    Open,
    Done,
}

struct Walk<'w, 'd> {
    declarations: &'w [&'d Declaration],
    state: Vec<Visit>,
    /// The patterns being visited, each with the path by which the one before it came.
    path: Vec<(usize, Box<str>)>,
    done: Vec<&'d Declaration>,
}

impl Walk<'_, '_> {
    fn visit(&mut self, at: usize) -> Result<()> {
        match self.state[at] {
            Visit::Done => return Ok(()),
            Visit::Open => return Err(self.circle(at)),
            Visit::Not => self.state[at] = Visit::Open,
        }
        for other in 0..self.declarations.len() {
            if let Some(read) = self.declarations[at].reads_from(self.declarations[other]) {
                self.path.push((at, read));
                self.visit(other)?;
                self.path.pop();
            }
        }
        self.state[at] = Visit::Done;
        self.done.push(self.declarations[at]);
        Ok(())
    }

    fn circle(&self, at: usize) -> Error {
        let start = self.path.iter().position(|(visited, _)| *visited == at).unwrap_or(0);
        let mut text = String::new();
        for (visited, read) in &self.path[start..] {
            text.push_str(&format!("{} reads '{read}' of ", self.declarations[*visited].title()));
        }
        text.push_str(&self.declarations[at].title());
        Error::user(
            ErrorCode::PatternCycle,
            format!("the patterns would maintain each other for ever: {text}; leave one of these fields out"),
        )
    }
}
