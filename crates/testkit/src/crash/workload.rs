//! Clients that write, remember what was acknowledged, and later compare.
//!
//! Each client owns its documents in two collections and works alone on them, so after any crash they
//! must look as some prefix of its steps left them: at least all acknowledged ones, at most all that
//! were sent. A step that wrote half of itself (one document of a transaction) matches no prefix. All
//! clients also count on one shared document, each in a field of its own and in a common total.
//!
//! Invariant: steps are a function of the client's seed and its own state, so a run can be repeated.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::link::{Fault, Link, Transaction, whole};
use crate::subject::Kind;

pub const DATABASE: &str = "crash";
const COLLECTIONS: [&str; 2] = ["left", "right"];
const SHARED: &str = "shared";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Insert {
        side: usize,
        key: i32,
        value: i64,
    },
    Set {
        side: usize,
        key: i32,
        value: i64,
    },
    Increment {
        side: usize,
        key: i32,
    },
    Delete {
        side: usize,
        key: i32,
    },
    /// One transaction: both documents set, a new one inserted on the left.
    Pair {
        left: i32,
        right: i32,
        new: i32,
        value: i64,
    },
    /// The shared document.
    Count,
}

/// What a client's documents say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    documents: BTreeMap<(usize, i32), (i64, i64)>,
    counted: i64,
}

impl State {
    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Insert { side, key, value } => drop(self.documents.insert((side, key), (value, 0))),
            Step::Set { side, key, value } => self.set(side, key, value),
            Step::Increment { side, key } => {
                self.documents.entry((side, key)).and_modify(|(_, count)| *count += 1);
            }
            Step::Delete { side, key } => drop(self.documents.remove(&(side, key))),
            Step::Pair { left, right, new, value } => {
                self.set(0, left, value);
                self.set(1, right, value);
                self.documents.insert((0, new), (value, 0));
            }
            Step::Count => self.counted += 1,
        }
    }

    fn set(&mut self, side: usize, key: i32, value: i64) {
        self.documents.entry((side, key)).and_modify(|(old, _)| *old = value);
    }

    fn any(&self, side: usize, rng: &mut StdRng) -> Option<i32> {
        let keys: Vec<i32> = self.documents.keys().filter(|key| key.0 == side).map(|key| key.1).collect();
        (!keys.is_empty()).then(|| keys[rng.random_range(0..keys.len())])
    }
}

/// One client's memory.
pub struct Client {
    id: i32,
    /// The least that a document's filling takes; large ones make a store flush and change journals.
    pad_bytes: usize,
    rng: StdRng,
    session: [u8; 16],
    transactions: i64,
    next_key: i32,
    next_value: i64,
    base: State,
    now: State,
    /// Since `base`; the last one may not be acknowledged.
    steps: Vec<Sent>,
}

struct Sent {
    step: Step,
    /// A position of the caller's clock just before sending and just after the acknowledgement.
    from: u64,
    until: Option<u64>,
}

impl Client {
    pub fn new(id: i32, seed: u64, pad_bytes: usize) -> Client {
        let mut rng = StdRng::seed_from_u64(seed ^ (id as u64) << 32);
        let session = rng.random();
        Client {
            id,
            pad_bytes,
            rng,
            session,
            transactions: 0,
            next_key: 0,
            next_value: 0,
            base: State::default(),
            now: State::default(),
            steps: Vec::new(),
        }
    }

    pub fn acknowledged(&self) -> usize {
        self.steps.iter().filter(|sent| sent.until.is_some()).count()
    }

    fn choose(&mut self) -> Step {
        self.next_value += 1;
        let value = self.next_value;
        let side = self.rng.random_range(0..2);
        let some = self.now.any(side, &mut self.rng);
        let other = self.now.any(1 - side, &mut self.rng);
        match (self.rng.random_range(0..10), some, other) {
            (0..2, Some(key), _) => Step::Set { side, key, value },
            (2..4, Some(key), _) => Step::Increment { side, key },
            (4, Some(key), _) => Step::Delete { side, key },
            (5..7, Some(key), Some(other)) => {
                let (left, right) = if side == 0 { (key, other) } else { (other, key) };
                Step::Pair { left, right, new: self.new_key(), value }
            }
            (7, _, _) => Step::Count,
            _ => Step::Insert { side, key: self.new_key(), value },
        }
    }

