//! The kinds of indexes: what each must be able to say.
//!
//! A kind is a file here and a line of [`index_kinds!`]. It says which keys a document has, which bounds a predicate gives,
//! how the planner sees the index, and which options it takes. Everybody else asks [`IndexKind`]. It is an enum, not a trait
//! object: keys are made for every document that is written.

pub(crate) mod geo;
mod hashed;
mod ordered;
mod text;
mod wildcard;

use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Predicate;
use kilim_query::text::document as shell_text;

pub use geo::{TwoD, TwoDSphere, TwoDSphereBucket};
pub use hashed::{Hashed, hash_of};
pub use ordered::Ordered;
pub use text::{BoundSearch, Text};
pub use wildcard::Wildcard;

use super::{Index, IndexSpec, KeyPart, KeySet, Multikey};
use crate::bounds::{Bounds, IntervalList, PartTraits};

/// Options of an index that some kinds refuse.
#[derive(Default)]
pub struct KindOptions<'a> {
    pub unique: bool,
    pub sparse: bool,
    /// It has `expireAfterSeconds`.
    pub expires: bool,
    pub version: i64,
    /// `wildcardProjection`.
    pub projection: Option<RawValue<'a>>,
    /// Its collation, if that is not the simple one.
    pub collation: Option<RawDocument<'a>>,
}

/// What a kind of index must be able to say. The defaults are right for a kind whose key parts hold the values at their
/// paths.
trait Kind: Sized {
    /// What a key has in place of a direction for this kind, if it has something.
    const NAME: Option<&'static str> = None;

