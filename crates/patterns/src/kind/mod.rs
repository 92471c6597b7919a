//! The kinds of patterns: what each must be able to say.
//!
//! A kind is a folder here and a line of [`KINDS`]. It parses its own document, and from then on it is a `dyn Kind`:
//! nobody else knows which kind a pattern is of. Whoever runs patterns asks once per change and pattern, or once per
//! document that is written.

mod attribute;
mod bucket;
mod computed;
mod extended_reference;
mod outlier;
mod polymorphic;
mod rules;
mod schema_version;
mod subset;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt::Debug;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value};
use kilim_error::{Error, Result};
use kilim_query::filter::Filter;
use kilim_query::sort::Pair;

use crate::declaration::Options;
use crate::effect::{Change, Due, DueByKey, Effect, Reader, Role, Sight};
use crate::path::with_value;
use crate::rollup::Rollup;

pub use self::bucket::{Bucketing, Packed, Place};
pub use self::outlier::{Paging, bytes_of, elements_of, extended_page, page, page_len};
pub use self::rules::{Breach, Judgement, Rules};
pub use self::schema_version::{OnError, VersionCheck, VersionStep, Versions};
pub use self::tree::{Forest, LabelSide, Nodes, Position, Shift, Step, StoredRange, Tree, stored_ranges};

