//! Connection strings: `mongodb://host:port/database?options`.
//!
//! What cannot be kept is refused by name: credentials, TLS, several hosts, `mongodb+srv`. Options that ask
//! for nothing that one plain connection could do otherwise (`retryWrites`, pool sizes) are let through,
//! because people paste the string that their application uses.

use std::fmt;
use std::str::FromStr;

const PORT: u16 = 27017;

/// Options that change nothing here.
const HARMLESS: [&str; 17] = [
    "appname",
    "authsource",
    "connecttimeoutms",
    "directconnection",
    "heartbeatfrequencyms",
    "journal",
    "loadbalanced",
    "localthresholdms",
    "maxidletimems",
    "maxpoolsize",
    "minpoolsize",
    "readpreference",
    "replicaset",
    "retryreads",
    "retrywrites",
    "serverselectiontimeoutms",
    "sockettimeoutms",
];

/// A parsed connection string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    pub host: String,
    pub port: u16,
    pub database: Option<String>,
}

impl Uri {
    /// The same server, and no database.
    pub fn server(&self) -> Uri {
        Uri { database: None, ..self.clone() }
    }

    /// For [`crate::Client::connect`].
    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "mongodb://[{}]:{}", self.host, self.port)?,
            false => write!(f, "mongodb://{}:{}", self.host, self.port)?,
        }
        match &self.database {
            Some(database) => write!(f, "/{database}"),
            None => Ok(()),
        }
    }
}

/// What is wrong with a connection string, and what to write instead. It never repeats a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriError(String);

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UriError {}

fn refuse<T>(message: impl Into<String>) -> Result<T, UriError> {
    Err(UriError(message.into()))
}

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Uri, UriError> {
        let rest = match text.split_once("://") {
            Some(("mongodb", rest)) => rest,
            Some(("mongodb+srv", _)) => {
                return refuse("mongodb+srv:// needs DNS lookups: write mongodb://host:port instead");
            }
            Some((scheme, _)) => {
                return refuse(format!("the scheme is '{scheme}': write mongodb://host:port/database"));
            }
            // As mongosh takes it: localhost:27017/shop.
            None => text,
        };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        if hosts.contains('@') {
            return refuse("credentials are not supported yet: leave out the part before the '@'");
        }
        if hosts.contains(',') {
            return refuse("several hosts are not supported: name one");
        }
        if hosts.to_ascii_lowercase().contains("%2f") {
            return refuse("Unix sockets are not supported: name a host and a port");
        }
        check_options(options)?;
        let (host, port) = parse_host(hosts)?;
        let database = decode(database)?;
        if database.contains(['/', '\\', '.', ' ', '"', '$', '\0']) {
            return refuse(format!("'{database}' is no name of a database"));
        }
        Ok(Uri { host, port, database: (!database.is_empty()).then_some(database) })
    }
}

fn parse_host(text: &str) -> Result<(String, u16), UriError> {
    let (host, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((host, port))) => (host, port.strip_prefix(':')),
        Some(None) => return refuse("the address in brackets does not end: write [::1]:27017"),
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return refuse("an IPv6 address stands in brackets: write [::1]:27017");
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return refuse("the host is missing: write mongodb://host:port/database");
    }
    let port = match port {
        None => PORT,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return refuse(format!("'{port}' is no port: it is a number from 1 to 65535")),
        },
    };
    Ok((decode(host)?, port))
}

fn check_options(options: &str) -> Result<(), UriError> {
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let lower = name.to_ascii_lowercase();
        match &*lower {
            "tls" | "ssl" if value == "true" => {
                return refuse("TLS is not supported yet: leave out tls=true");
            }
            "tls" | "ssl" => {}
            _ if HARMLESS.contains(&&*lower) => {}
            _ => return refuse(format!("the option '{name}' is not supported: leave it out")),
        }
    }
    Ok(())
}

/// Undoes `%41`.
fn decode(text: &str) -> Result<String, UriError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| rest.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        match digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(decoded) => bytes.push(decoded),
            None => return refuse("a '%' stands before two hexadecimal digits: write %25 for itself"),
        }
        rest = &rest[2..];
    }
    String::from_utf8(bytes).or_else(|_| refuse("the connection string is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_name_host_port_and_database() {
        for (text, shown) in [
            ("mongodb://localhost", "mongodb://localhost:27017"),
            ("mongodb://localhost/", "mongodb://localhost:27017"),
            ("mongodb://127.0.0.1:28000/shop", "mongodb://127.0.0.1:28000/shop"),
            ("mongodb://[::1]:28000/shop", "mongodb://[::1]:28000/shop"),
            ("mongodb://[::1]", "mongodb://[::1]:27017"),
            ("localhost:27018/shop", "mongodb://localhost:27018/shop"),
            ("mongodb://h/my%2Dshop?retryWrites=true&appName=x&tls=false", "mongodb://h:27017/my-shop"),
        ] {
            assert_eq!(text.parse::<Uri>().map(|uri| uri.to_string()), Ok(shown.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused_by_name() {
        for (text, part) in [
            ("mongodb+srv://cluster.example.org", "mongodb+srv"),
            ("http://localhost", "scheme"),
            ("mongodb://ann:secret@localhost", "credentials"),
            ("mongodb://a,b", "several hosts"),
            ("mongodb://%2Ftmp%2Fmongodb.sock", "Unix"),
            ("mongodb://localhost/?tls=true", "TLS"),
            ("mongodb://localhost/?compressors=zstd", "compressors"),
            ("mongodb://localhost:0", "port"),
            ("mongodb://localhost:x", "port"),
            ("mongodb://::1", "brackets"),
            ("mongodb://[::1", "brackets"),
            ("mongodb://", "host is missing"),
            ("mongodb://h/a.b", "database"),
            ("mongodb://h/%4", "hexadecimal"),
            ("mongodb://h/%+1", "hexadecimal"),
        ] {
            let error = text.parse::<Uri>().expect_err(text).to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{text}: {error}");
        }
    }
}
