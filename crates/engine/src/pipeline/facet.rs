//! `$facet`: each of several pipelines over all rows of the input, one document of their results.
//!
//! The input is read once and kept, in memory up to a bound and in a temporary file beyond it; then the
//! pipelines run one after the other.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use kilim_bson::{Document, RawValue, Writer};
use kilim_error::{Error, Result, StorageError};
use kilim_query::expression::Bindings;
use kilim_query::stage;

use super::budget::STAGE_BYTES_MAX;
use super::{Opening, Reader, Step, made};
use crate::operator::{ExecContext, Row};

/// What the document of all results may hold, as on MongoDB. A client is sent far less, but a stage behind
/// may take it apart.
const OUTPUT_BYTES_MAX: usize = 100 * 1024 * 1024;

pub(super) struct Facet {
    stage: stage::Facet,
    reader: Reader,
    bindings: Bindings,
    input: Box<dyn Step>,
    done: bool,
}

impl Facet {
    pub(super) fn new(stage: &stage::Facet, input: Box<dyn Step>, opening: &Opening<'_>) -> Facet {
        Facet {
            stage: stage.clone(),
            reader: opening.reader.clone(),
            bindings: opening.bindings.clone(),
            input,
            done: false,
        }
    }

    fn run(&mut self, context: &mut ExecContext<'_>) -> Result<Document> {
        let kept = Arc::new(Kept::of(&mut *self.input, context)?);
        let opening = Opening { reader: &self.reader, bindings: &self.bindings };
        let mut out = Writer::new();
        for (name, pipeline) in self.stage.facets.iter() {
            let mut step: Box<dyn Step> = Box::new(Replay::new(kept.clone())?);
            for stage in &pipeline.stages {
                step = super::step(stage, step, &opening)?;
            }
            out.open_array(name);
            let mut count = 0;
            while let Some(row) = step.next(context)? {
                context.tick()?;
                out.append_index(count, RawValue::Document(row.document()));
                count += 1;
                if out.len() > OUTPUT_BYTES_MAX {
                    return Err(Error::location(
                        4031700,
                        format!(
                            "document constructed by $facet is {} bytes, which exceeds the limit of \
                             {OUTPUT_BYTES_MAX} bytes",
                            out.len()
                        ),
                    ));
                }
            }
            out.close();
        }
        Ok(out.finish())
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
