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

/// What a block says.
pub(super) enum Block {
    /// The number before, so many times.
    Repeats(u32),
    Numbers(Numbers),
}

impl Block {
    /// None where it has an unknown form.
    pub fn of(word: [u8; 8]) -> Option<Block> {
        let word = u64::from_le_bytes(word);
        let (selector, second) = ((word & 0xF) as usize, (word >> 4 & 0xF) as usize);
        if selector == REPEAT {
            return Some(Block::Repeats(REPEATED * (second as u32 + 1)));
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
        let width = bits + counting;
        let (missing, left) = (u64::MAX >> (u64::BITS - width), (u64::BITS - used) / width);
        Some(Block::Numbers(Numbers { word: word >> used, left, width, missing, counting, zeros }))
    }
}

/// What is left of the numbers of one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    /// The lowest bits are the next number.
    word: u64,
    left: u32,
    width: u32,
    /// The bits that stand for a missing number.
    missing: u64,
    /// How many bits of a number count its zeros, and how many zeros one of them stands for.
    counting: u32,
    zeros: u32,
}

impl Numbers {
    /// None at all.
    pub fn none() -> Numbers {
        Numbers::repeated(Some(0), 0)
    }

    /// One number `count` times. It has no width, so its bits stay where they are. All bits stand for a missing one:
    /// no number has them, as at most 60 bits of it are not zeros.
    pub fn repeated(number: Option<u64>, count: u32) -> Numbers {
        let missing = u64::MAX;
        Numbers { word: number.unwrap_or(missing), left: count, width: 0, missing, counting: 0, zeros: 0 }
    }

    #[inline]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Whether every number that is left has at most 64 bits.
    pub fn are_small(mut self) -> bool {
        self.counting == 0
            || std::iter::from_fn(|| self.next()).flatten().all(|number| u64::try_from(number).is_ok())
    }

    /// The next number, missing or not; none at the end.
    #[inline]
    pub fn next(&mut self) -> Option<Option<u128>> {
        let bits = self.next_bits()?;
        Some(bits.map(|bits| self.with_zeros(bits)))
    }

    /// The same for [small](Numbers::are_small) numbers.
    #[inline]
    pub fn next_small(&mut self) -> Option<Option<u64>> {
        let bits = self.next_bits()?;
        Some(bits.map(|bits| if self.counting == 0 { bits } else { self.with_zeros(bits) as u64 }))
    }

    #[inline]
    fn next_bits(&mut self) -> Option<Option<u64>> {
        self.left = self.left.checked_sub(1)?;
        let bits = self.word & self.missing;
        self.word >>= self.width;
        Some((bits != self.missing).then_some(bits))
    }

    fn with_zeros(&self, bits: u64) -> u128 {
        let count = bits & ((1 << self.counting) - 1);
        // At most 31 times four zeros, and 51 bits above them would be lost. What is lost is lost on MongoDB too.
        u128::from(bits >> self.counting) << (count as u32 * self.zeros).min(127)
    }
}

/// The numbers of blocks that follow each other. `None` stands for a missing one.
#[derive(Debug, Clone)]
pub(super) struct Blocks<'a> {
    words: &'a [u8],
    /// What is left of the block at hand.
    numbers: Numbers,
    repeats: u32,
    before: Option<u128>,
}

impl<'a> Blocks<'a> {
    /// None so far. The number before the first is zero: a value that repeats is a difference of zero.
    pub fn none() -> Blocks<'a> {
        Blocks { words: &[], numbers: Numbers::none(), repeats: 0, before: Some(0) }
    }

    /// Goes on with more blocks. What repeats is what was before these.
    pub fn extend(&mut self, words: &'a [u8]) {
        self.words = words;
    }

    /// Whether there is nothing left.
    pub fn is_at_end(&self) -> bool {
        self.numbers.left() == 0 && self.repeats == 0 && self.words.is_empty()
    }

    /// The next number; none at the end. An error where a block has an unknown form.
    pub fn next(&mut self) -> Option<Result<Option<u128>, ()>> {
        loop {
            if self.repeats > 0 {
                self.repeats -= 1;
                return Some(Ok(self.before));
            }
            if let Some(number) = self.numbers.next() {
                self.before = number;
                return Some(Ok(number));
            }
            let (word, rest) = self.words.split_first_chunk::<8>()?;
            self.words = rest;
            match Block::of(*word) {
                Some(Block::Repeats(count)) => self.repeats = count,
                Some(Block::Numbers(numbers)) => self.numbers = numbers,
                None => return Some(Err(())),
            }
        }
    }
}
