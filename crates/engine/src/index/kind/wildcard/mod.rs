//! Wildcard indexes: one key for every path of a document that leads to a value.
//!
//! A key is the path, then the value. Arrays fan out without their positions, arrays within arrays are values,
//! an empty document is itself and an empty array is undefined. A projection says which paths count; by default
//! all but `_id`. It is applied while the document is walked: what it leaves of a document or an array is what
//! is looked at, so a document all of whose fields are left out is an empty one.
//!
//! A field whose name has a dot cannot be asked for, yet its document exists: one key below the document's own
//! path says so, under a name that no path has.
//!
//! In a compound index the values of other fields stand before the path and behind the value. They hold no arrays, so
//! that every key of a document has the same ones. A document without any path still has one key, with the least
//! value in place of path and value: those who only ask for what stands before the path find it.
//!
//! Invariant: a document that has a value at a path that the index covers has a key at it or below it; in a compound
//! index every document has a key.

mod compound;
mod options;
mod view;

use std::sync::Arc;

use kilim_bson::{Collator, Document, Path, RawArray, RawDocument, RawValue, Writer};
use kilim_error::{Error, Result};
use kilim_query::filter::Predicate;

use super::ordered::value_bounds;
use super::{Index, IndexSpec, KeyPart, KeySet, Kind, KindOptions, Multikey};
use crate::bounds::{Bounds, IntervalList, PartTraits, bounds_of};
use crate::index::keys::{Around, check_collatable, value_at};
use crate::index::{Holds, NESTED};

/// Which paths a wildcard index has keys for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wildcard {
    /// `path.$**`: only what is below the path.
    root: Option<Path>,
    /// `wildcardProjection` as it was given.
    projection: Option<Document>,
    selection: Selection,
    descending: bool,
    /// The parts of a compound key before the path and behind the value.
    before: Vec<KeyPart>,
    after: Vec<KeyPart>,
}

/// Names that are taken, or left out, by level.
#[derive(Debug, Clone, PartialEq)]
enum Selection {
    Only(Names),
    AllBut(Names),
}

type Names = Vec<(Box<str>, Name)>;

#[derive(Debug, Clone, PartialEq)]
enum Name {
    Whole,
    Within(Names),
}

