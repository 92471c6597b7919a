//! Long arrays that continue in pages: an array of a million elements against arrays of ten, on the same server.

use std::time::Instant;

use kilim_bson::{Array, Value, doc};
use kilim_testkit::link::{Fault, Link, message};

use crate::data::mix;
use crate::patterns::{Contest, Entrant, KILIM, declare, is_new, load};
use crate::workload::{Leaves, Operation, Place, Target, counted, durable, found, fresh_ids};

/// Databases.
const LONG: &str = "outlier_long";
const SHORT: &str = "outlier_short";
const CELEBRITY: i32 = 0;
const LONG_ELEMENTS: i64 = 1_000_000;
const LONGER: &str = "outlier_longer";
const LONGER_ELEMENTS: i64 = 10_000_000;
const PUSHED_AT_ONCE: i64 = 10_000;
/// So many that a push each leaves them short.
const SHORT_DOCUMENTS: i32 = 20_000;
const SHORT_ELEMENTS: i64 = 10;
/// Elements that are pushed while it is measured are none of those that were loaded.
const FIRST_NEW: i64 = 1 << 40;

pub fn all() -> Vec<Contest> {
    use Target::CpuAtMost;
    let entrant = |name, operations, writes, prepare, make| {
        Entrant::new(name, KILIM, operations, Leaves::of(writes), prepare, make)
    };
    let contest = |name, operations, writes, long, short| Contest {
        name,
        entrants: vec![
            entrant("a million elements", operations, writes, prepare_long, long),
            entrant("ten elements", operations, writes, prepare_short, short),
        ],
        claims: vec![(1, CpuAtMost(3.0))],
    };
    vec![
        contest("outlier_push", 1_000, true, push_long as fn(Place) -> Operation, push_short),
        contest("outlier_member", 5_000, false, find_in_long, find_in_short),
        contest("outlier_slice", 3_000, false, slice_of_long, slice_of_short),
    ]
}

/// Those that take their time, so they are measured only where they are named.
pub fn long() -> Vec<Contest> {
    let contest = |name, operations, writes, longer, long| Contest {
        name,
        entrants: vec![
            Entrant::new(
                "ten million elements",
                KILIM,
                operations,
                Leaves::of(writes),
                prepare_longer,
                longer,
            ),
            Entrant::new("a million elements", KILIM, operations, Leaves::of(writes), prepare_long, long),
        ],
        claims: vec![(1, Target::CpuAtMost(1.5))],
    };
    vec![
        contest("outlier_push_longer", 1_000, true, push_longer as fn(Place) -> Operation, push_long),
        contest("outlier_member_longer", 5_000, false, find_in_longer, find_in_long),
        contest("outlier_slice_longer", 3_000, false, slice_of_longer, slice_of_long),
    ]
}

fn declare_in(link: &mut Link, database: &str) -> Result<(), Fault> {
    let kind = doc! {"field": "followers", "limit": 500, "count": "followerCount"};
    declare(link, database, doc! {"createPattern": "users", "name": "fans", "outlier": kind})
}

fn prepare_celebrity(link: &mut Link, database: &str, count: i64) -> Result<(), Fault> {
    if !is_new(link, database, "users")? {
        return Ok(());
    }
    let begun = Instant::now();
    declare_in(link, database)?;
    load(link, database, "users", std::iter::once(doc! {"_id": CELEBRITY, "followers": Array::new()}))?;
    for first in (0..count).step_by(PUSHED_AT_ONCE as usize) {
        let elements: Array = (first..first + PUSHED_AT_ONCE).map(Value::Int64).collect();
        let push = doc! {"$push": {"followers": {"$each": elements}}};
        link.run(database, doc! {"update": "users", "updates": [{"q": {"_id": CELEBRITY}, "u": push}]})?;
    }
    eprintln!("an array of {count} elements took {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn prepare_long(link: &mut Link) -> Result<(), Fault> {
    prepare_celebrity(link, LONG, LONG_ELEMENTS)
}

fn prepare_longer(link: &mut Link) -> Result<(), Fault> {
    prepare_celebrity(link, LONGER, LONGER_ELEMENTS)
}

fn prepare_short(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, SHORT, "users")? {
        return Ok(());
    }
    declare_in(link, SHORT)?;
    let user = |id: i32| {
        let first = i64::from(id) * SHORT_ELEMENTS;
        let elements: Array = (first..first + SHORT_ELEMENTS).map(Value::Int64).collect();
        doc! {"_id": id, "followers": elements}
    };
    load(link, SHORT, "users", (0..SHORT_DOCUMENTS).map(user))
}

fn push(database: &'static str, user: i32, element: i64) -> Vec<u8> {
    let update = doc! {"q": {"_id": user}, "u": {"$push": {"followers": element}}};
    let mut command = doc! {"update": "users", "updates": [update]};
    command.push("writeConcern", durable());
    command.push("$db", database);
    message(&command)
}

fn push_to(place: Place, database: &'static str) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let element = FIRST_NEW + i64::from(ids.next().unwrap_or(0));
        counted(link.exchange(&push(database, CELEBRITY, element))?, 1)
    })
}

fn push_long(place: Place) -> Operation {
    push_to(place, LONG)
}

fn push_longer(place: Place) -> Operation {
    push_to(place, LONGER)
}

fn push_short(place: Place) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let id = ids.next().unwrap_or(0);
        // Each of a turn is another document's.
        let user = (mix(place.turn as u64) as i32).wrapping_add(id).rem_euclid(SHORT_DOCUMENTS);
        counted(link.exchange(&push(SHORT, user, FIRST_NEW + i64::from(id)))?, 1)
    })
}

fn find_member(database: &'static str, user: i32, element: i64) -> Vec<u8> {
    let mut find = doc! {"find": "users", "filter": {"_id": user, "followers": element}};
    find.push("projection", doc! {"_id": 1});
    find.push("$db", database);
    message(&find)
}

fn find_in(place: Place, database: &'static str, count: i64) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let element = (mix(ids.next().unwrap_or(0) as u64) % count as u64) as i64;
        found(link.exchange(&find_member(database, CELEBRITY, element))?, 1)
    })
}

fn find_in_long(place: Place) -> Operation {
    find_in(place, LONG, LONG_ELEMENTS)
}

fn find_in_longer(place: Place) -> Operation {
    find_in(place, LONGER, LONGER_ELEMENTS)
}

/// Ten elements from anywhere of an array.
fn slice_of(place: Place, database: &'static str, users: i32, count: i64) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let random = mix(ids.next().unwrap_or(0) as u64);
        let from = (random % count as u64) as i32;
        let user = (random >> 40) as i32 % users;
        let mut find = doc! {"find": "users", "filter": {"_id": user}};
        find.push("projection", doc! {"followers": {"$slice": [from, 10]}});
        find.push("$db", database);
        found(link.exchange(&message(&find))?, 1)
    })
}

fn slice_of_short(place: Place) -> Operation {
    slice_of(place, SHORT, SHORT_DOCUMENTS, SHORT_ELEMENTS)
}

fn slice_of_long(place: Place) -> Operation {
    slice_of(place, LONG, 1, LONG_ELEMENTS)
}

fn slice_of_longer(place: Place) -> Operation {
    slice_of(place, LONGER, 1, LONGER_ELEMENTS)
}

fn find_in_short(place: Place) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let element = mix(ids.next().unwrap_or(0) as u64) % (SHORT_ELEMENTS as u64 * SHORT_DOCUMENTS as u64);
        let user = (element / SHORT_ELEMENTS as u64) as i32;
        found(link.exchange(&find_member(SHORT, user, element as i64))?, 1)
    })
}
