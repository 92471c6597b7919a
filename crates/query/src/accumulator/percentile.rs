//! `$median` and `$percentile`: a t-digest.
//!
//! Up to [`BUFFER_MAX`] numbers are kept as they are, and the answer is the number of that rank. Beyond, they
//! are gathered into centroids, a mean and a weight each: small ones at both ends of the distribution,
//! larger ones in its middle, so memory is bounded and the tails stay sharp.
//!
//! Invariant: centroids ascend by their means, and their weights add up to the numbers taken in.

use kilim_bson::{RawValue, Value, array};

/// Numbers kept before they are gathered: sorted at once, they cost less than one at a time.
const BUFFER_MAX: usize = 4096;
/// How many centroids there are at most, about.
const COMPRESSION: f64 = 1000.0;

#[derive(Debug, Clone, Copy)]
struct Centroid {
    mean: f64,
    weight: f64,
}

/// The state of percentiles.
#[derive(Debug, Clone)]
pub struct Digest {
    centroids: Vec<Centroid>,
    buffer: Vec<f64>,
    /// Infinities have no mean, so they are counted.
    infinities: [i64; 2],
    least: f64,
    greatest: f64,
}

impl Digest {
    pub fn new() -> Digest {
        Digest {
            centroids: Vec::new(),
            buffer: Vec::new(),
            infinities: [0; 2],
            least: f64::INFINITY,
            greatest: f64::NEG_INFINITY,
        }
    }

    /// Takes a number in, unless it is NaN; how many bytes were gained.
    pub fn add(&mut self, value: f64) -> isize {
        let before = self.bytes();
        if value.is_infinite() {
            self.infinities[usize::from(value > 0.0)] += 1;
        } else if !value.is_nan() {
            self.least = self.least.min(value);
            self.greatest = self.greatest.max(value);
            self.buffer.push(value);
            if self.buffer.len() >= BUFFER_MAX {
                self.gather();
            }
        }
        self.bytes() as isize - before as isize
    }

    pub fn merge(&mut self, other: Digest) -> isize {
        let before = self.bytes();
        for (own, others) in self.infinities.iter_mut().zip(other.infinities) {
            *own += others;
        }
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
        self.buffer.extend(other.buffer);
        if !other.centroids.is_empty() {
            self.centroids.extend(other.centroids);
            self.gather();
        } else if self.buffer.len() >= BUFFER_MAX {
            self.gather();
        }
        self.bytes() as isize - before as isize
    }

    pub fn bytes(&self) -> usize {
        self.centroids.capacity() * size_of::<Centroid>() + self.buffer.capacity() * size_of::<f64>()
    }

    /// The number below which the share `p` of all lies; none of nothing.
    pub fn percentile(&mut self, p: f64) -> Option<f64> {
        if self.centroids.is_empty() {
            self.buffer.sort_unstable_by(f64::total_cmp);
        } else if !self.buffer.is_empty() {
            self.gather();
        }
        let [negative, positive] = self.infinities;
        let finite = match self.centroids.is_empty() {
            true => self.buffer.len() as i64,
            false => self.centroids.iter().map(|centroid| centroid.weight).sum::<f64>() as i64,
        };
        let count = negative + finite + positive;
        if count == 0 {
            return None;
        }
        let rank = rank(count, p);
        if rank < negative {
            return Some(f64::NEG_INFINITY);
        }
        let rank = rank - negative;
        if rank >= finite {
            return Some(f64::INFINITY);
        }
        Some(match self.buffer.get(rank as usize) {
            Some(value) if self.centroids.is_empty() => *value,
            _ if rank == 0 => self.least,
            _ if rank == finite - 1 => self.greatest,
            _ => self.estimate(rank as f64 + 0.5),
        })
    }

    /// The value at a place among the sorted numbers, taken to lie evenly between the centroids' middles.
    fn estimate(&self, place: f64) -> f64 {
        let (mut left, mut left_place, mut before) = (self.least, 0.0, 0.0);
        for Centroid { mean, weight } in &self.centroids {
            // A centroid of one number is that number.
            if *weight == 1.0 && before <= place && place < before + 1.0 {
                return *mean;
            }
            let middle = before + weight / 2.0;
            if place <= middle {
                let share = (place - left_place) / (middle - left_place);
                return (left + (mean - left) * share).min(*mean);
            }
            (left, left_place, before) = (*mean, middle, before + weight);
        }
        let share = (place - left_place) / (before - left_place);
        (left + (self.greatest - left) * share).min(self.greatest)
    }

    /// Makes centroids of what is in the buffer and of the centroids there are.
    fn gather(&mut self) {
        let singles = self.buffer.drain(..).map(|mean| Centroid { mean, weight: 1.0 });
        let mut all = std::mem::take(&mut self.centroids);
        all.extend(singles);
        all.sort_by(|left, right| left.mean.total_cmp(&right.mean));
        let total: f64 = all.iter().map(|centroid| centroid.weight).sum();
        let (mut before, mut limit) = (0.0, weight_limit(0.0, total));
        for next in all {
            match self.centroids.last_mut() {
                Some(current) if before + current.weight + next.weight <= limit => {
                    current.weight += next.weight;
                    current.mean += (next.mean - current.mean) * next.weight / current.weight;
                }
                current => {
                    before += current.map_or(0.0, |current| current.weight);
                    limit = weight_limit(before, total);
                    self.centroids.push(next);
                }
            }
        }
    }

    /// `[infinities below, infinities above, least, greatest, [mean, weight, …], [number, …]]`.
    pub(super) fn to_value(&self) -> Value {
        let centroids = self.centroids.iter().flat_map(|centroid| [centroid.mean, centroid.weight]);
        let list =
            |numbers: &mut dyn Iterator<Item = f64>| -> Vec<Value> { numbers.map(Value::Double).collect() };
        Value::Array(array![
            self.infinities[0],
            self.infinities[1],
            self.least,
            self.greatest,
            list(&mut { centroids }),
            list(&mut self.buffer.iter().copied())
        ])
    }

    pub(super) fn from_value(stored: RawValue<'_>) -> Option<Digest> {
        let mut stored = stored.as_array()?.iter();
        let mut count = || match stored.next() {
            Some(RawValue::Int64(count)) => Some(count),
            _ => None,
        };
        let infinities = [count()?, count()?];
        let mut double = || match stored.next() {
            Some(RawValue::Double(value)) => Some(value),
            _ => None,
        };
        let (least, greatest) = (double()?, double()?);
        let mut list = || -> Option<Vec<f64>> {
            let number = |value| if let RawValue::Double(value) = value { Some(value) } else { None };
            stored.next()?.as_array()?.iter().map(number).collect()
        };
        let (pairs, buffer) = (list()?, list()?);
        let centroids = pairs.chunks_exact(2).map(|pair| Centroid { mean: pair[0], weight: pair[1] });
        Some(Digest { centroids: centroids.collect(), buffer, infinities, least, greatest })
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest::new()
    }
}

/// The rank, from zero, of the percentile among so many sorted numbers.
pub(crate) fn rank(count: i64, p: f64) -> i64 {
    ((count as f64 * p).ceil() as i64 - 1).clamp(0, count - 1)
}

/// Up to which place a centroid may reach that begins at this one: the scale is steep at both ends.
fn weight_limit(before: f64, total: f64) -> f64 {
    let scale = COMPRESSION / std::f64::consts::TAU;
    let angle = (2.0 * (before / total) - 1.0).clamp(-1.0, 1.0).asin() + 1.0 / scale;
    if angle >= std::f64::consts::FRAC_PI_2 { total } else { total * (angle.sin() + 1.0) / 2.0 }
}
