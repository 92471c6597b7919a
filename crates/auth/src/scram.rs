//! SCRAM (RFC 5802, RFC 7677): who proves to know a password without sending it, and the server likewise.
//!
//! The server's side is [`ServerExchange`], the client's [`ClientExchange`]. Neither knows who carries the messages. An unknown
//! user takes the same steps with [a credential of nobody](crate::Credential::of_nobody), so that neither the answers nor
//! the time tell whether there is such a user.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use subtle::ConstantTimeEq;

use crate::credential::{Credential, Mechanism};

/// mongod refuses shorter nonces of clients.
const NONCE_MIN: usize = 8;

/// A client's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFirst {
    pub user: String,
    nonce: String,
    /// The message behind its header, which is part of what is signed.
    bare: String,
    /// `n,,` or `y,,`: repeated in the last message.
    header: &'static str,
}

impl ClientFirst {
    /// `None` for what is not a first message: the client learns no more than that.
    pub fn parse(payload: &[u8]) -> Option<ClientFirst> {
        let message = std::str::from_utf8(payload).ok()?;
        // No channel binding, and nobody logs in on behalf of another.
        let header = ["n,,", "y,,"].into_iter().find(|header| message.starts_with(header))?;
        let bare = &message[header.len()..];
        let mut parts = bare.split(',');
        let user = decode_name(parts.next()?.strip_prefix("n=")?)?;
        let nonce = parts.next()?.strip_prefix("r=")?;
        let well_formed = parts.next().is_none() && nonce.len() >= NONCE_MIN && !user.is_empty();
        well_formed.then(|| ClientFirst { user, nonce: nonce.to_owned(), bare: bare.to_owned(), header })
    }
}

/// `=2C` stands for a comma, `=3D` for an equals sign, and nothing else is escaped.
fn decode_name(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (decoded, rest) = match part.get(..2)? {
            "2C" => (',', &part[2..]),
            "3D" => ('=', &part[2..]),
            _ => return None,
        };
        name.push(decoded);
        name.push_str(rest);
    }
    Some(name)
}