    /// Whether a key is of this kind.
    fn is_kind_of(key: RawDocument<'_>) -> bool;

    /// An index of a checked key and a checked `wildcardProjection`.
    fn of(key: RawDocument<'_>, projection: Option<RawDocument<'_>>) -> Self;

    /// Whether it has an option of its own by this name.
    fn takes_option(_name: &str) -> bool {
        false
    }

    /// Itself with the options of its own that a checked specification has.
    fn with_options(self, _spec: RawDocument<'_>) -> Self {
        self
    }

    /// The key as it is stored and listed, for a checked key of this kind.
    fn stored_key(&self, key: RawDocument<'_>) -> Document {
        key.to_document()
    }

    /// The parts of its keys, for a checked key of this kind.
    fn parts(key: RawDocument<'_>) -> Vec<KeyPart> {
        KeyPart::fields_of(key)
    }

    /// Refuses names and values of a key that this kind cannot have. It is asked about keys of all kinds.
    fn check_key(_key: RawDocument<'_>) -> Result<()> {
        Ok(())
    }

    /// Checks a `wildcardProjection`.
    fn check_projection<'a>(_projection: RawValue<'a>, _key: RawDocument<'_>) -> Result<RawDocument<'a>> {
        let message = "The field 'wildcardProjection' is only allowed in an 'wildcard' index";
        Err(Error::user(ErrorCode::BadValue, message))
    }

    /// Refuses options that do not go with it. `spec` is the whole specification, for messages.
    fn check_options(
        _key: RawDocument<'_>,
        _projection: Option<RawDocument<'_>>,
        _options: &KindOptions<'_>,
        _spec: RawDocument<'_>,
    ) -> Result<()> {
        Ok(())
    }

    /// Appends its own options, as listIndexes shows them and the catalog stores them.
    fn append_options(&self, _out: &mut Writer) {}

    /// Adds a document's keys, and tells which components of the paths met arrays.
    fn add_keys(&self, spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey>;

    /// Whether documents with arrays have keys.
    fn takes_arrays(&self) -> bool {
        true
    }

    /// Whether keys may change if the paths change that `touched` accepts.
    fn depends_on(&self, spec: &IndexSpec, touched: &impl Fn(&Path) -> bool) -> bool {
        spec.key.iter().any(|part| touched(&part.path))
    }

    /// Whether every document has a key that tells its values, apart from what `sparse` and a partial filter leave out. Then the
    /// whole index can be read in place of the collection.
    fn has_every_document(&self) -> bool {
        true
    }

    /// Whether documents without a value at this part of the key are not in the index.
    fn leaves_out_missing_at(&self, spec: &IndexSpec, _part: usize) -> bool {
        spec.sparse
    }

    /// Whether null in this part of a key always is a null in the document, never a missing field.
    fn tells_null_from_missing(&self, _index: &Index, _part: usize) -> bool {
        false
    }

    /// Whether the planner sees it as one index for each path that a query names ([`Kind::views`]).
    fn is_seen_by_path(&self) -> bool {
        false
    }

    /// The index as one on a path; none if it does not have all values there.
    fn view(&self, index: &Arc<Index>, _path: &Path) -> Option<Arc<Index>> {
        Some(index.clone())
    }

    /// Adds the indexes that the planner sees in its place, for a query that names these paths.
    fn views(&self, index: &Arc<Index>, _paths: &[Path], views: &mut Vec<Arc<Index>>) {
        views.push(index.clone());
    }

    /// The part of the key that must have bounds if the index is to be used.
    fn leading_part(&self, _index: &Index) -> usize {
        0
    }

    /// The bounds that a predicate on the path of a part gives; none if the index cannot serve it.
    fn bounds(
        &self,
        index: &Index,
        part: usize,
        predicate: &Predicate,
        traits: PartTraits<'_>,
    ) -> Option<Bounds> {
        ordered::value_bounds(&index.spec.key[part].path, predicate, traits)
    }

    /// Sets the bounds of parts that no predicate is on, when those of the others are known.
    fn complete_bounds(&self, _index: &Index, _bounds: &mut [IntervalList]) {}

    /// Whether a scan may meet several keys of a document that has no arrays, or keys that do not tell the value at the path.
    fn may_repeat_records(&self, _index: &Index, _bounds: &[IntervalList]) -> bool {
        false
    }

    /// Why the planner refuses to read the whole index for a hint; empty where it does not.
    fn whole_index_refusal(&self) -> &'static str {
        ""
    }
}

/// Makes the enum of all kinds, and hands each question on to the kind.
macro_rules! index_kinds {
    ($($(#[$doc:meta])* $Kind:ident,)*) => {
        /// What kind of index it is.
        #[derive(Debug, Clone, PartialEq)]
        pub enum IndexKind {
            $($(#[$doc])* $Kind($Kind),)*
        }

        impl IndexKind {
            /// The kind of a checked key with a checked `wildcardProjection`.
            pub fn of(key: RawDocument<'_>, projection: Option<RawDocument<'_>>) -> IndexKind {
                $(if $Kind::is_kind_of(key) {
                    return IndexKind::$Kind($Kind::of(key, projection));
                })*
                IndexKind::Ordered(Ordered)
            }

            /// The kind that a specification asks for. Refuses options that do not go with it.
            pub fn parse(
                key: RawDocument<'_>,
                options: &KindOptions<'_>,
                spec: RawDocument<'_>,
            ) -> Result<IndexKind> {
                let in_spec =
                    |error: Error| error.during(&format!("Error in specification {}", shell_text(spec)));
                $(if $Kind::is_kind_of(key) {
                    let given = options.projection.map(|given| $Kind::check_projection(given, key));
                    let projection = given.transpose().map_err(in_spec)?;
                    $Kind::check_options(key, projection, options, spec)?;
                    return Ok(IndexKind::$Kind($Kind::of(key, projection).with_options(spec)));
                })*
                Ok(IndexKind::Ordered(Ordered))
            }

            /// Whether an index with this key has an option of its own by this name.
            pub fn takes_option(key: RawDocument<'_>, name: &str) -> bool {
                $(if $Kind::is_kind_of(key) {
                    return $Kind::takes_option(name);
                })*
                false
            }

            /// The kind with the options of its own that a stored specification has.
            pub(super) fn with_options(self, spec: RawDocument<'_>) -> IndexKind {
                match self { $(IndexKind::$Kind(kind) => IndexKind::$Kind(kind.with_options(spec)),)* }
            }

            /// The key as it is stored and listed.
            pub fn stored_key(&self, key: RawDocument<'_>) -> Document {
                match self { $(IndexKind::$Kind(kind) => kind.stored_key(key),)* }
            }

            /// The parts of keys, for a checked key.
            pub(super) fn parts(key: RawDocument<'_>) -> Vec<KeyPart> {
                $(if $Kind::is_kind_of(key) {
                    return $Kind::parts(key);
                })*
                KeyPart::fields_of(key)
            }

            /// Refuses names and values of a key that its kind cannot have.
            pub fn check_key(key: RawDocument<'_>) -> Result<()> {
                $($Kind::check_key(key)?;)*
                Ok(())
            }

            /// Refuses what a key has in place of a direction, unless it is the name of a kind.
            pub fn check_name(name: &str) -> Result<()> {
                let names = [$($Kind::NAME),*];
                match name {
                    name if names.contains(&Some(name)) => Ok(()),
                    name => Err(Error::user(
                        ErrorCode::CannotCreateIndex,
                        format!("Unknown index plugin '{name}'"),
                    )),
                }
            }

            pub(super) fn append_options(&self, out: &mut Writer) {
                match self { $(IndexKind::$Kind(kind) => kind.append_options(out),)* }
            }

            pub(super) fn add_keys(
                &self,
                spec: &IndexSpec,
                document: RawDocument<'_>,
                out: &mut KeySet,
            ) -> Result<Multikey> {
                match self { $(IndexKind::$Kind(kind) => kind.add_keys(spec, document, out),)* }
            }

            pub(crate) fn takes_arrays(&self) -> bool {
                match self { $(IndexKind::$Kind(kind) => kind.takes_arrays(),)* }
            }

            pub(super) fn depends_on(&self, spec: &IndexSpec, touched: &impl Fn(&Path) -> bool) -> bool {
                match self { $(IndexKind::$Kind(kind) => kind.depends_on(spec, touched),)* }
            }

            pub(crate) fn has_every_document(&self) -> bool {
                match self { $(IndexKind::$Kind(kind) => kind.has_every_document(),)* }
            }

            pub(super) fn leaves_out_missing_at(&self, spec: &IndexSpec, part: usize) -> bool {
                match self { $(IndexKind::$Kind(kind) => kind.leaves_out_missing_at(spec, part),)* }
            }

            pub(crate) fn tells_null_from_missing(&self, index: &Index, part: usize) -> bool {
                match self { $(IndexKind::$Kind(kind) => kind.tells_null_from_missing(index, part),)* }
            }

            pub(crate) fn is_seen_by_path(&self) -> bool {
                match self { $(IndexKind::$Kind(kind) => kind.is_seen_by_path(),)* }
            }

            pub(crate) fn leading_part(&self, index: &Index) -> usize {
                match self { $(IndexKind::$Kind(kind) => kind.leading_part(index),)* }
            }

            pub(crate) fn complete_bounds(&self, index: &Index, bounds: &mut [IntervalList]) {
                match self { $(IndexKind::$Kind(kind) => kind.complete_bounds(index, bounds),)* }
            }

            pub(crate) fn whole_index_refusal(&self) -> &'static str {
                match self { $(IndexKind::$Kind(kind) => kind.whole_index_refusal(),)* }
            }
        }

        impl Index {
            /// The index as one on a path; none if it does not have all values there.
            pub(crate) fn view(self: &Arc<Index>, path: &Path) -> Option<Arc<Index>> {
                match &self.spec.kind { $(IndexKind::$Kind(kind) => kind.view(self, path),)* }
            }

            /// Adds the indexes that the planner sees in its place, for a query that names these paths.
            pub(crate) fn add_views(self: &Arc<Index>, paths: &[Path], views: &mut Vec<Arc<Index>>) {
                match &self.spec.kind { $(IndexKind::$Kind(kind) => kind.views(self, paths, views),)* }
            }

            /// The bounds that a predicate on the path of a part gives; none if the index cannot serve it.
            pub(crate) fn bounds(
                &self,
                part: usize,
                predicate: &Predicate,
                traits: PartTraits<'_>,
            ) -> Option<Bounds> {
                match &self.spec.kind { $(IndexKind::$Kind(kind) => kind.bounds(self, part, predicate, traits),)* }
            }

            /// Whether a scan may meet several keys of a document that has no arrays, or keys that do not tell the value at
            /// the path.
            pub(crate) fn may_repeat_records(&self, bounds: &[IntervalList]) -> bool {
                match &self.spec.kind { $(IndexKind::$Kind(kind) => kind.may_repeat_records(self, bounds),)* }
            }
        }
    };
}

// A key is of the first kind that takes it. Every key is an ordered one, so that kind comes last.
impl IndexKind {
    /// Whether indexes of these kinds on the same key are one index. Weights, languages, bits and levels are options of it.
    pub(crate) fn is_one_with(&self, other: &IndexKind) -> bool {
        use IndexKind::{Text, TwoD, TwoDSphere, TwoDSphereBucket};
        let with_options = matches!(
            (self, other),
            (Text(_), Text(_))
                | (TwoD(_), TwoD(_))
                | (TwoDSphere(_), TwoDSphere(_))
                | (TwoDSphereBucket(_), TwoDSphereBucket(_))
        );
        with_options || self == other
    }

    /// Whether two kinds that are one have the same options. The version of a `2dsphere` index is none.
    pub(crate) fn has_options_of(&self, other: &IndexKind) -> bool {
        match (self, other) {
            (IndexKind::TwoDSphere(one), IndexKind::TwoDSphere(other)) => one.has_levels_of(other),
            (IndexKind::TwoDSphereBucket(one), IndexKind::TwoDSphereBucket(other)) => {
                one.has_levels_of(other)
            }
            (one, other) => one == other,
        }
    }
}

index_kinds! {
    /// A key for every term of the texts of a document.
    Text,
    /// A key for every path of a document.
    Wildcard,
    /// A part of the key holds a hash of the value.
    Hashed,
    /// Parts of the key hold cells of the sphere.
    TwoDSphere,
    /// Parts of the key hold cells of the sphere, for the measurements of buckets.
    TwoDSphereBucket,
    /// The first part of the key holds a cell of the plane.
    TwoD,
    /// The key holds the values at its paths.
    Ordered,
}
