//! `$graphLookup`: follows references breadth first, all of one depth at a time.
//!
//! A depth is a set of values to look for. They are looked for by probes of an index; where they are many, in one
//! walk along it; without an index, in one pass over the collection. What was found for a value is remembered, since
//! searches that begin elsewhere come by the same values. Along the parents of a declared tree its ancestors answer
//! ([`tree`]).
//!
//! Invariant: a document is found once, at the least depth, and a value is looked for once in a search.

mod tree;

use std::collections::HashSet;
use std::sync::Arc;

use kilim_bson::{Collator, Document, RawValue, Value, doc, encode_value, encode_value_with};
use kilim_collation::collator;
use kilim_error::{Error, Result};
use kilim_query::expression::{Bindings, Env, Scope, VALUE_BYTES_MAX, Variables};
use kilim_query::filter::{Filter, Predicate};
use kilim_query::interrupt;
use kilim_query::stage::{self, Pipeline, Stage, values_at};

pub(super) use self::tree::TreeWay;
use super::lookup::{
    Examined, IndexProbe, Memory, Placed, collection_rows, place, rows_bytes, scored, unwound,
};
use super::{Opening, Reader, Step};
use crate::catalog::Collection;
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};

/// Making a key of each value of a document and looking it up takes so many times as long as copying the document.
const SEEK_FACTOR: usize = 16;

/// What one search may hold, as on MongoDB.
const SEARCH_BYTES_MAX: usize = 100 * 1024 * 1024;
/// A walk along the index costs less than probes from this share of its keys on.
const WALK_SHARE: u64 = 8;

pub(super) struct GraphLookup {
    stage: Arc<stage::GraphLookup>,
    input: Box<dyn Step>,
    reader: Reader,
    bindings: Bindings,
    restriction: Option<Filter>,
    /// Why the restriction always fails: with the first document, not before.
    flaw: Option<Error>,
    namespace: Namespace,
    source: GraphAccess,
    /// The declared tree whose parents are followed.
    tree: Option<TreeWay>,
    memory: Memory,
    examined: Examined,
    found: Vec<Row>,
    unwinding: Option<(Row, usize)>,
}

enum GraphAccess {
    Index {
        probe: Box<IndexProbe>,
        records: u64,
        collection: Arc<Collection>,
    },
    Scan(Arc<Collection>),
    /// A view, or nothing at all.
    Pipeline,
}

/// A value to look for, and its bytes as a key.
struct Sought {
    value: Value,
    key: Box<[u8]>,
}

/// What one search knows so far.
#[derive(Default)]
struct Search {
    /// Keys that were looked for, or are about to be.
    sought: HashSet<Box<[u8]>>,
    /// Of the documents found.
    ids: HashSet<Box<[u8]>>,
    bytes: usize,
    key: Vec<u8>,
}

impl Search {
    /// Puts a value among those to look for next, unless it was looked for.
    fn seek(&mut self, value: RawValue<'_>, next: &mut Vec<Sought>, collator: Option<&dyn Collator>) {
        self.key.clear();
        encode_value_with(&mut self.key, value, false, collator);
        if !self.sought.contains(&self.key[..]) {
            let key: Box<[u8]> = self.key[..].into();
            self.bytes += 2 * key.len() + size_of::<Sought>();
            self.sought.insert(key.clone());
            next.push(Sought { value: value.to_value(), key });
        }
    }

    /// Whether a document is found for the first time. As on MongoDB, ids are told apart by their bytes.
    fn is_new(&mut self, id: RawValue<'_>) -> bool {
        self.key.clear();
        encode_value(&mut self.key, id, false);
        if self.ids.contains(&self.key[..]) {
            return false;
        }
        self.ids.insert(self.key[..].into());
        self.bytes += self.key.len();
        true
    }
}

