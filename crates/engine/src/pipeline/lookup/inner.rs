//! The pipeline of a `$lookup`, opened for one document after the other.
//!
//! It is compiled once. Where it begins with a comparison of a field with a variable and the field has an index,
//! each opening is a probe of that index; where its first stages see no variable, they run once and what they
//! gave is kept; else every opening is planned anew. The same variables find the same, so answers are remembered.

use std::sync::Arc;

use kilim_bson::{ArrayBuilder, Path, RawDocument, RawValue, ValueRef};
use kilim_collation::Collation;
use kilim_error::Result;
use kilim_query::expression::{Base, Bindings, Env, Expression, FieldPath, Variable};
use kilim_query::filter::Filter;
use kilim_query::stage::{self, Flow, Pipeline, Stage};

use super::equality::{EqualityJoin, Memory, equality_filter, patience};
use super::hash_table::{HashTable, KeyOf};
use super::probe::IndexProbe;
use super::{Examined, FOUND_BYTES_MAX, rows_bytes};
use crate::catalog::Collection;
use crate::namespace::Namespace;
use crate::operator::{ExecContext, Row};
use crate::pipeline::{Opening, Prepared, Reader, Step, step};

/// What the first stages gave may take so much memory, as on MongoDB; beyond it they run again each time.
const KEPT_BYTES_MAX: usize = 100 * 1024 * 1024;

pub(super) struct InnerJoin {
    reader: Reader,
    namespace: Namespace,
    source: InnerRows,
    /// The stages behind the source.
    stages: Vec<Stage>,
    /// How texts compare.
    collation: Option<Collation>,
    memory: Option<Memory>,
    pub(super) examined: Examined,
}

enum InnerRows {
    /// Planned at every opening.
    Planned(Box<Prepared>),
    /// Candidates by the value of one field; the filter decides.
    Probed(Box<Probed>),
    /// The documents that the equality finds.
    Equal(Box<EqualityJoin>),
    /// The same where the collection is a view: its pipeline, the equality, the stages.
    EqualInView { namespace: Namespace, path: Path, pipeline: Pipeline },
    /// Run once.
    Kept { prepared: Box<Prepared>, rows: Option<Arc<[Row]>>, whole: Box<Prepared> },
}

struct Probed {
    candidates: Candidates,
    /// What the field must equal.
    value: Expression,
    filter: Arc<Filter>,
    /// For what the candidates' way cannot tell.
    otherwise: Prepared,
}

/// Where documents are found by one value of a field: by an index, by a table of the whole collection, or by the one
/// until the other is worth its while.
struct Candidates {
    collection: Arc<Collection>,
    /// By which the table has them.
    key_of: KeyOf,
    /// How texts compare.
    collation: Option<Collation>,
    /// Until there is a table.
    probe: Option<IndexProbe>,
    table: Option<HashTable>,
    openings: u64,
    /// After so many openings the table is made; never where there is none.
    patience: Option<u64>,
}

