//! What a certificate says: its subject, as MongoDB names users by it, and how long it is valid.
//!
//! A certificate is DER: values within values, each a tag, a length, and bytes. Only the few on the way to the subject are
//! looked at. The subject is written as RFC 2253 has it, most specific part first, the way mongod writes it: special
//! characters behind a backslash, bytes beyond ASCII as `\C3\B6`, kinds of parts by OpenSSL's short names or as numbers.

use std::fmt::Write;

/// A certificate's bytes do not follow the grammar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The parts of a certificate that are of use here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The name in RFC 2253's form.
    pub subject: String,
    /// Seconds since 1970 between which it is valid.
    pub not_before: i64,
    pub not_after: i64,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl Certificate {
    pub fn parse(der: &[u8]) -> Result<Certificate, Malformed> {
        let certificate = Der(der).expect(SEQUENCE)?;
        let mut body = Der(certificate).expect(SEQUENCE).map(Der)?;
        if body.0.first() == Some(&VERSION) {
            body.next()?;
        }
        let (_serial, _algorithm, _issuer) = (body.next()?, body.next()?, body.next()?);
        let mut validity = Der(body.expect_next(SEQUENCE)?);
        let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = name(body.expect_next(SEQUENCE)?)?;
        Ok(Certificate { subject, not_before, not_after })
    }
}

/// Values one after another.
#[derive(Clone, Copy)]
struct Der<'b>(&'b [u8]);

/// A tag and what it holds, and all of its bytes.
struct Element<'b> {
    tag: u8,
    content: &'b [u8],
    whole: &'b [u8],
}

impl<'b> Der<'b> {
    fn next(&mut self) -> Result<Element<'b>, Malformed> {
        let bytes = self.0;
        let (tag, length) = (*bytes.first().ok_or(Malformed)?, *bytes.get(1).ok_or(Malformed)?);
        let (length, head) = match length {
            0..=0x7f => (usize::from(length), 2),
            // The length has so many bytes.
            0x81..=0x84 => {
                let count = usize::from(length & 0x7f);
                let digits = bytes.get(2..2 + count).ok_or(Malformed)?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), 2 + count)
            }
            _ => return Err(Malformed),
        };
        let end = head.checked_add(length).ok_or(Malformed)?;
        let content = bytes.get(head..end).ok_or(Malformed)?;
        self.0 = &bytes[end..];
        Ok(Element { tag, content, whole: &bytes[..end] })
    }

    fn expect_next(&mut self, tag: u8) -> Result<&'b [u8], Malformed> {
        let element = self.next()?;
        if element.tag == tag { Ok(element.content) } else { Err(Malformed) }
    }

    fn expect(mut self, tag: u8) -> Result<&'b [u8], Malformed> {
        self.expect_next(tag)
    }
}

/// `250131235959Z` or `20500131235959Z`, as seconds since 1970.
fn time(element: Element<'_>) -> Result<i64, Malformed> {
    let text = str::from_utf8(element.content).map_err(|_| Malformed)?;
    let digits = text.strip_suffix('Z').ok_or(Malformed)?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Malformed);
    }
    let (year, rest) = match (element.tag, digits.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = digits.split_at(2);
            let year: i32 = year.parse().map_err(|_| Malformed)?;
            // RFC 5280: from 1950 to 2049.
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = digits.split_at(4);
            (year.parse().map_err(|_| Malformed)?, rest)
        }
        _ => return Err(Malformed),
    };
    let part = |at: usize| rest[at..at + 2].parse::<u8>().map_err(|_| Malformed);
    let month = time::Month::try_from(part(0)?).map_err(|_| Malformed)?;
    let date = time::Date::from_calendar_date(year, month, part(2)?).map_err(|_| Malformed)?;
    let moment = date.with_hms(part(4)?, part(6)?, part(8)?).map_err(|_| Malformed)?;
    Ok(moment.assume_utc().unix_timestamp())
}

/// A name: sets of parts, nearly always one part each, least specific first.
fn name(content: &[u8]) -> Result<String, Malformed> {
    let mut sets = Vec::new();
    let mut rest = Der(content);
    while !rest.0.is_empty() {
        let mut parts = Vec::new();
        let mut set = Der(rest.expect_next(SET)?);
        while !set.0.is_empty() {
            let mut part = Der(set.expect_next(SEQUENCE)?);
            let kind = part.expect_next(OID)?;
            parts.push(written(kind, part.next()?)?);
        }
        parts.reverse();
        sets.push(parts.join("+"));
    }
    sets.reverse();
    Ok(sets.join(","))
}

