//! `kilim dump`, `restore`, `import` and `export`: data in and out, of any server.

use std::fs::{self, File};
use std::io::{self, BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use kilim_bson::{Document, JsonFormat};
use kilim_client::{Client, Uri};
use kilim_transfer::{
    Column, Dump, Export, ExportFormat, Import, ImportFormat, ImportMode, Refused, Restore, Unfinished, Watch,
};

use crate::connect::{Encryption, UriParser, open};
use crate::data_directory;
use crate::interruption;
use crate::output::{complain, say, stdout};
use crate::progress::Progress;
use crate::text::{grouped, parse_document};

/// Which server.
#[derive(Debug, Clone, Args)]
struct Server {
    /// Server, and perhaps database.
    #[arg(
        long,
        env = "KILIM_URI",
        hide_env_values = true,
        value_parser = UriParser,
        value_name = "URI",
        default_value = "mongodb://127.0.0.1:27017"
    )]
    uri: Uri,

    /// Database, if the URI names none or another.
    #[arg(long, value_name = "NAME")]
    db: Option<String>,

    #[command(flatten)]
    encryption: Encryption,
}

impl Server {
    /// The program's name goes along: what is restored or imported does not count as written by a user.
    fn connect(&self, application: &str) -> Result<Client> {
        let mut client = open(&self.encryption.on(&self.uri))?;
        // An index is built as long as it takes.
        client.wait_at_most(None)?;
        client.introduce(application)?;
        Ok(client)
    }

    fn database(&self) -> Option<String> {
        self.db.clone().or_else(|| self.uri.database.clone())
    }

    fn required_database(&self) -> Result<String> {
        self.database().ok_or_else(|| {
            anyhow!("which database? Name it in the URI, as in --uri {}/shop, or with --db shop", self.uri)
        })
    }
}

/// Write collections to files, as of one moment.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kilim dump --out backup                       every database, one folder each
  kilim dump --db shop --gzip --out backup      one database, compressed
  kilim dump --db shop --collection orders --query '{status: \"open\"}'

The layout is mongodump's: DB/COLLECTION.bson and DB/COLLECTION.metadata.json. Beside them kilim-dump.json says what
belongs to the dump, with counts and checksums; it is written when all is there, and `kilim restore` checks it.
A folder that has a dump is refused, unless --replace is given.")]
pub(crate) struct DumpArguments {
    #[command(flatten)]
    server: Server,

    /// Only this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,

    /// Only documents of the collection that match, as in the shell: '{at: {$gt: ISODate("2024-03-01")}}'.
    #[arg(long, value_name = "FILTER", requires = "collection")]
    query: Option<String>,

    /// Folder to write to.
    #[arg(long, value_name = "DIR", default_value = "dump")]
    out: PathBuf,

    /// Compress the files.
    #[arg(long)]
    gzip: bool,

    /// Replace the dump that is in the folder, once the new one is complete.
    #[arg(long)]
    replace: bool,
}

/// Read what `dump` wrote, or mongodump.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kilim restore backup                          everything in the folder
  kilim restore backup --db shop --drop         one database, in place of what is there")]
pub(crate) struct RestoreArguments {
    #[command(flatten)]
    server: Server,

    /// Folder of the dump.
    #[arg(value_name = "DIR", default_value = "dump")]
    folder: PathBuf,

    /// Only this collection.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,

    /// Drop each collection of the dump first.
    #[arg(long)]
    drop: bool,
}

/// Write a collection as JSON or as a table.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kilim export --db shop --collection orders --out orders.json
  kilim export --db shop --collection orders --type csv --fields _id,customer.name,total
  kilim export --db shop --collection orders --query '{total: {$gt: 100}}' --sort '{total: -1}' --limit 10")]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    server: Server,

    /// The collection to write.
    #[arg(long, value_name = "NAME")]
    collection: String,

    /// Kind of text.
    #[arg(long = "type", value_enum, default_value_t = TextKind::Json)]
    kind: TextKind,

    /// File to write; standard output if none is named.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Fields to write, by their paths; a table's columns.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    fields: Vec<String>,

    /// Only documents that match, as in the shell: '{at: {$gt: ISODate("2024-03-01")}}'.
    #[arg(long, value_name = "FILTER")]
    query: Option<String>,

    /// Order of the documents, as in '{total: -1}'.
    #[arg(long, value_name = "KEYS")]
    sort: Option<String>,

    /// Leave out the first so many.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,

    /// At most so many; 0 is all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    limit: u64,

    /// One array instead of a document a line.
    #[arg(long)]
    json_array: bool,

    /// How JSON writes types: as people do, or every type exactly.
    #[arg(long, value_enum, default_value_t = Types::Relaxed)]
    json_format: Types,

    /// Leave out the line of names.
    #[arg(long)]
    no_header: bool,
}

/// Read JSON or a table into a collection.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kilim import --db shop --collection orders orders.json
  kilim import --db shop --collection people --type csv people.csv
      The first line names the columns; what looks like a number becomes one.
  kilim import --db shop --collection people --type csv --columns 'name.string(),born.date(%Y-%m-%d)' people.csv
  kilim import --db shop --collection prices --mode merge --by sku prices.json")]
