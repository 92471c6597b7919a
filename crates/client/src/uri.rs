//! Connection strings: `mongodb://host:port/database?options`.
//!
//! What cannot be kept is refused by name: several hosts, `mongodb+srv`, an encrypted key. Options that ask
//! for nothing that one plain connection could do otherwise (`retryWrites`, pool sizes) are let through,
//! because people paste the string that their application uses.

use std::fmt;
use std::str::FromStr;

use kilim_tls::ClientTlsOptions;

use crate::login::{Login, LoginBy};

const PORT: u16 = 27017;

/// Options that change nothing here.
const HARMLESS: [&str; 16] = [
    "appname",
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
    /// The user, if it names one.
    pub login: Option<Login>,
    /// How the connection is encrypted, if it is.
    pub tls: Option<ClientTlsOptions>,
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
        let (user, hosts) = match hosts.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, hosts),
        };
        if hosts.contains(',') {
            return refuse("several hosts are not supported: name one");
        }
        if hosts.to_ascii_lowercase().contains("%2f") {
            return refuse("Unix sockets are not supported: name a host and a port");
        }
        let Options { source, mechanism, tls } = Options::parse(options)?;
        let (host, port) = parse_host(hosts)?;
        let database = decode(database)?;
        if database.contains(['/', '\\', '.', ' ', '"', '$', '\0']) {
            return refuse(format!("'{database}' is no name of a database"));
        }
        let database = (!database.is_empty()).then_some(database);
        let by = mechanism.unwrap_or_default();
        let user = match user {
            None => None,
            Some(user) => {
                let (user, password) = user.split_once(':').unwrap_or((user, ""));
                let (user, password) = (decode(user)?, decode(password)?);
                if user.is_empty() {
                    return refuse("the user before the '@' has no name");
                }
                Some((user, password))
            }
        };
        let login = match (user, by) {
            (user, LoginBy::Certificate) => {
                if tls.as_ref().is_none_or(|tls| tls.certificate.is_none()) {
                    return refuse(
                        "MONGODB-X509 needs the client's certificate: tls=true&tlsCertificateKeyFile=FILE",
                    );
                }
                let (user, _) = user.unwrap_or_default();
                let source = "$external".to_owned();
                Some(Login { user, password: String::new(), source, by })
            }
            (None, _) => None,
            (Some((user, password)), by) => {
                // As drivers have it: the database that is connected to, else `admin`.
                let source = source.or_else(|| database.clone()).unwrap_or_else(|| "admin".to_owned());
                Some(Login { user, password, source, by })
            }
        };
        Ok(Uri { host, port, database, login, tls })
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

/// What the options say.
#[derive(Default)]
struct Options {
    source: Option<String>,
    mechanism: Option<LoginBy>,
    tls: Option<ClientTlsOptions>,
}

impl Options {
    fn parse(text: &str) -> Result<Options, UriError> {
        let mut options = Options::default();
        let (mut encrypted, mut tls) = (None, ClientTlsOptions::default());
        for option in text.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let lower = name.to_ascii_lowercase();
            match &*lower {
                "tls" | "ssl" => {
                    let asked = truth(name, value)?;
                    if encrypted.is_some_and(|before| before != asked) {
                        return refuse("tls and ssl are the same option, and say different things");
                    }
                    encrypted = Some(asked);
                }
                "tlscafile" => tls.authorities = Some(decode(value)?.into()),
                "tlscertificatekeyfile" => tls.certificate = Some(decode(value)?.into()),
                "tlsallowinvalidcertificates" => tls.any_certificate |= truth(name, value)?,
                "tlsallowinvalidhostnames" => tls.any_host |= truth(name, value)?,
                "tlsinsecure" => tls.any_certificate |= truth(name, value)?,
                "tlscertificatekeyfilepassword" => {
                    return refuse(
                        "an encrypted key is not supported: `openssl pkey -in FILE -out NEW` decrypts it",
                    );
                }
                "authsource" => options.source = Some(decode(value)?),
                "authmechanism" => match LoginBy::find(value) {
                    Some(known) => options.mechanism = Some(known),
                    None => {
                        return refuse(format!(
                            "the mechanism '{value}' is not supported: SCRAM-SHA-256, SCRAM-SHA-1 and MONGODB-X509 are"
                        ));
                    }
                },
                _ if HARMLESS.contains(&&*lower) => {}
                _ => return refuse(format!("the option '{name}' is not supported: leave it out")),
            }
        }
        // As drivers have it: whoever says how to encrypt wants to.
        let named = tls != ClientTlsOptions::default();
        match encrypted {
            Some(false) if named => return refuse("tls=false, and other options say how to encrypt"),
            Some(true) => options.tls = Some(tls),
            None if named => options.tls = Some(tls),
            _ => {}
        }
        Ok(options)
    }
}

