//! `$merge`: writes every document into a collection, beside or over what is there.
//!
//! Each document is one statement of the write door: an update of the document with the same `on` fields, or an
//! insert. Statements go in batches, as on MongoDB: a batch is written as far as it goes, then its first error ends
//! the command. The pipeline reads from its own snapshot, so it may read the collection it writes to.

use std::sync::Arc;

use kilim_bson::{Document, ObjectId, Path, RawDocument, RawValue};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Env, FieldPath, Scope, Variables};
use kilim_query::filter::{Comparison, Filter, Operand, Predicate};
use kilim_query::stage::{self, WhenMatched, WhenNotMatched};
use kilim_query::update::Update;

use super::update::update_unchecked;
use super::{UpdateOutcome, UpdateRequest, insert, is_statement_error};
use crate::catalog::Collection;
use crate::index::Index;
use crate::namespace::Namespace;
use crate::operator::ExecContext;
use crate::pipeline::{Placed, Step, place};
use crate::unit::Unit;

/// Documents whose errors are gathered before they end the command.
const BATCH_DOCUMENTS: usize = 100_000;
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// What all statements of a `$merge` have in common.
pub struct Circumstances<'a> {
    /// Milliseconds since 1970.
    pub now_ms: i64,
    /// The command's variables.
    pub variables: &'a Variables,
    /// The default collation of the collection that is written to. Documents are found and changed under it.
    pub collation: Option<Collation>,
}

/// Refuses `on` fields that no unique index is over: two documents could have the same values.
pub fn check_merge(unit: &mut Unit<'_>, stage: &stage::Merge) -> Result<()> {
    let namespace = target(stage);
    if !stage.on_was_given {
        return Ok(());
    }
    let unique = match unit.collection(&namespace)? {
        Some(collection) => has_unique_index(&collection, stage),
        None => matches!(&stage.on[..], [only] if only.as_str() == "_id"),
    };
    match unique {
        true => Ok(()),
        false => Err(Error::location(51183, "Cannot find index to verify that join fields will be unique")),
    }
}

fn has_unique_index(collection: &Collection, stage: &stage::Merge) -> bool {
    let on = &stage.on;
    let fits = |index: &Arc<Index>| {
        index.spec.unique
            && index.spec.partial.is_none()
            && index.spec.collation == stage.collation
            && index.spec.key.len() == on.len()
            && index.spec.key.iter().all(|part| on.iter().any(|path| path.as_str() == part.path.as_str()))
    };
    collection.indexes.iter().any(fits)
}

/// The collation of the collection that is written to.
pub fn default_collation(unit: &mut Unit<'_>, stage: &stage::Merge) -> Result<Option<Collation>> {
    Ok(unit.collection(&target(stage))?.and_then(|collection| collection.collation.clone()))
}

fn target(stage: &stage::Merge) -> Namespace {
    Namespace { database: stage.database.to_string(), collection: stage.collection.to_string() }
}

/// Runs a pipeline to its end and writes what it gives.
pub fn merge(
    unit: &mut Unit<'_>,
    stage: &stage::Merge,
    input: &mut dyn Step,
    circumstances: &Circumstances<'_>,
) -> Result<()> {
    let namespace = target(stage);
    unit.engine.check_no_view(&namespace)?;
    let operation = unit.operation.clone();
    let interrupt = || operation.check();
    let mut context = ExecContext::new(&interrupt);
    let mut batch = Vec::new();
    loop {
        batch.clear();
        let mut bytes = 0;
        // All of a batch is read before any of it is written: if the pipeline fails, nothing of the batch is written.
        while batch.len() < BATCH_DOCUMENTS && bytes < BATCH_BYTES {
            let Some(row) = input.next(&mut context)? else { break };
            bytes += row.document().as_bytes().len();
            batch.push(Statement::new(stage, row.document(), &circumstances.collation)?);
        }
        if batch.is_empty() {
            unit.figures.add(context.figures);
            return Ok(());
        }
        write(unit, &namespace, stage, &batch, circumstances)?;
    }
}

