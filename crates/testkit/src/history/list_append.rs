//! List append: transactions append unique numbers to lists and read them.
//!
//! A list read shows the order of all appends before it, so the order of versions of a key needs no
//! guessing (the idea of the Elle checker). What is looked for: acknowledged appends that are lost,
//! appends that are there twice, reads that contradict the final order, reads of aborted (G1a) and
//! intermediate (G1b) writes, transactions that do not see their own appends, and cycles that snapshot
//! isolation forbids, real time included: who begins after an acknowledgement sees what was acknowledged.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::{Result, bail, ensure};
use kilim_bson::{Document, RawValue, doc};
use rand::Rng;

use super::cycle::{Edge, Graph, name};
use super::pressure::{Outcome, Plan, Report, press};
use crate::link::{Fault, whole};
use crate::subject::Subject;

const DATABASE: &str = "append";
const COLLECTION: &str = "lists";
/// Keys in use at one moment: few, so that transactions meet.
const KEYS_AT_ONCE: usize = 5;
/// Attempts after which a key goes out of use: lists stay short enough to read whole.
const ATTEMPTS_PER_KEY: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    Append { key: i32, number: i64 },
    Read { key: i32, list: Vec<i64> },
}

#[derive(Debug, Clone)]
pub struct Transaction {
    pub accesses: Vec<Access>,
    pub outcome: Outcome,
    pub began: u64,
    pub ended: u64,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub transactions: Vec<Transaction>,
    pub last: BTreeMap<i32, Vec<i64>>,
}

pub fn run(subject: &Subject, plan: &Plan) -> Result<Report> {
    let prepare = |link: &mut crate::link::Link| {
        link.run(DATABASE, doc! {"create": COLLECTION})?;
        Ok(())
    };
    let (parts, kills, running) = press(subject, plan, prepare, |client| {
        let mut transactions = Vec::new();
        let mut number = 0;
        while let Some(attempt) = client.take() {
            let first_key = attempt / ATTEMPTS_PER_KEY;
            let mut asked = Vec::new();
            for _ in 0..client.rng.random_range(1..5) {
                let key = (first_key + client.rng.random_range(0..KEYS_AT_ONCE)) as i32;
                asked.push(match client.rng.random_bool(0.5) {
                    true => {
                        number += 1;
                        Access::Append { key, number: number * 1000 + client.id as i64 }
                    }
                    false => Access::Read { key, list: Vec::new() },
                });
            }
            let began = client.now();
            let mut accesses = Vec::new();
            let outcome = client.transact(|transaction| {
                for access in &asked {
                    match access {
                        Access::Append { key, number } => {
                            // Before the answer: an append of unknown effect is one that was made.
                            accesses.push(access.clone());
                            let update = doc! {"$push": {"list": *number}};
                            let update = doc! {"q": {"_id": *key}, "u": update, "upsert": true};
                            transaction.run(DATABASE, doc! {"update": COLLECTION, "updates": [update]})?;
                        }
                        Access::Read { key, .. } => {
                            let find = doc! {"find": COLLECTION, "filter": {"_id": *key}};
                            let reply = transaction.run(DATABASE, find)?;
                            accesses.push(Access::Read { key: *key, list: read_list(&reply) });
                        }
                    }
                }
                Ok::<bool, Fault>(true)
            })?;
            transactions.push(Transaction { accesses, outcome, began, ended: client.now() });
        }
        Ok(transactions)
    })?;

    let mut history = History { transactions: parts.into_iter().flatten().collect(), ..History::default() };
    for document in running.connect()?.all(DATABASE, doc! {"find": COLLECTION})? {
        let key = whole(document.get("_id")).unwrap_or(-1) as i32;
        history.last.insert(key, numbers(document.get("list")));
    }
    let anomalies = check(&history);
    ensure!(anomalies.is_empty(), "{} anomalies, the first: {}", anomalies.len(), anomalies[0]);
    let with = |outcome| history.transactions.iter().filter(|t| t.outcome == outcome).count();
    let is_read = |access: &&Access| matches!(access, Access::Read { .. });
    Ok(Report {
        committed: with(Outcome::Committed),
        aborted: with(Outcome::Aborted),
        unknown: with(Outcome::Unknown),
        reads: history.transactions.iter().flat_map(|t| t.accesses.iter().filter(is_read)).count(),
        kills,
    })
}