/// What is taken of a document on the way down.
#[derive(Clone, Copy)]
enum Taken<'w> {
    All,
    Only(&'w Names),
    AllBut(&'w Names),
}

impl Kind for Wildcard {
    fn is_kind_of(key: RawDocument<'_>) -> bool {
        key.iter().any(|(path, _)| Wildcard::is_wildcard(path))
    }

    fn of(key: RawDocument<'_>, projection: Option<RawDocument<'_>>) -> Wildcard {
        let mut parts = KeyPart::fields_of(key);
        let at = parts.iter().position(|part| Wildcard::is_wildcard(part.path.as_str())).unwrap_or(0);
        let after = parts.split_off(at + 1);
        let KeyPart { path, descending, .. } = parts.pop().expect("a wildcard's key has a field");
        let path = path.as_str();
        let root = path.strip_suffix(".$**").map(Path::parse);
        let selection = match (&root, projection) {
            (Some(root), _) => {
                let mut names = Names::new();
                add_name(&mut names, root);
                Selection::Only(names)
            }
            (None, Some(projection)) => Selection::parse(projection),
            (None, None) => Selection::AllBut(vec![("_id".into(), Name::Whole)]),
        };
        let projection = projection.map(|given| given.to_document());
        Wildcard { root, projection, selection, descending, before: parts, after }
    }

    /// The wildcard makes two parts: the path, then the value there.
    fn parts(key: RawDocument<'_>) -> Vec<KeyPart> {
        let mut parts = KeyPart::fields_of(key);
        if let Some(at) = parts.iter().position(|part| Wildcard::is_wildcard(part.path.as_str())) {
            parts.insert(at, path_part());
        }
        parts
    }

    fn check_key(key: RawDocument<'_>) -> Result<()> {
        options::check_key(key)
    }

    fn check_projection<'a>(projection: RawValue<'a>, key: RawDocument<'_>) -> Result<RawDocument<'a>> {
        options::check_projection(projection, key)
    }

    fn check_options(
        key: RawDocument<'_>,
        projection: Option<RawDocument<'_>>,
        options: &KindOptions<'_>,
        spec: RawDocument<'_>,
    ) -> Result<()> {
        options::check_options(key, projection, options, spec)
    }

    fn append_options(&self, out: &mut Writer) {
        if let Some(projection) = &self.projection {
            out.append("wildcardProjection", RawValue::Document(projection.as_raw()));
        }
    }

    fn add_keys(&self, spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
        let collator = spec.collator();
        let around = Around {
            before: values_of(&self.before, document, collator)?,
            descending: self.descending,
            after: values_of(&self.after, document, collator)?,
        };
        let path = String::with_capacity(64);
        let mut walk = Walk { out, around, collator, path, multikey: Multikey::default() };
        walk.fields(document, self.taken())?;
        let Walk { out, around, multikey, .. } = walk;
        if out.is_empty() && self.is_compound() {
            out.push_pair(&around, RawValue::MinKey, RawValue::MinKey, collator)?;
        }
        out.sort()?;
        Ok(multikey)
    }

    fn depends_on(&self, _spec: &IndexSpec, touched: &impl Fn(&Path) -> bool) -> bool {
        let mut others = self.before.iter().chain(&self.after);
        self.root.as_ref().is_none_or(touched) || others.any(|part| touched(&part.path))
    }

    fn has_every_document(&self) -> bool {
        false
    }

    fn leaves_out_missing_at(&self, _spec: &IndexSpec, part: usize) -> bool {
        part == self.value_part()
    }

    /// A missing field has no key at its path.
    fn tells_null_from_missing(&self, index: &Index, part: usize) -> bool {
        self.viewed_part(index) == Some(part)
    }

    fn is_seen_by_path(&self) -> bool {
        true
    }

    fn view(&self, index: &Arc<Index>, path: &Path) -> Option<Arc<Index>> {
        view::of_path(self, index, path)
    }

    fn views(&self, index: &Arc<Index>, paths: &[Path], views: &mut Vec<Arc<Index>>) {
        views.extend(paths.iter().filter_map(|path| view::of_path(self, index, path)));
        views.extend(view::of_beginning(self, index));
    }

    fn leading_part(&self, index: &Index) -> usize {
        self.viewed_part(index).unwrap_or(0)
    }

    fn bounds(
        &self,
        index: &Index,
        part: usize,
        predicate: &Predicate,
        traits: PartTraits<'_>,
    ) -> Option<Bounds> {
        let path = &index.spec.key[part].path;
        match self.viewed_part(index) == Some(part) {
            true => view::adapt(self, index, path, predicate, bounds_of(predicate, traits)?),
            false => value_bounds(path, predicate, traits),
        }
    }

    /// The bounds of the path follow from those of the value.
    fn complete_bounds(&self, index: &Index, bounds: &mut [IntervalList]) {
        if let Some(value) = self.viewed_part(index) {
            bounds[value - 1] = view::path_bounds(index, value, &bounds[value]);
        }
    }

    /// More than one path may be met. Keys that were cut off do not show theirs.
    fn may_repeat_records(&self, index: &Index, bounds: &[IntervalList]) -> bool {
        !bounds[self.path_part()].is_point() || index.multikey.has_long_keys()
    }

    /// Not every document has a key, and most have several.
    fn whole_index_refusal(&self) -> &'static str {
        "$hint: refusing to build whole-index solution, because it's a wildcard index"
    }
}

/// The part of a key that holds the path.
fn path_part() -> KeyPart {
    KeyPart { path: Path::parse("$_path"), descending: false, holds: Holds::Path }
}

impl Wildcard {
    pub fn is_wildcard(path: &str) -> bool {
        path == "$**" || path.ends_with(".$**")
    }

    /// The part of a view that holds the value at its path, if it has one.
    fn viewed_part(&self, index: &Index) -> Option<usize> {
        let part = self.value_part();
        (part < index.spec.key.len()).then_some(part)
    }

    /// The part of the key that holds the path; the value's is the next.
    fn path_part(&self) -> usize {
        self.before.len()
    }

    fn value_part(&self) -> usize {
        self.before.len() + 1
    }

    fn is_compound(&self) -> bool {
        !self.before.is_empty() || !self.after.is_empty()
    }

    /// Fields of documents may be left out: an empty document in a key need not be one.
    fn empties_documents(&self) -> bool {
        self.projection.is_some()
    }

