//! Languages, and the names by which versions of the index know them.

use rust_stemmers::Algorithm;

/// The version of a text index, which decides on languages, tokens and folding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// ASCII delimiters, ASCII case folding. Every name is a language; an unknown one has no rules.
    One,
    /// Tokens as in version 1; languages by name or two-letter code, in sub-documents too.
    Two,
    /// Unicode delimiters; case and diacritics are folded.
    Three,
}

impl Version {
    pub fn of(number: i64) -> Option<Version> {
        match number {
            1 => Some(Version::One),
            2 => Some(Version::Two),
            3 => Some(Version::Three),
            _ => None,
        }
    }

    pub fn number(self) -> i32 {
        match self {
            Version::One => 1,
            Version::Two => 2,
            Version::Three => 3,
        }
    }
}

/// The rules for the words of a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Language {
    algorithm: Option<Algorithm>,
    /// Version 1 of the index stems for a code, and leaves out stop words for a full name only.
    by_code: bool,
}

/// Name, code, three-letter codes that version 1 knows, stemmer.
type Row = (&'static str, &'static str, &'static [&'static str], Algorithm);

const LANGUAGES: [Row; 15] = [
    ("danish", "da", &["da", "dan"], Algorithm::Danish),
    ("dutch", "nl", &["nl", "dut", "nld"], Algorithm::Dutch),
    ("english", "en", &["en", "eng"], Algorithm::English),
    ("finnish", "fi", &["fi", "fin"], Algorithm::Finnish),
    ("french", "fr", &["fr", "fra", "fre"], Algorithm::French),
    ("german", "de", &["de", "deu", "ger"], Algorithm::German),
    ("hungarian", "hu", &["hu", "hun"], Algorithm::Hungarian),
    ("italian", "it", &["it", "ita"], Algorithm::Italian),
    ("norwegian", "nb", &["no", "nor"], Algorithm::Norwegian),
    ("portuguese", "pt", &["pt", "por"], Algorithm::Portuguese),
    ("romanian", "ro", &["ro", "ron", "rum"], Algorithm::Romanian),
    ("russian", "ru", &["ru", "rus"], Algorithm::Russian),
    ("spanish", "es", &["es", "spa", "esl"], Algorithm::Spanish),
    ("swedish", "sv", &["sv", "swe"], Algorithm::Swedish),
    ("turkish", "tr", &["tr", "tur"], Algorithm::Turkish),
];

impl Language {
    /// Words as they are.
    pub const NONE: Language = Language { algorithm: None, by_code: false };

    /// The language of a name; `None` where the version knows no such language.
    pub fn parse(name: &str, version: Version) -> Option<Language> {
        match version {
            Version::One => Language::parse_first(name),
            Version::Two | Version::Three if name.eq_ignore_ascii_case("none") => Some(Language::NONE),
            Version::Two | Version::Three => LANGUAGES
                .iter()
                .find(|(full, code, ..)| name.eq_ignore_ascii_case(full) || name.eq_ignore_ascii_case(code))
                .map(|&(.., algorithm)| Language { algorithm: Some(algorithm), by_code: false }),
        }
    }

    /// Version 1 takes every name. Its stemmer `porter` is the one that is missing here.
    fn parse_first(name: &str) -> Option<Language> {
        if name == "porter" {
            return None;
        }
        let found = LANGUAGES.iter().find_map(|&(full, _, codes, algorithm)| {
            let by_code = codes.contains(&name);
            (by_code || name == full).then_some(Language { algorithm: Some(algorithm), by_code })
        });
        Some(found.unwrap_or(Language::NONE))
    }

    /// The full name, as explain shows the language of an index.
    pub fn name(self) -> &'static str {
        let own = |row: &&Row| Some(row.3) == self.algorithm;
        LANGUAGES.iter().find(own).map_or("none", |row| row.0)
    }

    pub(crate) fn algorithm(self) -> Option<Algorithm> {
        self.algorithm
    }

    pub(crate) fn has_stop_words(self) -> bool {
        !self.by_code
    }

    /// English words may have an apostrophe; elsewhere it ends a word.
    pub(crate) fn keeps_apostrophe(self) -> bool {
        self.algorithm == Some(Algorithm::English) && !self.by_code
    }

    /// Turkish has two letters i, each with a capital of its own.
    pub(crate) fn is_turkish(self) -> bool {
        self.algorithm == Some(Algorithm::Turkish)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_know_languages_by_different_names() {
        let known = |name, version| Language::parse(name, version).map(Language::name);
        assert_eq!(known("EN", Version::Three), Some("english"));
        assert_eq!(known("Norwegian", Version::Two), Some("norwegian"));
        assert_eq!(known("eng", Version::Three), None);
        assert_eq!(known("", Version::Two), None);
        assert_eq!(known("eng", Version::One), Some("english"));
        assert_eq!(known("EN", Version::One), Some("none"));
        assert_eq!(known("nb", Version::One), Some("none"));
        assert_eq!(known("porter", Version::One), None);
    }
}