impl GraphLookup {
    pub(super) fn new(
        stage: &Arc<stage::GraphLookup>,
        input: Box<dyn Step>,
        opening: &Opening<'_>,
    ) -> Result<GraphLookup> {
        let reader = opening.reader;
        let namespace =
            Namespace { database: stage.database.to_string(), collection: stage.from.to_string() };
        let source = match reader.collection(&namespace) {
            None => GraphAccess::Pipeline,
            Some(collection)
                if reader.patches(collection).is_some() || collection.shape.paged().is_some() =>
            {
                GraphAccess::Pipeline
            }
            Some(collection) => {
                match IndexProbe::choose(collection, &stage.connect_to, reader.snapshot(), &stage.collation) {
                    None => GraphAccess::Scan(collection.clone()),
                    Some(probe) => {
                        let counter = collection.home().counts(reader.snapshot())?;
                        let records = counter.count.max(0) as u64;
                        GraphAccess::Index { probe: Box::new(probe), records, collection: collection.clone() }
                    }
                }
            }
        };
        let tree =
            reader.collection(&namespace).and_then(|collection| TreeWay::choose(stage, collection, reader));
        let bound = |(filter, _): &(Arc<Filter>, Document)| {
            let filter = filter.bind(opening.bindings)?;
            filter.check_folded().map_err(|error| error.during("Failed to optimize pipeline"))?;
            Ok(filter)
        };
        let (restriction, flaw) = match stage.restriction.as_ref().map(bound).transpose() {
            Ok(restriction) => (restriction, None),
            Err(flaw) => (None, Some(flaw)),
        };
        Ok(GraphLookup {
            stage: stage.clone(),
            input,
            reader: reader.clone(),
            bindings: opening.bindings.clone(),
            restriction,
            flaw,
            namespace,
            source,
            tree,
            memory: Memory::default(),
            examined: Examined::default(),
            found: Vec::new(),
            unwinding: None,
        })
    }

    /// Finds all that a document's references lead to.
    fn search(&mut self, row: &Row, context: &mut ExecContext<'_>) -> Result<()> {
        self.found.clear();
        let stage = self.stage.clone();
        let collator = collator(&stage.collation);
        let mut search = Search::default();
        let mut frontier = Vec::new();
        let bindings = self.bindings.clone();
        let mut env = Env::new(row.document(), &bindings);
        row.describe_key(&mut env);
        let start = stage.start_with.evaluate(&env)?;
        if let Some(flaw) = &self.flaw {
            return Err(flaw.clone());
        }
        if let Some(start) = start.raw()
            && self.search_tree(start, context)?
        {
            return Ok(());
        }
        match start.raw() {
            None => {}
            Some(RawValue::Array(values)) => {
                values.iter().for_each(|it| search.seek(it, &mut frontier, collator));
            }
            Some(value) => search.seek(value, &mut frontier, collator),
        }
        let mut depth = 0;
        let mut reached = Vec::new();
        while !frontier.is_empty() {
            reached.clear();
            self.expand(&mut frontier, &mut reached, context)?;
            frontier.clear();
            let goes_on = self.stage.depth_max.is_none_or(|most| depth < most);
            for row in reached.drain(..) {
                context.tick()?;
                let document = row.document();
                interrupt::copied(SEEK_FACTOR * document.as_bytes().len())?;
                let Some(id) = document.get("_id") else { return Err(self.without_id()) };
                if !search.is_new(id) {
                    continue;
                }
                let row = self.with_depth(row, depth);
                // As on MongoDB, references are read from the document that has its depth.
                if goes_on {
                    let names = self.stage.connect_from.names();
                    values_at(row.document(), names, &mut |value| {
                        search.seek(value, &mut frontier, collator)
                    });
                }
                search.bytes += row.document().as_bytes().len();
                self.found.push(row);
                check_bytes(search.bytes)?;
            }
            depth += 1;
        }
        Ok(())
    }

    /// Finds the same by the ancestors of a tree; false where they do not tell.
    fn search_tree(&mut self, start: RawValue<'_>, context: &mut ExecContext<'_>) -> Result<bool> {
        let Some(tree) = &mut self.tree else { return Ok(false) };
        let Some(found) = tree.search(start, &mut self.examined)? else { return Ok(false) };
        for (row, depth) in found {
            context.tick()?;
            interrupt::copied(row.document().as_bytes().len())?;
            // From the nearest on: with the first that the restriction does not allow, a search ends.
            if self.stage.depth_max.is_some_and(|most| depth > most) || !self.passes(&row)? {
                break;
            }
            let row = self.with_depth(row, depth);
            self.found.push(row);
        }
        check_bytes(rows_bytes(&self.found))?;
        Ok(true)
    }

    fn with_depth(&self, row: Row, depth: u64) -> Row {
        match &self.stage.depth_field {
            None => row,
            Some(path) => {
                let depth = Placed::Value(RawValue::Int64(depth as i64));
                Row::of(place(row.document(), path.names(), depth, 16))
            }
        }
    }

