//! Which buckets take further measurements. Known to the process alone: after a start, measurements go into new buckets.
//!
//! An entry is a hint. Who writes takes the bucket's record for himself and looks whether it is still there, and whether the
//! measurement fits.

use std::collections::HashMap;

use kilim_bson::Value;
use parking_lot::Mutex;

use crate::limits;
use crate::records::RowId;

/// The bucket that each meta's measurements go into.
#[derive(Debug, Default)]
pub(crate) struct OpenBuckets(Mutex<HashMap<Option<Box<[u8]>>, RowId>>);

impl OpenBuckets {
    pub fn get(&self, meta: &Option<Value>) -> Option<RowId> {
        self.0.lock().get(&key(meta)).copied()
    }

    pub fn open(&self, meta: &Option<Value>, row: RowId) {
        let mut open = self.0.lock();
        if open.len() >= limits::OPEN_BUCKETS_MAX {
            open.clear();
        }
        open.insert(key(meta), row);
    }
}

fn key(meta: &Option<Value>) -> Option<Box<[u8]>> {
    let meta = [("", meta.clone()?)];
    Some(meta.into_iter().collect::<kilim_bson::Document>().into_bytes().into())
}