impl Candidates {
    /// Appends what has the value, or says that it cannot tell.
    fn find(
        &mut self,
        value: Option<RawValue<'_>>,
        reader: &Reader,
        examined: &mut Examined,
        found: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<bool> {
        self.openings += 1;
        // An index of another collation is of no use once a text is looked for.
        if let (Some(probe), Some(value)) = (&self.probe, value)
            && !probe.may_tell(value)
        {
            self.probe = None;
            self.patience = HashTable::fits(&self.collection, reader.snapshot())?.then_some(1);
        }
        if self.table.is_none() && self.patience.is_some_and(|patience| self.openings > patience) {
            self.patience = None;
            self.table = HashTable::build(
                &self.collection,
                reader.snapshot(),
                &self.key_of,
                &self.collation,
                examined,
                context,
            )?;
        }
        match (&self.table, &mut self.probe, value) {
            (Some(table), _, value) => {
                table.find_value(value, found);
                Ok(true)
            }
            (None, Some(probe), Some(value)) => {
                examined.note_index(&probe.index.spec.name);
                probe.find(value, examined, found)
            }
            _ => Ok(false),
        }
    }
}

impl InnerJoin {
    pub(super) fn new(
        reader: &Reader,
        namespace: &Namespace,
        lookup: &stage::Lookup,
        inner: &stage::Inner,
    ) -> Result<InnerJoin> {
        let mut pipeline = inner.pipeline.clone();
        pipeline.optimise();
        let pipeline = &pipeline;
        let names: Vec<&str> = lookup.variables.definitions.iter().map(|(name, _)| &**name).collect();
        let collection = reader.collection(namespace);
        let begins_elsewhere = pipeline.stages.first().is_some_and(is_source);
        let (source, stages) = match (&lookup.equality, collection) {
            (Some(equality), Some(collection)) if !begins_elsewhere => {
                let join = EqualityJoin::new(collection, reader, &equality.foreign, &lookup.collation)?;
                (InnerRows::Equal(Box::new(join)), pipeline.stages.clone())
            }
            (Some(equality), _) => {
                let path = equality.foreign.clone();
                let pipeline = pipeline.clone();
                (InnerRows::EqualInView { namespace: namespace.clone(), path, pipeline }, Vec::new())
            }
            (None, _) => {
                let fixed = pipeline.stages.iter().position(|stage| mentions_any(stage, &names));
                let fixed = fixed.unwrap_or(pipeline.stages.len());
                let probe = match pipeline.wants_index_keys() {
                    // A probe keeps no keys.
                    true => None,
                    false => probe_of(reader, namespace, pipeline, &lookup.collation)?,
                };
                match (fixed, probe) {
                    (0, Some((candidates, value, filter))) => {
                        let otherwise = reader.prepare(namespace, pipeline)?;
                        let probed = Probed { candidates, value, filter, otherwise };
                        (InnerRows::Probed(Box::new(probed)), pipeline.stages[1..].to_vec())
                    }
                    (0, None) => {
                        (InnerRows::Planned(Box::new(reader.prepare(namespace, pipeline)?)), Vec::new())
                    }
                    _ => {
                        let (first, rest) = pipeline.stages.split_at(fixed);
                        let prepared = reader.prepare(namespace, &Pipeline { stages: first.to_vec() })?;
                        let whole = reader.prepare(namespace, pipeline)?;
                        let source = InnerRows::Kept {
                            prepared: Box::new(prepared),
                            rows: None,
                            whole: Box::new(whole),
                        };
                        (source, rest.to_vec())
                    }
                }
            }
        };
        let memory = is_repeatable(pipeline).then(Memory::default);
        let namespace = namespace.clone();
        Ok(InnerJoin {
            reader: reader.clone(),
            namespace,
            source,
            stages,
            collation: lookup.collation.clone(),
            memory,
            examined: Examined::default(),
        })
    }

    /// Appends what the pipeline gives.
    pub(super) fn find(
        &mut self,
        values: &mut Vec<RawValue<'_>>,
        own: usize,
        bindings: &Bindings,
        found: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        let question = self.memory.is_some().then(|| question(values, own, bindings));
        if let (Some(memory), Some(question)) = (&mut self.memory, &question)
            && let Some(known) = memory.get(question)
        {
            found.extend(known.iter().cloned());
            return Ok(());
        }
        let start = found.len();
        self.run(values, bindings, found, context)?;
        if let (Some(memory), Some(question)) = (&mut self.memory, &question) {
            memory.put(question, &found[start..]);
        }
        Ok(())
    }

