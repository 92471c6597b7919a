//! Turns `codes.toml` into constants and a name table.
//!
//! The table is flat `Name = number` lines, so it is read line by line instead of with a TOML
//! parser: this crate is at the root of the workspace and everything waits for it to build.

use std::fmt::Write as _;

fn main() {
    println!("cargo::rerun-if-changed=codes.toml");
    let table = std::fs::read_to_string("codes.toml").expect("codes.toml lies beside build.rs");
    let mut codes: Vec<(i32, &str)> = table
        .lines()
        .filter_map(|line| line.split('#').next()?.split_once('='))
        .map(|(name, code)| (code.trim().parse().expect("a code is a number"), name.trim()))
        .collect();
    codes.sort_unstable();
    for pair in codes.windows(2) {
        assert!(pair[0].0 != pair[1].0, "{} and {} share code {}", pair[0].1, pair[1].1, pair[0].0);
    }

    let mut out = String::from("#[allow(non_upper_case_globals, missing_docs)]\nimpl ErrorCode {\n");
    for (code, name) in &codes {
        writeln!(out, "    pub const {name}: ErrorCode = ErrorCode({code});").unwrap();
    }
    out.push_str("}\n\n/// Sorted by code, for binary search.\nconst NAMES: &[(i32, &str)] = &[\n");
    for (code, name) in &codes {
        writeln!(out, "    ({code}, {name:?}),").unwrap();
    }
    out.push_str("];\n");
    let dir = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(format!("{dir}/codes.rs"), out).expect("OUT_DIR is writable");
}
