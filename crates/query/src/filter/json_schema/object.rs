//! What a schema says of objects, in a form that one walk over a document's fields can answer.

use kilim_bson::RawDocument;

use super::super::Regex;
use super::{Additional, Count, Schema};

#[derive(Debug, Clone, Default)]
pub(super) struct ObjectRules {
    /// As written.
    pub properties: Vec<(Box<str>, Schema)>,
    pub patterns: Vec<(Regex, Schema)>,
    pub additional: Option<Additional>,
    /// As written.
    pub required: Vec<Box<str>>,
    pub min: Option<Count>,
    pub max: Option<Count>,
    pub dependencies: Vec<(Box<str>, Dependency)>,
    /// The names of properties and required fields, sorted, each once.
    names: Vec<Known>,
    /// One bit for each of the first [`COUNTED`] required names.
    all_required: u64,
}

/// What comes with a property.
#[derive(Debug, Clone)]
pub(super) enum Dependency {
    Properties(Vec<Box<str>>),
    Schema(Box<Schema>),
}

#[derive(Debug, Clone)]
struct Known {
    name: Box<str>,
    property: Option<usize>,
    /// Its bit among the required, or none.
    required: u64,
}

/// So many required names are ticked off during the walk; further ones are looked up.
const COUNTED: usize = 64;

impl ObjectRules {
    /// Prepares the look-up of names; comes after all else is set.
    pub(super) fn index_names(&mut self) {
        let mut names: Vec<Known> = Vec::new();
        for (position, (name, _)) in self.properties.iter().enumerate() {
            names.push(Known { name: name.clone(), property: Some(position), required: 0 });
        }
        for (position, name) in self.required.iter().enumerate().take(COUNTED) {
            let bit = 1 << position;
            self.all_required |= bit;
            match names.iter_mut().find(|known| known.name == *name) {
                Some(known) => known.required = bit,
                None => names.push(Known { name: name.clone(), property: None, required: bit }),
            }
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        self.names = names;
    }

    pub(super) fn matches(&self, document: RawDocument<'_>) -> bool {
        let (mut count, mut missing) = (0, self.all_required);
        let open = self.patterns.is_empty() && self.additional.is_none();
        for (name, value) in document.iter() {
            count += 1;
            let known = self.names.binary_search_by(|known| (*known.name).cmp(name)).ok();
            let known = known.map(|at| &self.names[at]);
            let property = known.and_then(|known| known.property);
            if let Some(known) = known {
                missing &= !known.required;
            }
            if property.is_some_and(|at| !self.properties[at].1.matches(value)) {
                return false;
            }
            if open {
                continue;
            }
            let mut covered = property.is_some();
            for (regex, schema) in &self.patterns {
                if regex.is_match(name) {
                    covered = true;
                    if !schema.matches(value) {
                        return false;
                    }
                }
            }
            match &self.additional {
                Some(Additional::Forbidden) if !covered => return false,
                Some(Additional::Like(schema)) if !covered && !schema.matches(value) => return false,
                _ => {}
            }
        }
        missing == 0
            && self.min.as_ref().is_none_or(|min| count >= min.number)
            && self.max.as_ref().is_none_or(|max| count <= max.number)
            && self.required.iter().skip(COUNTED).all(|name| document.get(name).is_some())
            && self
                .dependencies
                .iter()
                .all(|(name, dependency)| document.get(name).is_none() || dependency.matches(document))
    }

    /// Whether a field is neither a property nor caught by a pattern.
    pub(super) fn is_additional(&self, name: &str) -> bool {
        !self.properties.iter().any(|(property, _)| **property == *name)
            && !self.patterns.iter().any(|(regex, _)| regex.is_match(name))
    }
}

impl Dependency {
    pub(super) fn matches(&self, document: RawDocument<'_>) -> bool {
        match self {
            Dependency::Properties(names) => names.iter().all(|name| document.get(name).is_some()),
            Dependency::Schema(schema) => schema.matches(kilim_bson::RawValue::Document(document)),
        }
    }
}
