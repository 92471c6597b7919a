//! The arrows between crates: each may use only those above it in this list (`docs/ARCHITECTURE.md`).

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// From the top.
const LAYERS: &[&str] = &[
    "kilim-error",
    "kilim-memory",
    "kilim-bson",
    "kilim-collation",
    "kilim-text",
    "kilim-geo",
    "kilim-auth",
    "kilim-tls",
    "kilim-wire",
    "kilim-client",
    "kilim-storage",
    "kilim-migrate",
    "kilim-query",
    "kilim-transfer",
    "kilim-patterns",
    "kilim-engine",
    "kilim-commands",
    "kilim",
    "kilim-server",
    "kilim-advisor",
    "kilim-agent",
    "kilim-console",
    "kilim-cli",
    "kilim-testkit",
    "kilim-fuzz",
    "kilim-bench",
    "xtask",
];

/// Arrows that point up the list and still may not be: these crates know nothing of each other.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("kilim-storage", "kilim-bson", "storage holds ordered bytes"),
    ("kilim-storage", "kilim-wire", "storage holds ordered bytes"),
    ("kilim-query", "kilim-storage", "queries are pure"),
    ("kilim-query", "kilim-wire", "only wire, server and tests know opcodes"),
    ("kilim-patterns", "kilim-storage", "patterns ask through a trait of their own"),
    ("kilim-engine", "kilim-wire", "only wire, server and tests know opcodes"),
    ("kilim-commands", "kilim-wire", "only wire, server and tests know opcodes"),
];

pub fn check() -> Result<()> {
    let metadata = workspace::metadata()?;
    let faults = faults(&metadata)?;
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

fn faults(metadata: &serde_json::Value) -> Result<Vec<String>> {
    let layer = |name: &str| LAYERS.iter().position(|known| *known == name);
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().context("metadata lists packages")? {
        let name = package["name"].as_str().context("a package has a name")?;
        let Some(own) = layer(name) else {
            faults.push(format!("{name} has no place in the list of xtask/src/arrows.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().context("a package lists dependencies")? {
            let used = dependency["name"].as_str().unwrap_or_default();
            // Tests may look anywhere above themselves or use the test kit.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            if layer(used).is_some_and(|place| place >= own) {
                faults.push(format!("{name} may not use {used}: dependencies point up the list"));
            }
            if let Some((.., why)) = FORBIDDEN.iter().find(|(from, to, _)| *from == name && *to == used) {
                faults.push(format!("{name} may not use {used}: {why}"));
            }
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dependency_points_up_the_list() {
        check().unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn a_wrong_arrow_is_found() {
        let metadata = serde_json::json!({"packages": [
            {"name": "kilim-bson", "dependencies": [{"name": "kilim-query", "kind": null}]},
            {"name": "kilim-query", "dependencies": [{"name": "kilim-storage"}, {"name": "serde"}]},
            {"name": "kilim-novel", "dependencies": []},
        ]});
        assert_eq!(faults(&metadata).unwrap().len(), 3);
    }
}
