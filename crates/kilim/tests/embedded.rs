//! The library as a program uses it.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use kilim::bson::{self, Bson, doc};
use kilim::options::ReturnDocument;
use kilim::{Database, Error};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    #[serde(rename = "_id")]
    id: i32,
    customer: String,
    lines: Vec<Line>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    product: String,
    count: i64,
    price: f64,
}

fn order(id: i32) -> Order {
    Order {
        id,
        customer: format!("c{}", id % 7),
        lines: vec![Line { product: format!("p{id}"), count: i64::from(id), price: f64::from(id) / 2.0 }],
        note: (id % 2 == 0).then(|| "even".to_owned()),
    }
}

#[test]
fn a_value_comes_back_as_it_went_in() {
    let orders = Database::in_memory().unwrap().collection::<Order>("orders");
    let inserted = orders.insert_one(order(1)).run().unwrap();
    assert_eq!(inserted.inserted_id, Bson::Int32(1));
    assert_eq!(orders.find_one(doc! {"_id": 1}).run().unwrap(), Some(order(1)));
    assert_eq!(orders.find_one(doc! {"_id": 2}).run().unwrap(), None);
}

#[test]
fn a_cursor_streams_whatever_the_batch() {
    let orders = Database::in_memory().unwrap().collection::<Order>("orders");
    let all: Vec<Order> = (0..2500).map(order).collect();
    let inserted = orders.insert_many(&all).run().unwrap();
    assert_eq!(inserted.inserted_ids.len(), 2500);
    for size in [1, 7, 1000, 5000] {
        let found =
            orders.find(doc! {}).sort(doc! {"_id": -1}).skip(3).limit(1200).batch_size(size).run().unwrap();
        let ids: Vec<i32> = found.map(|one| one.unwrap().id).collect();
        assert_eq!(ids, (1297..2497).rev().collect::<Vec<i32>>(), "in batches of {size}");
    }
}

#[test]
fn a_cursor_that_is_left_is_closed() {
    let database = Database::in_memory().unwrap();
    let orders = database.collection::<Order>("orders");
    orders.insert_many((0..100).map(order)).run().unwrap();
    let open = || {
        let status = database.run_command(doc! {"serverStatus": 1}).unwrap();
        let metrics = status.get_document("metrics").unwrap().get_document("cursor").unwrap().clone();
        metrics.get_document("open").unwrap().get_i64("total").unwrap()
    };
    let mut cursor = orders.find(doc! {}).batch_size(2).run().unwrap();
    assert_eq!(cursor.next().unwrap().unwrap(), order(0));
    assert_eq!(open(), 1);
    drop(cursor);
    assert_eq!(open(), 0);
}

#[test]
fn updates_say_what_they_did() {
    let orders = Database::in_memory().unwrap().collection::<Order>("orders");
    orders.insert_many((0..10).map(order)).run().unwrap();
    let many = orders.update_many(doc! {"_id": {"$lt": 4}}, doc! {"$set": {"customer": "c0"}}).run().unwrap();
    assert_eq!((many.matched_count, many.modified_count, many.upserted_id), (4, 3, None));
    let pipeline = vec![doc! {"$set": {"customer": {"$concat": ["$customer", "!"]}}}];
    let piped = orders.update_one(doc! {"_id": 1}, pipeline).run().unwrap();
    assert_eq!(piped.modified_count, 1);
    let inner = doc! {"$inc": {"lines.$[cheap].count": 100}};
    let filtered =
        orders.update_many(doc! {}, inner).array_filters([doc! {"cheap.price": {"$lt": 1.0}}]).run();
    assert_eq!(filtered.unwrap().modified_count, 2);
    let upserted = orders.replace_one(doc! {"_id": 77}, order(77)).upsert(true).run().unwrap();
    assert_eq!((upserted.matched_count, upserted.upserted_id), (0, Some(Bson::Int32(77))));
    let was =
        orders.find_one_and_update(doc! {"_id": 77}, doc! {"$set": {"note": "n"}}).run().unwrap().unwrap();
    assert_eq!(was, order(77));
    let is = orders
        .find_one_and_replace(doc! {"_id": 77}, order(77))
        .return_document(ReturnDocument::After)
        .run()
        .unwrap()
        .unwrap();
    assert_eq!(is, order(77));
    let gone = orders.find_one_and_delete(doc! {}).sort(doc! {"_id": -1}).run().unwrap().unwrap();
    assert_eq!(gone.id, 77);
    assert_eq!(orders.delete_many(doc! {"_id": {"$gte": 5}}).run().unwrap().deleted_count, 5);
    assert_eq!(orders.delete_one(doc! {}).run().unwrap().deleted_count, 1);
    assert_eq!(orders.count_documents(doc! {}).run().unwrap(), 4);
    assert_eq!(orders.estimated_document_count().unwrap(), 4);
}

