//! Text indexes: a key for each term of a document's texts, with its score.
//!
//! A key has the values of the fields before the texts, the term, the score, and the values of the fields behind. The planner
//! uses it for `$text` alone (module `plan::text`), and reads the best scores first.
//!
//! Invariant: terms and scores of a document are those that mongod has for it ([`kilim_text`]).

mod kept;
mod matcher;
mod options;
mod texts;

use std::collections::BTreeMap;
use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::digest::Md5;
use kilim_query::filter::Predicate;
use kilim_query::text::document as shell_text;
use kilim_text::{Language, Scores, Version, murmur3};

use self::kept::{Kept, remembering};
use super::{Index, IndexSpec, KeyPart, KeySet, Kind, KindOptions, Multikey};
use crate::bounds::{Bounds, PartTraits};
use crate::index::Holds;
use crate::index::keys::follow;

pub use matcher::BoundSearch;

/// The part of the key that has the term, and the one behind it, with the score.
pub(super) const TERM: &str = "_fts";
pub(super) const SCORE: &str = "_ftsx";
/// In place of a path: all of them.
const EVERYTHING: &str = "$**";

#[derive(Debug, Clone, PartialEq)]
pub struct Text(Arc<Definition>);

#[derive(Debug, PartialEq)]
struct Definition {
    /// By path. Paths that are not here have the weight 1, if the index has all.
    weights: BTreeMap<Box<str>, i32>,
    has_everything: bool,
    /// As it was given.
    default_language: Box<str>,
    language: Language,
    /// The field that has the language of a document.
    override_field: Box<str>,
    version: Version,
    /// Parts of the key before the term.
    before: usize,
}

/// They know the terms of many words.
static SCORES: Kept<Scores> = Kept::new(Scores::clear);

impl Kind for Text {
    const NAME: Option<&'static str> = Some("text");

    fn is_kind_of(key: RawDocument<'_>) -> bool {
        key.iter().any(|(_, direction)| is_text(direction))
    }

    fn takes_option(name: &str) -> bool {
        matches!(name, "weights" | "default_language" | "language_override" | "textIndexVersion")
    }

    fn of(key: RawDocument<'_>, _projection: Option<RawDocument<'_>>) -> Text {
        let fields = key.iter().filter(|(path, direction)| is_text(*direction) && *path != TERM);
        let weights: BTreeMap<Box<str>, i32> = fields.map(|(path, _)| (path.into(), 1)).collect();
        Text(Arc::new(Definition {
            has_everything: weights.contains_key(EVERYTHING),
            weights,
            default_language: "english".into(),
            language: Language::parse("english", Version::Three).unwrap_or(Language::NONE),
            override_field: "language".into(),
            version: Version::Three,
            before: key.iter().take_while(|(_, direction)| !is_text(*direction)).count(),
        }))
    }

    fn with_options(self, spec: RawDocument<'_>) -> Text {
        let mut definition = Text::definition(self);
        options::read(&mut definition, spec);
        Text(Arc::new(definition))
    }

    fn stored_key(&self, key: RawDocument<'_>) -> Document {
        let mut stored = Document::new();
        for (path, direction) in key {
            match is_text(direction) {
                true if stored.get(TERM).is_none() => {
                    stored.push(TERM, "text");
                    let given = key.get(SCORE).filter(|_| path == TERM).unwrap_or(RawValue::Int32(1));
                    stored.push(SCORE, given.to_value());
                }
                true => {}
                false if path == SCORE => {}
                false => stored.push(path, direction.to_value()),
            }
        }
        stored
    }

    fn parts(key: RawDocument<'_>) -> Vec<KeyPart> {
        let mut parts = KeyPart::fields_of(key);
        for part in &mut parts {
            match part.path.as_str() {
                TERM => part.holds = Holds::Term,
                SCORE => part.holds = Holds::Score,
                _ => {}
            }
        }
        parts
    }

    fn check_key(key: RawDocument<'_>) -> Result<()> {
        options::check_key(key)
    }

    fn check_options(
        key: RawDocument<'_>,
        _projection: Option<RawDocument<'_>>,
        options: &KindOptions<'_>,
        spec: RawDocument<'_>,
    ) -> Result<()> {
        options::check(key, options, spec)
    }

    fn append_options(&self, out: &mut Writer) {
        let definition = &self.0;
        out.open_document("weights");
        for (path, weight) in &definition.weights {
            out.append(path, RawValue::Int32(*weight));
        }
        out.close();
        out.append("default_language", RawValue::String(&definition.default_language));
        out.append("language_override", RawValue::String(&definition.override_field));
        out.append("textIndexVersion", RawValue::Int32(definition.version.number()));
    }

