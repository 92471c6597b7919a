//! Versions of documents: what reads cost before and after they are converted, and what converting all of them costs.

use kilim_bson::{Document, RawValue, doc};
use kilim_testkit::link::{Fault, Link, check_reply, message};

use crate::data::mix;
use crate::patterns::{Contest, Entrant, KILIM, MONGOD, declare, is_new, load};
use crate::workload::{Leaves, Operation, Place, Target, durable, found, fresh_ids};

/// Databases.
const CONVERTED: &str = "version_converted";
const UNCONVERTED: &str = "version_unconverted";
const PLAIN: &str = "version_plain";
const MIGRATED: &str = "version_migrated";

const READ_COUNT: i32 = 20_000;
const MIGRATED_COUNT: i32 = 200_000;

pub fn all() -> Vec<Contest> {
    use Target::{CpuAtMost, Told};
    let read = |name, claim, declared, prepare, make| Contest {
        name,
        entrants: vec![
            Entrant::new(declared, KILIM, 5_000, Leaves::Nothing, prepare, make),
            Entrant::new("plain", KILIM, 5_000, Leaves::Nothing, prepare_plain, find_plain),
        ],
        claims: vec![(1, CpuAtMost(claim))],
    };
    vec![
        read(
            "version_converted",
            1.05,
            "converted",
            prepare_converted,
            find_converted as fn(Place) -> Operation,
        ),
        read("version_unconverted", 2.0, "unconverted", prepare_unconverted, find_unconverted),
        Contest {
            name: "version_migration",
            entrants: vec![
                Entrant::new("declared", KILIM, 1, Leaves::Some, prepare_migrated, migrate),
                Entrant::new("mongod updateMany", MONGOD, 1, Leaves::Some, prepare_migrated, update_many),
                Entrant::new("updateMany", KILIM, 1, Leaves::Some, prepare_by_hand, update_many_by_hand),
            ],
            claims: vec![(1, CpuAtMost(1.0)), (2, Told)],
        },
    ]
}

fn user(id: i32) -> Document {
    let number = format!("555-{:07}", mix(id as u64) % 10_000_000);
    doc! {"_id": id, "name": format!("user {id}"), "phone": number, "seen": 0, "text": "y".repeat(100)}
}

/// From one version to the next, as the guide has it.
fn step(persist: &[&str]) -> Document {
    let up = doc! {"$set": {"phone": {"countryCode": "+1", "number": "$phone"}}};
    let down = doc! {"$set": {"phone": "$phone.number"}};
    let mut kind = doc! {"field": "schemaVersion", "from": 1, "to": 2, "up": [up], "down": [down]};
    kind.push("persist", persist.iter().map(|how| (*how).into()).collect::<kilim_bson::Array>());
    kind
}

fn prepare_step(link: &mut Link, database: &str, persist: &[&str]) -> Result<(), Fault> {
    if !is_new(link, database, "users")? {
        return Ok(());
    }
    load(link, database, "users", (0..READ_COUNT).map(user))?;
    declare(link, database, doc! {"createPattern": "users", "name": "phones", "schemaVersion": step(persist)})
}

fn prepare_converted(link: &mut Link) -> Result<(), Fault> {
    prepare_step(link, CONVERTED, &["onWrite", "background"])
}

fn prepare_unconverted(link: &mut Link) -> Result<(), Fault> {
    prepare_step(link, UNCONVERTED, &["onWrite"])
}

/// The same documents, as they are once they are converted.
fn prepare_plain(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, PLAIN, "users")? {
        return Ok(());
    }
    load(link, PLAIN, "users", (0..READ_COUNT).map(user))?;
    let set = doc! {"$set": {"phone": {"countryCode": "+1", "number": "$phone"}, "schemaVersion": 2}};
    let update = doc! {"q": {}, "u": [set], "multi": true};
    link.run(PLAIN, doc! {"update": "users", "updates": [update]}).map(drop)
}

fn find(place: Place, database: &'static str) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let id = (mix(ids.next().unwrap_or(0) as u64) % READ_COUNT as u64) as i32;
        let find = doc! {"find": "users", "filter": {"_id": id}, "$db": database};
        found(link.exchange(&message(&find))?, 1)
    })
}

fn find_converted(place: Place) -> Operation {
    find(place, CONVERTED)
}

fn find_unconverted(place: Place) -> Operation {
    find(place, UNCONVERTED)
}

fn find_plain(place: Place) -> Operation {
    find(place, PLAIN)
}

fn prepare_many(link: &mut Link, database: &str) -> Result<(), Fault> {
    match is_new(link, database, "users")? {
        true => load(link, database, "users", (0..MIGRATED_COUNT).map(user)),
        false => Ok(()),
    }
}

fn prepare_migrated(link: &mut Link) -> Result<(), Fault> {
    prepare_many(link, MIGRATED)
}

fn prepare_by_hand(link: &mut Link) -> Result<(), Fault> {
    prepare_many(link, "version_by_hand")
}

/// Each turn is a step further, until all documents are stored anew.
fn migrate(_: Place) -> Operation {
    Box::new(move |link| {
        let listed = link.run(MIGRATED, doc! {"listPatterns": "users"})?;
        let batch =
            listed.get("cursor").and_then(RawValue::as_document).and_then(|cursor| cursor.get("firstBatch"));
        let patterns = batch.and_then(RawValue::as_array).map_or(0, |patterns| patterns.len());
        let version = patterns as i32 + 1;
        let (up, down) = (doc! {"$add": ["$seen", 1]}, doc! {"$subtract": ["$seen", 1]});
        let mut kind = doc! {"field": "schemaVersion", "from": version, "to": version + 1};
        kind.push("up", vec![doc! {"$set": {"seen": up}}]);
        kind.push("down", vec![doc! {"$set": {"seen": down}}]);
        kind.push("check", "none");
        kind.push("background", doc! {"batch": 1000, "throttleMs": 0});
        let name = format!("step-{version}");
        declare(link, MIGRATED, doc! {"createPattern": "users", "name": name, "schemaVersion": kind})
    })
}

fn update_all(place: Place, database: &'static str) -> Operation {
    Box::new(move |link| {
        let set = doc! {"$set": {"seen": {"$add": ["$seen", 1]}, "schemaVersion": place.turn as i32}};
        let update = doc! {"q": {}, "u": [set], "multi": true};
        let mut command = doc! {"update": "users", "updates": [update]};
        command.push("writeConcern", durable());
        command.push("$db", database);
        check_reply(link.exchange(&message(&command))?)
    })
}

fn update_many(place: Place) -> Operation {
    update_all(place, MIGRATED)
}

fn update_many_by_hand(place: Place) -> Operation {
    update_all(place, "version_by_hand")
}
