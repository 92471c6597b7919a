//! Certificates: refused or read, never more. A name that was read is a text that can be shown.

use kilim_tls::Certificate;

pub fn check(input: &[u8]) {
    if let Ok(certificate) = Certificate::parse(input) {
        assert!(certificate.subject.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{certificate:?}");
    }
}
