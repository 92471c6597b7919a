//! `attribute`: many fields that few documents share, found by one index.
//!
//! Attributes have two forms. The flat one is fields: `specs: {color: "black"}`. The k/v one is an array of their names
//! and values: `[{k: "color", v: "black"}]`, with `u` for a unit. A declaration says which form is stored, or both. Users may
//! write whole documents in either form and filter by either; what is stored is made of what they wrote
//! ([`forms`]), and a filter on the form that is not stored is read as one on the other ([`meaning`]).

mod forms;
mod meaning;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{Document, JsonFormat, Path, RawDocument, doc, value_to_extended_json};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;
use kilim_query::sort::Pair;

use super::{Kind, Readings, Served, WantedIndex};
use crate::argument;
use crate::declaration::Options;
use crate::effect::{Change, Effect, Reader, Role};
use crate::path::{Names, lies_within, names, overlap};

const PLACE: &str = "attribute";

/// As many fields can be listed one by one.
const LISTED_MAX: usize = 100;

#[derive(Debug)]
struct Attribute {
    fields: Fields,
    /// The array of the k/v form.
    array: Box<str>,
    array_names: Names,
    store: Store,
    units: BTreeMap<Box<str>, Box<str>>,
}

/// Which fields are attributes.
#[derive(Debug)]
enum Fields {
    /// All of a document: `specs.*`. Their names are those within it.
    Within { path: Box<str>, names: Names },
    /// These. Their names are their paths.
    Listed(Vec<(Box<str>, Names)>),
}

/// The forms that are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    Flat,
    Kv,
    Both,
}

const STORES: [(&str, Store); 3] = [("flat", Store::Flat), ("kv", Store::Kv), ("both", Store::Both)];

pub(super) fn parse(spec: RawDocument<'_>) -> Result<Arc<dyn Kind>> {
    let (mut paths, mut array, mut store) = (None, None, Store::Flat);
    let mut units: BTreeMap<Box<str>, Box<str>> = BTreeMap::new();
    for (name, value) in spec {
        match name {
            "paths" => paths = Some(value.as_array().ok_or_else(no_paths)?),
            "as" => array = Some(argument::text(PLACE, name, value)?),
            "store" => store = argument::choice(PLACE, name, value, &STORES)?,
            "units" => {
                for (attribute, unit) in argument::document(PLACE, name, value)? {
                    let unit = argument::text("attribute.units", attribute, unit)?;
                    units.insert(attribute.into(), unit.into());
                }
            }
            _ => return Err(argument::unknown(PLACE, name)),
        }
    }
    let paths = paths.ok_or_else(|| argument::missing(PLACE, "paths"))?;
    let array = array.ok_or_else(|| argument::missing(PLACE, "as"))?;
    let paths: Option<Vec<&str>> = paths.iter().map(|path| path.as_str()).collect();
    let fields = Fields::parse(&paths.ok_or_else(no_paths)?)?;
    check_path("as", array)?;
    if let Some(path) = fields.paths().find(|path| overlap(path, array)) {
        return Err(Error::user(
            ErrorCode::PatternFieldConflict,
            format!("'attribute.as' and 'attribute.paths' meet: '{array}' and '{path}' must lie apart"),
        ));
    }
    if let Some(name) = units.keys().find(|name| !fields.may_have(name)) {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!("'attribute.units.{name}' is the unit of no attribute: 'paths' does not have it"),
        ));
    }
    Ok(Arc::new(Attribute { fields, array: array.into(), array_names: names(array), store, units }))
}

fn no_paths() -> Error {
    let message = "'attribute.paths' must be an array of paths: [\"specs.*\"], or fields one by one";
    Error::user(ErrorCode::TypeMismatch, message)
}

fn check_path(field: &str, path: &str) -> Result<()> {
    let first = path.split('.').next().unwrap_or_default();
    let is_sound = path.split('.').all(|name| !name.is_empty() && !name.starts_with('$') && name != "*");
    if is_sound && first != "_id" && !path.contains('\0') {
        return Ok(());
    }
    Err(Error::user(
        ErrorCode::BadValue,
        format!(
            "'attribute.{field}' has '{path}', which cannot be a path of attributes: name a field, not '_id'"
        ),
    ))
}

/// An error that says which document it is about, for one that nobody is writing.
fn of_document(document: RawDocument<'_>, error: &Error) -> Error {
    let id = document.get("_id").map(|id| value_to_extended_json(id, JsonFormat::Relaxed));
    Error::user(error.code(), format!("the document with _id {}: {error}", id.unwrap_or_default()))
}

impl Fields {
    fn parse(paths: &[&str]) -> Result<Fields> {
        if let [path] = paths
            && let Some(path) = path.strip_suffix(".*")
        {
            check_path("paths", path)?;
            return Ok(Fields::Within { path: path.into(), names: names(path) });
        }
        if paths.is_empty() || paths.len() > LISTED_MAX {
            return Err(Error::user(
                ErrorCode::BadValue,
                format!("'attribute.paths' must list 1 to {LISTED_MAX} paths, or one like 'specs.*'"),
            ));
        }
        for (at, path) in paths.iter().enumerate() {
            if path.ends_with(".*") {
                return Err(Error::user(
                    ErrorCode::BadValue,
                    format!(
                        "'{path}' stands beside other paths, whose names could be those of its fields: declare a pattern \
                         of its own for it"
                    ),
                ));
            }
            check_path("paths", path)?;
            if let Some(other) = paths[..at].iter().find(|other| overlap(other, path)) {
                return Err(Error::user(
                    ErrorCode::PatternFieldConflict,
                    format!(
                        "'attribute.paths' has '{other}' and '{path}', which meet: leave one of them out"
                    ),
                ));
            }
        }
        Ok(Fields::Listed(paths.iter().map(|path| ((*path).into(), names(path))).collect()))
    }

