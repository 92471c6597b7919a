//! Search strings: what documents must have, and what they must not.
//!
//! Words are alternatives. A `"phrase"` must be there as it stands; its words are search terms too. A minus behind white
//! space negates the word or the phrase behind it, up to the next white space.

use std::collections::BTreeSet;

use crate::{Language, Terms, Version, characters};

/// Which differences between texts count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sensitivity {
    pub case: bool,
    pub diacritics: bool,
}

impl Sensitivity {
    fn is_any(self) -> bool {
        self.case || self.diacritics
    }
}

/// A search string taken apart.
#[derive(Debug, Clone, Default)]
pub struct Search {
    version: Option<Version>,
    sensitivity: Sensitivity,
    /// The terms to look for in the index, which has them folded.
    pub index_terms: BTreeSet<String>,
    /// The terms as documents must have them.
    pub terms: BTreeSet<String>,
    pub negated_terms: BTreeSet<String>,
    pub phrases: Vec<String>,
    pub negated_phrases: Vec<String>,
}

impl Search {
    pub fn parse(text: &str, language: Language, version: Version, sensitivity: Sensitivity) -> Search {
        let parts = Parts::of(text);
        let mut words = Terms::default();
        let mut terms = |text: &str, sensitivity: Sensitivity| {
            let mut found = BTreeSet::new();
            words.each(text, language, version, sensitivity, |term| {
                found.insert(term.to_owned());
                true
            });
            found
        };
        Search {
            index_terms: terms(&parts.words, Sensitivity::default()),
            terms: terms(&parts.words, sensitivity),
            negated_terms: terms(&parts.negated_words, sensitivity),
            phrases: parts.phrases,
            negated_phrases: parts.negated_phrases,
            version: Some(version),
            sensitivity,
        }
    }

    /// Whether a document with one of the terms in the index may still be none that is looked for.
    pub fn needs_texts(&self) -> bool {
        self.sensitivity.is_any()
            || !(self.negated_terms.is_empty() && self.phrases.is_empty() && self.negated_phrases.is_empty())
    }

    /// Whether a document with these texts is looked for. Each text has the language of its document.
    pub fn matches(&self, texts: &[(&str, Language)], words: &mut Terms) -> bool {
        let version = self.version.unwrap_or(Version::Three);
        let (mut has_term, mut has_negated) = (false, false);
        for &(text, language) in texts {
            // What is a stop word in the text's language may be a term of a search in another one.
            words.each_with_stop_words(text, language, version, self.sensitivity, |term| {
                has_term |= self.terms.contains(term);
                has_negated |= self.negated_terms.contains(term);
                !has_negated
            });
            if has_negated {
                return false;
            }
        }
        let has = |phrase: &String| {
            texts.iter().any(|(text, language)| self.contains(text, phrase, language.is_turkish()))
        };
        has_term && self.phrases.iter().all(has) && !self.negated_phrases.iter().any(has)
    }

    /// Whether the phrase stands in a text. The text's language folds the letters of both. In Turkish, where a small letter i
    /// has two capitals, case never counts.
    fn contains(&self, text: &str, phrase: &str, turkish: bool) -> bool {
        let is_third = self.version == Some(Version::Three);
        let case = self.sensitivity.case && !(turkish && is_third);
        if case && (self.sensitivity.diacritics || !is_third) {
            return text.contains(phrase);
        }
        self.folded(text, case, turkish).contains(&self.folded(phrase, case, turkish))
    }

    fn folded(&self, text: &str, case: bool, turkish: bool) -> String {
        if self.version != Some(Version::Three) {
            return text.to_ascii_lowercase();
        }
        let mut lower = String::with_capacity(text.len());
        match case {
            true => lower.push_str(text),
            false => characters::push_lower(&mut lower, text, turkish),
        }
        if self.sensitivity.diacritics {
            return lower;
        }
        let mut plain = String::with_capacity(lower.len());
        characters::push_plain(&mut plain, &lower);
        plain
    }
}

/// What ends a negation. A tab does not: mongod takes it for a letter of the word.
const WHITE_SPACE: [char; 5] = [' ', '\n', '\r', '\u{b}', '\u{c}'];

/// A search string by its marks alone.
#[derive(Default)]
struct Parts {
    words: String,
    negated_words: String,
    phrases: Vec<String>,
    negated_phrases: Vec<String>,
}

impl Parts {
    fn of(text: &str) -> Parts {
        let mut parts = Parts::default();
        let mut phrase_start = None;
        let mut negated = false;
        let mut after_space = true;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let at = text.len() - rest.len();
            let mut length = first.len_utf8();
            match first {
                first if WHITE_SPACE.contains(&first) => {
                    after_space = true;
                    rest = &rest[length..];
                    continue;
                }
                '-' => {
                    if phrase_start.is_none() && after_space {
                        negated = true;
                    }
                }
                '"' => match phrase_start.take() {
                    Some(start) => {
                        let phrases = if negated { &mut parts.negated_phrases } else { &mut parts.phrases };
                        phrases.push(text[start..at].to_owned());
                    }
                    None => {
                        negated &= !after_space;
                        phrase_start = Some(at + length);
                    }
                },
                _ => {
                    length = rest
                        .find(|letter| WHITE_SPACE.contains(&letter) || matches!(letter, '-' | '"'))
                        .unwrap_or(rest.len());
                    if phrase_start.is_none() && after_space {
                        negated = false;
                    }
                    if !(phrase_start.is_some() && negated) {
                        let words = if negated { &mut parts.negated_words } else { &mut parts.words };
                        words.push_str(&rest[..length]);
                        words.push(' ');
                    }
                }
            }
            after_space = false;
            rest = &rest[length..];
        }
        parts
    }
}
