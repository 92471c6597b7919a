//! Arrays that continue in pages: what users see of them, and what is refused.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::ReadRequest;
use kilim_engine::read;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::projection::Projection;

use crate::pattern::{declare, make, one, wait_until_active};
use crate::pattern_crash::at_every_commit;
use crate::support::{Db, everywhere, filter, ids, ns, number, spec};

fn followers(read: &str) -> Document {
    doc! {"name": "fans", "outlier": {
        "field": "followers", "limit": 5, "pageSize": 4, "flag": "hasOverflow", "count": "followerCount", "read": read,
    }}
}

fn names(range: std::ops::Range<i32>) -> Vec<Value> {
    range.map(|number| Value::from(format!("f{number}"))).collect()
}

/// A celebrity with followers f0 to f19, and somebody with two.
fn famous(read: &str, db: &Db) {
    make(db, &["users"]);
    declare(db, "users", followers(read)).unwrap();
    db.insert(
        "users",
        &[
            doc! {"_id": 1, "followers": names(0..20), "country": "de"},
            doc! {"_id": 2, "followers": names(0..2)},
        ],
    );
}

fn drop_pattern(db: &Db) -> Result<()> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("users"), "fans")?;
    db.engine.drop_pattern(&operation, &pattern)
}

fn sliced(db: &Db, matching: Document, projection: Document) -> Vec<Document> {
    db.run(|unit| {
        let mut request = ReadRequest::new(filter(matching));
        request.projection = Some(Projection::parse(projection.as_raw())?);
        let mut executor = read::plan(unit, &ns("users"), request)?.execute();
        let mut context = ExecContext::new(&|| Ok(()));
        let mut found = Vec::new();
        while let Some(row) = executor.next_document(&mut context)? {
            found.push(row.document().to_document());
        }
        Ok(found)
    })
    .unwrap()
}

/// The array alone, to be compared with a [`list`].
fn elements_of(document: &Document) -> Document {
    document.get("followers").map_or_else(Document::new, |value| doc! {"": value})
}

fn list(values: Vec<Value>) -> Document {
    doc! {"": values}
}

fn len(document: &Document) -> usize {
    document.get("followers").and_then(RawValue::as_array).map_or(0, |array| array.len())
}

#[test]
fn a_preview_has_the_first_elements_the_flag_and_the_count() {
    everywhere(|db| {
        famous("preview", &db);
        let seen = one(&db, "users", doc! {"_id": 1});
        assert_eq!(
            seen,
            doc! {
                "_id": 1, "followers": names(0..5), "country": "de", "hasOverflow": true, "followerCount": 20,
            }
        );
        let small = one(&db, "users", doc! {"_id": 2});
        assert_eq!(
            small,
            doc! {"_id": 2, "followers": names(0..2), "hasOverflow": false, "followerCount": 2}
        );
        db.check();
    });
}

#[test]
fn pages_are_read_and_not_written_under_the_collections_name() {
    everywhere(|db| {
        famous("preview", &db);
        let pages = db.find("users.overflow", doc! {});
        assert_eq!(pages.len(), 4);
        assert_eq!(pages[0], doc! {"_id": {"of": 1, "page": 0}, "count": 4, "elements": names(5..9)});
        let code = |result: Result<()>| result.unwrap_err().code();
        let owned = ErrorCode::CollectionOwnedByPattern;
        assert_eq!(code(db.try_insert("users.overflow", doc! {"_id": 1})), owned);
        assert_eq!(code(db.update("users.overflow", doc! {}, doc! {"$set": {"count": 1}}).map(drop)), owned);
        assert_eq!(code(db.delete("users.overflow", doc! {}).map(drop)), owned);
        assert_eq!(code(db.drop_collection("users.overflow")), owned);
        assert_eq!(code(db.rename("users.overflow", "other", false)), owned);
        assert_eq!(code(db.rename("users", "users.overflow", true)), owned);
    });
}

