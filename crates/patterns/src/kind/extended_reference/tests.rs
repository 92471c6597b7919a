//! Copies in documents of all shapes.

use kilim_bson::{Array, Document, RawValue, Value, array, doc};
use kilim_error::ErrorCode;

use super::{FanOut, Reference, Shaped};
use crate::effect::Copied;

fn reference(spec: Document) -> Reference {
    Reference::parse(spec.as_raw()).unwrap()
}

fn card() -> Reference {
    reference(doc! {
        "from": "customers", "localField": "customerId", "as": "customer",
        "fields": {"name": 1, "city": "$address.city"},
    })
}

/// Customers 1 and 2 are there.
fn customer(key: RawValue<'_>) -> Option<Document> {
    match key {
        RawValue::Int32(1) => Some(doc! {"_id": 1, "name": "Ann", "address": {"city": "Ulm"}, "x": 1}),
        RawValue::Int32(2) => Some(doc! {"_id": 2, "name": "Bob"}),
        _ => None,
    }
}

fn shaped(reference: &Reference, before: Option<&Document>, after: &Document) -> Document {
    let before = before.map(Document::as_raw);
    match reference.shape(before, after.as_raw(), &mut |key| Ok(customer(key))).unwrap() {
        Shaped::AsItIs => after.clone(),
        Shaped::To { document, .. } => document,
    }
}

#[test]
fn a_copy_stands_beside_its_reference() {
    let card = card();
    for (order, expected) in [
        (
            doc! {"_id": 1, "customerId": 1},
            doc! {"_id": 1, "customerId": 1, "customer": {"name": "Ann", "city": "Ulm"}},
        ),
        (doc! {"_id": 1, "customerId": 2}, doc! {"_id": 1, "customerId": 2, "customer": {"name": "Bob"}}),
        (doc! {"_id": 1, "customerId": 3}, doc! {"_id": 1, "customerId": 3, "customer": null}),
        (doc! {"_id": 1}, doc! {"_id": 1}),
        (doc! {"_id": 1, "customerId": null}, doc! {"_id": 1, "customerId": null}),
        // What a user wrote gives way, and keeps its place.
        (
            doc! {"customer": {"name": "Eve"}, "customerId": 2},
            doc! {"customer": {"name": "Bob"}, "customerId": 2},
        ),
        (doc! {"customer": {"name": "Eve"}}, doc! {}),
    ] {
        assert_eq!(shaped(&card, None, &order), expected);
    }
}

#[test]
fn arrays_of_references_have_arrays_of_copies() {
    let card = card();
    let order = doc! {"customerId": array![2, 9, null, 1]};
    let expected = doc! {
        "customerId": array![2, 9, null, 1],
        "customer": array![doc! {"name": "Bob"}, null, null, doc! {"name": "Ann", "city": "Ulm"}],
    };
    assert_eq!(shaped(&card, None, &order), expected);
    assert_eq!(
        shaped(&card, None, &doc! {"customerId": Array::new()}),
        doc! {"customerId": [], "customer": []}
    );
}

#[test]
fn references_within_the_elements_of_an_array() {
    let lines = reference(doc! {
        "from": "products", "localField": "items.product", "as": "items.card", "fields": {"name": 1},
    });
    let order = doc! {"items": array![doc! {"product": 1, "n": 3}, doc! {"n": 4}, 5, doc! {"product": 2}]};
    let expected = doc! {"items": array![
        doc! {"product": 1, "n": 3, "card": {"name": "Ann"}}, doc! {"n": 4}, 5,
        doc! {"product": 2, "card": {"name": "Bob"}},
    ]};
    assert_eq!(shaped(&lines, None, &order), expected);
    let keys: Vec<Value> = lines.references(expected.as_raw());
    assert_eq!(format!("{keys:?}"), "[Int32(1), Int32(2)]");
}

#[test]
fn a_reference_may_lie_within_its_copy() {
    let card = reference(doc! {
        "from": "customers", "localField": "customer._id", "as": "customer", "fields": {"name": 1},
    });
    assert_eq!(
        shaped(&card, None, &doc! {"customer": {"_id": 1, "name": "Eve", "more": 1}}),
        doc! {"customer": {"_id": 1, "name": "Ann"}}
    );
    assert_eq!(
        shaped(&card, None, &doc! {"customer": {"_id": 9, "name": "Eve"}}),
        doc! {"customer": {"_id": 9}}
    );
    let people = doc! {"customer": array![doc! {"_id": 2}, doc! {"_id": 1}]};
    let expected = doc! {"customer": array![doc! {"_id": 2, "name": "Bob"}, doc! {"_id": 1, "name": "Ann"}]};
    assert_eq!(shaped(&card, None, &people), expected);
}

