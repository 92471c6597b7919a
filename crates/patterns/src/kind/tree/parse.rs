//! `tree` as it is written.

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::{Field, OnDelete, Tree};
use crate::argument;
use crate::path::overlap;

const PLACE: &str = "tree";

const ON_DELETE: [(&str, OnDelete); 3] =
    [("restrict", OnDelete::Restrict), ("cascade", OnDelete::Cascade), ("reparent", OnDelete::Reparent)];

/// The most that can be asked for: a document nests no deeper than this, and `ancestors` of so many stay small.
const DEPTH_MAX: i64 = 1000;

impl Tree {
    pub(super) fn parse(spec: RawDocument<'_>) -> Result<Tree> {
        let (mut parent, mut nested_sets) = (None, None);
        let (mut ancestors, mut path, mut depth, mut order) = (None, None, None, None);
        let (mut child_count, mut descendant_count, mut path_of, mut scope) = (None, None, None, None);
        let (mut separator, mut dense, mut max_depth, mut on_delete) = (",", false, 100, OnDelete::Restrict);
        for (name, value) in spec {
            match name {
                "parent" => parent = field(name, value)?,
                "ancestors" => ancestors = field(name, value)?,
                "path" => path = field(name, value)?,
                "nestedSets" => nested_sets = labels(name, value)?,
                "depth" => depth = field(name, value)?,
                "childCount" => child_count = field(name, value)?,
                "descendantCount" => descendant_count = field(name, value)?,
                "order" => order = field(name, value)?,
                "pathOf" => path_of = field(name, value)?,
                "scope" => scope = field(name, value)?,
                "pathSeparator" => separator = argument::text(PLACE, name, value)?,
                "maxDepth" => max_depth = argument::whole(PLACE, name, value, 1, DEPTH_MAX)?,
                "onDelete" => on_delete = argument::choice(PLACE, name, value, &ON_DELETE)?,
                "dense" => dense = argument::boolean(PLACE, name, value)?,
                _ => return Err(argument::unknown(PLACE, name)),
            }
        }
        let Some(parent) = parent else { return Err(argument::missing(PLACE, "parent")) };
        let refuse = |message: String| Err(Error::user(ErrorCode::BadValue, message));
        if separator.is_empty() || separator.contains('%') || separator.len() > 16 {
            return refuse(format!("'{PLACE}.pathSeparator' must be a text of 1 to 16 bytes without '%'"));
        }
        let path_of = path_of.filter(|field| &*field.path != "_id");
        let made = Tree {
            parent,
            ancestors,
            path,
            nested_sets,
            dense,
            depth,
            child_count,
            descendant_count,
            order,
            separator: separator.into(),
            path_of,
            scope,
            max_depth: max_depth as usize,
            on_delete,
        };
        if made.maintained().next().is_none() {
            return refuse(format!(
                "'{PLACE}' maintains nothing: name a field for 'ancestors', 'path', 'nestedSets', 'depth', 'childCount', \
                 'descendantCount' or 'order'"
            ));
        }
        if made.dense && made.nested_sets.is_none() {
            return refuse(format!(
                "'{PLACE}.dense' says how labels are: name two fields for 'nestedSets' too"
            ));
        }
        made.check_fields()?;
        Ok(made)
    }

    /// Refuses a scope that the parent's field is part of, or that is part of it: no node would be in the scope of its parent.
    /// Asked of new declarations only.
    pub(super) fn check_scope(&self) -> Result<()> {
        match &self.scope {
            Some(scope) if overlap(&scope.path, &self.parent.path) => clash(&scope.path, &self.parent.path),
            _ => Ok(()),
        }
    }

    /// Refuses fields that lie in each other.
    fn check_fields(&self) -> Result<()> {
        let read = [Some(&self.parent), self.path_of.as_ref(), self.scope.as_ref()];
        let read: Vec<&str> = read.into_iter().flatten().map(|field| &*field.path).chain(["_id"]).collect();
        let maintained: Vec<&str> = self.maintained().map(|field| &*field.path).collect();
        for (at, own) in maintained.iter().enumerate() {
            let others = maintained[at + 1..].iter().chain(&read);
            if let Some(other) = others.into_iter().find(|other| overlap(own, other)) {
                return clash(own, other);
            }
        }
        match overlap(&self.parent.path, "_id") {
            true => clash(&self.parent.path, "_id"),
            false => Ok(()),
        }
    }
}

fn clash(one: &str, other: &str) -> Result<()> {
    let message =
        format!("'{PLACE}' uses '{one}' and '{other}', which lie in each other: choose another path");
    Err(Error::user(ErrorCode::PatternFieldConflict, message))
}

/// A path; null stands for none.
fn field(name: &str, value: RawValue<'_>) -> Result<Option<Field>> {
    if let RawValue::Null = value {
        return Ok(None);
    }
    let path = argument::text(PLACE, name, value)?;
    let is_name = |part: &str| {
        !part.is_empty() && !part.starts_with('$') && !part.contains('\0') && part.parse::<u32>().is_err()
    };
    match path.split('.').all(is_name) {
        true => Ok(Some(Field::new(path))),
        false => Err(Error::user(
            ErrorCode::BadValue,
            format!("'{PLACE}.{name}' is '{path}', which is no path of a field of documents"),
        )),
    }
}

/// Two paths; null stands for none.
fn labels(name: &str, value: RawValue<'_>) -> Result<Option<[Field; 2]>> {
    if let RawValue::Null = value {
        return Ok(None);
    }
    let wrong = || {
        let message = format!("'{PLACE}.{name}' must be two paths, as in [\"lft\", \"rgt\"]");
        Error::user(ErrorCode::TypeMismatch, message)
    };
    let paths: Vec<RawValue<'_>> = value.as_array().ok_or_else(wrong)?.iter().collect();
    let [left, right] = paths[..] else { return Err(wrong()) };
    match (field(name, left)?, field(name, right)?) {
        (Some(left), Some(right)) => Ok(Some([left, right])),
        _ => Err(wrong()),
    }
}