    /// What the flat form occupies.
    fn paths(&self) -> impl Iterator<Item = &str> {
        let (within, listed) = match self {
            Fields::Within { path, .. } => (Some(&**path), [].iter()),
            Fields::Listed(listed) => (None, listed.iter()),
        };
        within.into_iter().chain(listed.map(|(path, _)| &**path))
    }

    /// Whether an attribute can have this name.
    fn may_have(&self, name: &str) -> bool {
        match self {
            Fields::Within { .. } => true,
            Fields::Listed(listed) => listed.iter().any(|(path, _)| **path == *name),
        }
    }

    /// The attribute that a path leads to, and the path within its value.
    fn split<'p>(&self, path: &'p str) -> Option<(&'p str, &'p str)> {
        match self {
            Fields::Within { path: container, .. } => {
                let below = path.strip_prefix(&**container)?.strip_prefix('.')?;
                Some(below.split_once('.').unwrap_or((below, "")))
            }
            Fields::Listed(listed) => {
                let (own, _) = listed.iter().find(|(own, _)| lies_within(path, own))?;
                let (name, rest) = path.split_at(own.len());
                Some((name, rest.strip_prefix('.').unwrap_or(rest)))
            }
        }
    }

    /// The path that leads to an attribute; none where no path does.
    fn path_of(&self, name: &str) -> Option<String> {
        match self {
            Fields::Within { path, .. } => {
                (!name.contains('.') && !name.is_empty()).then(|| format!("{path}.{name}"))
            }
            Fields::Listed(_) => self.may_have(name).then(|| name.to_owned()),
        }
    }
}

impl Kind for Attribute {
    /// Both forms, for a document may be written in either.
    fn maintained_paths(&self) -> Vec<Box<str>> {
        self.fields.paths().map(Into::into).chain([self.array.clone()]).collect()
    }

    /// What is stored is the users' to change by operators. They would find nothing in the other form.
    fn is_user_path(&self, path: &str) -> bool {
        match self.store {
            Store::Flat => !lies_within(path, &self.array),
            Store::Kv => lies_within(path, &self.array),
            Store::Both => true,
        }
    }

    fn way_out(&self, _path: &str) -> Option<String> {
        let stored: Vec<&str> = match self.store {
            Store::Kv => vec![&self.array],
            Store::Flat | Store::Both => self.fields.paths().collect(),
        };
        Some(format!(
            "Attributes are stored in '{}': change them there, or write the whole document",
            stored.join("', '")
        ))
    }

    fn evaluate(
        &self,
        change: &Change<'_>,
        _reader: &mut dyn Reader,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        let (Role::Target, Some(after)) = (change.role, change.after) else { return Ok(()) };
        let before = change.before.filter(|_| !change.cause.is_refresh());
        match self.stored(before, after) {
            Ok(Some(document)) => effects.push(Effect::Becomes { document, replaced: false }),
            Ok(None) => {}
            Err(conflict) if change.cause.is_refresh() => {
                effects.push(Effect::Refuse(of_document(after, &conflict)));
            }
            Err(conflict) => effects.push(Effect::Refuse(conflict)),
        }
        Ok(())
    }

    fn readings(&self) -> Readings {
        Readings { target: self.maintained_paths(), ..Readings::default() }
    }

    fn check_options(&self, options: &Options) -> Result<()> {
        options.check_never_behind("fields of the same document, which cost no further write")
    }

    fn indexes(&self) -> Vec<WantedIndex> {
        let wanted =
            |key: Document, options: Document| WantedIndex { role: Role::Target, key, options, exact: false };
        let (name, value) = (format!("{}.k", self.array), format!("{}.v", self.array));
        vec![match (&self.fields, self.store) {
            (_, Store::Kv | Store::Both) => wanted(doc! {(&name): 1, (&value): 1}, Document::new()),
            (Fields::Within { path, .. }, Store::Flat) => {
                wanted(doc! {(&format!("{path}.$**")): 1}, Document::new())
            }
            (Fields::Listed(listed), Store::Flat) => {
                let mut paths = Document::new();
                listed.iter().for_each(|(path, _)| paths.push(path, 1));
                wanted(doc! {"$**": 1}, doc! {"wildcardProjection": paths})
            }
        }]
    }

    fn corrected(&self, target: RawDocument<'_>, _reader: &mut dyn Reader) -> Result<Option<Document>> {
        self.stored(None, target)
    }

    /// Attributes are the users' own: without the pattern they are fields.
    fn stripped(&self, target: RawDocument<'_>) -> Result<Option<Document>> {
        self.flattened(target)
    }

    fn meaning(&self, filter: &Filter, is_filled: bool) -> Result<Option<Filter>> {
        self.meaning_of(filter, is_filled)
    }

    fn rewrites(&self) -> bool {
        true
    }

    fn served(&self, filter: &Filter) -> Option<Served> {
        let words = self.in_pairs(filter)?;
        match self.store {
            Store::Flat => Some(Served::AsItIs(words)),
            Store::Both => Some(Served::Instead(words)),
            Store::Kv => None,
        }
    }

    fn sorts_by(&self, path: &str) -> Option<Pair> {
        let (name, rest) = self.fields.split(path).filter(|_| self.store == Store::Kv)?;
        Some(Pair {
            path: Path::parse(path),
            array: Path::parse(&self.array),
            name: name.into(),
            value: Attribute::value_path(rest),
        })
    }
}
