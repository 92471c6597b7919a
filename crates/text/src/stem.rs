//! Stems of words, by Snowball's algorithms as they were in 2015, which is what mongod 6.0 has.
//!
//! Hungarian differs from the crate's: in 2015 the algorithm took õ and û for the letters ő and ű, so that words with the
//! true letters keep endings that contain them.

use rust_stemmers::{Algorithm, Stemmer};

/// Appends the stem of a word in lower case.
pub(crate) fn push_stem(out: &mut String, algorithm: Algorithm, word: &str) {
    let stemmer = Stemmer::create(algorithm);
    if algorithm == Algorithm::Hungarian && word.contains(['õ', 'û', 'ő', 'ű']) {
        let exchanged: String = word.chars().map(exchanged).collect();
        out.extend(stemmer.stem(&exchanged).chars().map(self::exchanged));
        return;
    }
    out.push_str(&stemmer.stem(word));
}

/// A letter that the algorithm of today knows for the one that the algorithm of 2015 knew, and the reverse.
fn exchanged(letter: char) -> char {
    match letter {
        'õ' => 'ő',
        'ő' => 'õ',
        'û' => 'ű',
        'ű' => 'û',
        other => other,
    }
}
