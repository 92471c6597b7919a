//! Long arrays that continue in pages: an array of a million elements against arrays of ten, on the same server.

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
    ]
}

fn declare_in(link: &mut Link, database: &str) -> Result<(), Fault> {
    let kind = doc! {"field": "followers", "limit": 500, "count": "followerCount"};
    declare(link, database, doc! {"createPattern": "users", "name": "fans", "outlier": kind})
}

fn prepare_long(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, LONG, "users")? {
        return Ok(());
    }
    declare_in(link, LONG)?;
    load(link, LONG, "users", std::iter::once(doc! {"_id": CELEBRITY, "followers": Array::new()}))?;
    for first in (0..LONG_ELEMENTS).step_by(PUSHED_AT_ONCE as usize) {
        let elements: Array = (first..first + PUSHED_AT_ONCE).map(Value::Int64).collect();
        let push = doc! {"$push": {"followers": {"$each": elements}}};
        link.run(LONG, doc! {"update": "users", "updates": [{"q": {"_id": CELEBRITY}, "u": push}]})?;
    }
    Ok(())
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

fn push_long(place: Place) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let element = FIRST_NEW + i64::from(ids.next().unwrap_or(0));
        counted(link.exchange(&push(LONG, CELEBRITY, element))?, 1)
    })
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

fn find_in_long(place: Place) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let element = (mix(ids.next().unwrap_or(0) as u64) % LONG_ELEMENTS as u64) as i64;
        found(link.exchange(&find_member(LONG, CELEBRITY, element))?, 1)
    })
}

fn find_in_short(place: Place) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let element = mix(ids.next().unwrap_or(0) as u64) % (SHORT_ELEMENTS as u64 * SHORT_DOCUMENTS as u64);
        let user = (element / SHORT_ELEMENTS as u64) as i32;
        found(link.exchange(&find_member(SHORT, user, element as i64))?, 1)
    })
}
