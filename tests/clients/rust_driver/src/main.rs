//! Logins and encrypted connections by the official Rust driver: SCRAM by each mechanism, a certificate, what is not trusted, and
//! a change stream over it. Needs a server with users and certificates: KILIM_CERTS has ca.pem and ann.pem, KILIM_PASSWORD is the
//! password of the user root, MONGODB_URI names the server without either.

use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::sync::Client;

fn check(name: &str, is_true: bool) {
    assert!(is_true, "{name}");
    println!("ok {name}");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set"))
}

/// The server's URI with a user and options.
fn uri(user: &str, options: &str) -> String {
    let uri = variable("MONGODB_URI");
    let host = uri.trim_start_matches("mongodb://").trim_end_matches('/');
    format!("mongodb://{user}{host}/?directConnection=true&serverSelectionTimeoutMS=10000{options}")
}

fn code(error: &Error) -> i32 {
    match &*error.kind {
        ErrorKind::Command(failure) => failure.code,
        ErrorKind::Authentication { .. } => 18,
        _ => 0,
    }
}

fn status(client: &Client) -> Result<String, Error> {
    let reply = client.database("admin").run_command(doc! {"connectionStatus": 1}).run()?;
    let users = reply.get_document("authInfo").unwrap().get_array("authenticatedUsers").unwrap();
    Ok(users[0].as_document().unwrap().get_str("user").unwrap().to_owned())
}

fn main() -> Result<(), Error> {
    let certificates = variable("KILIM_CERTS");
    let escaped = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    let password: String = variable("KILIM_PASSWORD").bytes().map(escaped).collect();
    let root = format!("root:{password}@");
    let trusted = format!("&tls=true&tlsCAFile={certificates}/ca.pem");
    for mechanism in ["&authMechanism=SCRAM-SHA-1", "&authMechanism=SCRAM-SHA-256", ""] {
        let client = Client::with_uri_str(uri(&root, &format!("{trusted}{mechanism}")))?;
        check(&format!("{mechanism} logs in over TLS"), status(&client)? == "root");
    }
    let client = Client::with_uri_str(uri(&root, &trusted))?;
    let orders = client.database("shop").collection::<Document>("rust_tls");
    orders.drop().run()?;
    let many = (0..20_000).map(|number| doc! {"_id": number, "text": "x".repeat(1000)});
    orders.insert_many(many).run()?;
    check("20 MB go both ways", orders.find(doc! {}).run()?.count() == 20_000);
    let mut changes = orders.watch().max_await_time(Duration::from_secs(10)).run()?;
    orders.update_one(doc! {"_id": 1}, doc! {"$set": {"n": 1}}).run()?;
    let event = changes.next().expect("an event")?;
    check("a change stream shows an update", event.document_key == Some(doc! {"_id": 1}));
    let mut session = client.start_session().run()?;
    session.start_transaction().run()?;
    orders.insert_one(doc! {"_id": -1}).session(&mut session).run()?;
    session.commit_transaction().run()?;
    check("a transaction commits", orders.find_one(doc! {"_id": -1}).run()?.is_some());

    let wrong = Client::with_uri_str(uri("root:wrong@", &trusted))?;
    check("a wrong password is refused", status(&wrong).is_err_and(|error| code(&error) == 18));
    let soon = "&serverSelectionTimeoutMS=2000";
    let plain = Client::with_uri_str(uri("", "").replace("&serverSelectionTimeoutMS=10000", soon))?;
    check("plain text is refused", status(&plain).is_err());
    let untrusted = Client::with_uri_str(uri("", "&tls=true").replace("&serverSelectionTimeoutMS=10000", soon))?;
    check("an authority that is not trusted is refused", status(&untrusted).is_err());

    let external = client.database("$external");
    // It is there if the test ran before.
    let _ = external.run_command(doc! {"dropUser": "CN=ann"}).run();
    let by_certificate =
        format!("{trusted}&tlsCertificateKeyFile={certificates}/ann.pem&authMechanism=MONGODB-X509");
    let nobody = Client::with_uri_str(uri("", &by_certificate))?;
    check("a certificate of nobody is refused", status(&nobody).is_err());
    external.run_command(doc! {"createUser": "CN=ann", "roles": [{"role": "read", "db": "shop"}]}).run()?;
    let ann = Client::with_uri_str(uri("", &by_certificate))?;
    check("MONGODB-X509 logs in by the certificate's subject", status(&ann)? == "CN=ann");
    let orders = ann.database("shop").collection::<Document>("rust_tls");
    check("and reads", orders.find_one(doc! {"_id": 1}).run()?.is_some());
    let refused = orders.insert_one(doc! {}).run();
    check("and may do what its roles say", refused.is_err_and(|error| code(&error) == 13));
    Ok(())
}
