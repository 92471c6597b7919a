//! Random histories: whatever writers did, what is maintained equals what is computed.

use std::sync::Arc;
use std::thread;

use kilim_bson::{Array, Document, Value, array, doc};
use kilim_error::{Error, ErrorCode};

use crate::pattern::{declare, make, wait_until_active};
use crate::support::{Db, Updating, delete, insert, ns, update_with};

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn roll(&mut self, sides: i32) -> i32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % sides as u64) as i32
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[self.roll(of.len() as i32) as usize]
    }
}

const PATTERNS: [(&str, &str); 9] = [
    ("products", "stats"),
    ("products", "recent"),
    ("products", "brand"),
    ("products", "label"),
    ("reviews", "product"),
    ("orders", "lines"),
    ("orders", "frozen"),
    ("ratings", "byRating"),
    ("tags", "byTag"),
];

fn declare_all(db: &Db) {
    make(db, &["brands", "products", "reviews", "orders", "ratings", "tags"]);
    let declared = [
        (
            "products",
            doc! {"name": "stats", "computed": {"from": "reviews", "pipeline": [
                {"$match": {"hidden": {"$ne": true}}},
                {"$group": {
                    "_id": "$productId", "count": {"$count": {}}, "average": {"$avg": "$rating"},
                    "best": {"$max": "$rating"}, "worst": {"$min": "$rating"}, "spread": {"$stdDevPop": "$rating"},
                    "first": {"$first": "$rating"}, "all": {"$push": "$rating"},
                }},
                {"$set": {"share": {"$divide": [1, "$count"]}}},
            ]}},
        ),
        (
            "products",
            doc! {"name": "recent", "subset": {
                "from": "reviews", "foreignField": "productId", "as": "recent", "sort": {"at": -1}, "limit": 3,
                "match": {"hidden": {"$ne": true}}, "fields": {"rating": 1, "brand": "$product.brand"},
            }},
        ),
        (
            "products",
            doc! {"name": "brand", "extendedReference": {
                "from": "brands", "localField": "brandId", "as": "brand", "fields": {"name": 1},
                "onSourceDelete": "unset",
            }},
        ),
        (
            "products",
            doc! {"name": "label", "computed": {"set": {
                "label": {"$concat": [{"$ifNull": ["$brand.name", "?"]}, "-", {"$toString": "$_id"}]},
            }}},
        ),
        (
            "reviews",
            doc! {"name": "product", "extendedReference": {
                "from": "products", "localField": "productId", "as": "product",
                "fields": {"label": 1, "brand": "$brand.name"}, "onSourceDelete": "null",
            }},
        ),
        (
            "orders",
            doc! {"name": "lines", "extendedReference": {
                "from": "products", "localField": "items.p", "as": "items.product", "fields": {"label": 1},
            }},
        ),
        (
            "orders",
            doc! {"name": "frozen", "extendedReference": {
                "from": "brands", "localField": "brandIds", "as": "brands", "fields": {"name": 1},
                "while": {"open": true}, "onSourceDelete": "null",
            }},
        ),
        (
            "ratings",
            doc! {"name": "byRating", "computed": {
                "from": "reviews", "whenNotMatched": "insert",
                "pipeline": [{"$group": {
                    "_id": {"$mod": ["$rating", 3]}, "count": {"$count": {}}, "sum": {"$sum": "$rating"},
                }}],
            }},
        ),
        (
            "tags",
            doc! {"name": "byTag", "computed": {
                "from": "reviews", "whenNotMatched": "insert",
                "pipeline": [{"$unwind": "$tags"}, {"$group": {"_id": "$tags", "count": {"$count": {}}}}],
            }},
        ),
    ];
    for (target, declaration) in declared {
        // The subset reads what a later pattern maintains: the order of declarations does not matter.
        declare(db, target, declaration).unwrap();
    }
}

fn rating(dice: &mut Dice) -> Value {
    match dice.roll(8) {
        0 => Value::Null,
        1 => Value::from("text"),
        2 => Value::Double(0.1 + f64::from(dice.roll(5))),
        3 => Value::Int64(1 << 40),
        _ => Value::Int32(dice.roll(6)),
    }
}

fn review(dice: &mut Dice, id: i32) -> Document {
    let mut review = doc! {"_id": id, "rating": rating(dice), "at": dice.roll(6)};
    if dice.roll(8) > 0 {
        review.push("productId", dice.roll(5));
    }
    if dice.roll(3) == 0 {
        let tags: Array = (0..dice.roll(4)).map(|_| Value::Int32(dice.roll(3))).collect();
        review.push("tags", tags);
    }
    review
}

fn product(dice: &mut Dice, id: i32) -> Document {
    doc! {"_id": id, "brandId": dice.roll(4), "count": 99, "title": "t"}
}

fn order(dice: &mut Dice, id: i32) -> Document {
    let items: Array = (0..dice.roll(4)).map(|_| Value::Document(doc! {"p": dice.roll(6)})).collect();
    let brands: Array = (0..dice.roll(3)).map(|_| Value::Int32(dice.roll(4))).collect();
    doc! {"_id": id, "items": items, "brandIds": brands, "open": dice.roll(2) == 0}
}

