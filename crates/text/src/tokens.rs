//! From a text to its terms.
//!
//! A word ends at a delimiter. It is put into lower case, left out if it is a stop word, stemmed, and stripped of its
//! diacritics, in this order. Words of texts come again and again, so the terms of words are remembered, and are known by
//! numbers.

use std::collections::HashMap;
use std::sync::LazyLock;

use foldhash::fast::RandomState;

use crate::search::Sensitivity;
use crate::{Language, Version, characters, stem, stop_words};

/// Words and terms that are remembered: those that come often in a language, for some megabytes. Beyond that all are
/// forgotten, and those that come often are soon known again.
const REMEMBERED: usize = 32 * 1024;
/// The same for their bytes.
const REMEMBERED_BYTES: usize = 2 << 20;
/// Longer words are rare.
const WORD_BYTES_MAX: usize = 32;

/// In place of a term's number: a stop word.
const STOP: u32 = u32::MAX;

type Numbers = HashMap<Box<str>, u32, RandomState>;

/// Makes terms of texts. Its buffers and what it remembers are kept from text to text.
#[derive(Default)]
pub struct Terms {
    lower: String,
    stemmed: String,
    term: String,
    /// Words by the rules that decide on their terms, with the numbers of these.
    words: Vec<(Rules, Numbers)>,
    words_count: usize,
    /// By number.
    terms: Vec<Box<str>>,
    numbers: Numbers,
    bytes: usize,
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

impl Terms {
    /// Gives each term of a text to `take`, one for each word that is no stop word, until that says to stop.
    pub fn each(
        &mut self,
        text: &str,
        language: Language,
        version: Version,
        sensitivity: Sensitivity,
        mut take: impl FnMut(&str) -> bool,
    ) {
        self.forget_many();
        let rules = Rules { language, version, sensitivity, keeps_stop_words: false };
        self.run(text, rules, |terms, number| take(terms.term(number)));
    }

    /// Gives the term of each word of a text to `take`, stop words included, until that says to stop.
    pub fn each_with_stop_words(
        &mut self,
        text: &str,
        language: Language,
        version: Version,
        sensitivity: Sensitivity,
        mut take: impl FnMut(&str) -> bool,
    ) {
        self.forget_many();
        let rules = Rules { language, version, sensitivity, keeps_stop_words: true };
        self.run(text, rules, |terms, number| take(terms.term(number)));
    }

    /// Gives the number of each term of a text to `take`. Numbers stay until [`Terms::forget_many`] has forgotten them.
    pub(crate) fn each_number(
        &mut self,
        text: &str,
        language: Language,
        version: Version,
        mut take: impl FnMut(u32),
    ) {
        let sensitivity = Sensitivity::default();
        let rules = Rules { language, version, sensitivity, keeps_stop_words: false };
        self.run(text, rules, |_, number| {
            take(number);
            true
        });
    }

    pub(crate) fn term(&self, number: u32) -> &str {
        &self.terms[number as usize]
    }

    /// The number of a term that was met.
    pub(crate) fn number(&self, term: &str) -> Option<u32> {
        self.numbers.get(term).copied()
    }

    /// Forgets everything where that is much; whether it did.
    pub fn forget_many(&mut self) -> bool {
        let many = self.words_count.max(self.terms.len()) > REMEMBERED || self.bytes > REMEMBERED_BYTES;
        if many {
            *self = Terms::default();
        }
        many
    }

    fn run(&mut self, text: &str, rules: Rules, mut take: impl FnMut(&Terms, u32) -> bool) {
        let known = self.words.iter().position(|(known, _)| *known == rules);
        let place = known.unwrap_or_else(|| {
            self.words.push((rules, Numbers::default()));
            self.words.len() - 1
        });
        each_word(text, rules, |word| {
            let number = match self.words[place].1.get(word) {
                Some(&number) => number,
                None => self.learn(place, word),
            };
            number == STOP || take(self, number)
        });
    }

