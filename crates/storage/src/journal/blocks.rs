//! Bytes on their way into a segment, in whole blocks.
//!
//! Batches lie back to back, so most begin within a block whose first bytes are on disk already. These are kept here, and are
//! written again with the batch: a write of whole blocks can go past the operating system's memory, and where it does not, the
//! block need not be read first. What lies behind the last batch in its block becomes zeros.
//!
//! Invariant: the kept bytes are those of the file.

use super::slot::BLOCK;

const BLOCK_BYTES: usize = BLOCK as usize;

/// Memory that begins where the operating system wants it for such a write.
#[derive(Clone, Copy)]
#[repr(align(4096))]
struct Aligned(#[expect(dead_code, reason = "read as bytes of many")] [u8; BLOCK_BYTES]);

/// The block that was written last, and room for those that follow.
#[derive(Default)]
pub(super) struct Blocks {
    memory: Vec<Aligned>,
    /// Where in the file what is kept ends; none where the bytes before that are not known.
    end: Option<u64>,
}

impl Blocks {
    /// A segment begins here, at the beginning of a block.
    pub(super) fn begin(&mut self, at: u64) {
        debug_assert!(at.is_multiple_of(BLOCK));
        self.end = Some(at);
    }

    /// Blocks that end with these bytes and zeros, and where they go; none if the bytes before them are not known. What is kept
    /// stays so until [`Blocks::note_written`].
    pub(super) fn with(&mut self, bytes: &[u8], offset: u64) -> Option<(&[u8], u64)> {
        self.end.filter(|end| *end == offset)?;
        let kept = (offset % BLOCK) as usize;
        let end = kept + bytes.len();
        let blocks = end.div_ceil(BLOCK_BYTES).max(self.memory.len());
        self.memory.resize(blocks, Aligned([0; BLOCK_BYTES]));
        let memory = flat(&mut self.memory);
        memory[kept..end].copy_from_slice(bytes);
        let whole = end.next_multiple_of(BLOCK_BYTES);
        memory[end..whole].fill(0);
        Some((&memory[..whole], offset - kept as u64))
    }

    /// These bytes are in the file, and the next ones follow them.
    pub(super) fn note_written(&mut self, bytes: &[u8], offset: u64) {
        let end = offset + bytes.len() as u64;
        let kept = (end % BLOCK) as usize;
        let before = kept.saturating_sub(bytes.len());
        // Of the block that they begin in something is known only if they follow what is kept.
        let is_known = before == 0 || self.end == Some(offset);
        if self.memory.is_empty() {
            self.memory.push(Aligned([0; BLOCK_BYTES]));
        }
        flat(&mut self.memory)[before..kept].copy_from_slice(&bytes[bytes.len() - (kept - before)..]);
        self.end = is_known.then_some(end);
    }

    /// Nothing is known of the file any more.
    pub(super) fn forget(&mut self) {
        self.end = None;
    }
}

fn flat(memory: &mut [Aligned]) -> &mut [u8] {
    let bytes = std::mem::size_of_val(memory);
    // SAFETY: it is the memory of the very slice, each byte of which is one of an array of bytes.
    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_hold_what_was_written_before_and_after(lengths in proptest::collection::vec((1usize..9000, any::<bool>()), 1..30)) {
            let mut blocks = Blocks::default();
            blocks.begin(BLOCK);
            let mut file = vec![0; BLOCK_BYTES];
            let mut at = BLOCK;
            for (fill, (length, in_blocks)) in (1u8..).zip(lengths) {
                let bytes = vec![fill; length];
                file.truncate(at as usize);
                file.extend(&bytes);
                if in_blocks {
                    let (written, offset) = blocks.with(&bytes, at).unwrap();
                    file.resize(file.len().next_multiple_of(BLOCK_BYTES), 0);
                    prop_assert!(offset.is_multiple_of(BLOCK));
                    prop_assert!((written.as_ptr() as usize).is_multiple_of(BLOCK_BYTES));
                    prop_assert!(written == &file[offset as usize..]);
                }
                blocks.note_written(&bytes, at);
                at += length as u64;
            }
            prop_assert!(blocks.with(&[1], at + 8).is_none());
            blocks.forget();
            prop_assert!(blocks.with(&[1], at).is_none());
        }
    }

    #[test]
    fn a_block_of_which_the_beginning_is_not_known_is_not_written() {
        let mut blocks = Blocks::default();
        assert!(blocks.with(&[1; 100], BLOCK + 8).is_none());
        blocks.note_written(&[1; 100], BLOCK + 8);
        assert!(blocks.with(&[1; 100], BLOCK + 108).is_none());
        // From the next block on it is.
        blocks.note_written(&[2; 5000], BLOCK + 108);
        assert!(blocks.with(&[3; 10], BLOCK + 5108).is_some());
    }
}
