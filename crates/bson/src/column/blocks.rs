//! Blocks of small whole numbers: Simple-8b, with MongoDB's extensions.
//!
//! A block is eight bytes. Its lowest four bits select how many bits each number has. Two selectors leave four bits over;
//! there these select a form in which a number is given without its last zero bits, and their count. All bits set stands for
//! "no number here". One selector repeats the number before.

/// The bits of a number, by selector. The first and the last selector have no numbers.
pub(super) const WIDTHS: [u32; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60];
/// The bits of a number without its zeros, by the second selector, behind the selector 7. The count of zeros has 4 bits.
const WIDTHS_OF_7: [u32; 10] = [0, 2, 3, 4, 5, 7, 10, 14, 24, 52];
/// The same behind the selector 8, where the count is in steps of four zeros. It has 4 bits up to the seventh form, then 5.
const WIDTHS_OF_8: [u32; 14] = [0, 4, 5, 7, 10, 14, 24, 52, 4, 6, 9, 13, 23, 51];
pub(super) const REPEAT: usize = 15;
/// A repetition is of a multiple of so many.
pub(super) const REPEATED: u32 = 120;

/// The numbers of blocks that follow each other. `None` stands for a missing one.
#[derive(Debug, Clone)]
pub(super) struct Blocks<'a> {
    words: &'a [u8],
    /// What is left of the block at hand, lowest number first.
    word: u64,
    left: u32,
    width: u32,
    /// How many bits of a number count its zeros, and how many zeros one of them stands for.
    counting: u32,
    zeros: u32,
    repeats: u32,
    before: Option<u128>,
}

impl<'a> Blocks<'a> {
    /// None so far. The number before the first is zero: a value that repeats is a difference of zero.
    pub fn none() -> Blocks<'a> {
        Blocks { words: &[], word: 0, left: 0, width: 0, counting: 0, zeros: 0, repeats: 0, before: Some(0) }
    }

    /// Goes on with more blocks. What repeats is what was before these.
    pub fn extend(&mut self, words: &'a [u8]) {
        self.words = words;
    }

    /// Whether there is nothing left.
    pub fn is_at_end(&self) -> bool {
        self.left == 0 && self.repeats == 0 && self.words.is_empty()
    }

    /// The next number; none at the end. An error where a block has an unknown form.
    pub fn next(&mut self) -> Option<Result<Option<u128>, ()>> {
        loop {
            if self.repeats > 0 {
                self.repeats -= 1;
                return Some(Ok(self.before));
            }
            if self.left > 0 {
                self.left -= 1;
                let mask = u64::MAX >> (64 - self.width);
                let number = self.word & mask;
                self.word = self.word.checked_shr(self.width).unwrap_or(0);
                self.before = (number != mask).then(|| self.with_zeros(number));
                return Some(Ok(self.before));
            }
            let (word, rest) = self.words.split_first_chunk::<8>()?;
            self.words = rest;
            if self.begin(u64::from_le_bytes(*word)).is_none() {
                return Some(Err(()));
            }
        }
    }

    fn with_zeros(&self, number: u64) -> u128 {
        let count = number & ((1 << self.counting) - 1);
        // At most 31 times four zeros, and 51 bits above them would be lost. What is lost is lost on MongoDB too.
        u128::from(number >> self.counting) << (count as u32 * self.zeros).min(127)
    }

    fn begin(&mut self, word: u64) -> Option<()> {
        let (selector, second) = ((word & 0xF) as usize, (word >> 4 & 0xF) as usize);
        if selector == REPEAT {
            self.repeats = REPEATED * (second as u32 + 1);
            return Some(());
        }
        let (used, bits, counting, zeros) = match (selector, second) {
            (7 | 8, 0) => (8, WIDTHS[selector], 0, 0),
            (7, form) => (8, *WIDTHS_OF_7.get(form)?, 4, 1),
            (8, form) => (8, *WIDTHS_OF_8.get(form)?, if form < 8 { 4 } else { 5 }, 4),
            _ => (4, WIDTHS[selector], 0, 0),
        };
        if bits == 0 {
            return None;
        }
        (self.width, self.counting, self.zeros) = (bits + counting, counting, zeros);
        (self.word, self.left) = (word >> used, (64 - used) / self.width);
        Some(())
    }
}
