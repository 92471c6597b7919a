//! Groups that are shown later: their parents are read as if they had been shown at once.

use kilim_bson::{Document, Value, doc};
use kilim_error::ErrorCode;

use super::{expect_true, finish, lag, slow, sorted_ids, wait_until_even};
use crate::pattern::{declare, make, one};
use crate::support::{Db, everywhere, ids, number, numbered, spec};

fn stats() -> Document {
    doc! {"name": "stats", "mode": "async", "computed": {"from": "reviews", "pipeline": [
        {"$group": {"_id": "$product", "count": {"$count": {}}, "best": {"$max": "$rating"}}},
    ]}}
}

fn product(db: &Db, id: i32) -> (i64, Document) {
    let product = one(db, "products", doc! {"_id": id});
    (number(&product, "count"), product)
}

#[test]
fn groups_that_are_shown_later_are_seen_at_once() {
    let db = Db::memory();
    make(&db, &["products", "reviews"]);
    declare(&db, "products", slow(stats())).unwrap();
    let newest = doc! {"name": "newest", "mode": "async", "subset": {
        "from": "reviews", "localField": "_id", "foreignField": "product", "as": "newest", "sort": {"_id": -1},
        "limit": 2, "fields": {"rating": 1},
    }};
    declare(&db, "products", slow(newest)).unwrap();
    db.insert("products", &numbered(0..3, |_| doc! {}));
    db.build("products", vec![spec(doc! {"count": 1}), spec(doc! {"newest.rating": 1})]).unwrap();
    db.insert("reviews", &numbered(0..20, |id| doc! {"product": id % 2, "rating": id}));
    assert!(lag(&db, "products", "stats") >= 1);
    assert_eq!(product(&db, 0).0, 10);
    assert_eq!(sorted_ids(&db.find("products", doc! {"count": 10})), [0, 1]);
    assert_eq!(sorted_ids(&db.find("products", doc! {"count": 0})), [2]);
    assert_eq!(sorted_ids(&db.find("products", doc! {"best": 19})), [1]);
    assert_eq!(sorted_ids(&db.find("products", doc! {"newest.rating": 18})), [0]);
    db.delete("reviews", doc! {"_id": 19}).unwrap();
    assert_eq!(sorted_ids(&db.find("products", doc! {"best": 17, "count": 9, "newest.rating": 15})), [1]);
    // What is written meanwhile is the truth; a parent that comes late has it too.
    assert_eq!(db.update("products", doc! {"count": 9}, doc! {"$set": {"x": 1}}).unwrap().matched, 1);
    db.insert("reviews", &[doc! {"_id": 30, "product": 7, "rating": 5}]);
    db.insert("products", &[doc! {"_id": 7}]);
    assert_eq!(product(&db, 7).0, 1);
    db.update_many("reviews", doc! {"product": 0}, doc! {"$set": {"product": 1}}).unwrap();
    assert_eq!((product(&db, 0).0, product(&db, 1).0), (0, 19));
    for name in ["stats", "newest"] {
        expect_true(&db, "products", name);
        finish(&db, "products", name);
        expect_true(&db, "products", name);
    }
    assert_eq!((product(&db, 0).0, product(&db, 1).0), (0, 19));
    db.check();
}

#[test]
fn groups_that_are_shown_later_are_shown() {
    everywhere(|db| {
        make(&db, &["products", "reviews"]);
        declare(&db, "products", stats()).unwrap();
        db.insert("products", &numbered(0..100, |_| doc! {}));
        // More groups than may be pending at once.
        db.insert("reviews", &numbered(0..300, |id| doc! {"product": id % 100, "rating": id}));
        assert_eq!(db.count("products", doc! {"count": 3}), 100);
        let mut transaction = db.transaction(1, 1);
        transaction.insert("reviews", doc! {"_id": 300, "product": 5, "rating": 1}).unwrap();
        transaction.commit().unwrap();
        assert_eq!(product(&db, 5).0, 4);
        wait_until_even(&db, "products", "stats");
        assert_eq!(db.count("products", doc! {"count": 3}), 99);
        expect_true(&db, "products", "stats");
        db.check();
    });
}

#[test]
fn a_child_of_many_groups_is_left_to_a_job() {
    let db = Db::memory();
    make(&db, &["tags", "posts"]);
    let uses = doc! {"name": "uses", "maxSync": 5, "computed": {"from": "posts", "pipeline": [
        {"$unwind": "$tags"}, {"$group": {"_id": "$tags", "posts": {"$sum": 1}}},
    ]}};
    declare(&db, "tags", slow(uses)).unwrap();
    db.insert("tags", &numbered(0..100, |_| doc! {}));
    let tags = |count: i32| Value::Array((0..count).map(Value::Int32).collect());
    db.insert("posts", &[doc! {"_id": 1, "tags": tags(5)}]);
    assert_eq!(lag(&db, "tags", "uses"), 0);
    db.insert("posts", &[doc! {"_id": 2, "tags": tags(20)}]);
    assert!(lag(&db, "tags", "uses") >= 19);
    assert_eq!(db.count("tags", doc! {"posts": 2}), 5);
    assert_eq!(db.count("tags", doc! {"posts": 1}), 15);
    // More than can be pending: all of them at once.
    db.insert("posts", &[doc! {"_id": 3, "tags": tags(100)}]);
    assert_eq!(db.count("tags", doc! {"posts": 1}), 80);
    expect_true(&db, "tags", "uses");
}

#[test]
fn a_rollup_collection_is_late_only_where_that_is_said() {
    let db = Db::memory();
    make(&db, &["totals", "reviews"]);
    let totals = |when_behind: &str| {
        doc! {"name": "totals", "mode": "async", "whenBehind": when_behind, "computed": {
            "from": "reviews", "whenNotMatched": "insert",
            "pipeline": [{"$group": {"_id": "$product", "count": {"$count": {}}}}],
        }}
    };
    assert_eq!(declare(&db, "totals", totals("patch")).unwrap_err().code(), ErrorCode::BadValue);
    declare(&db, "totals", totals("serve")).unwrap();
    db.insert("reviews", &numbered(0..10, |id| doc! {"product": id % 2}));
    wait_until_even(&db, "totals", "totals");
    assert_eq!(db.count("totals", doc! {"count": 5}), 2);
    db.delete("reviews", doc! {"product": 0}).unwrap();
    wait_until_even(&db, "totals", "totals");
    assert_eq!(ids(&db.find("totals", doc! {})), [1]);
    expect_true(&db, "totals", "totals");
    db.check();
}
