//! A server for a network, as docs/security.md sets it up: certificates, users, a configuration file, signals, the audit log.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use kilim_bson::{Document, RawValue, doc, parse_extended_json};
use kilim_client::{Client, Fault, Uri};
use kilim_testkit::eventually;

use crate::running::{Running, kilim, output, wait};

/// A directory with certificates and passwords.
struct World {
    directory: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let world = World { directory: tempfile::tempdir().unwrap() };
        let (code, _, message) = output(&["tls", "init", &world.path("certs"), "--client", "ann"]);
        assert_eq!(code, Some(0), "{message}");
        world.write("secret", "p@ss\n");
        world
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap_or_default()
    }

    /// Options of a server with users that encrypts, and asks for certificates of those who have one.
    fn options(&self) -> Vec<String> {
        let (cert, ca) = (self.path("certs/server.pem"), self.path("certs/ca.pem"));
        let options =
            ["serve", "--ephemeral", "--port", "0", "--auth", "--tls", "require", "--tls-clients", "allow"];
        let files = ["--tls-cert".to_owned(), cert, "--tls-ca".to_owned(), ca];
        options.into_iter().map(str::to_owned).chain(files).collect()
    }

    fn serve(&self, more: &[&str]) -> Running {
        let options = self.options();
        let all: Vec<&str> = options.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Running::start(&all)
    }

    /// A connection string; `user` is what stands before the host, `more` what comes behind the options.
    fn uri(&self, server: &Running, user: &str, more: &str) -> String {
        let ca = self.path("certs/ca.pem").replace('/', "%2F");
        format!("mongodb://{user}{}/admin?tls=true&tlsCAFile={ca}{more}", server.address)
    }

    fn root(&self, server: &Running) -> Client {
        open(&self.uri(server, "root:p%40ss@", "")).unwrap()
    }

    fn add_root(&self, server: &Running) {
        let (uri, secret) = (self.uri(server, "", ""), self.path("secret"));
        let (code, shown, message) =
            output(&["user", "add", "root", "--role", "root", "--password-file", &secret, "--uri", &uri]);
        assert_eq!((code, &*shown), (Some(0), "root@admin is there\n"), "{message}");
    }
}

fn open(uri: &str) -> Result<Client, Fault> {
    Client::open(&uri.parse::<Uri>().unwrap())
}

fn texts<'d>(document: &'d Document, list: &str, field: &str) -> Vec<&'d str> {
    let values = document.get(list).and_then(RawValue::as_array).into_iter().flat_map(|list| list.iter());
    values.filter_map(|value| value.as_document()?.get(field)?.as_str()).collect()
}

#[test]
fn users_log_in_over_tls_by_password_and_by_certificate() {
    let world = World::new();
    let server = world.serve(&[]);
    assert!(Client::connect(server.address.as_str()).unwrap().hello().is_err(), "plain text is refused");
    world.add_root(&server);
    assert!(matches!(open(&world.uri(&server, "root:wrong@", "")), Err(fault) if fault.code() == Some(18)));
    let mut root = world.root(&server);
    let roles = doc! {"createUser": "CN=ann", "roles": [{"role": "readAnyDatabase", "db": "admin"}]};
    let certificate = format!(
        "&tlsCertificateKeyFile={}&authMechanism=MONGODB-X509",
        world.path("certs/ann.pem").replace('/', "%2F")
    );
    let by_certificate = world.uri(&server, "", &certificate);
    assert!(
        matches!(open(&by_certificate), Err(fault) if fault.code() == Some(11)),
        "nobody has the name yet"
    );
    root.run("$external", roles).unwrap();
    let mut ann = open(&by_certificate).unwrap();
    let status = ann.run("admin", doc! {"connectionStatus": 1}).unwrap();
    let info = status.get("authInfo").and_then(RawValue::as_document).unwrap().to_document();
    assert_eq!(texts(&info, "authenticatedUsers", "user"), ["CN=ann"]);
    assert!(ann.run("shop", doc! {"find": "orders"}).is_ok());
    let refused = ann.run("shop", doc! {"insert": "orders", "documents": [{"_id": 1}]}).unwrap_err();
    assert_eq!(refused.code(), Some(13));
    // The name may be said, and must be the certificate's.
    assert!(open(&world.uri(&server, "CN%3Dann@", &certificate)).is_ok());
    assert!(open(&world.uri(&server, "CN%3Dbob@", &certificate)).is_err());
    assert_eq!(server.end(libc::SIGTERM).0, Some(0));
}

