//! Conversions on documents alone.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, doc};
use kilim_error::ErrorCode;

use super::merge::{merged, same};
use super::{VersionStep, Versions, parse};

fn step(spec: Document) -> Arc<VersionStep> {
    parse(spec.as_raw()).unwrap().version_step().unwrap().clone()
}

fn renaming(from: i32, to: i32, old: &str, new: &str) -> Arc<VersionStep> {
    let (old_value, new_value) = (format!("${old}"), format!("${new}"));
    step(doc! {
        "field": "v", "from": from, "to": to,
        "up": [{"$set": {(new): old_value}}, {"$unset": old}],
        "down": [{"$set": {(old): new_value}}, {"$unset": new}],
    })
}

#[test]
fn a_document_is_seen_in_the_current_version_whatever_version_it_has() {
    let versions = Versions::of(vec![renaming(1, 2, "a", "b"), renaming(2, 3, "b", "c")]).unwrap();
    let newest = doc! {"_id": 1, "v": 3, "c": 7};
    for old in [doc! {"_id": 1, "a": 7}, doc! {"_id": 1, "v": 1, "a": 7}, doc! {"_id": 1, "v": 2.0, "b": 7}] {
        let seen = versions.seen(old.as_raw()).unwrap().unwrap();
        assert!(same(RawValue::Document(seen.as_raw()), RawValue::Document(newest.as_raw())), "{seen:?}");
    }
    assert!(versions.seen(newest.as_raw()).unwrap().is_none());
    assert!(versions.seen(doc! {"v": 9}.as_raw()).unwrap().is_none());
    assert_eq!(versions.shown(newest.as_raw(), 1).unwrap(), doc! {"_id": 1, "v": 1, "a": 7});
    let names: Vec<(i32, Box<str>)> = versions.aliases("users");
    assert_eq!(names, [(1, "users@1".into()), (2, "users@2".into())]);
}

#[test]
fn steps_that_do_not_lead_to_one_version_are_refused() {
    let refused = |steps| Versions::of(steps).unwrap_err().code();
    assert_eq!(refused(vec![renaming(1, 2, "a", "b"), renaming(1, 3, "a", "b")]), ErrorCode::VersionChainGap);
    assert_eq!(refused(vec![renaming(1, 2, "a", "b"), renaming(4, 5, "a", "b")]), ErrorCode::VersionChainGap);
    assert_eq!(refused(vec![renaming(1, 2, "a", "b"), renaming(2, 1, "a", "b")]), ErrorCode::VersionChainGap);
    // A step that was taken back leads to the same version as the one before.
    assert_eq!(Versions::of(vec![renaming(1, 2, "a", "b"), renaming(3, 2, "c", "b")]).unwrap().current(), 2);
}

#[test]
fn only_what_changed_is_changed() {
    let current = doc! {"a": {"x": 1, "hidden": 2}, "b": 1, "kept": 5};
    let base = doc! {"a": {"x": 1}, "b": 1};
    let new = doc! {"a": {"x": 3}, "c": 4};
    assert_eq!(
        merged(current.as_raw(), base.as_raw(), new.as_raw()).unwrap(),
        doc! {"a": {"x": 3, "hidden": 2}, "kept": 5, "c": 4}
    );
    assert_eq!(merged(current.as_raw(), base.as_raw(), base.as_raw()), Some(current));
}

#[test]
fn the_way_back_is_the_same_step_the_other_way_round() {
    let spec = doc! {
        "field": "v", "from": 1, "to": 2, "up": [{"$set": {"a": 1}}], "down": [{"$unset": "a"}],
        "validator": {"a": 1},
    };
    let back = step(spec.clone()).reversed(&spec).unwrap();
    assert_eq!(
        back,
        doc! {"field": "v", "from": 2, "to": 1, "up": [{"$unset": "a"}], "down": [{"$set": {"a": 1}}]}
    );
    // A document that says no version has the lowest, which is the current one again.
    let versions = Versions::of(vec![step(back.clone())]).unwrap();
    assert_eq!(
        versions.seen(doc! {"_id": 1, "b": 2}.as_raw()).unwrap(),
        Some(doc! {"_id": 1, "v": 1, "b": 2})
    );
    let again = step(back.clone()).reversed(&back).unwrap();
    assert_eq!((again.get("from").is_some(), step(again).from), (true, 1));
}
