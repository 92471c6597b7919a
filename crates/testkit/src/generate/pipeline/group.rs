//! `$group` and its relatives, with accumulators.
//!
//! Accumulators that depend on the order get one. `$addToSet` has none by nature: its sets are sorted by a
//! stage behind. So is what `$group` gives.

use kilim_bson::{Document, Value, doc};

use super::compose::Composer;
use super::kinds::{self, Kind, Shape};
use super::stages::Flow;
use crate::shell::parse;

/// A piece with an accumulator, and its result.
type Piece = (&'static str, fn() -> Kind);

const ACCUMULATORS: &[Piece] = &[
    ("{$sum: '@num'}", || Kind::Num),
    ("{$sum: 1}", || Kind::Int),
    ("{$sum: '@any'}", || Kind::Num),
    ("{$avg: '@num'}", || Kind::Num),
    ("{$avg: '@int'}", || Kind::Num),
    ("{$min: '@num'}", || Kind::Num),
    ("{$max: '@any'}", || Kind::Any),
    ("{$min: '@any'}", || Kind::Any),
    ("{$max: '@date'}", || Kind::Date),
    ("{$first: '@any'}", || Kind::Any),
    ("{$last: '@str'}", || Kind::Str),
    ("{$first: '$$ROOT'}", || Kind::Object(Vec::new())),
    ("{$push: '@any'}", || Kind::array(Kind::Any)),
    ("{$push: '@int'}", || Kind::array(Kind::Int)),
    ("{$push: {i: '@int', x: '@any'}}", || Kind::array(Kind::Object(Vec::new()))),
    ("{$addToSet: '@int'}", || Kind::array(Kind::Int)),
    ("{$addToSet: '@any'}", || Kind::array(Kind::Any)),
    ("{$count: {}}", || Kind::Int),
    ("{$stdDevPop: '@num'}", || Kind::Num),
    ("{$stdDevSamp: '@num'}", || Kind::Num),
    ("{$mergeObjects: '@obj'}", || Kind::Object(Vec::new())),
    ("{$firstN: {input: '@any', n: '@count'}}", || Kind::array(Kind::Any)),
    ("{$lastN: {input: '@num', n: '@count'}}", || Kind::array(Kind::Num)),
    ("{$minN: {input: '@any', n: '@count'}}", || Kind::array(Kind::Any)),
    ("{$maxN: {input: '@num', n: '@count'}}", || Kind::array(Kind::Num)),
];

/// The same with an order of their own; `SORT` is replaced by one without ties.
const RANKED: &[Piece] = &[
    ("{$top: {output: '@any', sortBy: 'SORT'}}", || Kind::Any),
    ("{$bottom: {output: ['@int', '@str'], sortBy: 'SORT'}}", || Kind::array(Kind::Any)),
    ("{$topN: {output: '@any', sortBy: 'SORT', n: '@count'}}", || Kind::array(Kind::Any)),
    ("{$bottomN: {output: '@num', sortBy: 'SORT', n: '@count'}}", || Kind::array(Kind::Num)),
];

const RESULTS: [&str; 5] = ["g", "y", "t1", "t2", "i"];

impl Composer<'_> {
    pub fn group(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        if !self.order(flow, pipeline) {
            // Nothing to hold on to: only how many there are is certain.
            pipeline.push(doc! {"$group": {"_id": null, "g": {"$count": {}}}});
            self.shape = vec![("_id".to_owned(), Kind::Any), ("g".to_owned(), Kind::Int)];
            *flow = Flow { unique: vec!["_id".to_owned()], ordered: true };
            return;
        }
        let mut kind = match self.up_to(8) {
            0 => Kind::Bool,
            1 => Kind::Str,
            2 => Kind::Any,
            3 => Kind::Num,
            _ => Kind::Int,
        };
        let id = match self.up_to(8) {
            0 => Value::Null,
            1 => {
                let piece =
                    *self.choose(&["{i: '@int', f: '@bool'}", "{s: '@str'}", "{x: ['@int', '@any']}"]);
                self.fill(parse(piece).expect("valid").as_raw(), &Kind::Any, 1)
            }
            _ => {
                let (id, of) = self.key(kind);
                kind = of;
                id
            }
        };
        let mut spec = doc! {"_id": id};
        let mut shape = vec![("_id".to_owned(), kind)];
        self.accumulators(&flow.unique.clone(), &mut spec, &mut shape);
        pipeline.push(doc! {"$group": spec});
        self.close_group(shape, flow, pipeline);
    }

    /// What to group by. What may be an array goes into a document, because arrays sort by one of their
    /// elements, so that different ones may tie.
    fn key(&mut self, kind: Kind) -> (Value, Kind) {
        let key = self.expression(&kind, 2);
        match self.clean && kind != Kind::Any {
            true => (key, kind),
            false => (Value::Document(doc! {"k": key}), Kind::Object(vec![("k".to_owned(), kind)])),
        }
    }

    /// Sorts sets and groups.
    fn close_group(&mut self, shape: Shape, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        let last = pipeline.last().cloned().unwrap_or_default();
        sort_sets(&last, pipeline);
        self.shape = shape;
        *flow = Flow { unique: vec!["_id".to_owned()], ordered: false };
        if self.chance(0.6) {
            self.order(flow, pipeline);
        }
    }

    fn accumulators(&mut self, unique: &[String], spec: &mut Document, shape: &mut Shape) {
        for name in RESULTS {
            if !self.chance(0.4) {
                continue;
            }
            let (piece, kind) = match !unique.is_empty() && self.chance(0.15) {
                true => self.choose(RANKED),
                false => self.choose(ACCUMULATORS),
            };
            let sort = self.rank(unique);
            let filled = self.fill(parse(piece).expect("valid").as_raw(), &Kind::Any, 2);
            let filled = with_rank(filled, &sort);
            spec.push(name, filled);
            shape.push((name.to_owned(), kind()));
        }
    }

    fn rank(&mut self, unique: &[String]) -> Document {
        let mut sort = Document::new();
        if let Some(path) = self.path(&Kind::Any)
            && !unique.iter().any(|known| super::super::filters::overlap(known, &path))
        {
            sort.push(&path, *self.choose(&[1, -1]));
        }
        unique.iter().for_each(|path| sort.push(path, 1));
        sort
    }

    pub fn bucket(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        if !self.order(flow, pipeline) {
            return pipeline.push(doc! {"$match": self.filter(1)});
        }
        let (kind, boundaries) = match self.up_to(4) {
            0 => (Kind::Num, "[-10, 0, 2.5, NumberDecimal('10'), Long(1000)]"),
            1 => (
                Kind::Date,
                "[ISODate('1970-01-01T00:00:00Z'), ISODate('2016-01-01T00:00:00Z'), ISODate('2030-01-01T00:00:00Z')]",
            ),
            2 => (Kind::Str, "['', 'a', 'b', 'z']"),
            _ => (Kind::Int, "[0, 2, 4, 7]"),
        };
        let by = match self.path(&kind) {
            Some(path) if self.chance(0.6) => Value::from(format!("${path}")),
            _ => match self.expression(&kind, 2) {
                // A constant is no expression to `$bucket`.
                by @ (Value::Document(_) | Value::String(_)) => by,
                _ => Value::from("$i"),
            },
        };
        let mut spec = doc! {"groupBy": by, "boundaries": parse(boundaries).expect("valid")};
        if self.chance(0.85) {
            spec.push("default", kinds::pick(self.random, &["'other'", "-100", "null", "NaN", "MaxKey"]));
        }
        let mut shape = vec![("_id".to_owned(), Kind::Any), ("count".to_owned(), Kind::Int)];
        if self.chance(0.7) {
            let mut output = Document::new();
            shape.truncate(1);
            self.accumulators(&flow.unique.clone(), &mut output, &mut shape);
            if !output.is_empty() {
                spec.push("output", output);
            }
        }
        pipeline.push(doc! {"$bucket": spec.clone()});
        sort_sets(&spec, pipeline);
        self.shape = shape;
        *flow = Flow { unique: vec!["_id".to_owned()], ordered: true };
    }

    pub fn bucket_auto(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        let by = match flow.unique.as_slice() {
            [one] => one.clone(),
            _ => return pipeline.push(doc! {"$match": self.filter(1)}),
        };
        // Ties would leave open which bucket takes which document.
        let mut spec = doc! {"groupBy": format!("${by}"), "buckets": 1 + self.up_to(4) as i32};
        let mut shape = vec![("_id".to_owned(), Kind::Object(Vec::new()))];
        if self.chance(0.7) {
            let mut output = Document::new();
            self.accumulators(&flow.unique.clone(), &mut output, &mut shape);
            if !output.is_empty() {
                spec.push("output", output);
            }
        }
        if self.chance(0.2) {
            let granularity = *self.choose(&["R5", "R20", "1-2-5", "E6", "E24", "POWERSOF2"]);
            spec.push("granularity", granularity);
        }
        pipeline.push(doc! {"$bucketAuto": spec.clone()});
        sort_sets(&spec, pipeline);
        self.shape = shape;
        *flow = Flow { unique: vec!["_id".to_owned()], ordered: true };
    }

    pub fn sort_by_count(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        if !self.order(flow, pipeline) {
            return pipeline.push(doc! {"$match": self.filter(1)});
        }
        let kind = self.choose(&[Kind::Int, Kind::Str, Kind::Bool, Kind::Any]).clone();
        let (by, kind) = match self.key(kind) {
            (by @ Value::Document(_), kind) => (by, kind),
            (Value::String(by), kind) if by.starts_with('$') => (Value::from(by), kind),
            _ => (Value::from("$_id"), Kind::Int),
        };
        pipeline.push(match by {
            // A document there must be an expression.
            Value::Document(by) if by.get("k").is_some() => doc! {"$sortByCount": {"$mergeObjects": by}},
            by => doc! {"$sortByCount": by},
        });
        pipeline.push(doc! {"$sort": {"count": (-1), "_id": 1}});
        self.shape = vec![("_id".to_owned(), kind), ("count".to_owned(), Kind::Int)];
        *flow = Flow { unique: vec!["_id".to_owned()], ordered: true };
    }
}

/// The piece with `SORT` replaced.
fn with_rank(value: Value, sort: &Document) -> Value {
    let Value::Document(document) = &value else { return value };
    let replaced = document.iter().map(|(name, value)| match (name, value.as_str()) {
        ("sortBy", Some("SORT")) => (name, Value::Document(sort.clone())),
        _ => (name, with_rank(value.to_value(), sort)),
    });
    Value::Document(replaced.collect())
}

/// A stage that sorts the sets of a stage with `$addToSet`.
fn sort_sets(stage: &Document, pipeline: &mut Vec<Document>) {
    let spec = match stage.get("$group").or_else(|| stage.get("output")) {
        Some(spec) => spec.as_document().map(|spec| spec.to_document()).unwrap_or_default(),
        None => return,
    };
    let mut sorted = Document::new();
    for (name, value) in spec.iter() {
        if value.as_document().is_some_and(|accumulator| accumulator.get("$addToSet").is_some()) {
            sorted.push(name, doc! {"$sortArray": {"input": format!("${name}"), "sortBy": 1}});
        }
    }
    if !sorted.is_empty() {
        pipeline.push(doc! {"$addFields": sorted});
    }
}