    fn new_key(&mut self) -> i32 {
        self.next_key += 1;
        self.next_key
    }

    /// Does one step. `Ok(false)`: the connection broke, and nothing more is sent before [`Client::settle`].
    pub fn step(&mut self, link: &mut Link, clock: impl Fn() -> u64) -> Result<bool> {
        let step = self.choose();
        self.now.apply(&step);
        self.steps.push(Sent { step: step.clone(), from: clock(), until: None });
        loop {
            match self.send(link, &step) {
                Ok(()) => {
                    self.steps.last_mut().expect("just pushed").until = Some(clock());
                    return Ok(true);
                }
                Err(fault) if fault.is_unknown() => return Ok(false),
                Err(fault) if fault.has_label("TransientTransactionError") => {}
                Err(fault) => bail!("client {}: {step:?} was refused: {fault}", self.id),
            }
        }
    }

    fn send(&mut self, link: &mut Link, step: &Step) -> Result<(), Fault> {
        let durable = || doc! {"w": "majority", "j": true};
        let id = |key: i32| format!("{}-{key}", self.id);
        let set = |key: i32, value: i64| {
            doc! {"q": {"_id": id(key)}, "u": {"$set": {"v": value, "u": format!("{}-{key}-{value}", self.id)}}}
        };
        let insert = |key: i32, value: i64| {
            let bytes = self.pad_bytes + (key as usize * 37) % 600;
            doc! {
                "_id": id(key), "c": self.id, "k": key, "v": value, "n": 0i64,
                "u": format!("{}-{key}-{value}", self.id), "p": bytes as i64, "pad": pad(key, bytes)
            }
        };
        let reply = match *step {
            Step::Insert { side, key, value } => link.run(
                DATABASE,
                doc! {"insert": COLLECTIONS[side], "documents": [insert(key, value)], "writeConcern": durable()},
            )?,
            Step::Set { side, key, value } => link.run(
                DATABASE,
                doc! {"update": COLLECTIONS[side], "updates": [set(key, value)], "writeConcern": durable()},
            )?,
            Step::Increment { side, key } => {
                let update = doc! {"q": {"_id": id(key)}, "u": {"$inc": {"n": 1i64}}};
                link.run(DATABASE, doc! {"update": COLLECTIONS[side], "updates": [update], "writeConcern": durable()})?
            }
            Step::Delete { side, key } => {
                let delete = doc! {"q": {"_id": id(key)}, "limit": 1};
                link.run(DATABASE, doc! {"delete": COLLECTIONS[side], "deletes": [delete], "writeConcern": durable()})?
            }
            Step::Pair { left, right, new, value } => {
                self.transactions += 1;
                let statements = [
                    doc! {"update": COLLECTIONS[0], "updates": [set(left, value)]},
                    doc! {"update": COLLECTIONS[1], "updates": [set(right, value)]},
                    doc! {"insert": COLLECTIONS[0], "documents": [insert(new, value)]},
                ];
                let mut transaction = Transaction::new(link, self.session, self.transactions);
                for statement in statements {
                    let reply = transaction.run(DATABASE, statement)?;
                    check_one(&reply)?;
                }
                return transaction.commit();
            }
            Step::Count => {
                let update =
                    doc! {"q": {"_id": 0}, "u": {"$inc": {"total": 1i64, (&*format!("c{}", self.id)): 1i64}}};
                link.run(DATABASE, doc! {"update": SHARED, "updates": [update], "writeConcern": durable()})?
            }
        };
        check_one(&reply)
    }

