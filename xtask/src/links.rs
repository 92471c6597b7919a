//! Links between the documents of the repository lead somewhere.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::workspace;

pub fn check() -> Result<()> {
    let root = workspace::root();
    let mut pages: Vec<_> = std::fs::read_dir(&root)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    for folder in ["docs", "specs"] {
        pages.extend(workspace::files(&root.join(folder), "md")?);
    }
    let mut broken = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page)?;
        let folder = page.parent().unwrap_or(&root);
        for link in relative_links(&text) {
            if !folder.join(link).exists() {
                let page = page.strip_prefix(&root).unwrap_or(&page);
                broken.push(format!("{}: {link} does not exist", page.display()));
            }
        }
    }
    ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

/// Targets of `[text](target)` outside code, without fragments; addresses elsewhere are not looked at.
fn relative_links(text: &str) -> Vec<&str> {
    let mut links = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        // Every second part between backquotes is code.
        for prose in line.split('`').step_by(2).filter(|_| !fenced) {
            for part in prose.split("](").skip(1) {
                let target = part.split([')', '#', ' ']).next().unwrap_or_default();
                let elsewhere = target.contains("://") || target.starts_with("mailto:");
                if !target.is_empty() && !elsewhere && !Path::new(target).is_absolute() {
                    links.push(target);
                }
            }
        }
        // A link whose text is code is split by its backquotes, so its target begins a part.
        if !fenced {
            let after_code = line.split('`').skip(2).step_by(2).filter_map(|part| part.strip_prefix("]("));
            links.extend(
                after_code
                    .filter_map(|part| part.split([')', '#']).next())
                    .filter(|it| !it.is_empty() && !it.contains("://")),
            );
        }
    }
    links.sort_unstable();
    links.dedup();
    links
}

#[cfg(test)]
mod tests {
    use super::relative_links;

    #[test]
    fn links_are_found_outside_code() {
        let text = "See [a](b.md#part) and [`code`](c/d.rs), not [e](https://example.com) nor `[f](g)`.\n```\n[h](i)\n```\n";
        assert_eq!(relative_links(text), ["b.md", "c/d.rs"]);
    }
}
