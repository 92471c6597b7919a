//! Bank: money moves between accounts in transactions, and none appears or disappears.
//!
//! Each transfer also writes a line to a ledger in the same transaction, so the end shows which transfers
//! took effect: every acknowledged one, no aborted one, and the balances are what the lines add up to.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use kilim_bson::{Document, RawValue, doc};
use rand::Rng;

use super::pressure::{Outcome, Plan, Report, press};
use crate::link::{Fault, whole};
use crate::subject::Subject;

const DATABASE: &str = "bank";
const ACCOUNTS: i32 = 10;
const INITIAL: i64 = 100;

#[derive(Debug, Clone)]
pub struct Transfer {
    pub id: String,
    pub from: i32,
    pub to: i32,
    pub amount: i64,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, Default)]
pub struct History {
    pub transfers: Vec<Transfer>,
    /// The balances that a reading transaction saw.
    pub snapshots: Vec<Vec<i64>>,
    pub last_balances: Vec<i64>,
    /// The ids in the ledger at the end.
    pub ledger: Vec<String>,
}

/// Runs the bank and checks its history.
pub fn run(subject: &Subject, plan: &Plan) -> Result<Report> {
    let prepare = |link: &mut crate::link::Link| {
        let accounts: Vec<Document> = (0..ACCOUNTS).map(|id| doc! {"_id": id, "balance": INITIAL}).collect();
        let concern = doc! {"w": "majority", "j": true};
        link.run(DATABASE, doc! {"insert": "accounts", "documents": accounts, "writeConcern": concern})?;
        link.run(DATABASE, doc! {"create": "ledger"})?;
        Ok(())
    };
    let (parts, kills, running) = press(subject, plan, prepare, |client| {
        let mut history = History::default();
        while let Some(attempt) = client.take() {
            if client.rng.random_bool(0.3) {
                let mut seen = Vec::new();
                let outcome = client.transact(|transaction| {
                    let reply = transaction.run(DATABASE, doc! {"find": "accounts", "sort": {"_id": 1}})?;
                    seen = balances(&first_batch(&reply));
                    Ok(true)
                })?;
                if outcome == Outcome::Committed {
                    history.snapshots.push(seen);
                }
                continue;
            }
            let from = client.rng.random_range(0..ACCOUNTS);
            let to = (from + client.rng.random_range(1..ACCOUNTS)) % ACCOUNTS;
            let amount = client.rng.random_range(1..20);
            let id = format!("{}-{attempt}", client.id);
            let outcome = client.transact(|transaction| {
                let reply = transaction.run(DATABASE, doc! {"find": "accounts", "filter": {"_id": from}})?;
                let balance = balances(&first_batch(&reply)).first().copied().unwrap_or(0);
                if balance < amount {
                    return Ok(false);
                }
                for (account, change) in [(from, -amount), (to, amount)] {
                    let update = doc! {"q": {"_id": account}, "u": {"$inc": {"balance": change}}};
                    transaction.run(DATABASE, doc! {"update": "accounts", "updates": [update]})?;
                }
                let line = doc! {"_id": id.clone(), "from": from, "to": to, "amount": amount};
                transaction.run(DATABASE, doc! {"insert": "ledger", "documents": [line]})?;
                Ok::<bool, Fault>(true)
            })?;
            history.transfers.push(Transfer { id, from, to, amount, outcome });
        }
        Ok(history)
    })?;

    let mut link = running.connect()?;
    let mut history = History::default();
    for part in parts {
        history.transfers.extend(part.transfers);
        history.snapshots.extend(part.snapshots);
    }
    history.last_balances = balances(&link.all(DATABASE, doc! {"find": "accounts", "sort": {"_id": 1}})?);
    let ledger = link.all(DATABASE, doc! {"find": "ledger"})?;
    history.ledger = ledger
        .iter()
        .filter_map(|line| line.get("_id").and_then(RawValue::as_str).map(str::to_owned))
        .collect();
    check(&history)?;
    let with = |outcome| history.transfers.iter().filter(|t| t.outcome == outcome).count();
    Ok(Report {
        committed: with(Outcome::Committed),
        aborted: with(Outcome::Aborted),
        unknown: with(Outcome::Unknown),
        reads: history.snapshots.len(),
        kills,
    })
}

pub fn check(history: &History) -> Result<()> {
    let total = INITIAL * i64::from(ACCOUNTS);
    for snapshot in history.snapshots.iter().chain([&history.last_balances]) {
        ensure!(snapshot.iter().sum::<i64>() == total, "the total is not {total} in {snapshot:?}");
        ensure!(snapshot.iter().all(|&balance| balance >= 0), "an account is overdrawn in {snapshot:?}");
    }
    let by_id: BTreeMap<&str, &Transfer> = history.transfers.iter().map(|t| (&*t.id, t)).collect();
    let mut balances = vec![INITIAL; ACCOUNTS as usize];
    let mut effective = BTreeMap::new();
    for id in &history.ledger {
        let transfer = by_id.get(&**id);
        let Some(transfer) = transfer.filter(|t| t.outcome != Outcome::Aborted) else {
            anyhow::bail!("transfer {id} was aborted, or never made, and is in the ledger");
        };
        ensure!(effective.insert(id, ()).is_none(), "transfer {id} is in the ledger twice");
        balances[transfer.from as usize] -= transfer.amount;
        balances[transfer.to as usize] += transfer.amount;
    }
    for transfer in &history.transfers {
        let lost = transfer.outcome == Outcome::Committed && !effective.contains_key(&transfer.id);
        ensure!(!lost, "transfer {} was acknowledged and is lost", transfer.id);
    }
    let last = &history.last_balances;
    ensure!(*last == balances, "balances are {last:?}, the ledger adds up to {balances:?}");
    Ok(())
}

fn first_batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document);
    let batch = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
    batch
        .into_iter()
        .flat_map(|batch| batch.iter().filter_map(RawValue::as_document).map(|d| d.to_document()))
        .collect()
}

fn balances(documents: &[Document]) -> Vec<i64> {
    documents.iter().filter_map(|document| whole(document.get("balance"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> History {
        let transfer =
            |id: &str, from, to, amount, outcome| Transfer { id: id.into(), from, to, amount, outcome };
        let mut last_balances = vec![INITIAL; ACCOUNTS as usize];
        last_balances[0] = 90;
        last_balances[1] = 110;
        History {
            transfers: vec![
                transfer("a", 0, 1, 10, Outcome::Committed),
                transfer("b", 2, 3, 5, Outcome::Aborted),
                transfer("c", 4, 5, 5, Outcome::Unknown),
            ],
            snapshots: vec![vec![INITIAL; ACCOUNTS as usize], last_balances.clone()],
            last_balances,
            ledger: vec!["a".into()],
        }
    }

    #[test]
    fn a_sound_history_passes_and_each_fault_is_found() {
        check(&sound()).unwrap();
        type Fault = (&'static str, fn(&mut History));
        let faults: [Fault; 6] = [
            ("total", |h| h.snapshots[0][3] -= 1),
            ("overdrawn", |h| {
                h.snapshots[0][3] -= 101;
                h.snapshots[0][4] += 101;
            }),
            ("lost", |h| h.ledger.clear()),
            ("aborted", |h| h.ledger.push("b".into())),
            ("twice", |h| h.ledger.push("a".into())),
            ("adds up", |h| h.ledger.push("c".into())),
        ];
        for (word, put_in) in faults {
            let mut history = sound();
            put_in(&mut history);
            let found = check(&history).unwrap_err().to_string();
            assert!(found.contains(word), "{word}: {found}");
        }
    }
}
