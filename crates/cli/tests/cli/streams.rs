//! Every command with its output closed or full: no panic, and an exit code that says what happened.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use kilim_bson::doc;
use kilim_client::Client;

use crate::running::{Running, kilim, read, wait};

/// The commands that end by themselves, with what they need to succeed.
fn commands(uri: &str, folder: &str) -> Vec<Vec<String>> {
    let words = |line: &str| {
        let line = line.replace("FOLDER", folder);
        line.split(' ').map(str::to_owned).collect::<Vec<String>>()
    };
    let with_server = |line: &str| [words(line), vec!["--uri".to_owned(), uri.to_owned()]].concat();
    let alone = ["--help", "--version", "help dump", "completions bash", "man", "man pattern create"];
    let asking = [
        "pattern list",
        "pattern list --json",
        "pattern list --yaml",
        "pattern show c p",
        "pattern verify",
        "pattern repair --json",
        "pattern jobs",
        "pattern jobs --json",
        "pattern pause c p",
        "pattern resume c p",
        "pattern wait c p",
        "pattern create c q computed {set:{b:1}} --dry-run",
        "apply FOLDER/patterns.yaml --check",
        "dump --replace --out FOLDER/written",
        "restore FOLDER/dump --drop",
        "export --collection c",
        "export --collection c --json-array",
        "export --collection c --type csv --fields _id",
        "import --collection d FOLDER/one.json --mode upsert",
        "demo --clients 1 --operations 1",
    ];
    alone.map(words).into_iter().chain(asking.map(with_server)).collect()
}

struct Shop {
    _server: Running,
    folder: tempfile::TempDir,
    commands: Vec<Vec<String>>,
}

impl Shop {
    fn open() -> Shop {
        let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
        let uri = format!("mongodb://{}/shop", server.address);
        let mut client = Client::connect(&*server.address).unwrap();
        client.run("shop", doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]}).unwrap();
        client.run("shop", doc! {"createPattern": "c", "name": "p", "computed": {"set": {"a": 1}}}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        std::fs::write(folder.path().join("one.json"), "{\"_id\": 1}").unwrap();
        std::fs::write(folder.path().join("patterns.yaml"), "patterns: []\n").unwrap();
        let dump = ["dump", "--out", &format!("{path}/dump"), "--uri", &uri];
        assert!(kilim(&dump).status().unwrap().success());
        Shop { commands: commands(&uri, &path), _server: server, folder }
    }
}

#[test]
fn an_output_that_is_full_is_a_failure_that_is_told() {
    let shop = Shop::open();
    for command in &shop.commands {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut child = kilim(&arguments).stdout(full).spawn().unwrap();
        let code = wait(&mut child);
        let message = read(child.stderr.take());
        assert_eq!(code, Some(1), "{command:?}: {message}");
        assert!(message.contains("cannot write to standard output"), "{command:?}: {message}");
        assert!(!message.contains("panic"), "{command:?}: {message}");
    }
    drop(shop.folder);
}

#[test]
fn an_output_that_is_not_there_is_a_failure_that_is_told() {
    let shop = Shop::open();
    for command in &shop.commands {
        let mut without = Command::new("sh");
        without.args(["-c", "exec \"$@\" >&-", "sh", env!("CARGO_BIN_EXE_kilim")]).args(command);
        let mut child = without.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let code = wait(&mut child);
        let message = read(child.stderr.take());
        assert_eq!(code, Some(1), "{command:?}: {message}");
        assert!(message.contains("cannot write to standard output"), "{command:?}: {message}");
    }
}

#[test]
fn an_output_whose_reader_went_away_is_a_quiet_end() {
    let shop = Shop::open();
    for command in &shop.commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut child = kilim(&arguments).stdout(writer).spawn().unwrap();
        wait(&mut child);
        let status = child.wait().unwrap();
        let message = read(child.stderr.take());
        assert_eq!(status.signal(), Some(libc::SIGPIPE), "{command:?}: {message}");
        // A command that worked may have said so before; an error is told by "kilim:".
        assert!(!message.contains("kilim:") && !message.contains("panic"), "{command:?}: {message}");
    }
}

#[test]
fn a_message_that_cannot_be_written_changes_no_exit_code() {
    for (arguments, code) in [
        (&["pattern", "list", "--uri", "mongodb://127.0.0.1:1/shop"][..], 1),
        (&["export", "--collection", "c", "--uri", "mongodb://127.0.0.1:1/shop"], 1),
        (&["sevre"], 2),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut child = kilim(arguments).stderr(full).stdout(Stdio::null()).spawn().unwrap();
        assert_eq!(wait(&mut child), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_server_that_hangs_up_is_told() {
    let uri = crate::fake::serve(|_| None) + "/shop";
    let shop = Shop::open();
    let folder = shop.folder.path().to_str().unwrap().to_owned();
    for command in commands(&uri, &folder).iter().filter(|command| command.contains(&uri)) {
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut child = kilim(&arguments).spawn().unwrap();
        let code = wait(&mut child);
        let message = read(child.stderr.take());
        assert_eq!(code, Some(1), "{command:?}: {message}");
        assert!(message.contains("kilim: ") && !message.contains("panic"), "{command:?}: {message}");
    }
    assert!(!std::path::Path::new(&folder).join("written").exists());
}