#[test]
fn a_filter_finds_an_element_in_a_page() {
    everywhere(|db| {
        famous("preview", &db);
        let found = |matching: Document| ids(&db.find("users", matching));
        assert_eq!(found(doc! {"followers": "f1"}), [1, 2]);
        assert_eq!(found(doc! {"followers": "f19"}), [1]);
        assert_eq!(found(doc! {"_id": 1, "followers": "f19"}), [1]);
        assert_eq!(found(doc! {"_id": 1, "followers": "f20"}), []);
        assert_eq!(found(doc! {"followers": {"$ne": "f19"}}), [2]);
        assert_eq!(found(doc! {"followers": {"$all": ["f0", "f12", "f19"]}}), [1]);
        assert_eq!(found(doc! {"followers": {"$size": 20}}), [1]);
        assert_eq!(found(doc! {"followers": {"$size": 5}}), []);
        assert_eq!(found(doc! {"followers.17": "f17"}), [1]);
        assert_eq!(found(doc! {"followers": {"$elemMatch": {"$gt": "f18", "$lt": "f2"}}}), [1]);
        let by_scan =
            db.run(|unit| crate::support::find(unit, "users", doc! {"followers": "f19"}, Some("_id_")));
        assert_eq!(ids(&by_scan.unwrap()), [1]);
    });
}

#[test]
fn a_slice_pages_through_all_of_it() {
    everywhere(|db| {
        famous("preview", &db);
        let slice = |skip: i32, limit: i32| {
            let mut found = sliced(&db, doc! {"_id": 1}, doc! {"followers": {"$slice": [skip, limit]}});
            elements_of(&found.remove(0))
        };
        assert_eq!(slice(3, 6), list(names(3..9)));
        assert_eq!(slice(8, 5), list(names(8..13)));
        assert_eq!(slice(-3, 2), list(names(17..19)));
        assert_eq!(slice(30, 2), list(Vec::new()));
        let with_name = sliced(&db, doc! {"_id": 1}, doc! {"country": 1, "followers": {"$slice": -1}});
        assert_eq!(with_name, [doc! {"_id": 1, "followers": names(19..20), "country": "de"}]);
    });
}

/// Pages are full but for the last, or have lost elements here and there: every slice is what it is of the array.
#[test]
fn a_slice_begins_at_its_page() {
    everywhere(|db| {
        make(&db, &["users"]);
        declare(&db, "users", followers("preview")).unwrap();
        db.insert("users", &[doc! {"_id": 1, "followers": names(0..60)}]);
        let check = |all: &[i32]| {
            let len = all.len() as i32;
            for skip in (-len..len + 2).step_by(3) {
                for limit in [1, 4, 9, 100_i32] {
                    let slice = doc! {"followers": {"$slice": [skip, limit]}};
                    let seen = sliced(&db, doc! {"_id": 1}, slice).remove(0);
                    let from = if skip < 0 { len + skip } else { skip.min(len) };
                    let to = (from + limit).min(len);
                    let expected = all[from as usize..to as usize].iter();
                    let expected = expected.map(|number| Value::from(format!("f{number}"))).collect();
                    assert_eq!(elements_of(&seen), list(expected), "{skip} {limit}");
                }
            }
        };
        let mut all: Vec<i32> = (0..60).collect();
        check(&all);
        for gone in [[7, 22, 23], [24, 50, 59]] {
            all.retain(|number| !gone.contains(number));
            let gone: Vec<Value> = gone.iter().map(|number| Value::from(format!("f{number}"))).collect();
            let pull = doc! {"$pull": {"followers": {"$in": gone}}};
            db.update("users", doc! {"_id": 1}, pull).unwrap();
            check(&all);
        }
        db.check();
    });
}

