//! What was declared: a pattern's kind, and how it is kept.
//!
//! A declaration is parsed from the fields of `createPattern`, checked as far as one can without looking at data,
//! and stored as it was given. What it means is for the kinds to say; here is what it says.

mod options;

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument;
use crate::kind::{KINDS, Kind};

pub use options::{Backfill, Mode, OnUserWrite, Options, Scrub, WhenBehind, WhileBuilding};

/// A pattern as it was declared.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// The collection that receives the maintained fields.
    pub target: Box<str>,
    /// Unique among the target's patterns.
    pub name: Box<str>,
    /// As it was written: `"extendedReference"`.
    pub kind_name: &'static str,
    /// The kind's document as it was given.
    pub spec: Document,
    pub kind: Arc<dyn Kind>,
    pub options: Options,
}

impl Declaration {
    /// Parses the fields of `createPattern` behind the target's name.
    pub fn parse(target: &str, fields: RawDocument<'_>) -> Result<Declaration> {
        let made = Declaration::restore(target, fields)?;
        made.check()?;
        Ok(made)
    }

    /// Refuses options that are not for the kind, and paths that no document can have.
    fn check(&self) -> Result<()> {
        self.kind.check_options(&self.options)?;
        let touched = self.options.touch.iter().map(|path| path.to_string());
        let mut paths = self.maintained_paths().into_iter().map(String::from).chain(touched);
        match paths.find(|path| path.contains('\0')) {
            None => Ok(()),
            Some(path) => {
                let message = format!("{path:?} cannot be the path of a field: it contains a null byte");
                Err(Error::user(ErrorCode::BadValue, message))
            }
        }
    }

    /// The declaration that a definition in force has. It may have an option that is refused for its kind by now: the database
    /// opens all the same.
    pub fn restore(target: &str, fields: RawDocument<'_>) -> Result<Declaration> {
        let (mut name, mut kind) = (None, None);
        let mut options = Options::default();
        for (field, value) in fields {
            if field == "name" {
                let text = argument::text("createPattern", field, value)?;
                check_name(text)?;
                name = Some(text);
            } else if let Some((kind_name, parse)) = KINDS.iter().find(|(known, _)| *known == field) {
                let spec = argument::document("createPattern", field, value)?;
                if kind.replace((*kind_name, spec.to_document(), parse(spec)?)).is_some() {
                    return Err(one_kind());
                }
            } else if !options.set(field, value)? {
                return Err(argument::unknown("createPattern", field));
            }
        }
        let Some(name) = name else {
            return Err(argument::missing("createPattern", "name"));
        };
        let Some((kind_name, spec, kind)) = kind else { return Err(one_kind()) };
        Ok(Declaration { target: target.into(), name: name.into(), kind_name, spec, kind, options })
    }

    /// The declaration with changes merged in: options by their names, the kind's document field by field.
    pub fn modified(&self, changes: RawDocument<'_>) -> Result<Declaration> {
        const PLACE: &str = "modifyPattern";
        let (mut spec, mut options) = (self.spec.clone(), self.options.clone());
        for (field, value) in changes {
            if field == self.kind_name {
                spec = merged(&spec, argument::document(PLACE, field, value)?);
            } else if KINDS.iter().any(|(known, _)| *known == field) {
                let message = format!(
                    "'{}' is a pattern of the kind '{}' and cannot become '{field}': dropPattern, which keeps its \
                     fields, then createPattern",
                    self.name, self.kind_name
                );
                return Err(Error::user(ErrorCode::BadValue, message));
            } else if !options.set(field, value)? {
                return Err(argument::unknown(PLACE, field));
            }
        }
        let made = Declaration { options, ..self.respecified(spec)? };
        made.check()?;
        Ok(made)
    }

    /// The declaration with another document of its kind.
    pub fn respecified(&self, spec: Document) -> Result<Declaration> {
        let parse = KINDS.iter().find(|(known, _)| *known == self.kind_name).map(|(_, parse)| parse);
        let parse = parse.ok_or_else(|| Error::bug("a pattern of no kind"))?;
        Ok(Declaration { kind: parse(spec.as_raw())?, spec, ..self.clone() })
    }

    /// Whether both want the same of the data that is there.
    pub fn maintains_alike(&self, other: &Declaration) -> bool {
        let counts = |name: &str| self.kind.is_about_data(name);
        let spec = |of: &Declaration| -> Document {
            let fields = of.spec.iter().filter(|(name, _)| counts(name));
            fields.map(|(name, value)| (name, value.to_value())).collect()
        };
        self.target == other.target && self.kind_name == other.kind_name && spec(self) == spec(other)
    }

    /// The same declaration after a collection was renamed.
    pub fn renamed(&self, from: &str, to: &str) -> Result<Declaration> {
        let target = if *self.target == *from { to } else { &*self.target };
        let spec = match self.source() == Some(from) {
            true => merged(&self.spec, kilim_bson::doc! {"from": to}.as_raw()),
            false => self.spec.clone(),
        };
        Ok(Declaration { target: target.into(), ..self.respecified(spec)? })
    }

    /// The source collection; none for a pattern within one document.
    pub fn source(&self) -> Option<&str> {
        self.kind.source()
    }

    /// The paths of the target that belong to the pattern.
    pub fn maintained_paths(&self) -> Vec<Box<str>> {
        self.kind.maintained_paths()
    }

    /// The definition as a document, from which [`Declaration::restore`] makes it again.
    pub fn to_document(&self) -> Document {
        let mut document = Document::new();
        document.push("name", &*self.name);
        document.push(self.kind_name, self.spec.clone());
        self.options.append(&mut document);
        document
    }
}

/// A document with the fields of another in the place of its own.
fn merged(document: &Document, changes: RawDocument<'_>) -> Document {
    let kept = document.iter().map(|(name, value)| (name, changes.get(name).unwrap_or(value)));
    let new = changes.iter().filter(|(name, _)| document.get(name).is_none());
    kept.chain(new).map(|(name, value)| (name, value.to_value())).collect()
}

fn one_kind() -> Error {
    let kinds: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
    Error::user(
        ErrorCode::FailedToParse,
        format!("createPattern takes exactly one kind of pattern: one of {}", kinds.join(", ")),
    )
}

fn check_name(name: &str) -> Result<()> {
    let legal = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!("'{name}' cannot name a pattern: use up to 64 letters, digits, '_' and '-'"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
