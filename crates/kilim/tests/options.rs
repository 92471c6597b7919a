//! Every option of every action reaches the command it belongs to, and does there what it says.

use std::time::Duration;

use kilim::bson::{Bson, Document, doc};
use kilim::options::{
    ClusteredIndex, Collation, CollationAlternate, CollationCaseFirst, CollationMaxVariable,
    CollationStrength, CursorType, Hint, ReturnDocument, ValidationAction, ValidationLevel,
};
use kilim::{Collection, Cursor, Database};

/// `a`, `B`, `b`, `C` with a number each, in a collection without a collation.
fn letters() -> Collection<Document> {
    let letters = Database::in_memory().unwrap().collection::<Document>("letters");
    let all = [(1, "a"), (2, "B"), (3, "b"), (4, "C")];
    letters.insert_many(all.map(|(id, name)| doc! {"_id": id, "name": name})).run().unwrap();
    letters
}

fn caseless() -> Collation {
    Collation::new("en").strength(CollationStrength::Secondary)
}

fn ids(cursor: Cursor<Document>) -> Vec<i32> {
    cursor.map(|one| one.unwrap().get_i32("_id").unwrap()).collect()
}

#[test]
fn every_read_takes_a_collation() {
    let letters = letters();
    let is_b = || doc! {"name": "b"};
    let by_name = letters.find(doc! {}).sort(doc! {"name": 1, "_id": 1});
    assert_eq!(ids(by_name.run().unwrap()), [2, 4, 1, 3]);
    let by_name = letters.find(doc! {}).sort(doc! {"name": 1, "_id": 1}).collation(caseless());
    assert_eq!(ids(by_name.run().unwrap()), [1, 2, 3, 4]);
    let first = letters.find_one(is_b()).sort(doc! {"_id": 1}).collation(caseless()).run().unwrap();
    assert_eq!(first.unwrap().get_i32("_id").unwrap(), 2);
    assert_eq!(letters.count_documents(is_b()).collation(caseless()).run().unwrap(), 2);
    let as_document = doc! {"locale": "en", "strength": 2};
    assert_eq!(letters.count_documents(is_b()).collation(as_document).run().unwrap(), 2);
    let names = letters.distinct("name", doc! {}).collation(caseless()).run().unwrap();
    assert_eq!(names.len(), 3);
    let group = doc! {"$group": {"_id": "$name"}};
    let groups = letters.aggregate([group]).collation(caseless()).run::<Document>().unwrap();
    assert_eq!(groups.count(), 3);
    let unknown = letters.find(doc! {}).collation(Collation::new("nowhere")).run().unwrap_err();
    assert_eq!(unknown.code(), Some(2), "{unknown}");
}

#[test]
fn every_write_takes_a_collation() {
    let letters = letters();
    let is_b = || doc! {"name": "b"};
    let set = || doc! {"$inc": {"n": 1}};
    let many = letters.update_many(is_b(), set()).collation(caseless()).run().unwrap();
    assert_eq!(many.modified_count, 2);
    let one = letters.update_one(doc! {"name": "A"}, set()).collation(caseless()).run().unwrap();
    assert_eq!(one.modified_count, 1);
    let replaced = letters.replace_one(doc! {"name": "c"}, doc! {"name": "c"}).collation(caseless()).run();
    assert_eq!(replaced.unwrap().modified_count, 1);
    let updated = letters.find_one_and_update(doc! {"name": "A"}, set()).collation(caseless());
    assert_eq!(updated.run().unwrap(), Some(doc! {"_id": 1, "name": "a", "n": 1}));
    let replaced = letters.find_one_and_replace(doc! {"name": "A"}, doc! {"name": "A"}).collation(caseless());
    let replaced = replaced.return_document(ReturnDocument::After).run().unwrap();
    assert_eq!(replaced, Some(doc! {"_id": 1, "name": "A"}));
    let deleted = letters.find_one_and_delete(doc! {"name": "a"}).collation(caseless()).run().unwrap();
    assert_eq!(deleted, Some(doc! {"_id": 1, "name": "A"}));
    let one = letters.delete_one(doc! {"name": "C"}).collation(caseless()).run().unwrap();
    assert_eq!(one.deleted_count, 1);
    let many = letters.delete_many(is_b()).collation(caseless()).run().unwrap();
    assert_eq!(many.deleted_count, 2);
}