/// `CN=Ann`.
fn written(kind: &[u8], value: Element<'_>) -> Result<String, Malformed> {
    let known = KINDS.iter().find(|(oid, _)| *oid == kind);
    let label = known.map_or_else(|| dotted(kind), |(_, label)| (*label).to_owned());
    let mut out = format!("{label}=");
    let Some(text) = text(&value)? else {
        out.push('#');
        for byte in value.whole {
            let _ = write!(out, "{byte:02X}");
        }
        return Ok(out);
    };
    let last = text.len().saturating_sub(1);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => out.extend(['\\', char::from(byte)]),
            b' ' if at == 0 || at == last => out.push_str("\\ "),
            b'#' if at == 0 => out.push_str("\\#"),
            0x20..0x7f => out.push(char::from(byte)),
            _ => drop(write!(out, "\\{byte:02X}")),
        }
    }
    Ok(out)
}

/// A text of any of the kinds that names are written in; `None` if it is no text.
fn text(value: &Element<'_>) -> Result<Option<String>, Malformed> {
    let content = value.content;
    let of = |characters: Option<String>| characters.map(Some).ok_or(Malformed);
    match value.tag {
        // UTF8String.
        0x0c => of(str::from_utf8(content).ok().map(str::to_owned)),
        // NumericString, PrintableString, T61String, IA5String, VisibleString: a byte a character.
        0x12 | 0x13 | 0x14 | 0x16 | 0x1a => Ok(Some(content.iter().map(|byte| char::from(*byte)).collect())),
        // BMPString: two bytes a character.
        0x1e => {
            let (units, []) = content.as_chunks::<2>() else { return Err(Malformed) };
            of(char::decode_utf16(units.iter().map(|unit| u16::from_be_bytes(*unit)))
                .collect::<Result<_, _>>()
                .ok())
        }
        // UniversalString: four bytes a character.
        0x1c => {
            let (units, []) = content.as_chunks::<4>() else { return Err(Malformed) };
            of(units.iter().map(|unit| char::from_u32(u32::from_be_bytes(*unit))).collect())
        }
        _ => Ok(None),
    }
}

