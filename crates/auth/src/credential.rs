//! What is stored of a password: for each mechanism salt, iterations and two keys, from which it cannot be computed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, Mac};
use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    ScramSha1,
    ScramSha256,
}

impl Mechanism {
    /// In the order in which mongod names them.
    pub const ALL: [Mechanism; 2] = [Mechanism::ScramSha1, Mechanism::ScramSha256];

    pub fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha1 => "SCRAM-SHA-1",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
        }
    }

    pub fn find(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Bytes of a salt, as mongod draws them.
    pub fn salt_bytes(self) -> usize {
        match self {
            Mechanism::ScramSha1 => 16,
            Mechanism::ScramSha256 => 28,
        }
    }

    pub fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            Mechanism::ScramSha1 => hmac::<Hmac<Sha1>>(key, message),
            Mechanism::ScramSha256 => hmac::<Hmac<Sha256>>(key, message),
        }
    }

    pub fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Mechanism::ScramSha1 => Sha1::digest(bytes).to_vec(),
            Mechanism::ScramSha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    /// The password that goes into the derivation: MongoDB's digest for SHA-1, the prepared text for SHA-256.
    pub fn secret(self, user: &str, password: &str) -> Result<String> {
        match self {
            Mechanism::ScramSha1 => Ok(digest(user, password)),
            Mechanism::ScramSha256 => prepare(password),
        }
    }

    pub(crate) fn salted(self, secret: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            Mechanism::ScramSha1 => {
                pbkdf2::pbkdf2_hmac_array::<Sha1, 20>(secret.as_bytes(), salt, iterations).to_vec()
            }
            Mechanism::ScramSha256 => {
                pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(secret.as_bytes(), salt, iterations).to_vec()
            }
        }
    }
}

fn hmac<M: Mac + hmac::digest::KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = <M as Mac>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

/// `md5(user:mongo:password)` in hexadecimal digits.
pub fn digest(user: &str, password: &str) -> String {
    let digest = Md5::digest(format!("{user}:mongo:{password}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SASLprep, by which two ways to type a password are one.
fn prepare(password: &str) -> Result<String> {
    if password.is_empty() {
        // In mongod's words.
        return Err(Error::location(
            50687,
            "Error preflighting UTF-8 conversion: U_STRING_NOT_TERMINATED_WARNING",
        ));
    }
    match stringprep::saslprep(password) {
        Ok(prepared) => Ok(prepared.into_owned()),
        Err(_) => {
            Err(Error::location(50692, "Error preflighting normalization: U_STRINGPREP_PROHIBITED_ERROR"))
        }
    }
}

/// What a server keeps for one mechanism.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub iterations: u32,
    pub salt: Vec<u8>,
    pub stored_key: Vec<u8>,
    pub server_key: Vec<u8>,
}

impl Credential {
    /// `secret` is what [`Mechanism::secret`] makes of a password.
    pub fn new(mechanism: Mechanism, secret: &str, salt: Vec<u8>, iterations: u32) -> Credential {
        let salted = mechanism.salted(secret, &salt, iterations);
        let stored_key = mechanism.hash(&mechanism.hmac(&salted, b"Client Key"));
        let server_key = mechanism.hmac(&salted, b"Server Key");
        Credential { iterations, salt, stored_key, server_key }
    }

    /// For a user who is not there: looks as anybody's would, is the same every time, and nothing proves it.
    pub fn of_nobody(mechanism: Mechanism, server_secret: &[u8], user: &str, iterations: u32) -> Credential {
        let salt_of = [user.as_bytes(), mechanism.name().as_bytes()].concat();
        let mut salt = Mechanism::ScramSha256.hmac(server_secret, &salt_of);
        salt.truncate(mechanism.salt_bytes());
        let stored_key = mechanism.hmac(server_secret, &salt);
        let server_key = mechanism.hmac(server_secret, &stored_key);
        Credential { iterations, salt, stored_key, server_key }
    }

    pub fn to_document(&self) -> Document {
        doc! {
            "iterationCount": self.iterations as i32,
            "salt": BASE64.encode(&self.salt),
            "storedKey": BASE64.encode(&self.stored_key),
            "serverKey": BASE64.encode(&self.server_key),
        }
    }

    pub fn from_document(document: RawDocument<'_>) -> Result<Credential> {
        let fault = |name: &str| {
            Error::user(ErrorCode::UnsupportedFormat, format!("a credential needs a valid field '{name}'"))
        };
        let bytes = |name: &str| {
            let text = document.get(name).and_then(RawValue::as_str).ok_or_else(|| fault(name))?;
            BASE64.decode(text).map_err(|_| fault(name))
        };
        let iterations = match document.get("iterationCount") {
            Some(RawValue::Int32(count)) => Some(count),
            Some(RawValue::Int64(count)) => i32::try_from(count).ok(),
            _ => None,
        };
        Ok(Credential {
            iterations: iterations
                .filter(|count| *count > 0)
                .map(i32::unsigned_abs)
                .ok_or_else(|| fault("iterationCount"))?,
            salt: bytes("salt")?,
            stored_key: bytes("storedKey")?,
            server_key: bytes("serverKey")?,
        })
    }
}

/// Keys belong into no log.
impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_of_mongod_is_what_its_password_gives() {
        // Made by mongod 6.0.5: createUser "root" with password "pw".
        let stored = doc! {
            "iterationCount": 10000,
            "salt": "7ADGVhMS7VrLUwbbsdt2PQ==",
            "storedKey": "LNwfqMYHi39aPcx+wh3sVPFZGaM=",
            "serverKey": "9oQZOL9LglqWgZZhsLkV42JIIqs=",
        };
        let credential = Credential::from_document(stored.as_raw()).unwrap();
        let secret = Mechanism::ScramSha1.secret("root", "pw").unwrap();
        let computed = Credential::new(Mechanism::ScramSha1, &secret, credential.salt.clone(), 10_000);
        assert!(computed == credential);
        assert_eq!(credential.to_document().as_bytes(), stored.as_bytes());
    }

    #[test]
    fn passwords_are_prepared_for_sha_256_alone() {
        let prepared = |password: &str| Mechanism::ScramSha256.secret("u", password);
        assert_eq!(prepared("I\u{ad}X").unwrap(), "IX");
        assert_eq!(prepared("\u{2168}").unwrap(), "IX");
        assert_eq!(prepared("p\u{7}x").unwrap_err().code().0, 50692);
        assert_eq!(prepared("").unwrap_err().code().0, 50687);
        assert_eq!(
            Mechanism::ScramSha1.secret("user", "pencil").unwrap(),
            "1c33006ec1ffd90f9cadcbcc0e118200"
        );
    }
}
