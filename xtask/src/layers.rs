//! The arrows between the modules of a crate.
//!
//! The engine's modules stand in one list, the table in `docs/ARCHITECTURE.md`, and each uses only those above it. A
//! use is `crate::module` in the sources, or a call of a method that a module adds to a type of another. The modules of
//! every other crate use each other without circles; those circles that are left stand in [`KNOTS`], from which they
//! may only go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// Circles that are left: each crate's modules that use each other. What is untied is taken off this list.
const KNOTS: &[(&str, &[&str])] = &[
    ("patterns", &["declaration", "effect", "kind", "rollup"]),
    ("query", &["accumulator", "expression", "filter", "sort", "text"]),
    ("query", &["projection", "stage", "update"]),
    ("kilim", &["action", "collection", "command", "cursor", "database", "session"]),
    (
        "commands",
        &[
            "about",
            "access",
            "argument",
            "client",
            "collation",
            "command",
            "concern",
            "cursor_reply",
            "dispatch",
            "ended",
            "kept",
            "privilege",
            "registry",
            "request",
            "session",
            "telling",
            "variables",
        ],
    ),
    (
        "storage",
        &[
            "backend",
            "background",
            "backup",
            "check",
            "log",
            "memtable",
            "overlay",
            "queue",
            "rebuild",
            "reclaim",
            "runs",
            "snapshot",
            "store",
            "transaction",
            "tree",
        ],
    ),
];

/// The sources of a crate by module, without comments and tests.
type Sources = BTreeMap<String, Vec<String>>;
/// For each module those that it uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