#[test]
fn add_to_set_is_unique_over_both_parts() {
    everywhere(|db| {
        famous("preview", &db);
        let again = db.update("users", doc! {"_id": 1}, doc! {"$addToSet": {"followers": "f17"}}).unwrap();
        assert_eq!((again.matched, again.modified), (1, 0));
        let more = doc! {"$addToSet": {"followers": {"$each": ["f3", "f19", "new", "f20"]}}};
        assert_eq!(db.update("users", doc! {"_id": 1}, more).unwrap().modified, 1);
        let seen = one(&db, "users", doc! {"followers": "new"});
        assert_eq!((number(&seen, "followerCount"), len(&seen)), (22, 5));
        db.check();
    });
}

#[test]
fn array_operators_act_on_the_whole_array() {
    everywhere(|db| {
        famous("whole", &db);
        let run = |update: Document| db.update("users", doc! {"_id": 1}, update).unwrap().modified;
        let seen = || elements_of(&one(&db, "users", doc! {"_id": 1}));
        assert_eq!(run(doc! {"$pull": {"followers": {"$in": ["f0", "f13"]}}}), 1);
        assert_eq!(run(doc! {"$set": {"followers.16": "sixteen"}}), 1);
        assert_eq!(run(doc! {"$pop": {"followers": 1}}), 1);
        assert_eq!(run(doc! {"$push": {"followers": {"$each": ["first"], "$position": 0}}}), 1);
        let mut expected = vec![Value::from("first")];
        expected.extend(names(1..13).into_iter().chain(names(14..18)));
        expected.push(Value::from("sixteen"));
        assert_eq!(seen(), list(expected));
        let matched = doc! {"_id": 1, "followers": "f15"};
        assert_eq!(db.update("users", matched, doc! {"$set": {"followers.$": "x"}}).unwrap().modified, 1);
        assert_eq!(ids(&db.find("users", doc! {"followers": "x"})), [1]);
        assert!(db.find("users", doc! {"followers": "f15"}).is_empty());
        db.check();
    });
}

#[test]
fn it_folds_back_well_below_its_limit() {
    everywhere(|db| {
        famous("preview", &db);
        let keep = |count: i32| {
            let update = doc! {"$push": {"followers": {"$each": Vec::<Value>::new(), "$slice": count}}};
            db.update("users", doc! {"_id": 1}, update).unwrap();
            let seen = one(&db, "users", doc! {"_id": 1});
            (seen.get("hasOverflow").and_then(RawValue::as_bool), number(&seen, "followerCount"))
        };
        assert_eq!(keep(6), (Some(true), 6));
        assert_eq!(keep(4), (Some(true), 4));
        assert_eq!(keep(3), (Some(false), 3));
        assert_eq!(db.count("users.overflow", doc! {}), 0);
        db.check();
    });
}

#[test]
fn a_preview_that_is_sent_back_keeps_the_rest() {
    everywhere(|db| {
        famous("preview", &db);
        let preview = one(&db, "users", doc! {"_id": 1});
        let mut changed: Document = preview
            .iter()
            .filter(|(name, _)| *name != "country")
            .map(|(name, value)| (name, value.to_value()))
            .collect();
        changed.push("country", "fr");
        assert_eq!(db.update("users", doc! {"_id": 1}, changed).unwrap().modified, 1);
        let seen = one(&db, "users", doc! {"followers": "f19"});
        assert_eq!(
            (number(&seen, "followerCount"), seen.get("country").and_then(RawValue::as_str)),
            (20, Some("fr"))
        );
        // Another array is what it says.
        db.update("users", doc! {"_id": 1}, doc! {"followers": ["a"], "hasOverflow": true}).unwrap();
        let seen = one(&db, "users", doc! {"_id": 1});
        assert_eq!(seen, doc! {"_id": 1, "followers": ["a"], "hasOverflow": false, "followerCount": 1});
        assert_eq!(db.count("users.overflow", doc! {}), 0);
        db.check();
    });
}

#[test]
fn operators_that_name_the_flag_or_the_count_are_refused() {
    everywhere(|db| {
        famous("preview", &db);
        for path in ["hasOverflow", "followerCount"] {
            let refused = db.update("users", doc! {"_id": 1}, doc! {"$set": {(path): 3}});
            assert_eq!(refused.unwrap_err().code(), ErrorCode::PatternFieldReadOnly);
        }
    });
}

