//! Documents that expire: a TTL index says after how many seconds, or a clustered collection of its own `_id`.
//!
//! Once a minute somebody looks into each of them for dates that have passed, and deletes what they belong
//! to by the same door as everybody else. A pass runs in a thread of its own, one at a time, and ends with
//! the engine. What it could not do, the next one will.

use std::sync::Arc;
use std::time::Instant;

use kilim_bson::{Path, RawValue, Value};
use kilim_error::{ErrorCode, Result};
use kilim_query::filter::{Comparison, Filter, Predicate};

use crate::catalog::Collection;
use crate::change::Cause;
use crate::engine::Engine;
use crate::index::Index;
use crate::operation::Operation;
use crate::plan::Hint;
use crate::unit::Unit;
use crate::write::{DeleteRequest, delete_those_that_can};

impl Engine {
    /// Begins a pass if it is time for one. Returns at once.
    pub(crate) fn expire_if_due(&self, now: Instant) {
        if !self.expiry.begin_if_due(now) {
            return;
        }
        let engine = self.weak();
        let pass = move || {
            let Some(engine) = engine.upgrade() else { return };
            let operation = engine.operations.start(0);
            // A failure is the next pass's to mend: it finds the same documents again.
            if let Err(error) = engine.expire(&operation) {
                tracing::warn!(%error, "expired documents could not be removed");
            }
            engine.expiry.end();
        };
        if self.environment().spawn("ttl", pass).is_err() {
            self.expiry.end();
        }
    }

    /// One pass over all TTL indexes; how many documents it removed.
    pub fn expire(&self, operation: &Arc<Operation>) -> Result<u64> {
        let now = self.now_millis();
        let mut removed = 0;
        for collection in self.catalog().iter() {
            let before = |seconds: i64| now.saturating_sub(seconds.saturating_mul(1000));
            if let (true, Some(RawValue::Int64(seconds))) =
                (collection.clustered, collection.options.get("expireAfterSeconds"))
            {
                // A bucket goes when the last of its measurements has passed.
                let path = match &collection.time_series {
                    Some(series) => format!("control.max.{}", series.time_field),
                    None => "_id".to_owned(),
                };
                let passed = passed(Path::parse(&path), before(seconds));
                removed += self.remove_passed(operation, collection, passed, None)?;
            }
            if let Some(bucketing) = collection.shape.bucketing()
                && let Some(seconds) = bucketing.expire_after_seconds
            {
                let passed = passed(Path::parse(&bucketing.field), before(seconds));
                removed += self.remove_passed(operation, collection, passed, None)?;
            }
            for index in collection.indexes.iter() {
                if let Some(seconds) = index.spec.expire_after_seconds {
                    removed += self.expire_by(operation, collection, index, before(i64::from(seconds)))?;
                }
            }
        }
        self.expiry.passes.add(1);
        Ok(removed)
    }

    fn expire_by(
        &self,
        operation: &Arc<Operation>,
        collection: &Collection,
        index: &Index,
        before: i64,
    ) -> Result<u64> {
        let passed = passed(index.spec.key[0].path.clone(), before);
        let filter = match &index.spec.partial {
            Some((_, condition)) => Filter::And(vec![passed, condition.clone()]),
            None => passed,
        };
        // A hidden index may not be named, and still counts.
        let hint = (!index.spec.hidden).then(|| Hint::Name(index.spec.name.clone()));
        self.remove_passed(operation, collection, filter, hint)
    }

    fn remove_passed(
        &self,
        operation: &Arc<Operation>,
        collection: &Collection,
        filter: Filter,
        hint: Option<Hint>,
    ) -> Result<u64> {
        let request =
            DeleteRequest { filter: Arc::new(filter), one: false, hint, collation: None, statement: 0 };
        let mut unit = Unit::new(self, operation.clone(), self.options.durability);
        unit.cause = Cause::Expiry;
        // A document that a pattern does not let go (`onSourceDelete: "restrict"`) stays; it keeps no other from expiring.
        let mut kept = 0;
        let removed = delete_those_that_can(&mut unit, &collection.namespace, &request, |error| {
            if !matches!(error.code(), ErrorCode::PatternRestrict | ErrorCode::TreeNotEmpty) {
                return Err(error);
            }
            kept += 1;
            Ok(())
        })?;
        unit.settle()?;
        if kept > 0 {
            let ns = collection.namespace.to_string();
            tracing::warn!(ns, kept, "expired documents stay: a pattern restricts their deletion");
        }
        Ok(removed)
    }
}

/// A range of dates matches dates only; of several in an array, the earliest decides.
fn passed(path: Path, before: i64) -> Filter {
    let predicate = Predicate::Compare(Comparison::Lte, Value::DateTime(before).into());
    Filter::Field { path, predicate }
}
