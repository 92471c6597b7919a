//! Counts by indexes, over trees and over what was written since their checkpoint.

use kilim_bson::{Document, doc};
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::{Purpose, ReadRequest};
use kilim_engine::read;
use kilim_engine::unit::Unit;
use kilim_error::Result;

use crate::support::{everywhere, filter, ns, numbered, spec};

fn count_some(unit: &mut Unit<'_>, matching: Document, skip: u64, limit: Option<u64>) -> Result<u64> {
    let request = ReadRequest { purpose: Purpose::Count, skip, limit, ..ReadRequest::new(filter(matching)) };
    let mut executor = read::plan(unit, &ns("c"), request)?.execute();
    executor.count(&mut ExecContext::new(&|| Ok(())))
}

/// Keys that a count passes over together are those that it would have met one by one.
#[test]
fn a_count_over_trees_and_what_was_written_since_is_the_number_of_documents() {
    everywhere(|db| {
        let documents = numbered(0..4000, |id| {
            let k = id * 7919 % 4000;
            doc! {"k": k, "name": format!("item {k}"), "s": k % 10}
        });
        documents.chunks(500).for_each(|some| db.insert("c", some));
        db.build("c", vec![spec(doc! {"k": 1}), spec(doc! {"name": 1}), spec(doc! {"s": 1, "k": -1})])
            .unwrap();
        db.engine.store.checkpoint().unwrap();
        for changes in 0..3 {
            let filters = [
                doc! {"k": {"$gte": 100, "$lt": 3100}},
                doc! {"k": {"$in": [5, 900, 901, 902]}},
                doc! {"name": {"$regex": "^item 1"}},
                doc! {"name": {"$in": ["item 7", "item 8", "nothing"]}},
                doc! {"s": 3, "k": {"$gt": 50, "$lte": 2000}},
                doc! {"s": {"$gte": 2, "$lt": 5}},
                doc! {"$or": [{"k": {"$lt": 10}}, {"k": {"$gt": 3990}}]},
            ];
            for filter in filters {
                let found = db.find("c", filter.clone()).len() as u64;
                assert!(found > 0, "{filter:?}");
                assert_eq!(db.count("c", filter.clone()), found, "{filter:?} after {changes} changes");
                for (skip, limit) in [(0, Some(3)), (7, None), (2, Some(found)), (found + 5, Some(1))] {
                    let counted = db.run(|unit| count_some(unit, filter.clone(), skip, limit)).unwrap();
                    let expected = found.saturating_sub(skip).min(limit.unwrap_or(u64::MAX));
                    assert_eq!(counted, expected, "{filter:?}, skip {skip}, limit {limit:?}");
                }
            }
            // What was written since lies over the trees.
            db.update_many("c", doc! {"k": {"$mod": [50, changes]}}, doc! {"$inc": {"k": 1}}).unwrap();
            db.delete("c", doc! {"k": {"$mod": [97, changes]}}).unwrap();
        }
    });
}
