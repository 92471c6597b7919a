//! From a text to its terms.
//!
//! A word ends at a delimiter. It is put into lower case, left out if it is a stop word, stemmed, and stripped of its
//! diacritics, in this order. Words of texts come again and again, so the terms of recent words are remembered.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::search::Sensitivity;
use crate::{Language, Version, characters, stem, stop_words};

/// Words whose terms are remembered: the more frequent half of the words of a text, for a quarter of a megabyte.
const REMEMBERED: usize = 4096;
/// Longer words are rare.
const REMEMBERED_BYTES_MAX: usize = 32;

/// Makes terms of texts. Its buffers and what it remembers are kept from text to text.
pub struct Terms {
    lower: String,
    stemmed: String,
    term: String,
    recent: Vec<Option<Recent>>,
    hasher: FixedState,
}

/// A word and its term, under given rules.
struct Recent {
    rules: Rules,
    word: Box<str>,
    /// None for a stop word.
    term: Option<Box<str>>,
}

/// What decides on the term of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Rules {
    language: Language,
    version: Version,
    sensitivity: Sensitivity,
    /// Stop words have terms, too.
    keeps_stop_words: bool,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            lower: String::new(),
            stemmed: String::new(),
            term: String::new(),
            recent: Vec::new(),
            hasher: FixedState::with_seed(0),
        }
    }
}

impl Terms {
    /// Gives each term of a text to `take`, one for each word that is no stop word, until that says to stop.
    pub fn each(
        &mut self,
        text: &str,
        language: Language,
        version: Version,
        sensitivity: Sensitivity,
        take: impl FnMut(&str) -> bool,
    ) {
        self.run(text, Rules { language, version, sensitivity, keeps_stop_words: false }, take);
    }

    /// Gives the term of each word of a text to `take`, stop words included, until that says to stop.
    pub fn each_with_stop_words(
        &mut self,
        text: &str,
        language: Language,
        version: Version,
        sensitivity: Sensitivity,
        take: impl FnMut(&str) -> bool,
    ) {
        self.run(text, Rules { language, version, sensitivity, keeps_stop_words: true }, take);
    }

    fn run(&mut self, text: &str, rules: Rules, mut take: impl FnMut(&str) -> bool) {
        if self.recent.is_empty() {
            self.recent.resize_with(REMEMBERED, || None);
        }
        for word in words(text, rules) {
            if word.len() > REMEMBERED_BYTES_MAX {
                if self.make(word, rules) && !take(&self.term) {
                    return;
                }
                continue;
            }
            let place = self.hasher.hash_one(word) as usize % REMEMBERED;
            let known = self.recent[place].as_ref();
            if !known.is_some_and(|recent| *recent.word == *word && recent.rules == rules) {
                let term = self.make(word, rules).then(|| Box::from(self.term.as_str()));
                self.recent[place] = Some(Recent { rules, word: word.into(), term });
            }
            if let Some(Recent { term: Some(term), .. }) = &self.recent[place]
                && !take(term)
            {
                return;
            }
        }
    }

    /// Makes the term of a word; whether it has one.
    fn make(&mut self, word: &str, rules: Rules) -> bool {
        let Rules { language, version, sensitivity, keeps_stop_words } = rules;
        self.lower.clear();
        match version {
            Version::One | Version::Two => {
                self.lower.extend(word.chars().map(|character| character.to_ascii_lowercase()));
            }
            Version::Three => characters::push_lower(&mut self.lower, word, language.is_turkish()),
        }
        let algorithm = language.algorithm();
        if let Some(algorithm) = algorithm
            && !keeps_stop_words
            && language.has_stop_words()
            && stop_words::is_stop_word(algorithm, &self.lower)
        {
            return false;
        }
        let cased = if sensitivity.case { word } else { &self.lower };
        self.stemmed.clear();
        match algorithm {
            Some(algorithm) => stem::push_stem(&mut self.stemmed, algorithm, cased),
            None => self.stemmed.push_str(cased),
        }
        self.term.clear();
        match version {
            Version::Three if !sensitivity.diacritics => {
                characters::push_plain(&mut self.term, &self.stemmed)
            }
            _ => self.term.push_str(&self.stemmed),
        }
        true
    }
}

/// The words of a text as they stand there.
fn words(text: &str, rules: Rules) -> impl Iterator<Item = &str> {
    let apostrophe = !rules.language.keeps_apostrophe();
    let delimits: fn(char) -> bool = match rules.version {
        Version::One | Version::Two => characters::is_ascii_delimiter,
        Version::Three => characters::is_delimiter,
    };
    text.split(move |character| match character {
        '\'' => apostrophe,
        character => delimits(character),
    })
    .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(text: &str, language: &str, version: Version) -> Vec<String> {
        let language = Language::parse(language, version).expect("a language");
        let mut found = Vec::new();
        Terms::default().each(text, language, version, Sensitivity::default(), |term| {
            found.push(term.to_owned());
            true
        });
        found
    }

    #[test]
    fn words_end_where_mongod_ends_them() {
        let of = |text, language| terms(text, language, Version::Three).join(" ");
        assert_eq!(of("foo_bar e-mail don't o'clock", "english"), "foo_bar e mail o'clock");
        assert_eq!(of("l'avion l’avion", "french"), "avion avion");
        assert_eq!(of("Crème BRÛLÉE", "none"), "creme brulee");
        assert_eq!(of("ISPARTA İstanbul IŞIK", "turkish"), "ıspar istanbul ısık");
        assert_eq!(of("rock'n'roll 日本語テキスト", "english"), "rock'n'rol 日本語テキスト");
    }

    #[test]
    fn earlier_versions_fold_ascii_alone() {
        assert_eq!(terms("Ünïcode FOXES", "english", Version::Two).join(" "), "Ünïcode fox");
        assert_eq!(terms("l'avion the", "en", Version::One).join(" "), "l avion the");
        assert_eq!(terms("l'avion the", "english", Version::One).join(" "), "l'avion");
    }

    #[test]
    fn hungarian_is_as_it_was() {
        assert_eq!(terms("környezetéről", "hungarian", Version::Two), ["környezetéről"]);
    }
}
