//! `$facet`: each of several pipelines over all rows of the input, one document of their results.
//!
//! The input is read once, batch by batch, and every pipeline takes its share of each batch: up to its first stage
//! that gives nothing before it has seen everything, or to its end. Only where a pipeline cannot wait for more
//! (`$unionWith` goes on to the other collection) the whole input is kept, in memory up to a bound and in a temporary
//! file beyond it, and the pipelines run one after the other.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use kilim_bson::{Array, Document, RawValue, Value, Writer};
use kilim_error::{Error, Result, StorageError};
use kilim_query::expression::Bindings;
use kilim_query::stage::{self, Pipeline, Stage};

use super::budget::STAGE_BYTES_MAX;
use super::{Opening, Reader, Step, explain, made};
use crate::operator::{ExecContext, Row};

/// What the document of all results may hold, as on MongoDB. A client is sent far less, but a stage behind
/// may take it apart.
const OUTPUT_BYTES_MAX: usize = 100 * 1024 * 1024;
/// Enough rows that changing from pipeline to pipeline costs nothing, few enough to stay in the processor's cache.
const BATCH_ROWS: usize = 256;
const BATCH_BYTES: usize = 1 << 20;

pub(super) struct Facet {
    stage: stage::Facet,
    reader: Reader,
    bindings: Bindings,
    input: Box<dyn Step>,
    done: bool,
    /// For explain: the pipelines with what their stages did. Set from the beginning where that is wanted.
    told: Option<Document>,
}

impl Facet {
    pub(super) fn new(stage: &stage::Facet, input: Box<dyn Step>, opening: &Opening<'_>) -> Facet {
        Facet {
            stage: stage.clone(),
            reader: opening.reader.clone(),
            bindings: opening.bindings.clone(),
            input,
            done: false,
            told: None,
        }
    }

    /// One that tells what the stages of its pipelines did.
    pub(super) fn telling(stage: &stage::Facet, input: Box<dyn Step>, opening: &Opening<'_>) -> Facet {
        Facet { told: Some(Document::new()), ..Facet::new(stage, input, opening) }
    }

    fn run(&mut self, context: &mut ExecContext<'_>) -> Result<Document> {
        let opening = Opening { reader: &self.reader, collection: None, bindings: &self.bindings };
        let mut out = Writer::new();
        if self.told.is_none() && self.stage.facets.iter().all(|(_, pipeline)| can_wait(pipeline)) {
            let facets = self.stage.facets.iter();
            let mut branches =
                facets.map(|(_, pipeline)| Branch::new(pipeline, &opening)).collect::<Result<Vec<_>>>()?;
            while let Some(batch) = batch(&mut *self.input, context)? {
                for branch in &mut branches {
                    branch.take_in(batch.clone(), context)?;
                }
                check_bytes(branches.iter().map(|branch| branch.rows.bytes()).sum())?;
            }
            for ((name, _), branch) in self.stage.facets.iter().zip(branches) {
                let rows = branch.finish(out.len(), &opening, context)?;
                out.append(name, RawValue::Array(rows.finish().as_raw()));
            }
            return Ok(out.finish());
        }
        let kept = Arc::new(Kept::of(&mut *self.input, context)?);
        for (name, pipeline) in self.stage.facets.iter() {
            let mut rows = Rows::default();
            let replay: Box<dyn Step> = Box::new(Replay::new(kept.clone())?);
            match &mut self.told {
                None => {
                    let mut step = replay;
                    for stage in &pipeline.stages {
                        step = super::step(stage, step, &opening)?;
                    }
                    rows.drain(&mut *step, out.len(), context)?;
                }
                Some(told) => {
                    let mut step = explain::counted(replay, &pipeline.stages, &opening)?;
                    rows.drain(&mut *step, out.len(), context)?;
                    told.push(name, explain::stages_with_reports(pipeline, &*step));
                }
            }
            out.append(name, RawValue::Array(rows.finish().as_raw()));
        }
        Ok(out.finish())
    }
}

fn check_bytes(bytes: usize) -> Result<()> {
    if bytes <= OUTPUT_BYTES_MAX {
        return Ok(());
    }
    Err(Error::location(
        4031700,
        format!(
            "document constructed by $facet is {bytes} bytes, which exceeds the limit of {OUTPUT_BYTES_MAX} bytes"
        ),
    ))
}

