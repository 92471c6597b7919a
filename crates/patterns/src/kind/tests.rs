//! What changes mean to patterns of each kind, whatever interprets it.

use kilim_bson::{Document, RawValue, Value, array, doc};
use kilim_error::{ErrorCode, Result};

use crate::declaration::Declaration;
use crate::effect::{Cause, Change, Copied, Due, Effect, Reader, Role};
use crate::kind::Nodes;

/// Has two customers, and a new name of the first is pending.
struct Customers;

impl Nodes for Customers {}

impl Reader for Customers {
    fn source(&mut self, key: RawValue<'_>) -> Result<Option<Document>> {
        Ok(match key {
            RawValue::Int32(id @ 1..=2) => Some(doc! {"_id": id, "name": format!("n{id}")}),
            _ => None,
        })
    }

    fn pending(&mut self, key: RawValue<'_>) -> Result<Option<Due>> {
        let is_first = matches!(key, RawValue::Int32(1));
        Ok(is_first.then(|| Due::Copy(Copied::To(doc! {"name": "newer"}))))
    }
}

fn evaluate(
    (kind, spec): (&str, Document),
    role: Role,
    before: Option<Document>,
    after: Option<Document>,
    cause: Cause,
) -> Vec<Effect> {
    let fields = doc! {"name": "p", kind: spec};
    let declared = Declaration::parse("targets", fields.as_raw()).unwrap();
    let (before, after) = (before.as_ref().map(Document::as_raw), after.as_ref().map(Document::as_raw));
    let mut effects = Vec::new();
    let change = Change { role, before, after, cause, is_placed: false };
    declared.kind.evaluate(&change, &mut Customers, &mut effects).unwrap();
    effects
}

fn card(more: Document) -> (&'static str, Document) {
    let mut spec = doc! {"from": "customers", "localField": "c", "as": "customer", "fields": {"name": 1}};
    more.iter().for_each(|(name, value)| spec.push(name, value));
    ("extendedReference", spec)
}

fn counts() -> (&'static str, Document) {
    let group = doc! {"$group": {"_id": "$p", "n": {"$count": {}}}};
    ("computed", doc! {"from": "reviews", "pipeline": array![group]})
}

