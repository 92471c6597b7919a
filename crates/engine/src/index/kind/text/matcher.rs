//! A search bound to an index: whether a document has what is looked for.

use std::sync::Arc;

use kilim_bson::RawDocument;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::{TextMatcher, TextQuery};
use kilim_text::{Language, Search, Sensitivity, Terms};

use super::kept::{Kept, remembering};
use super::{SCORES, Text};
use crate::index::{Index, IndexKind};

/// What a `$text` asks of a collection's text index.
#[derive(Debug)]
pub struct BoundSearch {
    pub index: Arc<Index>,
    pub search: Search,
    language: Language,
}

static WORDS: Kept<Terms> = Kept::new(|words| {
    words.forget_many();
});

impl BoundSearch {
    pub fn new(index: &Arc<Index>, query: &TextQuery) -> Result<BoundSearch> {
        let IndexKind::Text(text) = &index.spec.kind else {
            return Err(Error::bug("a $text was bound to an index of another kind"));
        };
        let version = text.version();
        let language = match &query.language {
            None => text.language(),
            Some(name) => Language::parse(name, version).ok_or_else(|| {
                let number = version.number();
                let message = format!("unsupported language: \"{name}\" for text index version {number}");
                Error::user(ErrorCode::BadValue, message)
            })?,
        };
        let sensitivity = Sensitivity { case: query.case_sensitive, diacritics: query.diacritic_sensitive };
        let search = Search::parse(&query.search, language, version, sensitivity);
        Ok(BoundSearch { index: index.clone(), search, language })
    }

    pub fn text(&self) -> Option<&Text> {
        match &self.index.spec.kind {
            IndexKind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The score of one term in a document, for an entry whose key is not stored whole.
    pub fn score_of(&self, document: RawDocument<'_>, term: &str) -> Result<Option<f64>> {
        let Some(text) = self.text() else { return Ok(None) };
        SCORES.lend(document, |scores| {
            text.add_scores(document, scores)?;
            Ok(scores.get(term))
        })
    }
}

impl TextMatcher for BoundSearch {
    fn matches(&self, document: RawDocument<'_>) -> Result<bool> {
        let Some(text) = self.text() else { return Ok(false) };
        let mut texts = Vec::new();
        text.each_text(document, &mut |text, _, language| texts.push((text, language)))?;
        Ok(WORDS.lend(document, |words| remembering(document, || self.search.matches(&texts, words))))
    }

    fn language(&self) -> &str {
        self.language.name()
    }
}
