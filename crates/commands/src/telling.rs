//! What stages tell of the server: `$collStats`, `$indexStats`, `$patternStats`, `$planCacheStats`, `$currentOp` and the
//! listings of sessions.

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::metrics::Histogram;
use kilim_engine::{Engine, Namespace};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::stage::{CollStats, Stage};

use crate::command::aggregate::DATABASE_CURSOR;
use crate::command::build_info::host;
use crate::command::kill_sessions::digest_of;
use crate::command::update::now_ms;
use crate::command::{coll_stats, current_op, time_series};

/// Answers a stage that reads no documents.
pub fn tell(engine: &Engine, namespace: &Namespace, stage: &Stage) -> Result<Vec<Document>> {
    match stage {
        Stage::CollStats(stage) => Ok(vec![collection(engine, namespace, *stage)?]),
        Stage::IndexStats(_) => Ok(indexes(engine, namespace)),
        Stage::PatternStats(_) => patterns(engine, namespace),
        Stage::PlanCacheStats(_) => plans(engine, namespace),
        Stage::CurrentOp(stage) => Ok(current_op::shown(engine, stage)),
        Stage::ListSessions(stage) => Ok(sessions(engine, &stage.users)),
        _ => Err(Error::bug("a stage that tells nothing of the server")),
    }
}

fn collection(engine: &Engine, namespace: &Namespace, stage: CollStats) -> Result<Document> {
    let view = engine.view(namespace);
    let exists = |what: &str| match (engine.collection(namespace), &view) {
        (Some(_), _) => Ok(()),
        (None, Some(view)) => Err(view.is_no_collection().during("PlanExecutor error during aggregation")),
        (None, None) => Err(Error::user(
            ErrorCode::NamespaceNotFound,
            format!(
                "Unable to retrieve {what} in $collStats stage :: caused by :: Collection [{namespace}] not found."
            ),
        )),
    };
    let mut document = doc! {
        "ns": namespace.to_string(),
        "host": host(engine),
        "localTime": Value::DateTime(now_ms()),
    };
    if let Some(latencies) = stage.latency {
        let (database, collection) = (&namespace.database, &namespace.collection);
        let told = engine.top.of(database, collection, |usage| {
            let unused = Histogram::default();
            let figures = [
                ("reads", &usage.reading),
                ("writes", &usage.writing),
                ("commands", &usage.other),
                ("transactions", &unused),
            ];
            let figure = |(name, histogram)| (name, latency(histogram, latencies.histograms));
            figures.into_iter().map(figure).collect::<Document>()
        });
        document.push("latencyStats", told);
    }
    if let Some(scale) = stage.storage_scale {
        let stats = match view.as_ref().filter(|view| view.time_series.is_some()) {
            Some(view) => coll_stats::stats_of_measurements(engine, view, scale)?,
            None => {
                exists("storageStats")?;
                coll_stats::stats(engine, namespace, scale)?
            }
        };
        let told = stats.iter().filter(|(name, _)| *name != "ns");
        document
            .push("storageStats", told.map(|(name, value)| (name, value.to_value())).collect::<Document>());
    }
    if stage.count {
        exists("count")?;
        let stats = coll_stats::stats(engine, namespace, 1)?;
        document.push("count", stats.get("count").map(RawValue::to_value));
    }
    if stage.scans {
        exists("queryExecStats")?;
        let collection = engine.collection(namespace);
        let total = collection.as_ref().map_or(0, |it| it.shared.scans.total.get() as i64);
        let tailed = collection.as_ref().map_or(0, |it| it.shared.scans.tailed.get() as i64);
        document.push(
            "queryExecStats",
            doc! {"collectionScans": {"total": total, "nonTailable": total - tailed}},
        );
    }
    Ok(document)
}

fn latency(histogram: &Histogram, with_buckets: bool) -> Value {
    let mut document = Document::new();
    if with_buckets {
        let bucket = |(micros, count)| doc! {"micros": micros as i64, "count": count as i64};
        document.push("histogram", histogram.buckets().map(bucket).collect::<Vec<_>>());
    }
    document.push("latency", histogram.latency.micros.get() as i64);
    document.push("ops", histogram.latency.operations.get() as i64);
    Value::Document(document)
}

