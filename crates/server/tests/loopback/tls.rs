//! Encrypted connections, and every way in which they do not come about.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kilim_bson::{RawValue, doc};
use kilim_client::{Client, ClientTlsOptions, Fault, Uri};
use kilim_server::{Clients, Limits, Server, ServerTls, ServerTlsOptions};
use kilim_testkit::eventually;
use kilim_tls::{Authority, Issued, SubjectPart};

use crate::fake::{Fake, Peer, limits, start, start_as};

const DAYS: std::ops::Range<i64> = -1..30;

/// An authority and a directory for what it issues.
struct World {
    directory: tempfile::TempDir,
    authority: Authority,
}

impl World {
    fn new() -> World {
        let world = World {
            directory: tempfile::tempdir().unwrap(),
            authority: Authority::new("One", DAYS).unwrap(),
        };
        world.write("ca.pem", &world.authority.certificate_pem);
        world.issue("server.pem", &["localhost", "127.0.0.1"], DAYS);
        world
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn issue(&self, name: &str, hosts: &[&str], days: std::ops::Range<i64>) -> PathBuf {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.write(name, &self.authority.server(hosts, days).unwrap().pem())
    }

    fn client(&self, name: &str, days: std::ops::Range<i64>) -> (PathBuf, Issued) {
        let subject = [(SubjectPart::OrganizationName, "Kilim"), (SubjectPart::CommonName, name)];
        let issued = self.authority.client(&subject, days).unwrap();
        (self.write(&format!("{name}.pem"), &issued.pem()), issued)
    }

    fn options(&self) -> ServerTlsOptions {
        ServerTlsOptions {
            certificate: self.path("server.pem"),
            key: None,
            authorities: None,
            revoked: None,
            clients: Clients::Required,
            plain_allowed: false,
        }
    }

    /// Options of a server that wants certificates of clients.
    fn mutual(&self) -> ServerTlsOptions {
        ServerTlsOptions { authorities: Some(self.path("ca.pem")), ..self.options() }
    }

    fn trusting(&self) -> ClientTlsOptions {
        ClientTlsOptions { authorities: Some(self.path("ca.pem")), ..ClientTlsOptions::default() }
    }

    fn showing(&self, certificate: &Path) -> ClientTlsOptions {
        ClientTlsOptions { certificate: Some(certificate.to_owned()), ..self.trusting() }
    }
}

fn serve(options: &ServerTlsOptions) -> Server<Fake> {
    serve_at(options, SystemTime::now())
}

fn serve_at(options: &ServerTlsOptions, now: SystemTime) -> Server<Fake> {
    let tls = ServerTls::read(options, now).unwrap();
    start_as(Fake::default(), limits(), Some(Arc::new(tls))).0
}

fn open(server: &Server<Fake>, host: &str, tls: ClientTlsOptions) -> Result<Client, Fault> {
    let uri = Uri {
        host: host.to_owned(),
        port: server.address().port(),
        database: None,
        login: None,
        tls: Some(tls),
    };
    let mut client = Client::open(&uri)?;
    // With TLS 1.3 a client learns only now that its certificate is not accepted.
    client.hello()?;
    Ok(client)
}

/// Why no connection comes about.
fn refusal(server: &Server<Fake>, tls: ClientTlsOptions) -> String {
    match open(server, "127.0.0.1", tls) {
        Ok(_) => panic!("a connection came about"),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn messages_of_all_sizes_go_both_ways() {
    let world = World::new();
    let server = serve(&world.options());
    let mut client = open(&server, "localhost", world.trusting()).unwrap();
    for bytes in [1i32, 4_000, 17_000, 300_000, 15_000_000] {
        let reply = client.run("shop", doc! {"large": bytes}).unwrap();
        assert_eq!(reply.get("text").and_then(RawValue::as_str).map(str::len), Some(bytes as usize));
        let text = "y".repeat(bytes as usize);
        assert!(client.run("shop", doc! {"echo": 1, "text": text}).is_ok());
    }
    drop(client);
    eventually("the connection is gone", || server.connections() == 0);
}

#[test]
fn a_server_of_another_name_is_not_trusted() {
    let world = World::new();
    world.issue("server.pem", &["db.example.com"], DAYS);
    let server = serve(&world.options());
    let why = refusal(&server, world.trusting());
    assert!(why.contains("not of 127.0.0.1") && why.contains("db.example.com"), "{why}");
    let any = ClientTlsOptions { any_host: true, ..world.trusting() };
    assert!(open(&server, "127.0.0.1", any).is_ok(), "unless names do not matter");
}

#[test]
fn a_server_of_an_unknown_authority_is_not_trusted() {
    let world = World::new();
    let server = serve(&world.options());
    let other = Authority::new("Two", DAYS).unwrap();
    let options = || ClientTlsOptions {
        authorities: Some(world.write("other.pem", &other.certificate_pem)),
        ..world.trusting()
    };
    let why = refusal(&server, options());
    assert!(why.contains("authority that is trusted"), "{why}");
    let any_host = ClientTlsOptions { any_host: true, ..options() };
    assert!(open(&server, "127.0.0.1", any_host).is_err(), "another name is another matter");
    let any = ClientTlsOptions { any_certificate: true, ..options() };
    assert!(open(&server, "127.0.0.1", any).is_ok(), "unless everybody is trusted");
}

#[test]
fn a_certificate_that_has_expired_is_not_trusted() {
    let world = World::new();
    let expired = world.issue("server.pem", &["127.0.0.1"], -20..-10);
    let refused = ServerTls::read(&world.options(), SystemTime::now()).unwrap_err();
    assert_eq!(refused.to_string(), format!("{}: the certificate has expired", expired.display()));
    // Nor by a client, where the server does not know the time.
    let server = serve_at(&world.options(), SystemTime::now() - Duration::from_secs(15 * 24 * 3600));
    let why = refusal(&server, world.trusting());
    assert!(why.contains("expired"), "{why}");
    world.issue("server.pem", &["127.0.0.1"], 10..20);
    let refused = ServerTls::read(&world.options(), SystemTime::now()).unwrap_err();
    assert!(refused.to_string().contains("not valid yet"), "{refused}");
}

#[test]
fn a_client_shows_its_certificate_where_it_must() {
    let world = World::new();
    let server = serve(&world.mutual());
    let why = refusal(&server, world.trusting());
    assert!(why.contains("CertificateRequired"), "{why}");
    let (ann, _) = world.client("ann", DAYS);
    let mut client = open(&server, "127.0.0.1", world.showing(&ann)).unwrap();
    let reply = client.run("admin", doc! {"subject": 1}).unwrap();
    assert_eq!(reply.get("subject").and_then(RawValue::as_str), Some("CN=ann,O=Kilim"));
    let (old, _) = world.client("old", -20..-10);
    let why = refusal(&server, world.showing(&old));
    assert!(why.contains("CertificateExpired"), "{why}");
    let foreign = Authority::new("Two", DAYS).unwrap();
    let foreign = foreign.client(&[(SubjectPart::CommonName, "ann")], DAYS).unwrap();
    let foreign = world.write("foreign.pem", &foreign.pem());
    let why = refusal(&server, world.showing(&foreign));
    assert!(why.contains("UnknownCA") || why.contains("DecryptError"), "{why}");
}

#[test]
fn a_client_without_a_certificate_is_served_where_it_may_be() {
    let world = World::new();
    let server = serve(&ServerTlsOptions { clients: Clients::Allowed, ..world.mutual() });
    let mut client = open(&server, "127.0.0.1", world.trusting()).unwrap();
    let reply = client.run("admin", doc! {"subject": 1}).unwrap();
    assert_eq!(reply.get("subject").and_then(RawValue::as_str), Some("none"));
    let (old, _) = world.client("old", -20..-10);
    assert!(open(&server, "127.0.0.1", world.showing(&old)).is_err(), "a bad one is not as good as none");
}

#[test]
fn a_revoked_client_is_refused() {
    let world = World::new();
    let (ann, _) = world.client("ann", DAYS);
    let (bob, revoked) = world.client("bob", DAYS);
    let list = |days| world.write("revoked.pem", &world.authority.revoke(&[&revoked], days).unwrap());
    let options = ServerTlsOptions { revoked: Some(list(DAYS)), ..world.mutual() };
    let server = serve(&options);
    assert!(open(&server, "127.0.0.1", world.showing(&ann)).is_ok());
    let why = refusal(&server, world.showing(&bob));
    assert!(why.contains("CertificateRevoked"), "{why}");
    // A list that is out of date says nothing of anybody.
    list(-20..-10);
    let server = serve(&options);
    assert!(open(&server, "127.0.0.1", world.showing(&ann)).is_err());
}

#[test]
fn a_handshake_that_ends_or_stalls_ends_its_connection_alone() {
    let world = World::new();
    let tls = Arc::new(ServerTls::read(&world.options(), SystemTime::now()).unwrap());
    let limits = Limits { handshake: Duration::from_millis(500), ..limits() };
    let (server, _) = start_as(Fake::default(), limits, Some(tls));
    let begun = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
    // Cut after any number of bytes.
    for end in 0..begun.len() {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(&begun[..end]).unwrap();
    }
    let mut stalled = TcpStream::connect(server.address()).unwrap();
    stalled.write_all(&begun).unwrap();
    let mut silent = TcpStream::connect(server.address()).unwrap();
    let mut nonsense = TcpStream::connect(server.address()).unwrap();
    nonsense.write_all(&[begun.as_slice(), &[0xaa; 600]].concat()).unwrap();
    for stream in [&mut stalled, &mut silent, &mut nonsense] {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut rest = Vec::new();
        // The end may come as a reset: not all that was sent has been read.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 20, "an alert at most: {rest:?}");
    }
    assert!(open(&server, "127.0.0.1", world.trusting()).is_ok());
    eventually("all are gone", || server.connections() == 0);
}

#[test]
fn plain_text_is_refused_where_everything_is_encrypted_and_served_where_both_are() {
    let world = World::new();
    let server = serve(&world.options());
    assert!(!Peer::connect(&server).is_alive());
    assert!(open(&server, "127.0.0.1", world.trusting()).is_ok());
    let server = serve(&ServerTlsOptions { plain_allowed: true, ..world.options() });
    assert!(Peer::connect(&server).is_alive());
    assert!(open(&server, "127.0.0.1", world.trusting()).is_ok());
}

#[test]
fn a_handshake_on_a_port_without_encryption_is_refused() {
    let world = World::new();
    let (server, _) = start(limits());
    assert!(open(&server, "127.0.0.1", world.trusting()).is_err());
    assert!(Peer::connect(&server).is_alive());
}

#[test]
fn new_files_are_for_new_connections_and_wrong_ones_for_none() {
    let world = World::new();
    let tls = Arc::new(ServerTls::read(&world.options(), SystemTime::now()).unwrap());
    let (server, _) = start_as(Fake::default(), limits(), Some(tls.clone()));
    let mut before = open(&server, "127.0.0.1", world.trusting()).unwrap();
    world.issue("server.pem", &["db.example.com"], DAYS);
    tls.reload(&world.options(), SystemTime::now()).unwrap();
    assert_eq!(tls.certificate().subject, "CN=db.example.com");
    assert!(refusal(&server, world.trusting()).contains("db.example.com"));
    assert!(before.hello().is_ok(), "a connection keeps what it was made with");
    world.write("server.pem", "nothing");
    assert!(tls.reload(&world.options(), SystemTime::now()).is_err());
    assert_eq!(tls.certificate().subject, "CN=db.example.com", "all stays as it was");
}

#[test]
fn a_wrong_file_is_named_with_the_reason() {
    let world = World::new();
    let server = world.authority.server(vec!["localhost".to_owned()], DAYS).unwrap();
    let (certificate, key) =
        (world.write("only.crt", &server.certificate_pem), world.write("only.key", &server.key_pem));
    let (other, _) = world.client("other", DAYS);
    let empty = world.write("empty.pem", "");
    let broken = world.write("broken.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    let locked = world.write(
        "locked.pem",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let nowhere = world.path("nowhere.pem");
    let base =
        || ServerTlsOptions { certificate: certificate.clone(), key: Some(key.clone()), ..world.options() };
    assert!(ServerTls::read(&base(), SystemTime::now()).is_ok(), "a key may be a file of its own");
    for (options, file, why) in [
        (ServerTlsOptions { certificate: nowhere.clone(), ..base() }, &nowhere, "No such file"),
        (ServerTlsOptions { certificate: empty.clone(), ..base() }, &empty, "no certificate"),
        (ServerTlsOptions { certificate: broken.clone(), ..base() }, &broken, ""),
        (ServerTlsOptions { key: None, ..base() }, &certificate, "no private key"),
        (ServerTlsOptions { key: Some(empty.clone()), ..base() }, &empty, "no private key"),
        (ServerTlsOptions { key: Some(locked.clone()), ..base() }, &locked, "encrypted"),
        (ServerTlsOptions { key: Some(other.clone()), ..base() }, &other, "not the certificate's"),
        (ServerTlsOptions { authorities: Some(empty.clone()), ..base() }, &empty, "no certificate"),
        (ServerTlsOptions { revoked: Some(empty.clone()), ..world.mutual() }, &empty, "revoked"),
    ] {
        let error = ServerTls::read(&options, SystemTime::now()).unwrap_err();
        assert!(error.file == *file && error.to_string().contains(why), "{error}");
    }
    for (options, file) in [
        (ClientTlsOptions { authorities: Some(nowhere.clone()), ..ClientTlsOptions::default() }, &nowhere),
        (ClientTlsOptions { certificate: Some(certificate.clone()), ..world.trusting() }, &certificate),
    ] {
        let server = serve(&world.options());
        let why = refusal(&server, options);
        assert!(why.contains(&file.display().to_string()), "{why}");
    }
}
