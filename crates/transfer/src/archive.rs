//! A dump's files: `<db>/<collection>.bson` and `<db>/<collection>.metadata.json`, each perhaps with `.gz`.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

const BUFFER_BYTES: usize = 1 << 20;
const GZIP: &str = ".gz";

/// One collection of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub database: String,
    pub collection: String,
    /// A view has none.
    pub data: Option<PathBuf>,
    pub metadata: Option<PathBuf>,
}

/// A file being written, compressed or not.
pub(crate) enum Out {
    Plain(BufWriter<File>),
    Gzip(Box<GzEncoder<BufWriter<File>>>),
}

impl Out {
    pub fn create(folder: &Path, name: &str, gzip: bool) -> Result<Out> {
        let path = folder.join(if gzip { format!("{name}{GZIP}") } else { name.to_owned() });
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(match gzip {
            true => Out::Gzip(Box::new(GzEncoder::new(file, Compression::fast()))),
            false => Out::Plain(file),
        })
    }

    /// Everything on its way to the disk; only then is a dump done.
    pub fn finish(self) -> io::Result<()> {
        let file = match self {
            Out::Plain(file) => file,
            Out::Gzip(encoder) => encoder.finish()?,
        };
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
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

/// Opens a file, whether it is compressed or not.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = BufReader::with_capacity(BUFFER_BYTES, file);
    match path.to_string_lossy().ends_with(GZIP) {
        true => Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(file)))),
        false => Ok(Box::new(file)),
    }
}

/// What a dump's folder holds, in the order of names.
pub(crate) fn entries(dump: &Path) -> Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for database in list(dump)? {
        if !database.is_dir() {
            continue;
        }
        let name = file_name(&database);
        for path in list(&database)? {
            let file = file_name(&path);
            let file = file.strip_suffix(GZIP).unwrap_or(&file);
            let (collection, is_data) =
                match (file.strip_suffix(".metadata.json"), file.strip_suffix(".bson")) {
                    (Some(collection), _) => (collection, false),
                    (None, Some(collection)) => (collection, true),
                    (None, None) => continue,
                };
            let collection = unescaped(collection);
            let of = |entry: &Entry| entry.database == name && entry.collection == collection;
            let at = entries.iter().position(of).unwrap_or_else(|| {
                entries.push(Entry { database: name.clone(), collection, data: None, metadata: None });
                entries.len() - 1
            });
            let place = if is_data { &mut entries[at].data } else { &mut entries[at].metadata };
            *place = Some(path);
        }
    }
    Ok(entries)
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

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A file's name may have 255 bytes, of which `.metadata.json.gz` needs 17.
const NAME_BYTES_MAX: usize = 238;
/// What is kept of a name that is too long, as mongodump has it.
const NAME_BYTES_KEPT: usize = 208;

/// A collection's name as a file's: what a file system may not take is written as in a URL, as mongodump does. Of a name
/// that is too long the beginning stays, with a hash; the metadata know the whole.
pub(crate) fn escaped(collection: &str) -> String {
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
    name
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_file_system() {
        for name in ["orders", "a/b", "50%", "über/maß", "x:y*?", "kilim.patterns", "%2F"] {
            let file = escaped(name);
            assert!(!file.contains('/'), "{file}");
            assert_eq!(unescaped(&file), name);
        }
    }

    #[test]
    fn long_names_fit_into_files() {
        for letter in ["x", "ü", "/"] {
            let (one, other) = (letter.repeat(120) + "1", letter.repeat(120) + "2");
            let long = [escaped(&one.repeat(2)), escaped(&other.repeat(2))];
            assert!(long.iter().all(|file| file.len() <= NAME_BYTES_MAX), "{long:?}");
            assert_ne!(long[0], long[1]);
        }
    }
}