#[test]
fn a_collation_says_all_that_mongodb_knows() {
    let database = Database::in_memory().unwrap();
    let whole = Collation::new("fr_CA")
        .strength(CollationStrength::Tertiary)
        .case_level(true)
        .case_first(CollationCaseFirst::Upper)
        .numeric_ordering(true)
        .alternate(CollationAlternate::Shifted)
        .max_variable(CollationMaxVariable::Space)
        .normalization(true)
        .backwards(true);
    database.create_collection("texts").collation(whole).run().unwrap();
    let shown = database.run_command(doc! {"listCollections": 1, "filter": {"name": "texts"}}).unwrap();
    let shown = shown.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].clone();
    let shown = shown.as_document().unwrap().get_document("options").unwrap().clone();
    let shown = shown.get_document("collation").unwrap();
    let expected = doc! {
        "locale": "fr_CA", "caseLevel": true, "caseFirst": "upper", "strength": 3, "numericOrdering": true,
        "alternate": "shifted", "maxVariable": "space", "normalization": true, "backwards": true,
    };
    for (name, value) in &expected {
        assert_eq!(shown.get(name), Some(value), "{name}");
    }
}

#[test]
fn an_index_takes_all_its_options() {
    let letters = letters();
    let name = letters
        .create_index(doc! {"name": 1})
        .name("caseless")
        .collation(caseless())
        .sparse(true)
        .hidden(true)
        .expire_after(Duration::from_secs(60))
        .partial_filter_expression(doc! {"_id": {"$gt": 0}})
        .comment("a test")
        .max_time(Duration::from_secs(10))
        .run();
    // One or the other, as on MongoDB.
    assert_eq!(name.unwrap_err().code(), Some(67));
    let index = |key: Document| letters.create_index(key).collation(caseless()).comment("a test");
    index(doc! {"name": 1})
        .name("caseless")
        .hidden(true)
        .expire_after(Duration::from_secs(60))
        .run()
        .unwrap();
    let partial = index(doc! {"name": -1}).partial_filter_expression(doc! {"_id": {"$gt": 0}});
    assert_eq!(partial.run().unwrap(), "name_-1");
    letters.create_index(doc! {"$**": 1}).wildcard_projection(doc! {"name": 1}).run().unwrap();
    let twice = letters.create_index(doc! {"name": 1}).unique(true).collation(caseless()).run().unwrap_err();
    assert!(twice.is_duplicate_key(), "{twice}");
    let indexes: Vec<Document> = letters.list_indexes().unwrap().collect::<kilim::Result<_>>().unwrap();
    let (caseless, partial, wildcard) = (&indexes[1], &indexes[2], &indexes[3]);
    assert_eq!(caseless.get_document("collation").unwrap().get_i32("strength").unwrap(), 2);
    assert!(caseless.get_bool("hidden").unwrap());
    assert_eq!(caseless.get("expireAfterSeconds"), Some(&Bson::Int32(60)));
    assert_eq!(partial.get_document("partialFilterExpression").unwrap(), &doc! {"_id": {"$gt": 0}});
    assert_eq!(wildcard.get_document("wildcardProjection").unwrap(), &doc! {"name": 1});
}

#[test]
fn a_find_takes_all_its_options() {
    let letters = letters();
    letters.create_index(doc! {"name": 1}).run().unwrap();
    let first = letters.find(doc! {}).hint(doc! {"name": 1}).run().unwrap();
    assert_eq!(ids(first), [2, 4, 1, 3]);
    let named = letters.find(doc! {}).hint("name_1").skip(1).limit(2).run().unwrap();
    assert_eq!(ids(named), [4, 1]);
    let backwards = letters.find(doc! {}).hint(Hint::Keys(doc! {"$natural": -1})).run().unwrap();
    assert_eq!(ids(backwards), [4, 3, 2, 1]);
    let between =
        letters.find(doc! {}).hint("name_1").min(doc! {"name": "C"}).max(doc! {"name": "b"}).run().unwrap();
    assert_eq!(ids(between), [4, 1]);
    let keys = letters.find_one(doc! {"name": "C"}).hint("name_1").return_key(true).run().unwrap();
    assert_eq!(keys, Some(doc! {"name": "C"}));
    let placed = letters.find_one(doc! {"_id": 1}).show_record_id(true).run().unwrap().unwrap();
    assert!(placed.contains_key("$recordId"), "{placed}");
    let lower = doc! {"$expr": {"$gt": ["$name", "$$least"]}};
    let variables = letters.find(lower).let_vars(doc! {"least": "Z"}).sort(doc! {"_id": 1});
    let projected =
        variables.projection(doc! {"_id": 1}).allow_disk_use(false).no_cursor_timeout(true).comment("x");
    assert_eq!(ids(projected.max_time(Duration::from_secs(10)).run().unwrap()), [1, 3]);
    let unknown = letters.find(doc! {}).hint("none").run().unwrap_err();
    assert_eq!(unknown.code(), Some(2), "{unknown}");
}