    /// Whether every value at this path has a key.
    fn covers(&self, path: &str) -> bool {
        let mut taken = self.taken();
        for name in path.split('.') {
            match taken.below(name) {
                Some(below) => taken = below,
                None => return false,
            }
        }
        !matches!(taken, Taken::Only(_))
    }

    fn taken(&self) -> Taken<'_> {
        match &self.selection {
            Selection::Only(names) => Taken::Only(names),
            Selection::AllBut(names) => Taken::AllBut(names),
        }
    }
}

/// The values of a compound key's other parts, each with its direction.
fn values_of<'a>(
    parts: &[KeyPart],
    document: RawDocument<'a>,
    collator: Option<&dyn Collator>,
) -> Result<Vec<(RawValue<'a>, bool)>> {
    let value = |part: &KeyPart| match value_at(document, &part.path) {
        Some(RawValue::Array(_)) => Err(Error::location(
            7_246_301,
            format!(
                "a compound wildcard index takes arrays at the paths of its wildcard only. Found an array at path: {}",
                part.path
            ),
        )),
        value => {
            let value = value.unwrap_or(RawValue::Null);
            check_collatable(part.path.as_str(), value, collator)?;
            Ok((value, part.descending))
        }
    };
    parts.iter().map(value).collect()
}

/// The paths of a `wildcardProjection`, however they are nested, and the values there.
fn projected_paths(projection: RawDocument<'_>) -> Vec<(String, RawValue<'_>)> {
    let mut paths = Vec::new();
    collect_paths("", projection, &mut paths);
    paths
}

/// Recursion is bounded by the depth of a document.
fn collect_paths<'p>(above: &str, projection: RawDocument<'p>, out: &mut Vec<(String, RawValue<'p>)>) {
    for (name, value) in projection {
        let path = if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") };
        match value {
            RawValue::Document(below) if !below.is_empty() => collect_paths(&path, below, out),
            value => out.push((path, value)),
        }
    }
}

/// Whether a value of a projection takes its path.
fn takes(value: RawValue<'_>) -> bool {
    match value {
        RawValue::Bool(value) => value,
        value => kilim_bson::compare(value, RawValue::Int32(0)).is_ne(),
    }
}

impl Selection {
    /// `_id` is left out unless it is asked for.
    fn parse(projection: RawDocument<'_>) -> Selection {
        let paths = projected_paths(projection);
        let only = paths.iter().any(|(path, value)| path != "_id" && takes(*value))
            || paths.iter().all(|(path, value)| path == "_id" && takes(*value));
        let takes_id = paths.iter().any(|(path, value)| path == "_id" && takes(*value));
        let mut names = Names::new();
        for (path, _) in paths.iter().filter(|(path, _)| path != "_id") {
            add_name(&mut names, &Path::parse(path));
        }
        if takes_id == only {
            names.push(("_id".into(), Name::Whole));
        }
        if only { Selection::Only(names) } else { Selection::AllBut(names) }
    }
}

/// Paths of a checked projection do not meet.
fn add_name(mut names: &mut Names, path: &Path) {
    let (last, before) = path.components().split_last().expect("a path has a component");
    for component in before {
        let at = names.iter().position(|(name, _)| *name == component.name).unwrap_or_else(|| {
            names.push((component.name.clone(), Name::Within(Names::new())));
            names.len() - 1
        });
        match &mut names[at].1 {
            Name::Within(below) => names = below,
            Name::Whole => return,
        }
    }
    names.push((last.name.clone(), Name::Whole));
}

impl<'w> Taken<'w> {
    /// What is taken of the value of a field; none where the field is left out.
    fn below(self, name: &str) -> Option<Taken<'w>> {
        let find =
            |names: &'w Names| names.iter().find(|(other, _)| **other == *name).map(|(_, found)| found);
        match self {
            Taken::All => Some(Taken::All),
            Taken::Only(names) => match find(names)? {
                Name::Whole => Some(Taken::All),
                Name::Within(below) => Some(Taken::Only(below)),
            },
            Taken::AllBut(names) => match find(names) {
                None => Some(Taken::All),
                Some(Name::Whole) => None,
                Some(Name::Within(below)) => Some(Taken::AllBut(below)),
            },
        }
    }
}

