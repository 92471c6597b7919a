//! Labels: whole numbers with gaps between them, which keep an order without renumbering everything.
//!
//! A new label goes into the gap where it belongs. Where the gap is full, the labels around it are spread evenly over a
//! block of numbers: the smallest block around the place that is not crowded. Blocks are powers of two wide, and the wider
//! a block, the sparser it must be, so the work of spreading is a logarithm of the number of labels for each new one
//! (Bender et al., "Two simplified algorithms for maintaining order in a list").

use kilim_error::{Error, Result};

/// Labels are above 0 and below this, so that a double holds each of them exactly.
pub(super) const LABEL_LIMIT: i64 = 1 << 53;
/// Blocks are at most the whole range.
const LEVEL_MAX: u32 = 53;
/// From one width of blocks to the next, twice as wide, so much more may be in a block. At 1.5 the whole range holds two
/// thousand million labels.
const GROWTH: f64 = 1.5;
/// The distance of an order key from that of the sibling before it.
const ORDER_STEP: i64 = 1 << 20;
/// The first child gets an eighth of what is free, and each later one a smaller share: the free part shrinks with the
/// square root of the number of children, so it lasts.
const FIRST_SHARE: i64 = 2;

/// Labels in a gap, without its ends; none where they do not fit. `siblings`: what comes goes to the end, behind so
/// many others, and leaves room for more.
pub(super) fn in_gap(below: i64, above: i64, count: usize, siblings: Option<i64>) -> Option<Vec<i64>> {
    let (free, count) = (above - below - 1, count as i64);
    if free < count {
        return None;
    }
    let share = share_of(free, siblings);
    // Whoever comes with many below gets room in proportion.
    let width = share.max(count.saturating_mul(32)).min(free);
    let width = if width < count { count } else { width };
    let start = below + 1 + share.min((free - width) / 2);
    let steps = (count - 1).max(1);
    let place = |at: i64| start + (i128::from(at) * i128::from(width - 1) / i128::from(steps)) as i64;
    Some((0..count).map(place).collect())
}

/// Where a range of labels begins in a gap that takes it as it is; none where it is too wide.
pub(super) fn range_in_gap(below: i64, above: i64, width: i64, siblings: Option<i64>) -> Option<i64> {
    let free = above - below - 1;
    (width <= free).then(|| below + 1 + share_of(free, siblings).min((free - width) / 2))
}

/// The share of a gap for what comes next.
fn share_of(free: i64, siblings: Option<i64>) -> i64 {
    match siblings {
        Some(siblings) => free / (4 * (siblings.max(0) + FIRST_SHARE)),
        None => free / 3,
    }
}

/// An order key between two others; none where there is no room.
pub(super) fn between(below: i64, above: i64) -> Option<i64> {
    let middle = below + (above - below) / 2;
    (middle > below && middle < above).then_some(middle)
}

/// An order key behind all others; none where there is no room.
pub(super) fn behind(last: i64) -> Option<i64> {
    match last + ORDER_STEP < LABEL_LIMIT {
        true => Some(last + ORDER_STEP),
        false => between(last, LABEL_LIMIT),
    }
}

/// Labels that gave way to new ones.
pub(super) struct Room<T> {
    /// Those that were there, with their new labels.
    pub moved: Vec<(T, i64)>,
    /// The new ones.
    pub new: Vec<i64>,
}

