//! Unique key: many clients race for few values of a unique field.
//!
//! Each document belongs to one client, which therefore knows at every moment what it holds; after a
//! broken connection it looks. A hold has a certain part (from the acknowledgement of the acquisition to
//! the sending of the release) and a possible one (from the sending to the acknowledgement). Two certain
//! holds of one value may not overlap, a refusal as duplicate needs a possible hold by another document
//! within its time, and at the end exactly the held values are there.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Result, bail, ensure};
use kilim_bson::{Document, RawValue, doc};
use rand::Rng;

use super::pressure::{Client, Outcome, Plan, Report, press};
use crate::link::{Fault, whole};
use crate::subject::Subject;

const DATABASE: &str = "unique";
const COLLECTION: &str = "holders";
const DUPLICATE_KEY: i32 = 11000;
/// Documents of one client.
const SLOTS: usize = 3;

/// A value that a document had.
#[derive(Debug, Clone)]
pub struct Hold {
    pub document: String,
    pub value: i32,
    pub asked: u64,
    pub acquired: u64,
    /// When the release was asked for and when it was over; absent when it was held to the end.
    pub releasing: Option<u64>,
    pub released: Option<u64>,
}

/// A refusal as duplicate.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub document: String,
    pub value: i32,
    pub asked: u64,
    pub refused: u64,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub holds: Vec<Hold>,
    pub refusals: Vec<Refusal>,
    /// All documents at the end, and in each snapshot that a client read meanwhile.
    pub last: BTreeMap<String, i32>,
    pub snapshots: Vec<Vec<i32>>,
    pub unknown: usize,
}

pub fn run(subject: &Subject, plan: &Plan) -> Result<Report> {
    let prepare = |link: &mut crate::link::Link| {
        let index = doc! {"key": {"value": 1}, "name": "value", "unique": true};
        let concern = doc! {"w": "majority", "j": true};
        link.run(DATABASE, doc! {"createIndexes": COLLECTION, "indexes": [index], "writeConcern": concern})?;
        Ok(())
    };
    // Fewer values than documents: some always fail to get one.
    let values = (plan.clients * SLOTS * 2 / 3).max(2) as i32;
    let (parts, kills, running) = press(subject, plan, prepare, |client| {
        let mut holder = Holder::new(client.id);
        while client.take().is_some() {
            if client.rng.random_bool(0.1) {
                holder.read_all(client)?;
            } else {
                holder.act(client, values)?;
            }
        }
        Ok(holder.finish())
    })?;

    let mut history = History::default();
    for part in parts {
        history.holds.extend(part.holds);
        history.refusals.extend(part.refusals);
        history.snapshots.extend(part.snapshots);
        history.unknown += part.unknown;
    }
    let mut link = running.connect()?;
    for hint in [doc! {"$natural": 1}, doc! {"value": 1}] {
        history.last.clear();
        for document in link.all(DATABASE, doc! {"find": COLLECTION, "hint": hint})? {
            let id = document.get("_id").and_then(RawValue::as_str).unwrap_or("").to_owned();
            ensure!(history.last.insert(id, value_of(&document)).is_none(), "a document is there twice");
        }
        check(&history)?;
    }
    let report = link.run(DATABASE, doc! {"validate": COLLECTION, "full": true})?;
    ensure!(report.get("valid").and_then(RawValue::as_bool) == Some(true), "{report:?}");
    Ok(Report {
        committed: history.holds.len(),
        aborted: history.refusals.len(),
        unknown: history.unknown,
        reads: history.snapshots.len(),
        kills,
    })
}