#[test]
fn an_array_beyond_a_document_is_filtered_sliced_and_appended_to() {
    let db = Db::memory();
    make(&db, &["users"]);
    let fans = doc! {"name": "fans", "outlier": {
        "field": "followers", "limit": 100, "pageSize": 1000, "count": "followerCount", "read": "whole",
    }};
    declare(&db, "users", fans).unwrap();
    db.insert("users", &[doc! {"_id": 1, "followers": Vec::<Value>::new(), "n": 0}]);
    let text = "x".repeat(900);
    let batch =
        |of: i32| -> Vec<Value> { (0..4000).map(|at| Value::from(format!("{of}-{at}-{text}"))).collect() };
    for of in 0..6 {
        let push = doc! {"$push": {"followers": {"$each": batch(of)}}};
        assert_eq!(db.update("users", doc! {"_id": 1}, push).unwrap().modified, 1);
    }
    let refused = db.run(|unit| crate::support::find(unit, "users", doc! {"_id": 1}, None)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::BSONObjectTooLarge);
    assert!(refused.to_string().contains("$slice"), "{refused}");
    let seen =
        sliced(&db, doc! {"followers": {"$size": 24_000}}, doc! {"followers": {"$slice": [23_999, 5]}});
    assert_eq!(len(&seen[0]), 1);
    assert_eq!(number(&seen[0], "followerCount"), 24_000);
    let member = format!("5-3999-{text}");
    assert_eq!(db.count("users", doc! {"_id": 1, "followers": &*member}), 1);
    assert_eq!(db.count("users", doc! {"followers": "nobody"}), 0);
    assert_eq!(db.count("users", doc! {"followers": {"$regex": "^4-17-"}}), 1);
    let known = db.update("users", doc! {"_id": 1}, doc! {"$addToSet": {"followers": &*member}}).unwrap();
    assert_eq!(known.modified, 0);
    assert_eq!(db.update("users", doc! {"_id": 1}, doc! {"$inc": {"n": 1}}).unwrap().modified, 1);
    let pull = doc! {"$pull": {"followers": {"$in": [format!("5-3998-{text}"), format!("0-1-{text}")]}}};
    assert_eq!(db.update("users", doc! {"_id": 1}, pull).unwrap().modified, 1);
    assert_eq!(db.count("users", doc! {"followers": {"$size": 23_998}}), 1);
    assert_eq!(db.count("users", doc! {"followers": format!("0-1-{text}")}), 0);
    // What needs the whole array at once says so, and leaves it as it is.
    let sort = doc! {"$push": {"followers": {"$each": ["a"], "$sort": 1}}};
    assert_eq!(db.update("users", doc! {"_id": 1}, sort).unwrap_err().code(), ErrorCode::BSONObjectTooLarge);
    assert_eq!(drop_pattern(&db).unwrap_err().code(), ErrorCode::BSONObjectTooLarge);
    db.check();
    assert_eq!(db.delete("users", doc! {"_id": 1}).unwrap(), 1);
    assert_eq!(db.count("users.overflow", doc! {}), 0);
    db.check();
}

#[test]
fn documents_from_before_the_declaration_are_divided_by_the_job() {
    everywhere(|mut db| {
        make(&db, &["users"]);
        let make = |id: i32| doc! {"_id": id, "followers": names(0..id), "hasOverflow": true};
        db.insert("users", &(0..30).map(make).collect::<Vec<_>>());
        declare(&db, "users", followers("preview")).unwrap();
        wait_until_active(&db, "users", "fans");
        assert_eq!(db.count("users", doc! {"hasOverflow": true}), 24);
        let counts: Vec<i64> =
            db.find("users", doc! {}).iter().map(|it| number(it, "followerCount")).collect();
        assert_eq!(counts, (0..30).collect::<Vec<i64>>());
        assert_eq!(db.count("users", doc! {"followers": "f28"}), 1);
        db.check();
        if db.is_durable() {
            db.reopen();
            assert_eq!(db.count("users", doc! {"followers": "f28"}), 1);
            assert_eq!(len(&one(&db, "users", doc! {"_id": 29})), 5);
            db.check();
        }
    });
}