    fn run(
        &mut self,
        values: &mut Vec<RawValue<'_>>,
        bindings: &Bindings,
        found: &mut Vec<Row>,
        context: &mut ExecContext<'_>,
    ) -> Result<()> {
        let rows = match &mut self.source {
            InnerRows::Planned(prepared) => return drain(prepared.open(bindings, context)?, found, context),
            InnerRows::EqualInView { namespace, path, pipeline } => {
                let filter = Arc::new(equality_filter(path, values, &self.collation));
                let mut stages = pipeline.stages.clone();
                let sources = stages.iter().take_while(|stage| is_source(stage)).count();
                stages.insert(sources, Stage::Match(stage::Match { filter }));
                let step = self.reader.open(namespace, &Pipeline { stages }, bindings, context)?;
                return drain(step, found, context);
            }
            InnerRows::Probed(probed) => {
                let value = probed.value.evaluate(&Env::new(RawDocument::empty(), bindings))?;
                let mut rows = Vec::new();
                let told = probed.candidates.find(
                    value.raw(),
                    &self.reader,
                    &mut self.examined,
                    &mut rows,
                    context,
                )?;
                if !told || rows_bytes(&rows) > FOUND_BYTES_MAX {
                    return drain(probed.otherwise.open(bindings, context)?, found, context);
                }
                let mut kept = Vec::with_capacity(rows.len());
                for row in rows {
                    if holds(&probed.filter, row.document(), bindings)? {
                        kept.push(row);
                    }
                }
                kept
            }
            InnerRows::Equal(join) => {
                let mut rows = Vec::new();
                join.find(values, &mut rows, context)?;
                if rows_bytes(&rows) > FOUND_BYTES_MAX {
                    // Too much to be held, but the stages may leave less of it.
                    let filter = Arc::new(equality_filter(join.path(), values, &self.collation));
                    let mut stages = vec![Stage::Match(stage::Match { filter })];
                    stages.extend(self.stages.iter().cloned());
                    let step = self.reader.open(&self.namespace, &Pipeline { stages }, bindings, context)?;
                    return drain(step, found, context);
                }
                rows
            }
            InnerRows::Kept { rows: Some(rows), .. } => rows.to_vec(),
            InnerRows::Kept { prepared, rows: rows @ None, whole } => {
                let mut fresh = Vec::new();
                let mut step = prepared.open(bindings, context)?;
                let mut bytes = 0;
                while let Some(row) = step.next(context)? {
                    bytes += row.document().as_bytes().len();
                    if bytes > KEPT_BYTES_MAX {
                        break;
                    }
                    fresh.push(row);
                }
                if bytes > KEPT_BYTES_MAX {
                    self.source = InnerRows::Planned(whole.clone());
                    self.stages.clear();
                    return self.run(values, bindings, found, context);
                }
                *rows = Some(fresh.clone().into());
                fresh
            }
        };
        if self.stages.is_empty() {
            found.extend(rows);
            return Ok(());
        }
        let opening = Opening { reader: &self.reader, collection: None, bindings };
        let mut running: Box<dyn Step> = Box::new(Rows(rows.into_iter()));
        for stage in &self.stages {
            running = step(stage, running, &opening)?;
        }
        drain(running, found, context)
    }