struct Walk<'o, 'd> {
    out: &'o mut KeySet,
    around: Around<'d>,
    collator: Option<&'o dyn Collator>,
    path: String,
    multikey: Multikey,
}

impl Walk<'_, '_> {
    fn push(&mut self, value: RawValue<'_>) -> Result<()> {
        check_collatable(&self.path, value, self.collator)?;
        self.out.push_pair(&self.around, RawValue::String(&self.path), value, self.collator)
    }

    /// The fields of a document; whether any were taken.
    ///
    /// Recursion is bounded by the depth of a stored document.
    fn fields(&mut self, document: RawDocument<'_>, taken: Taken<'_>) -> Result<bool> {
        let length = self.path.len();
        let (mut any, mut unnamed) = (false, false);
        for (name, value) in document.iter() {
            if name.contains('.') {
                unnamed |= !matches!(taken, Taken::Only(_));
                continue;
            }
            let Some(below) = taken.below(name) else { continue };
            if matches!(below, Taken::Only(_)) && !matches!(value, RawValue::Document(_) | RawValue::Array(_))
            {
                continue;
            }
            any = true;
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            match value {
                RawValue::Array(array) => self.array(array, below)?,
                RawValue::Document(document) => self.document(document, below)?,
                value => self.push(value)?,
            }
            self.path.truncate(length);
        }
        if unnamed && length > 0 {
            self.path.push('.');
            self.path.push(NESTED);
            self.push(RawValue::Null)?;
            self.path.truncate(length);
        }
        Ok(any || unnamed)
    }

    fn document(&mut self, document: RawDocument<'_>, taken: Taken<'_>) -> Result<()> {
        if !self.fields(document, taken)? {
            self.push(RawValue::Document(RawDocument::empty()))?;
        }
        Ok(())
    }

