//! An index as a document: what listIndexes shows, and what the catalog holds.

use kilim_bson::{Document, Path, RawDocument, RawValue, Writer, doc};
use kilim_collation::Collation;
use kilim_error::Result;
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;

use super::{Holds, IndexKind, IndexSpec, KeyPart, OverMeasurements};

/// The collation among the options of a collection, a view or an index.
pub(crate) fn collation_of(options: RawDocument<'_>) -> Result<Option<Collation>> {
    match options.get("collation") {
        Some(RawValue::Document(collation)) => Collation::parse(collation),
        _ => Ok(None),
    }
}

impl IndexSpec {
    /// The index on `_id` that every collection has, of the collection's own collation.
    pub fn id(collation: Option<Collation>) -> IndexSpec {
        IndexSpec { unique: true, collation, ..IndexSpec::over("_id_", doc! {"_id": 1}) }
    }

    /// An index over a key, without options.
    pub fn over(name: impl Into<String>, key: Document) -> IndexSpec {
        IndexSpec {
            name: name.into(),
            key: KeyPart::all_of(key.as_raw()),
            kind: IndexKind::of(key.as_raw(), None),
            key_document: key,
            unique: false,
            prepare_unique: false,
            sparse: false,
            hidden: false,
            expire_after_seconds: None,
            partial: None,
            collation: None,
            measurements: None,
        }
    }

    /// The index as listIndexes shows it.
    pub fn to_document(&self) -> Document {
        let mut writer = Writer::new();
        writer.append("v", RawValue::Int32(2));
        writer.append("key", RawValue::Document(self.key_document.as_raw()));
        writer.append("name", RawValue::String(&self.name));
        // MongoDB does not show `unique` for the index on `_id`, although it is.
        if self.unique && self.name != "_id_" {
            writer.append("unique", RawValue::Bool(true));
        }
        if self.sparse {
            writer.append("sparse", RawValue::Bool(true));
        }
        if self.hidden {
            writer.append("hidden", RawValue::Bool(true));
        }
        if self.prepare_unique {
            writer.append("prepareUnique", RawValue::Bool(true));
        }
        if let Some((document, _)) = &self.partial {
            writer.append("partialFilterExpression", RawValue::Document(document.as_raw()));
        }
        self.kind.append_options(&mut writer);
        if let Some(seconds) = self.expire_after_seconds {
            writer.append("expireAfterSeconds", RawValue::Int32(seconds));
        }
        if let Some(collation) = &self.collation {
            writer.append("collation", RawValue::Document(collation.to_document().as_raw()));
        }
        if let Some(over) = &self.measurements {
            writer.append("originalSpec", RawValue::Document(over.spec.as_raw()));
        }
        writer.finish()
    }

    /// Reads back what [`IndexSpec::to_document`] wrote.
    pub(crate) fn decode(document: RawDocument<'_>) -> Option<IndexSpec> {
        let key_document = document.get("key")?.as_document()?.to_document();
        let name = document.get("name")?.as_str()?.to_owned();
        let flag = |field| matches!(document.get(field), Some(RawValue::Bool(true)));
        let collation = collation_of(document).ok()?;
        let partial = match document.get("partialFilterExpression") {
            Some(filter) => {
                let filter = filter.as_document()?;
                let variables = Variables::default().under(collation.clone());
                Some((filter.to_document(), Filter::parse_in(filter, &Scope::new(&variables)).ok()?))
            }
            None => None,
        };
        let key = KeyPart::all_of(key_document.as_raw());
        let original = document.get("originalSpec").and_then(RawValue::as_document);
        let filter = partial.as_ref().map(|(_, filter)| filter);
        let measurements =
            original.map(|original| OverMeasurements::new(original.to_document(), &key, filter));
        Some(IndexSpec {
            measurements,
            key,
            unique: flag("unique") || name == "_id_",
            prepare_unique: flag("prepareUnique"),
            sparse: flag("sparse"),
            hidden: flag("hidden"),
            expire_after_seconds: match document.get("expireAfterSeconds") {
                Some(RawValue::Int32(seconds)) => Some(seconds),
                _ => None,
            },
            partial,
            kind: match document.get("wildcardProjection") {
                Some(projection) => IndexKind::of(key_document.as_raw(), Some(projection.as_document()?)),
                None => IndexKind::of(key_document.as_raw(), None),
            }
            .with_options(document),
            collation,
            key_document,
            name,
        })
    }
}

impl KeyPart {
    /// The parts of the keys of an index with this checked `key` document.
    pub fn all_of(key: RawDocument<'_>) -> Vec<KeyPart> {
        IndexKind::parts(key)
    }

    /// The fields of a checked `key` document, as parts that hold values.
    pub fn fields_of(key: RawDocument<'_>) -> Vec<KeyPart> {
        let parts = key.iter().map(|(path, direction)| KeyPart {
            path: Path::parse(path),
            holds: Holds::Value,
            descending: match direction {
                RawValue::Int32(value) => value < 0,
                RawValue::Int64(value) => value < 0,
                RawValue::Double(value) => value < 0.0,
                RawValue::Decimal128(value) => value.is_negative(),
                _ => false,
            },
        });
        parts.collect()
    }
}
