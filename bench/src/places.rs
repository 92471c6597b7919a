//! Points on the earth with a `2dsphere` index: built, searched by distance and by an area.

use kilim_bson::{Array, Document, Value, doc};
use kilim_testkit::link::{Fault, Link, check_reply, message};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::data::mix;
use crate::patterns::{Contest, Entrant, KILIM, MONGOD, index, is_new, load};
use crate::workload::{Leaves, Operation, Place, Target};

const POINTS: i32 = 1_000_000;
/// Points are made and sent in so many at once.
const BATCH: i32 = 10_000;
const DATABASE: &str = "places";
const COLLECTION: &str = "points";
/// Degrees from the middle of an area to its corners: about 180 of the points lie within.
const REACH: f64 = 1.5;

pub fn all() -> Vec<Contest> {
    use Target::CpuAtMost;
    let contest = |name, writes, operations, prepare, make, target| {
        let entrant =
            |name, server| Entrant::new(name, server, operations, Leaves::of(writes), prepare, make);
        let entrants = vec![entrant("kilim", KILIM), entrant("mongod", MONGOD)];
        Contest { name, entrants, claims: vec![(1, target)] }
    };
    vec![
        contest("geo_build", true, 1, filled, build, CpuAtMost(0.5)),
        contest("geo_near", false, 300, indexed, near, CpuAtMost(0.4)),
        contest("geo_within", false, 300, indexed, within, CpuAtMost(0.5)),
    ]
}

/// Everywhere but around the poles.
fn position(random: u64) -> (f64, f64) {
    let share = |bits: u64| (bits & 0xffff_ffff) as f64 / f64::from(u32::MAX);
    (share(random) * 360.0 - 180.0, share(random >> 32) * 140.0 - 70.0)
}

fn pair((longitude, latitude): (f64, f64)) -> Array {
    [Value::Double(longitude), Value::Double(latitude)].into_iter().collect()
}

fn point(position: (f64, f64)) -> Document {
    doc! {"type": "Point", "coordinates": pair(position)}
}

fn filled(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, DATABASE, COLLECTION)? {
        return Ok(());
    }
    let document = |id: i32| doc! {"_id": id, "at": point(position(mix(id as u64)))};
    for first in (0..POINTS).step_by(BATCH as usize) {
        load(link, DATABASE, COLLECTION, (first..first + BATCH).map(document))?;
    }
    Ok(())
}

fn create_index(link: &mut Link) -> Result<(), Fault> {
    index(link, DATABASE, COLLECTION, doc! {"at": "2dsphere"}, "at")
}

fn indexed(link: &mut Link) -> Result<(), Fault> {
    filled(link)?;
    create_index(link)
}

fn build(_: Place) -> Operation {
    Box::new(|link| {
        let drop = doc! {"dropIndexes": COLLECTION, "index": "*", "$db": DATABASE};
        check_reply(link.exchange(&message(&drop))?)?;
        create_index(link)
    })
}

/// The ten nearest.
fn near(place: Place) -> Operation {
    find(place, 10, |at| doc! {"$near": {"$geometry": point(at)}})
}

/// All within a square.
fn within(place: Place) -> Operation {
    find(place, 0, |(x, y)| {
        let x = x.clamp(-170.0, 170.0);
        let corners = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0)];
        let ring: Array = corners
            .iter()
            .map(|(east, north)| Value::Array(pair((x + east * REACH, y + north * REACH))))
            .collect();
        doc! {"$geoWithin": {"$geometry": {"type": "Polygon", "coordinates": [ring]}}}
    })
}

fn find(place: Place, limit: i32, condition: fn((f64, f64)) -> Document) -> Operation {
    let mut rng = StdRng::seed_from_u64(place.turn as u64);
    Box::new(move |link| {
        let find = doc! {
            "find": COLLECTION,
            "filter": {"at": condition(position(rng.random()))},
            "limit": limit,
            "batchSize": 1000,
            "singleBatch": true,
            "$db": DATABASE,
        };
        check_reply(link.exchange(&message(&find))?)
    })
}
