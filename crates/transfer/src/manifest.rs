//! What a dump holds, written when all of it is there: `kilim-dump.json`.
//!
//! A dump with a manifest is complete, and what its files hold can be checked. mongodump writes none, and its tools leave
//! ours alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use kilim_bson::{
    Array, Document, JsonFormat, RawDocument, RawValue, Value, doc, parse_extended_json, to_extended_json,
};
use kilim_client::whole;

use crate::Watch;
use crate::archive::{self, Sum, UNFINISHED};

pub(crate) const MANIFEST: &str = "kilim-dump.json";
/// Of the manifest's own form.
const VERSION: i32 = 1;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub of_one_moment: bool,
    pub collections: Vec<Listed>,
}

/// A collection of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub database: String,
    pub collection: String,
    pub documents: u64,
    /// Their names from the dump's folder, with a slash between.
    pub files: Vec<(String, Sum)>,
}

impl Manifest {
    pub fn write(&self, folder: &Path, made: Value) -> io::Result<()> {
        let mut file = fs::File::create_new(folder.join(MANIFEST))?;
        // A collection a line: people look into it, too.
        let head = doc! {"kilimDump": VERSION, "made": made, "ofOneMoment": self.of_one_moment};
        let head = to_extended_json(head.as_raw(), JsonFormat::Relaxed);
        write!(file, "{},\"collections\":[", head.trim_end_matches('}'))?;
        for (at, listed) in self.collections.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let line = to_extended_json(listed.to_document().as_raw(), JsonFormat::Relaxed);
            write!(file, "{comma}\n{line}")?;
        }
        writeln!(file, "\n]}}")?;
        file.sync_all()
    }

    /// The manifest of a dump. None for a dump that never had one; a dump that never was finished is an error.
    pub fn read(folder: &Path) -> Result<Option<Manifest>> {
        let path = folder.join(MANIFEST);
        let text = match archive::open_file(&path).and_then(io::read_to_string) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if folder.join(UNFINISHED).exists() {
                    bail!(
                        "the dump in {} was not finished: it has no {MANIFEST}, and {UNFINISHED} is there",
                        folder.display()
                    );
                }
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let parse = || -> Result<Manifest> {
            let document = parse_extended_json(&text)?;
            let version = whole(document.get("kilimDump")).context("it names no version")?;
            if version != i64::from(VERSION) {
                bail!("it is of version {version}, and this program knows version {VERSION}");
            }
            let list =
                document.get("collections").and_then(RawValue::as_array).context("it lists nothing")?;
            let collections = list.iter().map(|listed| {
                let listed = listed.as_document().and_then(Listed::of_document);
                listed.context("it lists something that is no collection")
            });
            Ok(Manifest {
                of_one_moment: matches!(document.get("ofOneMoment"), Some(RawValue::Bool(true))),
                collections: collections.collect::<Result<_>>()?,
            })
        };
        parse().map(Some).with_context(|| format!("{} is damaged", path.display()))
    }

    /// Checks the files of the collections that are wanted. Of the files that were found, those stay that are listed:
    /// others are no part of the dump.
    pub fn check(
        &self,
        folder: &Path,
        files: &mut Vec<PathBuf>,
        wanted: impl Fn(&Listed) -> bool,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        // By the names that were found: a manifest could name a file outside of its folder.
        let found: BTreeMap<String, &PathBuf> =
            files.iter().map(|path| (archive::name_in(folder, path), path)).collect();
        for listed in self.collections.iter().filter(|listed| wanted(listed)) {
            let shown = format!("checking {}.{}", listed.database, listed.collection);
            for (name, sum) in &listed.files {
                watch.moved(&shown, 0, sum.bytes);
                let actual = found.get(name).map(|path| Sum::of_file(path)).transpose()?;
                let fault = match actual {
                    Some(actual) if actual == *sum => continue,
                    Some(actual) if actual.bytes == sum.bytes => {
                        "is damaged: its checksum is another".to_owned()
                    }
                    Some(actual) => format!("has {} bytes instead of {}", actual.bytes, sum.bytes),
                    None => "is missing".to_owned(),
                };
                bail!("the dump in {} is not as it was written: {name} {fault}", folder.display());
            }
        }
        let listed = self.files();
        for name in found.keys().filter(|name| !listed.contains(&***name)) {
            watch.warn(&format!("{name} is not in {MANIFEST}, so it is no part of the dump: left alone"));
        }
        files.retain(|path| listed.contains(&*archive::name_in(folder, path)));
        Ok(())
    }

    /// The names of all files.
    pub fn files(&self) -> BTreeSet<&str> {
        self.collections.iter().flat_map(|listed| &listed.files).map(|(name, _)| name.as_str()).collect()
    }
}

impl Listed {
    fn to_document(&self) -> Document {
        let files: Array = self
            .files
            .iter()
            .map(|(name, sum)| {
                let crc32c = format!("{:08x}", sum.crc32c);
                Value::from(doc! {"name": &**name, "bytes": sum.bytes as i64, "crc32c": crc32c})
            })
            .collect();
        doc! {
            "database": &*self.database,
            "collection": &*self.collection,
            "documents": self.documents as i64,
            "files": files,
        }
    }

    fn of_document(document: RawDocument<'_>) -> Option<Listed> {
        let text = |name: &str| Some(document.get(name)?.as_str()?.to_owned());
        let files = document.get("files")?.as_array()?.iter().map(|file| {
            let file = file.as_document()?;
            let sum = Sum {
                bytes: whole(file.get("bytes"))?.try_into().ok()?,
                crc32c: u32::from_str_radix(file.get("crc32c")?.as_str()?, 16).ok()?,
            };
            Some((file.get("name")?.as_str()?.to_owned(), sum))
        });
        Some(Listed {
            database: text("database")?,
            collection: text("collection")?,
            documents: whole(document.get("documents"))?.try_into().ok()?,
            files: files.collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Manifest::read(folder.path()).unwrap(), None);
        let files = vec![("shop/a%2Fb.bson".to_owned(), Sum { bytes: 5_000_000_000, crc32c: 7 })];
        let listed =
            Listed { database: "shop".to_owned(), collection: "a/b".to_owned(), documents: 3, files };
        let mut manifest = Manifest { of_one_moment: true, collections: Vec::new() };
        for _ in 0..3 {
            manifest.write(folder.path(), Value::DateTime(0)).unwrap();
            assert_eq!(Manifest::read(folder.path()).unwrap().as_ref(), Some(&manifest));
            fs::remove_file(folder.path().join(MANIFEST)).unwrap();
            manifest.collections.push(listed.clone());
        }
    }

    #[test]
    fn a_damaged_manifest_is_no_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["", "{", "{}", r#"{"kilimDump": 2, "collections": []}"#, r#"{"kilimDump": 1}"#] {
            fs::write(folder.path().join(MANIFEST), text).unwrap();
            assert!(Manifest::read(folder.path()).is_err(), "{text}");
        }
        fs::remove_file(folder.path().join(MANIFEST)).unwrap();
        fs::create_dir(folder.path().join(UNFINISHED)).unwrap();
        assert!(Manifest::read(folder.path()).is_err());
    }
}