#[test]
fn flat_copies_are_fields_of_the_document() {
    let card = reference(doc! {
        "from": "customers", "localField": "customerId", "as": null,
        "fields": {"customerName": "$name", "city": "$address.city"},
    });
    let order = shaped(&card, None, &doc! {"customerId": 1});
    assert_eq!(order, doc! {"customerId": 1, "customerName": "Ann", "city": "Ulm"});
    let moved = doc! {"customerId": 2, "customerName": "Ann", "city": "Ulm"};
    assert_eq!(shaped(&card, Some(&order), &moved), doc! {"customerId": 2, "customerName": "Bob"});
    let gone = doc! {"customerId": 9, "customerName": "Ann"};
    assert_eq!(shaped(&card, None, &gone), doc! {"customerId": 9});
}

#[test]
fn nothing_is_asked_where_nothing_changed() {
    let card = card();
    let before = doc! {"customerId": 1, "customer": {"name": "Ann", "city": "Ulm"}, "n": 1};
    let after = doc! {"customerId": 1, "customer": {"name": "Ann", "city": "Ulm"}, "n": 2};
    let asked = card.shape(Some(before.as_raw()), after.as_raw(), &mut |_| panic!("asked"));
    assert!(matches!(asked, Ok(Shaped::AsItIs)));
}

#[test]
fn a_copy_is_frozen_while_its_condition_does_not_hold() {
    let card = reference(doc! {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
        "while": {"status": {"$ne": "shipped"}},
    });
    // Copied once, even if frozen from the beginning.
    let order = shaped(&card, None, &doc! {"customerId": 1, "status": "shipped"});
    assert_eq!(order, doc! {"customerId": 1, "status": "shipped", "customer": {"name": "Ann"}});
    // A user's value does not thaw it.
    let frozen = doc! {"customerId": 1, "status": "shipped", "customer": {"name": "Old"}};
    let written = doc! {"customerId": 1, "status": "shipped", "customer": {"name": "Eve"}};
    assert_eq!(shaped(&card, Some(&frozen), &written), frozen);
    // Another source is another copy.
    let moved = doc! {"customerId": 2, "status": "shipped", "customer": {"name": "Old"}};
    assert_eq!(
        shaped(&card, Some(&frozen), &moved),
        doc! {"customerId": 2, "status": "shipped", "customer": {"name": "Bob"}}
    );
    // Thawed, it is as its source is.
    let open = doc! {"customerId": 1, "status": "open", "customer": {"name": "Old"}};
    assert_eq!(
        shaped(&card, Some(&frozen), &open),
        doc! {"customerId": 1, "status": "open", "customer": {"name": "Ann"}}
    );
}

#[test]
fn a_reference_to_nothing_can_be_refused() {
    let card = reference(doc! {
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1},
        "onMissing": "reject",
    });
    let error = card.shape(None, doc! {"customerId": 7}.as_raw(), &mut |key| Ok(customer(key))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PatternDanglingReference);
    assert!(card.shape(None, doc! {"n": 1}.as_raw(), &mut |key| Ok(customer(key))).is_ok());
}

#[test]
fn holders_hear_of_what_they_hold() {
    let card = card();
    let ann = customer(RawValue::Int32(1)).unwrap();
    let fan_out = |before: Option<&Document>, after: Option<&Document>| {
        card.fan_out(before.map(Document::as_raw), after.map(Document::as_raw))
    };
    let other_field = doc! {"_id": 1, "name": "Ann", "address": {"city": "Ulm"}, "x": 2};
    assert!(fan_out(Some(&ann), Some(&other_field)).is_empty());
    let renamed = doc! {"_id": 1, "name": "Anna", "address": {"city": "Ulm"}};
    let changes = fan_out(Some(&ann), Some(&renamed));
    assert!(
        matches!(&changes[..], [(Value::Int32(1), FanOut::To(copy))] if *copy == doc! {"name": "Anna", "city": "Ulm"})
    );
    assert!(matches!(&fan_out(Some(&ann), None)[..], [(Value::Int32(1), FanOut::Gone)]));
    assert!(matches!(&fan_out(None, Some(&ann))[..], [(Value::Int32(1), FanOut::To(_))]));
}

#[test]
fn only_the_copies_of_one_source_are_patched() {
    let card = card();
    let order =
        doc! {"customerId": array![2, 1], "customer": array![doc! {"name": "Bob"}, doc! {"name": "Old"}]};
    let copied = Copied::To(doc! {"name": "Ann"});
    let patched = card.patched(order.as_raw(), RawValue::Int32(1), &copied).unwrap();
    let expected =
        doc! {"customerId": array![2, 1], "customer": array![doc! {"name": "Bob"}, doc! {"name": "Ann"}]};
    assert_eq!(patched, Some(expected.clone()));
    assert_eq!(card.patched(expected.as_raw(), RawValue::Int32(1), &copied).unwrap(), None);
    let unset =
        card.patched(doc! {"customerId": 1, "customer": 5}.as_raw(), RawValue::Int32(1), &Copied::Unset);
    assert_eq!(unset.unwrap(), Some(doc! {"customerId": 1}));
}