    /// The number of the term of a word that is new.
    fn learn(&mut self, place: usize, word: &str) -> u32 {
        let number = match self.make(word, self.words[place].0) {
            false => STOP,
            true => match self.numbers.get(self.term.as_str()) {
                Some(&number) => number,
                None => {
                    let number = self.terms.len() as u32;
                    self.terms.push(self.term.as_str().into());
                    self.numbers.insert(self.term.as_str().into(), number);
                    self.bytes += 2 * self.term.len();
                    number
                }
            },
        };
        if word.len() <= WORD_BYTES_MAX {
            self.words[place].1.insert(word.into(), number);
            self.words_count += 1;
            self.bytes += word.len();
        }
        number
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

/// Which ASCII characters end words.
static ASCII_DELIMITERS: LazyLock<[bool; 128]> =
    LazyLock::new(|| std::array::from_fn(|byte| characters::is_delimiter(char::from(byte as u8))));

/// Gives the words of a text as they stand there to `take`, until that says to stop.
fn each_word(text: &str, rules: Rules, mut take: impl FnMut(&str) -> bool) {
    let mut ascii = *ASCII_DELIMITERS;
    ascii[usize::from(b'\'')] = !rules.language.keeps_apostrophe();
    let mut start = 0;
    let mut at = 0;
    while let Some(&byte) = text.as_bytes().get(at) {
        let (delimits, length) = match ascii.get(usize::from(byte)) {
            Some(&delimits) => (delimits, 1),
            None => {
                let character = text[at..].chars().next().unwrap_or_default();
                // To the earlier versions, all characters beyond ASCII are letters.
                let delimits = rules.version == Version::Three && characters::is_delimiter(character);
                (delimits, character.len_utf8())
            }
        };
        if delimits {
            if start < at && !take(&text[start..at]) {
                return;
            }
            start = at + length;
        }
        at += length;
    }
    if start < text.len() {
        take(&text[start..]);
    }
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

    /// The words of a text, character by character.
    fn plain_words(text: &str, rules: Rules) -> Vec<&str> {
        let delimits = |character: char| match (character, rules.version) {
            ('\'', _) => !rules.language.keeps_apostrophe(),
            (character, Version::Three) => characters::is_delimiter(character),
            (character, _) => character.is_ascii() && characters::is_delimiter(character),
        };
        text.split(delimits).filter(|word| !word.is_empty()).collect()
    }

    #[test]
    fn words_are_those_between_delimiters() {
        // Every character but the rare ones, each with others around it, and all texts of some that are telling.
        let mut texts: Vec<String> =
            (0..0x3100).filter_map(char::from_u32).map(|each| format!("a{each}b")).collect();
        let telling = ["", "a", "'", " ", "é", "—", "日", "\u{10ffff}"];
        for one in telling {
            for two in telling {
                texts.extend(telling.map(|three| format!("{one}{two}{three}{two}")));
            }
        }
        for (language, version) in [
            ("english", Version::Three),
            ("french", Version::Three),
            ("none", Version::Two),
            ("fr", Version::One),
        ] {
            let language = Language::parse(language, version).expect("a language");
            let sensitivity = Sensitivity::default();
            let rules = Rules { language, version, sensitivity, keeps_stop_words: false };
            for text in &texts {
                let mut words = Vec::new();
                each_word(text, rules, |word| {
                    words.push(word.to_owned());
                    true
                });
                assert_eq!(words, plain_words(text, rules), "{text:?}");
            }
        }
    }

    #[test]
    fn what_is_remembered_is_what_would_be_made() {
        let texts = ["Running runs the RUNNING", "the der running", "läuft laufen der", "l'avion don't"];
        let mut remembering = Terms::default();
        for _ in 0..2 {
            for (language, sensitive) in
                [("english", false), ("german", false), ("french", true), ("none", true)]
            {
                let language = Language::parse(language, Version::Three).expect("a language");
                let sensitivity = Sensitivity { case: sensitive, diacritics: sensitive };
                for text in texts {
                    for stop_words in [false, true] {
                        let of = |terms: &mut Terms| {
                            let mut found = Vec::new();
                            let take = |term: &str| {
                                found.push(term.to_owned());
                                true
                            };
                            match stop_words {
                                false => terms.each(text, language, Version::Three, sensitivity, take),
                                true => terms.each_with_stop_words(
                                    text,
                                    language,
                                    Version::Three,
                                    sensitivity,
                                    take,
                                ),
                            }
                            found
                        };
                        assert_eq!(of(&mut remembering), of(&mut Terms::default()), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn much_is_forgotten() {
        let language = Language::parse("none", Version::Three).expect("a language");
        let mut terms = Terms::default();
        for number in 0..3 * REMEMBERED {
            let word = format!("w{number}");
            terms.each(&word, language, Version::Three, Sensitivity::default(), |term| {
                assert_eq!(term, word);
                true
            });
            assert!(terms.terms.len() <= REMEMBERED + 1);
        }
        terms.each(&"x".repeat(REMEMBERED_BYTES), language, Version::Three, Sensitivity::default(), |_| true);
        assert!(terms.forget_many());
    }

    #[test]
    fn hungarian_is_as_it_was() {
        assert_eq!(terms("környezetéről", "hungarian", Version::Two), ["környezetéről"]);
    }
}
