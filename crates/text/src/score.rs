//! How much a document has of each term.
//!
//! A term counts for more the more often it comes, each time half as much as before; for more where the text is short; and
//! for a tenth more where it is the whole text. The order of the operations is mongod's, so that sums agree to the last bit.

use crate::{Language, Terms, Version};

/// The scores of the terms of one document. Terms are known by numbers that stay from document to document.
#[derive(Default)]
pub struct Scores {
    terms: Terms,
    /// By number of the term.
    entries: Vec<Entry>,
    /// The terms of the document, in the order in which they were met.
    met: Vec<u32>,
    /// The terms of the text at hand.
    in_text: Vec<u32>,
}

#[derive(Clone, Default)]
struct Entry {
    score: f64,
    frequency: f64,
    step: f64,
    /// In the text at hand.
    count: u32,
    /// The document has the term.
    is_met: bool,
}

impl Scores {
    pub fn clear(&mut self) {
        for number in self.met.drain(..) {
            self.entries[number as usize] = Entry::default();
        }
        if self.terms.forget_many() {
            self.entries = Vec::new();
        }
    }

    /// Adds the terms of a text.
    pub fn add(&mut self, text: &str, weight: f64, language: Language, version: Version) {
        let Scores { terms, entries, met, in_text } = self;
        in_text.clear();
        let mut tokens = 0u32;
        terms.each_number(text, language, version, |number| {
            if number as usize >= entries.len() {
                entries.resize(number as usize + 1, Entry::default());
            }
            let entry = &mut entries[number as usize];
            if entry.count == 0 {
                in_text.push(number);
                entry.step = 0.5;
            }
            entry.step *= 2.0;
            entry.count += 1;
            entry.frequency += 1.0 / entry.step;
            tokens += 1;
        });
        let tokens = f64::from(tokens);
        for &number in &*in_text {
            let entry = &mut entries[number as usize];
            let term = terms.term(number);
            let part = (0.5 * f64::from(entry.count) / tokens) + 0.5;
            let whole = text.len() == term.len() && text.eq_ignore_ascii_case(term);
            let adjustment = if whole { 1.0 + 0.1 } else { 1.0 };
            entry.score += weight * entry.frequency * part * adjustment;
            (entry.count, entry.frequency) = (0, 0.0);
            if !entry.is_met {
                entry.is_met = true;
                met.push(number);
            }
        }
    }

    /// The score of a term; `None` where the document does not have it.
    pub fn get(&self, term: &str) -> Option<f64> {
        let entry = self.entries.get(self.terms.number(term)? as usize)?;
        entry.is_met.then_some(entry.score)
    }

    /// How many terms the document has.
    pub fn len(&self) -> usize {
        self.met.len()
    }

    pub fn is_empty(&self) -> bool {
        self.met.is_empty()
    }

    /// Terms and their scores, in the order in which they were met.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.met.iter().map(|&number| (self.terms.term(number), self.entries[number as usize].score))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_mongods() {
        let language = Language::parse("english", Version::Three).expect("a language");
        let mut scores = Scores::default();
        scores.add("quick quick quick fox", 1.0, language, Version::Three);
        assert_eq!(scores.get("quick"), Some(1.75 * 0.875));
        assert_eq!(scores.get("fox"), Some(0.625));
        scores.clear();
        assert_eq!(scores.get("quick"), None);
        scores.add("Fox", 3.0, language, Version::Three);
        assert_eq!(scores.get("fox"), Some(3.3000000000000003));
        assert_eq!(scores.iter().count(), 1);
    }
}
