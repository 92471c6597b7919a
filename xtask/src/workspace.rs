//! Where things are, and building them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The top of the repository that one stands in, else of the one that this was built from: several clones can
/// share a built `xtask`.
pub fn root() -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let standing = here.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file());
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    standing.unwrap_or_else(built).to_owned()
}

/// Fetched programs and packages; ignored by git, kept between runs.
pub fn tools() -> PathBuf {
    root().join(".tools")
}

pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Builds the `kilim` binary and says where it is. `KILIM_BINARY` names one that is built already.
pub fn build_kilim() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("KILIM_BINARY") {
        return Ok(PathBuf::from(named));
    }
    let status = cargo().args(["build", "--quiet", "--package", "kilim-cli"]).status()?;
    ensure!(status.success(), "kilim does not build");
    Ok(target_directory()?.join("debug").join("kilim"))
}

/// The same with optimisations.
pub fn build_release() -> Result<PathBuf> {
    let status = cargo().args(["build", "--quiet", "--release", "--package", "kilim-cli"]).status()?;
    ensure!(status.success(), "kilim does not build");
    Ok(target_directory()?.join("release").join("kilim"))
}

pub fn target_directory() -> Result<PathBuf> {
    let directory = metadata()?["target_directory"].as_str().map(PathBuf::from);
    directory.context("cargo metadata names no target directory")
}

pub fn metadata() -> Result<serde_json::Value> {
    let output = cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs a command and gives its standard output; if it fails, all it said is in the error.
pub fn captured(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    ensure!(
        output.status.success(),
        "{program} failed with {}:\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

/// Files below a folder with that extension, in the order of their names.
pub fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
        {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
