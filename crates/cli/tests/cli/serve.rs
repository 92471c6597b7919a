//! `kilim serve` as a user starts and ends it.

use std::net::TcpStream;

use crate::running::{Running, output};

#[test]
fn the_ready_line_names_where_to_connect_and_both_signals_end_in_order() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let server = Running::start(&["serve", "--ephemeral", "--port", "0", "--log-format", "json"]);
        let client = TcpStream::connect(&server.address).unwrap();
        let (code, log) = server.end(signal);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{log}");
        assert!(log.contains("stopped"), "{log}");
        drop(client);
    }
}

#[test]
fn a_taken_port_ends_with_advice() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let port = server.address.rsplit(':').next().unwrap();
    let (code, _, message) = output(&["serve", "--ephemeral", "--port", port]);
    assert_eq!(code, Some(1));
    assert!(message.contains(&format!("port {port}")) && message.contains("--port 0"), "{message}");
}

#[test]
fn a_data_directory_has_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let server = Running::start(&["serve", "--data", data, "--port", "0"]);
    let (code, _, message) = output(&["serve", "--data", data, "--port", "0"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(data) && message.contains("another process"), "{message}");
    let (code, log) = server.end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    // And it is free again.
    let (code, log) = Running::start(&["serve", "--data", data, "--port", "0"]).end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    for (arguments, expected) in [
        (&["serve", "--bind", "0.0.0.0", "--ephemeral", "--port", "0"][..], "--insecure"),
        (&["serve", "--ephemeral", "--data", "x"], "--data"),
        (&["serve", "--ephemeral", "--durability", "relaxed"], "--durability"),
        (&["serve", "--cache-bytes", "5 parsecs"], "parsecs"),
        (&["serve", "--port", "70000"], "70000"),
        (&["sevre"], "serve"),
    ] {
        let (code, _, message) = output(arguments);
        assert!(code.is_some_and(|code| code != 0), "{arguments:?}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn help_shows_examples_and_the_version_is_told() {
    let (code, version, _) = output(&["--version"]);
    assert_eq!((code, version.trim()), (Some(0), concat!("kilim ", env!("CARGO_PKG_VERSION"))));
    for arguments in [&["--help"][..], &["serve", "--help"]] {
        let (code, help, _) = output(arguments);
        assert_eq!(code, Some(0));
        assert!(help.contains("Examples:") && help.contains("kilim serve --ephemeral --port 0"), "{help}");
    }
}
