//! Words that an index leaves out: too frequent to tell documents apart.
//!
//! The lists were made by asking mongod about candidates; each file says how.

use std::collections::HashSet;
use std::sync::LazyLock;

use foldhash::fast::FixedState;
use rust_stemmers::Algorithm;

type Words = HashSet<&'static str, FixedState>;

macro_rules! lists {
    ($($Algorithm:ident: $file:literal,)*) => {
        /// The list of a language; none for a language without stop words.
        fn list(algorithm: Algorithm) -> Option<&'static Words> {
            match algorithm {
                $(Algorithm::$Algorithm => {
                    static WORDS: LazyLock<Words> = LazyLock::new(|| {
                        let lines = include_str!(concat!("../data/stop_words/", $file, ".txt")).lines();
                        lines.filter(|line| !line.starts_with('#')).collect()
                    });
                    Some(&WORDS)
                })*
                _ => None,
            }
        }
    };
}

lists! {
    Danish: "danish",
    Dutch: "dutch",
    English: "english",
    Finnish: "finnish",
    French: "french",
    German: "german",
    Hungarian: "hungarian",
    Italian: "italian",
    Norwegian: "norwegian",
    Portuguese: "portuguese",
    Romanian: "romanian",
    Russian: "russian",
    Spanish: "spanish",
    Swedish: "swedish",
    Turkish: "turkish",
}

/// Whether a word in lower case, with its diacritics, is a stop word.
pub(crate) fn is_stop_word(algorithm: Algorithm, word: &str) -> bool {
    list(algorithm).is_some_and(|words| words.contains(word))
}