/// `1.2.840.113549`.
fn dotted(oid: &[u8]) -> String {
    let mut numbers: Vec<u64> = Vec::new();
    let mut number = 0u64;
    for byte in oid {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(number);
            number = 0;
        }
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

/// The kinds of parts that have a name, with OpenSSL's short one.
const KINDS: [(&[u8], &str); 23] = [
    (&[0x55, 0x04, 0x03], "CN"),
    (&[0x55, 0x04, 0x04], "SN"),
    (&[0x55, 0x04, 0x05], "serialNumber"),
    (&[0x55, 0x04, 0x06], "C"),
    (&[0x55, 0x04, 0x07], "L"),
    (&[0x55, 0x04, 0x08], "ST"),
    (&[0x55, 0x04, 0x09], "street"),
    (&[0x55, 0x04, 0x0a], "O"),
    (&[0x55, 0x04, 0x0b], "OU"),
    (&[0x55, 0x04, 0x0c], "title"),
    (&[0x55, 0x04, 0x0d], "description"),
    (&[0x55, 0x04, 0x0f], "businessCategory"),
    (&[0x55, 0x04, 0x11], "postalCode"),
    (&[0x55, 0x04, 0x29], "name"),
    (&[0x55, 0x04, 0x2a], "GN"),
    (&[0x55, 0x04, 0x2b], "initials"),
    (&[0x55, 0x04, 0x2c], "generationQualifier"),
    (&[0x55, 0x04, 0x2d], "x500UniqueIdentifier"),
    (&[0x55, 0x04, 0x2e], "dnQualifier"),
    (&[0x55, 0x04, 0x41], "pseudonym"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x01], "UID"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01, 0x19], "DC"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x01], "emailAddress"),
];

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn parse(pem: &str) -> Certificate {
        Certificate::parse(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
    }

    /// Certificates made by openssl, and the names that mongod 6.0.5 has for whoever shows them.
    #[test]
    fn subjects_are_written_as_mongod_writes_them() {
        let odd = parse(ODD);
        assert_eq!(
            odd.subject,
            r"UID=u1,DC=example,2.3.4.5=odd,emailAddress=j@example.com,CN=J\C3\B6rg,OU=\+eam x\; a\\b,OU=Weber,O=Kilim\, Inc. \<db\>,C=DE"
        );
        assert_eq!(
            (odd.not_before, odd.not_after),
            (1_794_900_266, 4_948_500_266),
            "the second year is beyond 2049"
        );
        assert_eq!(parse(TWO_PARTS).subject, "UID=a1+CN=ann,O=Kilim");
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused_wherever_they_end() {
        let whole = CertificateDer::from_pem_slice(ODD.as_bytes()).unwrap();
        // Everything behind the subject is not looked at, so a cut behind it is not seen within the outer length.
        for end in 0..whole.len() {
            assert_eq!(Certificate::parse(&whole[..end]), Err(Malformed), "{end}");
        }
        for byte in 0..whole.len().min(400) {
            for value in [0, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut changed = whole.to_vec();
                changed[byte] = value;
                // Whatever it says, it says so without a panic.
                let _ = Certificate::parse(&changed);
            }
        }
        assert_eq!(Certificate::parse(b""), Err(Malformed));
    }

    const ODD: &str = "\
-----BEGIN CERTIFICATE-----
MIICbDCCAhMCFHodMRKq6F3FbL8dl/pj0NsA+c7TMAoGCCqGSM49BAMCMIG3MQsw
CQYDVQQGEwJERTEZMBcGA1UECgwQS2lsaW0sIEluYy4gPGRiPjEOMAwGA1UECwwF
V2ViZXIxFDASBgNVBAsMCytlYW0geDsgYVxiMQ4wDAYDVQQDDAVKw7ZyZzEcMBoG
CSqGSIb3DQEJARYNakBleGFtcGxlLmNvbTEMMAoGA1MEBQwDb2RkMRcwFQYKCZIm
iZPyLGQBGRYHZXhhbXBsZTESMBAGCgmSJomT8ixkAQEMAnUxMCAXDTI2MTExNzA3
MjQyNloYDzIxMjYxMDI0MDcyNDI2WjCBtzELMAkGA1UEBhMCREUxGTAXBgNVBAoM
EEtpbGltLCBJbmMuIDxkYj4xDjAMBgNVBAsMBVdlYmVyMRQwEgYDVQQLDAsrZWFt
IHg7IGFcYjEOMAwGA1UEAwwFSsO2cmcxHDAaBgkqhkiG9w0BCQEWDWpAZXhhbXBs
ZS5jb20xDDAKBgNTBAUMA29kZDEXMBUGCgmSJomT8ixkARkWB2V4YW1wbGUxEjAQ
BgoJkiaJk/IsZAEBDAJ1MTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABPT7gpiW
yNnKO6k15D/AlMPDyZqX9ET87uGas09tOXxeouWU1TvM0OSXZunQevZicpFg6pmf
v7hpVfoyQilceyYwCgYIKoZIzj0EAwIDRwAwRAIgVga5hO+DLiy2nqfdEVmIauGY
jcNuD1H86EZ/U8pZdfACICObQREWtOI48inSnzwZ7n01x8Z8OhdM2TxEjp2rHDag
-----END CERTIFICATE-----";

    const TWO_PARTS: &str = "\
-----BEGIN CERTIFICATE-----
MIIBtTCCAVugAwIBAgIUaPBp4PNzZP6ECpd//nXWIDplihMwCgYIKoZIzj0EAwIw
MDEOMAwGA1UECgwFS2lsaW0xHjAKBgNVBAMMA2FubjAQBgoJkiaJk/IsZAEBDAJh
MTAeFw0yNjExMTcwNzI0MjZaFw0yNjExMjcwNzI0MjZaMDAxDjAMBgNVBAoMBUtp
bGltMR4wCgYDVQQDDANhbm4wEAYKCZImiZPyLGQBAQwCYTEwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAAScfjapkXzeex9UUNQ5HQYw11/ISHbNqIdxM8Cc7jO9Rcxi
lbfmU/soZYTIieGFcoTUDPRIW7JrtKeAow7ljiD7o1MwUTAdBgNVHQ4EFgQU8YHq
hWyrpPjd7N0OPVge9AeZPCYwHwYDVR0jBBgwFoAU8YHqhWyrpPjd7N0OPVge9AeZ
PCYwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEArAGA4bfwW/T0
yQ8C5WGSv/Nsxnk8GvDDSS1tsjWEaBgCIAPj9S2EGaan8sPlZxxsfE7rzfhJpKle
1xJ8oImSjdAR
-----END CERTIFICATE-----";
}