fn truth(name: &str, value: &str) -> Result<bool, UriError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        other => refuse(format!("{name} is true or false, not '{other}'")),
    }
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
    fn a_user_is_of_the_database_that_is_named_for_it() {
        for (text, source) in [
            ("mongodb://ann:p%40ss@h", "admin"),
            ("mongodb://ann:p%40ss@h/shop", "shop"),
            ("mongodb://ann:p%40ss@h/shop?authSource=people", "people"),
        ] {
            let uri: Uri = text.parse().unwrap();
            assert!(!format!("{uri} {uri:?}").contains("p@ss"), "{text}");
            let login = uri.login.unwrap();
            assert_eq!((&*login.user, &*login.password, &*login.source), ("ann", "p@ss", source), "{text}");
        }
    }

    #[test]
    fn how_to_encrypt_is_said_by_options() {
        let tls = |text: &str| text.parse::<Uri>().unwrap().tls;
        let none = ClientTlsOptions::default;
        assert_eq!(tls("mongodb://h/?tls=false"), None);
        assert_eq!(tls("mongodb://h/?ssl=true"), Some(none()));
        let files = ClientTlsOptions {
            authorities: Some("/etc/ca.pem".into()),
            certificate: Some("a b.pem".into()),
            any_host: true,
            ..none()
        };
        let text = "mongodb://h/?tlsCAFile=%2Fetc%2Fca.pem&tlsCertificateKeyFile=a%20b.pem&tlsAllowInvalidHostnames=true";
        assert_eq!(tls(text), Some(files));
        let insecure = ClientTlsOptions { any_certificate: true, ..none() };
        assert_eq!(tls("mongodb://h/?tls=true&tlsInsecure=true"), Some(insecure));
        let text = "mongodb://h/shop?tlsCertificateKeyFile=ann.pem&authMechanism=MONGODB-X509";
        let login = text.parse::<Uri>().unwrap().login.unwrap();
        assert_eq!((&*login.user, &*login.source, login.by), ("", "$external", LoginBy::Certificate));
    }

    #[test]
    fn what_cannot_be_kept_is_refused_by_name() {
        for (text, part) in [
            ("mongodb+srv://cluster.example.org", "mongodb+srv"),
            ("http://localhost", "scheme"),
            ("mongodb://:secret@localhost", "no name"),
            ("mongodb://ann:secret@localhost/?authMechanism=GSSAPI", "mechanism"),
            ("mongodb://a,b", "several hosts"),
            ("mongodb://%2Ftmp%2Fmongodb.sock", "Unix"),
            ("mongodb://localhost/?tls=yes", "true or false"),
            ("mongodb://localhost/?tls=true&ssl=false", "different"),
            ("mongodb://localhost/?tls=false&tlsCAFile=ca.pem", "tls=false"),
            ("mongodb://localhost/?tlsCertificateKeyFilePassword=secret", "encrypted key"),
            ("mongodb://localhost/?tls=true&authMechanism=MONGODB-X509", "certificate"),
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