#[test]
fn every_verb_speaks_tls_and_dumps_carry_users() {
    let world = World::new();
    let server = world.serve(&[]);
    world.add_root(&server);
    let mut root = world.root(&server);
    root.run("shop", doc! {"insert": "orders", "documents": [{"_id": 1}]}).unwrap();
    let own = doc! {"createRole": "buyer", "privileges": [], "roles": [{"role": "read", "db": "shop"}]};
    root.run("shop", own).unwrap();
    root.run("shop", doc! {"createUser": "ben", "pwd": "b", "roles": ["buyer"]}).unwrap();
    let uri = world.uri(&server, "root:p%40ss@", "");
    let dump = world.path("dump");
    for arguments in [
        &["dump", "--uri", &uri.replace("/admin?", "/?"), "--out", &dump][..],
        &[
            "export",
            "--uri",
            &uri,
            "--db",
            "shop",
            "--collection",
            "orders",
            "--out",
            &world.path("orders.json"),
        ],
        &["pattern", "list", "--uri", &uri, "--db", "shop"],
        &["user", "list", "--all", "--uri", &uri],
    ] {
        let (code, _, message) = output(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {message}");
    }
    let (code, _, message) = output(&["user", "list", "--uri", &format!("mongodb://{}", server.address)]);
    assert_eq!(code, Some(1));
    assert!(message.contains("encrypted"), "{message}");
    assert_eq!(server.end(libc::SIGTERM).0, Some(0));
    // Into a server without users, as after a loss.
    let other = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let uri = format!("mongodb://{}", other.address);
    let (code, _, message) = output(&["restore", &dump, "--uri", &uri]);
    assert_eq!(code, Some(0), "{message}");
    let mut client = Client::connect(other.address.as_str()).unwrap();
    let users = client.run("admin", doc! {"usersInfo": {"forAllDBs": true}}).unwrap();
    assert_eq!(texts(&users, "users", "user"), ["root", "ben"]);
    let roles = client.run("shop", doc! {"rolesInfo": "buyer"}).unwrap();
    assert_eq!(texts(&roles, "roles", "role"), ["buyer"]);
    let ben = format!("mongodb://ben:b@{}/shop", other.address);
    assert!(open(&ben).is_ok(), "the password is that of the dump");
    // Again: those that are there are told and stay, or are replaced.
    client.run("shop", doc! {"updateUser": "ben", "pwd": "c"}).unwrap();
    let (code, ..) = output(&["restore", &dump, "--uri", &uri]);
    assert_ne!(code, Some(0), "documents that are there are refused");
    assert!(open(&ben).is_err());
    let (code, _, message) = output(&["restore", &dump, "--drop", "--uri", &uri]);
    assert_eq!(code, Some(0), "{message}");
    assert!(open(&ben).is_ok());
}

#[test]
fn a_lost_password_is_set_while_no_server_runs() {
    let world = World::new();
    let data = world.path("data");
    let server = Running::start(&["serve", "--auth", "--port", "0", "--data", &data]);
    let (uri, secret) = (format!("mongodb://{}", server.address), world.path("secret"));
    let (code, ..) =
        output(&["user", "add", "root", "--role", "root", "--password-file", &secret, "--uri", &uri]);
    assert_eq!(code, Some(0));
    let set = |file: &str| output(&["user", "passwd", "root", "--data", &data, "--password-file", file]);
    world.write("other", "new\n");
    assert_eq!(set(&world.path("other")).0, Some(1), "not while a server uses the data");
    assert_eq!(server.end(libc::SIGTERM).0, Some(0));
    let (code, _, message) = set(&world.path("other"));
    assert_eq!(code, Some(0), "{message}");
    // A mistyped directory does not become a database.
    let (empty, other) = (world.path("empty"), world.path("other"));
    fs::create_dir(&empty).unwrap();
    let (code, _, message) = output(&["user", "passwd", "root", "--data", &empty, "--password-file", &other]);
    assert!(code == Some(1) && message.contains("no database"), "{message}");
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    let server = Running::start(&["serve", "--auth", "--port", "0", "--data", &data]);
    assert!(open(&format!("mongodb://root:p%40ss@{}", server.address)).is_err());
    assert!(open(&format!("mongodb://root:new@{}", server.address)).is_ok());
}

#[test]
fn certificates_that_are_there_are_not_written_over() {
    let world = World::new();
    let before = world.read("certs/server.pem");
    let (code, _, message) = output(&["tls", "init", &world.path("certs")]);
    assert_eq!(code, Some(1));
    assert!(message.contains("is there already"), "{message}");
    assert_eq!(world.read("certs/server.pem"), before);
    let mode =
        |name: &str| std::os::unix::fs::MetadataExt::mode(&fs::metadata(world.path(name)).unwrap()) & 0o777;
    assert_eq!((mode("certs"), mode("certs/ca.key"), mode("certs/server.pem")), (0o700, 0o600, 0o600));
}

#[test]
fn a_host_is_named_once_in_a_certificate() {
    let place = tempfile::tempdir().unwrap();
    let certs = place.path().join("certs").display().to_string();
    let (code, shown, message) = output(&["tls", "init", &certs, "--host", "localhost", "--host", "db"]);
    assert_eq!(code, Some(0), "{message}");
    assert!(shown.contains("as localhost, db, 127.0.0.1, ::1."), "{shown}");
}

#[test]
fn options_come_from_a_file_and_the_command_line_goes_before() {
    let world = World::new();
    let config =
        world.write("kilim.yaml", "ephemeral: true\nport: 1\nauth: true\nslow-ms: 7\ninsecure: false\n");
    let config = config.to_str().unwrap();
    let server = Running::start(&["serve", "--config", config, "--port", "0"]);
    let mut client = Client::connect(server.address.as_str()).unwrap();
    assert_eq!(client.run("shop", doc! {"find": "orders"}).map(drop).unwrap_err().code(), Some(13));
    assert_eq!(server.end(libc::SIGTERM).0, Some(0));
    for (text, named) in [
        ("prot: 1", "'prot'"),
        ("config: other.yaml", "'config'"),
        ("port: many", "many"),
        ("auth: perhaps", "auth"),
        ("ephemeral: true\ndata: x", "--data"),
        ("tls: require", "--tls-cert"),
        ("port: [1]", "port"),
        ("port: 1\nport: 2", "port"),
        ("nonsense", "list of options"),
    ] {
        let file = world.write("wrong.yaml", text);
        let (code, _, message) = output(&["serve", "--config", file.to_str().unwrap()]);
        assert!(code.is_some_and(|code| code != 0) && message.contains(named), "{text}: {message}");
        assert!(text != "port: many" || message.contains("wrong.yaml"), "{message}");
    }
    let (code, _, message) = output(&["serve", "--config", "/nowhere/kilim.yaml"]);
    assert!(code == Some(1) && message.contains("/nowhere/kilim.yaml"), "{message}");
}

#[test]
fn signals_have_certificates_configuration_and_logs_taken_up_anew() {
    let world = World::new();
    let config = world.write("kilim.yaml", "slow-ms: 100\nmax-connections: 50\n");
    let log = world.path("log");
    let options = ["--config", config.to_str().unwrap(), "--log-file", &log, "--audit", &world.path("audit")];
    let server = world.serve(&options);
    let old = world.uri(&server, "", "");
    assert!(open(&old).unwrap().hello().is_ok());
    // Another authority: who trusts the old one does not trust the new certificate.
    let (code, ..) = output(&["tls", "init", &world.path("new")]);
    assert_eq!(code, Some(0));
    fs::copy(world.path("new/server.pem"), world.path("certs/server.pem")).unwrap();
    world.write("kilim.yaml", "slow-ms: 5\nmax-connections: 60\n");
    server.send(libc::SIGHUP);
    eventually("the certificate is another one", || matches!(open(&old), Err(Fault::Insecure(_))));
    let new = old.replace("certs%2Fca.pem", "new%2Fca.pem");
    assert!(open(&new).unwrap().hello().is_ok());
    eventually("the log says what changed", || {
        let log = world.read("log");
        log.contains("slow-ms") && log.contains("max-connections") && log.contains("next start")
    });
    // What is wrong is told, and changes nothing.
    world.write("certs/server.pem", "nothing");
    server.send(libc::SIGHUP);
    eventually("the file is named", || {
        world.read("log").contains("certs/server.pem: there is no certificate")
    });
    world.write("kilim.yaml", "slowms: 5\n");
    server.send(libc::SIGHUP);
    eventually("the option is named", || world.read("log").contains("'slowms'"));
    assert!(open(&new).unwrap().hello().is_ok());
    // Logs that were moved away.
    for name in ["log", "audit"] {
        fs::rename(world.path(name), world.path(&format!("{name}.1"))).unwrap();
    }
    server.send(libc::SIGUSR1);
    eventually("both are opened anew", || {
        world.read("log").contains("opened anew") && fs::exists(world.path("audit")).unwrap()
    });
    let before = world.read("log.1");
    assert_eq!(server.end(libc::SIGTERM).0, Some(0));
    assert!(world.read("log").contains("stopped"));
    assert_eq!(world.read("log.1"), before);
}

#[test]
fn the_audit_log_tells_who_did_what() {
    let world = World::new();
    let server = world.serve(&["--audit", &world.path("audit")]);
    world.add_root(&server);
    let _ = open(&world.uri(&server, "root:wrong@", ""));
    let mut root = world.root(&server);
    root.run("shop", doc! {"create": "orders"}).unwrap();
    root.run("shop", doc! {"createUser": "ben", "pwd": "hidden", "roles": ["read"]}).unwrap();
    let ben = world.uri(&server, "ben:hidden@", "&authSource=shop");
    let _ = open(&ben).unwrap().run("shop", doc! {"insert": "orders", "documents": [{"_id": 1}]});
    root.run("shop", doc! {"drop": "orders"}).unwrap();
    root.run("admin", doc! {"logout": 1}).unwrap();
    drop(server.end(libc::SIGTERM));
    let text = world.read("audit");
    assert!(!text.contains("hidden") && !text.contains("p@ss"), "{text}");
    let lines: Vec<Document> = text.lines().map(|line| parse_extended_json(line).unwrap()).collect();
    let summary: Vec<String> = lines
        .iter()
        .map(|line| {
            let user = texts(line, "users", "user").join("");
            let result = kilim_client::whole(line.get("result")).unwrap();
            format!("{} {result} {user}", line.get("atype").and_then(RawValue::as_str).unwrap())
        })
        .collect();
    let expected = [
        "createUser 0 ",
        "authenticate 18 ",
        "authenticate 0 root",
        "createCollection 0 root",
        "createUser 0 root",
        "authenticate 0 ben",
        "authCheck 13 ben",
        "dropCollection 0 root",
        "logout 0 root",
    ];
    assert_eq!(summary, expected);
    let login = lines[2].get("param").and_then(RawValue::as_document).unwrap();
    assert_eq!(login.to_document(), doc! {"user": "root", "db": "admin", "mechanism": "SCRAM-SHA-256"});
    assert!(lines.iter().all(|line| matches!(line.get("ts"), Some(RawValue::DateTime(_)))));
}

#[test]
#[cfg(target_os = "linux")]
fn a_password_in_an_argument_is_not_shown_by_ps() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("mongodb://ann:verysecret@{}/admin", silent.local_addr().unwrap());
    let mut child = kilim(&["user", "list", "--uri", &uri]).spawn().unwrap();
    // It waits for an answer now.
    let _connection = silent.accept().unwrap();
    let shown = fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("mongodb://ann:xxxxxxxxxx@") && !shown.contains("verysecret"), "{shown}");
    child.kill().unwrap();
    wait(&mut child);
}

#[test]
fn metrics_are_encrypted_as_the_rest() {
    let world = World::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = world.serve(&["--metrics-port", &port.to_string()]);
    let options = kilim_client::ClientTlsOptions {
        authorities: Some(world.path("certs/ca.pem").into()),
        ..kilim_client::ClientTlsOptions::default()
    };
    let tls = kilim_tls::ClientTls::read(&options).unwrap();
    let socket = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let session = tls.connect(&socket, "localhost", deadline).unwrap();
    session.write(&socket, b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let (mut page, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match session.read(&socket, &mut buffer).unwrap() {
            0 => break,
            count => page.extend_from_slice(&buffer[..count]),
        }
    }
    assert!(String::from_utf8(page).unwrap().contains("kilim_uptime_seconds"));
    assert_eq!(server.end(libc::SIGTERM).0, Some(0));
}