/// The indexes of a collection; those of a time-series collection as they are over measurements.
fn indexes(engine: &Engine, namespace: &Namespace) -> Vec<Document> {
    let view = engine.view(namespace);
    let Some(collection) = engine.collection(view.as_ref().map_or(namespace, |view| &view.on)) else {
        return Vec::new();
    };
    let series = view.as_ref().and_then(|view| view.time_series.as_deref());
    let shown = |spec: Document| match series {
        Some(series) => time_series::index_of_measurements(series, spec),
        None => Some(spec),
    };
    let tell = |index: &kilim_engine::index::Index| {
        let spec = shown(index.spec.to_document())?;
        Some(doc! {
            "name": &index.spec.name,
            "key": spec.get("key").map(RawValue::to_value),
            "host": host(engine),
            "accesses": {
                "ops": index.usage.uses() as i64,
                "since": Value::DateTime(now_ms() - index.usage.age().as_millis() as i64),
            },
            "spec": spec,
        })
    };
    let building = collection.building.iter().filter_map(|building| {
        let mut told = tell(&building.index)?;
        told.push("building", true);
        Some(told)
    });
    // The order of a clustered collection is no index of it.
    let own = collection.indexes.iter().skip(usize::from(collection.clustered));
    own.filter_map(|index| tell(index)).chain(building).collect()
}

/// The patterns of a collection, or of the whole database.
fn patterns(engine: &Engine, namespace: &Namespace) -> Result<Vec<Document>> {
    let registry = engine.patterns();
    let all = namespace.collection == DATABASE_CURSOR;
    let own = registry.of(&namespace.database).iter().filter(|one| all || one.target == *namespace);
    own.map(|pattern| engine.pattern_stats(pattern)).collect()
}

fn plans(engine: &Engine, namespace: &Namespace) -> Result<Vec<Document>> {
    let collection = engine
        .collection(namespace)
        .ok_or_else(|| Error::location(50933, format!("collection '{namespace}' does not exist")))?;
    let index_ids: Vec<u32> = collection.indexes.iter().map(|index| index.id.0).collect();
    let remembered = collection.shared.plan_cache.list();
    Ok((remembered.into_iter())
        .map(|remembered| {
            let (executions, scores): (Vec<Document>, Vec<f64>) = remembered.trials.into_iter().unzip();
            let scores: Vec<Value> = scores.into_iter().map(Value::Double).collect();
            doc! {
                "version": "1",
                "queryHash": remembered.shape.hash(),
                "planCacheKey": remembered.shape.key(index_ids.iter().copied()),
                "isActive": true,
                "works": remembered.works as i64,
                "timeOfCreation": Value::DateTime(now_ms() - remembered.age.as_millis() as i64),
                "createdFromQuery": remembered.query,
                "cachedPlan": remembered.plan,
                "creationExecStats": executions,
                "candidatePlanScores": scores,
                "indexFilterSet": remembered.index_filter_set,
                "host": host(engine),
            }
        })
        .collect())
}

/// The sessions of some users, or all.
fn sessions(engine: &Engine, users: &[(String, String)]) -> Vec<Document> {
    let mut shown = Vec::new();
    for (id, idle, owner) in engine.sessions.list_idle(engine.environment().now()) {
        let is_one = |(name, db): &(String, String)| {
            owner.as_ref().is_some_and(|owner| owner.name == *name && owner.db == *db)
        };
        if !users.is_empty() && !users.iter().any(is_one) {
            continue;
        }
        let mut key = doc! {"id": Value::Binary { subtype: 4, bytes: id.0.to_vec() }};
        if owner.is_some() {
            key.push("uid", Value::Binary { subtype: 0, bytes: digest_of(&owner) });
        }
        let mut session = doc! {"_id": key, "lastUse": Value::DateTime(now_ms() - idle.as_millis() as i64)};
        if let Some(owner) = owner {
            session.push("user", format!("{}@{}", owner.name, owner.db));
        }
        shown.push(session);
    }
    shown
}
