//! A node: what a document says of its place, and how what is derived is written into it.

use kilim_bson::{
    Array, Document, JsonFormat, RawDocument, RawValue, Value, Writer, compare, value_to_extended_json,
};

use super::{Field, Tree};
use crate::path::{get, names, put};

/// A document as a node of a tree.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub id: Value,
    pub scope: Value,
    /// None where it names no parent.
    pub parent: Option<Value>,
    pub document: Document,
}

/// What a node gets from those above it.
#[derive(Debug, Clone)]
pub(super) struct Above {
    /// From the root to the parent.
    pub ids: Vec<Value>,
    /// The parent's path, which ends in a separator.
    pub path: String,
}

impl Above {
    pub fn depth(&self) -> usize {
        self.ids.len()
    }
}

impl Field {
    pub fn new(path: &str) -> Field {
        Field { path: path.into(), names: names(path) }
    }

    pub fn get<'d>(&self, document: RawDocument<'d>) -> Option<RawValue<'d>> {
        get(document, &self.names)
    }

    /// A whole number; what is no whole number was not written by maintenance.
    pub fn whole(&self, document: RawDocument<'_>) -> Option<i64> {
        match self.get(document)? {
            RawValue::Int32(number) => Some(i64::from(number)),
            RawValue::Int64(number) => Some(number),
            _ => None,
        }
    }
}

/// A name as it stands in a path: the separator and the escape sign are written as `%` and two hexadecimal digits a byte.
fn escaped(name: &str, separator: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for sign in name.chars() {
        if sign != '%' && !separator.contains(sign) {
            out.push(sign);
            continue;
        }
        let mut bytes = [0; 4];
        sign.encode_utf8(&mut bytes).bytes().for_each(|byte| out.push_str(&format!("%{byte:02X}")));
    }
    out
}

/// A value as it is named in a path: texts as they are, numbers that are equal alike, the rest as extended JSON has it.
fn named(value: RawValue<'_>) -> String {
    match value {
        RawValue::String(text) => text.to_owned(),
        RawValue::Int32(number) => number.to_string(),
        RawValue::Int64(number) => number.to_string(),
        RawValue::Double(number) if number.fract() == 0.0 && number.abs() < 2f64.powi(63) => {
            (number as i64).to_string()
        }
        RawValue::ObjectId(id) => id.to_string(),
        value => value_to_extended_json(value, JsonFormat::Relaxed),
    }
}

impl Tree {
    pub(super) fn node_of(&self, document: Document) -> Node {
        let raw = document.as_raw();
        Node {
            id: raw.get("_id").map_or(Value::Null, RawValue::to_value),
            scope: self.scope_of(raw),
            parent: self.parent_of(raw).map(RawValue::to_value),
            document,
        }
    }

