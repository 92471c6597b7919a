//! Cells of the plane: what a `2d` index holds.
//!
//! The square from `min` to `max` is divided into four again and again, as often as the index has bits. A hash is the number of
//! a cell, the bits of x and y in turn, x first, at the upper end of 64 bits. The hashes of a cell's parts are those that begin
//! as its own does.

use crate::planar::{Pair, Rectangle};

/// The square that an index covers, and how finely.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    pub min: f64,
    pub max: f64,
    /// Bits of each coordinate.
    pub bits: u32,
}

/// A square of the grid: the first `level` pairs of bits of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Square {
    pub hash: u64,
    pub level: u32,
}

/// Squares of a covering.
const SQUARES_MAX: usize = 16;

impl Grid {
    pub fn contains(&self, at: Pair) -> bool {
        let within = |value: f64| value >= self.min && value <= self.max;
        within(at.x) && within(at.y)
    }

    /// The hash of a point, which the grid contains.
    pub fn hash(&self, at: Pair) -> u64 {
        let whole = interleave(self.number(at.x), self.number(at.y));
        self.cut(whole)
    }

    /// A hash without the bits that the grid does not have.
    fn cut(&self, hash: u64) -> u64 {
        if self.bits == 32 { hash } else { hash & !(u64::MAX >> (2 * self.bits)) }
    }

    /// A coordinate as a part of 2^32.
    fn number(&self, value: f64) -> u32 {
        let scaled = (value - self.min) * (4_294_967_296.0 / (self.max - self.min));
        // The upper end belongs to the last cell.
        scaled.clamp(0.0, 4_294_967_295.0) as u32
    }

    /// The square in the plane.
    pub fn area(&self, square: Square) -> Rectangle {
        let (x, y) = separate(square.hash);
        let side = (self.max - self.min)
            / f64::from(2u32.pow(square.level.min(31)))
            / if square.level == 32 { 2.0 } else { 1.0 };
        let low = |number: u32| f64::from(number) * ((self.max - self.min) / 4_294_967_296.0) + self.min;
        let min = Pair { x: low(x), y: low(y) };
        Rectangle { min, max: Pair { x: min.x + side, y: min.y + side } }
    }

    /// Squares that cover the part of a shape within the grid. `meets` says whether the shape may have something in a
    /// rectangle, `holds` whether it has all of one.
    pub fn covering(
        &self,
        meets: impl Fn(&Rectangle) -> bool,
        holds: impl Fn(&Rectangle) -> bool,
    ) -> Vec<Square> {
        // Rounding may put a point that is on the boundary of a square into the next one.
        let margin = (self.max - self.min) * 1e-9;
        let around = |square: Square| {
            let Rectangle { min, max } = self.area(square);
            Rectangle {
                min: Pair { x: min.x - margin, y: min.y - margin },
                max: Pair { x: max.x + margin, y: max.y + margin },
            }
        };
        let mut done = Vec::new();
        let mut open = vec![Square { hash: 0, level: 0 }];
        while !open.is_empty() {
            let mut next = Vec::new();
            for &square in &open {
                let area = around(square);
                if !meets(&area) {
                    continue;
                }
                if square.level >= self.bits || holds(&area) {
                    done.push(square);
                } else {
                    next.extend(square.parts());
                }
            }
            let parts: Vec<Square> = next.into_iter().filter(|part| meets(&around(*part))).collect();
            if done.len() + parts.len() > SQUARES_MAX {
                // Not finer than this: what was open is taken whole.
                done.extend(open.into_iter().filter(|square| square.level < self.bits).filter(|square| {
                    let area = around(*square);
                    meets(&area) && !holds(&area)
                }));
                break;
            }
            open = parts;
        }
        done.sort_unstable_by_key(|square| square.hash);
        done.dedup();
        done
    }
}

impl Square {
    /// The last hash that begins as the square's does.
    pub fn last(self) -> u64 {
        if self.level == 32 { self.hash } else { self.hash | u64::MAX >> (2 * self.level) }
    }

    fn parts(self) -> [Square; 4] {
        let level = self.level + 1;
        let shift = 64 - 2 * level;
        [0, 1, 2, 3].map(|part| Square { hash: self.hash | part << shift, level })
    }
}

/// Bits of x and y in turn, x first.
fn interleave(x: u32, y: u32) -> u64 {
    spread(x) << 1 | spread(y)
}

fn separate(hash: u64) -> (u32, u32) {
    (gather(hash >> 1), gather(hash))
}

fn spread(value: u32) -> u64 {
    let mut bits = u64::from(value);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

fn gather(hash: u64) -> u32 {
    let mut bits = hash & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333u64),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid = Grid { min: -180.0, max: 180.0, bits: 26 };

    #[test]
    fn a_square_holds_the_points_whose_hashes_begin_as_its_own() {
        for (x, y) in [(0.0, 0.0), (-180.0, -180.0), (180.0, 180.0), (12.5, -77.25), (179.99, 3.0)] {
            let at = Pair { x, y };
            let hash = GRID.hash(at);
            for level in 1..=26 {
                let square = Square { hash: hash & !(u64::MAX >> (2 * level)), level };
                assert!((square.hash..=square.last()).contains(&hash));
                let area = GRID.area(square);
                assert!(area.distance(at) < 1e-6, "{at:?} in {area:?}");
            }
        }
    }

    #[test]
    fn coordinates_survive_their_bits() {
        for (x, y) in [(0, 0), (u32::MAX, 0), (0, u32::MAX), (0x1234_5678, 0x9ABC_DEF0)] {
            assert_eq!(separate(interleave(x, y)), (x, y));
        }
    }
}