#[test]
fn a_dropped_pattern_folds_its_arrays_back() {
    everywhere(|db| {
        famous("preview", &db);
        drop_pattern(&db).unwrap();
        let seen = one(&db, "users", doc! {"_id": 1});
        assert_eq!(elements_of(&seen), list(names(0..20)));
        assert!(db.engine.collection(&ns("users.overflow")).is_none());
        assert_eq!(ids(&db.find("users", doc! {"followers": "f19"})), [1]);
        db.check();
    });
}

#[test]
fn a_transaction_from_before_a_drop_sees_arrays_as_they_were() {
    for read in ["preview", "whole"] {
        everywhere(|db| {
            famous(read, &db);
            db.insert("others", &[doc! {"_id": 1, "who": "f19"}]);
            let seen = db.find("users", doc! {});
            let mut old = db.transaction(1, 1);
            // Its state is from before the drop, and it reads the collection only afterwards.
            old.count("others", doc! {}).unwrap();
            drop_pattern(&db).unwrap();
            db.update("users", doc! {"_id": 1}, doc! {"$push": {"followers": "f20"}}).unwrap();
            db.engine.store.sync().unwrap();
            assert_eq!(old.find("users", doc! {}).unwrap(), seen);
            assert_eq!(old.count("users", doc! {"followers": "f19"}).unwrap(), 1);
            assert_eq!(old.count("users", doc! {"followers": "f20"}).unwrap(), 0);
            assert_eq!(old.count("users", doc! {"followers": {"$size": 20}}).unwrap(), 1);
            // What the drop has folded back was changed since the transaction began.
            let update = old.update("users", doc! {"followers": "f19"}, doc! {"$set": {"country": "it"}});
            assert!(matches!(update, Err(Error::Conflict(_))), "{update:?}");
            let mut new = db.transaction(1, 2);
            assert_eq!(len(&new.find("users", doc! {"_id": 1}).unwrap()[0]), 21);
            new.commit().unwrap();
            // Another declaration divides them otherwise, and is dropped too.
            let mut between = db.transaction(2, 1);
            between.count("others", doc! {}).unwrap();
            declare(&db, "users", followers(read)).unwrap();
            wait_until_active(&db, "users", "fans");
            drop_pattern(&db).unwrap();
            assert_eq!(len(&between.find("users", doc! {"followers": "f20"}).unwrap()[0]), 21);
            between.commit().unwrap();
            db.check();
        });
    }
}

#[test]
fn pages_follow_their_collection() {
    everywhere(|db| {
        famous("preview", &db);
        db.rename("users", "people", false).unwrap();
        assert_eq!(db.count("people.overflow", doc! {}), 4);
        assert!(db.engine.collection(&ns("users.overflow")).is_none());
        assert_eq!(ids(&db.find("people", doc! {"followers": "f19"})), [1]);
        db.update("people", doc! {"_id": 1}, doc! {"$push": {"followers": "last"}}).unwrap();
        assert_eq!(number(&one(&db, "people", doc! {"followers": "last"}), "followerCount"), 21);
        db.check();
        db.drop_collection("people").unwrap();
        assert!(db.engine.collection(&ns("people.overflow")).is_none());
        db.check();
    });
}

