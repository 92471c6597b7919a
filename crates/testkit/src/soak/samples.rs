//! What a server takes, looked at again and again, and whether it grows.
//!
//! The rule: of all samples the first tenth is left out, as the time in which caches fill. Of the rest, the median of the
//! last quarter may exceed the median of the first by a quarter and a fixed allowance. The allowance covers what is
//! noise in a short run; over an hour it is small beside any leak that adds something a second.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kilim_bson::doc;

use super::{DATABASE, loads};
use crate::subject::{Running, disk_bytes};

/// A figure, the unit it is printed in, and by how much it may differ beside a quarter of itself.
struct Figure {
    name: &'static str,
    unit: (&'static str, f64),
    allowance: f64,
}

const MB: f64 = 1048576.0;

const FIGURES: [Figure; 6] = [
    Figure { name: "resident memory", unit: ("MB", MB), allowance: 32.0 * MB },
    Figure { name: "disk", unit: ("MB", MB), allowance: 64.0 * MB },
    Figure { name: "descriptors", unit: ("", 1.0), allowance: 10.0 },
    Figure { name: "threads", unit: ("", 1.0), allowance: 10.0 },
    Figure { name: "read", unit: ("ms", 1e-3), allowance: 20e-3 },
    Figure { name: "durable write", unit: ("ms", 1e-3), allowance: 50e-3 },
];

#[derive(Default)]
pub struct Samples {
    taken: Vec<[f64; FIGURES.len()]>,
}

impl Samples {
    pub(super) fn take(&mut self, running: &Running, data: &Path) -> Result<()> {
        let entries = |folder: &str| -> Result<f64> {
            let path = format!("/proc/{}/{folder}", running.pid());
            Ok(std::fs::read_dir(&path).with_context(|| format!("cannot list {path}"))?.count() as f64)
        };
        let mut link = running.connect()?;
        let mut timed = |command| -> Result<f64> {
            let began = Instant::now();
            link.run(DATABASE, command)?;
            Ok(began.elapsed().as_secs_f64())
        };
        let read = timed(doc! {"find": loads::DOCS, "filter": {"_id": 1}})?;
        let concern = doc! {"w": "majority", "j": true};
        let write = timed(
            doc! {"update": "probe", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}, "upsert": true}], "writeConcern": concern},
        )?;
        self.taken.push([
            running.resident_bytes()? as f64,
            disk_bytes(data)? as f64,
            entries("fd")?,
            entries("task")?,
            read,
            write,
        ]);
        Ok(())
    }

    /// The medians of the first and of the last quarter.
    fn ends(&self, figure: usize) -> (f64, f64) {
        let settled = &self.taken[self.taken.len() / 10..];
        let quarter = (settled.len() / 4).max(1);
        let median = |samples: &[[f64; FIGURES.len()]]| {
            let mut values: Vec<f64> = samples.iter().map(|sample| sample[figure]).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        (median(&settled[..quarter]), median(&settled[settled.len() - quarter..]))
    }

    /// An error that names what grew.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.taken.is_empty(), "no sample was taken");
        for (at, figure) in FIGURES.iter().enumerate() {
            let (first, last) = self.ends(at);
            let most = first * 1.25 + figure.allowance;
            ensure!(last <= most, "{} grew beyond {:.1}:\n{self}", figure.name, most / figure.unit.1);
        }
        Ok(())
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.taken.is_empty() {
            return write!(f, "no samples");
        }
        write!(f, "medians of the first and the last quarter of {} samples:", self.taken.len())?;
        for (at, Figure { name, unit: (unit, size), .. }) in FIGURES.iter().enumerate() {
            let (first, last) = self.ends(at);
            write!(f, "\n  {name:<16}{:>10.1} → {:.1} {unit}", first / size, last / size)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(memory: impl Fn(usize) -> f64) -> Samples {
        Samples { taken: (0..100).map(|at| [memory(at) * MB, MB, 20.0, 30.0, 1e-3, 2e-3]).collect() }
    }

    #[test]
    fn what_grows_is_found_and_what_fills_at_first_is_not() {
        samples(|_| 100.0).check().unwrap();
        samples(|at| if at < 10 { at as f64 * 10.0 } else { 100.0 }).check().unwrap();
        let error = samples(|at| 100.0 + at as f64).check().unwrap_err().to_string();
        assert!(error.starts_with("resident memory grew"), "{error}");
    }
}
