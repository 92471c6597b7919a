//! What can be declared, and what is refused.

use kilim_bson::{Document, array, doc};
use kilim_error::ErrorCode;

use super::Declaration;
use crate::graph::{check_claims, in_order};

fn card() -> Document {
    doc! {"from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1}}
}

fn declare(target: &str, fields: Document) -> Declaration {
    Declaration::parse(target, fields.as_raw()).unwrap()
}

fn code(fields: Document) -> ErrorCode {
    Declaration::parse("orders", fields.as_raw()).unwrap_err().code()
}

#[test]
fn a_declaration_is_stored_as_it_was_given() {
    let given = doc! {
        "name": "customerCard", "extendedReference": card(), "mode": "async", "maxSync": 10i64, "touch": "updatedAt",
    };
    let declared = declare("orders", given.clone());
    assert_eq!(declared.to_document(), given);
    assert_eq!(declared.source(), Some("customers"));
    assert_eq!(declared.maintained_paths().iter().map(|path| &**path).collect::<Vec<_>>(), ["customer"]);
}

#[test]
fn what_is_unknown_or_missing_is_an_error() {
    for (fields, expected) in [
        (doc! {"extendedReference": card()}, 40414),
        (doc! {"name": "a b", "extendedReference": card()}, ErrorCode::BadValue.0),
        (doc! {"name": "a"}, ErrorCode::FailedToParse.0),
        (
            doc! {"name": "a", "extendedReference": card(), "computed": {"set": {"a": "$b"}}},
            ErrorCode::FailedToParse.0,
        ),
        (doc! {"name": "a", "extendedReference": card(), "wrong": 1}, 40415),
        (doc! {"name": "a", "extendedReference": {"from": "c"}}, 40414),
        (doc! {"name": "a", "extendedReference": card(), "mode": "later"}, ErrorCode::BadValue.0),
        (doc! {"name": "a", "extendedReference": card(), "maxSync": -1}, ErrorCode::BadValue.0),
        (doc! {"name": "a", "extendedReference": card(), "maxSync": "x"}, ErrorCode::TypeMismatch.0),
        (doc! {"name": "a", "bucket": {"metaField": "p"}}, 40414),
        (doc! {"name": "a", "computed": {"from": "x"}}, 40414),
        (doc! {"name": "a", "computed": {"from": "x", "pipeline": []}}, ErrorCode::PatternBadExpression.0),
        (doc! {"name": "a", "subset": {"from": "x"}}, 40414),
    ] {
        assert_eq!(code(fields.clone()).0, expected, "{fields:?}");
    }
}

#[test]
fn a_copy_cannot_overwrite_its_reference() {
    let with = |local: &str, copy: &str| {
        doc! {"name": "a", "extendedReference": {
            "from": "c", "localField": local, "as": copy, "fields": {"name": 1, "_id": 1},
        }}
    };
    assert_eq!(code(with("a", "a")), ErrorCode::PatternFieldConflict);
    assert_eq!(code(with("a", "a.b")), ErrorCode::PatternFieldConflict);
    assert_eq!(code(with("a._id", "a")), ErrorCode::PatternFieldConflict);
    assert_eq!(code(with("a", "_id")), ErrorCode::PatternFieldConflict);
    assert_eq!(code(with("a..b", "c")), ErrorCode::BadValue);
}

#[test]
fn a_pipeline_groups_once_and_is_sure() {
    let with =
        |stages: kilim_bson::Array| doc! {"name": "a", "computed": {"from": "reviews", "pipeline": stages}};
    let group = || doc! {"$group": {"_id": "$p", "n": {"$sum": 1}}};
    for (stages, expected) in [
        (array![group(), group()], ErrorCode::PatternBadExpression),
        (array![doc! {"$limit": 1}, group()], ErrorCode::PatternBadExpression),
        (array![group(), doc! {"$match": {"n": 1}}], ErrorCode::PatternBadExpression),
        (
            array![doc! {"$match": {"$expr": {"$lt": [{"$rand": {}}, 0.5]}}}, group()],
            ErrorCode::PatternNotDeterministic,
        ),
        (array![doc! {"$set": {"t": "$$NOW"}}, group()], ErrorCode::PatternNotDeterministic),
        (array![doc! {"$group": {"_id": "$p"}}], ErrorCode::BadValue),
    ] {
        assert_eq!(code(with(stages.clone())), expected, "{stages:?}");
    }
    let behind =
        array![group(), doc! {"$set": {"half": {"$divide": ["$n", 2]}}}, doc! {"$project": {"n": 0}}];
    let declared = declare("products", with(behind));
    assert_eq!(declared.maintained_paths().iter().map(|path| &**path).collect::<Vec<_>>(), ["half"]);
}

#[test]
fn what_patterns_maintain_belongs_to_one_of_them() {
    let first = declare("orders", doc! {"name": "a", "extendedReference": card()});
    let second = declare("orders", doc! {"name": "b", "computed": {"set": {"customer.x": "$n"}}});
    let error = check_claims(&second, &[&first]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PatternFieldConflict);
    assert!(error.to_string().contains("extendedReference 'a'"), "{error}");
    let elsewhere = declare("bills", doc! {"name": "b", "computed": {"set": {"customer.x": "$n"}}});
    assert!(check_claims(&elsewhere, &[&first]).is_ok());
}

fn copies(target: &str, name: &str, from: &str, field: &str, as_path: &str) -> Declaration {
    declare(
        target,
        doc! {"name": name, "extendedReference": {
            "from": from, "localField": format!("{from}Id"), "as": as_path, "fields": {field: 1},
        }},
    )
}

#[test]
fn patterns_come_behind_those_they_read_from() {
    // C copies from B what B copies from A; B computes from its copy.
    let c = copies("c", "fromB", "b", "a.name", "b");
    let b = copies("b", "fromA", "a", "name", "a");
    let d = declare("b", doc! {"name": "long", "computed": {"set": {"length": {"$strLenCP": "$a.name"}}}});
    let names = |order: Vec<&Declaration>| order.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(in_order(&[&c, &d, &b]).unwrap()), ["fromA", "fromB", "long"]);
}

