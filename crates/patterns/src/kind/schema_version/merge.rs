//! What an older version cannot say is kept where it is changed.
//!
//! A document is shown in an older version, and a user changes what he sees. Converted up again it lacks what the older
//! version has no words for. So the change is found in terms of the newest version, between what was shown and what was
//! made of it, both converted, and only that change is made to the document.

use kilim_bson::{Document, RawDocument, RawValue, Writer};

/// `current` with what differs between `base` and `new`. None where elements of an array were removed or moved that have what
/// the older version has no words for: nothing tells which element is which.
pub(super) fn merged(
    current: RawDocument<'_>,
    base: RawDocument<'_>,
    new: RawDocument<'_>,
) -> Option<Document> {
    let mut out = Writer::with_capacity(current.as_bytes().len() + 64);
    merge_into(current, base, new, &mut out)?;
    Some(out.finish())
}

fn merge_into(
    current: RawDocument<'_>,
    base: RawDocument<'_>,
    new: RawDocument<'_>,
    out: &mut Writer,
) -> Option<()> {
    for (name, own) in current {
        match (base.get(name), new.get(name)) {
            // The change removes it.
            (Some(_), None) => {}
            (Some(shown), Some(made)) => merge_value(name, [own, shown, made], out)?,
            (None, Some(made)) => out.append(name, made),
            // The older version has no words for it.
            (None, None) => out.append(name, own),
        }
    }
    for (name, made) in new {
        let is_unchanged = base.get(name).is_some_and(|shown| same(shown, made));
        if current.get(name).is_none() && !is_unchanged {
            out.append(name, made);
        }
    }
    Some(())
}

/// One value: as it is, as it was shown, and as it was made.
fn merge_value(name: &str, [own, shown, made]: [RawValue<'_>; 3], out: &mut Writer) -> Option<()> {
    match (own, shown, made) {
        _ if same(shown, made) => out.append(name, own),
        (RawValue::Document(own), RawValue::Document(shown), RawValue::Document(made)) => {
            out.open_document(name);
            merge_into(own, shown, made, out)?;
            out.close();
        }
        (RawValue::Array(own_values), RawValue::Array(shown_values), RawValue::Array(made_values))
            if !same(own, shown) =>
        {
            let [own, shown, made] =
                [own_values, shown_values, made_values].map(|array| array.iter().collect::<Vec<_>>());
            out.open_array(name);
            merge_elements(&own, &shown, &made, out)?;
            out.close();
        }
        _ => out.append(name, made),
    }
    Some(())
}

/// The elements of an array whose elements stay where they are. New ones may follow.
fn merge_elements(
    own: &[RawValue<'_>],
    shown: &[RawValue<'_>],
    made: &[RawValue<'_>],
    out: &mut Writer,
) -> Option<()> {
    if own.len() != shown.len() || made.len() < shown.len() {
        return None;
    }
    let is_kept = |at: usize| at < shown.len() && same(shown[at], made[at]);
    // An element that is gone from its place and is found at another was moved.
    let is_moved = |value: RawValue<'_>| (0..shown.len()).any(|at| !is_kept(at) && same(shown[at], value));
    if (0..made.len()).any(|at| !is_kept(at) && is_moved(made[at])) {
        return None;
    }
    for (at, value) in made.iter().enumerate() {
        let name = at.to_string();
        match own.get(at) {
            Some(own) => merge_value(&name, [*own, shown[at], *value], out)?,
            None => out.append(&name, *value),
        }
    }
    Some(())
}

/// Whether two values say the same: of the same types, whatever the order of fields.
pub(super) fn same(left: RawValue<'_>, right: RawValue<'_>) -> bool {
    match (left, right) {
        (RawValue::Document(left), RawValue::Document(right)) => same_but(left, right, None),
        (RawValue::Array(left), RawValue::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right.iter()).all(|(left, right)| same(left, right))
        }
        (left, right) => bytes_of(left) == bytes_of(right),
    }
}

/// Whether two documents say the same, one field aside.
pub(super) fn same_but(left: RawDocument<'_>, right: RawDocument<'_>, aside: Option<&str>) -> bool {
    let counts = |(name, _): &(&str, RawValue<'_>)| Some(*name) != aside;
    let is_in = |(name, value)| right.get(name).is_some_and(|other| same(value, other));
    left.iter().filter(counts).count() == right.iter().filter(counts).count()
        && left.iter().filter(counts).all(is_in)
}

fn bytes_of(value: RawValue<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.append("", value);
    writer.finish_bytes()
}
