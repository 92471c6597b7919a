//! Terms of words in every language, as mongod has them.
//!
//! `KILIM_STEMS` names a file with more of them, in the same form.

use std::collections::BTreeSet;

use kilim_text::{Language, Sensitivity, Terms, Version};

#[test]
fn terms_are_mongods_in_every_language() {
    let recorded = match std::env::var_os("KILIM_STEMS") {
        Some(path) => std::fs::read_to_string(path).expect("a file of words"),
        None => include_str!("stems.tsv").to_owned(),
    };
    let mut words = Terms::default();
    let mut wrong = Vec::new();
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [language, word, terms] = fields[..] else { panic!("three fields: {line}") };
        let rules = Language::parse(language, Version::Three).expect("a language");
        let mut found = BTreeSet::new();
        let sensitivity = Sensitivity { case: false, diacritics: true };
        words.each(word, rules, Version::Three, sensitivity, |term| {
            found.insert(term.to_owned());
            true
        });
        let found = found.into_iter().collect::<Vec<_>>().join(" ");
        if found != terms {
            wrong.push(format!("{language} {word}: {found}, not {terms}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ: {}", wrong.len(), wrong[..wrong.len().min(40)].join("; "));
}
