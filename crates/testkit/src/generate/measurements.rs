//! Histories of time series: measurements that come alone and in batches, in time and late; deletes and updates by the meta;
//! reads by time, meta and values, groups, and the first and last point of each series.
//!
//! MongoDB gives the fields of a measurement in the order of a hash table, so every question ends in a stage that names
//! them. No two measurements have the same time or the same `_id`, so that every order is known.

use kilim_bson::{Array, Document, Value, doc};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::one_case;
use crate::spec::{Action, Case};

const COLLECTION: &str = "t";
const BEGIN: i64 = 1_704_067_200_000;

pub(super) fn generate(random: &mut StdRng) -> Case {
    let mut series = Series { random, next: 0 };
    let granularity = series.choose(&["seconds", "seconds", "minutes", "hours"]);
    let options = doc! {"timeField": "t", "metaField": "k", "granularity": granularity};
    let mut actions = vec![Action::Run(doc! {"create": COLLECTION, "timeseries": options})];
    if series.chance(0.4) {
        let key = series.choose(&[1, -1]);
        let index = doc! {"key": {"k": 1, "t": key}, "name": "i"};
        actions.push(Action::Do(doc! {"createIndexes": COLLECTION, "indexes": [index]}));
    }
    for _ in 0..series.random.random_range(6..16) {
        let action = match series.random.random_range(0..10) {
            0..4 => series.insert(),
            4 => series.delete(),
            5 => series.update(),
            _ => series.question(),
        };
        actions.push(action);
    }
    actions.push(Action::Docs { unordered: false, command: asking(Vec::new()) });
    one_case(actions)
}

/// All measurements that stages leave, in a known form and order.
fn asking(mut stages: Vec<Document>) -> Document {
    stages.push(doc! {"$replaceWith": {"_id": "$_id", "t": "$t", "k": "$k", "v": "$v", "w": "$w"}});
    stages.push(doc! {"$sort": {"_id": 1}});
    aggregate(stages)
}

fn aggregate(stages: Vec<Document>) -> Document {
    let stages: Array = stages.into_iter().map(Value::Document).collect();
    doc! {"aggregate": COLLECTION, "pipeline": (Value::Array(stages)), "cursor": {}}
}

struct Series<'a> {
    random: &'a mut StdRng,
    /// The number of the next measurement.
    next: i64,
}

