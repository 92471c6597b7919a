//! Writes expressions of a kind for documents of a shape.

use kilim_bson::{Document, RawValue, Value};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::kinds::{self, Kind, Shape};
use super::templates::{pieces, pool};
use crate::shell::parse;

/// The composer of one pipeline: what it knows of the documents that flow by, and of variables.
pub(super) struct Composer<'r> {
    pub random: &'r mut StdRng,
    pub shape: Shape,
    pub variables: Vec<(String, Kind)>,
    /// The share of places that are filled with a value of another kind.
    pub wrong: f64,
    /// Whether all values are of the kind they are believed to be, or missing.
    pub clean: bool,
    /// Whether the view may be read: not by itself.
    pub views: bool,
    /// Most stages are about windows.
    pub windowed: bool,
}

impl Composer<'_> {
    pub fn chance(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    pub fn up_to(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    pub fn choose<'p, T>(&mut self, pool: &'p [T]) -> &'p T {
        pool.choose(self.random).expect("a pool is not empty")
    }

    /// An expression whose result is most likely of the kind.
    pub fn expression(&mut self, kind: &Kind, depth: usize) -> Value {
        if self.wrong > 0.0 && self.random.random_bool(self.wrong) {
            let other = self.other_kind();
            return self.leaf(&other, true);
        }
        if depth == 0 || self.chance(0.35) {
            return self.leaf(kind, false);
        }
        let family = *self.choose(pieces(kind));
        let piece = *self.choose(family);
        let piece = parse(piece).unwrap_or_else(|error| panic!("{piece}: {error}"));
        self.fill(piece.as_raw(), kind, depth - 1)
    }

    fn other_kind(&mut self) -> Kind {
        let kinds = [Kind::Int, Kind::Num, Kind::Str, Kind::Date, Kind::Bool, Kind::Id, Kind::Any];
        match self.up_to(9) {
            7 => Kind::array(Kind::Any),
            8 => Kind::Object(Vec::new()),
            at => kinds[at].clone(),
        }
    }

    /// Fills the places of a piece.
    pub fn fill(&mut self, piece: RawValue<'_>, same: &Kind, depth: usize) -> Value {
        match piece {
            RawValue::String(text) => match text.strip_prefix('@') {
                Some(place) => self.place(place, same, depth),
                None => Value::from(text),
            },
            RawValue::Document(document) => {
                let mut filled = Document::new();
                for (name, value) in document.iter() {
                    let value = self.fill(value, same, depth);
                    filled.push(name, value);
                }
                Value::Document(filled)
            }
            RawValue::Array(array) => {
                let values: Vec<Value> = array.iter().map(|value| self.fill(value, same, depth)).collect();
                Value::from(values)
            }
            other => other.to_value(),
        }
    }

    fn place(&mut self, place: &str, same: &Kind, depth: usize) -> Value {
        if let Some(pool) = pool(place) {
            return kinds::pick(self.random, pool);
        }
        let mut parts = place.split('|');
        let kind = kind_named(parts.next().unwrap_or_default(), same);
        let known = self.variables.len();
        for (name, named) in parts.filter_map(|part| part.split_once(':')) {
            // `=` in a variable of an array's loop is the element.
            let kind = match (named, same) {
                ("=", Kind::Array(of)) => (**of).clone(),
                _ => kind_named(named, same),
            };
            self.variables.push((name.to_owned(), kind));
        }
        let value = self.expression(&kind, depth);
        self.variables.truncate(known);
        value
    }

    /// A field, a variable or a constant. `literally` leaves no doubt about its kind.
    fn leaf(&mut self, kind: &Kind, literally: bool) -> Value {
        if !literally && self.chance(0.75) {
            let mut paths: Vec<String> = Vec::new();
            for (name, of) in &self.variables {
                collect(&format!("$${name}"), of, kind, &mut paths);
                // Variables are few and fields are many.
                collect(&format!("$${name}"), of, kind, &mut paths);
            }
            for (name, of) in &self.shape {
                collect(&format!("${name}"), of, kind, &mut paths);
            }
            if let Some(path) = paths.choose(self.random) {
                return Value::from(path);
            }
        }
        let literal = match kind {
            Kind::Array(of) if self.chance(0.5) => {
                let count = self.up_to(4);
                Value::from((0..count).map(|_| self.constant(of)).collect::<Vec<_>>())
            }
            _ => kinds::literal(self.random, kind, 0.0),
        };
        quoted(literal)
    }

    fn constant(&mut self, kind: &Kind) -> Value {
        kinds::literal(self.random, kind, 0.0)
    }

    /// A path without its `$` that leads to a value of the kind.
    pub fn path(&mut self, kind: &Kind) -> Option<String> {
        let mut paths = Vec::new();
        for (name, of) in &self.shape {
            collect(name, of, kind, &mut paths);
        }
        paths.choose(self.random).cloned()
    }
}