#[test]
fn what_cannot_be_true_beside_pages_is_refused() {
    everywhere(|db| {
        famous("preview", &db);
        let conflict = ErrorCode::PatternFieldConflict;
        let refused = |spec| db.build("users", vec![spec]).unwrap_err().code();
        assert_eq!(refused(spec(doc! {"country": 1, "followers": 1})), conflict);
        assert_eq!(refused(spec(doc! {"followers.0": 1})), conflict);
        assert_eq!(
            refused(kilim_engine::index::IndexSpec { sparse: true, ..spec(doc! {"followers": -1}) }),
            conflict
        );
        db.build("users", vec![spec(doc! {"followers": -1}), spec(doc! {"country": 1})]).unwrap();
        let computed = doc! {"name": "size", "computed": {"set": {"size": {"$size": "$followers"}}}};
        assert_eq!(declare(&db, "users", computed).unwrap_err().code(), conflict);
        let second = doc! {"name": "again", "outlier": {"field": "others"}};
        assert_eq!(declare(&db, "users", second).unwrap_err().code(), conflict);
        // What has nothing to do with the array is as before.
        let tax = doc! {"name": "place", "computed": {"set": {"place": {"$toUpper": "$country"}}}};
        declare(&db, "users", tax).unwrap();
        wait_until_active(&db, "users", "place");
        db.update("users", doc! {"_id": 1}, doc! {"$set": {"country": "it"}}).unwrap();
        let seen = one(&db, "users", doc! {"followers": "f19"});
        assert_eq!(seen.get("place").and_then(RawValue::as_str), Some("IT"));
        assert_eq!(number(&seen, "followerCount"), 20);
        db.check();
    });
}

#[test]
fn a_transaction_sees_its_own_pages_and_others_do_not() {
    everywhere(|db| {
        famous("preview", &db);
        let mut transaction = db.transaction(1, 1);
        transaction.update("users", doc! {"_id": 1}, doc! {"$push": {"followers": "late"}}).unwrap();
        transaction.update("users", doc! {"_id": 1}, doc! {"$pull": {"followers": "f18"}}).unwrap();
        assert_eq!(transaction.count("users", doc! {"followers": "late"}).unwrap(), 1);
        assert_eq!(transaction.count("users", doc! {"_id": 1, "followers": "f18"}).unwrap(), 0);
        assert_eq!(db.count("users", doc! {"followers": "late"}), 0);
        assert_eq!(db.count("users", doc! {"_id": 1, "followers": "f18"}), 1);
        transaction.commit().unwrap();
        assert_eq!(number(&one(&db, "users", doc! {"followers": "late"}), "followerCount"), 20);
        let mut aborted = db.transaction(1, 2);
        aborted.update("users", doc! {"_id": 1}, doc! {"$set": {"followers": ["only"]}}).unwrap();
        aborted.abort().unwrap();
        assert_eq!(db.count("users", doc! {"followers": "f17"}), 1);
        db.check();
    });
}

#[test]
fn appending_an_element_writes_one_page_at_any_length() {
    everywhere(|db| {
        make(&db, &["users"]);
        declare(&db, "users", doc! {"name": "fans", "outlier": {"field": "followers"}}).unwrap();
        db.insert("users", &[doc! {"_id": 1, "followers": names(0..20_000)}]);
        let maintained = || db.engine.pattern(&ns("users"), "fans").unwrap().counters.maintained.get();
        let before = maintained();
        for at in 0..20 {
            let (push, add) = (format!("push{at}"), format!("add{at}"));
            db.update("users", doc! {"_id": 1}, doc! {"$push": {"followers": push}}).unwrap();
            db.update("users", doc! {"_id": 1}, doc! {"$addToSet": {"followers": add}}).unwrap();
        }
        assert_eq!(maintained() - before, 40);
        assert_eq!(
            db.count("users", doc! {"_id": 1, "followers": {"$all": ["push19", "add0", "f19999"]}}),
            1
        );
        db.check();
    });
}

#[test]
fn keys_of_a_folded_array_have_the_types_of_its_first_elements() {
    everywhere(|db| {
        famous("preview", &db);
        let numbers: Vec<Value> = (0..8).map(Value::Int32).collect();
        db.insert("users", &[doc! {"_id": 3, "followers": numbers}]);
        db.update("users", doc! {"_id": 3}, doc! {"$push": {"followers": 1.0}}).unwrap();
        db.check();
        drop_pattern(&db).unwrap();
        db.check();
    });
}

