//! Words of texts: how a text index takes them apart, and what a search string asks for.
//!
//! A text becomes tokens (`tokens`), tokens become terms: folded (`characters`), without stop words (`stop_words`), stemmed
//! (`stem`) by the rules of a language (`language`). Terms of a text have scores (`score`); a search string is terms and
//! phrases (`search`). The crate knows strings only: which texts a document has is for the index to say.
//!
//! Invariant: for every text, terms and scores are those of mongod 6.0 for the same language and version of the index.

mod characters;
mod language;
mod murmur;
mod score;
mod search;
mod stem;
mod stop_words;
mod tokens;

pub use language::{Language, Version};
pub use murmur::murmur3;
pub use score::Scores;
pub use search::{Search, Sensitivity};
pub use tokens::Terms;