    /// Appends the documents that have one of these values; some may come twice.
    fn expand(
        &mut self,
        frontier: &mut Vec<Sought>,
        reached: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        // A regular expression looks for texts here.
        let plain = |sought: &Sought| !matches!(sought.value, Value::Regex { .. });
        let (mut wanted, patterns): (Vec<Sought>, Vec<Sought>) = frontier.drain(..).partition(plain);
        if !patterns.is_empty() {
            self.query(&patterns, reached, context)?;
        }
        wanted.retain(|sought| match self.memory.get(&sought.key) {
            None => true,
            Some(known) => {
                reached.extend(known.iter().cloned());
                false
            }
        });
        if wanted.is_empty() {
            return Ok(());
        }
        if let GraphAccess::Index { probe, collection, .. } = &self.source {
            let collection = collection.clone();
            let (told, texts): (Vec<Sought>, Vec<Sought>) =
                wanted.into_iter().partition(|sought| probe.may_tell(sought.value.as_raw()));
            if !texts.is_empty() {
                let keys: HashSet<&[u8]> = texts.iter().map(|sought| &*sought.key).collect();
                self.scan(&collection, &keys, reached, context)?;
            }
            wanted = told;
            if wanted.is_empty() {
                return Ok(());
            }
        }
        match &mut self.source {
            GraphAccess::Pipeline => self.query(&wanted, reached, context),
            GraphAccess::Scan(collection) => {
                let keys: HashSet<&[u8]> = wanted.iter().map(|sought| &*sought.key).collect();
                let collection = collection.clone();
                self.scan(&collection, &keys, reached, context)
            }
            GraphAccess::Index { probe, records, .. } if wanted.len() as u64 >= *records / WALK_SHARE => {
                let values = wanted.iter().map(|sought| sought.value.as_raw());
                let start = reached.len();
                let told = probe.find_all(values, &mut self.examined, reached, context)?;
                self.examined.note_index(&probe.index.spec.name);
                check_bytes(rows_bytes(&reached[start..]))?;
                self.restrict(reached, start)?;
                let rest: Vec<Sought> = wanted
                    .into_iter()
                    .zip(told)
                    .filter(|(_, told)| !told)
                    .map(|(sought, _)| sought)
                    .collect();
                if rest.is_empty() { Ok(()) } else { self.query(&rest, reached, context) }
            }
            GraphAccess::Index { .. } => self.probe(&wanted, reached, context),
        }
    }

    fn probe(
        &mut self,
        wanted: &[Sought],
        reached: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        let mut bytes = 0;
        for sought in wanted {
            context.tick()?;
            let start = reached.len();
            let told = match &mut self.source {
                GraphAccess::Index { probe, .. } => {
                    self.examined.note_index(&probe.index.spec.name);
                    probe.find(sought.value.as_raw(), &mut self.examined, reached)?
                }
                _ => false,
            };
            check_bytes(rows_bytes(&reached[start..]))?;
            match told {
                true => self.restrict(reached, start)?,
                false => self.query(std::slice::from_ref(sought), reached, context)?,
            }
            bytes += rows_bytes(&reached[start..]);
            check_bytes(bytes)?;
            self.memory.put(&sought.key, &reached[start..]);
        }
        Ok(())
    }

    /// One pass over the collection for all values.
    fn scan(
        &mut self,
        collection: &Collection,
        keys: &HashSet<&[u8]>,
        reached: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        let path = &self.stage.connect_to;
        let collator = collator(&self.stage.collation);
        self.examined.add_scan();
        let mut key = Vec::new();
        let mut null = Vec::new();
        encode_value(&mut null, RawValue::Null, false);
        let wants_null = keys.contains(&null[..]);
        let mut bytes = 0;
        for row in collection_rows(collection, self.reader.snapshot()) {
            context.tick()?;
            let row = row?;
            interrupt::copied(SEEK_FACTOR * row.document().as_bytes().len())?;
            self.examined.add_document();
            let mut hit = false;
            stage::foreign_values(row.document(), path, &mut |value| {
                if hit {
                    return;
                }
                key.clear();
                encode_value_with(&mut key, value, false, collator);
                hit = keys.contains(&key[..]);
            });
            // Null finds what is null, not what is missing.
            if hit && wants_null {
                hit = exists(path).matches(row.document())?;
            }
            if hit && self.passes(&row)? {
                bytes += row.document().as_bytes().len();
                check_bytes(bytes)?;
                reached.push(row);
            }
        }
        Ok(())
    }