    /// Compares what is there with what may be there after a crash at clock position `cut`.
    ///
    /// Every step acknowledged by then must be in; of those sent by then but not acknowledged, any prefix.
    pub fn check(&self, found: &State, cut: u64) -> Result<()> {
        let least = self.steps.iter().take_while(|sent| sent.until.is_some_and(|until| until <= cut)).count();
        let most = self.steps.iter().take_while(|sent| sent.from <= cut).count();
        let mut state = self.base.clone();
        for (done, sent) in self.steps.iter().enumerate() {
            if done >= least && state == *found {
                return Ok(());
            }
            if done >= most {
                break;
            }
            state.apply(&sent.step);
        }
        if state == *found && self.steps.len() <= most {
            return Ok(());
        }
        let mut expected = self.base.clone();
        self.steps[..least].iter().for_each(|sent| expected.apply(&sent.step));
        bail!(
            "client {}: {least} steps were acknowledged and {most} sent, and no such prefix gives what is there; {}",
            self.id,
            difference(&expected, found)
        )
    }

    /// Takes what was found after a crash as the new beginning.
    pub fn settle(&mut self, found: &State) {
        self.base = found.clone();
        self.now = found.clone();
        self.steps.clear();
    }
}

/// One document was touched: fewer means that an acknowledged one had gone, or a filter saw less.
fn check_one(reply: &Document) -> Result<(), Fault> {
    match whole(reply.get("n")) {
        Some(1) => Ok(()),
        n => Err(Fault::unexpected(format!("n is {n:?} instead of 1"))),
    }
}

fn difference(expected: &State, found: &State) -> String {
    let keys = expected.documents.keys().chain(found.documents.keys());
    let differing: BTreeMap<_, _> = keys
        .filter(|key| expected.documents.get(key) != found.documents.get(key))
        .map(|key| (key, (expected.documents.get(key), found.documents.get(key))))
        .collect();
    let first: Vec<_> = differing.iter().take(5).collect();
    format!(
        "counted {} for {}, {} documents differ (acknowledged, found): {first:?}",
        found.counted,
        expected.counted,
        differing.len()
    )
}

/// Makes the collections and their indexes.
pub fn prepare(link: &mut Link) -> Result<()> {
    let durable = || doc! {"w": "majority", "j": true};
    for collection in COLLECTIONS {
        let indexes = doc! {"createIndexes": collection, "indexes": [
            {"key": {"c": 1, "k": 1}, "name": "c_k"},
            {"key": {"u": 1}, "name": "u", "unique": true},
        ], "writeConcern": durable()};
        link.run(DATABASE, indexes)?;
    }
    let shared = doc! {"insert": SHARED, "documents": [{"_id": 0, "total": 0i64}], "writeConcern": durable()};
    link.run(DATABASE, shared)?;
    Ok(())
}

/// Reads everything and checks that the database agrees with itself: counts, indexes, `validate`.
/// Returns one state per client. `prepared` says that [`prepare`] was acknowledged.
pub fn read_states(link: &mut Link, kind: Kind, clients: usize, prepared: bool) -> Result<Vec<State>> {
    let mut states = vec![State::default(); clients];
    for (side, collection) in COLLECTIONS.into_iter().enumerate() {
        let documents = link.all(DATABASE, doc! {"find": collection, "hint": {"$natural": 1}})?;
        for document in &documents {
            let raw = document.as_raw();
            let number = |name: &str| whole(raw.get(name)).with_context(|| format!("{raw:?} has no {name}"));
            let state = states.get_mut(number("c")? as usize).context("a client that does not exist")?;
            state.documents.insert((side, number("k")? as i32), (number("v")?, number("n")?));
            check_document(raw)?;
        }
        check_collection(link, kind, collection, documents.len(), prepared)?;
    }
    let shared = link.all(DATABASE, doc! {"find": SHARED})?;
    if let Some(shared) = shared.first() {
        let mut total = 0;
        for (client, state) in states.iter_mut().enumerate() {
            state.counted = whole(shared.get(&format!("c{client}"))).unwrap_or(0);
            total += state.counted;
        }
        ensure!(whole(shared.get("total")) == Some(total), "the total is not the sum: {shared:?}");
    } else {
        ensure!(!prepared, "the shared document is gone");
    }
    check_collection(link, kind, SHARED, shared.len(), false)?;
    Ok(states)
}

