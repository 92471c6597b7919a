//! `kilim tls init`: an authority and certificates of one's own, for a first try.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use kilim_tls::{Authority, SubjectPart};

use crate::data_directory;
use crate::output::say;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Tls {
    #[command(subcommand)]
    verb: Verb,
}

const EXAMPLES: &str = "\
Examples:
  kilim tls init certs --host db.example.com
      certs/ca.pem for clients, certs/server.pem for the server, and the authority's key, certs/ca.key.
  kilim tls init certs --host db.example.com --client ann
      And certs/ann.pem, by which the user \"CN=ann\" of $external logs in.
  kilim serve --auth --tls require --tls-cert certs/server.pem
  mongosh 'mongodb://db.example.com/?tls=true&tlsCAFile=certs/ca.pem'";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an authority and a certificate for a server.
    Init {
        /// Directory to write to; made if it does not exist.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// A name or address by which clients reach the server, beside localhost; may be given several times.
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
        /// A client to make a certificate for; may be given several times.
        #[arg(long = "client", value_name = "NAME")]
        clients: Vec<String>,
    },
}

/// On which days certificates are valid, from today. Yesterday too: clocks differ.
const AUTHORITY_DAYS: Range<i64> = -1..3650;
const DAYS: Range<i64> = -1..730;

impl Tls {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Verb::Init { directory, hosts, clients } = self.verb;
        let is_name = |name: &String| {
            !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_.@".contains(char))
        };
        for name in &clients {
            ensure!(is_name(name), "'{name}' is no name for a file: letters, digits and -_.@ are");
            ensure!(!["ca", "server"].contains(&&**name), "'{name}' is the name of another file");
        }
        data_directory::check_outside(&directory, "DIR")?;
        let mut all = hosts;
        all.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        let authority = Authority::new("Kilim", AUTHORITY_DAYS).context("cannot make an authority")?;
        let server = authority.server(all.clone(), DAYS);
        let server = server.with_context(|| format!("cannot make a certificate for {}", all.join(", ")))?;
        let mut files = vec![
            ("ca.pem".to_owned(), authority.certificate_pem.clone(), PUBLIC),
            ("ca.key".to_owned(), authority.key_pem.clone(), SECRET),
            ("server.pem".to_owned(), server.pem(), SECRET),
        ];
        for name in &clients {
            let issued = authority.client(&[(SubjectPart::CommonName, name)], DAYS);
            let issued = issued.with_context(|| format!("cannot make a certificate for {name}"))?;
            files.push((format!("{name}.pem"), issued.pem(), SECRET));
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        for (name, ..) in &files {
            let there = directory.join(name);
            ensure!(!there.exists(), "{} is there already: name another directory", there.display());
        }
        for (name, text, mode) in &files {
            write(&directory.join(name), text, *mode)?;
        }
        let at = |name: &str| directory.join(name).display().to_string();
        say!("{} certifies; {} belongs to nobody but you.", at("ca.pem"), at("ca.key"))?;
        say!("{} is the server's, as {}.", at("server.pem"), all.join(", "))?;
        for name in &clients {
            say!("{} is of the user \"CN={name}\" of $external.", at(&format!("{name}.pem")))?;
        }
        say!("\n  kilim serve --auth --tls require --tls-cert {}", at("server.pem"))?;
        Ok(ExitCode::SUCCESS)
    }
}

const PUBLIC: u32 = 0o644;
const SECRET: u32 = 0o600;

/// A new file; one that is there stays as it is.
fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