pub fn check() -> Result<()> {
    let root = workspace::root();
    let map = std::fs::read_to_string(root.join("docs/ARCHITECTURE.md"))?;
    let mut faults = faults_in_list(&listed(&map)?, &sources(&root.join("crates/engine/src"))?);
    for entry in std::fs::read_dir(root.join("crates"))? {
        let folder = entry?;
        let name = folder.file_name().to_string_lossy().into_owned();
        let allowed: Vec<BTreeSet<String>> = (KNOTS.iter().filter(|(of, _)| *of == name))
            .map(|(_, modules)| modules.iter().map(|module| (*module).to_owned()).collect())
            .collect();
        faults.extend(faults_in_knots(&name, &knots(&uses(&sources(&folder.path().join("src"))?)), &allowed));
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// The engine's modules in the order of the table.
fn listed(map: &str) -> Result<Vec<String>> {
    let (_, section) =
        map.split_once("## The layers of the engine").context("the engine's layers are listed")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    Ok(rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect())
}

fn sources(folder: &Path) -> Result<Sources> {
    let mut sources = Sources::new();
    for file in workspace::files(folder, "rs")? {
        let path = file.strip_prefix(folder)?;
        let module = path.iter().next().map(Path::new).and_then(Path::file_stem).unwrap_or_default();
        let module = module.to_string_lossy().into_owned();
        let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs");
        if is_test || path == Path::new("lib.rs") || path == Path::new("main.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file)?;
        sources.entry(module).or_default().push(bare(&text));
    }
    Ok(sources)
}

/// A source without comments, and without the tests at its end.
fn bare(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn uses(sources: &Sources) -> Uses {
    let mut uses = Uses::new();
    for (module, texts) in sources {
        let used = uses.entry(module.clone()).or_default();
        let named = texts.iter().flat_map(|text| named_in(text));
        used.extend(named.filter(|name| name != module && sources.contains_key(name)));
    }
    uses
}

/// The modules that a source names: `crate::a::…` and `use crate::{a::…, b}`.
fn named_in(text: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => drop(named.insert(word(rest))),
            Some(list) => {
                let mut depth = 0;
                let mut first = true;
                for (at, char) in list.char_indices() {
                    match char {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => first = true,
                        char if first && !char.is_whitespace() => {
                            named.insert(word(&list[at..]));
                            first = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    named
}

fn word(text: &str) -> String {
    text.chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect()
}

fn faults_in_list(list: &[String], sources: &Sources) -> Vec<String> {
    let place = |module: &str| list.iter().position(|listed| listed == module);
    let mut faults = Vec::new();
    for module in sources.keys().filter(|module| place(module).is_none()) {
        faults.push(format!("engine/{module} has no place in the table of docs/ARCHITECTURE.md"));
    }
    for module in list.iter().filter(|module| !sources.contains_key(*module)) {
        faults.push(format!("docs/ARCHITECTURE.md lists engine/{module}, which there is not"));
    }
    for (module, used) in uses(sources) {
        for used in used.iter().filter(|used| place(used) > place(&module)) {
            faults.push(format!("engine/{module} may not use engine/{used}: uses point up the table"));
        }
    }
    for (method, (owner, of)) in added_methods(sources) {
        let call = format!(".{method}(");
        // Another type may have a method of that name: a source that does not speak of this type means the other.
        let speaks = |text: &String| text.contains(&of) || text.contains(&of.to_lowercase());
        for (module, texts) in sources.iter().filter(|(module, _)| place(module) < place(&owner)) {
            if texts.iter().any(|text| text.contains(&call) && speaks(text)) {
                faults
                    .push(format!("engine/{module} may not call {of}::{method}, which engine/{owner} adds"));
            }
        }
    }
    faults
}

/// Methods that a module adds to a type of another: by name the module and the type. Names that several have are left
/// out, since a call does not tell whose it is.
fn added_methods(sources: &Sources) -> BTreeMap<String, (String, String)> {
    let mut homes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, texts) in sources {
        for line in texts.iter().flat_map(|text| text.lines()) {
            let declared =
                line.trim_start().split_once("struct ").or_else(|| line.trim_start().split_once("enum "));
            if let Some((before, name)) = declared
                && (before.is_empty() || before.starts_with("pub"))
            {
                homes.entry(word(name)).or_default().insert(module.clone());
            }
        }
    }
    let mut methods: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for (module, texts) in sources {
        for text in texts {
            let mut of = None;
            for line in text.lines() {
                if let Some(rest) = line.strip_prefix("impl") {
                    let rest = rest.trim_start_matches(|char| char != ' ').trim_start();
                    of = (!line.contains(" for ")).then(|| word(rest));
                } else if line == "}" {
                    of = None;
                } else if let (Some(of), Some((before, name))) = (&of, line.split_once("fn "))
                    && line.starts_with("    ")
                    && !line.starts_with("     ")
                    && (before.trim().is_empty() || before.trim().starts_with("pub"))
                {
                    methods.entry(word(name)).or_default().push((module.clone(), of.clone()));
                }
            }
        }
    }
    let added = |(name, owners): (String, Vec<(String, String)>)| match &owners[..] {
        [(module, of)] if homes.get(of).is_some_and(|homes| !homes.contains(module)) => {
            Some((name, (module.clone(), of.clone())))
        }
        _ => None,
    };
    methods.into_iter().filter_map(added).collect()
}

/// Sets of modules that use each other, directly or by way of others.
fn knots(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            next.extend(uses[module].iter().filter(|used| reached.insert((*used).clone())));
        }
        reached
    };
    let reaches: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|module| (module, reached(module))).collect();
    let mut knots: Vec<BTreeSet<String>> = Vec::new();
    for (module, reached) in &reaches {
        let knot: BTreeSet<String> =
            reached.iter().filter(|other| reaches[*other].contains(*module)).cloned().collect();
        if knot.len() > 1 && !knots.contains(&knot) {
            knots.push(knot);
        }
    }
    knots
}

fn faults_in_knots(name: &str, found: &[BTreeSet<String>], allowed: &[BTreeSet<String>]) -> Vec<String> {
    let shown = |knot: &BTreeSet<String>| knot.iter().cloned().collect::<Vec<_>>().join(", ");
    let new = found.iter().filter(|knot| !allowed.contains(knot));
    let gone = allowed.iter().filter(|knot| !found.contains(knot));
    new.map(|knot| format!("the modules of {name} use each other in a circle: {}", shown(knot)))
        .chain(
            gone.map(|knot| {
                format!("{name} has no such circle any more, take it off KNOTS: {}", shown(knot))
            }),
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(modules: &[(&str, &str)]) -> Sources {
        modules.iter().map(|(module, text)| ((*module).to_owned(), vec![bare(text)])).collect()
    }

    #[test]
    fn the_engine_and_the_other_crates_keep_their_order() {
        check().unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn a_use_down_the_list_is_found() {
        let list = ["ids", "index", "write"].map(str::to_owned);
        let right = of(&[
            ("ids", "// crate::write"),
            ("index", "use crate::ids::Id;"),
            ("write", "crate::index::x()"),
        ]);
        assert_eq!(faults_in_list(&list, &right), Vec::<String>::new());
        let wrong =
            of(&[("ids", ""), ("index", "use crate::{ids::Id, write};"), ("write", ""), ("novel", "")]);
        assert_eq!(faults_in_list(&list, &wrong).len(), 2);
    }

    #[test]
    fn a_method_that_a_lower_module_adds_is_found() {
        let list = ["engine", "unit", "write"].map(str::to_owned);
        let wrong = of(&[
            ("engine", "pub struct Engine {\n}\nimpl Engine {\n    pub fn open(&self) {}\n}"),
            ("unit", "fn enter(engine: &Engine) { engine.put() }"),
            ("write", "impl Engine {\n    pub(crate) fn put(&self) {}\n}"),
        ]);
        assert_eq!(faults_in_list(&list, &wrong).len(), 1);
    }

    #[test]
    fn a_circle_is_found_and_one_that_is_gone_is_taken_off_the_list() {
        let tied = uses(&of(&[("a", "crate::b"), ("b", "crate::c"), ("c", "crate::a"), ("d", "crate::a")]));
        let knot: BTreeSet<String> = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(knots(&tied), std::slice::from_ref(&knot));
        assert_eq!(faults_in_knots("x", std::slice::from_ref(&knot), &[]).len(), 1);
        assert_eq!(faults_in_knots("x", &[], &[knot]).len(), 1);
    }
}