    fn array(&mut self, array: RawArray<'_>, taken: Taken<'_>) -> Result<()> {
        self.multikey.note_array_at(&self.path);
        let mut any = false;
        for element in array.iter() {
            match element {
                RawValue::Document(document) => self.document(document, taken)?,
                _ if matches!(taken, Taken::Only(_)) => continue,
                value => {
                    if matches!(value, RawValue::Array(_)) {
                        self.multikey.note_array_at(&format!("{}{NESTED}", self.path));
                    }
                    self.push(value)?;
                }
            }
            any = true;
        }
        if !any {
            self.push(RawValue::Undefined)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{Value, array, doc};

    use super::*;
    use crate::index::{IndexKind, decode_entry_key, keys_of};

    fn spec(key: Document, projection: Option<Document>) -> IndexSpec {
        IndexSpec {
            key: KeyPart::all_of(key.as_raw()),
            kind: IndexKind::of(key.as_raw(), projection.as_ref().map(Document::as_raw)),
            key_document: key,
            unique: false,
            ..IndexSpec::id(None)
        }
    }

    fn keys(spec: &IndexSpec, document: Document) -> Vec<String> {
        let mut set = KeySet::default();
        keys_of(spec, document.as_raw(), &mut set).unwrap();
        let shown = |(key, bits): (&[u8], &[u8])| match &decode_entry_key(spec, key, bits)[..] {
            [Value::String(path), value] => format!("{path}={:?}", value.as_raw()),
            other => panic!("{other:?} is no path and value"),
        };
        set.iter().map(shown).collect()
    }

    #[test]
    fn every_path_to_a_value_has_a_key() {
        let all = spec(doc! {"$**": 1}, None);
        let found = keys(
            &all,
            doc! {
                "_id": 1, "a": 1, "b": {"c": 2, "d": {}}, "e": [], "f": [1, {"g": 2}, {"g": 3}, {}, [4, 5]],
                "h": {"x.y": 1}, "k.l": 1,
            },
        );
        assert_eq!(
            found,
            [
                "a=Int32(1)",
                "b.c=Int32(2)",
                "b.d=Document({})",
                "e=Undefined",
                "f=Int32(1)",
                "f=Document({})",
                "f=Array([Int32(4), Int32(5)])",
                "f.g=Int32(2)",
                "f.g=Int32(3)",
                "h.\0=Null",
            ]
        );
    }

    #[test]
    fn in_a_compound_index_other_values_stand_around() {
        let around = spec(doc! {"t": -1, "a.$**": -1, "z": 1}, None);
        let shown = |document: Document| -> Vec<String> {
            let mut set = KeySet::default();
            keys_of(&around, document.as_raw(), &mut set).unwrap();
            let values = |(key, bits)| decode_entry_key(&around, key, bits);
            let shown = |value: &Value| format!("{:?}", value.as_raw());
            set.iter().map(|key| values(key).iter().map(shown).collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(
            shown(doc! {"t": 1, "a": {"b": array![1, 2], "c": 3}, "z": 4}),
            [
                "Int32(1) String(\"a.b\") Int32(2) Int32(4)",
                "Int32(1) String(\"a.b\") Int32(1) Int32(4)",
                "Int32(1) String(\"a.c\") Int32(3) Int32(4)",
            ],
            "values descend, paths do not"
        );
        assert_eq!(shown(doc! {"t": 1, "b": 1}), ["Int32(1) MinKey MinKey Null"]);
        let mut set = KeySet::default();
        for document in [doc! {"t": array![1], "a": 1}, doc! {"t": 1, "z": array![]}] {
            assert!(
                keys_of(&around, document.as_raw(), &mut set).is_err(),
                "{document:?} has an array elsewhere"
            );
        }
    }

    #[test]
    fn a_compound_index_depends_on_all_its_fields() {
        let depends =
            |key: Document, touched: &str| spec(key, None).depends_on(|path| path.as_str() == touched);
        let key = || doc! {"t": 1, "a.$**": 1, "z": 1};
        assert!(depends(key(), "t") && depends(key(), "a") && depends(key(), "z"));
        assert!(!depends(key(), "b"));
    }

    #[test]
    fn a_projection_takes_or_leaves_out() {
        let document = || doc! {"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "e": array![{"c": 1}, 7]};
        let check = |projection: Document, expected: &[&str]| {
            assert_eq!(keys(&spec(doc! {"$**": 1}, Some(projection)), document()), expected);
        };
        check(doc! {"a": 1, "b.c": 1}, &["a=Int32(1)", "b.c=Int32(2)"]);
        check(doc! {"_id": 1, "b": 1}, &["_id=Int32(1)", "b.c=Int32(2)", "b.d=Int32(3)"]);
        check(doc! {"_id": 1}, &["_id=Int32(1)"]);
        check(doc! {"b.c": 0, "e": 0}, &["a=Int32(1)", "b.d=Int32(3)"]);
        check(doc! {"_id": 1, "a": 0, "b": 0}, &["_id=Int32(1)", "e=Int32(7)", "e.c=Int32(1)"]);
        check(doc! {"e.c": 0, "b": 0}, &["a=Int32(1)", "e=Int32(7)", "e=Document({})"]);
        check(doc! {"e.d": 1}, &["e=Document({})"]);
        check(doc! {"b": {"c": 1}, "a": true}, &["a=Int32(1)", "b.c=Int32(2)"]);
        check(
            doc! {"b": {"c": 0}, "e": {"c": false}},
            &["a=Int32(1)", "b.d=Int32(3)", "e=Int32(7)", "e=Document({})"],
        );
        assert_eq!(keys(&spec(doc! {"b.$**": 1}, None), document()), ["b.c=Int32(2)", "b.d=Int32(3)"]);
    }

    #[test]
    fn paths_are_covered_where_every_value_has_a_key() {
        let covers = |key: Document, projection: Option<Document>, path: &str| {
            Wildcard::of(key.as_raw(), projection.as_ref().map(Document::as_raw)).covers(path)
        };
        let all = || doc! {"$**": 1};
        assert!(covers(all(), None, "a.b"));
        assert!(!covers(all(), None, "_id"));
        assert!(covers(doc! {"a.b.$**": 1}, None, "a.b"));
        assert!(covers(doc! {"a.b.$**": 1}, None, "a.b.c"));
        assert!(!covers(doc! {"a.b.$**": 1}, None, "a"));
        assert!(!covers(all(), Some(doc! {"a.b": 1}), "a"));
        assert!(covers(all(), Some(doc! {"a.b": 0}), "a"));
        assert!(!covers(all(), Some(doc! {"a.b": 0}), "a.b.c"));
        assert!(covers(all(), Some(doc! {"_id": 1, "a": 0}), "_id"));
        assert!(!covers(all(), Some(doc! {"a": 0}), "_id"));
    }
}