#[track_caller]
fn becomes(effects: &[Effect]) -> (&Document, bool) {
    match effects {
        [Effect::Becomes { document, replaced }] => (document, *replaced),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_document_that_refers_becomes_one_with_a_copy() {
    let order = |customer: &str| doc! {"_id": 5, "c": 1, "customer": {"name": customer}};
    let inserted = |order: Document, cause| evaluate(card(doc! {}), Role::Target, None, Some(order), cause);
    assert_eq!(becomes(&inserted(doc! {"_id": 5, "c": 1}, Cause::User)), (&order("n1"), false));
    assert_eq!(becomes(&inserted(order("mine"), Cause::User)), (&order("n1"), true));
    assert!(inserted(order("n1"), Cause::User).is_empty());
    // What another pattern writes leaves the copy as it is, and a refresh trusts nothing.
    let written =
        |cause| evaluate(card(doc! {}), Role::Target, Some(order("old")), Some(order("old")), cause);
    assert!(written(Cause::Pattern).is_empty());
    assert_eq!(becomes(&written(Cause::Refresh)), (&order("n1"), false));
}

#[test]
fn a_copy_that_becomes_frozen_keeps_what_is_pending_for_it() {
    let order = |open: bool, name: &str| doc! {"_id": 5, "c": 1, "open": open, "customer": {"name": name}};
    let spec = card(doc! {"while": {"open": true}});
    let (before, after) = (Some(order(true, "old")), Some(order(false, "old")));
    let effects = evaluate(spec, Role::Target, before, after, Cause::User);
    assert_eq!(becomes(&effects).0, &order(false, "newer"));
}

#[test]
fn a_reference_to_nothing_is_refused_where_that_is_asked_for() {
    let order = Some(doc! {"_id": 5, "c": 9});
    let effects =
        evaluate(card(doc! {"onMissing": "reject"}), Role::Target, None, order.clone(), Cause::User);
    match &effects[..] {
        [Effect::Refuse(error)] => assert_eq!(error.code(), ErrorCode::PatternDanglingReference),
        other => panic!("{other:?}"),
    }
    let effects = evaluate(card(doc! {}), Role::Target, None, order, Cause::User);
    assert_eq!(becomes(&effects).0, &doc! {"_id": 5, "c": 9, "customer": null});
}

#[test]
fn a_changed_source_is_one_effect_however_many_refer_to_it() {
    let customer = |name: &str| Some(doc! {"_id": 1, "name": name, "x": 0});
    let changed = |before, after| evaluate(card(doc! {}), Role::Source, before, after, Cause::User);
    match &changed(customer("a"), customer("b"))[..] {
        [Effect::Holders { key: Value::Int32(1), due: Due::Copy(Copied::To(copy)), is_new: false }] => {
            assert_eq!(*copy, doc! {"name": "b"});
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(changed(None, customer("a"))[..], [Effect::Holders { is_new: true, .. }]));
    assert!(changed(customer("a"), Some(doc! {"_id": 1, "name": "a", "x": 7})).is_empty());
    assert!(changed(customer("a"), None).is_empty(), "copies are kept");
    for (choice, expected) in [("cascade", "Remove"), ("null", "Copy(Null)"), ("unset", "Copy(Unset)")] {
        let spec = card(doc! {"onSourceDelete": choice});
        match &evaluate(spec, Role::Source, customer("a"), None, Cause::User)[..] {
            [Effect::Holders { due, .. }] => assert_eq!(format!("{due:?}"), expected),
            other => panic!("{other:?}"),
        }
    }
    let spec = card(doc! {"onSourceDelete": "restrict"});
    let effects = evaluate(spec, Role::Source, customer("a"), None, Cause::User);
    assert!(matches!(effects[..], [Effect::Restrict { key: Value::Int32(1) }]));
}

#[test]
fn a_child_takes_its_rows_from_one_group_to_another() {
    let review = |product: i32, text: &str| Some(doc! {"_id": 1, "p": product, "text": text});
    let changed = |before, after| evaluate(counts(), Role::Source, before, after, Cause::User);
    match &changed(review(1, "a"), review(2, "a"))[..] {
        [Effect::Rows { out, into, newest: false }] => {
            let keys = [out, into].map(|rows| rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>());
            assert_eq!(format!("{keys:?}"), "[[Int32(1)], [Int32(2)]]");
        }
        other => panic!("{other:?}"),
    }
    assert!(
        matches!(&changed(None, review(1, "a"))[..], [Effect::Rows { out, newest: true, .. }] if out.is_empty())
    );
    assert!(changed(review(1, "a"), review(1, "b")).is_empty(), "what no accumulator reads is no change");
}

#[test]
fn a_parent_shows_its_group_and_users_do_not_write_it() {
    let shaped = |before, after| evaluate(counts(), Role::Target, before, Some(after), Cause::User);
    let is_shown = |effects: &[Effect], was_replaced: bool| matches!(effects, [Effect::ShowsGroup { key: Value::Int32(1), replaced }] if *replaced == was_replaced);
    assert!(is_shown(&shaped(None, doc! {"_id": 1}), false));
    assert!(is_shown(&shaped(None, doc! {"_id": 1, "n": 7}), true));
    let effects = shaped(Some(doc! {"_id": 1, "n": 2}), doc! {"_id": 1, "n": 7});
    assert_eq!(becomes(&effects), (&doc! {"_id": 1, "n": 2}, true));
}

#[test]
fn fields_of_the_same_document_are_computed_whoever_wrote_it() {
    let double = || ("computed", doc! {"set": {"b": {"$multiply": ["$a", 2]}}});
    for cause in [Cause::User, Cause::Pattern, Cause::Refresh] {
        let effects = evaluate(double(), Role::Target, None, Some(doc! {"a": 2, "b": 1}), cause);
        assert_eq!(becomes(&effects), (&doc! {"a": 2, "b": 4}, cause == Cause::User));
    }
    assert!(evaluate(double(), Role::Target, Some(doc! {"a": 2}), None, Cause::User).is_empty());
}
