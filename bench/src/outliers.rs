//! A very long array among short ones: an element more, and whether one is in it, at ten elements and at a million.

use kilim_bson::{Array, Document, Value, doc};
use kilim_testkit::link::{Fault, Link, check_reply, message};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::patterns::{Contest, Entrant, KILIM, declare, is_new, load};
use crate::workload::{Operation, Place, Target, Workload, counted, durable, fresh_ids};

const DATABASE: &str = "outliers";
const SHORT: i32 = 10;
const LONG: i32 = 1_000_000;
/// Elements that are pushed at once while the array is made.
const BATCH: i32 = 50_000;

pub fn all() -> Vec<Contest> {
    use Target::{CpuAtMost, Told};
    let entrant = |name, writes, make| {
        let before = |_: &mut Link, _| Ok(());
        let (connections, operations, target, prepare) = (1, 1_000, Told, prepare as fn(&mut Link) -> _);
        let workload = Workload { name, connections, operations, target, writes, prepare, before, make };
        Entrant { name, server: KILIM, workload }
    };
    vec![
        Contest {
            name: "outlier_push",
            entrants: vec![
                entrant("a million elements", true, push_to_long as fn(Place) -> Operation),
                entrant("ten elements", true, push_to_short),
            ],
            claims: vec![(1, CpuAtMost(3.0))],
        },
        Contest {
            name: "outlier_member",
            entrants: vec![
                entrant("a million elements", false, seek_in_long as fn(Place) -> Operation),
                entrant("ten elements", false, seek_in_short),
            ],
            claims: vec![(1, CpuAtMost(3.0))],
        },
    ]
}

fn follower(number: i32) -> String {
    format!("follower{number}")
}

fn prepare(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, DATABASE, "users")? {
        return Ok(());
    }
    let outlier = doc! {"field": "followers", "count": "followerCount"};
    declare(link, DATABASE, doc! {"createPattern": "users", "name": "fans", "outlier": outlier})?;
    let user = |id: i32| -> Document {
        let followers: Array = (0..SHORT).map(|number| Value::from(follower(number))).collect();
        doc! {"_id": id, "followers": followers}
    };
    // Each push makes an array longer, so the short ones are many.
    load(link, DATABASE, "users", (0..20_000).map(user))?;
    for first in (SHORT..LONG).step_by(BATCH as usize) {
        let last = (first + BATCH).min(LONG);
        let each: Array = (first..last).map(|number| Value::from(follower(number))).collect();
        let push = doc! {"q": {"_id": 0}, "u": {"$push": {"followers": {"$each": each}}}};
        let update = doc! {"update": "users", "updates": [push], "$db": DATABASE};
        counted(link.exchange(&message(&update))?, 1)?;
    }
    Ok(())
}

fn push(place: Place, of: fn(i32) -> i32) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let number = ids.next().expect("ids do not end");
        let push = doc! {"q": {"_id": of(number)}, "u": {"$push": {"followers": follower(LONG + number)}}};
        let update = doc! {"update": "users", "updates": [push], "writeConcern": durable(), "$db": DATABASE};
        counted(link.exchange(&message(&update))?, 1)
    })
}

fn push_to_long(place: Place) -> Operation {
    push(place, |_| 0)
}

fn push_to_short(place: Place) -> Operation {
    push(place, |number| 1 + number.rem_euclid(19_999))
}

fn seek(place: Place, of: fn(i32) -> i32, length: i32) -> Operation {
    let mut rng = StdRng::seed_from_u64(place.turn as u64);
    Box::new(move |link| {
        let filter =
            doc! {"_id": of(rng.random_range(0..19_999)), "followers": follower(rng.random_range(0..length))};
        let find = doc! {
            "find": "users", "filter": filter, "projection": {"followerCount": 1}, "limit": 1, "singleBatch": true,
            "$db": DATABASE,
        };
        check_reply(link.exchange(&message(&find))?)
    })
}

fn seek_in_long(place: Place) -> Operation {
    seek(place, |_| 0, LONG)
}

fn seek_in_short(place: Place) -> Operation {
    seek(place, |number| 1 + number, SHORT)
}