#[test]
fn a_circle_is_printed() {
    let a = copies("a", "fromB", "b", "a.name", "b");
    let b = copies("b", "fromA", "a", "b.name", "a");
    let error = in_order(&[&a, &b]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PatternCycle);
    assert!(error.to_string().contains("a.fromB reads 'a' of b.fromA reads 'b' of a.fromB"), "{error}");
    // Collections that copy other fields from each other are no circle.
    let a = copies("a", "fromB", "b", "name", "b");
    let b = copies("b", "fromA", "a", "name", "a");
    assert!(in_order(&[&a, &b]).is_ok());
    // Nor is a collection that copies from itself, but for what it copied.
    assert!(in_order(&[&copies("a", "boss", "a", "name", "boss")]).is_ok());
    assert!(in_order(&[&copies("a", "boss", "a", "boss.name", "boss")]).is_err());
}

#[test]
fn a_date_that_is_set_belongs_to_nobody_else() {
    let touching =
        |touch: &str| declare("orders", doc! {"name": "c", "extendedReference": card(), "touch": touch});
    let total =
        declare("orders", doc! {"name": "t", "computed": {"set": {"total": {"$add": ["$price", 1]}}}});
    let newest = declare(
        "days",
        doc! {"name": "n", "computed": {
            "from": "orders",
            "pipeline": [doc! {"$group": {"_id": "$day", "newest": {"$max": "$at"}}}],
        }},
    );
    let others = [&total, &newest];
    for touch in [
        "_id",
        "_id.x",
        "customer",
        "customer.at",
        "customerId",
        "customerId.at",
        "total",
        "price",
        "at",
        "day",
    ] {
        let declared = touching(touch);
        let refused = check_claims(&declared, &others).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::PatternFieldConflict, "{touch}");
        assert!(refused.to_string().contains(&format!("'touch' of 'c' names '{touch}'")), "{refused}");
    }
    let declared = touching("updatedAt");
    assert!(check_claims(&declared, &others).is_ok());
    // It is the same whichever comes first.
    assert!(check_claims(&total, &[&touching("price")]).is_err());
    assert!(check_claims(&newest, &[&touching("at")]).is_err());
}