    fn add_keys(&self, spec: &IndexSpec, document: RawDocument<'_>, out: &mut KeySet) -> Result<Multikey> {
        let around = self.values_around(spec, document)?;
        let (before, after) = around.split_at(self.0.before);
        SCORES.lend(document, |scores| {
            self.add_scores(document, scores)?;
            let mut short = String::new();
            for (term, score) in scores.iter() {
                let term = self.short_term(term, &mut short);
                let own = [RawValue::String(term), RawValue::Double(score)];
                out.push(spec, before.iter().copied().chain(own).chain(after.iter().copied()))?;
            }
            out.sort()?;
            let mut multikey = Multikey::default();
            if scores.len() > 1 {
                multikey.bits = vec![0; self.0.before + 1];
                multikey.bits[self.0.before] = 1;
            }
            Ok(multikey)
        })
    }

    /// Values of fields beside the texts are no arrays.
    fn takes_arrays(&self) -> bool {
        false
    }

    fn depends_on(&self, spec: &IndexSpec, touched: &impl Fn(&Path) -> bool) -> bool {
        let definition = &self.0;
        let on_text = |path: &str| {
            let names: Vec<&str> = path.split('.').collect();
            touched(&Path::parse(path))
                || (0..names.len()).any(|length| {
                    let mut language = names[..length].to_vec();
                    language.push(&definition.override_field);
                    touched(&Path::parse(&language.join(".")))
                })
        };
        definition.has_everything
            || definition.weights.keys().any(|path| on_text(path))
            || spec.key.iter().any(|part| part.holds == Holds::Value && touched(&part.path))
    }

    fn has_every_document(&self) -> bool {
        false
    }

    /// Only `$text` is answered by it.
    fn views(&self, _index: &Arc<Index>, _paths: &[Path], _views: &mut Vec<Arc<Index>>) {}

    fn bounds(
        &self,
        _index: &Index,
        _part: usize,
        _predicate: &Predicate,
        _traits: PartTraits<'_>,
    ) -> Option<Bounds> {
        None
    }

    fn may_repeat_records(&self, _index: &Index, bounds: &[crate::bounds::IntervalList]) -> bool {
        !bounds[self.0.before].is_point()
    }
}

impl Text {
    fn definition(self) -> Definition {
        match Arc::try_unwrap(self.0) {
            Ok(definition) => definition,
            Err(shared) => Definition {
                weights: shared.weights.clone(),
                default_language: shared.default_language.clone(),
                override_field: shared.override_field.clone(),
                ..*shared
            },
        }
    }

    pub(crate) fn version(&self) -> Version {
        self.0.version
    }

    /// The language of a search that names none.
    pub(crate) fn language(&self) -> Language {
        self.0.language
    }

    /// How many parts of the key come before the term.
    pub(crate) fn parts_before(&self) -> usize {
        self.0.before
    }

    /// A term as keys have it: one that is too long is cut, with a hash of the whole behind. On disk.
    pub(crate) fn short_term<'t>(&self, term: &'t str, buffer: &'t mut String) -> &'t str {
        let (bytes_max, kept, hash) = match self.0.version {
            Version::One => return term,
            Version::Two if term.len() < 64 => return term,
            Version::Three if term.len() < 256 => return term,
            Version::Two => (64, 32, murmur3(term.as_bytes())),
            Version::Three => (256, 224, Md5::of(term.as_bytes())),
        };
        buffer.clear();
        buffer.reserve(bytes_max);
        buffer.push_str(&term[..term.floor_char_boundary(kept)]);
        buffer.extend(
            hash.iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or('0')),
        );
        buffer
    }

    /// The values of the fields beside the texts, in the order of the key.
    fn values_around<'a>(&self, spec: &IndexSpec, document: RawDocument<'a>) -> Result<Vec<RawValue<'a>>> {
        let fields = spec.key.iter().filter(|part| part.holds == Holds::Value);
        let values = fields.map(|part| match follow(document, &part.path).0 {
            Some(RawValue::Array(_)) => Err(Error::user(
                ErrorCode::CannotBuildIndexKeys,
                format!(
                    "Field '{}' of text index contains an array in document: {}",
                    part.path,
                    shell_text(document)
                ),
            )),
            found => Ok(found.unwrap_or(RawValue::Null)),
        });
        values.collect()
    }

    /// Adds what the document's texts have of each term.
    fn add_scores(&self, document: RawDocument<'_>, scores: &mut Scores) -> Result<()> {
        self.each_text(document, &mut |text, weight, language| {
            remembering(document, || scores.add(text, weight, language, self.0.version));
        })
    }
}

impl super::IndexKind {
    /// A collection has one text index.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, super::IndexKind::Text(_))
    }
}

pub(super) fn is_text(direction: RawValue<'_>) -> bool {
    matches!(direction, RawValue::String("text"))
}