pub fn check(history: &History) -> Result<()> {
    for values in &history.snapshots {
        let mut seen = HashSet::new();
        ensure!(values.iter().all(|value| seen.insert(value)), "two holders in one snapshot: {values:?}");
    }
    let mut by_value: BTreeMap<i32, Vec<&Hold>> = BTreeMap::new();
    for hold in &history.holds {
        by_value.entry(hold.value).or_default().push(hold);
    }
    for holds in by_value.values_mut() {
        holds.sort_by_key(|hold| hold.acquired);
        let mut latest: Option<&Hold> = None;
        for &hold in holds.iter() {
            let certain_end = |hold: &Hold| hold.releasing.unwrap_or(u64::MAX);
            if let Some(before) = latest
                && certain_end(before) > hold.acquired
                && certain_end(hold) > hold.acquired
            {
                bail!("two holders at once: {before:?} and {hold:?}");
            }
            if latest.is_none_or(|before| certain_end(before) < certain_end(hold)) {
                latest = Some(hold);
            }
        }
    }
    for refusal in &history.refusals {
        let possible = |hold: &&&Hold| {
            hold.document != refusal.document
                && hold.asked <= refusal.refused
                && hold.released.unwrap_or(u64::MAX) >= refusal.asked
        };
        let holder = by_value.get(&refusal.value).and_then(|holds| holds.iter().find(possible));
        ensure!(holder.is_some(), "refused as duplicate while nobody held it: {refusal:?}");
    }
    let held = history.holds.iter().filter(|hold| hold.released.is_none());
    let held: BTreeMap<String, i32> = held.map(|hold| (hold.document.clone(), hold.value)).collect();
    let lost: Vec<_> = held.iter().filter(|(id, value)| history.last.get(*id) != Some(value)).collect();
    ensure!(lost.is_empty(), "acknowledged holders are lost: {lost:?}");
    let stray: Vec<_> = history.last.iter().filter(|(id, _)| !held.contains_key(*id)).collect();
    ensure!(stray.is_empty(), "holders that nobody holds: {stray:?}");
    let values: HashSet<&i32> = history.last.values().collect();
    ensure!(values.len() == history.last.len(), "one value has two holders: {:?}", history.last);
    Ok(())
}

fn value_of(document: &Document) -> i32 {
    whole(document.get("value")).unwrap_or(-1) as i32
}

/// One client's documents.
struct Holder {
    name: usize,
    /// The current document of each slot, with the index of its hold.
    slots: Vec<Option<(String, usize)>>,
    made: usize,
    history: History,
}

enum Change {
    Insert(i32),
    Move(i32),
    Delete,
    /// In one transaction, the document goes and another takes its value.
    HandOver,
}

impl Holder {
    fn new(name: usize) -> Holder {
        Holder { name, slots: vec![None; SLOTS], made: 0, history: History::default() }
    }

    fn act(&mut self, client: &mut Client<'_>, values: i32) -> Result<()> {
        let slot = client.rng.random_range(0..SLOTS);
        let value = client.rng.random_range(0..values);
        let change = match (&self.slots[slot], client.rng.random_range(0..10)) {
            (None, _) => Change::Insert(value),
            (Some(_), 0..5) => Change::Move(value),
            (Some(_), 5..7) => Change::Delete,
            (Some(_), _) => Change::HandOver,
        };
        let concern = || doc! {"w": "majority", "j": true};
        let old = self.slots[slot].clone();
        let old_value = old.as_ref().map(|(_, hold)| self.history.holds[*hold].value);
        self.made += 1;
        let new_id = format!("{}-{}", self.name, self.made);
        let old_id = old.as_ref().map_or("", |(id, _)| id);
        let asked = client.now();
        let (outcome, wanted): (Result<(), Fault>, Option<(String, i32)>) = match change {
            Change::Insert(value) => {
                let document = doc! {"_id": new_id.clone(), "value": value};
                let insert = doc! {"insert": COLLECTION, "documents": [document], "writeConcern": concern()};
                (client.run(DATABASE, insert)?.map(drop), Some((new_id, value)))
            }
            Change::Move(value) => {
                let update = doc! {"q": {"_id": old_id}, "u": {"$set": {"value": value}}};
                let update = doc! {"update": COLLECTION, "updates": [update], "writeConcern": concern()};
                (client.run(DATABASE, update)?.map(drop), Some((old_id.to_owned(), value)))
            }
            Change::Delete => {
                let delete = doc! {"q": {"_id": old_id}, "limit": 1};
                let delete = doc! {"delete": COLLECTION, "deletes": [delete], "writeConcern": concern()};
                (client.run(DATABASE, delete)?.map(drop), None)
            }
            Change::HandOver => {
                let value = old_value.expect("a document in a slot has a value");
                let outcome = client.transact(|transaction| {
                    let delete = doc! {"q": {"_id": old_id}, "limit": 1};
                    transaction.run(DATABASE, doc! {"delete": COLLECTION, "deletes": [delete]})?;
                    let document = doc! {"_id": new_id.clone(), "value": value};
                    transaction.run(DATABASE, doc! {"insert": COLLECTION, "documents": [document]})?;
                    Ok(true)
                })?;
                let lost = || Fault::Lost(std::io::ErrorKind::ConnectionAborted.into());
                match outcome {
                    Outcome::Committed => (Ok(()), Some((new_id, value))),
                    Outcome::Unknown => (Err(lost()), Some((new_id, value))),
                    Outcome::Aborted => return Ok(()),
                }
            }
        };
        let took_effect = match outcome {
            Ok(()) => true,
            Err(fault) if fault.code() == Some(DUPLICATE_KEY) => {
                let (document, value) = wanted.expect("only who wants a value can be refused one");
                self.history.refusals.push(Refusal { document, value, asked, refused: client.now() });
                return Ok(());
            }
            Err(fault) if fault.is_unknown() => {
                self.history.unknown += 1;
                self.look(client, old.as_ref().map(|(id, _)| id), old_value, wanted.as_ref())?
            }
            // mongod gives up on a conflict when it has lasted long.
            Err(fault) if fault.code() == Some(112) => return Ok(()),
            Err(fault) => bail!("a holder was refused: {fault}"),
        };
        // A move to the value that it has already changes nothing.
        let unchanged = wanted.as_ref().is_some_and(|(id, value)| id == old_id && Some(*value) == old_value);
        if took_effect && !unchanged {
            let now = client.now();
            if let Some((_, hold)) = old {
                let hold = &mut self.history.holds[hold];
                (hold.releasing, hold.released) = (Some(asked), Some(now));
            }
            self.slots[slot] = wanted.map(|(document, value)| {
                let hold = Hold {
                    document: document.clone(),
                    value,
                    asked,
                    acquired: now,
                    releasing: None,
                    released: None,
                };
                self.history.holds.push(hold);
                (document, self.history.holds.len() - 1)
            });
        }
        Ok(())
    }

