//! What characters mean to a text index of version 3: which end a word, and what folding makes of the others.
//!
//! The table (`data/characters.txt`) is mongod's, character by character. ASCII is decided without it.

use std::sync::LazyLock;

/// Characters of a page of the table.
const PAGE: usize = 256;
/// The table ends before this character; those behind it mean themselves.
const TABLE_END: usize = 0x30000;

#[derive(Clone, Copy)]
struct Meaning {
    delimits: bool,
    /// Zero where nothing is left.
    lower: u32,
    plain: u32,
}

/// Pages of characters; none where every character of a page means itself.
struct Table(Vec<Option<Box<[Meaning; PAGE]>>>);

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("../data/characters.txt")));

impl Table {
    fn parse(data: &str) -> Table {
        let mut table = Table((0..TABLE_END / PAGE).map(|_| None).collect());
        for line in data.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let what = words.next().unwrap_or_default();
            let numbers: Vec<u32> = words.filter_map(|word| u32::from_str_radix(word, 16).ok()).collect();
            let (&[first, last], to) = numbers.split_at(2) else { continue };
            for character in first..=last {
                let meaning = table.meaning_mut(character as usize);
                let to = to.first().map_or(0, |&to| if to == 0 { 0 } else { to + (character - first) });
                match what {
                    "delimiter" => meaning.delimits = true,
                    "lower" => meaning.lower = to,
                    _ => meaning.plain = to,
                }
            }
        }
        table
    }

    fn meaning_mut(&mut self, character: usize) -> &mut Meaning {
        let start = character / PAGE * PAGE;
        let page = self.0[character / PAGE].get_or_insert_with(|| {
            Box::new(std::array::from_fn(|at| {
                let own = (start + at) as u32;
                Meaning { delimits: false, lower: own, plain: own }
            }))
        });
        &mut page[character % PAGE]
    }

    fn meaning(&self, character: char) -> Meaning {
        let own = character as u32;
        match self.0.get(own as usize / PAGE) {
            Some(Some(page)) => page[own as usize % PAGE],
            _ => Meaning { delimits: false, lower: own, plain: own },
        }
    }
}

/// Whether a character ends a word. An apostrophe is for the language to decide.
pub(crate) fn is_delimiter(character: char) -> bool {
    match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => false,
        _ => TABLE.meaning(character).delimits,
    }
}

/// Appends a text in lower case.
pub(crate) fn push_lower(out: &mut String, text: &str, turkish: bool) {
    for character in text.chars() {
        match character {
            'I' if turkish => out.push('ı'),
            'İ' if turkish => out.push('i'),
            character if character.is_ascii() => out.push(character.to_ascii_lowercase()),
            character => out.extend(char::from_u32(TABLE.meaning(character).lower).filter(|to| *to != '\0')),
        }
    }
}

/// Appends a text without diacritics.
pub(crate) fn push_plain(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            character if character.is_ascii() => out.push(character),
            character => out.extend(char::from_u32(TABLE.meaning(character).plain).filter(|to| *to != '\0')),
        }
    }
}