    /// The way of a query, for what keys do not tell and for views.
    fn query(
        &mut self,
        wanted: &[Sought],
        reached: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        let values: Vec<Value> = wanted.iter().map(|sought| sought.value.clone()).collect();
        let mut condition = Document::new();
        condition.push(self.stage.connect_to.as_str(), doc! {"$in": values});
        let variables = Variables::default().under(self.stage.collation.clone());
        let condition = Filter::parse_in(condition.as_raw(), &Scope::new(&variables))?;
        let filter = Filter::And(vec![condition, exists(&self.stage.connect_to)]);
        let filters = [Some(filter), self.restriction.clone()].into_iter().flatten();
        let stages = filters.map(|filter| Stage::Match(stage::Match { filter: Arc::new(filter) })).collect();
        let mut step = self.reader.open(&self.namespace, &Pipeline { stages }, &self.bindings, context)?;
        let mut bytes = 0;
        while let Some(row) = step.next(context)? {
            bytes += rows_bytes(std::slice::from_ref(&row));
            reached.push(row);
            check_bytes(bytes)?;
        }
        Ok(())
    }

    /// Takes out what `restrictSearchWithMatch` does not allow.
    fn restrict(&self, rows: &mut Vec<Row>, start: usize) -> Result<()> {
        if self.restriction.is_none() {
            return Ok(());
        }
        let mut kept = start;
        for at in start..rows.len() {
            if self.passes(&rows[at])? {
                rows.swap(kept, at);
                kept += 1;
            }
        }
        rows.truncate(kept);
        Ok(())
    }

    fn passes(&self, row: &Row) -> Result<bool> {
        self.restriction.as_ref().map_or(Ok(true), |filter| filter.matches(row.document()))
    }

    fn without_id(&self) -> Error {
        Error::location(
            40271,
            format!(
                "Documents in the '{}' namespace must contain an _id for de-duplication in $graphLookup",
                self.namespace
            ),
        )
    }

    fn next_unwound(
        &mut self,
        unwinding: &stage::Unwinding,
        context: &mut ExecContext<'_>,
    ) -> Result<Option<Row>> {
        loop {
            context.tick()?;
            let names = self.stage.target.names();
            if let Some((row, next)) = &mut self.unwinding {
                if let Some(found) = self.found.get(*next) {
                    let placed = Placed::Value(RawValue::Document(found.document()));
                    let index = RawValue::Int64(*next as i64);
                    *next += 1;
                    return Ok(Some(unwound(row, names, placed, unwinding, index)));
                }
                self.unwinding = None;
            }
            let Some(row) = self.input.next(context)? else { return Ok(None) };
            self.search(&row, context)?;
            if self.found.is_empty() && unwinding.preserve_null_and_empty_arrays {
                let names = self.stage.target.names();
                return Ok(Some(unwound(&row, names, Placed::Nothing, unwinding, RawValue::Null)));
            }
            self.unwinding = Some((row, 0));
        }
    }
}

fn check_bytes(bytes: usize) -> Result<()> {
    match bytes > SEARCH_BYTES_MAX {
        true => Err(exceeded()),
        false => Ok(()),
    }
}

fn exceeded() -> Error {
    Error::location(40099, "$graphLookup reached maximum memory consumption")
}

/// `{path: {$exists: true}}`.
fn exists(path: &kilim_bson::Path) -> Filter {
    Filter::Field { path: path.clone(), predicate: Predicate::Exists }
}

impl Step for GraphLookup {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let stage = self.stage.clone();
        if let Some(unwinding) = &stage.unwinding {
            return self.next_unwound(unwinding, context);
        }
        let Some(row) = self.input.next(context)? else { return Ok(None) };
        self.search(&row, context)?;
        let size = rows_bytes(&self.found) + 16 * self.found.len();
        interrupt::copied(size)?;
        if row.document().as_bytes().len() + size > VALUE_BYTES_MAX {
            return Err(exceeded());
        }
        let placed = Placed::Rows(&self.found);
        Ok(Some(scored(&row, place(row.document(), stage.target.names(), placed, size))))
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }
}