pub(crate) struct ImportArguments {
    #[command(flatten)]
    server: Server,

    /// The collection to write into; made if it does not exist.
    #[arg(long, value_name = "NAME")]
    collection: String,

    /// File to read; standard input if none is named.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Kind of text.
    #[arg(long = "type", value_enum, default_value_t = TextKind::Json)]
    kind: TextKind,

    /// A table's columns with their types, as in 'name.string(),age.int32()'. The first line's if not given.
    #[arg(long, value_name = "COLUMNS")]
    columns: Option<String>,

    /// The first line names types too, as --columns does.
    #[arg(long, conflicts_with = "columns")]
    typed_header: bool,

    /// Empty cells become empty text instead of nothing.
    #[arg(long)]
    keep_blanks: bool,

    /// What is made of a document that is there already.
    #[arg(long, value_enum, default_value_t = Mode::Insert)]
    mode: Mode,

    /// Fields by which documents are found in the other modes.
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_value = "_id")]
    by: Vec<String>,

    /// End at the first document that cannot be read or is refused.
    #[arg(long)]
    stop_on_error: bool,

    /// Drop the collection first.
    #[arg(long)]
    drop: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TextKind {
    /// Extended JSON.
    Json,
    /// Cells between commas.
    Csv,
    /// Cells between tabs.
    Tsv,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Types {
    Relaxed,
    Canonical,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// It is refused as a duplicate.
    Insert,
    /// It is replaced.
    Upsert,
    /// It gets the given fields.
    Merge,
    /// It is deleted.
    Delete,
}

impl TextKind {
    fn separator(self) -> Option<u8> {
        match self {
            TextKind::Json => None,
            TextKind::Csv => Some(b','),
            TextKind::Tsv => Some(b'\t'),
        }
    }
}

impl DumpArguments {
    pub(crate) fn run(self) -> Result<ExitCode> {
        data_directory::check_outside(&self.out, "--out")?;
        let dump = Dump {
            database: self.server.database(),
            collection: self.collection,
            query: self.query.as_deref().map(parse_document).transpose().context("--query")?,
            folder: self.out,
            gzip: self.gzip,
            replace: self.replace,
            unfinished: interruptible()?,
        };
        if dump.collection.is_some() {
            self.server.required_database()?;
        }
        let dumped = dump.run(&mut self.server.connect("kilim dump")?, &mut Bar::default())?;
        say!(
            "{} documents of {} collections in {}",
            grouped(dumped.documents as i64),
            grouped(dumped.collections as i64),
            dump.folder.display()
        )?;
        Ok(ExitCode::SUCCESS)
    }
}

impl RestoreArguments {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let restore = Restore {
            database: self.server.database(),
            folder: self.folder,
            collection: self.collection,
            drop: self.drop,
        };
        let restored = restore.run(&mut self.server.connect("kilim restore")?, &mut Bar::default())?;
        say!(
            "{} documents and {} indexes of {} collections restored",
            grouped(restored.documents as i64),
            grouped(restored.indexes as i64),
            grouped(restored.collections as i64)
        )?;
        Ok(told("refused", &restored.refused))
    }
}

impl ExportArguments {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let types = match self.json_format {
            Types::Relaxed => JsonFormat::Relaxed,
            Types::Canonical => JsonFormat::Canonical,
        };
        let format = match (self.kind.separator(), self.json_array) {
            (Some(_), true) => bail!("--json-array is for --type json"),
            (Some(_), false) if self.fields.is_empty() => {
                bail!("a table needs its columns: --fields _id,name,address.city")
            }
            (Some(separator), false) => ExportFormat::Table { separator, head: !self.no_header },
            (None, true) => ExportFormat::Array(types),
            (None, false) => ExportFormat::Lines(types),
        };
        let document = |text: &Option<String>, name: &'static str| -> Result<Option<Document>> {
            text.as_deref().map(parse_document).transpose().context(name)
        };
        let export = Export {
            database: self.server.required_database()?,
            collection: self.collection,
            query: document(&self.query, "--query")?.unwrap_or_default(),
            sort: document(&self.sort, "--sort")?,
            skip: self.skip,
            limit: self.limit,
            fields: self.fields.iter().map(|path| Column::plain(path)).collect::<Result<_>>()?,
            format,
        };
        self.out.iter().try_for_each(|out| data_directory::check_outside(out, "--out"))?;
        let mut client = self.server.connect("kilim export")?;
        let mut bar = Bar::default();
        let written = match &self.out {
            Some(path) => {
                let unwritable = || format!("cannot write {}", path.display());
                let file = OutFile::create(path).with_context(unwritable)?;
                let mut file = BufWriter::new(file);
                let written = export.run(&mut client, &mut file, &mut bar)?;
                let file = file.into_inner().map_err(IntoInnerError::into_error)?;
                file.finish().with_context(unwritable)?;
                written
            }
            None => export.run(&mut client, &mut BufWriter::new(stdout()), &mut bar)?,
        };
        drop(bar);
        // Standard output may be the documents themselves.
        complain!("{} documents exported", grouped(written as i64));
        Ok(ExitCode::SUCCESS)
    }
}

