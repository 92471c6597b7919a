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
const MILLION: &str = "version_million";
const WRITTEN: &str = "version_written";
const AT_REST: &str = "version_at_rest";

const READ_COUNT: i32 = 20_000;
const MIGRATED_COUNT: i32 = 200_000;
const MILLION_COUNT: i32 = 1_000_000;

pub fn all() -> Vec<Contest> {
    use Target::{CpuAtMost, P99AtMost, Told};
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
        Contest {
            name: "version_writers",
            entrants: vec![
                Entrant::new("during a migration", KILIM, 3_000, Leaves::Some, prepare_written, write_during),
                Entrant::new("at rest", KILIM, 3_000, Leaves::Some, prepare_at_rest, write_at_rest),
            ],
            claims: vec![(1, P99AtMost(2.0))],
        },
    ]
}

/// Those that take their time, so they are measured only where they are named.
pub fn long() -> Vec<Contest> {
    let entrant = |name, server, make| Entrant::new(name, server, 1, Leaves::Some, prepare_million, make);
    vec![Contest {
        name: "version_migration_million",
        entrants: vec![
            entrant("declared", KILIM, migrate_million as fn(Place) -> Operation),
            entrant("mongod updateMany", MONGOD, update_million),
        ],
        claims: vec![(1, Target::CpuAtMost(1.0))],
    }]
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

fn prepare_many(link: &mut Link, database: &str, count: i32) -> Result<(), Fault> {
    match is_new(link, database, "users")? {
        true => load(link, database, "users", (0..count).map(user)),
        false => Ok(()),
    }
}

fn prepare_migrated(link: &mut Link) -> Result<(), Fault> {
    prepare_many(link, MIGRATED, MIGRATED_COUNT)
}

fn prepare_by_hand(link: &mut Link) -> Result<(), Fault> {
    prepare_many(link, "version_by_hand", MIGRATED_COUNT)
}

fn prepare_million(link: &mut Link) -> Result<(), Fault> {
    prepare_many(link, MILLION, MILLION_COUNT)
}

fn prepare_written(link: &mut Link) -> Result<(), Fault> {
    prepare_many(link, WRITTEN, MIGRATED_COUNT)
}

fn prepare_at_rest(link: &mut Link) -> Result<(), Fault> {
    prepare_many(link, AT_REST, MIGRATED_COUNT)
}

/// The next step of a collection's versions: its name and the command.
fn next_step(link: &mut Link, database: &str, batch: i32) -> Result<(String, Document), Fault> {
    let listed = link.run(database, doc! {"listPatterns": "users"})?;
    let batch_of = listed.get("cursor").and_then(RawValue::as_document);
    let patterns = batch_of.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
    let version = patterns.map_or(0, |patterns| patterns.len()) as i32 + 1;
    let (up, down) = (doc! {"$add": ["$seen", 1]}, doc! {"$subtract": ["$seen", 1]});
    let mut kind = doc! {"field": "schemaVersion", "from": version, "to": version + 1};
    kind.push("up", vec![doc! {"$set": {"seen": up}}]);
    kind.push("down", vec![doc! {"$set": {"seen": down}}]);
    kind.push("check", "none");
    kind.push("background", doc! {"batch": batch, "throttleMs": 0});
    let name = format!("step-{version}");
    let command = doc! {"createPattern": "users", "name": &name, "schemaVersion": kind};
    Ok((name, command))
}

/// Each turn is a step further, until all documents are stored anew.
fn migrate_in(database: &'static str) -> Operation {
    Box::new(move |link| {
        let (_, command) = next_step(link, database, 1000)?;
        declare(link, database, command)
    })
}

fn migrate(_: Place) -> Operation {
    migrate_in(MIGRATED)
}

fn migrate_million(_: Place) -> Operation {
    migrate_in(MILLION)
}

fn write(place: Place, database: &'static str) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let id = (mix(ids.next().unwrap_or(0) as u64) % MIGRATED_COUNT as u64) as i32;
        let update = doc! {"q": {"_id": id}, "u": {"$set": {"name": format!("name {id}")}}};
        let mut command = doc! {"update": "users", "updates": [update]};
        command.push("writeConcern", durable());
        command.push("$db", database);
        check_reply(link.exchange(&message(&command))?)
    })
}

fn write_at_rest(place: Place) -> Operation {
    write(place, AT_REST)
}

/// Updates of single documents while a step's job goes over all of them. The first operation begins the step, and whenever one
/// is at its end another begins.
fn write_during(place: Place) -> Operation {
    let mut write = write(place, WRITTEN);
    let mut running: Option<String> = None;
    let mut done = 0_u32;
    Box::new(move |link| {
        if done.is_multiple_of(500) {
            let is_over = match &running {
                Some(name) => {
                    let wait = doc! {"waitPattern": "users", "name": name, "timeoutMS": 1};
                    link.run(WRITTEN, wait).is_ok()
                }
                None => true,
            };
            if is_over {
                let (name, command) = next_step(link, WRITTEN, 1000)?;
                link.run(WRITTEN, command)?;
                running = Some(name);
            }
        }
        done += 1;
        write(link)
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

fn update_million(place: Place) -> Operation {
    update_all(place, MILLION)
}

fn update_many_by_hand(place: Place) -> Operation {
    update_all(place, "version_by_hand")
}
