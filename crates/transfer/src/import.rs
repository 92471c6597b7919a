//! `import`: text into a collection.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::{doc, parse_extended_json};
use kilim_client::Client;
use kilim_client::shell::{self, Mistake};

use crate::Watch;
use crate::columns::{self, Column};
use crate::pieces::Pieces;
use crate::sink::{Refused, Sink, Update, Write};

const NAMESPACE_NOT_FOUND: i32 = 26;
const STEPS: u64 = 256;

#[derive(Debug, Clone)]
pub struct Import {
    pub database: String,
    pub collection: String,
    /// Standard input if there is none.
    pub file: Option<PathBuf>,
    pub format: ImportFormat,
    pub mode: ImportMode,
    /// By which fields a document is found, where it is updated or deleted.
    pub by: Vec<String>,
    /// Ends at the first that cannot be read or is refused.
    pub stop_on_error: bool,
    /// The collection is dropped first.
    pub drop: bool,
}

#[derive(Debug, Clone)]
pub enum ImportFormat {
    /// Extended JSON, or what the shell writes: lines, or an array.
    Json,
    /// A table. Columns that are not given are the first line's.
    Table {
        separator: u8,
        columns: Option<Vec<Column>>,
        /// The first line names types too.
        typed: bool,
        /// Empty cells become empty text instead of nothing.
        keep_blanks: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportMode {
    Insert,
    /// Replaces the document that is there, or inserts.
    Upsert,
    /// Sets the given fields in the document that is there, or inserts.
    Merge,
    /// Deletes the document that is there.
    Delete,
}

/// What became of the documents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// Written, or deleted where that was asked for.
    pub written: u64,
    /// To be deleted, and not there.
    pub missing: u64,
    pub refused: Refused,
}

impl Import {
    pub fn run(&self, client: &mut Client, watch: &mut dyn Watch) -> Result<Imported> {
        if self.drop {
            match client.run(&self.database, doc! {"drop": &*self.collection}) {
                Err(fault) if fault.code() != Some(NAMESPACE_NOT_FOUND) => return Err(fault.into()),
                _ => {}
            }
        }
        let write = match self.mode {
            ImportMode::Insert => Write::Insert,
            ImportMode::Upsert => Write::Update { fields: &self.by, how: Update::Replace },
            ImportMode::Merge => Write::Update { fields: &self.by, how: Update::Merge },
            ImportMode::Delete => Write::Delete { fields: &self.by },
        };
        let (input, total) = self.input()?;
        let mut sink = Sink::new(client, &self.database, &self.collection, write, self.stop_on_error);
        match &self.format {
            ImportFormat::Json => self.read_json(input, total, &mut sink, watch)?,
            ImportFormat::Table { separator, columns, typed, keep_blanks } => self.read_table(
                input,
                total,
                (*separator, columns.as_deref(), *typed, *keep_blanks),
                &mut sink,
                watch,
            )?,
        }
        sink.flush()?;
        Ok(Imported { written: sink.written, missing: sink.missing, refused: sink.refused })
    }

    fn input(&self) -> Result<(Box<dyn BufRead>, u64)> {
        match &self.file {
            Some(path) => {
                let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
                let is_folder = file.metadata().is_ok_and(|file| file.is_dir());
                ensure!(!is_folder, "{} is a directory: name a file", path.display());
                let total = file.metadata().map_or(0, |file| file.len());
                Ok((Box::new(BufReader::with_capacity(1 << 20, file)), total))
            }
            None => Ok((Box::new(BufReader::new(io::stdin())), 0)),
        }
    }

    fn read_json(
        &self,
        input: Box<dyn BufRead>,
        total: u64,
        sink: &mut Sink<'_>,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let mut pieces = Pieces::new(input);
        let mut number = 0u64;
        loop {
            let piece = match pieces.next() {
                Ok(Some(piece)) => piece,
                Ok(None) => return Ok(()),
                // Where the text itself is broken, nobody knows where the next document begins: that ends it.
                Err(error) => {
                    sink.flush()?;
                    let ((line, _), written) = (pieces.begun, sink.written);
                    return Err(error).with_context(|| {
                        format!("line {line}, behind document {number}, with {written} documents written")
                    });
                }
            };
            number += 1;
            // What is no JSON may still be what the shell writes.
            let read = parse_extended_json(&piece).or_else(|_| shell::read_document(&piece));
            match read {
                Ok(document) => sink.push(document, Some(pieces.begun.0))?,
                Err(mistake) => self.skip(sink, fault(&piece, pieces.begun, &mistake))?,
            }
            if number.is_multiple_of(STEPS) {
                watch.moved(&self.collection, pieces.read, total);
            }
        }
    }

