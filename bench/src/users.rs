//! Servers with users: what a login costs, what a read costs that is encrypted, and what it costs to ask for rights.
//!
//! These servers need other options than the rest, so each row runs only where it is named by `--only`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kilim_bson::doc;
use kilim_client::{Client, Login, LoginBy, Uri};
use kilim_testkit::link::{Fault, Link};
use kilim_testkit::subject::{Kind, Running};

use crate::patterns::{Contest, Entrant, KILIM, MONGOD};
use crate::report::Row;
use crate::workload::{Leaves, Operation, Place, Target, Workload, find_id, prepare_docs};
use crate::{Options, Sides, run_contest};

const USER: &str = "bench";
const PASSWORD: &str = "secret";

pub fn run(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    let named = |name: &str| options.only.iter().any(|only| only == name);
    let mut rows = Vec::new();
    let guarded: Vec<Contest> = [login(), find_encrypted(1), find_encrypted(16)]
        .into_iter()
        .filter(|contest| named(contest.name))
        .collect();
    if !guarded.is_empty() {
        let place = tempfile::Builder::new().prefix("kilim-users-").tempdir_in(&options.data)?;
        let running = [start(sides, KILIM, place.path())?, start(sides, MONGOD, place.path())?];
        for contest in &guarded {
            rows.extend(run_contest(contest, &running, options)?);
        }
    }
    let rights = find_with_rights();
    if named(rights.name) {
        let place = tempfile::Builder::new().prefix("kilim-rights-").tempdir_in(&options.data)?;
        let plain = sides.subject(KILIM, &place.path().join("plain"))?;
        fs::create_dir_all(place.path().join("plain"))?;
        let running = [start(sides, KILIM, place.path())?, plain.start()?];
        rows.extend(run_contest(&rights, &running, options)?);
    }
    Ok(rows)
}

fn contest(name: &'static str, entrants: Vec<Entrant>, target: Target) -> Contest {
    Contest { name, entrants, claims: vec![(1, target)] }
}

fn entrant(
    name: &'static str,
    server: usize,
    operations: usize,
    prepare: fn(&mut Link) -> Result<(), Fault>,
    make: fn(Place) -> Operation,
) -> Entrant {
    let (connections, target, writes) = (1, Target::Told, false);
    let before = |_: &mut Link, _| Ok(());
    Entrant {
        name,
        server,
        workload: Workload {
            name,
            connections,
            operations,
            target,
            leaves: Leaves::of(writes),
            prepare,
            before,
            make,
        },
    }
}

/// A connection and a login by SCRAM-SHA-256, for which both servers keep 15,000 iterations.
fn login() -> Contest {
    let side = |name, server| entrant(name, server, 300, |_| Ok(()), connect_and_log_in);
    contest("login", vec![side("kilim", KILIM), side("mongod", MONGOD)], Target::CpuAtMost(1.0))
}

/// One document by `_id`, over encrypted connections of a user.
fn find_encrypted(connections: usize) -> Contest {
    let side = |name, server| {
        let read = |place| over(place, "&tls=true&tlsInsecure=true");
        let mut side = entrant(name, server, 10_000, prepare_as_user, read);
        side.workload.connections = connections;
        side
    };
    contest("find_id_tls", vec![side("kilim", KILIM), side("mongod", MONGOD)], Target::CpuAtMost(0.3))
}

/// One document by `_id`, of a user, against the same where nobody logs in.
fn find_with_rights() -> Contest {
    let entrants = vec![
        entrant("with users", 0, 20_000, prepare_as_user, |place| over(place, "")),
        entrant("without users", 1, 20_000, prepare_docs, find_id),
    ];
    contest("find_id_rights", entrants, Target::CpuAtMost(1.03))
}

fn user() -> Login {
    Login { user: USER.into(), password: PASSWORD.into(), source: "admin".into(), by: LoginBy::Password }
}

fn prepare_as_user(link: &mut Link) -> Result<(), Fault> {
    link.log_in(&user())?;
    prepare_docs(link)
}

/// The server of a connection, by a connection of its own as a user.
fn open(link: &Link, options: &str) -> Result<Client, Fault> {
    let uri = format!("mongodb://{USER}:{PASSWORD}@{}/?authMechanism=SCRAM-SHA-256{options}", link.peer()?);
    let uri: Uri = uri.parse().map_err(|error| Fault::unexpected(format!("{error}")))?;
    Client::open(&uri)
}

fn connect_and_log_in(_: Place) -> Operation {
    Box::new(|link| open(link, "").map(drop))
}

/// Reads over a connection of its own, which the first operation opens.
fn over(place: Place, options: &'static str) -> Operation {
    let mut find = find_id(place);
    let mut own = None;
    Box::new(move |link| {
        if own.is_none() {
            own = Some(open(link, options)?);
        }
        find(own.as_mut().expect("it was opened"))
    })
}

/// A side's server with a user, which encrypts where clients want it.
fn start(sides: &Sides, side: usize, place: &Path) -> Result<Running> {
    let certificates = place.join("certs");
    if !certificates.exists() {
        let kilim = sides.binary(KILIM);
        let made = Command::new(kilim).args(["tls", "init"]).arg(&certificates).output();
        let made = made.with_context(|| format!("cannot run {}", kilim.display()))?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let file = |name: &str| certificates.join(name).to_string_lossy().into_owned();
    let mut subject = sides.subject(side, place)?;
    subject.arguments = match subject.kind {
        Kind::Kilim => {
            ["--auth", "--tls", "prefer", "--tls-cert", &file("server.pem")].map(str::to_owned).to_vec()
        }
        Kind::Mongod => {
            // Members of a replica set know each other by it, even if there is one. They talk without TLS: the certificate is a
            // server's, and a build of an index asks its own server.
            let key = place.join("key");
            fs::write(&key, "benchmarkbenchmark")?;
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
            let tls = [
                "--tlsMode",
                "allowTLS",
                "--tlsAllowConnectionsWithoutCertificates",
                "--tlsAllowInvalidHostnames",
            ];
            let files = ["--tlsCertificateKeyFile", &file("server.pem"), "--tlsCAFile", &file("ca.pem")];
            let auth = ["--auth", "--keyFile", &key.to_string_lossy()];
            tls.iter().chain(&files).chain(&auth).map(|argument| (*argument).to_owned()).collect()
        }
    };
    let running = subject.start()?;
    let create =
        doc! {"createUser": USER, "pwd": PASSWORD, "roles": ["root"], "mechanisms": ["SCRAM-SHA-256"]};
    running.connect()?.run("admin", create)?;
    Ok(running)
}