#[test]
fn changes_are_merged_field_by_field() {
    let declared = declare("orders", doc! {"name": "c", "extendedReference": card(), "touch": "at"});
    let modified = |changes: Document| declared.modified(changes.as_raw());
    let one = modified(doc! {"extendedReference": {"fields": {"mail": 1}, "onMissing": "reject"}}).unwrap();
    assert_eq!(
        one.to_document(),
        doc! {"name": "c", "extendedReference": {
            "from": "customers", "localField": "customerId", "as": "customer", "fields": {"mail": 1}, "onMissing": "reject",
        }, "touch": "at"}
    );
    assert!(!one.maintains_alike(&declared));
    assert!(
        modified(doc! {"extendedReference": {"onMissing": "reject"}}).unwrap().maintains_alike(&declared)
    );
    let two = modified(doc! {"touch": kilim_bson::Value::Null, "maxSync": 5}).unwrap();
    assert_eq!(two.to_document(), doc! {"name": "c", "extendedReference": card(), "maxSync": 5i64});
    assert!(two.maintains_alike(&declared));
    assert_eq!(modified(doc! {"subset": {"limit": 1}}).unwrap_err().code(), ErrorCode::BadValue);
    assert_eq!(modified(doc! {"colour": 1}).unwrap_err().code().0, 40415);
    assert_eq!(modified(doc! {"extendedReference": {"colour": 1}}).unwrap_err().code().0, 40415);
}

/// Kinds that never are behind, and some that maintain no field.
#[test]
fn an_option_that_means_nothing_to_a_kind_is_refused_when_it_is_declared_and_when_it_is_modified() {
    let late = [doc! {"mode": "async"}, doc! {"maxSync": 5}, doc! {"whenBehind": "serve"}];
    let others = [doc! {"touch": "at"}, doc! {"onUserWrite": "reject"}, doc! {"whileBuilding": "fail"}];
    let version = doc! {"field": "v", "from": 1, "to": 2, "up": [{"$set": {"a": 1}}]};
    let kinds = [
        (doc! {"attribute": {"paths": ["specs.*"], "as": "kv"}}, 0),
        (doc! {"computed": {"set": {"a": "$b"}}}, 0),
        (doc! {"polymorphic": {"discriminator": "type", "variants": {"book": {}}}}, 3),
        (doc! {"schemaVersion": version}, 3),
        (doc! {"tree": {"parent": "parent", "depth": "depth"}}, 0),
    ];
    for (kind, count) in kinds {
        let with = |options: &Document| -> Document {
            let named = doc! {"name": "a"};
            let fields = named.iter().chain(kind.iter()).chain(options.iter());
            fields.map(|(name, value)| (name, value.to_value())).collect()
        };
        let declared = declare("orders", with(&doc! {}));
        for option in late.iter().chain(&others[..count]) {
            let refused = |result: kilim_error::Result<Declaration>| {
                let code = result.expect_err("it is refused").code();
                assert!(
                    [ErrorCode::BadValue, ErrorCode::NotImplemented].contains(&code),
                    "{kind:?} {option:?}"
                );
            };
            refused(Declaration::parse("orders", with(option).as_raw()));
            refused(declared.modified(option.as_raw()));
            // A database that has it nevertheless opens.
            Declaration::restore("orders", with(option).as_raw()).unwrap();
        }
    }
}

#[test]
fn a_declaration_follows_a_rename() {
    let declared = declare("orders", doc! {"name": "c", "extendedReference": card()});
    let source = declared.renamed("customers", "clients").unwrap();
    assert_eq!((source.source(), &*source.target), (Some("clients"), "orders"));
    let target = declared.renamed("orders", "purchases").unwrap();
    assert_eq!((target.source(), &*target.target), (Some("customers"), "purchases"));
}
