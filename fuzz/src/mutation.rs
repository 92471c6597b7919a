//! Inputs changed at random, from a seed and nothing else: the same seed gives the same inputs everywhere.
//!
//! Not as clever as a fuzzer that sees coverage. It puts together what is known to mean something: seeds, pieces of
//! other seeds, words of the language, numbers at the edges.

use std::ops::Range;

/// The words of the language, one a line, as libFuzzer reads them.
const WORDS: &str = include_str!("../words.dict");

const NUMBERS: [&str; 16] = [
    "0",
    "-1",
    "1",
    "2147483647",
    "-2147483648",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1e308",
    "-0.0",
    "0.1",
    "4294967296",
    r#"{"$numberDouble":"NaN"}"#,
    r#"{"$numberDouble":"-Infinity"}"#,
    r#"{"$numberDecimal":"9.999999999999999999999999999999999E+6144"}"#,
];

const BYTES_MAX: usize = 4096;

pub struct Mutator<'s> {
    seeds: &'s [Vec<u8>],
    words: Vec<Vec<u8>>,
    state: u64,
}

impl<'s> Mutator<'s> {
    /// There must be a seed, be it empty.
    pub fn new(seeds: &'s [Vec<u8>], state: u64) -> Mutator<'s> {
        assert!(!seeds.is_empty(), "a mutator changes seeds");
        Mutator { seeds, words: words(), state }
    }

    /// A seed with a few changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.seed().to_vec();
        for _ in 0..=self.below(3) {
            if self.below(5) == 0 || !self.change_text(&mut input) {
                self.change_bytes(&mut input);
            }
        }
        input.truncate(BYTES_MAX);
        input
    }

    /// Puts one value or name in another's place, if the input is text: it stays text that can be read.
    fn change_text(&mut self, input: &mut Vec<u8>) -> bool {
        let Tokens { names, values } = Tokens::of(input);
        let Some(value) = self.choose(&values) else { return false };
        match self.below(6) {
            0 => drop(input.splice(value, self.number().bytes())),
            1 => {
                // Another value of the same input.
                let other = self.choose(&values).expect("there is one");
                let other = input[other].to_vec();
                input.splice(value, other);
            }
            2 => {
                // One level deeper.
                let word = self.word();
                let inner = input[value.clone()].to_vec();
                input.splice(value, [b"{", &word[..], &inner, b"}"].concat());
            }
            3 if !names.is_empty() => {
                let name = self.choose(&names).expect("there is one");
                let word = self.word();
                input.splice(name, word);
            }
            _ => {
                let other = self.seed();
                let Some(piece) = self.choose(&Tokens::of(other).values) else { return false };
                input.splice(value, other[piece].iter().copied());
            }
        }
        true
    }

    fn change_bytes(&mut self, input: &mut Vec<u8>) {
        let (from, to) = self.range(input.len());
        match self.below(5) {
            0 => drop(input.drain(from..to)),
            1 => {
                let piece = input[from..to].to_vec();
                let at = self.below(input.len() + 1);
                input.splice(at..at, piece);
            }
            2 => {
                let other = self.seed();
                let (start, end) = self.range(other.len());
                input.splice(from..to, other[start..end].iter().copied());
            }
            3 if from < input.len() => input[from] ^= 1 << self.below(8),
            _ if from < input.len() => {
                input[from] = [0, 1, 0x7F, 0x80, 0xFF, b'$', b'.', b'"'][self.below(8)]
            }
            _ => input.push(self.below(256) as u8),
        }
    }

    fn choose(&mut self, ranges: &[Range<usize>]) -> Option<Range<usize>> {
        if ranges.is_empty() { None } else { Some(ranges[self.below(ranges.len())].clone()) }
    }

    fn word(&mut self) -> Vec<u8> {
        let at = self.below(self.words.len());
        self.words[at].clone()
    }

    fn number(&mut self) -> &'static str {
        NUMBERS[self.below(NUMBERS.len())]
    }

    fn seed(&mut self) -> &'s [u8] {
        let at = self.below(self.seeds.len());
        &self.seeds[at]
    }

    /// A place and one behind it, not far away.
    fn range(&mut self, len: usize) -> (usize, usize) {
        let from = self.below(len + 1);
        let to = (from + self.below(40)).min(len);
        (from, to)
    }

    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64: small, and good enough to choose by.
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Where names, with their colons, and values lie in text.
#[derive(Default)]
struct Tokens {
    names: Vec<Range<usize>>,
    values: Vec<Range<usize>>,
}

impl Tokens {
    /// Of what is no text there are none, or senseless ones, which does no harm.
    fn of(text: &[u8]) -> Tokens {
        let mut tokens = Tokens::default();
        if text.first() != Some(&b'{') {
            return tokens;
        }
        let mut open = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let start = at;
            match text[at] {
                b'{' | b'[' => {
                    open.push(at);
                    at += 1;
                }
                b'}' | b']' => {
                    at += 1;
                    tokens.values.extend(open.pop().map(|start| start..at));
                }
                b'"' => {
                    at = behind_string(text, at);
                    match text.get(at) {
                        Some(b':') => tokens.names.push(start..at + 1),
                        _ => tokens.values.push(start..at),
                    }
                }
                b',' | b':' | b' ' => at += 1,
                _ => {
                    let length = text[at..].iter().position(|byte| b",:]}\" {[".contains(byte));
                    at += length.unwrap_or(text.len() - at).max(1);
                    tokens.values.push(start..at);
                }
            }
        }
        // The whole may not be replaced by a part.
        tokens.values.retain(|value| value.start > 0);
        tokens
    }
}

fn behind_string(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

fn words() -> Vec<Vec<u8>> {
    let quoted =
        |line: &str| Some(line.strip_prefix('"')?.strip_suffix('"')?.replace("\\\"", "\"").into_bytes());
    WORDS.lines().filter_map(quoted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_inputs_each_time() {
        let seeds = vec![br#"{"a":{"$gt":1}}"#.to_vec(), b"{}".to_vec()];
        let inputs = |state| {
            let mut mutator = Mutator::new(&seeds, state);
            (0..100).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }

    #[test]
    fn many_changed_inputs_still_mean_something() {
        let seeds = vec![br#"{"a":{"$gt":1,"$lt":[1,2]},"b":{"$in":[1,"x"]}}"#.to_vec()];
        let mut mutator = Mutator::new(&seeds, 1);
        let understood = (0..1000).filter(|_| crate::document(&mutator.next_input()).is_some()).count();
        assert!(understood > 500, "{understood} of 1000");
    }

    #[test]
    fn words_are_read_without_their_quotes() {
        assert!(words().contains(&b"\"$gt\":".to_vec()));
    }
}
