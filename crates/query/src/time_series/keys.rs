//! Keys of indexes over measurements, as indexes over their buckets have them.
//!
//! A path within the meta is the same path within the bucket's. The time stands for the two bounds of a bucket: from a time
//! on, in the order of the first bound; against it, in the order of the last.

use kilim_bson::{Document, RawDocument, RawValue};

use super::{META, TimeSeries};

impl TimeSeries {
    /// What a path within the meta is called in a bucket.
    pub fn path_in_bucket(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(self.meta_field.as_deref()?)?;
        (rest.is_empty() || rest.starts_with('.')).then(|| format!("{META}{rest}"))
    }

    /// The key of an index over measurements as one over their buckets, or the field that no such index can have.
    pub fn key_in_buckets<'k>(&self, key: RawDocument<'k>) -> Result<Document, &'k str> {
        let mut out = Document::new();
        for (name, kind) in key {
            if let Some(path) = self.path_in_bucket(name) {
                out.push(&path, kind);
            } else if *name == *self.time_field && kind.is_number() {
                let descends = match kind {
                    RawValue::Int32(number) => number < 0,
                    RawValue::Int64(number) => number < 0,
                    RawValue::Double(number) => number < 0.0,
                    _ => false,
                };
                let sides = if descends { ["max", "min"] } else { ["min", "max"] };
                sides.iter().for_each(|side| out.push(&format!("control.{side}.{name}"), kind));
            } else {
                return Err(name);
            }
        }
        Ok(out)
    }

    /// The key of an index over buckets as one over their measurements; none where it is none.
    pub fn key_of_measurements(&self, key: RawDocument<'_>) -> Option<Document> {
        let mut out = Document::new();
        let mut parts = key.iter();
        while let Some((path, kind)) = parts.next() {
            match path.strip_prefix(META).filter(|rest| rest.is_empty() || rest.starts_with('.')) {
                Some(rest) => out.push(&format!("{}{rest}", self.meta_field.as_deref()?), kind),
                None => {
                    out.push(&self.time_field, kind);
                    parts.next()?;
                }
            }
        }
        let is_same = self.key_in_buckets(out.as_raw()).is_ok_and(|again| again.as_raw() == key);
        is_same.then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::doc;

    use super::super::Granularity;
    use super::*;

    #[test]
    fn keys_are_translated_there_and_back() {
        let series = TimeSeries {
            time_field: "t".into(),
            meta_field: Some("k".into()),
            granularity: Granularity::Seconds,
        };
        for (key, expected) in [
            (doc! {"k": 1}, Some(doc! {"meta": 1})),
            (doc! {"k.a": 1, "t": 1}, Some(doc! {"meta.a": 1, "control.min.t": 1, "control.max.t": 1})),
            (doc! {"t": -1}, Some(doc! {"control.max.t": -1, "control.min.t": -1})),
            (doc! {"kk": 1}, None),
            (doc! {"v": 1}, None),
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