#[test]
fn aggregation_has_a_type_of_its_own() {
    #[derive(Debug, Deserialize)]
    struct Total {
        #[serde(rename = "_id")]
        customer: String,
        orders: i32,
    }
    let orders = Database::in_memory().unwrap().collection::<Order>("orders");
    orders.insert_many((0..70).map(order)).run().unwrap();
    let pipeline = [doc! {"$group": {"_id": "$customer", "orders": {"$sum": 1}}}];
    let totals = orders.aggregate(pipeline).run::<Total>().unwrap();
    let totals: BTreeMap<String, i32> = totals
        .map(|total| total.map(|total| (total.customer, total.orders)))
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(totals.len(), 7);
    assert!(totals.values().all(|orders| *orders == 10));
    let mut customers = orders.distinct("customer", doc! {"_id": {"$lt": 3}}).run().unwrap();
    customers.sort_by_key(|one| one.as_str().map(str::to_owned));
    assert_eq!(customers, ["c0", "c1", "c2"].map(Bson::from));
}

#[test]
fn errors_carry_mongodbs_codes() {
    let database = Database::in_memory().unwrap();
    let orders = database.collection::<Order>("orders");
    orders.insert_one(order(1)).run().unwrap();
    let twice = orders.insert_many([order(2), order(1), order(3)]).ordered(false).run().unwrap_err();
    match &twice {
        Error::Writes(errors) => assert_eq!((errors.len(), errors[0].index, errors[0].code), (1, 1, 11000)),
        other => panic!("{other:?}"),
    }
    assert!(twice.is_duplicate_key());
    assert_eq!(orders.count_documents(doc! {}).run().unwrap(), 3);
    let unknown = orders.find(doc! {"$nothing": 1}).run().unwrap_err();
    assert_eq!(unknown.code(), Some(2));
    assert!(unknown.to_string().contains("$nothing"), "{unknown}");
    let wrong = orders.of_type::<Line>().find_one(doc! {}).run().unwrap_err();
    assert!(matches!(wrong, Error::Bson(_)), "{wrong:?}");
    let sum = doc! {"$reduce": {"input": {"$range": [0, 3_000_000]}, "initialValue": 0, "in": {"$add": ["$$value", "$_id"]}}};
    let slow = orders.find(doc! {"$expr": {"$lt": [sum, 0]}});
    let late = slow.max_time(Duration::from_millis(1)).run().map(Iterator::count).unwrap_err();
    assert_eq!(late.code(), Some(50), "{late}");
}