/// The unique field repeats the others, so a document put together from two versions shows.
fn check_document(raw: RawDocument<'_>) -> Result<()> {
    let number = |name: &str| whole(raw.get(name)).unwrap_or(-1);
    let expected = format!("{}-{}-{}", number("c"), number("k"), number("v"));
    ensure!(raw.get("u").and_then(RawValue::as_str) == Some(&*expected), "{raw:?} is mixed");
    let filling = pad(number("k") as i32, number("p") as usize);
    ensure!(raw.get("pad").and_then(RawValue::as_str) == Some(&*filling), "{expected} has lost bytes");
    Ok(())
}

/// A document's filling: the same for the same key, and of a kind that no compression shortens.
fn pad(key: i32, bytes: usize) -> String {
    let mut state = key as u32 ^ 0x9e37_79b9;
    let letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'0' + (state >> 26) as u8)
    };
    std::iter::repeat_with(letter).take(bytes).collect()
}

fn check_collection(
    link: &mut Link,
    kind: Kind,
    collection: &str,
    documents: usize,
    indexed: bool,
) -> Result<()> {
    let count = link.run(DATABASE, doc! {"count": collection})?;
    // mongod's count without a filter is an estimate after a crash; Kilim's is exact.
    let exact = kind == Kind::Kilim;
    ensure!(
        !exact || whole(count.get("n")) == Some(documents as i64),
        "{collection}: count {count:?}, found {documents}"
    );
    if indexed {
        for hint in
            [Value::from(doc! {"c": 1, "k": 1}), Value::from(doc! {"u": 1}), Value::from(doc! {"_id": 1})]
        {
            let through = link
                .all(DATABASE, doc! {"find": collection, "hint": hint.clone(), "projection": {"_id": 1}})?;
            let through = through.len();
            ensure!(through == documents, "{collection}: {through} of {documents} through index {hint:?}");
        }
    }
    match link.run(DATABASE, doc! {"validate": collection, "full": true}) {
        Ok(report) => {
            let valid = report.get("valid").and_then(RawValue::as_bool) == Some(true);
            ensure!(valid, "{collection}: {report:?}");
        }
        // Not there, which is what an empty one may be before it was acknowledged.
        Err(fault) if fault.code() == Some(26) && documents == 0 && !indexed => {}
        Err(fault) => return Err(fault.into()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(steps: &[(Step, u64, Option<u64>)]) -> Client {
        let mut client = Client::new(0, 1, 0);
        for (step, from, until) in steps {
            client.steps.push(Sent { step: step.clone(), from: *from, until: *until });
        }
        client
    }

    fn state(steps: &[Step]) -> State {
        let mut state = State::default();
        steps.iter().for_each(|step| state.apply(step));
        state
    }

    #[test]
    fn only_prefixes_between_the_acknowledged_and_the_sent_pass() {
        let insert = |key| Step::Insert { side: 0, key, value: 1 };
        let right = Step::Insert { side: 1, key: 9, value: 1 };
        let pair = Step::Pair { left: 1, right: 9, new: 3, value: 7 };
        let steps = [insert(1), right.clone(), pair.clone(), insert(4)];
        let client = client(&[
            (steps[0].clone(), 0, Some(10)),
            (steps[1].clone(), 10, Some(20)),
            (steps[2].clone(), 20, Some(30)),
            (steps[3].clone(), 30, None),
        ]);
        for (found, cut, passes) in [
            (state(&steps[..3]), 35, true),
            (state(&steps), 35, true),
            // An acknowledged step is missing.
            (state(&steps[..2]), 35, false),
            (state(&steps[..2]), 25, true),
            // Something that was not sent yet.
            (state(&steps), 25, false),
            (state(&[]), 5, true),
            (state(&[]), 15, false),
            // Half a transaction: the left side was set, the right was not.
            (state(&[steps[0].clone(), right, Step::Set { side: 0, key: 1, value: 7 }]), 25, false),
        ] {
            assert_eq!(client.check(&found, cut).is_ok(), passes, "{found:?} at {cut}");
        }
    }
}