    fn read_table(
        &self,
        input: Box<dyn BufRead>,
        total: u64,
        (separator, given, typed, keep_blanks): (u8, Option<&[Column]>, bool, bool),
        sink: &mut Sink<'_>,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let reader = csv::ReaderBuilder::new()
            .delimiter(separator)
            .has_headers(false)
            .flexible(true)
            .from_reader(Quotes::new(without_mark(input)?, separator));
        let mut rows = reader.into_records();
        let columns = match given {
            Some(columns) => columns.to_vec(),
            None => {
                let Some(head) = rows.next() else { return Ok(()) };
                let line = rows.reader_mut().get_mut().next_line();
                let column = if typed { Column::typed } else { Column::plain };
                let columns = head.map_err(readable).and_then(|head| {
                    head.iter().map(|name| column(name.trim())).collect::<Result<Vec<Column>>>()
                });
                columns.with_context(|| format!("line {line} names no columns"))?
            }
        };
        let mut number = 0u64;
        while let Some(row) = rows.next() {
            let line = rows.reader_mut().get_mut().next_line();
            let is_open = rows.reader().get_ref().ends_open();
            let made = match row {
                // The next try would end the same way, and the one after it.
                Err(error) if error.is_io_error() => return Err(error).context("cannot read the table"),
                row => row.map_err(readable).and_then(|row| {
                    if is_open {
                        bail!("a quoted cell has no end");
                    }
                    if row.len() > columns.len() {
                        bail!("{} cells for {} columns", row.len(), columns.len());
                    }
                    columns::row(&columns, &row, keep_blanks)
                }),
            };
            match made {
                Ok(document) => sink.push(document, Some(line))?,
                Err(error) => self.skip(sink, format!("line {line}: {error:#}"))?,
            }
            number += 1;
            if number.is_multiple_of(STEPS) {
                watch.moved(&self.collection, rows.reader().position().byte(), total);
            }
        }
        Ok(())
    }

    /// What cannot be read is told with the refused, unless it is to end here.
    fn skip(&self, sink: &mut Sink<'_>, message: String) -> Result<()> {
        if self.stop_on_error {
            sink.flush()?;
            bail!("{message}. {} documents were written before it", sink.written);
        }
        sink.refused.add(message);
        Ok(())
    }
}

/// What is wrong with a document's text, and where that is in the file.
fn fault(piece: &str, (line, column): (u64, u64), mistake: &Mistake) -> String {
    let place = match mistake.place(piece) {
        (1, within) => (line, column + within - 1),
        (below, within) => (line + below - 1, within),
    };
    format!("line {}, column {}: {mistake}", place.0, place.1)
}

/// The reader's errors count lines in a way of their own.
fn readable(error: csv::Error) -> anyhow::Error {
    match error.kind() {
        csv::ErrorKind::Utf8 { .. } => anyhow::anyhow!("the text is not UTF-8"),
        _ => error.into(),
    }
}

/// A table on its way to the reader. The reader takes a cell whose quote is never closed for one that reaches to the end
/// of the file, and it counts empty lines in front of a row as the row's own. Here both are seen.
struct Quotes<R> {
    input: R,
    separator: u8,
    state: Quoting,
    ended: bool,
    line: u64,
    /// Whether a row begins with the next byte that is not the end of an empty line.
    is_between: bool,
    /// The lines on which rows begin that the reader has not given out yet.
    begun: VecDeque<u64>,
}

/// Where in a cell the last byte was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quoting {
    /// A cell may begin with a quote.
    Begin,
    Bare,
    Quoted,
    /// Behind a quote inside quotes: the end, or with another one, a quote.
    Behind,
}

impl<R> Quotes<R> {
    fn new(input: R, separator: u8) -> Quotes<R> {
        Quotes {
            input,
            separator,
            state: Quoting::Begin,
            ended: false,
            line: 1,
            is_between: true,
            begun: VecDeque::new(),
        }
    }

    /// The line on which the row begins that the reader has just given out.
    fn next_line(&mut self) -> u64 {
        self.begun.pop_front().unwrap_or(self.line)
    }

    /// Whether the table has ended within quotes.
    fn ends_open(&self) -> bool {
        self.ended && self.state == Quoting::Quoted
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.ended = read == 0;
        for &byte in &into[..read] {
            let is_end = matches!(byte, b'\r' | b'\n');
            if self.is_between && !is_end {
                self.begun.push_back(self.line);
            }
            self.is_between = is_end && (self.is_between || self.state != Quoting::Quoted);
            self.line += u64::from(byte == b'\n');
            self.state = match (self.state, byte) {
                (Quoting::Begin | Quoting::Behind, b'"') => Quoting::Quoted,
                (Quoting::Quoted, b'"') => Quoting::Behind,
                (Quoting::Quoted, _) => Quoting::Quoted,
                (_, b'\r' | b'\n') => Quoting::Begin,
                (_, byte) if byte == self.separator => Quoting::Begin,
                (_, _) => Quoting::Bare,
            };
        }
        Ok(read)
    }
}

/// Behind the byte order mark that some programs put first.
fn without_mark(mut input: Box<dyn BufRead>) -> Result<Box<dyn Read>> {
    if input.fill_buf()?.starts_with(b"\xEF\xBB\xBF") {
        input.consume(3);
    }
    Ok(Box::new(input))
}
