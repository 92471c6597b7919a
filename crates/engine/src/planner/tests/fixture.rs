//! A collection in memory, written without the write door.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_collation::Collation;
use kilim_error::Result;
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_storage::{Durability, Options, Snapshot, Space, Store};

use crate::ids::{CollectionId, IndexId, RecordId};
use crate::index::{Index, IndexKind, IndexSpec, KeyPart, KeySet, Multikey, Usage, keys_of};
use crate::operator::ExecContext;
use crate::plan::{PlanCache, ReadRequest, solutions};
use crate::planner::explain::{Subject, Verbosity};
use crate::planner::{Plan, PlannerInput, execute, explain, plan};
use crate::records::{Home, Shape};
use crate::{layout, records};

pub(super) struct Fixture {
    store: Store,
    pub indexes: Arc<[Arc<Index>]>,
    pub cache: PlanCache,
}

const COLLECTION: CollectionId = CollectionId(7);
const HOME: Home = Home { collection: COLLECTION, shape: Shape::Plain };

/// An index as createIndexes would describe it.
pub(super) fn index_spec(key: &Document, options: RawDocument<'_>) -> IndexSpec {
    let flag = |name: &str| options.get(name).and_then(|value| value.as_bool()).unwrap_or(false);
    let name: Vec<String> = key
        .iter()
        .map(|(name, direction)| {
            format!(
                "{name}_{}",
                if KeyPart::fields_of(doc_of(name, direction).as_raw())[0].descending { -1 } else { 1 }
            )
        })
        .collect();
    let collation = options
        .get("collation")
        .and_then(|collation| collation.as_document())
        .and_then(|collation| Collation::parse(collation).expect("a collation"));
    let variables = Variables::default().under(collation.clone());
    let scope = Scope::new(&variables);
    let suffix = collation.as_ref().map(|collation| format!("_{}", collation.locale())).unwrap_or_default();
    let wildcard_projection = options.get("wildcardProjection").and_then(|given| given.as_document());
    IndexSpec {
        name: name.join("_") + &suffix,
        key: KeyPart::all_of(key.as_raw()),
        key_document: key.clone(),
        unique: flag("unique"),
        prepare_unique: false,
        sparse: flag("sparse"),
        hidden: flag("hidden"),
        expire_after_seconds: None,
        partial: options.get("partialFilterExpression").and_then(|filter| filter.as_document()).map(
            |filter| (filter.to_document(), Filter::parse_in(filter, &scope).expect("a partial filter")),
        ),
        kind: IndexKind::of(key.as_raw(), wildcard_projection),
        collation,
        measurements: None,
    }
}

fn doc_of(name: &str, value: kilim_bson::RawValue<'_>) -> Document {
    std::iter::once((name, value.to_value())).collect()
}

impl Fixture {
    /// Documents that cannot be indexed, because of parallel arrays, are left out.
    pub(super) fn new(documents: &[Document], specs: Vec<IndexSpec>) -> Fixture {
        let store = Store::in_memory(Options::default());
        let mut specs = specs;
        specs.insert(0, IndexSpec::id(None));
        let mut multikey = vec![Multikey::default(); specs.len()];
        let mut transaction = store.begin();
        let mut keys = KeySet::default();
        for (at, document) in documents.iter().enumerate() {
            let record = RecordId(at as u64 + 1);
            let mut entries = Vec::new();
            let mut met = Vec::new();
            let indexed: Result<()> = specs.iter().enumerate().try_for_each(|(number, spec)| {
                met.push(keys_of(spec, document.as_raw(), &mut keys)?);
                let id = IndexId(number as u32 + 1);
                for (key, bits) in keys.iter() {
                    entries.push(if spec.unique {
                        let mut value = record.0.to_be_bytes().to_vec();
                        value.extend_from_slice(bits);
                        (layout::unique_entry(id, key), value)
                    } else {
                        (layout::plain_entry(id, key, record), bits.to_vec())
                    });
                }
                Ok(())
            });
            if indexed.is_err() {
                continue;
            }
            for (known, met) in multikey.iter_mut().zip(met) {
                *known = known.union(&met);
            }
            records::store(&mut transaction, &HOME, record.into(), None, Some(document.as_raw()));
            entries.into_iter().for_each(|(key, value)| transaction.put(Space::Index, key, value));
        }
        transaction.commit(Durability::Relaxed).expect("memory does not fail");
        let indexes = specs.into_iter().zip(multikey).enumerate().map(|(number, (spec, multikey))| {
            Arc::new(Index {
                id: IndexId(number as u32 + 1),
                spec,
                multikey,
                usage: Usage::default(),
                ready_since: 0,
            })
        });
        Fixture { store, indexes: indexes.collect(), cache: PlanCache::default() }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.store.snapshot()
    }

    fn input(&self) -> PlannerInput<'_> {
        PlannerInput {
            home: HOME,
            indexes: &self.indexes,
            cache: &self.cache,
            clustered: false,
            oldest: RecordId(0),
            patches: None,
            interrupt: &|| Ok(()),
        }
    }

    pub(super) fn plan(&self, request: ReadRequest) -> Result<Plan> {
        plan(&self.input(), request, &self.snapshot())
    }

    /// All plans from which one is chosen, each to be run.
    pub(super) fn candidates(&self, request: &ReadRequest) -> Result<Vec<Plan>> {
        let nodes = solutions(&self.input().known(), request, self.snapshot().commit_time())?;
        Ok(nodes.into_iter().map(|node| Plan::of(HOME, &self.indexes, node, request.clone())).collect())
    }

    pub(super) fn explain(
        &self,
        request: &ReadRequest,
        projection: Option<&Document>,
        verbosity: Verbosity,
    ) -> Document {
        let plan = self.plan(request.clone()).expect("a plan");
        let subject = Subject {
            namespace: "planner.test",
            filter: &request.filter,
            projection: projection.map(Document::as_raw),
            indexes: &self.indexes,
            write: None,
            whole_pipeline: false,
            counted_by_stage: false,
        };
        let mut context = ExecContext::new(&|| Ok(()));
        explain(plan, self.snapshot(), &subject, verbosity, &mut context).expect("an explanation")
    }

    /// Record ids and documents, in the order of the answer.
    pub(super) fn read(&self, request: ReadRequest) -> Result<Vec<(RecordId, Document)>> {
        self.run(self.plan(request)?)
    }

    pub(super) fn run(&self, plan: Plan) -> Result<Vec<(RecordId, Document)>> {
        let mut executor = execute(plan, self.snapshot());
        let mut context = ExecContext::new(&|| Ok(()));
        let mut rows = Vec::new();
        while let Some(row) = executor.next_document(&mut context)? {
            rows.push((row.id.record, row.document().to_document()));
        }
        Ok(rows)
    }

    pub(super) fn count(&self, request: ReadRequest) -> Result<u64> {
        self.run_count(self.plan(request)?)
    }

    pub(super) fn run_count(&self, plan: Plan) -> Result<u64> {
        let mut executor = execute(plan, self.snapshot());
        executor.count(&mut ExecContext::new(&|| Ok(())))
    }
}