#[test]
fn transactions_are_whole_or_not_at_all() {
    let database = Database::in_memory().unwrap();
    let accounts = database.collection::<bson::Document>("accounts");
    accounts.insert_many((0..4).map(|id| doc! {"_id": id, "sum": 100})).run().unwrap();

    let mut session = database.start_session();
    session.start_transaction().unwrap();
    accounts.update_one(doc! {"_id": 0}, doc! {"$inc": {"sum": -1}}).session(&mut session).run().unwrap();
    let inside = accounts.find(doc! {}).batch_size(1).session(&mut session).run().unwrap();
    assert_eq!(inside.map(|one| one.unwrap().get_i32("sum").unwrap()).sum::<i32>(), 399);
    assert_eq!(accounts.count_documents(doc! {"sum": 99}).session(&mut session).run().unwrap(), 1);
    assert_eq!(accounts.count_documents(doc! {"sum": 99}).run().unwrap(), 0);
    drop(session);
    assert_eq!(accounts.count_documents(doc! {"sum": 100}).run().unwrap(), 4);

    let transfers = |seed: i32| {
        let (database, accounts) = (database.clone(), accounts.clone());
        move || {
            for turn in 0..50 {
                let (from, to) = ((seed + turn) % 4, (seed + turn + 1) % 4);
                let moved = |id: i32, by: i32| (doc! {"_id": id}, doc! {"$inc": {"sum": by}});
                let work = |session: &mut kilim::Session| {
                    let (filter, update) = moved(from, -1);
                    accounts.update_one(filter, update).session(session).run()?;
                    let (filter, update) = moved(to, 1);
                    accounts.update_one(filter, update).session(session).run()?;
                    Ok(())
                };
                database.transaction(work).unwrap();
            }
        }
    };
    let threads: Vec<_> = (0..4).map(|seed| thread::spawn(transfers(seed))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let sums = accounts.find(doc! {}).run().unwrap().map(|one| one.unwrap().get_i32("sum").unwrap());
    assert_eq!(sums.sum::<i32>(), 400);

    let refused = database.transaction(|session| {
        accounts.insert_one(doc! {"_id": 9}).session(session).run()?;
        accounts.insert_one(doc! {"_id": 0}).session(session).run()
    });
    assert!(refused.unwrap_err().is_duplicate_key());
    assert_eq!(accounts.find_one(doc! {"_id": 9}).run().unwrap(), None);
}

#[test]
fn what_was_written_is_there_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    {
        let database = Database::open(directory.path()).unwrap();
        let orders = database.named("shop").collection::<Order>("orders");
        orders.create_index(doc! {"customer": 1, "_id": -1}).run().unwrap();
        orders.insert_many((0..100).map(order)).run().unwrap();
        let second = Database::open(directory.path()).unwrap_err();
        assert!(matches!(second, Error::Open(_)), "{second:?}");
    }
    let database = Database::open(directory.path()).unwrap();
    let shop = database.named("shop");
    assert_eq!(shop.list_collection_names().unwrap(), ["orders"]);
    assert!(database.list_database_names().unwrap().contains(&"shop".to_owned()));
    let orders = shop.collection::<Order>("orders");
    let indexes =
        orders.list_indexes().unwrap().map(|index| index.unwrap().get_str("name").unwrap().to_owned());
    assert_eq!(indexes.collect::<Vec<String>>(), ["_id_", "customer_1__id_-1"]);
    let found = orders.find(doc! {"customer": "c3"}).sort(doc! {"_id": -1}).limit(2).run().unwrap();
    assert_eq!(found.map(|one| one.unwrap().id).collect::<Vec<i32>>(), [94, 87]);
    orders.drop_index("customer_1__id_-1").unwrap();
    orders.drop().unwrap();
    orders.drop().unwrap();
    assert_eq!(shop.list_collection_names().unwrap(), [""; 0]);
}

#[test]
fn patterns_hold_in_a_program_too() {
    let database = Database::in_memory().unwrap();
    let products = database.collection::<bson::Document>("products");
    let reviews = database.collection::<bson::Document>("reviews");
    products.insert_one(doc! {"_id": "p"}).run().unwrap();
    reviews.insert_one(doc! {"_id": 0, "productId": "p", "rating": 5}).run().unwrap();
    let group = doc! {"$group": {"_id": "$productId", "reviewCount": {"$count": {}}, "avgRating": {"$avg": "$rating"}}};
    database
        .run_command(doc! {
            "createPattern": "products",
            "name": "ratings",
            "computed": {"from": "reviews", "pipeline": [group], "on": "_id", "whenNotMatched": "discard"},
        })
        .unwrap();
    database.run_command(doc! {"waitPattern": "products", "name": "ratings", "timeoutMS": 10_000}).unwrap();
    reviews.insert_one(doc! {"_id": 1, "productId": "p", "rating": 2}).run().unwrap();
    let product = products.find_one(doc! {"_id": "p"}).run().unwrap().unwrap();
    assert_eq!(product, doc! {"_id": "p", "reviewCount": 2, "avgRating": 3.5});
    let refused = products.update_one(doc! {}, doc! {"$set": {"avgRating": 5}}).run().unwrap_err();
    assert!(refused.to_string().contains("ratings"), "{refused}");
}
