//! Making certificates: an authority of one's own, and what it issues.
//!
//! For a first try and for tests. Whoever has an authority already uses its certificates.

use std::ops::Range;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber,
};
use time::{Duration, OffsetDateTime};

/// The kinds of parts that a subject has.
pub use rcgen::DnType as SubjectPart;

/// An authority with its key.
pub struct Authority {
    pub certificate_pem: String,
    pub key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub struct Issued {
    pub certificate_pem: String,
    pub key_pem: String,
    serial: SerialNumber,
}

impl Issued {
    /// Both in one text, as mongod wants its certificateKeyFile.
    pub fn pem(&self) -> String {
        [self.certificate_pem.as_str(), &self.key_pem].concat()
    }
}

impl Authority {
    /// Its certificate is valid on these days, counted from today.
    pub fn new(name: &str, days: Range<i64>) -> Result<Authority, rcgen::Error> {
        let mut params = params(Vec::new(), &[(DnType::CommonName, name)], days)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let certificate_pem = params.self_signed(&key)?.pem();
        Ok(Authority { certificate_pem, key_pem: key.serialize_pem(), issuer: Issuer::new(params, key) })
    }

    /// A certificate for a server that is reached by these names and addresses.
    pub fn server(&self, hosts: Vec<String>, days: Range<i64>) -> Result<Issued, rcgen::Error> {
        let first = hosts.first().cloned().unwrap_or_default();
        let params = params(hosts, &[(DnType::CommonName, &first)], days)?;
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate for a client; the subject's parts stand least specific first.
    pub fn client(&self, subject: &[(DnType, &str)], days: Range<i64>) -> Result<Issued, rcgen::Error> {
        self.issue(params(Vec::new(), subject, days)?, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Issued, rcgen::Error> {
        let key = KeyPair::generate()?;
        // 63 bits from the key's, which is random.
        let mut number = key.public_key_raw()[1..9].to_vec();
        number[0] &= 0x7f;
        let serial = SerialNumber::from(number);
        params.serial_number = Some(serial.clone());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let certificate_pem = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Issued { certificate_pem, key_pem: key.serialize_pem(), serial })
    }

    /// A list of revoked certificates.
    pub fn revoke(&self, revoked: &[&Issued], days: Range<i64>) -> Result<String, rcgen::Error> {
        let since = moment(days.start);
        let revoked = revoked.iter().map(|issued| RevokedCertParams {
            serial_number: issued.serial.clone(),
            revocation_time: since,
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: since,
            next_update: moment(days.end),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer)?.pem()
    }
}

fn moment(day: i64) -> OffsetDateTime {
    OffsetDateTime::now_utc() + Duration::days(day)
}

fn params(
    hosts: Vec<String>,
    subject: &[(DnType, &str)],
    days: Range<i64>,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    (params.not_before, params.not_after) = (moment(days.start), moment(days.end));
    Ok(params)
}
