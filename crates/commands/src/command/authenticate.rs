//! `authenticate`: log in by the certificate that the connection was made with (MONGODB-X509).

use kilim_auth::{Mechanism, UserName};
use kilim_bson::{Document, RawDocument, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::create_user::EXTERNAL;
use super::sasl;
use super::write_reply::required;
use crate::access::store;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "authenticate";
const MECHANISM: &str = "MONGODB-X509";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    by_certificate(call, call.body)
}

/// Logs in; `body` is the command, also where it came within hello.
pub fn by_certificate(call: &mut Call<'_, '_>, body: RawDocument<'_>) -> Result<Document> {
    let (mut mechanism, mut named, mut database) = (None, None, call.generic.database.to_owned());
    for argument in arguments(NAME, body) {
        match argument.name {
            "mechanism" => mechanism = Some(argument.string()?),
            "user" => named = Some(argument.string()?),
            // Of a login within hello.
            "db" => argument.string()?.clone_into(&mut database),
            _ => return Err(argument.unknown()),
        }
    }
    let mechanism = required(mechanism, NAME, "mechanism")?;
    if mechanism != MECHANISM {
        return Err(match Mechanism::find(mechanism) {
            Some(_) => Error::user(ErrorCode::BadValue, format!("Unsupported mechanism: {mechanism}")),
            None => sasl::not_enabled(mechanism),
        });
    }
    let refuse = |message: &str| Err(Error::user(ErrorCode::AuthenticationFailed, message.to_owned()));
    let Some(subject) = call.client.login.subject.clone() else {
        return refuse("No verified subject name available from client");
    };
    if named.is_some_and(|named| named != subject) {
        return refuse("There is no x.509 client certificate matching the user.");
    }
    if database != EXTERNAL {
        return Err(Error::user(
            ErrorCode::ProtocolError,
            "X.509 authentication must always use the $external database.",
        ));
    }
    let user = UserName::new(&subject, EXTERNAL);
    let known = store::user(call.engine, &call.operation, &user)?;
    if !known.is_some_and(|user| user.credentials.external) {
        // Noted as any failure. The answer is mongod's, which names the user: he has shown a certificate of that name.
        sasl::refuse(call, &user, MECHANISM);
        return Err(Error::user(
            ErrorCode::UserNotFound,
            format!("Could not find user \"{subject}\" for db \"{EXTERNAL}\""),
        ));
    }
    sasl::log_in(call, &user, MECHANISM)?;
    Ok(doc! {"dbname": EXTERNAL, "user": subject})
}
