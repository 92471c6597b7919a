//! Change streams: what an event costs that is delivered to many, and what streams cost that have nothing to show.
//!
//! An operation inserts a document and has each of its streams give the event, so the figure is the insert and so many
//! deliveries. Streams are opened by the first operation of a turn, which the warm-up of the next turn outlives.

use kilim_bson::{Document, RawValue, doc};
use kilim_testkit::link::{Fault, Link, Template};

use crate::data::DATABASE;
use crate::workload::{
    Leaves, Operation, Place, Target, Workload, counted, document_with_marked_id, durable,
};

const WATCHED: &str = "watched";
/// Operations of one turn, warm-up included, at most.
const TURN: usize = 20_000;

pub fn all() -> Vec<Workload> {
    let row = |name, operations, make| Workload {
        name,
        connections: 1,
        operations,
        target: Target::CpuAtMost(0.33),
        leaves: Leaves::Some,
        prepare: |link: &mut Link| link.run(DATABASE, doc! {"insert": WATCHED, "documents": [{}]}).map(drop),
        before: |_: &mut Link, _| Ok(()),
        make,
    };
    vec![
        row("stream_1", 1_000, |place| delivered(place, 1)),
        row("stream_100", 100, |place| delivered(place, 100)),
        row("stream_1000", 10, |place| delivered(place, 1_000)),
        row("streams_idle", 1_000, |place| beside_idle(place, 1_000)),
    ]
}

/// Opens a stream; gives its cursor.
pub fn open(link: &mut Link, collection: &str) -> Result<i64, Fault> {
    let watch = doc! {"aggregate": collection, "pipeline": [{"$changeStream": {}}], "cursor": {}};
    let reply = link.run(DATABASE, watch)?;
    match reply.get("cursor").and_then(RawValue::as_document).and_then(|cursor| cursor.get("id")) {
        Some(RawValue::Int64(id)) if id != 0 => Ok(id),
        _ => Err(Fault::unexpected("a stream without a cursor")),
    }
}

fn insert(collection: &str) -> Template {
    let document = document_with_marked_id();
    Template::new(DATABASE, doc! {"insert": collection, "documents": [document], "writeConcern": durable()})
}

/// Ids that no other turn has.
fn ids(place: Place, streams: usize) -> impl Iterator<Item = i32> {
    (streams * 1_000_000 + place.turn * TURN) as i32..
}

/// Takes the next event of a stream.
fn take(link: &mut Link, cursor: i64) -> Result<(), Fault> {
    loop {
        let reply = link.run(DATABASE, doc! {"getMore": cursor, "collection": WATCHED, "maxTimeMS": 1000})?;
        if events(&reply) > 0 {
            return Ok(());
        }
    }
}

fn events(reply: &Document) -> usize {
    let cursor = reply.get("cursor").and_then(RawValue::as_document);
    let batch = cursor.and_then(|cursor| cursor.get("nextBatch")).and_then(RawValue::as_array);
    batch.map_or(0, |batch| batch.iter().count())
}

fn delivered(place: Place, streams: usize) -> Operation {
    let (mut insert, mut ids, mut cursors) = (insert(WATCHED), ids(place, streams), Vec::new());
    Box::new(move |link| {
        while cursors.len() < streams {
            cursors.push(open(link, WATCHED)?);
        }
        counted(link.exchange(insert.with(ids.next().expect("ids do not end")))?, 1)?;
        cursors.iter().try_for_each(|cursor| take(link, *cursor))
    })
}

fn beside_idle(place: Place, streams: usize) -> Operation {
    let (mut insert, mut ids, mut opened) = (insert("beside"), ids(place, 2 * streams), 0);
    Box::new(move |link| {
        while opened < streams {
            open(link, &format!("idle_{opened}"))?;
            opened += 1;
        }
        counted(link.exchange(insert.with(ids.next().expect("ids do not end")))?, 1)
    })
}
