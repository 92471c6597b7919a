use kilim_bson::{Document, RawValue, array, doc};
use kilim_error::ErrorCode;

use super::*;
use crate::effect::Role;

fn catalogue(more: Document) -> Document {
    let mut spec = doc! {
        "discriminator": "type",
        "base": {"required": ["title"], "properties": {"title": {"bsonType": "string"}}},
        "variants": {
            "book": {
                "required": ["isbn"], "properties": {"isbn": {"bsonType": "string"}, "pages": {"minimum": 1}},
                "indexes": [{"key": {"isbn": 1}, "unique": true}],
            },
            "ebook": {"extends": "book", "properties": {"format": {"enum": ["epub", "pdf"]}}},
            "sample": {"extends": "ebook", "required": ["of"]},
            "dvd": {"required": ["disc"], "properties": {"disc": {
                "bsonType": "object", "required": ["minutes"], "properties": {"tracks": {"items": {"bsonType": "int"}}},
            }}},
        },
    };
    for (name, value) in more.iter() {
        spec = crate::path::with_value(spec.as_raw(), name, Some(value));
    }
    spec
}

fn polymorphic(more: Document) -> Polymorphic {
    Polymorphic::parse(catalogue(more).as_raw()).unwrap()
}

/// What a document breaks: variant, path, rule.
fn broken(rules: &Polymorphic, document: Document) -> Option<(String, String, String)> {
    let breach = rules.breach(document.as_raw()).unwrap()?;
    Some((breach.variant.unwrap_or_default().into(), breach.path.into(), breach.rule.into()))
}

#[track_caller]
fn breaks(rules: &Polymorphic, document: Document, variant: &str, path: &str, rule: &str) {
    let expected = (variant.to_owned(), path.to_owned(), rule.to_owned());
    assert_eq!(broken(rules, document.clone()), Some(expected), "{document:?}");
}

#[test]
fn a_document_keeps_the_rules_of_its_variant_and_of_all_that_it_extends() {
    let rules = polymorphic(doc! {});
    for valid in [
        doc! {"type": "book", "title": "t", "isbn": "1"},
        doc! {"type": "ebook", "title": "t", "isbn": "1", "format": "pdf", "disc": 5},
        doc! {"type": "sample", "title": "t", "isbn": "1", "of": 1},
        doc! {"type": "dvd", "title": "t", "disc": {"minutes": 1, "tracks": [1, 2]}},
    ] {
        assert_eq!(broken(&rules, valid.clone()), None, "{valid:?}");
    }
    breaks(&rules, doc! {"type": "book", "isbn": "1"}, "book", "title", "required");
    breaks(&rules, doc! {"type": "book", "title": "t"}, "book", "isbn", "required");
    breaks(&rules, doc! {"type": "ebook", "title": "t"}, "ebook", "isbn", "required");
    breaks(&rules, doc! {"type": "sample", "title": "t", "isbn": 1, "of": 1}, "sample", "isbn", "bsonType");
    breaks(
        &rules,
        doc! {"type": "ebook", "title": "t", "isbn": "1", "format": "doc"},
        "ebook",
        "format",
        "enum",
    );
    breaks(&rules, doc! {"type": "dvd", "title": "t", "disc": {"x": 1}}, "dvd", "disc.minutes", "required");
    let tracks = array![1, "two"];
    let document = doc! {"type": "dvd", "title": "t", "disc": {"minutes": 1, "tracks": tracks}};
    breaks(&rules, document, "dvd", "disc.tracks.1", "bsonType");
    let breach = rules.breach(doc! {"type": "ebook", "title": "t"}.as_raw()).unwrap().unwrap();
    assert!(
        breach.message.contains("'ebook'") && breach.message.contains("'book', which it extends"),
        "{}",
        breach.message
    );
    assert!(
        matches!(breach.details.get("operatorName"), Some(RawValue::String("$and"))),
        "{:?}",
        breach.details
    );
}

#[test]
fn unknown_variants_are_refused_or_keep_the_base() {
    let rules = polymorphic(doc! {});
    breaks(&rules, doc! {"title": "t"}, "", "type", "discriminator");
    breaks(&rules, doc! {"title": "t", "type": "vinyl"}, "", "type", "discriminator");
    breaks(&rules, doc! {"title": "t", "type": 5}, "", "type", "discriminator");
    let rules = polymorphic(doc! {"unknown": "allow"});
    assert_eq!(broken(&rules, doc! {"title": "t"}), None);
    assert_eq!(broken(&rules, doc! {"title": "t", "type": null}), None);
    breaks(&rules, doc! {"type": "vinyl"}, "", "title", "required");
    breaks(&rules, doc! {"title": "t", "type": array!["book"]}, "", "type", "discriminator");
}

#[test]
fn extra_fields_are_those_that_no_rule_speaks_of() {
    let rules = polymorphic(doc! {"extra": "reject"});
    let book = doc! {"_id": 1, "type": "ebook", "title": "t", "isbn": "1", "format": "pdf", "pages": 3};
    assert_eq!(broken(&rules, book), None);
    let document = doc! {"type": "book", "title": "t", "isbn": "1", "format": "pdf"};
    breaks(&rules, document, "book", "format", "additionalProperties");
}

