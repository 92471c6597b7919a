//! Index filters: which indexes queries of one shape may use, whatever they would choose by themselves.
//!
//! They live as long as the collection is open, as on MongoDB: a restart forgets them. A filter wins over a hint, but not
//! over `{$natural: 1}` and not over a look by `_id`. An index that it names need not exist.
//!
//! Invariant: a filter changes which plan is run, never what the plan returns.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::Filter;
use parking_lot::Mutex;

use super::{Purpose, QueryShape, ReadRequest};
use crate::index::Index;
use crate::limits::INDEX_FILTERS_MAX;

/// What `planCacheSetFilter` was given, as `planCacheListFilters` shows it.
#[derive(Debug, Clone)]
pub struct IndexFilter {
    pub query: Document,
    pub sort: Document,
    pub projection: Document,
    pub collation: Option<Document>,
    pub keys: Vec<Document>,
    pub names: Vec<String>,
}

impl IndexFilter {
    fn allows(&self, index: &Index) -> bool {
        self.names.contains(&index.spec.name) || self.keys.iter().any(|key| index.spec.has_key(key.as_raw()))
    }
}

/// The index filters of one collection.
#[derive(Debug, Default)]
pub struct IndexFilters {
    by_shape: Mutex<HashMap<QueryShape, Arc<IndexFilter>>>,
    /// How many there are: nearly always none, and then no read computes its shape.
    count: AtomicUsize,
}

impl IndexFilters {
    /// Sets the filter of a query's shape, in place of an earlier one.
    pub fn set(&self, request: &ReadRequest, filter: IndexFilter) -> Result<()> {
        let shape = shape(request);
        let mut by_shape = self.by_shape.lock();
        if by_shape.len() >= INDEX_FILTERS_MAX && !by_shape.contains_key(&shape) {
            return Err(Error::user(
                ErrorCode::ExceededMemoryLimit,
                format!("a collection has at most {INDEX_FILTERS_MAX} index filters"),
            ));
        }
        by_shape.insert(shape, Arc::new(filter));
        self.count.store(by_shape.len(), Ordering::Relaxed);
        Ok(())
    }

    pub fn remove(&self, request: &ReadRequest) {
        let mut by_shape = self.by_shape.lock();
        by_shape.remove(&shape(request));
        self.count.store(by_shape.len(), Ordering::Relaxed);
    }

    pub fn clear(&self) {
        let mut by_shape = self.by_shape.lock();
        by_shape.clear();
        self.count.store(0, Ordering::Relaxed);
    }

    /// Whether a query has one.
    pub(crate) fn concern(&self, request: &ReadRequest) -> bool {
        self.count.load(Ordering::Relaxed) > 0 && self.by_shape.lock().contains_key(&shape(request))
    }

    pub fn list(&self) -> Vec<Arc<IndexFilter>> {
        self.by_shape.lock().values().cloned().collect()
    }

    /// The indexes that a query may use, if there is a filter for it.
    pub(crate) fn allowed(&self, request: &ReadRequest, indexes: &[Arc<Index>]) -> Option<Arc<[Arc<Index>]>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let filter = self.by_shape.lock().get(&shape(request))?.clone();
        Some(indexes.iter().filter(|index| filter.allows(index)).cloned().collect())
    }
}

/// The shape that a filter is kept under: the order of a query's conditions means nothing, nor whether its rows are counted.
fn shape(request: &ReadRequest) -> QueryShape {
    let mut filter = Filter::clone(&request.filter);
    filter.sort();
    let request = ReadRequest { filter: Arc::new(filter), purpose: Purpose::Documents, ..request.clone() };
    QueryShape::of(&request)
}
