//! Builds the preload shim and knows its environment variables.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const SOURCE: &str = include_str!("../../shim/shim.c");

/// The shim, compiled, with its log and its control file.
#[derive(Debug, Clone)]
pub struct Shim {
    library: PathBuf,
    pub log: PathBuf,
    pub control: PathBuf,
}

impl Shim {
    /// Compiles the shim into `directory` with the C compiler, which Rust needs for linking anyway.
    pub fn build(directory: &Path) -> Result<Shim> {
        fs::create_dir_all(directory)?;
        let (source, library) = (directory.join("shim.c"), directory.join("shim.so"));
        fs::write(&source, SOURCE)?;
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let output = Command::new(&compiler)
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .args([&library, &source])
            .args(["-ldl", "-lpthread"])
            .output()
            .with_context(|| format!("cannot run the C compiler {compiler}"))?;
        ensure!(
            output.status.success(),
            "the shim does not compile: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Shim { library, log: directory.join("shim.log"), control: directory.join("shim.control") })
    }

    /// Watches `data`, recording into the log.
    pub fn environment(&self, data: &Path) -> Vec<(String, String)> {
        let mut environment = self.environment_for_faults(data);
        environment.push(("KILIM_SHIM_LOG".into(), self.log.display().to_string()));
        environment
    }

    /// Watches `data` for faults only.
    pub fn environment_for_faults(&self, data: &Path) -> Vec<(String, String)> {
        vec![
            ("LD_PRELOAD".into(), self.library.display().to_string()),
            ("KILIM_SHIM_DIR".into(), data.display().to_string()),
            ("KILIM_SHIM_CONTROL".into(), self.control.display().to_string()),
        ]
    }

    /// Sets the faults of the running server, in the form of `KILIM_SHIM_FAIL`; an empty text ends them.
    pub fn set_faults(&self, faults: &str) -> Result<()> {
        // Renamed into place: the server reads the file at any moment.
        let new = self.control.with_extension("new");
        fs::write(&new, faults)?;
        Ok(fs::rename(new, &self.control)?)
    }

    /// How far the log reaches: everything recorded so far lies below.
    pub fn log_bytes(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |metadata| metadata.len())
    }
}
