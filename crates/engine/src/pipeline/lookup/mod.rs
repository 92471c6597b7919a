//! `$lookup`: joins each document with what an equality or a pipeline finds for it.
//!
//! What finds is made once for the whole stage (`equality`, `inner`): which index to probe, whether a table of the
//! other collection is worth its memory, which part of a pipeline need not run again. With an absorbed `$unwind`
//! a document leaves once for each that was found.

mod equality;
mod hash_table;
mod inner;
mod place;
mod probe;

use std::collections::BTreeSet;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::accumulator::Kind;
use kilim_query::expression::{Bindings, Dependencies, Env, VALUE_BYTES_MAX};
use kilim_query::interrupt;
use kilim_query::stage::{self, Behaviour, Pipeline, Stage};

pub(super) use equality::Memory;
use equality::{EqualityJoin, equality_filter};
pub(super) use hash_table::collection_rows;
use inner::InnerJoin;
pub(super) use inner::is_source;
use place::append;
pub(crate) use place::{Placed, place};
pub(super) use probe::IndexProbe;

use super::{Opening, Reader, Step};
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Executor, Row};
use crate::plan::Node;

/// What is found for one document is more than may be held.
const TOO_LARGE: ErrorCode = ErrorCode(4568);
/// What may be found for one document, as on MongoDB.
const FOUND_BYTES_MAX: usize = 100 * 1024 * 1024;

pub(super) struct Lookup {
    stage: Arc<stage::Lookup>,
    input: Box<dyn Step>,
    finder: Finder,
    reader: Reader,
    bindings: Bindings,
    found: Vec<Row>,
    unwinding: Option<Unwinding>,
}

/// The document whose finds are leaving one by one.
struct Unwinding {
    row: Row,
    next: usize,
    /// Where they come from, if they are too much to be held.
    stream: Option<Box<dyn Step>>,
}

enum Finder {
    /// A pipeline that cannot run.
    Flawed(Error),
    Equality(Box<EqualityJoin>),
    Inner(Box<InnerJoin>),
}

impl Lookup {
    pub(super) fn new(
        stage: &Arc<stage::Lookup>,
        input: Box<dyn Step>,
        opening: &Opening<'_>,
    ) -> Result<Lookup> {
        let reader = opening.reader;
        let namespace = namespace_of(stage);
        let finder = match (&stage.inner, &stage.equality, reader.collection(&namespace)) {
            (Some(stage::Inner { flaw: Some(flaw), .. }), ..) => Finder::Flawed(flaw.clone()),
            (Some(inner), ..) => {
                let inner = with_matching(stage, inner.clone());
                Finder::Inner(Box::new(InnerJoin::new(reader, &namespace, stage, &inner)?))
            }
            (None, Some(equality), Some(collection)) => {
                let join = EqualityJoin::new(collection, reader, &equality.foreign, &stage.collation)?;
                Finder::Equality(Box::new(join))
            }
            // A view, or nothing at all.
            (None, ..) => {
                let inner = with_matching(stage, stage::Inner::default());
                Finder::Inner(Box::new(InnerJoin::new(reader, &namespace, stage, &inner)?))
            }
        };
        Ok(Lookup {
            stage: stage.clone(),
            input,
            finder,
            reader: reader.clone(),
            bindings: opening.bindings.clone(),
            found: Vec::new(),
            unwinding: None,
        })
    }

    /// Finds what goes with a document.
    fn find(&mut self, row: &Row, context: &mut ExecContext<'_>) -> Result<()> {
        self.found.clear();
        let document = row.document();
        let mut values = Vec::new();
        if let Some(equality) = &self.stage.equality {
            equality.local_values(document, &mut |value| values.push(value));
        }
        let nullish = |value: &RawValue<'_>| matches!(value, RawValue::Null | RawValue::Undefined);
        // The newer engine does not take undefined for null, as filters do. The older one cannot look for it.
        let exactly = match self.stage.appended && values.iter().any(nullish) {
            true => Some(values.clone()),
            false => None,
        };
        match exactly {
            Some(_) => values.iter_mut().filter(|it| nullish(it)).for_each(|it| *it = RawValue::Null),
            None => values.retain(|value| !matches!(value, RawValue::Undefined)),
        }
        match &mut self.finder {
            Finder::Flawed(flaw) => {
                bindings_for(&self.stage, row, &self.bindings)?;
                return Err(flaw.clone());
            }
            Finder::Equality(join) => {
                join.find(&mut values, &mut self.found, context)?;
                if let (Some(equality), Some(values)) = (&self.stage.equality, &exactly) {
                    self.found.retain(|row| equality.holds(row.document(), values, &self.stage.collation));
                }
            }
            Finder::Inner(join) => {
                let definitions = &self.stage.variables.definitions;
                let bindings = bindings_for(&self.stage, row, &self.bindings)?;
                join.find(&mut values, definitions.len(), &bindings, &mut self.found, context)?;
            }
        }
        if rows_bytes(&self.found) > FOUND_BYTES_MAX {
            return Err(self.too_large());
        }
        // A pipeline has it as its last stage.
        if let (Finder::Equality(_), Some(matching)) = (&self.finder, &self.stage.matching) {
            let mut error = None;
            self.found.retain(|row| {
                matching.matches(row.document()).unwrap_or_else(|failed| {
                    error = Some(failed);
                    false
                })
            });
            if let Some(error) = error {
                return Err(error);
            }
        }
        Ok(())
    }