fn read_list(reply: &Document) -> Vec<i64> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document);
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
    let first = batch.and_then(|batch| batch.get(0)).and_then(RawValue::as_document);
    numbers(first.and_then(|document| document.get("list")))
}

fn numbers(list: Option<RawValue<'_>>) -> Vec<i64> {
    let list = list.and_then(RawValue::as_array);
    list.into_iter().flat_map(|list| list.iter().filter_map(|value| whole(Some(value)))).collect()
}

/// Every anomaly found, in words.
pub fn check(history: &History) -> Vec<String> {
    let mut anomalies = Vec::new();
    let writers = writers(history);
    check_appends(history, &writers, &mut anomalies);
    for (index, transaction) in history.transactions.iter().enumerate() {
        if is_effective(history, index)
            && let Err(error) = check_reads(history, index, &writers)
        {
            anomalies.push(format!("{error} in {transaction:?}"));
        }
    }
    // Edges mean nothing when the lists themselves contradict each other.
    if anomalies.is_empty()
        && let Some(cycle) = graph(history, &writers).forbidden_cycle()
    {
        let steps: Vec<String> = cycle
            .iter()
            .map(|(node, edge)| match history.transactions.get(*node) {
                Some(transaction) => format!("{:?} -{edge:?}->", transaction.accesses),
                None => format!("time -{edge:?}->"),
            })
            .collect();
        anomalies.push(format!("{}: {}", name(&cycle), steps.join(" ")));
    }
    anomalies
}

/// Which transaction appended a number, and whether it appended to that key again later.
type Writers = HashMap<i64, (usize, bool)>;

fn writers(history: &History) -> Writers {
    let mut writers = Writers::new();
    for (index, transaction) in history.transactions.iter().enumerate() {
        let mut later = HashSet::new();
        for access in transaction.accesses.iter().rev() {
            if let Access::Append { key, number } = access {
                writers.insert(*number, (index, !later.insert(*key)));
            }
        }
    }
    writers
}

/// Committed, or of unknown outcome and seen at the end.
fn is_effective(history: &History, index: usize) -> bool {
    let transaction = &history.transactions[index];
    match transaction.outcome {
        Outcome::Committed => true,
        Outcome::Aborted => false,
        Outcome::Unknown => transaction.accesses.iter().any(|access| match access {
            Access::Append { key, number } => history.last.get(key).is_some_and(|list| list.contains(number)),
            Access::Read { .. } => false,
        }),
    }
}

fn check_appends(history: &History, writers: &Writers, anomalies: &mut Vec<String>) {
    let mut there = HashSet::new();
    for (key, list) in &history.last {
        for number in list {
            if !there.insert((*key, *number)) {
                anomalies.push(format!("{number} is in the list of {key} twice"));
            }
            match writers.get(number).map(|&(writer, _)| history.transactions[writer].outcome) {
                Some(Outcome::Aborted) => anomalies.push(format!("G1a: {number} in {key} was aborted")),
                Some(_) => {}
                None => anomalies.push(format!("{number} in {key} was never appended")),
            }
        }
    }
    for (index, transaction) in history.transactions.iter().enumerate() {
        for access in transaction.accesses.iter().filter(|_| is_effective(history, index)) {
            if let Access::Append { key, number } = access
                && !there.contains(&(*key, *number))
            {
                let which = if transaction.outcome == Outcome::Committed { "lost" } else { "half applied" };
                anomalies.push(format!("{number}, appended to {key}, is {which}"));
            }
        }
    }
}

/// The part of a read list that others wrote, after checking that the own part is right.
fn foreign<'l>(own: &[i64], list: &'l [i64]) -> Result<&'l [i64]> {
    match list.strip_suffix(own) {
        Some(foreign) => Ok(foreign),
        None => bail!("own appends {own:?} are not at the end of {list:?}"),
    }
}