#[test]
fn find_and_modify_shows_an_array_whole_that_it_divides() {
    everywhere(|db| {
        famous("whole", &db);
        let push = doc! {"$push": {"followers": {"$each": names(2..9)}}};
        let seen = db.run(|unit| crate::support::find_and_modify(unit, "users", doc! {"_id": 2}, push, None));
        assert_eq!(elements_of(&seen.unwrap().value.unwrap()), list(names(0..9)));
    });
}

#[test]
fn find_and_modify_shows_an_array_whole_that_it_inserts() {
    everywhere(|db| {
        famous("whole", &db);
        let set = doc! {"$set": {"followers": names(0..9)}};
        let seen = db.run(|unit| {
            crate::support::find_and_modify_or_insert(unit, "users", doc! {"_id": 7}, set, None, true)
        });
        let seen = seen.unwrap().value.unwrap();
        assert_eq!(elements_of(&seen), list(names(0..9)));
        assert!(matches!(seen.get("hasOverflow"), Some(kilim_bson::RawValue::Bool(true))), "{seen:?}");
        db.check();
    });
}

#[test]
fn keys_go_with_all_inline_elements_that_are_pulled() {
    everywhere(|db| {
        make(&db, &["users"]);
        db.build("users", vec![spec(doc! {"followers.k": 1})]).unwrap();
        let small = doc! {"name": "fans", "outlier": {"field": "followers", "limit": 2, "pageSize": 4}};
        declare(&db, "users", small).unwrap();
        // The first two lie inline and have no `k`; the others lie in a page.
        let mixed: Vec<Value> = [Value::Int32(5), Value::Null].into();
        let further = (0..3).map(|k| Value::Document(doc! {"k": k}));
        db.insert(
            "users",
            &[doc! {"_id": 1, "followers": mixed.iter().cloned().chain(further).collect::<Vec<_>>()}],
        );
        db.update("users", doc! {"_id": 1}, doc! {"$pullAll": {"followers": mixed}}).unwrap();
        db.check();
        assert_eq!(db.count("users", doc! {"followers.k": Value::Null}), 0);
    });
}

#[test]
fn pulling_from_many_pages_looks_each_key_up_once() {
    let db = Db::memory();
    make(&db, &["users"]);
    db.build("users", vec![spec(doc! {"followers": 1})]).unwrap();
    declare(
        &db,
        "users",
        doc! {"name": "fans", "outlier": {"field": "followers", "limit": 2, "pageSize": 1}},
    )
    .unwrap();
    let all: Vec<Value> = (0..30_000).map(Value::Int32).collect();
    db.insert("users", &[doc! {"_id": 1, "followers": all}]);
    // With 15,000 keys that go and as many pages that stay, comparing all with all would take minutes.
    db.update("users", doc! {"_id": 1}, doc! {"$pull": {"followers": {"$mod": [2, 1]}}}).unwrap();
    assert_eq!(db.count("users", doc! {"followers": 29_999}), 0);
    assert_eq!(db.count("users", doc! {"followers": 29_998}), 1);
}

#[test]
fn an_element_that_fills_a_document_stays_inline() {
    everywhere(|db| {
        famous("preview", &db);
        let huge = "z".repeat(16 * 1024 * 1024 - 100);
        db.insert("users", &[doc! {"_id": 3, "followers": [(&*huge)]}]);
        assert_eq!(db.count("users.overflow", doc! {"_id.of": 3}), 0);
        assert_eq!(db.count("users", doc! {"followers": (&*huge)}), 1);
        db.check();
    });
}

/// Users of all sizes, with their arrays as plain ones.
fn users() -> Vec<Document> {
    let user = |(id, len)| doc! {"_id": id, "followers": names(0..len), "country": "de"};
    let mut users: Vec<Document> = [(1, 20), (2, 2), (3, 5), (4, 6), (5, 33)].into_iter().map(user).collect();
    users.push(doc! {"_id": 6});
    users
}