impl Series<'_> {
    fn choose<T: Copy>(&mut self, list: &[T]) -> T {
        *list.choose(self.random).expect("not empty")
    }

    fn chance(&mut self, share: f64) -> bool {
        self.random.random_bool(share)
    }

    fn meta(&mut self) -> Value {
        let number = self.random.random_range(0..3);
        match self.random.random_range(0..6) {
            0 => Value::Null,
            1 => Value::Document(doc! {"a": number, "b": [1, 2]}),
            2 => Value::from(["x", "y", "z"][number as usize]),
            _ => Value::Int32(number),
        }
    }

    /// A time around that of a measurement: seconds apart, with jumps of hours. The number within it is the only one.
    fn time_of(&mut self, number: i64) -> Value {
        let late = if self.chance(0.2) { self.random.random_range(0..20) * 3_600 } else { 0 };
        let seconds = number * self.choose(&[1, 1, 1, 60]) - late;
        Value::DateTime(BEGIN + seconds * 1000 + number % 1000)
    }

    fn value(&mut self) -> Option<Value> {
        let number = self.random.random_range(-5..20);
        Some(match self.random.random_range(0..12) {
            0 => return None,
            1 => Value::from(["", "a", "b", "zz"][(number & 3) as usize]),
            2 => Value::Document(doc! {"x": number, "y": {"z": 1}}),
            3 => Value::Bool(number > 5),
            4 | 5 => Value::Double(f64::from(number) / 2.0),
            _ => Value::Int32(number),
        })
    }

    fn measurement(&mut self) -> Document {
        let number = self.next;
        self.next += 1;
        let mut document = doc! {"_id": number, "t": (self.time_of(number))};
        if self.chance(0.9) {
            document.push("k", self.meta());
        }
        for name in ["v", "w"] {
            if let Some(value) = self.value() {
                document.push(name, value);
            }
        }
        document
    }

    fn insert(&mut self) -> Action {
        let count = self.choose(&[1, 1, 1, 3, 15, 25, 90]);
        let documents: Vec<Value> = (0..count).map(|_| Value::Document(self.measurement())).collect();
        let documents: Array = documents.into_iter().collect();
        Action::Run(doc! {"insert": COLLECTION, "documents": (Value::Array(documents))})
    }

    fn delete(&mut self) -> Action {
        let condition = self.of_meta();
        Action::Run(doc! {"delete": COLLECTION, "deletes": [{"q": condition, "limit": 0}]})
    }

    fn update(&mut self) -> Action {
        let (condition, meta) = (self.of_meta(), self.meta());
        let update = doc! {"q": condition, "u": {"$set": {"k": meta}}, "multi": true};
        Action::Run(doc! {"update": COLLECTION, "updates": [update]})
    }

    fn of_meta(&mut self) -> Document {
        let number = self.random.random_range(0..3);
        match self.random.random_range(0..4) {
            0 => doc! {"k.a": number},
            1 => doc! {"k": {"$in": [number, "x"]}},
            _ => doc! {"k": (self.meta())},
        }
    }

    fn condition(&mut self) -> Document {
        let operator = self.choose(&["$eq", "$lt", "$lte", "$gt", "$gte"]);
        let number = self.random.random_range(0..self.next.max(1));
        match self.random.random_range(0..8) {
            0..3 => doc! {"t": {operator: (self.time_of(number))}},
            3 => {
                let until = self.time_of(number + 20);
                doc! {"t": {"$gte": (self.time_of(number)), "$lt": until}}
            }
            4 => self.of_meta(),
            5 => doc! {"v.x": {operator: (number % 20)}},
            _ => {
                let (field, value) = (self.choose(&["v", "w"]), self.value());
                doc! {field: {operator: (value.unwrap_or(Value::Int32(3)))}}
            }
        }
    }

    fn filter(&mut self) -> Document {
        match self.random.random_range(0..5) {
            0 => doc! {"$or": [(self.condition()), (self.condition())]},
            1 => doc! {"$and": [(self.condition()), (self.condition())]},
            2 => doc! {},
            _ => self.condition(),
        }
    }

    fn question(&mut self) -> Action {
        let mut stages = vec![doc! {"$match": (self.filter())}];
        let direction = self.choose(&[1, -1]);
        let id = self.choose(&["$k", "$k", "$k.a"]);
        match self.random.random_range(0..6) {
            0 | 1 => return Action::Docs { unordered: false, command: asking(stages) },
            2 => {
                let operator = self.choose(&["$first", "$last"]);
                stages.push(doc! {"$sort": {"t": direction}});
                let group = doc! {"_id": id, "n": {operator: "$_id"}, "v": {operator: "$v"}};
                stages.push(doc! {"$group": group});
            }
            3 => {
                let sort = doc! {"sortBy": {"t": direction}, "output": ["$_id", "$w"]};
                let operator = self.choose(&["$top", "$bottom"]);
                stages.push(doc! {"$group": {"_id": id, "n": {operator: sort}}});
            }
            4 => {
                let group = doc! {"_id": id, "n": {"$sum": 1}, "from": {"$min": "$t"}, "to": {"$max": "$t"}};
                stages.push(doc! {"$group": group});
            }
            _ => {
                let skip = self.random.random_range(0..10);
                stages.extend([doc! {"$sort": {"t": direction}}, doc! {"$skip": skip}, doc! {"$limit": 7}]);
                return Action::Docs { unordered: false, command: asking(stages) };
            }
        }
        Action::Docs { unordered: true, command: aggregate(stages) }
    }
}
