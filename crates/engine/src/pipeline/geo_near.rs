//! `$geoNear`: puts the distance that the read measured into each document, or measures it.

use kilim_bson::Path;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::stage;

use super::Step;
use crate::catalog::Collection;
use crate::index::{Holds, IndexKind};
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row, RowData, measured};

pub(super) struct GeoNear {
    stage: Box<stage::GeoNear>,
    input: Box<dyn Step>,
}

impl GeoNear {
    pub(super) fn new(stage: &stage::GeoNear, input: Box<dyn Step>) -> GeoNear {
        GeoNear { stage: Box::new(stage.clone()), input }
    }
}

impl Step for GeoNear {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        while let Some(row) = self.input.next(context)? {
            context.tick()?;
            let own = match &self.stage.key {
                Some(key) if self.stage.measures => measured(row.document(), key, &self.stage.near),
                _ => None,
            };
            let document = match (&own, &row.near) {
                (Some(own), _) => self.stage.apply(row.document(), own.distance, &own.place),
                (None, _) if self.stage.measures => continue,
                (None, Some(read)) => self.stage.apply(row.document(), read.distance, &read.place),
                (None, None) => return Err(Error::bug("a document without a distance came to $geoNear")),
            };
            return Ok(Some(row.with(RowData::Document(document))));
        }
        Ok(None)
    }
}

/// The field that holds the places: the one that was named, or that of the only index there is.
pub(super) fn key(
    stage: &stage::GeoNear,
    collection: Option<&Collection>,
    namespace: &Namespace,
) -> Result<Path> {
    let Some(collection) = collection else {
        let message = format!("$geoNear requires a geo index to run, but {namespace} does not exist");
        return Err(Error::user(ErrorCode::NamespaceNotFound, message));
    };
    if let Some(key) = &stage.key {
        return Ok(key.clone());
    }
    let of = |is_kind: fn(&IndexKind) -> bool| {
        let indexes = collection.indexes.iter().filter(move |index| is_kind(&index.spec.kind));
        let parts = indexes.flat_map(|index| index.spec.key.iter().filter(|part| part.holds == Holds::Cell));
        let mut paths: Vec<Path> = parts.map(|part| part.path.clone()).collect();
        paths.dedup();
        paths
    };
    let missing = |message: String| Error::user(ErrorCode::IndexNotFound, message);
    // A 2d index counts first, whatever is asked of it.
    for (name, mut paths) in [
        ("2d", of(|kind| matches!(kind, IndexKind::TwoD(_)))),
        ("2dsphere", of(|kind| matches!(kind, IndexKind::TwoDSphere(_)))),
    ] {
        if paths.len() > 1 {
            let message = format!(
                "There is more than one {name} index on {namespace}; unsure which to use for $geoNear"
            );
            return Err(missing(message));
        }
        if let Some(path) = paths.pop() {
            return Ok(path);
        }
    }
    Err(missing("$geoNear requires a 2d or 2dsphere index, but none were found".to_owned()))
}
