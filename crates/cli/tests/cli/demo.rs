//! `kilim demo`: what it shows is true, and it leaves nothing behind.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use kilim_testkit::eventually;

use crate::running::{Running, kilim, output, wait};

#[test]
fn the_demo_shows_no_wrong_document_where_patterns_are_declared() {
    let (code, shown, message) = output(&["demo", "--clients", "4", "--operations", "60", "--seed", "7"]);
    assert_eq!(code, Some(0), "{shown}{message}");
    assert!(shown.contains("reviewStats 0 of 24") && shown.contains("nothing is left behind"), "{shown}");
    for row in ["review counts", "average ratings", "newest reviews", "customer copies", "order totals"] {
        let line =
            shown.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{row}: {shown}"));
        assert!(line.ends_with(" 0"), "{line}");
    }
    assert!(shown.contains("\"rugs\" now has ") && shown.contains("with one index for all"), "{shown}");
}

#[test]
fn the_demo_on_a_running_server_drops_its_databases() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let arguments = ["demo", "--clients", "2", "--operations", "20", "--uri", &server.address];
    // It would refuse to work in databases that are there.
    for _ in 0..2 {
        let (code, shown, message) = output(&arguments);
        assert_eq!(code, Some(0), "{shown}{message}");
    }
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let place = tempfile::tempdir().unwrap();
        let entries = || std::fs::read_dir(place.path()).unwrap().count();
        let mut child = kilim(&["demo"]).env("TMPDIR", place.path()).spawn().unwrap();
        eventually("the demo makes its directory", || {
            assert!(child.try_wait().unwrap().is_none());
            entries() > 0
        });
        std::thread::sleep(Duration::from_millis(100));
        // SAFETY: the process is our child and not yet waited for, so the id is its own.
        unsafe { libc::kill(child.id() as i32, signal) };
        wait(&mut child);
        assert_eq!(child.wait().unwrap().signal(), Some(signal));
        assert_eq!(entries(), 0);
    }
}
