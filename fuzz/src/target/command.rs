//! Commands, whole: whatever a client may ask, the answer has `ok`, and the database goes on.

use std::cell::RefCell;

use kilim::Database;
use kilim::bson::{Document, doc};
use kilim_bson::{Document as Checked, RawDocument};

/// A database is used for so many commands: what they leave behind must not add up.
const COMMANDS: u32 = 5_000;

thread_local! {
    static CURRENT: RefCell<(u32, Option<Database>)> = const { RefCell::new((0, None)) };
}

pub fn check(input: &[u8]) {
    let Some(command) = crate::document(input) else { return };
    let Some(first) = command.iter().next().map(|(name, _)| name.to_owned()) else { return };
    // These wait for something that does not come, or speak to a connection.
    if matches!(first.as_str(), "configureFailPoint" | "waitPattern" | "hello" | "isMaster" | "getMore") {
        return;
    }
    let command = limited(command.as_raw());
    let Ok(command) = kilim::bson::deserialize_from_slice::<Document>(command.as_bytes()) else { return };
    CURRENT.with_borrow_mut(|(used, database)| {
        *used += 1;
        if *used % COMMANDS == 0 {
            *database = None;
        }
        let database = database.get_or_insert_with(fresh);
        // Refused or not: what matters is that there is an answer.
        let _ = database.run_command(command);
    });
}

/// With a time limit, and nothing that says where it goes.
fn limited(command: RawDocument<'_>) -> Checked {
    let own = ["maxTimeMS", "$db", "lsid", "txnNumber", "autocommit", "startTransaction", "writeConcern"];
    let kept = command.iter().filter(|(name, _)| !own.contains(name));
    let mut limited: Checked = kept.map(|(name, value)| (name, value.to_value())).collect();
    limited.push("maxTimeMS", 200);
    limited
}

/// With documents in the collections that the specs name most often, since their questions are the seeds.
fn fresh() -> Database {
    let database = Database::in_memory().expect("memory is there");
    for name in ["t", "c"] {
        let things = database.collection::<Document>(name);
        for subject in crate::subjects() {
            let subject: Document =
                kilim::bson::deserialize_from_slice(subject.as_bytes()).expect("subjects are documents");
            things.insert_one(subject).run().expect("subjects can be stored");
        }
        things.create_index(doc! {"a": 1, "c": -1}).run().expect("an index can be made");
        things.create_index(doc! {"b.c": 1}).run().expect("an index can be made");
    }
    database
}
