//! Keys of indexes over measurements, as indexes over their buckets have them.
//!
//! A path within the meta is the same path within the bucket's. Every other field, the time among them, stands for its two
//! bounds in a bucket: ascending in the order of the smallest value, descending in that of the largest. A field of places stands for
//! its column.

use kilim_bson::{Document, RawDocument, RawValue};

use super::weaker::in_meta;
use super::{META, TimeSeries};

impl TimeSeries {
    /// What a path within the meta is called in a bucket.
    pub fn path_in_bucket(&self, path: &str) -> Option<String> {
        in_meta(self.meta_field.as_deref(), path)
    }

    /// Whether a path of an index is one of measured values: neither the time nor within the meta.
    pub fn is_measured(&self, path: &str) -> bool {
        *path != *self.time_field && self.path_in_bucket(path).is_none()
    }

    /// The key of an index over measurements as one over their buckets, or the field that no such index can have.
    pub fn key_in_buckets<'k>(&self, key: RawDocument<'k>) -> Result<Document, &'k str> {
        let mut out = Document::new();
        for (name, kind) in key {
            if let Some(path) = self.path_in_bucket(name) {
                out.push(&path, kind);
                continue;
            }
            if matches!(kind, RawValue::String(PLACES)) && *name != *self.time_field {
                out.push(&format!("{DATA}{name}"), PLACES_IN_BUCKETS);
                continue;
            }
            let descends = match kind {
                RawValue::Int32(number) => number < 0,
                RawValue::Int64(number) => number < 0,
                RawValue::Double(number) => number < 0.0,
                RawValue::Decimal128(number) => number.is_negative(),
                _ => return Err(name),
            };
            let sides = if descends { [MAX, MIN] } else { [MIN, MAX] };
            sides.iter().for_each(|side| out.push(&format!("{side}{name}"), kind));
        }
        Ok(out)
    }

    /// The key of an index over buckets as one over their measurements; none where it is none.
    pub fn key_of_measurements(&self, key: RawDocument<'_>) -> Option<Document> {
        let mut out = Document::new();
        let mut parts = key.iter();
        while let Some((path, kind)) = parts.next() {
            if matches!(kind, RawValue::String(PLACES_IN_BUCKETS)) {
                out.push(path.strip_prefix(DATA)?, PLACES);
                continue;
            }
            match path.strip_prefix(META).filter(|rest| rest.is_empty() || rest.starts_with('.')) {
                Some(rest) => out.push(&format!("{}{rest}", self.meta_field.as_deref()?), kind),
                None => {
                    out.push(bounded(path)?, kind);
                    parts.next()?;
                }
            }
        }
        let is_same = self.key_in_buckets(out.as_raw()).is_ok_and(|again| again.as_raw() == key);
        is_same.then_some(out)
    }
}

/// The kinds of an index over places, of measurements and of their buckets.
const PLACES: &str = "2dsphere";
const PLACES_IN_BUCKETS: &str = "2dsphere_bucket";

/// Where a bucket has the columns of its fields.
pub(super) const DATA: &str = "data.";
/// Where a bucket has the smallest and the largest value of each field.
pub(super) const MIN: &str = "control.min.";
pub(super) const MAX: &str = "control.max.";

/// The path in measurements of which a path in a bucket is a bound.
pub fn bounded(path: &str) -> Option<&str> {
    path.strip_prefix(MIN).or_else(|| path.strip_prefix(MAX))
}

/// The path in measurements of which a path in a bucket is the column.
pub fn of_column(path: &str) -> Option<&str> {
    path.strip_prefix(DATA)
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::super::{Bucketing, Granularity};
    use super::*;

    #[test]
    fn keys_are_translated_there_and_back() {
        let series = TimeSeries {
            time_field: "t".into(),
            meta_field: Some("k".into()),
            bucketing: Bucketing::By(Granularity::Seconds),
        };
        for (key, expected) in [
            (doc! {"k": 1}, Some(doc! {"meta": 1})),
            (doc! {"k.a": 1, "t": 1}, Some(doc! {"meta.a": 1, "control.min.t": 1, "control.max.t": 1})),
            (doc! {"t": -1}, Some(doc! {"control.max.t": -1, "control.min.t": -1})),
            (doc! {"kk": 1}, Some(doc! {"control.min.kk": 1, "control.max.kk": 1})),
            (
                doc! {"k": 1, "v.x": (-1)},
                Some(doc! {"meta": 1, "control.max.v.x": (-1), "control.min.v.x": (-1)}),
            ),
            (
                doc! {"k": 1, "a.v": "2dsphere", "t": 1},
                Some(doc! {"meta": 1, "data.a.v": "2dsphere_bucket", "control.min.t": 1, "control.max.t": 1}),
            ),
            (doc! {"t": "2dsphere"}, None),
            (doc! {"v": "hashed"}, None),
            (doc! {"t": "hashed"}, None),
        ] {
            let translated = series.key_in_buckets(key.as_raw());
            assert_eq!(translated.as_ref().ok(), expected.as_ref());
            if let Some(expected) = expected {
                assert_eq!(series.key_of_measurements(expected.as_raw()), Some(key));
            }
        }
    }
}
