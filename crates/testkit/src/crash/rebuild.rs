//! A directory as power loss would leave it, rebuilt from the shim's log.
//!
//! The disk is modelled as nodes (files and directories, by inode). Each node has what is durable and a
//! list of later changes. The end of a successful sync moves to the durable side the changes recorded
//! before its *beginning*: of the node only, so a file's content is lost to a crash as long as its name is
//! not durable in its directory, and the other way round.
//!
//! Two variants are laid out: strictly what was synced, and that plus a seeded choice of later changes
//! (any subset of data writes, the last one torn; a prefix of the changes of names, since file systems
//! journal those in order). A store must open from both.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, bail};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::log::{Event, Listed, Record};

/// What of the unsynced changes survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Strict,
    /// A choice that the seed determines.
    Some { seed: u64 },
}

/// When a name is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// Once its directory was synced: all that POSIX promises.
    #[default]
    Strict,
    /// Once anything was synced after it: file systems with one ordered journal, such as ext4 and XFS.
    Journalled,
}

type NodeId = usize;
type Sequence = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NodeKind {
    File,
    Directory,
}

struct Node {
    kind: NodeKind,
    content: Vec<u8>,
    entries: BTreeMap<String, NodeId>,
    pending: Vec<(Sequence, Change)>,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    Truncate { length: u64 },
    Enter { name: String, node: NodeId },
    Remove { name: String },
}

/// Replays a log up to any point.
pub struct Replay {
    nodes: Vec<Node>,
    /// The latest node of each inode number; numbers are used again after a removal.
    by_inode: HashMap<u64, NodeId>,
    root: Option<NodeId>,
    /// Syncs begun and not ended: where they began, and the directory as it was.
    begun: HashMap<u32, (Sequence, Option<Vec<Listed>>)>,
    sequence: Sequence,
    names: Names,
    /// Where the latest of the ended syncs began.
    synced: Sequence,
    /// Syncs that have ended successfully.
    pub syncs: usize,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay::new(Names::Strict)
    }
}

impl Replay {
    pub fn new(names: Names) -> Replay {
        Replay {
            nodes: Vec::new(),
            by_inode: HashMap::new(),
            root: None,
            begun: HashMap::new(),
            sequence: 0,
            names,
            synced: 0,
            syncs: 0,
        }
    }

    /// Takes the next record; says whether it changed what is durable.
    pub fn apply(&mut self, record: &Record) -> Result<bool> {
        self.sequence += 1;
        match &record.event {
            Event::Root => {
                // A later process finds the directory as the earlier one left it: nothing was lost.
                if self.root.is_none() {
                    self.root = Some(self.add(record.inode, NodeKind::Directory));
                }
                self.begun.clear();
            }
            Event::Create { path } => {
                let node = self.add(record.inode, NodeKind::File);
                self.enter(path, node);
            }
            Event::MakeDirectory { path } => {
                let node = self.add(record.inode, NodeKind::Directory);
                self.enter(path, node);
            }
            Event::Write { offset, data } => {
                let change = Change::Write { offset: *offset, data: data.clone() };
                self.change(record.inode, NodeKind::File, change);
            }
            Event::Truncate { length } => {
                self.change(record.inode, NodeKind::File, Change::Truncate { length: *length });
            }
            Event::SyncBegin { sync, listing } => {
                self.begun.insert(*sync, (self.sequence, listing.clone()));
            }
            Event::SyncEnd { sync, succeeded } => {
                let begun = self.begun.remove(sync);
                if let (true, Some((from, listing))) = (*succeeded, begun) {
                    self.make_durable(record.inode, from, listing);
                    self.synced = self.synced.max(from);
                    self.syncs += 1;
                    return Ok(true);
                }
            }
            Event::Rename { from, to, directory } => {
                let kind = if *directory { NodeKind::Directory } else { NodeKind::File };
                let node = self.node(record.inode, kind);
                if let Some(path) = from {
                    self.remove(path);
                }
                if let Some(path) = to {
                    self.enter(path, node);
                }
            }
            Event::Unlink { path } => self.remove(path),
            Event::Link { path } => {
                let node = self.node(record.inode, NodeKind::File);
                self.enter(path, node);
            }
            Event::Mapped => bail!("a file was mapped for writing, which the log cannot follow"),
            Event::Fault { .. } => {}
        }
        Ok(false)
    }

