//! The values that a path led to, as `errInfo` shows them.

use kilim_bson::{Document, Path, RawDocument, RawValue, Value};

use crate::path::{self, Found, Leaf};

/// So many values are shown; then it is said that there were more.
const SHOWN: usize = 10;

pub(super) struct Considered<'a> {
    values: Vec<RawValue<'a>>,
    /// The path led somewhere, if only to an empty array.
    exists: bool,
}

impl<'a> Considered<'a> {
    /// What stands at a path. An array counts by its elements, unless an operator looks at it as a whole.
    pub(super) fn at(document: RawDocument<'a>, path: &str, whole: bool) -> Considered<'a> {
        let path = Path::parse(path);
        let mut considered = Considered { values: Vec::new(), exists: false };
        let mut visitor = |found: Found<'a>| {
            considered.exists |= found.value.is_some();
            match found.value {
                Some(RawValue::Array(array)) if !whole => considered.values.extend(array.iter()),
                found => considered.values.extend(found),
            }
            false
        };
        path::visit(document, path.components(), Leaf::Whole, &mut visitor);
        considered
    }

    pub(super) fn is_missing(&self) -> bool {
        !self.exists
    }

    pub(super) fn has(&self, types: &[&str]) -> bool {
        self.values.iter().any(|value| types.contains(&value.element_type().name()))
    }

    pub(super) fn push_values(&self, report: &mut Document) {
        if let [only] = self.values[..] {
            report.push("consideredValue", only.to_value());
            return;
        }
        let shown: Vec<Value> = self.values.iter().take(SHOWN).map(|value| value.to_value()).collect();
        report.push("consideredValues", shown);
        if self.values.len() > SHOWN {
            report.push("consideredValuesTruncated", true);
        }
    }

    /// The types of all of them, by name.
    pub(super) fn push_types(&self, report: &mut Document) {
        let mut names: Vec<&str> = self.values.iter().map(|value| value.element_type().name()).collect();
        names.sort_unstable();
        names.dedup();
        match names[..] {
            [] => {}
            [only] => report.push("consideredType", only),
            _ => report.push("consideredTypes", names.into_iter().map(Value::from).collect::<Vec<_>>()),
        }
    }
}