    /// What was looked at to answer.
    pub(super) fn examined(&self) -> Examined {
        let mut examined = self.examined.clone();
        if let InnerRows::Equal(join) = &self.source {
            examined.add(&join.examined);
        }
        examined
    }
}

/// Whether a stage brings its own documents.
pub(in crate::pipeline) fn is_source(stage: &Stage) -> bool {
    stage.flow() == Flow::Source || matches!(stage, Stage::GeoNear(_))
}

/// Rows that are there already.
pub(in crate::pipeline) struct Rows(pub(in crate::pipeline) std::vec::IntoIter<Row>);

impl Step for Rows {
    fn next(&mut self, _: &mut ExecContext<'_>) -> Result<Option<Row>> {
        Ok(self.0.next())
    }
}

fn drain(mut step: Box<dyn Step>, found: &mut Vec<Row>, context: &mut ExecContext<'_>) -> Result<()> {
    let mut bytes = 0;
    while let Some(row) = step.next(context)? {
        bytes += row.document().as_bytes().len();
        found.push(row);
        // The caller refuses so much; there is no use in gathering more.
        if bytes > FOUND_BYTES_MAX {
            break;
        }
    }
    Ok(())
}

/// Everything that an answer depends on, as bytes.
fn question(values: &[RawValue<'_>], own: usize, bindings: &Bindings) -> Vec<u8> {
    let mut question = ArrayBuilder::new();
    for index in bindings.len() - own..bindings.len() {
        // A missing value is no value that a variable can have.
        question.push(ValueRef::Raw(bindings.get(index).unwrap_or(RawValue::Undefined)));
    }
    for value in values {
        question.push(ValueRef::Raw(*value));
    }
    question.finish().as_raw().as_bytes().to_vec()
}

/// How the first stage lets candidates be found, by which value, and the filter that decides.
fn probe_of(
    reader: &Reader,
    namespace: &Namespace,
    pipeline: &Pipeline,
    collation: &Option<Collation>,
) -> Result<Option<(Candidates, Expression, Arc<Filter>)>> {
    let Some(Stage::Match(first)) = pipeline.stages.first() else { return Ok(None) };
    let Some(collection) = reader.collection(namespace) else { return Ok(None) };
    if reader.patches(collection).is_some() {
        return Ok(None);
    }
    let conjuncts = match &*first.filter {
        Filter::And(conjuncts) => &conjuncts[..],
        one => std::slice::from_ref(one),
    };
    let expressions = conjuncts.iter().filter_map(|conjunct| match conjunct {
        Filter::Expr(expression) => Some(&**expression),
        _ => None,
    });
    let equalities: Vec<_> = expressions.flat_map(equalities).collect();
    let candidates = |path: &FieldPath, probe, patience| Candidates {
        collection: collection.clone(),
        key_of: KeyOf::Expression(path.clone()),
        collation: collation.clone(),
        probe,
        table: None,
        openings: 0,
        patience,
    };
    let snapshot = reader.snapshot();
    for (path, value) in &equalities {
        if let Some(probe) = IndexProbe::choose(collection, &Path::parse(path.as_str()), snapshot, collation)
        {
            let patience = patience(collection, snapshot, &probe)?;
            let found = candidates(path, Some(probe), patience);
            return Ok(Some((found, (*value).clone(), first.filter.clone())));
        }
    }
    // Other conditions may have an index of their own.
    let indexed = collection.indexes.len() > 1 && conjuncts.len() > 1;
    match equalities.first() {
        Some((path, value)) if !indexed && HashTable::fits(collection, snapshot)? => {
            Ok(Some((candidates(path, None, Some(1)), (*value).clone(), first.filter.clone())))
        }
        _ => Ok(None),
    }
}

/// The comparisons of an expression that must hold: a field and what it equals, which no document decides.
fn equalities(expression: &Expression) -> Vec<(&FieldPath, &Expression)> {
    let Expression::Call(call) = expression else { return Vec::new() };
    match (call.operator.name, &call.arguments[..]) {
        ("$and", arguments) => arguments.iter().flatten().flat_map(equalities).collect(),
        ("$eq", [Some(left), Some(right)]) => {
            let known = |value: &Expression| {
                let binding = |it: &Variable| matches!(it.base, Base::Binding(_));
                match value {
                    Expression::Constant(_) => true,
                    Expression::Variable(variable) => binding(variable),
                    _ => false,
                }
            };
            match (left.as_field(), right.as_field()) {
                (Some(path), None) if known(right) => vec![(path, right)],
                (None, Some(path)) if known(left) => vec![(path, left)],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// Whether a document matches where the filter's expressions see variables.
fn holds(filter: &Filter, document: RawDocument<'_>, bindings: &Bindings) -> Result<bool> {
    match filter {
        Filter::Expr(expression) => Ok(expression.evaluate(&Env::new(document, bindings))?.to_bool()),
        Filter::And(conjuncts) => {
            for conjunct in conjuncts {
                if !holds(conjunct, document, bindings)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        // Expressions below are rare, and need their variables put in.
        Filter::Or(_) | Filter::Nor(_) => filter.bind(bindings)?.matches(document),
        filter => filter.matches(document),
    }
}

/// Whether a stage may see one of the variables. Explain's form is the whole truth about a stage, and a variable
/// is written `$$name` in it; a text that only looks like one costs nothing but time.
fn mentions_any(stage: &Stage, names: &[&str]) -> bool {
    let uses = |text: &str| {
        let Some(rest) = text.strip_prefix("$$") else { return false };
        names.contains(&rest.split('.').next().unwrap_or(rest))
    };
    stage.behaviour().to_documents().iter().any(|document| mentions(document.as_raw(), &|_| false, &uses))
}

/// Whether the same question has the same answer.
fn is_repeatable(pipeline: &Pipeline) -> bool {
    let random = |name: &str| matches!(name, "$rand" | "$sample" | "$sampleRate");
    !pipeline.to_documents().iter().any(|document| mentions(document.as_raw(), &random, &|_| false))
}

fn mentions(document: RawDocument<'_>, name: &dyn Fn(&str) -> bool, text: &dyn Fn(&str) -> bool) -> bool {
    document.iter().any(|(field, value)| {
        name(field)
            || match value {
                RawValue::String(string) => text(string),
                value => value.as_container().is_some_and(|inner| mentions(inner, name, text)),
            }
    })
}
