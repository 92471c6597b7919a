//! PEM files: certificates, keys, lists of revoked certificates.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

/// A file that does not hold what it is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileError {
    pub file: PathBuf,
    pub why: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.why)
    }
}

impl std::error::Error for FileError {}

/// A file's text, and its name for faults.
pub(crate) struct PemFile<'p> {
    path: &'p Path,
    text: Vec<u8>,
}

impl<'p> PemFile<'p> {
    pub(crate) fn read(path: &'p Path) -> Result<PemFile<'p>, FileError> {
        match fs::read(path) {
            Ok(text) => Ok(PemFile { path, text }),
            Err(error) => Err(FileError { file: path.to_owned(), why: error.to_string() }),
        }
    }

    pub(crate) fn fault(&self, why: impl Into<String>) -> FileError {
        FileError { file: self.path.to_owned(), why: why.into() }
    }

    /// The certificates, at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, FileError> {
        let all = CertificateDer::pem_slice_iter(&self.text).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|error| self.fault(told(&error)))?;
        match all.is_empty() {
            false => Ok(all),
            true => Err(self.fault("there is no certificate in it (-----BEGIN CERTIFICATE-----)")),
        }
    }

    /// The first private key.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, FileError> {
        if contains(&self.text, b"ENCRYPTED PRIVATE KEY-----")
            || contains(&self.text, b"Proc-Type: 4,ENCRYPTED")
        {
            return Err(self.fault(
                "its private key is encrypted, which is not supported: `openssl pkey -in FILE -out NEW` decrypts it",
            ));
        }
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| match error {
            PemError::NoItemsFound => {
                self.fault("there is no private key in it (-----BEGIN PRIVATE KEY-----)")
            }
            other => self.fault(told(&other)),
        })
    }

    /// Lists of revoked certificates, at least one.
    pub(crate) fn revoked(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, FileError> {
        let all = CertificateRevocationListDer::pem_slice_iter(&self.text).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(|error| self.fault(told(&error)))?;
        match all.is_empty() {
            false => Ok(all),
            true => {
                Err(self.fault("there is no list of revoked certificates in it (-----BEGIN X509 CRL-----)"))
            }
        }
    }

    /// The certificates as those that others are checked against.
    pub(crate) fn authorities(&self) -> Result<RootCertStore, FileError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.fault(said(&error)))?;
        }
        Ok(roots)
    }

    /// Whether a key is in it: certificate and key may be one file or two.
    pub(crate) fn has_key(&self) -> bool {
        let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(&self.text);
        let keys = [SectionKind::PrivateKey, SectionKind::RsaPrivateKey, SectionKind::EcPrivateKey];
        sections.flatten().any(|(kind, _)| keys.contains(&kind))
            || contains(&self.text, b"ENCRYPTED PRIVATE KEY-----")
    }
}

/// What is wrong with a file's text. The library shows parts of it as numbers.
fn told(error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { end_marker } => {
            let end = String::from_utf8_lossy(end_marker);
            format!("it breaks off: -----END {}----- is missing", end.trim())
        }
        PemError::IllegalSectionStart { line } => {
            format!("a section begins with '{}'", String::from_utf8_lossy(line).trim().escape_debug())
        }
        other => other.to_string(),
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// A fault of the protocol in words for people.
pub(crate) fn said(error: &rustls::Error) -> String {
    use rustls::{CertificateError as Bad, Error};
    match error {
        Error::InvalidCertificate(bad) => match bad {
            Bad::Expired | Bad::ExpiredContext { .. } => "the certificate has expired".to_owned(),
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "the certificate is not valid yet".to_owned()
            }
            Bad::Revoked => "the certificate is revoked".to_owned(),
            Bad::UnknownIssuer => "the certificate is not of an authority that is trusted here".to_owned(),
            Bad::NotValidForName => "the certificate is of another host".to_owned(),
            Bad::NotValidForNameContext { expected, presented } => {
                format!("the certificate is not of {}, but of {}", expected.to_str(), presented.join(", "))
            }
            Bad::UnknownRevocationStatus => {
                "no list of revoked certificates is of the certificate's authority".to_owned()
            }
            Bad::ExpiredRevocationList | Bad::ExpiredRevocationListContext { .. } => {
                "the list of revoked certificates has expired".to_owned()
            }
            other => format!("the certificate is not accepted: {other}"),
        },
        Error::NoCertificatesPresented => "the client has no certificate".to_owned(),
        Error::InconsistentKeys(_) => "the private key is not the certificate's".to_owned(),
        Error::AlertReceived(alert) => format!("the other side refuses: {alert:?}"),
        Error::InvalidMessage(_) => "what arrives is no TLS".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_breaks_off_is_told_in_words() {
        for text in ["-----BEGIN CERTIFICATE-----\nMIIB", "-----BEGIN CERTIFICATE\nMIIB\n"] {
            let file = PemFile { path: Path::new("ca.pem"), text: text.as_bytes().to_vec() };
            let error = file.certificates().unwrap_err().to_string();
            assert!(error.starts_with("ca.pem: ") && error.contains("CERTIFICATE"), "{error}");
            assert!(!error.contains("67, 69"), "{error}");
        }
    }
}
