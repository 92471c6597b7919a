//! The client's side: whom it trusts, and the certificate that it shows.

use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error,
    RootCertStore, SignatureScheme,
};

use crate::files::{FileError, PemFile, said};
use crate::session::Session;

/// What a connection string says of TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTlsOptions {
    /// The authorities of servers; without a file those of the system.
    pub authorities: Option<PathBuf>,
    /// The client's own certificate with its key.
    pub certificate: Option<PathBuf>,
    /// Accept every certificate, also one that has expired or that nobody signed.
    pub any_certificate: bool,
    /// Accept a certificate of another host.
    pub any_host: bool,
}

#[derive(Debug, Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
}

impl ClientTls {
    pub fn read(options: &ClientTlsOptions) -> Result<ClientTls, FileError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = |error: Error| FileError { file: PathBuf::from("TLS"), why: said(&error) };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(versions)?;
        let (roots, place) = match &options.authorities {
            Some(path) => (PemFile::read(path)?.authorities()?, path.clone()),
            None => (of_the_system(), PathBuf::from("the system's certificates")),
        };
        let strict = match options.any_certificate {
            true => None,
            false => {
                let built =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
                Some(built.map_err(|error| FileError { file: place, why: error.to_string() })?)
            }
        };
        let verifier = Arc::new(Verifier { strict, any_host: options.any_host, provider });
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let config = match &options.certificate {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let file = PemFile::read(path)?;
                let shown = builder.with_client_auth_cert(file.certificates()?, file.key()?);
                shown.map_err(|error| file.fault(said(&error)))?
            }
        };
        Ok(ClientTls { config: Arc::new(config) })
    }

    /// Does the handshake with the server of this name.
    pub fn connect(&self, socket: &TcpStream, host: &str, deadline: Instant) -> io::Result<Session> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("'{host}' is no host's name"))
        })?;
        let connection = ClientConnection::new(self.config.clone(), name);
        let connection = connection.map_err(|error| io::Error::other(said(&error)))?;
        Session::begin(Connection::Client(connection), socket, deadline)
    }
}

/// Those that the system trusts, as far as they can be read.
fn of_the_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Checks a server's certificate as strictly as was asked for. The handshake's signatures are checked always.
#[derive(Debug)]
struct Verifier {
    /// Without one every certificate passes.
    strict: Option<Arc<WebPkiServerVerifier>>,
    any_host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(strict) = &self.strict else { return Ok(ServerCertVerified::assertion()) };
        match strict.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.any_host => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