/// Makes room for new labels behind `below`. `fetch` gives the labels of a range with what they belong to, in order.
pub(super) fn make_room<T>(
    below: i64,
    count: usize,
    mut fetch: impl FnMut(i64, i64) -> Result<Vec<(i64, T)>>,
) -> Result<Room<T>> {
    for level in 1..=LEVEL_MAX {
        let most = GROWTH.powi(level as i32);
        if count as f64 > most {
            continue;
        }
        let from = below >> level << level;
        let to = from + ((1 << level) - 1);
        let there = fetch(from.max(1), to.min(LABEL_LIMIT - 1))?;
        let all = there.len() + count;
        // Two numbers a label at least, or the next one finds no gap again.
        if all as f64 > most || (all as i64 + 1) * 2 > to - from {
            continue;
        }
        let step =
            |at: usize| from + ((at as i128 + 1) * (i128::from(to - from) + 1) / (all as i128 + 1)) as i64;
        let before = there.iter().filter(|(label, _)| *label <= below).count();
        let new = (0..count).map(|at| step(before + at)).collect();
        let place = |at: usize| if at < before { step(at) } else { step(at + count) };
        let moved = there.into_iter().enumerate().map(|(at, (_, owner))| (owner, place(at))).collect();
        return Ok(Room { moved, new });
    }
    Err(Error::bug("a tree has more labels than numbers"))
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Inserts labels at places that `choose` gives; how often a label was written, for each that was inserted.
    fn written(inserts: usize, mut choose: impl FnMut(usize) -> usize) -> f64 {
        let (mut labels, mut writes): (Vec<i64>, usize) = (Vec::new(), 0);
        for _ in 0..inserts {
            let at = choose(labels.len());
            let below = if at == 0 { 0 } else { labels[at - 1] };
            let above = labels.get(at).copied().unwrap_or(LABEL_LIMIT);
            match in_gap(below, above, 2, None) {
                Some(new) => drop(labels.splice(at..at, new)),
                None => {
                    let fetch = |from: i64, to: i64| {
                        let inside = |(_, label): &(usize, &i64)| (from..=to).contains(*label);
                        Ok(labels.iter().enumerate().filter(inside).map(|(at, label)| (*label, at)).collect())
                    };
                    let room = make_room(below, 2, fetch).unwrap();
                    writes += room.moved.len();
                    room.moved.iter().for_each(|(at, label)| labels[*at] = *label);
                    labels.splice(at..at, room.new);
                }
            }
            assert!(labels.is_sorted_by(|one, other| one < other), "{labels:?}");
            assert!(labels[0] > 0 && labels[labels.len() - 1] < LABEL_LIMIT);
        }
        writes as f64 / inserts as f64
    }

    #[test]
    fn labels_never_run_out_and_few_are_written_again() {
        let mut random = StdRng::seed_from_u64(26);
        let at_random = written(2000, |len| random.random_range(0..=len));
        let at_one_place = [written(2000, |_| 0), written(2000, |len| len), written(2000, |len| len / 2)];
        assert!(
            at_random < 2.0 && at_one_place.iter().all(|writes| *writes < 30.0),
            "{at_random} {at_one_place:?}"
        );
    }

    #[test]
    fn children_that_come_to_the_end_leave_room_for_a_million() {
        let (mut last, mut width) = (0, i64::MAX);
        for siblings in 0..1_000_000 {
            let new = in_gap(last, LABEL_LIMIT, 2, Some(siblings)).unwrap();
            assert!(last < new[0] && new[0] < new[1] && new[1] < LABEL_LIMIT);
            (last, width) = (new[1], new[1] - new[0]);
        }
        assert!(width > 1000, "{width}");
    }

    #[test]
    fn a_gap_takes_what_fits_and_not_more() {
        assert_eq!(in_gap(4, 7, 2, None), Some(vec![5, 6]));
        assert_eq!(in_gap(4, 6, 2, None), None);
        assert_eq!(in_gap(0, 6, 5, Some(3)), Some(vec![1, 2, 3, 4, 5]));
        assert_eq!((range_in_gap(4, 8, 3, None), range_in_gap(4, 8, 4, None)), (Some(5), None));
        assert_eq!(
            (range_in_gap(0, 101, 10, Some(0)), range_in_gap(0, 101, 98, Some(0))),
            (Some(13), Some(2))
        );
        assert_eq!((between(4, 6), between(4, 5)), (Some(5), None));
    }
}
