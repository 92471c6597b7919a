//! `top`: how often each collection is used, and for how long.

use kilim_bson::{Document, doc};
use kilim_engine::metrics::Latency;
use kilim_error::Result;

use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "top";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    call.describe("command");
    if let Some(argument) = arguments(NAME, call.body).next() {
        return Err(argument.unknown());
    }
    let mut totals = doc! {"note": "all times in microseconds"};
    call.engine.top.each(|name, usage| {
        let total = Latency::default();
        for part in [&usage.reads, &usage.writes] {
            total.operations.add(part.operations.get());
            total.micros.add(part.micros.get());
        }
        let figures = [
            ("total", &total),
            ("readLock", &usage.reads),
            ("writeLock", &usage.writes),
            ("queries", &usage.queries),
            ("getmore", &usage.get_more),
            ("insert", &usage.inserts),
            ("update", &usage.updates),
            ("remove", &usage.removes),
            ("commands", &usage.commands),
        ];
        let mut document = Document::new();
        for (name, latency) in figures {
            let (time, count) = (latency.micros.get() as i64, latency.operations.get() as i64);
            document.push(name, doc! {"time": time, "count": count});
        }
        totals.push(name, document);
    });
    Ok(doc! {"totals": totals})
}