    fn next_gathered(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let Some(row) = self.input.next(context)? else { return Ok(None) };
        context.tick()?;
        self.find(&row, context)?;
        let bytes = rows_bytes(&self.found);
        let names = self.stage.target.names();
        let size = bytes + 16 * self.found.len();
        interrupt::copied(size)?;
        if row.document().as_bytes().len() + size > VALUE_BYTES_MAX {
            return Err(self.too_large());
        }
        let placing = if self.stage.appended { append } else { place };
        Ok(Some(scored(&row, placing(row.document(), names, Placed::Rows(&self.found), size))))
    }

    fn next_unwound(
        &mut self,
        unwinding: &stage::Unwinding,
        context: &mut ExecContext<'_>,
    ) -> Result<Option<Row>> {
        loop {
            context.tick()?;
            if let Some(Unwinding { row, next, stream }) = &mut self.unwinding {
                let streamed = stream.as_mut().map(|stream| stream.next(context)).transpose()?.flatten();
                if let Some(found) = streamed.as_ref().or_else(|| self.found.get(*next)) {
                    interrupt::copied(found.document().as_bytes().len() + row.document().as_bytes().len())?;
                    let placed = Placed::Value(RawValue::Document(found.document()));
                    let index = RawValue::Int64(*next as i64);
                    *next += 1;
                    return Ok(Some(unwound(row, self.stage.target.names(), placed, unwinding, index)));
                }
                self.unwinding = None;
            }
            let Some(row) = self.input.next(context)? else { return Ok(None) };
            match self.find(&row, context) {
                Err(error) if error.code() == TOO_LARGE => {
                    self.found.clear();
                    let stream = Some(self.stream(&row, context)?);
                    self.unwinding = Some(Unwinding { row, next: 0, stream });
                    continue;
                }
                found => found?,
            }
            if self.found.is_empty() && unwinding.preserve_null_and_empty_arrays {
                let names = self.stage.target.names();
                return Ok(Some(unwound(&row, names, Placed::Nothing, unwinding, RawValue::Null)));
            }
            self.unwinding = Some(Unwinding { row, next: 0, stream: None });
        }
    }

    /// What goes with a document, one by one.
    fn stream(&self, row: &Row, context: &mut ExecContext<'_>) -> Result<Box<dyn Step>> {
        let document = row.document();
        let mut stages = self.stage.inner.as_ref().map_or(Vec::new(), |inner| inner.pipeline.stages.clone());
        if let Some(equality) = &self.stage.equality {
            let mut values = Vec::new();
            equality.local_values(document, &mut |value| values.push(value));
            values.retain(|value| !matches!(value, RawValue::Undefined));
            let filter = Arc::new(equality_filter(&equality.foreign, &values, &self.stage.collation));
            let sources = stages.iter().take_while(|stage| is_source(stage)).count();
            stages.insert(sources, Stage::Match(stage::Match { filter }));
        }
        if let Some(filter) = &self.stage.matching {
            stages.push(Stage::Match(stage::Match { filter: filter.clone() }));
        }
        let bindings = bindings_for(&self.stage, row, &self.bindings)?;
        self.reader.open(&namespace_of(&self.stage), &Pipeline { stages }, &bindings, context)
    }

    fn too_large(&self) -> Error {
        Error::user(
            TOO_LARGE,
            format!(
                "Total size of documents in {} matching pipeline's $lookup stage exceeds {FOUND_BYTES_MAX} bytes",
                self.stage.from.as_deref().unwrap_or_default()
            ),
        )
    }
}

/// The pipeline with the absorbed `$match` behind it, which may go further to the front there.
fn with_matching(stage: &stage::Lookup, mut inner: stage::Inner) -> stage::Inner {
    if let Some(filter) = &stage.matching {
        inner.pipeline.stages.push(Stage::Match(stage::Match { filter: filter.clone() }));
    }
    inner
}

/// The variables around, and behind them what the document gives to the stage's own.
fn bindings_for(stage: &stage::Lookup, row: &Row, around: &Bindings) -> Result<Bindings> {
    let definitions = &stage.variables.definitions;
    if definitions.is_empty() {
        return Ok(around.clone());
    }
    let mut env = Env::new(row.document(), around);
    row.describe_key(&mut env);
    let mut own = Vec::with_capacity(definitions.len());
    for (_, expression) in definitions {
        own.push(expression.evaluate(&env)?.into_value());
    }
    around.extended(own)
}

