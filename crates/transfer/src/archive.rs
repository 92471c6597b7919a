//! A dump's files: `<db>/<collection>.bson` and `<db>/<collection>.metadata.json`, each perhaps with `.gz`.
//!
//! Names come from a server, and nobody knows whose: [`folder_name`] and [`file_name`] are the only way from a name to a
//! path.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use kilim_bson::Document;

const BUFFER_BYTES: usize = 1 << 20;
const GZIP: &str = ".gz";
/// The folder in a dump's own where its files are until all of them are complete.
pub(crate) const UNFINISHED: &str = "kilim-dump.unfinished";

/// One collection of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub database: String,
    pub collection: String,
    /// A view has none.
    pub data: Option<PathBuf>,
    pub metadata: Option<PathBuf>,
}

/// A file's name from the dump's folder, with a slash between.
pub(crate) fn name_in(dump: &Path, file: &Path) -> String {
    let inside = file.strip_prefix(dump).unwrap_or(file);
    let parts = inside.components().map(|part| part.as_os_str().to_string_lossy());
    parts.collect::<Vec<_>>().join("/")
}

/// A file being written, compressed or not.
pub(crate) enum Out {
    Plain(BufWriter<Summed>),
    Gzip(Box<GzEncoder<BufWriter<Summed>>>),
}

/// What a file has on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    pub bytes: u64,
    pub crc32c: u32,
}

impl Out {
    /// A new file and its name in the folder. A file that is there is an error: two collections would share it.
    pub fn create(folder: &Path, name: &str, gzip: bool) -> Result<(Out, String)> {
        let name = if gzip { format!("{name}{GZIP}") } else { name.to_owned() };
        let path = folder.join(&name);
        let file = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let file = Summed { file, sum: Sum { bytes: 0, crc32c: 0 } };
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let out = match gzip {
            true => Out::Gzip(Box::new(GzEncoder::new(file, Compression::fast()))),
            false => Out::Plain(file),
        };
        Ok((out, name))
    }

    /// Everything on its way to the disk; only then is a dump done.
    pub fn finish(self) -> io::Result<Sum> {
        let file = match self {
            Out::Plain(file) => file,
            Out::Gzip(encoder) => encoder.finish()?,
        };
        let Summed { file, sum } = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(sum)
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Out::Plain(file) => file.write(bytes),
            Out::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Out::Plain(file) => file.flush(),
            Out::Gzip(encoder) => encoder.flush(),
        }
    }
}

/// A file whose bytes are summed up as they are written.
pub(crate) struct Summed {
    file: File,
    sum: Sum,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
    }

    /// Reads a file to its end.
    pub fn of_file(path: &Path) -> Result<Sum> {
        let unreadable = || format!("cannot read {}", path.display());
        let mut file = open_file(path).with_context(unreadable)?;
        let (mut sum, mut buffer) = (Sum { bytes: 0, crc32c: 0 }, vec![0; BUFFER_BYTES]);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(sum),
                Ok(count) => sum.add(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(unreadable),
            }
        }
    }
}

/// Opens a file of a dump. Anything else is refused: a pipe would have the restore wait for whoever writes to it.
pub(crate) fn open_file(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for its writer.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

/// Opens a file, whether it is compressed or not.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = open_file(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = BufReader::with_capacity(BUFFER_BYTES, file);
    match path.to_string_lossy().ends_with(GZIP) {
        true => Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(file)))),
        false => Ok(Box::new(file)),
    }
}

/// The files of collections in a dump's folder, in the order of names.
pub(crate) fn files(dump: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for database in list(dump)? {
        if database.is_dir() && name_of(&database) != UNFINISHED {
            files.extend(list(&database)?.into_iter().filter(|path| meaning(path).is_some()));
        }
    }
    Ok(files)
}

/// The collections of a dump's files, in the order of names.
pub(crate) fn entries(files: &[PathBuf]) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for path in files {
        let Some((collection, is_data)) = meaning(path) else { continue };
        let database = path.parent().map(name_of).unwrap_or_default();
        let of = |entry: &Entry| entry.database == database && entry.collection == collection;
        let at = entries.iter().position(of).unwrap_or_else(|| {
            entries.push(Entry { database, collection, data: None, metadata: None });
            entries.len() - 1
        });
        let place = if is_data { &mut entries[at].data } else { &mut entries[at].metadata };
        if let Some(other) = place.replace(path.clone()) {
            bail!("{} and {} are of the same collection: which one counts?", other.display(), path.display());
        }
    }
    Ok(entries)
}

