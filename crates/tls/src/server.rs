//! The server's side: its certificate, whose clients it accepts, and reading them anew.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::RwLock;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{Connection, ServerConfig, ServerConnection};

use crate::certificate::Certificate;
use crate::files::{FileError, PemFile, said};
use crate::session::Session;

/// Which files a server has, and what it asks of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsOptions {
    /// The certificate and those between it and its authority; the key too, unless that is a file of its own.
    pub certificate: PathBuf,
    pub key: Option<PathBuf>,
    /// The authorities of clients' certificates. Without one no client is asked for a certificate.
    pub authorities: Option<PathBuf>,
    /// Which of them are revoked.
    pub revoked: Option<PathBuf>,
    pub clients: Clients,
    /// Whether clients that do not encrypt are served too.
    pub plain_allowed: bool,
}

/// What clients need where there are authorities for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// A certificate.
    Required,
    /// None; but one that is shown must be good.
    Allowed,
}

/// A server's certificate and rules, as its files say.
#[derive(Debug)]
pub struct ServerTls {
    plain_allowed: bool,
    current: RwLock<Current>,
}

#[derive(Debug, Clone)]
struct Current {
    config: Arc<ServerConfig>,
    certificate: Certificate,
}

impl ServerTls {
    /// A certificate that is not valid now is refused: no client would accept it.
    pub fn read(options: &ServerTlsOptions, now: SystemTime) -> Result<ServerTls, FileError> {
        let current = RwLock::new(Current::read(options, now)?);
        Ok(ServerTls { plain_allowed: options.plain_allowed, current })
    }

    /// Reads the files anew, or others, for connections to come. Where one of them is wrong, all stays as it was. Whether
    /// clients must encrypt stays, too.
    pub fn reload(&self, options: &ServerTlsOptions, now: SystemTime) -> Result<(), FileError> {
        let current = Current::read(options, now)?;
        *self.current.write() = current;
        Ok(())
    }

    /// Whether clients that do not encrypt are served too.
    pub fn plain_allowed(&self) -> bool {
        self.plain_allowed
    }

    /// The server's own certificate.
    pub fn certificate(&self) -> Certificate {
        self.current.read().certificate.clone()
    }

    /// Does the handshake with a client.
    pub fn accept(&self, socket: &TcpStream, deadline: Instant) -> io::Result<Session> {
        let config = self.current.read().config.clone();
        let connection = ServerConnection::new(config).map_err(|error| io::Error::other(said(&error)))?;
        Session::begin(Connection::Server(connection), socket, deadline)
    }
}

impl Current {
    fn read(options: &ServerTlsOptions, now: SystemTime) -> Result<Current, FileError> {
        let file = PemFile::read(&options.certificate)?;
        let chain = file.certificates()?;
        let certificate =
            Certificate::parse(&chain[0]).map_err(|_| file.fault("its first certificate cannot be read"))?;
        check_time(&certificate, now).map_err(|why| file.fault(why))?;
        let key_file = options.key.as_deref().map(PemFile::read).transpose()?;
        let key_file = match &key_file {
            Some(other) => other,
            None if file.has_key() => &file,
            None => {
                return Err(
                    file.fault("there is no private key in it: put it into the same file, or name its file")
                );
            }
        };
        let key = key_file.key()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| file.fault(said(&error)))?;
        let builder = match &options.authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let authorities = PemFile::read(path)?;
                let roots = Arc::new(authorities.authorities()?);
                let mut verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                if options.clients == Clients::Allowed {
                    verifier = verifier.allow_unauthenticated();
                }
                let mut last = authorities;
                if let Some(path) = &options.revoked {
                    last = PemFile::read(path)?;
                    // As mongod: the client's own certificate is looked up, and an old list is no list.
                    verifier = verifier
                        .with_crls(last.revoked()?)
                        .only_check_end_entity_revocation()
                        .enforce_revocation_expiration();
                }
                let verifier = verifier.build().map_err(|error| last.fault(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| key_file.fault(said(&error)))?;
        Ok(Current { config: Arc::new(config), certificate })
    }
}

fn check_time(certificate: &Certificate, now: SystemTime) -> Result<(), &'static str> {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    match () {
        () if now > certificate.not_after => Err("the certificate has expired"),
        () if now < certificate.not_before => Err("the certificate is not valid yet"),
        () => Ok(()),
    }
}

/// Whether a conversation that begins with these bytes begins with a handshake. Six tell: a message of MongoDB that looks
/// the same would be one of at least 66 KB, and the first one is a hello.
pub fn begins_handshake(first: &[u8; 6]) -> bool {
    matches!(first, [0x16, 0x03, 0x00..=0x04, _, _, 0x01])
}