#[test]
fn counts_and_pipelines_take_all_their_options() {
    let letters = letters();
    letters.create_index(doc! {"name": 1}).sparse(true).run().unwrap();
    let count = || letters.count_documents(doc! {}).hint("name_1").comment("x");
    assert_eq!(count().skip(1).run().unwrap(), 3);
    assert_eq!(count().limit(2).max_time(Duration::from_secs(10)).run().unwrap(), 2);
    assert_eq!(count().skip(3).limit(5).run().unwrap(), 1);
    assert_eq!(count().limit(0).run().unwrap(), 4);
    assert_eq!(count().skip(9).run().unwrap(), 0);
    let names = letters.distinct("name", doc! {}).hint(doc! {"name": 1}).comment(doc! {"by": "test"});
    assert_eq!(names.max_time(Duration::from_secs(10)).run().unwrap().len(), 4);
    let named = doc! {"$match": {"$expr": {"$eq": ["$name", "$$wanted"]}}};
    let found = letters.aggregate([named]).let_vars(doc! {"wanted": "B"}).hint("name_1").batch_size(1);
    let found = found.allow_disk_use(true).comment("x").max_time(Duration::from_secs(10)).run::<Document>();
    assert_eq!(ids(found.unwrap()), [2]);
    let all = letters.aggregate([doc! {"$sort": {"_id": 1}}]).batch_size(1).run::<Document>().unwrap();
    assert_eq!(ids(all), [1, 2, 3, 4]);
}

#[test]
fn writes_take_all_their_options() {
    let letters = letters();
    letters.create_index(doc! {"name": 1}).run().unwrap();
    let wanted = || doc! {"$expr": {"$eq": ["$name", "$$wanted"]}};
    let variables = || doc! {"wanted": "b"};
    let pipeline = vec![doc! {"$set": {"seen": "$$wanted"}}];
    let updated = letters.update_one(wanted(), pipeline).let_vars(variables()).hint("name_1").comment("x");
    assert_eq!(updated.run().unwrap().modified_count, 1);
    let list = doc! {"$set": {"list.$[low]": 0}};
    letters.update_one(doc! {"_id": 1}, doc! {"$set": {"list": [1, 9]}}).run().unwrap();
    let changed =
        letters.find_one_and_update(doc! {"_id": 1}, list).array_filters([doc! {"low": {"$lt": 5}}]);
    let changed = changed.return_document(ReturnDocument::After).hint("_id_").projection(doc! {"list": 1});
    let changed = changed.comment("x").max_time(Duration::from_secs(10)).run().unwrap();
    assert_eq!(changed, Some(doc! {"_id": 1, "list": [0, 9]}));
    let upserted = letters.find_one_and_update(doc! {"_id": 9}, doc! {"$set": {"name": "z"}}).upsert(true);
    assert_eq!(upserted.return_document(ReturnDocument::Before).run().unwrap(), None);
    let sorted = letters.find_one_and_delete(wanted()).let_vars(doc! {"wanted": "z"}).sort(doc! {"_id": -1});
    assert_eq!(sorted.run().unwrap(), Some(doc! {"_id": 9, "name": "z"}));
    let deleted = letters.delete_many(wanted()).let_vars(variables()).hint(doc! {"name": 1}).comment("x");
    assert_eq!(deleted.run().unwrap().deleted_count, 1);
}