    /// After a broken connection: whether the change took effect. Anything between is half applied.
    fn look(
        &self,
        client: &mut Client<'_>,
        old: Option<&String>,
        old_value: Option<i32>,
        wanted: Option<&(String, i32)>,
    ) -> Result<bool> {
        let before: BTreeMap<String, i32> = old.cloned().zip(old_value).into_iter().collect();
        let after: BTreeMap<String, i32> = wanted.cloned().into_iter().collect();
        let ids: Vec<kilim_bson::Value> =
            before.keys().chain(after.keys()).map(kilim_bson::Value::from).collect();
        let find = doc! {"find": COLLECTION, "filter": {"_id": {"$in": ids}}};
        let found: BTreeMap<String, i32> = client
            .read(DATABASE, find)?
            .iter()
            .map(|d| (d.get("_id").and_then(RawValue::as_str).unwrap_or("").to_owned(), value_of(d)))
            .collect();
        ensure!(found == before || found == after, "{found:?} is neither {before:?} nor {after:?}");
        Ok(found == after)
    }

    fn read_all(&mut self, client: &mut Client<'_>) -> Result<()> {
        let mut seen = Vec::new();
        let outcome = client.transact(|transaction| {
            let find = doc! {"find": COLLECTION, "batchSize": 10_000};
            let reply = transaction.run(DATABASE, find)?;
            let cursor = reply.get("cursor").and_then(RawValue::as_document);
            let batch = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
            let documents = batch.into_iter().flat_map(|b| b.iter().filter_map(RawValue::as_document));
            seen = documents.filter_map(|d| whole(d.get("value"))).map(|value| value as i32).collect();
            Ok(true)
        })?;
        if outcome == Outcome::Committed {
            self.history.snapshots.push(seen);
        }
        Ok(())
    }

    fn finish(self) -> History {
        self.history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(document: &str, acquire: [u64; 2], release: Option<[u64; 2]>) -> Hold {
        Hold {
            document: document.into(),
            value: 1,
            asked: acquire[0],
            acquired: acquire[1],
            releasing: release.map(|r| r[0]),
            released: release.map(|r| r[1]),
        }
    }

    fn sound() -> History {
        History {
            holds: vec![hold("a", [0, 1], Some([5, 8])), hold("b", [6, 7], None)],
            refusals: vec![Refusal { document: "c".into(), value: 1, asked: 2, refused: 3 }],
            last: BTreeMap::from([("b".to_owned(), 1)]),
            snapshots: vec![vec![1], vec![]],
            unknown: 0,
        }
    }

    #[test]
    fn a_sound_history_passes_and_each_fault_is_found() {
        check(&sound()).unwrap();
        type Fault = (&'static str, fn(&mut History));
        let faults: [Fault; 6] = [
            ("at once", |h| h.holds[0].releasing = Some(8)),
            ("snapshot", |h| h.snapshots.push(vec![2, 3, 2])),
            ("nobody held", |h| h.refusals[0].value = 9),
            ("lost", |h| h.last.clear()),
            ("nobody holds", |h| h.last.extend([("z".to_owned(), 4)])),
            ("nobody held", |h| h.refusals[0].document = "a".into()),
        ];
        for (word, put_in) in faults {
            let mut history = sound();
            put_in(&mut history);
            let found = check(&history).unwrap_err().to_string();
            assert!(found.contains(word), "{word}: {found}");
        }
    }
}