fn encode_name(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

/// The server's side, after its first message.
pub struct ServerExchange {
    mechanism: Mechanism,
    credential: Credential,
    /// Whether there is such a user, who logs in by this mechanism.
    is_real: bool,
    nonce: String,
    header: &'static str,
    /// What both sides sign: the client's first message and the server's.
    signed: String,
}

impl ServerExchange {
    /// Answers a first message. `random` is nobody's to guess.
    pub fn begin(
        mechanism: Mechanism,
        first: ClientFirst,
        credential: Credential,
        is_real: bool,
        random: &[u8],
    ) -> (ServerExchange, Vec<u8>) {
        let nonce = format!("{}{}", first.nonce, BASE64.encode(random));
        let answer = format!("r={nonce},s={},i={}", BASE64.encode(&credential.salt), credential.iterations);
        let signed = format!("{},{answer}", first.bare);
        let header = first.header;
        (ServerExchange { mechanism, credential, is_real, nonce, header, signed }, answer.into_bytes())
    }

    /// The server's own proof, if the client's last message proves that he knows the password.
    pub fn finish(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let message = std::str::from_utf8(payload).ok()?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut parts = without_proof.split(',');
        let binding = parts.next()?.strip_prefix("c=")?;
        let nonce = parts.next()?.strip_prefix("r=")?;
        let well_formed =
            binding == BASE64.encode(self.header) && nonce == self.nonce && parts.next().is_none();
        let proof = BASE64.decode(proof).ok()?;
        let Credential { stored_key, server_key, .. } = &self.credential;
        if !well_formed || proof.len() != stored_key.len() {
            return None;
        }
        let signed = format!("{},{without_proof}", self.signed);
        let signature = self.mechanism.hmac(stored_key, signed.as_bytes());
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        let is_proven: bool = self.mechanism.hash(&client_key).ct_eq(stored_key).into();
        let own = self.mechanism.hmac(server_key, signed.as_bytes());
        (is_proven & self.is_real).then(|| format!("v={}", BASE64.encode(own)).into_bytes())
    }
}

/// The client's side.
pub struct ClientExchange {
    mechanism: Mechanism,
    secret: String,
    nonce: String,
    bare: String,
    server_signature: Vec<u8>,
}

impl ClientExchange {
    /// The first message. `secret` is what [`Mechanism::secret`] makes of the password.
    pub fn begin(
        mechanism: Mechanism,
        user: &str,
        secret: String,
        random: &[u8],
    ) -> (ClientExchange, Vec<u8>) {
        let nonce = BASE64.encode(random);
        let bare = format!("n={},r={nonce}", encode_name(user));
        let message = format!("n,,{bare}").into_bytes();
        (ClientExchange { mechanism, secret, nonce, bare, server_signature: Vec::new() }, message)
    }

    /// The proof that answers the server's first message.
    pub fn prove(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        /// A server that asks for more would keep the client busy for minutes.
        const ITERATIONS_MAX: u32 = 10_000_000;
        let message = std::str::from_utf8(payload).ok()?;
        let mut parts = message.split(',');
        let nonce = parts.next()?.strip_prefix("r=")?;
        let salt = BASE64.decode(parts.next()?.strip_prefix("s=")?).ok()?;
        let iterations: u32 = parts.next()?.strip_prefix("i=")?.parse().ok()?;
        // Fewer than RFC 7677 asks for would make the proof cheap to guess from.
        if !nonce.starts_with(&self.nonce) || !(4096..=ITERATIONS_MAX).contains(&iterations) {
            return None;
        }
        let salted = self.mechanism.salted(&self.secret, &salt, iterations);
        let client_key = self.mechanism.hmac(&salted, b"Client Key");
        let stored_key = self.mechanism.hash(&client_key);
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{message},{without_proof}", self.bare);
        let signature = self.mechanism.hmac(&stored_key, signed.as_bytes());
        let server_key = self.mechanism.hmac(&salted, b"Server Key");
        self.server_signature = self.mechanism.hmac(&server_key, signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(one, other)| one ^ other).collect();
        Some(format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes())
    }

    /// Whether the server has proven that it knows the password, too.
    pub fn is_proven_by(&self, payload: &[u8]) -> bool {
        let told = payload.strip_prefix(b"v=").and_then(|text| BASE64.decode(text).ok());
        told.is_some_and(|told| !told.is_empty() && told.ct_eq(&self.server_signature).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(mechanism: Mechanism, secret: &str, salt: &str, nonce: &str) -> (ServerExchange, Vec<u8>) {
        let credential = Credential::new(mechanism, secret, BASE64.decode(salt).unwrap(), 4096);
        let first = ClientFirst::parse(format!("n,,n=user,r={nonce}").as_bytes()).unwrap();
        ServerExchange::begin(mechanism, first, credential, true, &[])
    }

    /// The server's part of the nonce is no base64 in the RFCs, so it is put in by hand.
    fn with_nonce(mut exchange: ServerExchange, nonce: &str) -> ServerExchange {
        exchange.signed =
            exchange.signed.replacen(&format!(",r={},s=", exchange.nonce), &format!(",r={nonce},s="), 1);
        exchange.nonce = nonce.to_owned();
        exchange
    }

    #[test]
    fn the_example_of_rfc_5802() {
        let client = "fyko+d2lbbFgONRv9qkxdawL";
        let (exchange, _) = server(Mechanism::ScramSha1, "pencil", "QSXCR+Q6sek8bf92", client);
        let nonce = "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j";
        let exchange = with_nonce(exchange, nonce);
        let last = format!("c=biws,r={nonce},p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=");
        assert_eq!(exchange.finish(last.as_bytes()).unwrap(), b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=");
    }

    #[test]
    fn the_example_of_rfc_7677() {
        let (exchange, _) =
            server(Mechanism::ScramSha256, "pencil", "W22ZaJ0SNY7soEsUEjb6gQ==", "rOprNGfwEbeRWgbNEkqO");
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let exchange = with_nonce(exchange, nonce);
        let last = format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        let proof = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(exchange.finish(last.as_bytes()).unwrap(), proof);
    }

    #[test]
    fn client_and_server_agree_and_a_wrong_password_does_not() {
        for mechanism in Mechanism::ALL {
            let secret = |password: &str| mechanism.secret("Ann, =x", password).unwrap();
            let credential = Credential::new(mechanism, &secret("right"), vec![7; 16], 4096);
            for (password, is_right) in [("right", true), ("wrong", false)] {
                let (mut client, first) =
                    ClientExchange::begin(mechanism, "Ann, =x", secret(password), &[1; 24]);
                let first = ClientFirst::parse(&first).unwrap();
                assert_eq!(first.user, "Ann, =x");
                let (server, answer) =
                    ServerExchange::begin(mechanism, first, credential.clone(), true, &[2; 24]);
                let last = client.prove(&answer).unwrap();
                let verdict = server.finish(&last);
                assert_eq!(verdict.is_some(), is_right);
                assert!(!is_right || client.is_proven_by(&verdict.unwrap()));
            }
            assert!(!ClientExchange::begin(mechanism, "a", "b".to_owned(), &[1; 24]).0.is_proven_by(b"v="));
        }
    }

    #[test]
    fn nobody_is_answered_alike_and_never_let_in() {
        let mechanism = Mechanism::ScramSha256;
        let credential = Credential::of_nobody(mechanism, b"secret", "admin.ghost", 15_000);
        assert!(credential == Credential::of_nobody(mechanism, b"secret", "admin.ghost", 15_000));
        let other = Credential::of_nobody(mechanism, b"secret", "admin.other", 15_000);
        assert!(credential.salt != other.salt && credential.salt.len() == mechanism.salt_bytes());
        // Even with a credential that somebody could prove.
        let credential = Credential::new(mechanism, "known", vec![1; 28], 4096);
        let (mut client, first) = ClientExchange::begin(mechanism, "ghost", "known".to_owned(), &[1; 24]);
        let first = ClientFirst::parse(&first).unwrap();
        let (server, answer) = ServerExchange::begin(mechanism, first, credential, false, &[2; 24]);
        assert_eq!(server.finish(&client.prove(&answer).unwrap()), None);
    }

    #[test]
    fn what_is_no_first_message_is_refused() {
        for message in [
            "",
            "garbage",
            "n,,n=root,r=abc",
            "p=tls-unique,,n=root,r=abcdefghijkl",
            "n,a=other,n=root,r=abcdefghijkl",
            "n,,n=,r=abcdefghijkl",
            "n,,n=ro=ot,r=abcdefghijkl",
            "n,,n=root,r=abcdefghijkl,x=1",
            "n,,m=ext,n=root,r=abcdefghijkl",
        ] {
            assert_eq!(ClientFirst::parse(message.as_bytes()), None, "{message}");
        }
        assert!(ClientFirst::parse(b"y,,n=root,r=abcdefgh").is_some());
    }
}
