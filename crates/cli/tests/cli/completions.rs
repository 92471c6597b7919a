//! What shells and `man` are given.

use crate::running::output;

#[test]
fn completions_and_manual_name_the_commands() {
    for arguments in
        [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]]
    {
        let (code, shown, message) = output(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {message}");
        assert!(shown.contains("pattern") && shown.contains("apply"), "{arguments:?}: {shown}");
    }
    let (code, shown, _) = output(&["man", "pattern", "verify"]);
    assert!(code == Some(0) && shown.contains("exit code 3"), "{shown}");
    let (code, _, message) = output(&["man", "weave"]);
    assert!(code == Some(1) && message.contains("weave"), "{message}");
}
