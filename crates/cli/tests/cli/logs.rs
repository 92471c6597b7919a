//! The server's log where it cannot be written: the server goes on.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kilim_bson::doc;
use kilim_client::Client;
use kilim_testkit::look_for;
use kilim_testkit::subject::free_port;

use crate::running::{Running, kilim};

/// Each command makes a line.
const TALKATIVE: [&str; 6] = ["serve", "--ephemeral", "--slow-ms", "0", "--port", "0"];

fn ask(client: &mut Client, times: usize) {
    for _ in 0..times {
        client.run("shop", doc! {"count": "orders"}).unwrap();
    }
}

#[test]
fn a_log_whose_reader_went_away_does_not_end_the_server() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut server = Running::start(&TALKATIVE);
        let mut client = Client::connect(&*server.address).unwrap();
        server.close_log();
        ask(&mut client, 20);
        assert_eq!(server.end_unheard(signal), Some(0));
    }
}

#[test]
fn a_log_on_a_full_disk_does_not_end_the_server() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let port = free_port().unwrap();
    let mut command = kilim(&TALKATIVE[..5]);
    let server = Running::silent(command.arg(port.to_string()).stdout(full()).stderr(full()), port);
    ask(&mut Client::connect(&*server.address).unwrap(), 20);
    assert_eq!(server.end_unheard(libc::SIGTERM), Some(0));
}

#[test]
fn a_log_that_nobody_reads_does_not_hold_up_the_server() {
    let (unread, pipe) = std::io::pipe().unwrap();
    // SAFETY: the descriptor is open; the call only changes the pipe's size, to what twenty lines fill.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    let server = Running::of(kilim(&TALKATIVE).stderr(pipe));
    ask(&mut Client::connect(&*server.address).unwrap(), 200);
    let started = Instant::now();
    assert_eq!(server.end_unheard(libc::SIGTERM), Some(0));
    assert!(started.elapsed() < Duration::from_secs(5));
    drop(unread);
}

#[test]
fn lost_lines_are_counted_and_told_once_writing_works_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the name is a text with its end.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let read = || OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let mut reader = read();
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    let server = Running::of(kilim(&TALKATIVE).stderr(Stdio::from(writer)));
    let mut client = Client::connect(&*server.address).unwrap();
    ask(&mut client, 1);
    wait_for(&mut reader, "count");
    drop(reader);
    ask(&mut client, 7);
    // The lines are lost in a thread of their own, a little later.
    std::thread::sleep(Duration::from_millis(300));
    let mut reader = read();
    ask(&mut client, 1);
    let log = wait_for(&mut reader, "log lines were lost");
    let lost = log.split("lines=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let lost: u32 = lost.and_then(|lost| lost.parse().ok()).unwrap_or_else(|| panic!("{log}"));
    assert!((1..=7).contains(&lost), "{log}");
    assert_eq!(server.end_unheard(libc::SIGTERM), Some(0));
}

fn wait_for(reader: &mut File, text: &str) -> String {
    let mut log = String::new();
    let found = look_for(Duration::from_secs(20), || {
        let mut bytes = [0; 4096];
        while let Ok(count) = reader.read(&mut bytes)
            && count > 0
        {
            log.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        log.contains(text).then_some(())
    });
    assert!(found.is_some(), "{log}");
    log
}