/// A constant that no parser takes for an expression.
fn quoted(literal: Value) -> Value {
    let mut document = Document::new();
    match &literal {
        Value::String(text) if text.starts_with('$') => document.push("$literal", literal),
        Value::Document(_) | Value::Array(_) if dollar(literal.as_raw()) => {
            document.push("$literal", literal)
        }
        _ => return literal,
    }
    Value::Document(document)
}

fn dollar(value: RawValue<'_>) -> bool {
    match value {
        RawValue::String(text) => text.starts_with('$'),
        RawValue::Document(document) => document.iter().any(|(_, value)| dollar(value)),
        RawValue::Array(array) => array.iter().any(dollar),
        _ => false,
    }
}

/// Paths below a field that lead to a value of the kind.
fn collect(path: &str, of: &Kind, asked: &Kind, paths: &mut Vec<String>) {
    if of.serves(asked) {
        paths.push(path.to_owned());
    }
    match of {
        Kind::Object(shape) => {
            shape.iter().for_each(|(name, kind)| collect(&format!("{path}.{name}"), kind, asked, paths));
        }
        // A path through an array of documents gives an array of what it leads to.
        Kind::Array(of) => {
            if let (Kind::Object(shape), Kind::Array(asked)) = (&**of, asked) {
                let fields = shape.iter().filter(|(_, kind)| kind.serves(asked));
                paths.extend(fields.map(|(name, _)| format!("{path}.{name}")));
            }
        }
        _ => {}
    }
}

fn kind_named(name: &str, same: &Kind) -> Kind {
    if let Some(inner) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return Kind::array(kind_named(inner, same));
    }
    match name {
        "int" => Kind::Int,
        "num" => Kind::Num,
        "str" => Kind::Str,
        "date" => Kind::Date,
        "bool" => Kind::Bool,
        "id" => Kind::Id,
        "bytes" => Kind::Bytes,
        "stamp" => Kind::Stamp,
        "any" => Kind::Any,
        "obj" => Kind::Object(Vec::new()),
        "=" => same.clone(),
        other => panic!("no kind is called {other}"),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_piece_can_be_filled() {
        let mut random = StdRng::seed_from_u64(1);
        let mut composer = Composer {
            random: &mut random,
            shape: kinds::base(),
            variables: Vec::new(),
            wrong: 0.0,
            clean: true,
            views: true,
            windowed: false,
        };
        let kinds = [
            Kind::Int,
            Kind::Num,
            Kind::Str,
            Kind::Date,
            Kind::Bool,
            Kind::Id,
            Kind::Any,
            Kind::array(Kind::Any),
            Kind::array(Kind::Int),
            Kind::array(Kind::Str),
            Kind::array(Kind::Object(Vec::new())),
            Kind::Object(Vec::new()),
        ];
        for kind in &kinds {
            for piece in pieces(kind).iter().copied().flatten() {
                let piece = parse(piece).unwrap_or_else(|error| panic!("{piece}: {error}"));
                for _ in 0..20 {
                    composer.fill(piece.as_raw(), kind, 2);
                }
            }
        }
    }
}