/// The users by their `_id`, without what the pattern keeps beside the array.
fn plain_users(db: &Db) -> Vec<Document> {
    let kept = |user: Document| -> Document {
        let fields = user.iter().filter(|(name, _)| !["hasOverflow", "followerCount"].contains(name));
        fields.map(|(name, value)| (name, value.to_value())).collect()
    };
    let mut users: Vec<Document> = db.find("users", doc! {}).into_iter().map(kept).collect();
    users.sort_by_key(|user| number(user, "_id"));
    users
}

/// What every state is that a power cut leaves.
fn check_cut(db: &Db) {
    db.check();
    let declared = db.engine.pattern(&ns("users"), "fans").is_ok();
    assert!(declared || db.find("users.overflow", doc! {}).is_empty());
}

#[test]
fn the_power_goes_at_every_commit_of_dividing_arrays() {
    let prepare = |db: &Db| db.insert("users", &users());
    let act = |db: &Db| declare(db, "users", followers("whole")).map(drop);
    let cuts = at_every_commit(prepare, act, |db| {
        assert_eq!(plain_users(db), users());
        check_cut(db);
    });
    assert!(cuts > 2, "{cuts}");
}

#[test]
fn the_power_goes_at_every_commit_of_a_drop_that_folds_arrays_back() {
    let prepare = |db: &Db| {
        make(db, &["users"]);
        declare(db, "users", followers("whole")).unwrap();
        db.insert("users", &users());
    };
    let cuts = at_every_commit(prepare, drop_pattern, |db| {
        assert_eq!(plain_users(db), users());
        check_cut(db);
    });
    assert!(cuts > 0);
}

#[test]
fn the_power_goes_at_every_commit_of_changes_to_long_arrays() {
    let changes = [
        (1, doc! {"$push": {"followers": "x"}}),
        (1, doc! {"$push": {"followers": {"$each": names(40..60)}}}),
        (1, doc! {"$addToSet": {"followers": "y"}}),
        (2, doc! {"$push": {"followers": {"$each": names(2..30)}}}),
        (1, doc! {"$pull": {"followers": {"$in": ["f1", "f7", "f45"]}}}),
        (5, doc! {"$set": {"followers.20": "z"}}),
        // What is left fits into the document: its pages go.
        (5, doc! {"$pull": {"followers": {"$gt": "f11"}}}),
        (1, doc! {"$unset": {"followers": 1}}),
        (3, doc! {"$set": {"followers": names(0..12)}}),
    ];
    let change = |db: &Db, (id, update): &(i32, Document)| {
        db.update("users", doc! {"_id": *id}, update.clone()).map(drop)
    };
    let plain = Db::memory();
    plain.insert("users", &users());
    let mut states = vec![plain_users(&plain)];
    for one in &changes {
        change(&plain, one).unwrap();
        states.push(plain_users(&plain));
    }
    let prepare = |db: &Db| {
        make(db, &["users"]);
        declare(db, "users", followers("whole")).unwrap();
        db.insert("users", &users());
    };
    let act = |db: &Db| changes.iter().try_for_each(|one| change(db, one));
    let cuts = at_every_commit(prepare, act, |db| {
        assert!(states.contains(&plain_users(db)), "{:?}", plain_users(db));
        check_cut(db);
    });
    assert!(cuts >= changes.len() as u64, "{cuts}");
}

#[test]
fn a_drop_that_is_killed_leaves_arrays_divided() {
    let db = Db::memory();
    make(&db, &["users"]);
    declare(&db, "users", followers("whole")).unwrap();
    db.insert("users", &users());
    let operation = Arc::clone(&db.engine.operations.start(1));
    operation.kill();
    let pattern = db.engine.pattern(&ns("users"), "fans").unwrap();
    let error = db.engine.drop_pattern(&operation, &pattern).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Interrupted);
    wait_until_active(&db, "users", "fans");
    assert_eq!(plain_users(&db), users());
    check_cut(&db);
}