#[test]
fn a_validator_can_be_bypassed() {
    let database = Database::in_memory().unwrap();
    let create = database.create_collection("checked").validator(doc! {"n": {"$gt": 0}});
    let create = create.validation_level(ValidationLevel::Strict).validation_action(ValidationAction::Error);
    create.comment("x").run().unwrap();
    let checked = database.collection::<Document>("checked");
    assert_eq!(checked.insert_one(doc! {"_id": 1, "n": 0}).run().unwrap_err().code(), Some(121));
    checked.insert_one(doc! {"_id": 1, "n": 0}).bypass_document_validation(true).comment("x").run().unwrap();
    let several = [doc! {"_id": 2, "n": 0}, doc! {"_id": 3, "n": 0}];
    checked.insert_many(several).bypass_document_validation(true).comment("x").run().unwrap();
    let lower = || doc! {"$inc": {"n": -1}};
    assert_eq!(checked.update_one(doc! {"_id": 1}, lower()).run().unwrap_err().code(), Some(121));
    let bypassed = checked.update_many(doc! {}, lower()).bypass_document_validation(true).run().unwrap();
    assert_eq!(bypassed.modified_count, 3);
    let found = checked.find_one_and_update(doc! {"_id": 1}, lower()).bypass_document_validation(true);
    assert_eq!(found.run().unwrap(), Some(doc! {"_id": 1, "n": -1}));
    let merge = [doc! {"$set": {"n": -9}}, doc! {"$merge": "checked"}];
    assert_eq!(checked.aggregate(merge.clone()).run::<Document>().unwrap_err().code(), Some(121));
    checked.aggregate(merge).bypass_document_validation(true).run::<Document>().unwrap();
    assert_eq!(checked.count_documents(doc! {"n": -9}).run().unwrap(), 3);
}

#[test]
fn collections_are_capped_clustered_or_views() {
    let database = Database::in_memory().unwrap();
    database.create_collection("few").capped(true).size(4096).max(2).run().unwrap();
    let few = database.collection::<Document>("few");
    few.insert_many((0..5).map(|id| doc! {"_id": id})).run().unwrap();
    assert_eq!(ids(few.find(doc! {}).run().unwrap()), [3, 4]);

    let create = database.create_collection("ordered").clustered_index(ClusteredIndex::default());
    create.expire_after_seconds(Duration::from_secs(3600)).run().unwrap();
    let ordered = database.collection::<Document>("ordered");
    ordered.insert_many([2, 1, 3].map(|id| doc! {"_id": id})).run().unwrap();
    assert_eq!(ids(ordered.find(doc! {}).run().unwrap()), [1, 2, 3]);

    database
        .create_collection("odd")
        .view_on("ordered")
        .pipeline([doc! {"$match": {"_id": {"$ne": 2}}}])
        .run()
        .unwrap();
    assert_eq!(ids(database.collection("odd").find(doc! {}).run().unwrap()), [1, 3]);
    let again = database.create_collection("few").run().unwrap_err();
    assert_eq!(again.code(), Some(48), "{again}");
}

#[test]
fn a_cursor_that_waits_goes_on_with_what_comes() {
    let database = Database::in_memory().unwrap();
    database.create_collection("log").capped(true).size(1 << 16).run().unwrap();
    let log = database.collection::<Document>("log");
    log.insert_many((0..5).map(|id| doc! {"_id": id})).run().unwrap();
    let tail = log.find(doc! {}).cursor_type(CursorType::TailableAwait).batch_size(2);
    let mut tail = tail.max_await_time(Duration::from_millis(20)).run().unwrap();
    for id in 0..5 {
        assert_eq!(tail.next().unwrap().unwrap(), doc! {"_id": id});
    }
    let writer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        log.insert_one(doc! {"_id": 5}).run().unwrap();
        log
    });
    assert_eq!(tail.next().unwrap().unwrap(), doc! {"_id": 5});
    let log = writer.join().unwrap();
    let plain = log.find(doc! {}).cursor_type(CursorType::Tailable).batch_size(2).run().unwrap();
    assert_eq!(ids(plain), [0, 1, 2, 3, 4, 5]);
    let refused = database.collection::<Document>("other");
    refused.insert_one(doc! {}).run().unwrap();
    let refused = refused.find(doc! {}).cursor_type(CursorType::Tailable).run().unwrap_err();
    assert_eq!(refused.code(), Some(2), "{refused}");
}

#[test]
fn a_session_without_a_transaction_goes_through_a_cursor() {
    let letters = letters();
    let mut session = letters.database().start_session();
    let found =
        letters.find(doc! {}).sort(doc! {"_id": 1}).batch_size(1).session(&mut session).run().unwrap();
    assert_eq!(ids(found), [1, 2, 3, 4]);
    session.start_transaction().unwrap();
    letters.create_index(doc! {"name": 1}).session(&mut session).run().unwrap_err();
}

#[test]
fn the_last_word_counts() {
    let letters = letters();
    let found = letters.find(doc! {}).sort(doc! {"_id": 1}).sort(doc! {"_id": -1}).limit(1).limit(2).run();
    assert_eq!(ids(found.unwrap()), [4, 3]);
}
