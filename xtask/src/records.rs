//! Only one module names the keyspace of records, so that every reader sees documents through their shape and through
//! what is pending (`crates/engine/src/records`).

use std::path::Path;

use anyhow::{Result, ensure};

use crate::workspace;

/// What only that module, the store and the reader of earlier formats may say.
const NAMES: &[&str] = &["Space::Records", "record_key("];

/// Integration tests damage records on purpose, so only sources are looked at.
const ALLOWED: &[&str] = &["crates/engine/src/records/", "crates/storage/src/", "crates/migrate/src/"];

pub fn check() -> Result<()> {
    let root = workspace::root();
    let mut faults = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        let sources = entry?.path().join("src");
        for file in workspace::files(&sources, "rs")? {
            let path = file.strip_prefix(&root).unwrap_or(&file);
            faults.extend(faults_in(path, &std::fs::read_to_string(&file)?));
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn faults_in(path: &Path, text: &str) -> Vec<String> {
    if ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
        return Vec::new();
    }
    let found = |line: &str| NAMES.iter().find(|name| line.contains(**name));
    let faults = text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, found(line)?)));
    faults
        .map(|(at, name)| {
            format!(
                "{}:{at} names {name}: only crates/engine/src/records reads and writes records",
                path.display()
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_written_in_one_module() {
        check().unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn a_use_elsewhere_is_found() {
        let text = "let key = layout::record_key(collection, record);\nsnapshot.get(Space::Records, &key)\n";
        assert_eq!(faults_in(Path::new("crates/engine/src/tail.rs"), text).len(), 2);
        assert!(faults_in(Path::new("crates/engine/src/records/read.rs"), text).is_empty());
    }
}