type Parse = fn(RawDocument<'_>) -> Result<Arc<dyn Kind>>;

/// The kinds by the names they are declared with.
pub(crate) const KINDS: [(&str, Parse); 9] = [
    ("extendedReference", extended_reference::parse),
    ("computed", computed::parse),
    ("subset", subset::parse),
    ("polymorphic", polymorphic::parse),
    ("attribute", attribute::parse),
    ("tree", tree::parse),
    ("schemaVersion", schema_version::parse),
    ("outlier", outlier::parse),
    ("bucket", bucket::parse),
];

/// What a pattern does, and what it needs for it.
///
/// Invariant: what effects keep true equals what [`Kind::corrected`] and, for groups, [`Kind::rollup`] compute from
/// scratch, after any history.
pub trait Kind: Debug + Send + Sync {
    /// The paths of the target that belong to it.
    fn maintained_paths(&self) -> Vec<Box<str>>;

    /// The paths of the target that its effects may write: those that belong to it, and others.
    fn written_paths(&self) -> Vec<Box<str>> {
        self.maintained_paths()
    }

    /// The paths of the target that are the users', and that it may remove.
    fn removed_paths(&self) -> Vec<Box<str>> {
        Vec::new()
    }

    /// What a change means. Effects are appended in the order in which they are to be applied.
    fn evaluate(&self, change: &Change<'_>, reader: &mut dyn Reader, effects: &mut Vec<Effect>)
    -> Result<()>;

    /// What it reads, apart from what it maintains itself.
    fn readings(&self) -> Readings;

    /// The source collection; none for a pattern within one document.
    fn source(&self) -> Option<&str> {
        None
    }

    /// Refuses options that do not go with it.
    fn check_options(&self, _options: &Options) -> Result<()> {
        Ok(())
    }

    /// Whether another value of this field of its document asks for other data, so that data that is there must be filled
    /// again.
    fn is_about_data(&self, _field: &str) -> bool {
        true
    }

    /// Where it finds documents by a key that is theirs alone, and the key's field.
    fn found_by(&self) -> Option<(Role, &str)> {
        None
    }

    /// The indexes that it works with.
    fn indexes(&self) -> Vec<WantedIndex> {
        Vec::new()
    }

    /// The path by which its targets have the keys that something can be due to.
    fn key_path(&self) -> Option<&str> {
        None
    }

    /// The different keys of a target that something can be due to, in order.
    fn keys_of(&self, _target: RawDocument<'_>) -> Vec<Value> {
        Vec::new()
    }

    /// Whether a target has a key.
    fn refers(&self, _target: RawDocument<'_>, _key: RawValue<'_>) -> bool {
        false
    }

    /// What a target becomes by what is due to one of its keys.
    fn becomes(&self, _target: RawDocument<'_>, _key: RawValue<'_>, _due: &Due) -> Result<Sight> {
        Ok(Sight::AsStored)
    }

    /// A target as readers see it while this is due.
    fn see(&self, _target: RawDocument<'_>, _due: &DueByKey) -> Result<Sight> {
        Ok(Sight::AsStored)
    }

    /// What is due by now where another definition left something due, given the source of the key; none where nothing is.
    fn renewed(&self, _due: &Due, _source: Option<RawDocument<'_>>) -> Option<Due> {
        None
    }

    /// A target with the fields that it must have; none where it has them, or groups tell ([`Kind::rollup`]).
    fn corrected(&self, target: RawDocument<'_>, reader: &mut dyn Reader) -> Result<Option<Document>>;

    /// A target without what is maintained; none where it has nothing of it.
    fn stripped(&self, target: RawDocument<'_>) -> Result<Option<Document>> {
        let paths = self.maintained_paths();
        let without = |made: Document, path: &str| with_value(made.as_raw(), path, None);
        let made = paths.iter().fold(target.to_document(), |made, path| without(made, path));
        Ok((made.as_bytes() != target.as_bytes()).then_some(made))
    }

    /// The groups that it keeps, where it keeps any.
    fn rollup(&self) -> Option<&Rollup> {
        None
    }

    /// The tree that it keeps, where it keeps one.
    fn tree(&self) -> Option<&Tree> {
        None
    }

    /// The step between two versions that it declares, where it declares one.
    fn version_step(&self) -> Option<&Arc<VersionStep>> {
        None
    }

    /// How it divides documents with long arrays, where it does.
    fn paging(&self) -> Option<&Arc<Paging>> {
        None
    }

    /// How it packs many documents into one record, where it does.
    fn bucketing(&self) -> Option<&Arc<Bucketing>> {
        None
    }

    /// What it asks of the documents that users write, where it asks anything.
    fn rules(&self) -> Option<&dyn Rules> {
        None
    }

    /// Whether targets are made or removed by it.
    fn comes_and_goes(&self) -> bool {
        false
    }

    /// Whether a document that comes or goes means something for others of its target.
    fn relates_targets(&self) -> bool {
        false
    }

    /// Whether targets are made by it.
    fn makes_documents(&self) -> bool {
        self.rollup().is_some_and(Rollup::inserts_parents)
    }

    /// Whether a deleted source means something for its targets.
    fn notices_deletion(&self) -> bool {
        false
    }

    /// The error of a source that cannot be deleted because of a target; none where sources always can.
    fn restricted(&self, _title: &Title<'_>, _target: RawDocument<'_>, _key: RawValue<'_>) -> Option<Error> {
        None
    }

    /// Whether a source is kept while a target refers to it.
    fn restricts(&self) -> bool {
        false
    }

    /// Whether a path that lies within what is maintained is the users' to write all the same.
    fn is_user_path(&self, _path: &str) -> bool {
        false
    }

    /// What a user does who wants another value of a maintained path, where that is not to change the source.
    fn way_out(&self, _path: &str) -> Option<String> {
        None
    }

    /// The source's path that a maintained path is a copy of, where it is one.
    fn path_in_source(&self, _path: &str) -> Option<&str> {
        None
    }

    /// Whether users may ask for documents in another form than that in which they are stored.
    fn rewrites(&self) -> bool {
        false
    }

    /// What a user's filter means for documents as they are stored; none where it means itself. `is_filled`: all documents
    /// are stored so; otherwise some may be as they were before the declaration.
    fn meaning(&self, _filter: &Filter, _is_filled: bool) -> Result<Option<Filter>> {
        Ok(None)
    }

    /// A filter in the words of its index, all documents being filled; none where the index does not serve it.
    fn served(&self, _filter: &Filter) -> Option<Served> {
        None
    }

    /// Where documents as they are stored have what a user sorts by this path; none where it is at that path.
    fn sorts_by(&self, _path: &str) -> Option<Pair> {
        None
    }

    /// What `explain` tells of it beside what it tells of every pattern.
    fn explained(&self) -> Document {
        Document::new()
    }
}

/// A filter in the words of a pattern's index.
#[derive(Debug, Clone)]
pub enum Served {
    /// To be asked in the filter's place: it matches the same documents as they are stored.
    Instead(Filter),
    /// The index serves the filter as it is; these words are for people.
    AsItIs(Filter),
}

/// What a pattern reads.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// Paths of the source; none stands for all of it.
    pub source: Option<Vec<Box<str>>>,
    pub target: Vec<Box<str>>,
}

/// An index that a pattern works with.
#[derive(Debug, Clone)]
pub struct WantedIndex {
    pub role: Role,
    pub key: Document,
    /// Further options, as `createIndexes` has them.
    pub options: Document,
    /// One that has more parts behind these does not serve.
    pub exact: bool,
}

impl WantedIndex {
    /// Whether two documents with the same key are refused.
    pub fn is_unique(&self) -> bool {
        matches!(self.options.get("unique"), Some(RawValue::Bool(true)))
    }

    /// One over all documents, by which they are found.
    pub(crate) fn over(role: Role, key: Document, exact: bool) -> WantedIndex {
        WantedIndex { role, key, options: Document::new(), exact }
    }
}

/// What a pattern is called in messages.
#[derive(Debug, Clone, Copy)]
pub struct Title<'t> {
    pub target: &'t str,
    pub source: &'t str,
    pub name: &'t str,
}