fn check_reads(history: &History, index: usize, writers: &Writers) -> Result<()> {
    let mut own: HashMap<i32, Vec<i64>> = HashMap::new();
    let mut seen: HashMap<i32, &[i64]> = HashMap::new();
    for access in &history.transactions[index].accesses {
        let (key, list) = match access {
            Access::Append { key, number } => {
                own.entry(*key).or_default().push(*number);
                continue;
            }
            Access::Read { key, list } => (key, list),
        };
        let foreign = foreign(own.get(key).map_or(&[], Vec::as_slice), list)?;
        if let Some(before) = seen.insert(*key, foreign) {
            ensure!(before == foreign, "two reads of {key} differ: {before:?}, {foreign:?}");
        }
        let last = history.last.get(key).map_or(&[][..], Vec::as_slice);
        ensure!(last.starts_with(foreign), "{foreign:?} of {key} is no prefix of {last:?}");
        if let Some(number) = foreign.last()
            && let Some((_, true)) = writers.get(number)
        {
            bail!("G1b: {number} of {key} is an intermediate version");
        }
    }
    Ok(())
}

fn graph(history: &History, writers: &Writers) -> Graph {
    let mut graph = Graph::default();
    history.transactions.iter().for_each(|_| {
        graph.add_node();
    });
    let writer = |number: &i64| writers[number].0;
    for list in history.last.values() {
        for pair in list.windows(2) {
            graph.add(writer(&pair[0]), writer(&pair[1]), Edge::WriteWrite);
        }
    }
    for (index, transaction) in history.transactions.iter().enumerate() {
        if !is_effective(history, index) {
            continue;
        }
        let mut own: HashMap<i32, Vec<i64>> = HashMap::new();
        for access in &transaction.accesses {
            match access {
                Access::Append { key, number } => own.entry(*key).or_default().push(*number),
                Access::Read { key, list } => {
                    let own = own.get(key).map_or(0, Vec::len);
                    let foreign = &list[..list.len() - own];
                    if let Some(number) = foreign.last() {
                        graph.add(writer(number), index, Edge::WriteRead);
                    }
                    let next = history.last.get(key).and_then(|last| last.get(foreign.len()));
                    if let Some(next) = next {
                        graph.add(index, writer(next), Edge::ReadWrite);
                    }
                }
            }
        }
    }
    add_real_time(history, &mut graph);
    graph
}