/// The collection that a file is of, and whether it holds documents or metadata.
fn meaning(path: &Path) -> Option<(String, bool)> {
    let file = name_of(path);
    let file = file.strip_suffix(GZIP).unwrap_or(&file);
    match (file.strip_suffix(".metadata.json"), file.strip_suffix(".bson")) {
        (Some(collection), _) => Some((unescaped(collection), false)),
        (None, Some(collection)) => Some((unescaped(collection), true)),
        (None, None) => None,
    }
}

fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot list {}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(unreadable)? {
        paths.push(entry.with_context(unreadable)?.path());
    }
    paths.sort();
    Ok(paths)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A file's name may have 255 bytes, of which `.metadata.json.gz` needs 17.
const NAME_BYTES_MAX: usize = 238;
/// What is kept of a name that is too long, as mongodump has it.
const NAME_BYTES_KEPT: usize = 208;

/// A database's name as a folder's. mongodump writes it as it is, so one that a folder cannot have, or that would lead out
/// of the dump, is refused. MongoDB refuses such names, too; a server that lists one is broken or means harm.
pub(crate) fn folder_name(database: &str) -> Result<&str> {
    let is_safe = |character: char| !matches!(character, '/' | '\\' | '.') && !character.is_control();
    if database.is_empty() || database.len() > NAME_BYTES_MAX || !database.chars().all(is_safe) {
        bail!("a database named {database:?} has no place in a dump: no folder can be named so");
    }
    Ok(database)
}

/// A collection's name as a file's: what a file system may not take is written as in a URL, as mongodump does. Of a name
/// that is too long the beginning stays, with a hash; the metadata know the whole.
pub(crate) fn file_name(collection: &str) -> Result<String> {
    if collection.is_empty() {
        bail!("a collection without a name has no place in a dump");
    }
    let mut name = String::with_capacity(collection.len());
    for character in collection.chars() {
        match character {
            '%' | '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' | '\0'..='\x1f' => {
                name.push_str(&format!("%{:02X}", character as u32));
            }
            other => name.push(other),
        }
    }
    if name.len() > NAME_BYTES_MAX {
        let mut hasher = DefaultHasher::new();
        collection.hash(&mut hasher);
        name.truncate(name.floor_char_boundary(NAME_BYTES_KEPT));
        name.push_str(&format!("%24{:016x}", hasher.finish()));
    }
    Ok(name)
}

fn unescaped(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (bytes[at], hex.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| name.to_owned())
}

/// The next document of a file, checked: a dump may have been cut short.
pub(crate) fn next_document(file: &mut dyn Read) -> Result<Option<Document>> {
    /// What one document may have, with room for a server's own.
    const BYTES_MAX: usize = (16 << 20) + (16 << 10);
    let mut length = [0; 4];
    let mut read = 0;
    while read < length.len() {
        match file.read(&mut length[read..])? {
            0 if read == 0 => return Ok(None),
            0 => bail!("it ends within a document"),
            count => read += count,
        }
    }
    let bytes = i32::from_le_bytes(length);
    let bytes = usize::try_from(bytes).ok().filter(|bytes| (5..=BYTES_MAX).contains(bytes));
    let Some(bytes) = bytes else { bail!("a document's length is impossible") };
    let mut document = vec![0; bytes];
    document[..4].copy_from_slice(&length);
    file.read_exact(&mut document[4..]).context("it ends within a document")?;
    Ok(Some(Document::parse(document).context("a document is not valid")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_file_system() {
        for name in ["orders", "a/b", "50%", "über/maß", "x:y*?", "kilim.patterns", "%2F"] {
            let file = file_name(name).unwrap();
            assert!(!file.contains('/'), "{file}");
            assert_eq!(unescaped(&file), name);
        }
    }

    #[test]
    fn a_name_never_leads_out_of_the_dump() {
        for name in ["../up", "/abs", "..", ".", "", "a/b", "a\\b", "a\0b", "a.b", "a\nb", UNFINISHED] {
            assert!(folder_name(name).is_err(), "{name:?}");
        }
        for name in ["shop", "50%", "über", "a-b_c d"] {
            assert_eq!(folder_name(name).unwrap(), name);
        }
        for name in ["../up", "/abs", "..", ".", "a/../../b", "a\0b"] {
            let file = format!("{}.bson", file_name(name).unwrap());
            let parts: Vec<_> = Path::new(&file).components().collect();
            assert!(matches!(parts[..], [std::path::Component::Normal(_)]), "{file}");
        }
        assert!(file_name("").is_err());
    }

    #[test]
    fn long_names_fit_into_files() {
        for letter in ["x", "ü", "/"] {
            let (one, other) = (letter.repeat(120) + "1", letter.repeat(120) + "2");
            let long = [one, other].map(|name| file_name(&name.repeat(2)).unwrap());
            assert!(long.iter().all(|file| file.len() <= NAME_BYTES_MAX), "{long:?}");
            assert_ne!(long[0], long[1]);
        }
    }
}