impl ImportArguments {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let format = match self.kind.separator() {
            None if self.columns.is_some() || self.typed_header => {
                bail!("columns are for --type csv and tsv")
            }
            None => ImportFormat::Json,
            Some(separator) => ImportFormat::Table {
                separator,
                columns: self.columns.as_deref().map(columns).transpose()?,
                typed: self.typed_header,
                keep_blanks: self.keep_blanks,
            },
        };
        let import = Import {
            database: self.server.required_database()?,
            collection: self.collection,
            file: self.file,
            format,
            mode: match self.mode {
                Mode::Insert => ImportMode::Insert,
                Mode::Upsert => ImportMode::Upsert,
                Mode::Merge => ImportMode::Merge,
                Mode::Delete => ImportMode::Delete,
            },
            by: self.by,
            stop_on_error: self.stop_on_error,
            drop: self.drop,
        };
        let imported = import.run(&mut self.server.connect("kilim import")?, &mut Bar::default())?;
        let verb = match self.mode {
            Mode::Insert | Mode::Upsert => "imported",
            Mode::Merge => "merged",
            Mode::Delete => "deleted",
        };
        let missing = match imported.missing {
            0 => String::new(),
            missing => format!(", {} were not there", grouped(missing as i64)),
        };
        say!("{} documents {verb}{missing}", grouped(imported.written as i64))?;
        Ok(told("documents were refused", &imported.refused))
    }
}

/// Columns with types; a comma inside a date's format is part of it.
fn columns(text: &str) -> Result<Vec<Column>> {
    let (mut columns, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 => {
                columns.push(Column::typed(text[start..at].trim())?);
                start = at + 1;
            }
            _ => {}
        }
    }
    columns.push(Column::typed(text[start..].trim())?);
    Ok(columns)
}

/// What is unfinished is removed when the command is interrupted.
fn interruptible() -> Result<Unfinished> {
    let unfinished = Unfinished::default();
    let own = unfinished.clone();
    interruption::catch(move |end| own.remove_and(end)).context("cannot catch signals")?;
    Ok(unfinished)
}

/// A file that has its name only once it is complete. What is no plain file, such as a pipe, is written as it is.
struct OutFile {
    file: File,
    /// As the user named it.
    shown: String,
    /// What the file is called, and is to be called.
    names: Option<(PathBuf, PathBuf)>,
    unfinished: Unfinished,
}

impl OutFile {
    fn create(path: &Path) -> Result<OutFile> {
        let unfinished = interruptible()?;
        let shown = path.display().to_string();
        let existing = fs::metadata(path).ok();
        if existing.as_ref().is_some_and(|existing| !existing.is_file()) {
            let file = File::options().write(true).open(path)?;
            return Ok(OutFile { file, shown, names: None, unfinished });
        }
        // A link stays a link: what it leads to is replaced.
        let path = if existing.is_some() { path.canonicalize()? } else { path.to_owned() };
        let mut name = path.file_name().context("it names no file")?.to_owned();
        name.push(format!(".unfinished-{}", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = unfinished.make_file(&temporary)?;
        if let Some(existing) = existing {
            file.set_permissions(existing.permissions())?;
        }
        Ok(OutFile { file, shown, names: Some((temporary, path)), unfinished })
    }

    fn finish(self) -> Result<()> {
        if let Some((temporary, path)) = &self.names {
            self.file.sync_all()?;
            self.unfinished.finish(|| fs::rename(temporary, path))?;
        }
        Ok(())
    }
}

impl Write for OutFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file
            .write(bytes)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", self.shown)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutFile {
    /// After `finish` nothing is unfinished.
    fn drop(&mut self) {
        self.unfinished.remove();
    }
}

/// Says what was refused; that is a failure.
fn told(what: &str, refused: &Refused) -> ExitCode {
    if refused.count == 0 {
        return ExitCode::SUCCESS;
    }
    complain!("{} {what}:", grouped(refused.count as i64));
    for message in &refused.messages {
        complain!("  {message}");
    }
    ExitCode::FAILURE
}

/// A progress bar for one collection after the other.
#[derive(Default)]
struct Bar {
    shown: String,
    progress: Option<Progress>,
    drawn: Option<Instant>,
}

/// Drawing costs more than a document.
const TURN: Duration = Duration::from_millis(100);

impl Watch for Bar {
    fn moved(&mut self, what: &str, done: u64, total: u64) {
        if self.shown != what {
            self.shown = what.to_owned();
            self.progress = Some(Progress::new(what));
        }
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < TURN) {
            return;
        }
        self.drawn = Some(Instant::now());
        if let Some(progress) = &mut self.progress {
            progress.show(Some((done as i64, total as i64)));
        }
    }

    fn warn(&mut self, message: &str) {
        self.progress = None;
        self.shown.clear();
        complain!("kilim: {message}");
    }
}