/// A document with one of its finds, and with that one's index if it is asked for.
pub(super) fn unwound(
    row: &Row,
    names: &[Box<str>],
    placed: Placed<'_>,
    unwinding: &stage::Unwinding,
    index: RawValue<'_>,
) -> Row {
    let size = match placed {
        Placed::Value(value) => value.as_document().map_or(0, |document| document.as_bytes().len()),
        _ => 0,
    };
    let Some(path) = &unwinding.include_array_index else {
        return scored(row, place(row.document(), names, placed, size));
    };
    let within = path.names().starts_with(names);
    let document = match placed {
        // What the index goes to, or into, keeps its place among the fields although its value goes.
        Placed::Nothing if within && path.names().len() == names.len() => row.document().to_document(),
        Placed::Nothing if within => {
            place(row.document(), names, Placed::Value(RawValue::Document(RawDocument::empty())), 0)
        }
        placed => place(row.document(), names, placed, size),
    };
    scored(row, place(document.as_raw(), path.names(), Placed::Value(index), 16))
}

/// A document made of a row's, with the row's score and distance.
pub(super) fn scored(row: &Row, document: Document) -> Row {
    Row { score: row.score, near: row.near.clone(), ..Row::of(document) }
}

impl Step for Lookup {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        let stage = self.stage.clone();
        match &stage.unwinding {
            None => self.next_gathered(context),
            Some(unwinding) => self.next_unwound(unwinding, context),
        }
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }

    fn report(&self, out: &mut Writer) {
        match &self.finder {
            Finder::Flawed(_) => Examined::default().report(out),
            Finder::Equality(join) => join.examined.report(out),
            Finder::Inner(join) => join.examined().report(out),
        }
    }
}

/// Marks the lookups at the head of a command's own pipeline whose finds go to the end: those that mongod's newer
/// engine runs, behind groups that it runs.
pub(super) fn mark_appended(stages: &mut [Stage], reader: &Reader) {
    for (at, stage) in stages.iter_mut().enumerate() {
        match stage {
            Stage::Group(group) if is_by_newer_engine(group, at == 0) => {}
            Stage::Lookup(lookup) if lookup.is_plain() && !reader.is_view(&namespace_of(lookup)) => {
                Arc::make_mut(lookup).appended = true;
            }
            _ => return,
        }
    }
}

/// Not one that keeps several values in order, nor one at the head that needs no field of its documents.
fn is_by_newer_engine(group: &stage::Group, is_first: bool) -> bool {
    let mut needed = Dependencies::default();
    group.dependencies(&mut needed);
    let counts = is_first && !needed.whole_document && needed.fields.is_empty();
    let keeps_several = |kind: Kind| {
        use Kind::{Bottom, BottomN, FirstN, LastN, MaxN, MinN, Top, TopN};
        matches!(kind, FirstN | LastN | MinN | MaxN | Top | TopN | Bottom | BottomN)
    };
    !counts && !group.fields.iter().any(|(_, accumulator)| keeps_several(accumulator.kind))
}

fn namespace_of(stage: &stage::Lookup) -> Namespace {
    Namespace {
        database: stage.database.to_string(),
        collection: stage.from.as_deref().unwrap_or_default().to_owned(),
    }
}

/// The bytes of some rows' documents.
pub(super) fn rows_bytes(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.document().as_bytes().len()).sum()
}

/// What was looked at to find, for explain.
#[derive(Debug, Clone, Default)]
pub(super) struct Examined {
    keys: u64,
    documents: u64,
    /// Whole collections that were read.
    scans: u64,
    indexes: BTreeSet<Box<str>>,
}

impl Examined {
    pub(super) fn add_scan(&mut self) {
        self.scans += 1;
    }

    pub(super) fn add_document(&mut self) {
        self.documents += 1;
    }

    pub(super) fn note_index(&mut self, name: &str) {
        if !self.indexes.contains(name) {
            self.indexes.insert(name.into());
        }
    }

    fn add(&mut self, other: &Examined) {
        self.keys += other.keys;
        self.documents += other.documents;
        self.scans += other.scans;
        self.indexes.extend(other.indexes.iter().cloned());
    }

    fn add_executor(&mut self, executor: &Executor) {
        let stats = executor.stats();
        self.keys += stats.total_keys_examined();
        self.documents += stats.total_docs_examined();
        self.note_node(executor.node());
    }

    fn note_node(&mut self, node: &Node) {
        match node {
            Node::CollectionScan { .. } => self.scans += 1,
            Node::IdLookup { index, .. } => self.note_index(&index.spec.name),
            Node::IndexScan(scan) | Node::CountScan(scan) => self.note_index(&scan.index.spec.name),
            Node::Near(scan) => self.note_index(&scan.index.spec.name),
            node => node.children().iter().for_each(|child| self.note_node(child)),
        }
    }

    fn report(&self, out: &mut Writer) {
        out.append("totalDocsExamined", RawValue::Int64(self.documents as i64));
        out.append("totalKeysExamined", RawValue::Int64(self.keys as i64));
        out.append("collectionScans", RawValue::Int64(self.scans as i64));
        out.open_array("indexesUsed");
        for (at, name) in self.indexes.iter().enumerate() {
            out.append_index(at, RawValue::String(name));
        }
        out.close();
    }
}