    /// The parent that a document names.
    pub fn parent_of<'d>(&self, document: RawDocument<'d>) -> Option<RawValue<'d>> {
        self.parent.get(document).filter(|parent| !matches!(parent, RawValue::Null | RawValue::Undefined))
    }

    /// What a node is called in paths.
    pub(super) fn name_of(&self, document: RawDocument<'_>) -> String {
        let name = self.path_of.as_ref().and_then(|field| field.get(document));
        let name = name.filter(|name| !matches!(name, RawValue::Null | RawValue::Undefined));
        let name = name.or_else(|| document.get("_id")).unwrap_or(RawValue::Null);
        escaped(&named(name), &self.separator)
    }

    /// What a root gets from above.
    pub(super) fn above_root(&self) -> Above {
        Above { ids: Vec::new(), path: self.separator.to_string() }
    }

    /// What the children of a node get from above.
    pub(super) fn above_children(&self, above: &Above, node: &Node) -> Above {
        let mut ids = above.ids.clone();
        ids.push(node.id.clone());
        Above { ids, path: self.path_below(above, node.document.as_raw()) }
    }

    fn path_below(&self, above: &Above, document: RawDocument<'_>) -> String {
        match self.path {
            Some(_) => format!("{}{}{}", above.path, self.name_of(document), self.separator),
            None => String::new(),
        }
    }

    /// The same from what a node has stored, where that is enough to tell.
    pub(super) fn stored_above_children(&self, node: &Node) -> Option<Above> {
        let raw = node.document.as_raw();
        let ancestors = self.ancestors.as_ref()?.get(raw)?.as_array()?;
        let path = match &self.path {
            Some(field) => field.get(raw)?.as_str()?.to_owned(),
            None => String::new(),
        };
        let mut ids: Vec<Value> = ancestors.iter().map(RawValue::to_value).collect();
        ids.push(node.id.clone());
        Some(Above { ids, path })
    }

    /// The fields of a node that follow from those above it.
    pub(super) fn fields_from_above<'t>(
        &'t self,
        above: &Above,
        document: RawDocument<'_>,
        fields: &mut Vec<(&'t Field, Value)>,
    ) {
        if let Some(field) = &self.ancestors {
            fields.push((field, Value::Array(above.ids.iter().cloned().collect::<Array>())));
        }
        if let Some(field) = &self.path {
            fields.push((field, Value::String(self.path_below(above, document))));
        }
        if let Some(field) = &self.depth {
            fields.push((field, Value::Int32(above.depth() as i32)));
        }
    }

    /// The fields that hold labels, with their values.
    pub(super) fn fields_of_labels<'t>(&'t self, labels: [i64; 2], fields: &mut Vec<(&'t Field, Value)>) {
        let Some([left, right]) = &self.nested_sets else { return };
        fields.push((left, Value::Int64(labels[0])));
        fields.push((right, Value::Int64(labels[1])));
        if let Some(field) = &self.order {
            fields.push((field, Value::Int64(labels[0])));
        }
    }

    /// The fields that hold counts, with their values.
    pub(super) fn fields_of_counts<'t>(
        &'t self,
        children: i64,
        descendants: i64,
        fields: &mut Vec<(&'t Field, Value)>,
    ) {
        let counts = [(&self.child_count, children), (&self.descendant_count, descendants)];
        for (field, count) in counts {
            if let Some(field) = field {
                fields.push((field, Value::Int64(count)));
            }
        }
    }

    /// What is maintained, field by field.
    pub(super) fn maintained(&self) -> impl Iterator<Item = &Field> {
        let alone = [
            &self.ancestors,
            &self.path,
            &self.depth,
            &self.child_count,
            &self.descendant_count,
            &self.order,
        ];
        alone.into_iter().flatten().chain(self.nested_sets.iter().flatten())
    }

    /// Whether a document has a field of which something is maintained.
    fn has_maintained(&self, document: RawDocument<'_>) -> bool {
        let mut elements = document.iter();
        while let Some(element) = elements.next_element() {
            if self.maintained().any(|field| field.names.first().is_some_and(|name| **name == *element.name))
            {
                return true;
            }
        }
        false
    }

    /// A document with the maintained fields of another; none where it has them.
    pub fn restored(&self, from: RawDocument<'_>, document: RawDocument<'_>) -> Option<Document> {
        if from.is_empty() && !self.has_maintained(document) {
            return None;
        }
        let fields: Vec<(&Field, Option<Value>)> =
            self.maintained().map(|field| (field, field.get(from).map(RawValue::to_value))).collect();
        let same = |(field, value): &(&Field, Option<Value>)| same_value(field.get(document), value.as_ref());
        match fields.iter().all(same) {
            true => None,
            false => Some(with_fields(document, &fields)),
        }
    }

    /// The newest version of a document with what steps made of an older one: the maintained fields, and the parent where
    /// it is another than it was.
    pub fn transplanted(
        &self,
        made: RawDocument<'_>,
        original: Option<RawDocument<'_>>,
        newest: RawDocument<'_>,
    ) -> Document {
        let kept = self.restored(made, newest).unwrap_or_else(|| newest.to_document());
        let parent = self.parent.get(made).map(RawValue::to_value);
        match original.is_some_and(|original| !same_value(self.parent.get(original), parent.as_ref())) {
            true => with_fields(kept.as_raw(), &[(&self.parent, parent)]),
            false => kept,
        }
    }

    /// Whether a document brought maintained values that are not those it has now.
    pub fn gave_way(&self, given: RawDocument<'_>, made: RawDocument<'_>) -> bool {
        self.has_maintained(given)
            && self.maintained().any(|field| {
                let given = field.get(given);
                given.is_some() && !same_value(given, field.get(made).map(RawValue::to_value).as_ref())
            })
    }
}

fn same_value(one: Option<RawValue<'_>>, other: Option<&Value>) -> bool {
    match (one, other.map(Value::as_raw)) {
        (None, None) => true,
        (Some(one), Some(other)) => one.element_type() == other.element_type() && compare(one, other).is_eq(),
        _ => false,
    }
}

/// A document with these values at these fields.
pub(super) fn with_fields(document: RawDocument<'_>, fields: &[(&Field, Option<Value>)]) -> Document {
    if fields.iter().any(|(field, _)| field.names.len() > 1) {
        let put = |made: Document, (field, value): &(&Field, Option<Value>)| {
            put(made.as_raw(), &field.names, value.as_ref().map(Value::as_raw))
        };
        return fields.iter().fold(document.to_document(), put);
    }
    let mut out = Writer::with_capacity(document.as_bytes().len() + 64 * fields.len());
    let mut met = vec![false; fields.len()];
    let mut elements = document.iter();
    while let Some((name, _, bytes)) = elements.next_with_bytes() {
        match fields.iter().position(|(field, _)| *field.path == *name) {
            None => out.append_elements(bytes),
            Some(at) => {
                if let (false, Some(value)) = (std::mem::replace(&mut met[at], true), &fields[at].1) {
                    out.append(name, value.as_raw());
                }
            }
        }
    }
    for ((field, value), met) in fields.iter().zip(met) {
        if let (false, Some(value)) = (met, value) {
            out.append(&field.path, value.as_raw());
        }
    }
    out.finish()
}

/// A document with these values; none where it has them.
pub(super) fn with_values(document: RawDocument<'_>, fields: Vec<(&Field, Value)>) -> Option<Document> {
    if fields.iter().all(|(field, value)| same_value(field.get(document), Some(value))) {
        return None;
    }
    let fields: Vec<(&Field, Option<Value>)> =
        fields.into_iter().map(|(field, value)| (field, Some(value))).collect();
    Some(with_fields(document, &fields))
}

pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    compare(one.as_raw(), other.as_raw()).is_eq()
}