/// One write of some kind.
fn write(unit: &mut kilim_engine::write::Unit<'_>, dice: &mut Dice) -> kilim_error::Result<()> {
    let id = dice.roll(12);
    let update = |unit: &mut kilim_engine::write::Unit<'_>, at: &str, id: i32, update: Document, how| {
        update_with(unit, at, doc! {"_id": id}, update, how).map(drop)
    };
    match dice.roll(20) {
        0..=3 => {
            let document = review(dice, id);
            insert(unit, "reviews", &[document], true).map(drop)
        }
        4 => {
            let value = rating(dice);
            update(unit, "reviews", id, doc! {"$set": {"rating": value}}, Updating::One)
        }
        5 => {
            let to = dice.roll(5);
            update_with(
                unit,
                "reviews",
                doc! {"productId": id % 5},
                doc! {"$set": {"productId": to}},
                Updating::Many,
            )
            .map(drop)
        }
        6 => update(
            unit,
            "reviews",
            id,
            doc! {"$set": {"hidden": dice.roll(2) == 0, "at": dice.roll(6)}},
            Updating::One,
        ),
        7 => {
            let mut whole = review(dice, id);
            whole.push("product", "mine");
            update(unit, "reviews", id, whole, Updating::Upsert)
        }
        8 => delete(unit, "reviews", doc! {"_id": id}, true).map(drop),
        9 => update(unit, "reviews", id, doc! {"$addToSet": {"tags": dice.roll(3)}}, Updating::One)
            .or_else(|error| matches!(error, Error::User(_)).then_some(()).ok_or(error)),
        10 | 11 => {
            let document = product(dice, id % 5);
            insert(unit, "products", &[document], true).map(drop)
        }
        12 => {
            let whole = product(dice, id % 5);
            update(unit, "products", id % 5, whole, Updating::One)
        }
        13 if dice.roll(2) == 0 => delete(unit, "products", doc! {"_id": id % 5}, true).map(drop),
        14 => update(
            unit,
            "brands",
            id % 4,
            doc! {"$set": {"name": dice.one(&["a", "b", "c"])}},
            Updating::Upsert,
        ),
        15 => delete(unit, "brands", doc! {"_id": id % 4}, true).map(drop),
        16 => {
            let document = order(dice, id);
            insert(unit, "orders", &[document], true).map(drop)
        }
        17 => {
            let change = doc! {"$push": {"items": {"p": dice.roll(6)}}, "$set": {"open": dice.roll(2) == 0}};
            update(unit, "orders", id, change, Updating::One)
        }
        18 => update(
            unit,
            "orders",
            id,
            doc! {"$set": {"brandIds": array![dice.roll(4), dice.roll(4)]}},
            Updating::One,
        ),
        _ => update_with(unit, "products", doc! {}, doc! {"$set": {"brandId": dice.roll(4)}}, Updating::Many)
            .map(drop),
    }
}

fn expect_all_true(db: &Db, seed: u64) {
    let operation = Arc::clone(&db.engine.operations.start(1));
    for (target, name) in PATTERNS {
        let pattern = db.engine.pattern(&ns(target), name).unwrap();
        let found = db.engine.verify_pattern(&operation, &pattern, None, 3).unwrap();
        assert_eq!(found.wrong, 0, "seed {seed}, {target}.{name}: {:#?}", found.examples);
    }
    db.check();
}

#[test]
fn one_writer() {
    for seed in 1..40 {
        let db = Db::memory();
        let mut dice = Dice::new(seed);
        if seed % 2 == 0 {
            declare_all(&db);
        }
        for _ in 0..60 {
            db.run(|unit| write(unit, &mut dice)).unwrap();
        }
        if seed % 2 == 1 {
            declare_all(&db);
            for (target, name) in PATTERNS {
                wait_until_active(&db, target, name);
            }
            expect_all_true(&db, seed);
            for _ in 0..30 {
                db.run(|unit| write(unit, &mut dice)).unwrap();
            }
        }
        expect_all_true(&db, seed);
    }
}

#[test]
fn several_writers_with_transactions() {
    for seed in 1..8 {
        let db = if seed % 2 == 0 { Db::memory() } else { Db::disk() };
        declare_all(&db);
        thread::scope(|scope| {
            for writer in 1..5u8 {
                let db = &db;
                scope.spawn(move || {
                    let mut dice = Dice::new(seed * 10 + u64::from(writer));
                    for turn in 0..40 {
                        if dice.roll(3) > 0 {
                            db.run(|unit| write(unit, &mut dice)).unwrap();
                            continue;
                        }
                        let mut transaction = db.transaction(writer, turn);
                        let statements = 1 + dice.roll(3);
                        let done =
                            (0..statements).try_for_each(|_| transaction.run(|unit| write(unit, &mut dice)));
                        let ended = match (done, dice.roll(4)) {
                            (Err(error), _) => Err(error),
                            (Ok(()), 0) => transaction.abort(),
                            (Ok(()), _) => transaction.commit(),
                        };
                        match ended {
                            Ok(()) | Err(Error::Conflict(_)) => {}
                            Err(error) => assert_eq!(error.code(), ErrorCode::WriteConflict, "{error}"),
                        }
                    }
                });
            }
        });
        expect_all_true(&db, seed);
    }
}
