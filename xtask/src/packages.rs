//! Real clients, fetched once into `.tools` at pinned versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::{captured, tools};

const PYTHON: &[&str] = &["pymongo[snappy,zstd]==4.19.0"];
const NODE: &[&str] = &["mongodb@7.8.0", "mongoose@9.12.0", "mongosh@2.12.0"];

/// A Python with pymongo.
pub fn python() -> Result<PathBuf> {
    let home = tools().join("python");
    let python = home.join("bin").join("python");
    installed(&home, PYTHON, || {
        captured(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PYTHON);
        captured(&mut pip).map(drop)
    })?;
    Ok(python)
}

/// A folder whose `node_modules` holds the Node driver, mongoose and mongosh.
pub fn node() -> Result<PathBuf> {
    let home = tools().join("node");
    installed(&home, NODE, || {
        fs::create_dir_all(&home)?;
        fs::write(home.join("package.json"), "{\"private\": true}\n")?;
        // Their install scripts only build optional native parts.
        let mut npm = Command::new("npm");
        npm.current_dir(&home).args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
        captured(npm.arg("--save-exact").args(NODE)).map(drop)
    })?;
    Ok(home)
}

/// Runs `install` unless this very list was installed before.
fn installed(home: &Path, list: &[&str], install: impl FnOnce() -> Result<()>) -> Result<()> {
    let stamp = home.join("installed");
    let wanted = list.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    fs::create_dir_all(tools())?;
    install().with_context(|| format!("cannot install {}", list.join(", ")))?;
    fs::write(stamp, wanted)?;
    Ok(())
}
