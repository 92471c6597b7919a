//! Random `$setWindowFields`, `$densify` and `$fill`.
//!
//! What differs on purpose (`docs/differences.md`) is not asked. Documents are sorted by something that tells them apart, so
//! that each has the same neighbours on every server. A stage has one output only: the order in which mongod appends several is
//! that of a hash table. Each output has another name, because a field that is taken away and set again comes last here and
//! stays where it was on mongod.

use kilim_bson::{Array, Document, Value, doc};

use super::compose::Composer;
use super::kinds::Kind;
use super::stages::Flow;
use crate::shell::parse;

impl Composer<'_> {
    pub fn window_fields(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        let [unique] = flow.unique.as_slice() else {
            return pipeline.push(doc! {"$match": self.filter(1)});
        };
        let mut by = Document::new();
        let ranged = self.chance(0.3);
        let first = if ranged { self.path(&Kind::Int) } else { None };
        match first {
            // Equals have no order among themselves, which only what does not depend on it may meet.
            Some(path) => by.push(&path, 1),
            None => by.push(unique.as_str(), *self.choose(&[1, 1, 1, -1])),
        }
        let tied = ranged && by.get(unique.as_str()).is_none();
        let mut spec = Document::new();
        if self.chance(0.5) {
            let kind = self.choose(&[Kind::Int, Kind::Str, Kind::Bool]).clone();
            let partition = match self.path(&kind) {
                Some(path) if self.chance(0.6) => Value::from(format!("${path}")),
                _ => self.expression(&kind, 1),
            };
            spec.push("partitionBy", partition);
        }
        spec.push("sortBy", by);
        let (function, kind) = self.window_function(tied, ranged);
        let earlier = pipeline.iter().filter(|stage| stage.get("$setWindowFields").is_some()).count();
        let output = format!("window{earlier}");
        spec.push("output", doc! {(output.as_str()): function});
        pipeline.push(doc! {"$setWindowFields": spec});
        self.shape.push((output, kind));
        // Partitions come in an order that is their own, with ties between those that are equal.
        flow.ordered = false;
    }

    fn window_function(&mut self, tied: bool, ranged: bool) -> (Document, Kind) {
        let name = match tied {
            true => *self.choose(&["$sum", "$avg", "$count"]),
            false => *self.choose(&[
                "$sum",
                "$avg",
                "$min",
                "$max",
                "$count",
                "$stdDevPop",
                "$stdDevSamp",
                "$push",
                "$first",
                "$last",
                "$firstN",
                "$lastN",
                "$minN",
                "$maxN",
                "$top",
                "$bottomN",
                "$rank",
                "$denseRank",
                "$documentNumber",
                "$shift",
                "$derivative",
                "$integral",
                "$covariancePop",
                "$covarianceSamp",
                "$linearFill",
                "$locf",
            ]),
        };
        // Whole numbers where the order of equals would show in the last bit of a sum.
        let number = if tied { Kind::Int } else { Kind::Num };
        let mut input = |kind: &Kind| match self.path(kind) {
            Some(path) => Value::from(format!("${path}")),
            None => Value::Int32(1),
        };
        let operand = match name {
            "$count" | "$rank" | "$denseRank" | "$documentNumber" => Value::Document(Document::new()),
            "$min" | "$max" | "$push" | "$first" | "$last" | "$locf" => input(&Kind::Any),
            "$firstN" | "$lastN" | "$minN" | "$maxN" => {
                Value::Document(doc! {"n": 2, "input": input(&Kind::Any)})
            }
            "$top" => Value::Document(doc! {"output": input(&Kind::Any), "sortBy": {"_id": 1}}),
            "$bottomN" => {
                Value::Document(doc! {"n": 2, "output": input(&Kind::Any), "sortBy": {"i": 1, "_id": 1}})
            }
            "$shift" => Value::Document(doc! {"output": input(&Kind::Any), "by": (-1), "default": "none"}),
            "$derivative" | "$integral" => Value::Document(doc! {"input": input(&Kind::Int)}),
            "$covariancePop" | "$covarianceSamp" => {
                Value::Array([input(&Kind::Int), input(&Kind::Int)].into_iter().collect())
            }
            _ => input(&number),
        };
        let mut function: Document = [(name, operand)].into_iter().collect();
        let windowless = ["$rank", "$denseRank", "$documentNumber", "$shift", "$linearFill", "$locf"];
        if !windowless.contains(&name) && (name == "$derivative" || self.chance(0.9)) {
            function.push("window", self.window(tied, ranged));
        }
        let kind = match name {
            "$count" | "$rank" | "$denseRank" | "$documentNumber" => Kind::Int,
            _ => Kind::Any,
        };
        (function, kind)
    }

    fn window(&mut self, tied: bool, ranged: bool) -> Document {
        let documents: Array = match self.up_to(3) {
            0 => {
                let bounds = *self.choose(&["['unbounded', 'current']", "['current', 'unbounded']"]);
                parse(bounds)
            }
            1 => parse("['unbounded', 'unbounded']"),
            _ => {
                let lower = self.up_to(7) as i32 - 4;
                let upper = lower + self.up_to(4) as i32;
                parse(&format!("[{lower}, {upper}]"))
            }
        }
        .ok()
        .and_then(|value| match value {
            Value::Array(array) => Some(array),
            _ => None,
        })
        .unwrap_or_default();
        // Where equals are not told apart, only ranges by value have the same documents everywhere.
        let numbers = documents.as_raw().iter().all(|bound| bound.is_number());
        match (tied, ranged && numbers) {
            (true, false) => doc! {"range": [-2, 2]},
            (_, true) => doc! {"range": documents},
            (false, false) => doc! {"documents": documents},
        }
    }

    pub fn densify(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        let [unique] = flow.unique.as_slice() else {
            return pipeline.push(doc! {"$match": self.filter(1)});
        };
        let bounds = *self.choose(&["[-1, 7]", "[0, 12]", "[2, 5]"]);
        let step = 1 + self.up_to(3) as i32;
        let bounds = parse(bounds).expect("valid");
        pipeline
            .push(doc! {"$densify": {"field": unique.as_str(), "range": {"step": step, "bounds": bounds}}});
        if self.chance(0.5) {
            let field = self.path(&Kind::Int).filter(|path| path != "_id").unwrap_or("i".to_owned());
            let method = *self.choose(&["locf", "linear"]);
            let mut output = Document::new();
            match self.chance(0.3) {
                true => output.push(&field, doc! {"value": 7}),
                false => output.push(&field, doc! {"method": method}),
            }
            let by: Document = [(unique.as_str(), Value::Int32(1))].into_iter().collect();
            pipeline.push(doc! {"$fill": {"sortBy": by, "output": output}});
        }
        flow.ordered = true;
    }
}