/// A chain of moments, one per acknowledgement: two edges a transaction instead of one per pair.
fn add_real_time(history: &History, graph: &mut Graph) {
    let committed = |t: &&(usize, &Transaction)| t.1.outcome == Outcome::Committed;
    let mut ended: Vec<(usize, &Transaction)> = history.transactions.iter().enumerate().collect();
    let mut begun = ended.clone();
    ended.retain(|t| committed(&t));
    ended.sort_by_key(|(_, t)| t.ended);
    begun.sort_by_key(|(_, t)| t.began);
    let mut moment = None;
    let mut ended = ended.into_iter().peekable();
    for (index, transaction) in begun {
        while let Some((before, _)) = ended.next_if(|(_, t)| t.ended < transaction.began) {
            let next = graph.add_node();
            if let Some(moment) = moment {
                graph.add(moment, next, Edge::RealTime);
            }
            graph.add(before, next, Edge::RealTime);
            moment = Some(next);
        }
        if let Some(moment) = moment {
            graph.add(moment, index, Edge::RealTime);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Outcome::{Aborted, Committed, Unknown};

    fn append(key: i32, number: i64) -> Access {
        Access::Append { key, number }
    }

    fn read(key: i32, list: &[i64]) -> Access {
        Access::Read { key, list: list.to_vec() }
    }

    /// All at the same time, so that only data orders them.
    fn history(transactions: &[(Outcome, &[Access])], last: &[(i32, &[i64])]) -> History {
        let transaction = |(outcome, accesses): &(Outcome, &[Access])| Transaction {
            accesses: accesses.to_vec(),
            outcome: *outcome,
            began: 0,
            ended: 10,
        };
        History {
            transactions: transactions.iter().map(transaction).collect(),
            last: last.iter().map(|(key, list)| (*key, list.to_vec())).collect(),
        }
    }

    #[test]
    fn each_anomaly_is_found_by_its_name() {
        let cases: Vec<(Option<&str>, History)> = vec![
            (
                None,
                history(
                    &[
                        (Committed, &[append(1, 1), append(2, 2)]),
                        (Committed, &[read(1, &[1]), append(1, 3), read(1, &[1, 3])]),
                        (Aborted, &[append(1, 4)]),
                        (Unknown, &[append(2, 5)]),
                        (Unknown, &[append(2, 6)]),
                    ],
                    &[(1, &[1, 3]), (2, &[2, 5])],
                ),
            ),
            (Some("lost"), history(&[(Committed, &[append(1, 1)])], &[])),
            (Some("half"), history(&[(Unknown, &[append(1, 1), append(2, 2)])], &[(1, &[1])])),
            (Some("twice"), history(&[(Committed, &[append(1, 1)])], &[(1, &[1, 1])])),
            (Some("never"), history(&[], &[(1, &[1])])),
            (Some("G1a"), history(&[(Aborted, &[append(1, 1)])], &[(1, &[1])])),
            (
                Some("G1b"),
                history(
                    &[(Committed, &[append(1, 1), append(1, 2)]), (Committed, &[read(1, &[1])])],
                    &[(1, &[1, 2])],
                ),
            ),
            (
                Some("prefix"),
                history(
                    &[
                        (Committed, &[append(1, 1)]),
                        (Committed, &[append(1, 2)]),
                        (Committed, &[read(1, &[2])]),
                    ],
                    &[(1, &[1, 2])],
                ),
            ),
            (Some("own"), history(&[(Committed, &[append(1, 1), read(1, &[])])], &[(1, &[1])])),
            (
                Some("differ"),
                history(
                    &[(Committed, &[append(1, 1)]), (Committed, &[read(1, &[]), read(1, &[1])])],
                    &[(1, &[1])],
                ),
            ),
            (
                Some("G0"),
                history(
                    &[(Committed, &[append(1, 1), append(2, 2)]), (Committed, &[append(1, 3), append(2, 4)])],
                    &[(1, &[1, 3]), (2, &[4, 2])],
                ),
            ),
            (
                Some("G1c"),
                history(
                    &[
                        (Committed, &[append(1, 1), read(2, &[2])]),
                        (Committed, &[append(2, 2), read(1, &[1])]),
                    ],
                    &[(1, &[1]), (2, &[2])],
                ),
            ),
            // A fractured read: one half of the other's effect.
            (
                Some("G-single"),
                history(
                    &[
                        (Committed, &[append(1, 1), append(2, 2)]),
                        (Committed, &[read(1, &[1]), read(2, &[])]),
                    ],
                    &[(1, &[1]), (2, &[2])],
                ),
            ),
            // A lost update shows as one, too: both read nothing and append.
            (
                Some("G-single"),
                history(
                    &[(Committed, &[read(1, &[]), append(1, 1)]), (Committed, &[read(1, &[]), append(1, 2)])],
                    &[(1, &[1, 2])],
                ),
            ),
            // Write skew is allowed under snapshot isolation.
            (
                None,
                history(
                    &[(Committed, &[read(1, &[]), append(2, 2)]), (Committed, &[read(2, &[]), append(1, 1)])],
                    &[(1, &[1]), (2, &[2])],
                ),
            ),
        ];
        for (expected, history) in cases {
            let found = check(&history);
            match expected {
                None => assert!(found.is_empty(), "{found:?}"),
                Some(word) => {
                    assert!(found.first().is_some_and(|first| first.contains(word)), "{word}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn a_read_that_misses_what_was_acknowledged_before_it_began_is_an_anomaly() {
        let mut stale = history(&[(Committed, &[append(1, 1)]), (Committed, &[read(1, &[])])], &[(1, &[1])]);
        assert!(check(&stale).is_empty());
        (stale.transactions[1].began, stale.transactions[1].ended) = (11, 12);
        assert!(check(&stale)[0].starts_with("G-single-realtime"));
    }
}
