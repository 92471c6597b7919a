//! Filters for documents of a known shape: what `$match` and `find` are given.

use kilim_bson::{Document, RawValue, Value, doc};
use rand::Rng;

use super::compose::Composer;
use super::kinds::{self, Kind};

impl Composer<'_> {
    pub fn filter(&mut self, depth: usize) -> Document {
        let mut filter = Document::new();
        for _ in 0..*self.choose(&[1, 1, 1, 2, 2, 0]) {
            if depth > 0 && self.chance(0.12) {
                let name = *self.choose(&["$and", "$or", "$nor"]);
                let count = 1 + self.up_to(3);
                let clauses = (0..count).map(|_| self.filter(depth - 1));
                // What always holds, or never, is a matter of optimisation: it decides which errors are met.
                let clauses: Vec<Document> = clauses.filter(|clause| !clause.is_empty()).collect();
                if !clauses.is_empty() {
                    push_new(&mut filter, name, clauses);
                }
            } else if self.chance(0.25) {
                let condition = self.variable_condition(2);
                push_new(&mut filter, "$expr", condition);
            } else if let Some((path, kind)) = self.any_path() {
                let condition = self.condition(&kind, depth);
                push_new(&mut filter, &path, condition);
            }
        }
        filter
    }

    /// An expression of a truth that looks at the document.
    pub fn variable_condition(&mut self, depth: usize) -> Value {
        let condition = self.expression(&Kind::Bool, depth);
        match reads_field(condition.as_raw()) {
            true => condition,
            false => {
                let path = self.path(&Kind::Any).unwrap_or_else(|| "_id".to_owned());
                Value::Document(doc! {"$gt": [format!("${path}"), null]})
            }
        }
    }

    /// Any path, and what it leads to.
    fn any_path(&mut self) -> Option<(String, Kind)> {
        for _ in 0..6 {
            let kind = match self.up_to(9) {
                0..3 => Kind::Int,
                3 => Kind::Num,
                4 => Kind::Str,
                5 => Kind::Date,
                6 => Kind::array(Kind::Any),
                7 => Kind::Bool,
                _ => Kind::Any,
            };
            if let Some(path) = self.path(&kind) {
                return Some((path, kind));
            }
        }
        None
    }

    fn condition(&mut self, kind: &Kind, depth: usize) -> Value {
        let element = match kind {
            Kind::Array(of) => (**of).clone(),
            other => other.clone(),
        };
        let value = |composer: &mut Self| {
            // What lies at the ends of the order depends on the plan on mongod.
            loop {
                let value = kinds::literal(composer.random, &element, 0.0);
                if !matches!(value, Value::MinKey | Value::MaxKey | Value::Regex { .. } | Value::Undefined) {
                    break value;
                }
            }
        };
        let condition = match self.up_to(20) {
            0..4 => return value(self),
            4 => doc! {"$eq": value(self)},
            5 => doc! {"$ne": value(self)},
            6..8 => doc! {"$gt": value(self)},
            8 => doc! {"$gte": value(self)},
            9..11 => doc! {"$lt": value(self)},
            11 => doc! {"$gte": value(self), "$lte": value(self)},
            12 | 13 => {
                let count = self.up_to(4);
                let list: Vec<Value> = (0..count).map(|_| value(self)).collect();
                let name = if self.chance(0.8) { "$in" } else { "$nin" };
                [(name, Value::from(list))].into_iter().collect()
            }
            14 => doc! {"$exists": self.chance(0.7)},
            15 => {
                let name = *self.choose(&["number", "string", "date", "array", "object", "null", "bool"]);
                doc! {"$type": name}
            }
            16 if matches!(kind, Kind::Array(_)) => doc! {"$size": self.up_to(4) as i32},
            17 if depth > 0 => doc! {"$not": {"$gt": value(self)}},
            18 if matches!(kind, Kind::Str) => {
                let pattern = *self.choose(&["^a", "b", "c$", "[0-9]", "^日"]);
                doc! {"$regex": pattern, "$options": (if self.chance(0.5) { "i" } else { "" })}
            }
            18 => doc! {"$mod": [self.random.random_range(1..4), 0]},
            _ => doc! {"$ne": null},
        };
        Value::Document(condition)
    }
}

fn reads_field(value: RawValue<'_>) -> bool {
    match value {
        RawValue::String(text) => {
            text.starts_with('$') && (!text.starts_with("$$") || text.starts_with("$$ROOT"))
        }
        RawValue::Document(document) => {
            document.iter().any(|(name, value)| name != "$literal" && reads_field(value))
        }
        RawValue::Array(array) => array.iter().any(reads_field),
        _ => false,
    }
}

fn push_new(document: &mut Document, name: &str, value: impl Into<Value>) {
    if document.get(name).is_none() {
        document.push(name, value.into());
    }
}