/// Writes all statements of a batch that can be written, then gives the first error.
fn write(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    stage: &stage::Merge,
    batch: &[Statement<'_>],
    circumstances: &Circumstances<'_>,
) -> Result<()> {
    let mut failed: Option<Error> = None;
    let mut unmatched = false;
    for statement in batch {
        match statement.run(unit, namespace, circumstances) {
            Ok(matched) => unmatched |= !matched && stage.when_not_matched == WhenNotMatched::Fail,
            Err(error) if is_statement_error(&error) => {
                failed.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    unit.settle()?;
    match failed {
        Some(error) => Err(error),
        None if unmatched => Err(no_match()),
        None => Ok(()),
    }
}

fn no_match() -> Error {
    Error::user(
        ErrorCode::MergeStageNoMatchingDocument,
        "$merge could not find a matching document in the target collection for at least one document in the \
         source collection",
    )
}

/// One document to be merged.
struct Statement<'a> {
    stage: &'a stage::Merge,
    document: Document,
    filter: Arc<Filter>,
}

impl<'a> Statement<'a> {
    fn new(
        stage: &'a stage::Merge,
        document: RawDocument<'_>,
        collation: &Option<Collation>,
    ) -> Result<Statement<'a>> {
        let by_id = stage.on.iter().any(|path| path.as_str() == "_id");
        let document = match by_id && document.get("_id").is_none() {
            false => document.to_document(),
            true => {
                let id = Placed::Value(RawValue::ObjectId(ObjectId::new()));
                place(document, &["_id".into()], id, 32)
            }
        };
        let mut fields = Vec::with_capacity(stage.on.len());
        for path in &stage.on {
            let value = on_value(document.as_raw(), path)?;
            let value = Operand::new(value.to_value(), collation);
            let predicate = Predicate::Compare(Comparison::Eq, value);
            fields.push(Filter::Field { path: Path::parse(path.as_str()), predicate });
        }
        let filter = match fields.len() {
            1 => fields.remove(0),
            _ => Filter::And(fields),
        };
        Ok(Statement { stage, document, filter: Arc::new(filter) })
    }

    /// Writes the document. False if none matched and none may be inserted.
    fn run(
        &self,
        unit: &mut Unit<'_>,
        namespace: &Namespace,
        circumstances: &Circumstances<'_>,
    ) -> Result<bool> {
        let outcome = match &self.stage.when_matched {
            WhenMatched::Fail => self.insert(unit, namespace).map(|()| true),
            WhenMatched::Replace => {
                let update = Update::parse(RawValue::Document(self.document.as_raw()), None, false)?;
                self.update(unit, namespace, &update, circumstances)
            }
            WhenMatched::Merge => self.by_operator("$set", unit, namespace, circumstances),
            WhenMatched::KeepExisting => self.by_operator("$setOnInsert", unit, namespace, circumstances),
            WhenMatched::Pipeline(pipeline) => self.by_pipeline(pipeline, unit, namespace, circumstances),
        };
        outcome.map_err(|error| self.explain(error))
    }

    fn insert(&self, unit: &mut Unit<'_>, namespace: &Namespace) -> Result<()> {
        let outcome = insert(unit, namespace, &[self.document.as_raw()], true, |_| 0)?;
        outcome.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    fn by_operator(
        &self,
        operator: &str,
        unit: &mut Unit<'_>,
        namespace: &Namespace,
        circumstances: &Circumstances<'_>,
    ) -> Result<bool> {
        let mut update = Document::new();
        update.push(operator, self.document.clone());
        let update = Update::parse(RawValue::Document(update.as_raw()), None, false)?;
        self.update(unit, namespace, &update, circumstances)
    }

    /// Runs `whenMatched` as an update, with the stage's `let` as its variables. If nothing matches, the document itself is
    /// inserted.
    fn by_pipeline(
        &self,
        pipeline: &stage::MatchedPipeline,
        unit: &mut Unit<'_>,
        namespace: &Namespace,
        circumstances: &Circumstances<'_>,
    ) -> Result<bool> {
        let mut variables = circumstances.variables.clone().under(circumstances.collation.clone());
        let env = Env::new(self.document.as_raw(), Bindings::none());
        for (name, expression) in &pipeline.variables {
            // As on MongoDB, a variable without a value is unknown to the pipeline.
            if let Some(value) = expression.evaluate(&env)?.into_value() {
                variables.define(name, value);
            }
        }
        let written = RawValue::Array(pipeline.written.as_raw());
        let how = Update::parse_in(written, None, false, &Scope::new(&variables))?;
        let mut lost = false;
        loop {
            let matched = self.run_update(unit, namespace, &how, false, circumstances)?.matched > 0;
            if matched || self.stage.when_not_matched != WhenNotMatched::Insert {
                return Ok(matched);
            }
            match self.insert(unit, namespace) {
                // Another writer may have inserted the same key first. Then there is something to update now.
                Err(error) if error.code() == ErrorCode::DuplicateKey && !lost => lost = true,
                result => return result.map(|()| true),
            }
        }
    }

    /// The error as mongod words it.
    fn explain(&self, error: Error) -> Error {
        if error.code() == ErrorCode::ImmutableField {
            return error.during(
                "$merge failed to update the matching document, did you attempt to modify the _id or the shard key?",
            );
        }
        if error.code() != ErrorCode::DuplicateKey {
            return error;
        }
        let own = matches!(self.stage.when_matched, WhenMatched::Fail) && self.is_on_key(&error);
        error.during(match own {
            true => {
                "$merge with whenMatched: fail found an existing document with the same values for the 'on' fields"
            }
            false => "$merge failed due to a DuplicateKey error",
        })
    }

    /// Whether the key that was taken is that of the `on` fields.
    fn is_on_key(&self, error: &Error) -> bool {
        let Error::User(user) = error else { return false };
        let details = user.details.as_deref().and_then(|details| RawDocument::parse(details).ok());
        let Some(RawValue::Document(key)) = details.and_then(|details| details.get("keyPattern")) else {
            return false;
        };
        let on = &self.stage.on;
        key.iter().count() == on.len()
            && key.iter().all(|(name, _)| on.iter().any(|path| path.as_str() == name))
    }

    fn update(
        &self,
        unit: &mut Unit<'_>,
        namespace: &Namespace,
        update: &Update,
        circumstances: &Circumstances<'_>,
    ) -> Result<bool> {
        let upsert = self.stage.when_not_matched == WhenNotMatched::Insert;
        let outcome = self.run_update(unit, namespace, update, upsert, circumstances)?;
        Ok(outcome.matched > 0 || outcome.upserted.is_some())
    }

    fn run_update(
        &self,
        unit: &mut Unit<'_>,
        namespace: &Namespace,
        how: &Update,
        upsert: bool,
        circumstances: &Circumstances<'_>,
    ) -> Result<UpdateOutcome> {
        let request = UpdateRequest {
            filter: self.filter.clone(),
            update: how,
            multi: false,
            upsert,
            hint: None,
            collation: circumstances.collation.clone(),
            now_ms: circumstances.now_ms,
            statement: 0,
            projection: None,
        };
        update_unchecked(unit, namespace, &request)
    }
}

/// The value of an `on` field, which must be one.
fn on_value<'a>(document: RawDocument<'a>, path: &FieldPath) -> Result<RawValue<'a>> {
    let mut value = Some(RawValue::Document(document));
    for name in path.names() {
        value = match value {
            Some(RawValue::Document(within)) => within.get(name),
            _ => None,
        };
    }
    match value {
        None | Some(RawValue::Null | RawValue::Undefined) => Err(Error::location(
            51132,
            format!(
                "$merge write error: 'on' field '{}' cannot be missing, null, undefined or an array",
                path.as_str()
            ),
        )),
        Some(RawValue::Array(_)) => Err(Error::location(
            51185,
            format!("$merge write error: 'on' field '{}' is an array", path.as_str()),
        )),
        Some(value) => Ok(value),
    }
}
