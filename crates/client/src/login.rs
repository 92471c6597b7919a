//! Logging in: the credential of a connection string, and the messages that prove it.

use std::fmt;
use std::io;

use kilim_auth::{ClientExchange, Mechanism};
use kilim_bson::{Document, RawValue, Value, doc};

use crate::{Client, Fault, whole};

/// Who logs in, and how.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
    /// The database of the user: `authSource`.
    pub source: String,
    /// `authMechanism`.
    pub by: LoginBy,
}

/// What a user proves who he is by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoginBy {
    /// A password, by the best mechanism that the server has for the user.
    #[default]
    Password,
    Mechanism(Mechanism),
    /// The certificate that the connection was made with: MONGODB-X509. The user's name is its subject, or left out.
    Certificate,
}

impl LoginBy {
    pub fn find(name: &str) -> Option<LoginBy> {
        match name {
            "MONGODB-X509" => Some(LoginBy::Certificate),
            _ => Mechanism::find(name).map(LoginBy::Mechanism),
        }
    }
}

/// A password belongs into no log.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Logs in. By SCRAM it makes sure that the server knows the password, too.
    pub fn log_in(&mut self, login: &Login) -> Result<(), Fault> {
        let mechanism = match login.by {
            LoginBy::Mechanism(mechanism) => mechanism,
            LoginBy::Password => self.mechanism_for(login)?,
            LoginBy::Certificate => return self.log_in_by_certificate(login),
        };
        let secret = mechanism.secret(&login.user, &login.password);
        let secret = secret.map_err(|error| broken(&error.to_string()))?;
        let random: [u8; 24] = rand::random();
        let (mut exchange, first) = ClientExchange::begin(mechanism, &login.user, secret, &random);
        let reply = self.run(
            &login.source,
            doc! {
                "saslStart": 1,
                "mechanism": mechanism.name(),
                "payload": binary(first),
                "options": {"skipEmptyExchange": true},
            },
        )?;
        let id = whole(reply.get("conversationId")).unwrap_or_default() as i32;
        let proof = exchange.prove(payload(&reply)?).ok_or_else(|| broken("its challenge is malformed"))?;
        let reply = self.go_on(login, id, proof)?;
        if !exchange.is_proven_by(payload(&reply)?) {
            return Err(broken("it does not know the password itself"));
        }
        if !matches!(reply.get("done"), Some(RawValue::Bool(true))) {
            self.go_on(login, id, Vec::new())?;
        }
        Ok(())
    }

    fn log_in_by_certificate(&mut self, login: &Login) -> Result<(), Fault> {
        let mut command = doc! {"authenticate": 1, "mechanism": "MONGODB-X509"};
        if !login.user.is_empty() {
            command.push("user", login.user.as_str());
        }
        self.run("$external", command).map(drop)
    }

    fn go_on(&mut self, login: &Login, id: i32, payload: Vec<u8>) -> Result<Document, Fault> {
        let command = doc! {"saslContinue": 1, "conversationId": id, "payload": binary(payload)};
        self.run(&login.source, command)
    }

    /// SHA-256, unless the user has no such credential.
    fn mechanism_for(&mut self, login: &Login) -> Result<Mechanism, Fault> {
        let user = format!("{}.{}", login.source, login.user);
        let hello = self.run("admin", doc! {"hello": 1, "saslSupportedMechs": user})?;
        let names = hello.get("saslSupportedMechs").and_then(RawValue::as_array);
        let mut names =
            names.into_iter().flat_map(|names| names.iter()).filter_map(RawValue::as_str).peekable();
        let only_sha_1 = names.peek().is_some() && names.all(|name| name != Mechanism::ScramSha256.name());
        Ok(if only_sha_1 { Mechanism::ScramSha1 } else { Mechanism::ScramSha256 })
    }
}

fn binary(bytes: Vec<u8>) -> Value {
    Value::Binary { subtype: 0, bytes }
}

fn payload(reply: &Document) -> Result<&[u8], Fault> {
    match reply.get("payload") {
        Some(RawValue::Binary { bytes, .. }) => Ok(bytes),
        _ => Err(broken("its answer has no payload")),
    }
}

fn broken(what: &str) -> Fault {
    Fault::Lost(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the server cannot be logged in to: {what}"),
    ))
}
