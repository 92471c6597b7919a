//! Where the nodes of a memtable lie: chunks that are filled from one end and freed all at once.
//!
//! Nodes are made one by one by whoever commits, and go all together in a thread of the background, so an allocator would
//! take each of them back from another thread. Nodes that are made one after the other are neighbours here.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The first chunk of a table, which may stay nearly empty. Each further one is twice as large, up to the largest.
const FIRST_BYTES: usize = 4 << 10;
const LARGEST_BYTES: usize = 256 << 10;

/// What each allocation is aligned for.
const ALIGN: usize = align_of::<u64>();

pub(super) struct Arena {
    chunks: Vec<Chunk>,
    /// The free end of the newest chunk.
    free: *mut u8,
    left: usize,
}

struct Chunk {
    begin: NonNull<u8>,
    layout: Layout,
    /// The free bytes at its end. What the arena has in `left` counts for the newest chunk.
    left: usize,
}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena { chunks: Vec::new(), free: std::ptr::null_mut(), left: 0 }
    }

    /// Memory for a value of this layout, which nobody else has until the arena is dropped.
    pub(super) fn allocate(&mut self, layout: Layout) -> NonNull<u8> {
        assert!(layout.align() <= ALIGN, "nothing in a table asks for more");
        let bytes = layout.size().next_multiple_of(ALIGN);
        if bytes > self.left {
            self.grow(bytes);
        }
        let place = self.free;
        // SAFETY: `left` bytes from `free` on belong to the newest chunk, and `bytes` is at most that. `grow` has left a chunk,
        // so `free` is not null.
        unsafe {
            self.free = place.add(bytes);
            self.left -= bytes;
            NonNull::new_unchecked(place)
        }
    }

    /// Goes over all that was allocated, in that order. `visit` says how many bytes were asked for at a place.
    pub(super) fn each(&mut self, mut visit: impl FnMut(NonNull<u8>) -> usize) {
        self.close();
        for chunk in &self.chunks {
            let used = chunk.layout.size() - chunk.left;
            let mut at = 0;
            while at < used {
                // SAFETY: `at` is less than the size of the chunk.
                at += visit(unsafe { chunk.begin.add(at) }).next_multiple_of(ALIGN);
            }
        }
    }

    /// Leaves the newest chunk as it is.
    fn close(&mut self) {
        if let Some(newest) = self.chunks.last_mut() {
            newest.left += self.left;
        }
        (self.free, self.left) = (std::ptr::null_mut(), 0);
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.close();
        let last = self.chunks.last().map_or(FIRST_BYTES / 2, |chunk| chunk.layout.size());
        let size = (2 * last).min(LARGEST_BYTES).max(bytes);
        let layout = Layout::from_size_align(size, ALIGN).expect("a chunk is small");
        // SAFETY: the layout is not empty, since the size is at least that of the first chunk.
        let Some(chunk) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        self.chunks.push(Chunk { begin: chunk, layout, left: 0 });
        (self.free, self.left) = (chunk.as_ptr(), size);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: `grow` allocated it with this layout, and it is freed here only. What lay in it is not used any more:
            // by the contract of `allocate` it is the arena's owner who sees to that.
            unsafe { dealloc(chunk.begin.as_ptr(), chunk.layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_stay_as_they_were_written() {
        let mut arena = Arena::new();
        let sizes = [1, 8, 40, 100, 4_000, 12, 700_000, 3].into_iter().cycle().take(400);
        let pieces: Vec<(NonNull<u8>, usize, u8)> = sizes
            .zip((0..=255u8).cycle())
            .map(|(size, fill)| {
                let piece = arena.allocate(Layout::from_size_align(size, 8).unwrap());
                // SAFETY: the piece has `size` bytes and is ours.
                unsafe { piece.write_bytes(fill, size) };
                (piece, size, fill)
            })
            .collect();
        for (piece, size, fill) in &pieces {
            assert_eq!(piece.as_ptr() as usize % ALIGN, 0);
            // SAFETY: it was written above, and the arena lives.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), *size) };
            assert!(bytes.iter().all(|byte| byte == fill));
        }
        for _ in 0..2 {
            let mut made = pieces.iter();
            arena.each(|visited| {
                let (piece, size, _) = made.next().unwrap();
                assert_eq!(visited, *piece);
                *size
            });
            assert!(made.next().is_none());
        }
    }
}
