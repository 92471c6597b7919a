//! Which server and which database a command line means, and the connection to it.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command};
use kilim_bson::{Document, doc};
use kilim_client::{Client, Fault, Login, LoginBy, Uri};

use crate::confirm::ask_password;

const COMMAND_NOT_FOUND: i32 = 59;

#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// Server and database.
    #[arg(
        long,
        global = true,
        env = "KILIM_URI",
        hide_env_values = true,
        value_parser = UriParser,
        value_name = "URI",
        default_value = "mongodb://127.0.0.1:27017"
    )]
    pub(crate) uri: Uri,

    /// Database, if the URI names none or another.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) db: Option<String>,

    #[command(flatten)]
    encryption: Encryption,
}

/// The heading is named at each option: one for all that follow would go on behind them.
const ENCRYPTION: &str = "Encryption";

/// How a connection is encrypted, beside what its connection string says.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Encryption {
    /// Encrypt the connection; the other options here imply it.
    #[arg(long, help_heading = ENCRYPTION, global = true)]
    tls: bool,

    /// File of the authorities whose servers are trusted [default: those of the system]
    #[arg(long, help_heading = ENCRYPTION, global = true, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// File with a certificate of one's own, and its key.
    #[arg(long, help_heading = ENCRYPTION, global = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// Trust every server, whatever its certificate says: for tests.
    #[arg(long, help_heading = ENCRYPTION, global = true)]
    tls_allow_invalid_certificates: bool,

    /// Trust a server whose certificate is of another host.
    #[arg(long, help_heading = ENCRYPTION, global = true)]
    tls_allow_invalid_hostnames: bool,
}

impl Encryption {
    /// The connection string with these options on it.
    pub(crate) fn on(&self, uri: &Uri) -> Uri {
        let mut uri = uri.clone();
        let asked = self.tls
            || self.tls_ca.is_some()
            || self.tls_cert.is_some()
            || self.tls_allow_invalid_certificates
            || self.tls_allow_invalid_hostnames;
        if asked {
            let tls = uri.tls.get_or_insert_default();
            tls.authorities = self.tls_ca.clone().or(tls.authorities.take());
            tls.certificate = self.tls_cert.clone().or(tls.certificate.take());
            tls.any_certificate |= self.tls_allow_invalid_certificates;
            tls.any_host |= self.tls_allow_invalid_hostnames;
        }
        uri
    }
}

impl Place {
    /// A connection; `fallback` is a database that something else names, such as a file.
    pub(crate) fn open(&self, fallback: Option<&str>) -> Result<Session> {
        let database = self.db.as_deref().or(self.uri.database.as_deref()).or(fallback);
        let database = database.ok_or_else(|| {
            anyhow!("which database? Name it in the URI, as in --uri {}/shop, or with --db shop", self.uri)
        })?;
        Session::open(&self.encryption.on(&self.uri), database)
    }
}

/// Connection strings hold passwords, so a wrong one is not repeated, as clap would.
#[derive(Clone)]
pub(crate) struct UriParser;

impl TypedValueParser for UriParser {
    type Value = Uri;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<Uri, clap::Error> {
        let parsed = match value.to_str() {
            Some(text) => text.parse::<Uri>().map_err(|error| error.to_string()),
            None => Err("the connection string is not UTF-8".to_owned()),
        };
        parsed.map_err(|error| {
            let message = format!("--uri: {error}\n");
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

/// Connects, and logs in if the connection string names a user.
pub(crate) fn open(uri: &Uri) -> Result<Client> {
    Client::open(&with_password(uri)?).map_err(|fault| {
        let server = uri.server();
        let what = match fault {
            Fault::Lost(ref error) if is_cut(error) => format!("{server} {ENCRYPTED}"),
            Fault::Lost(_) => {
                format!("no server answers at {server}. `kilim serve` starts one; --uri names another")
            }
            Fault::Insecure(_) => format!("there is no safe connection to {server}"),
            Fault::Refused(_) => format!("{server} does not let this user in"),
        };
        anyhow!(fault).context(what)
    })
}

/// A connection string that names a user and no password has it asked for: an argument could be seen by others.
pub(crate) fn with_password(uri: &Uri) -> Result<Uri> {
    let mut uri = uri.clone();
    let asked = |login: &&mut Login| login.by != LoginBy::Certificate && login.password.is_empty();
    if let Some(login) = uri.login.as_mut().filter(asked) {
        login.password = ask_password(&format!("Password of {}: ", login.user))?;
    }
    Ok(uri)
}

/// A connection, and the database that it works in.
pub(crate) struct Session {
    client: Client,
    uri: Uri,
    database: String,
}

impl Session {
    pub(crate) fn open(uri: &Uri, database: &str) -> Result<Session> {
        // Asked for once, not for every connection.
        let uri = with_password(uri)?;
        let mut client = open(&uri)?;
        // verifyPattern of a large collection takes as long as it takes.
        client.wait_at_most(None)?;
        Ok(Session { client, uri, database: database.to_owned() })
    }

    /// A second connection, to look on while the first one waits.
    pub(crate) fn another(&self) -> Result<Session> {
        Session::open(&self.uri, &self.database)
    }

    /// With the password, where one was asked for.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    pub(crate) fn run(&mut self, command: Document) -> Result<Document, Fault> {
        self.client.run(&self.database, command)
    }

    pub(crate) fn all(&mut self, command: Document) -> Result<Vec<Document>, Fault> {
        self.client.all(&self.database, command)
    }

    /// The patterns of the database, or of one of its collections.
    pub(crate) fn patterns(&mut self, collection: Option<&str>) -> Result<Vec<Document>> {
        let command = match collection {
            Some(collection) => doc! {"listPatterns": collection},
            None => doc! {"listPatterns": 1},
        };
        self.all(command).map_err(explained)
    }

    /// The names of the database's collections; none if there is no such database.
    pub(crate) fn collections(&mut self) -> Result<Vec<String>> {
        let listed = self.all(doc! {"listCollections": 1, "nameOnly": true}).map_err(explained)?;
        Ok(listed.iter().map(|entry| text(entry, "name").to_owned()).collect())
    }

    /// One pattern.
    pub(crate) fn pattern(&mut self, collection: &str, name: &str) -> Result<Document> {
        let patterns = self.patterns(Some(collection))?;
        let names: Vec<&str> = patterns.iter().map(|pattern| text(pattern, "name")).collect();
        let known = match names.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", names.join(", ")),
        };
        let at = names.iter().position(|known| *known == name);
        let at = at.ok_or_else(|| anyhow!("{}.{collection} has no pattern '{name}': {known}", self.database));
        at.map(|at| patterns[at].clone())
    }
}

/// A field that the server always sends.
pub(crate) fn text<'d>(document: &'d Document, name: &str) -> &'d str {
    document.get(name).and_then(|value| value.as_str()).unwrap_or_default()
}

/// What a server that wants connections encrypted does to others.
const ENCRYPTED: &str = "ends the connection: it may want it encrypted (--tls, or tls=true in the URI)";

fn is_cut(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// What the server said, with a hint where it cannot know what the user needs.
pub(crate) fn explained(fault: Fault) -> anyhow::Error {
    if let Fault::Lost(error) = &fault
        && is_cut(error)
    {
        return anyhow!(fault).context(format!("the server {ENCRYPTED}"));
    }
    match fault.code() {
        Some(COMMAND_NOT_FOUND) => {
            anyhow!("{fault}. Declared patterns are Kilim's own: is this server Kilim, and recent enough?")
        }
        _ => anyhow!(fault),
    }
}