/// What a pipeline gave so far.
struct Rows {
    writer: Writer,
    count: usize,
}

impl Default for Rows {
    fn default() -> Rows {
        Rows { writer: Writer::new(), count: 0 }
    }
}

impl Rows {
    /// Takes all that a step gives now; `before` is what the other pipelines gave.
    fn drain(&mut self, step: &mut dyn Step, before: usize, context: &mut ExecContext<'_>) -> Result<()> {
        while let Some(row) = step.next(context)? {
            context.tick()?;
            self.writer.append_index(self.count, RawValue::Document(row.document()));
            self.count += 1;
            check_bytes(before + self.bytes())?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.writer.len()
    }

    fn finish(self) -> Array {
        Array::from_document(self.writer.finish())
    }
}

/// Whether a stage's step goes on when its input had nothing and then has something again.
fn goes_on(stage: &Stage) -> bool {
    matches!(
        stage,
        Stage::Match(_)
            | Stage::Project(_)
            | Stage::AddFields(_)
            | Stage::ReplaceRoot(_)
            | Stage::Redact(_)
            | Stage::Unwind(_)
            | Stage::Limit(_)
            | Stage::Skip(_)
            | Stage::Lookup(_)
            | Stage::GraphLookup(_)
    )
}

/// Whether a stage's step can take rows in without giving any ([`Step::take_in`]).
fn gathers(stage: &Stage) -> bool {
    matches!(stage, Stage::Sort(_) | Stage::Group(_) | Stage::BucketAuto(_) | Stage::Sample(_))
}

/// Whether a pipeline can be given its input in batches.
fn can_wait(pipeline: &Pipeline) -> bool {
    pipeline.stages.iter().find(|stage| !goes_on(stage)).is_none_or(gathers)
}

/// A pipeline at work.
struct Branch<'s> {
    /// Where batches are put for it.
    fed: Arc<Mutex<Option<Batch>>>,
    /// Its stages up to the first that gathers.
    step: Box<dyn Step>,
    gathers: bool,
    /// The first that gathers is the first of all.
    direct: bool,
    /// The others, which run at the end.
    rest: &'s [Stage],
    rows: Rows,
}

impl<'s> Branch<'s> {
    fn new(pipeline: &'s Pipeline, opening: &Opening<'_>) -> Result<Branch<'s>> {
        let fed = Arc::new(Mutex::new(None));
        let gathering = pipeline.stages.iter().position(gathers);
        let (first, rest) = pipeline.stages.split_at(gathering.map_or(pipeline.stages.len(), |at| at + 1));
        let mut step: Box<dyn Step> = Box::new(Fed { fed: fed.clone(), batch: Arc::default(), next: 0 });
        for stage in first {
            step = super::step(stage, step, opening)?;
        }
        let (gathers, direct) = (gathering.is_some(), gathering == Some(0));
        Ok(Branch { fed, step, gathers, direct, rest, rows: Rows::default() })
    }

    fn take_in(&mut self, batch: Batch, context: &mut ExecContext<'_>) -> Result<()> {
        if self.direct && self.step.take_rows(&batch, context)? {
            return Ok(());
        }
        *self.fed.lock().unwrap_or_else(PoisonError::into_inner) = Some(batch);
        match self.gathers {
            true => self.step.take_in(context).map(drop),
            false => self.rows.drain(&mut *self.step, 0, context),
        }
    }

    /// All that the pipeline gives, now that it has seen everything.
    fn finish(self, before: usize, opening: &Opening<'_>, context: &mut ExecContext<'_>) -> Result<Rows> {
        let (mut step, mut rows) = (self.step, self.rows);
        for stage in self.rest {
            step = super::step(stage, step, opening)?;
        }
        rows.drain(&mut *step, before, context)?;
        check_bytes(before + rows.bytes())?;
        Ok(rows)
    }
}

/// Some rows of the input.
type Batch = Arc<Vec<Row>>;

