//! Every page of a tree: to give it up, or to check it.

use super::builder::Edit;
use super::file::{Kind, PageFile};
use super::page::{Page, Value};
use super::{PagePtr, Root, TreeName};
use kilim_error::{Error, Result, StorageError};

/// Gives all pages of a tree up. What hangs below a damaged page cannot be found and stays allocated. An error of the
/// disk may pass, so it is no reason to lose pages: it is returned.
pub(crate) fn give_up(edit: &mut Edit, tree: TreeName, root: &Root) -> Result<()> {
    let mut waiting = vec![(root.page, root.level)];
    while let Some((at, level)) = waiting.pop() {
        edit.give_up(at);
        if level == 0 && root.overflows == 0 {
            continue;
        }
        let below = edit.file.page(at, Kind { tree, level }).and_then(|page| pages_below(&page, level));
        match below {
            Ok((children, overflows)) => {
                waiting.extend(children.into_iter().map(|child| (child, level - 1)));
                overflows.into_iter().for_each(|page| edit.give_up(page));
            }
            Err(error @ Error::Storage(StorageError::Io(_))) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "a dropped tree is damaged; what hangs below the damage stays allocated");
            }
        }
    }
    Ok(())
}

/// An inner page's children, or the long values of a leaf.
pub(crate) fn pages_below(page: &Page, level: u8) -> Result<(Vec<PagePtr>, Vec<PagePtr>)> {
    let (mut children, mut overflows) = (Vec::new(), Vec::new());
    for place in 0..page.count() {
        if level > 0 {
            children.push(page.child(place)?);
        } else if let Value::Overflow(at) = page.value(place)? {
            overflows.push(at);
        }
    }
    Ok((children, overflows))
}

/// What a check of a tree found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checked {
    pub(crate) rows: u64,
    pub(crate) pages: u64,
    /// Every page with its level, for a check of the blocks.
    pub(crate) places: Vec<PagePtr>,
    /// What is wrong, a sentence each.
    pub(crate) problems: Vec<String>,
}

/// Reads every page from disk and checks it: checksums, the order of keys, the bounds that parents give.
pub(crate) fn check(file: &PageFile, tree: TreeName, root: &Root) -> Checked {
    let mut found = Checked::default();
    check_node(file, tree, root.page, root.level, (None, None), &mut found);
    if found.problems.is_empty() && found.rows != root.rows {
        found.problems.push(format!("{tree}: the root counts {} rows, there are {}", root.rows, found.rows));
    }
    found
}

fn check_node(
    file: &PageFile,
    tree: TreeName,
    at: PagePtr,
    level: u8,
    (lower, upper): (Option<&[u8]>, Option<&[u8]>),
    found: &mut Checked,
) {
    let kind = Kind { tree, level };
    found.pages += 1;
    found.places.push(at);
    let page = match file.read(at, kind).and_then(Page::decode) {
        Ok(page) => page,
        Err(error) => return found.problems.push(error.to_string()),
    };
    let mut problem = |how: &str| found.problems.push(file.damaged(at, kind, how).to_string());
    for place in 0..page.count() {
        let key = page.key(place);
        // The first key of an inner page stands for everything below it.
        let bound = level == 0 || place > 0;
        if bound && (lower.is_some_and(|lower| key < lower) || upper.is_some_and(|upper| key >= upper)) {
            problem("a key lies outside of what its parent says");
        }
        if place > 0 && page.key(place - 1) >= key {
            problem("its keys do not ascend");
        }
    }
    if page.count() == 0 {
        problem("it is empty");
    }
    for place in 0..page.count() {
        if level == 0 {
            found.rows += 1;
            if let Ok(Value::Overflow(at)) = page.value(place) {
                found.pages += 1;
                found.places.push(at);
                if let Err(error) = file.read(at, Kind { tree, level: super::file::OVERFLOW_LEVEL }) {
                    found.problems.push(error.to_string());
                }
            }
            continue;
        }
        let lower = if place == 0 { lower } else { Some(page.key(place)) };
        let upper = if place + 1 < page.count() { Some(page.key(place + 1)) } else { upper };
        match page.child(place) {
            Ok(child) => check_node(file, tree, child, level - 1, (lower, upper), found),
            Err(error) => found.problems.push(error.to_string()),
        }
    }
}