fn judged(rules: &Polymorphic, before: Document, after: Document) -> &'static str {
    match rules.judge(Some(before.as_raw()), after.as_raw()).unwrap() {
        Judgement::Passes => "passes",
        Judgement::Warns(_) => "warns",
        Judgement::Refuses(_) => "refuses",
    }
}

#[test]
fn the_discriminator_stays_and_changes_as_declared() {
    let book = || doc! {"type": "book", "title": "t", "isbn": "1", "pages": 2};
    let dvd = || doc! {"type": "dvd", "title": "t", "isbn": "1", "pages": 2, "disc": {"minutes": 1}};
    let bare = || doc! {"title": "t", "isbn": "1"};
    let rules = polymorphic(doc! {});
    assert_eq!(judged(&rules, book(), dvd()), "passes");
    assert_eq!(judged(&rules, book(), bare()), "refuses");
    assert_eq!(judged(&polymorphic(doc! {"unknown": "allow"}), book(), bare()), "refuses");
    assert_eq!(judged(&polymorphic(doc! {"onTypeChange": "reject"}), book(), dvd()), "refuses");
    assert_eq!(judged(&polymorphic(doc! {"onTypeChange": "reject"}), book(), book()), "passes");
    assert_eq!(judged(&polymorphic(doc! {"validationAction": "warn"}), book(), bare()), "warns");
    assert_eq!(judged(&polymorphic(doc! {"validationLevel": "off"}), book(), bare()), "passes");
    let moderate = polymorphic(doc! {"validationLevel": "moderate"});
    let invalid = || doc! {"type": "book"};
    assert_eq!(judged(&moderate, invalid(), doc! {"type": "book", "x": 1}), "passes");
    assert_eq!(judged(&rules, invalid(), doc! {"type": "book", "x": 1}), "refuses");
    assert_eq!(judged(&moderate, book(), invalid()), "refuses");
    let unset = polymorphic(doc! {"onTypeChange": "unset"});
    let made = unset.without_foreign_fields(book().as_raw(), dvd().as_raw()).unwrap();
    assert_eq!(made, doc! {"type": "dvd", "title": "t", "disc": {"minutes": 1}});
    assert!(unset.without_foreign_fields(book().as_raw(), book().as_raw()).is_none());
}

#[test]
fn indexes_are_over_a_variant_and_those_that_extend_it() {
    let wanted =
        polymorphic(doc! {"variants.dvd.indexes": array![doc! {"key": {"disc.minutes": -1}}]}).indexes();
    assert_eq!(wanted.len(), 2);
    assert!(wanted.iter().all(|index| index.role == Role::Target && index.exact));
    let family = doc! {"type": {"$in": ["book", "ebook", "sample"]}};
    assert_eq!(wanted[0].options, doc! {"unique": true, "partialFilterExpression": family});
    assert!(wanted[0].is_unique() && !wanted[1].is_unique());
    assert_eq!(wanted[1].options, doc! {"partialFilterExpression": {"type": "dvd"}});
    assert_eq!(wanted[1].key, doc! {"disc.minutes": -1});
}

#[test]
fn what_is_no_declaration_is_refused_by_name() {
    let refused = |spec: Document| {
        let error = Polymorphic::parse(spec.as_raw()).unwrap_err();
        (error.code(), error.to_string())
    };
    let check = |more: Document, code: ErrorCode, names: &str| {
        let (found, message) = refused(catalogue(more));
        assert_eq!(found, code, "{message}");
        assert!(message.contains(names), "{message}");
    };
    let bad = ErrorCode::BadValue;
    check(doc! {"discriminator": "_id"}, bad, "'_id'");
    check(doc! {"discriminator": "a.0"}, bad, "'a.0'");
    check(doc! {"variants": {}}, bad, "variants");
    check(doc! {"variants.book.extends": "paper"}, bad, "'paper'");
    check(doc! {"variants.book.extends": "sample"}, ErrorCode::PatternCycle, "extends");
    check(doc! {"variants.dvd.requires": 1}, ErrorCode::PatternBadExpression, "variants.dvd");
    check(doc! {"base.properties": 5}, ErrorCode::PatternBadExpression, "'polymorphic.base'");
    check(doc! {"unknown": "ignore"}, bad, "'reject' or 'allow'");
    check(doc! {"extra": 1}, ErrorCode::TypeMismatch, "extra");
    check(doc! {"onTypeChange": "keep"}, bad, "onTypeChange");
    check(doc! {"variants.dvd.indexes": 1}, ErrorCode::TypeMismatch, "indexes");
    check(doc! {"variants.dvd.indexes": [{"key": {}}]}, bad, "indexes.key");
    check(doc! {"variants.dvd.indexes": [{"key": {"a": "text"}}]}, bad, "indexes.key");
    check(doc! {"variants.dvd.indexes": [{"key": {"a": 1}, "sparse": true}]}, ErrorCode(40415), "sparse");
    assert_eq!(refused(doc! {"variants": {"a": {}}}).0, ErrorCode(40414));
    assert_eq!(refused(doc! {"discriminator": "t"}).0, ErrorCode(40414));
    assert_eq!(refused(doc! {"discriminator": "t", "variants": {"a": {}}, "more": 1}).0, ErrorCode(40415));
}
