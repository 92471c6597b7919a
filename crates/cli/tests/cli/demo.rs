//! `kilim demo`: what it shows is true, and it leaves nothing behind.

use crate::running::{Running, output};

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