/// The next batch of an input; none at its end.
fn batch(input: &mut dyn Step, context: &mut ExecContext<'_>) -> Result<Option<Batch>> {
    let mut rows = Vec::with_capacity(BATCH_ROWS);
    let mut bytes = 0;
    while rows.len() < BATCH_ROWS && bytes < BATCH_BYTES {
        context.tick()?;
        let Some(row) = input.next(context)? else { break };
        bytes += row.document().as_bytes().len();
        rows.push(row.shared());
    }
    Ok((!rows.is_empty()).then(|| Arc::new(rows)))
}

/// What the steps of a branch read: the rows of the batch at hand.
struct Fed {
    fed: Arc<Mutex<Option<Batch>>>,
    batch: Batch,
    next: usize,
}

impl Step for Fed {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        context.tick()?;
        loop {
            if let Some(row) = self.batch.get(self.next) {
                self.next += 1;
                return Ok(Some(row.clone()));
            }
            match self.fed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                Some(batch) => (self.batch, self.next) = (batch, 0),
                None => return Ok(None),
            }
        }
    }
}

impl Step for Facet {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        self.run(context).and_then(made).map(Some)
    }

    fn input(&self) -> Option<&dyn Step> {
        Some(&*self.input)
    }

    fn shown(&self) -> Option<Document> {
        let told = self.told.as_ref()?;
        Some([("$facet", Value::Document(told.clone()))].into_iter().collect())
    }
}

/// All rows of an input.
struct Kept {
    rows: Vec<Row>,
    /// Those that found no place in memory, and how many they are. Whoever reads opens the file anew.
    file: Option<(File, u64)>,
}

impl Kept {
    fn of(input: &mut dyn Step, context: &mut ExecContext<'_>) -> Result<Kept> {
        let mut rows = Vec::new();
        let mut bytes = 0;
        let mut overflow: Option<(BufWriter<File>, u64)> = None;
        while let Some(row) = input.next(context)? {
            context.tick()?;
            if overflow.is_none() && bytes > STAGE_BYTES_MAX {
                overflow = Some((BufWriter::new(tempfile::tempfile().map_err(io)?), 0));
            }
            match &mut overflow {
                None => {
                    bytes += row.document().as_bytes().len() + size_of::<Row>();
                    rows.push(row.shared());
                }
                Some((writer, count)) => {
                    writer.write_all(row.document().as_bytes()).map_err(io)?;
                    *count += 1;
                }
            }
        }
        let file = match overflow {
            None => None,
            Some((writer, count)) => {
                Some((writer.into_inner().map_err(|error| io(error.into_error()))?, count))
            }
        };
        Ok(Kept { rows, file })
    }
}

/// The kept rows once more.
struct Replay {
    kept: Arc<Kept>,
    next: usize,
    file: Option<(BufReader<File>, u64)>,
}

impl Replay {
    fn new(kept: Arc<Kept>) -> Result<Replay> {
        let file = match &kept.file {
            None => None,
            Some((file, count)) => {
                // The pipelines run one after the other, so they may share the file's position.
                let mut file = file.try_clone().map_err(io)?;
                file.seek(SeekFrom::Start(0)).map_err(io)?;
                Some((BufReader::new(file), *count))
            }
        };
        Ok(Replay { kept, next: 0, file })
    }
}

impl Step for Replay {
    fn next(&mut self, context: &mut ExecContext<'_>) -> Result<Option<Row>> {
        context.tick()?;
        if let Some(row) = self.kept.rows.get(self.next) {
            self.next += 1;
            return Ok(Some(row.clone()));
        }
        match &mut self.file {
            Some((reader, left)) if *left > 0 => {
                *left -= 1;
                read_document(reader).map(|document| Some(Row::of(document)))
            }
            _ => Ok(None),
        }
    }
}

fn read_document(reader: &mut impl Read) -> Result<Document> {
    let mut length = [0; 4];
    reader.read_exact(&mut length).map_err(io)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    let (head, rest) = bytes.split_at_mut_checked(4).ok_or_else(|| Error::bug("a kept document changed"))?;
    head.copy_from_slice(&length);
    reader.read_exact(rest).map_err(io)?;
    Document::parse(bytes).map_err(|_| Error::bug("a kept document changed"))
}

fn io(error: std::io::Error) -> Error {
    StorageError::Io(format!("temporary file of $facet: {error}")).into()
}
