//! The directory that `--data` names, before it is opened: Kilim's own, new, or somebody else's.
//!
//! A mistyped `--data` may name a home directory or the data of another program. A database that begins there mixes its
//! files with theirs, so only an empty directory becomes a new one. The other way round, what the program writes for people
//! must not lie inside a database's directory: the next start would find a file there that it does not know, and refuse.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// On disk: one of these, or all of a set, is what a database of Kilim has.
const OWN: [&[&str]; 3] = [&["kilim.db"], &["version", "keyspaces"], &["creating"]];
/// What an empty directory may hold all the same: the lock of a server that is just starting, and what file systems make.
const NOTHING: [&str; 2] = ["lock", "lost+found"];
/// So many names tell what a directory is.
const SHOWN: usize = 5;

/// Refuses a directory with files in it that are not Kilim's.
pub(crate) fn check(directory: &Path) -> Result<()> {
    let unreadable = || format!("cannot look into {}", directory.display());
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            bail!("--data names a directory, and {} is a file", directory.display())
        }
        entries => entries.with_context(unreadable)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.with_context(unreadable)?.file_name().to_string_lossy().into_owned());
    }
    // A journal without the rest is a database that lost something: the store says what.
    let journal = names.iter().any(|name| name.starts_with("journal."));
    if journal || OWN.iter().any(|own| own.iter().all(|name| names.iter().any(|found| found == name))) {
        return Ok(());
    }
    names.retain(|name| !name.starts_with('.') && !NOTHING.contains(&&**name));
    names.sort();
    if names.is_empty() {
        return Ok(());
    }
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    bail!(
        "{} is not a database of Kilim: it holds {}{more}. Name a directory that is empty or does not exist",
        directory.display(),
        names.join(", ")
    )
}

/// Refuses to write inside the directory of a database, however deep. `option` names what said so.
pub(crate) fn check_outside(out: &Path, option: &str) -> Result<()> {
    let out = std::path::absolute(out).with_context(|| format!("{option} names no place"))?;
    // Links lead elsewhere, so the part that is there already is looked at as it really lies.
    let real = out.ancestors().find_map(|folder| folder.canonicalize().ok());
    let folders = real.iter().flat_map(|folder| folder.ancestors());
    let Some(database) = folders.into_iter().find(|folder| folder.join(OWN[0][0]).is_file()) else {
        return Ok(());
    };
    match real.as_deref() == Some(database) && out.exists() {
        true => bail!("{option} names {}, which holds a database: name a place outside of it", out.display()),
        false => bail!(
            "{option} names {}, which lies in the database {}: name a place outside of it",
            out.display(),
            database.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(names: &[&str]) -> Result<()> {
        let directory = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(directory.path().join(name), "").unwrap();
        }
        check(directory.path())
    }

    #[test]
    fn what_is_kilims_or_nothing_passes() {
        for names in [
            &[][..],
            &[".hidden", "lost+found", "lock"],
            &["kilim.db", "notes.txt"],
            &["version", "keyspaces", "0.jnl", "lock"],
            &["creating", "version"],
            &["journal.0", "lock"],
        ] {
            assert!(checked(names).is_ok(), "{names:?}");
        }
        assert!(check(Path::new("/nowhere/at/all")).is_ok());
    }

    #[test]
    fn a_place_inside_a_database_is_refused_through_links_too() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("data");
        fs::create_dir(&database).unwrap();
        let (link, inside) = (directory.path().join("link"), database.join("deep/down"));
        assert!(check_outside(&inside, "--out").is_ok(), "no database yet");
        fs::write(database.join("kilim.db"), "").unwrap();
        std::os::unix::fs::symlink(&database, &link).unwrap();
        for out in [&database, &inside, &link.join("copy"), &database.join("../data/copy")] {
            let error = check_outside(out, "--out").unwrap_err().to_string();
            assert!(error.starts_with("--out names ") && error.contains("outside"), "{error}");
        }
        for out in
            [directory.path().join("other"), directory.path().join("data2/x"), "/nowhere/at/all".into()]
        {
            assert!(check_outside(&out, "--out").is_ok(), "{}", out.display());
        }
    }

    #[test]
    fn what_is_not_kilims_is_named() {
        let error = checked(&["g", "f", "e", "d", "c", "b", "a"]).unwrap_err().to_string();
        assert!(error.contains("it holds a, b, c, d, e and 2 more."), "{error}");
        assert!(checked(&["version", "README.md"]).is_err());
    }
}