    /// Lays the directory out as power loss now would leave it. `target` is made anew.
    pub fn lay_out(&self, target: &Path, survival: Survival) -> Result<()> {
        if target.exists() {
            fs::remove_dir_all(target)?;
        }
        fs::create_dir_all(target)?;
        let Some(root) = self.root else { return Ok(()) };
        let mut choice = match survival {
            Survival::Strict => None,
            Survival::Some { seed } => Some(StdRng::seed_from_u64(seed)),
        };
        // One point for the whole tree: names are journalled in order across directories.
        let least = match self.names {
            Names::Strict => 0,
            Names::Journalled => self.synced,
        };
        let names_until = choice.as_mut().map_or(least, |rng| rng.random_range(least..=self.sequence));
        let mut laid: HashMap<NodeId, std::path::PathBuf> = HashMap::new();
        let mut open = vec![(root, target.to_path_buf())];
        while let Some((directory, path)) = open.pop() {
            for (name, node) in self.entries(directory, names_until) {
                let place = path.join(&name);
                if self.nodes[node].kind == NodeKind::Directory {
                    fs::create_dir(&place)?;
                    open.push((node, place));
                } else if let Some(first) = laid.get(&node) {
                    fs::hard_link(first, &place)?;
                } else {
                    write_sparse(&place, &self.content(node, choice.as_mut()))?;
                    laid.insert(node, place);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, inode: u64, kind: NodeKind) -> NodeId {
        let node = Node { kind, content: Vec::new(), entries: BTreeMap::new(), pending: Vec::new() };
        self.nodes.push(node);
        self.by_inode.insert(inode, self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// The node of an inode; made now when its creation went past the shim.
    fn node(&mut self, inode: u64, kind: NodeKind) -> NodeId {
        match self.by_inode.get(&inode) {
            Some(&node) => node,
            None => self.add(inode, kind),
        }
    }

    fn change(&mut self, inode: u64, kind: NodeKind, change: Change) {
        let node = self.node(inode, kind);
        self.nodes[node].pending.push((self.sequence, change));
    }

    fn enter(&mut self, path: &str, node: NodeId) {
        if let Some((directory, name)) = self.parent(path) {
            self.nodes[directory].pending.push((self.sequence, Change::Enter { name, node }));
        }
    }

    fn remove(&mut self, path: &str) {
        if let Some((directory, name)) = self.parent(path) {
            self.nodes[directory].pending.push((self.sequence, Change::Remove { name }));
        }
    }

    /// The directory that a path's last name is in, by the names of now.
    fn parent(&self, path: &str) -> Option<(NodeId, String)> {
        let mut directory = self.root?;
        let mut names = path.split('/').filter(|name| !name.is_empty());
        let mut last = names.next()?;
        for name in names {
            directory = *self.entries(directory, Sequence::MAX).get(last)?;
            last = name;
        }
        Some((directory, last.to_owned()))
    }

    fn make_durable(&mut self, inode: u64, from: Sequence, listing: Option<Vec<Listed>>) {
        let kind = if listing.is_some() { NodeKind::Directory } else { NodeKind::File };
        let id = self.node(inode, kind);
        let pending = std::mem::take(&mut self.nodes[id].pending);
        let (durable, later): (Vec<_>, Vec<_>) = pending.into_iter().partition(|(at, _)| *at < from);
        self.nodes[id].pending = later;
        match listing {
            // What the directory really held is truer than the names that passed the shim.
            Some(listing) => {
                let entries = listing.into_iter().map(|listed| {
                    let kind = if listed.directory { NodeKind::Directory } else { NodeKind::File };
                    (listed.name, self.node(listed.inode, kind))
                });
                self.nodes[id].entries = entries.collect();
            }
            None => {
                let content = &mut self.nodes[id].content;
                for (_, change) in &durable {
                    apply_data(content, change);
                }
            }
        }
    }

    fn entries(&self, directory: NodeId, until: Sequence) -> BTreeMap<String, NodeId> {
        let node = &self.nodes[directory];
        let mut entries = node.entries.clone();
        for (_, change) in node.pending.iter().filter(|(at, _)| *at <= until) {
            match change {
                Change::Enter { name, node } => drop(entries.insert(name.clone(), *node)),
                Change::Remove { name } => drop(entries.remove(name)),
                Change::Write { .. } | Change::Truncate { .. } => {}
            }
        }
        entries
    }

    fn content(&self, file: NodeId, choice: Option<&mut StdRng>) -> Cow<'_, [u8]> {
        let node = &self.nodes[file];
        let Some(rng) = choice.filter(|_| !node.pending.is_empty()) else {
            return Cow::Borrowed(&node.content);
        };
        let mut content = node.content.clone();
        // A prefix with a torn end, or any subset: write-back follows no order.
        let prefix = rng.random_bool(0.5);
        let until = rng.random_range(0..=node.pending.len());
        for (index, (_, change)) in node.pending.iter().enumerate() {
            let survives = if prefix { index < until } else { rng.random_bool(0.5) };
            match change {
                Change::Write { offset, data } if prefix && index == until => {
                    let torn = rng.random_range(0..=data.len());
                    apply_data(&mut content, &Change::Write { offset: *offset, data: data[..torn].to_vec() });
                }
                _ if survives => apply_data(&mut content, change),
                _ => {}
            }
        }
        Cow::Owned(content)
    }
}

fn apply_data(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { offset, data } => {
            let (start, end) = (*offset as usize, *offset as usize + data.len());
            if content.len() < end {
                content.resize(end, 0);
            }
            content[start..end].copy_from_slice(data);
        }
        Change::Truncate { length } => content.resize(*length as usize, 0),
        Change::Enter { .. } | Change::Remove { .. } => {}
    }
}

/// Writes a file without its zero pages: preallocated journals are mostly those.
fn write_sparse(path: &Path, content: &[u8]) -> io::Result<()> {
    const PAGE: usize = 4096;
    // Compared as a whole: journals are long, and tests are not built for speed.
    static ZEROES: [u8; PAGE] = [0; PAGE];
    let file = File::create(path)?;
    file.set_len(content.len() as u64)?;
    for (index, page) in content.chunks(PAGE).enumerate() {
        if *page != ZEROES[..page.len()] {
            file.write_all_at(page, (index * PAGE) as u64)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: u64 = 1;

    fn replay(events: &[(u64, Event)]) -> Replay {
        let mut replay = Replay::new(Names::Strict);
        for (inode, event) in events {
            replay.apply(&Record { start: 0, end: 0, inode: *inode, event: event.clone() }).unwrap();
        }
        replay
    }

    fn write(offset: u64, data: &str) -> Event {
        Event::Write { offset, data: data.into() }
    }

    fn begin(sync: u32) -> Event {
        Event::SyncBegin { sync, listing: None }
    }

    fn begin_directory(sync: u32, names: &[(&str, u64)]) -> Event {
        let listed = |&(name, inode): &(&str, u64)| Listed { name: name.into(), inode, directory: false };
        Event::SyncBegin { sync, listing: Some(names.iter().map(listed).collect()) }
    }

    fn end(sync: u32) -> Event {
        Event::SyncEnd { sync, succeeded: true }
    }

    fn laid_out(replay: &Replay, survival: Survival) -> BTreeMap<String, String> {
        let target = tempfile::tempdir().unwrap();
        let place = target.path().join("rebuilt");
        replay.lay_out(&place, survival).unwrap();
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
        };
        fs::read_dir(place).unwrap().map(entry).collect()
    }

    fn check(events: &[(u64, Event)], expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|&(n, c)| (n.to_owned(), c.to_owned())).collect();
        assert_eq!(laid_out(&replay(events), Survival::Strict), expected);
    }

    #[test]
    fn a_synced_file_without_a_synced_name_is_lost() {
        let mut events = vec![
            (ROOT, Event::Root),
            (2, Event::Create { path: "a".into() }),
            (2, write(0, "x")),
            (2, begin(1)),
            (2, end(1)),
        ];
        check(&events, &[]);
        events.extend([(ROOT, begin_directory(2, &[("a", 2)])), (ROOT, end(2))]);
        check(&events, &[("a", "x")]);
    }

    #[test]
    fn what_is_written_while_a_sync_runs_is_not_covered_by_it() {
        check(
            &[
                (ROOT, Event::Root),
                (2, Event::Create { path: "a".into() }),
                (ROOT, begin_directory(1, &[("a", 2)])),
                (ROOT, end(1)),
                (2, write(0, "one")),
                (2, begin(2)),
                (2, write(3, "two")),
                (2, end(2)),
            ],
            &[("a", "one")],
        );
    }

    #[test]
    fn a_journal_keeps_names_made_before_any_later_sync() {
        let events = [
            (ROOT, Event::Root),
            (2, Event::Create { path: "a".into() }),
            (2, write(0, "x")),
            (2, begin(1)),
            (3, Event::Create { path: "b".into() }),
            (2, end(1)),
        ];
        let mut replay = Replay::new(Names::Journalled);
        for (inode, event) in events {
            replay.apply(&Record { start: 0, end: 0, inode, event }).unwrap();
        }
        let expected = BTreeMap::from([("a".to_owned(), "x".to_owned())]);
        assert_eq!(laid_out(&replay, Survival::Strict), expected);
    }

    #[test]
    fn a_failed_sync_makes_nothing_durable() {
        check(
            &[
                (ROOT, Event::Root),
                (2, Event::Create { path: "a".into() }),
                (ROOT, begin_directory(1, &[("a", 2)])),
                (ROOT, end(1)),
                (2, write(0, "one")),
                (2, begin(2)),
                (2, Event::SyncEnd { sync: 2, succeeded: false }),
            ],
            &[("a", "")],
        );
    }

    #[test]
    fn a_rename_counts_from_the_sync_of_its_directory() {
        let mut events = vec![
            (ROOT, Event::Root),
            (2, Event::Create { path: "a.new".into() }),
            (2, write(0, "x")),
            (2, begin(1)),
            (2, end(1)),
            (ROOT, begin_directory(2, &[("a.new", 2)])),
            (ROOT, end(2)),
            (2, Event::Rename { from: Some("a.new".into()), to: Some("a".into()), directory: false }),
        ];
        check(&events, &[("a.new", "x")]);
        events.extend([(ROOT, begin_directory(3, &[("a", 2)])), (ROOT, end(3))]);
        check(&events, &[("a", "x")]);
    }

    #[test]
    fn an_inode_number_used_again_is_another_file() {
        check(
            &[
                (ROOT, Event::Root),
                (2, Event::Create { path: "a".into() }),
                (2, write(0, "old")),
                (2, begin(1)),
                (2, end(1)),
                (2, Event::Unlink { path: "a".into() }),
                (2, Event::Create { path: "b".into() }),
                (ROOT, begin_directory(2, &[("b", 2)])),
                (ROOT, end(2)),
            ],
            &[("b", "")],
        );
    }

    #[test]
    fn some_survival_gives_different_choices_for_different_seeds_and_the_same_for_the_same() {
        let mut events = vec![
            (ROOT, Event::Root),
            (2, Event::Create { path: "a".into() }),
            (ROOT, begin_directory(1, &[("a", 2)])),
            (ROOT, end(1)),
        ];
        for at in 0..8 {
            events.push((2, write(at, "x")));
        }
        let replay = replay(&events);
        let with = |seed| laid_out(&replay, Survival::Some { seed });
        assert_eq!(with(5), with(5));
        assert!((0..20).any(|seed| with(seed) != with(0)));
    }
}
