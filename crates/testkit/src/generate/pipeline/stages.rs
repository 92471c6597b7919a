//! Random stages, one after another, with what is known about the documents between them.
//!
//! Two things are known beside the shape: whether the documents come in an order that no plan can change, and
//! which fields tell them apart. Stages that depend on the order ask for one first, so that their results are
//! the same on every server.

use kilim_bson::{Document, Value, doc};

use super::compose::Composer;
use super::kinds::{Kind, Shape};
use crate::shell::parse;

/// What is known about the documents at one point of a pipeline.
#[derive(Clone)]
pub(super) struct Flow {
    /// The fields that together tell documents apart; none if nothing does.
    pub unique: Vec<String>,
    /// Whether they come in an order that was asked for and has no ties.
    pub ordered: bool,
}

impl Flow {
    pub fn of_collection() -> Flow {
        Flow { unique: vec!["_id".to_owned()], ordered: false }
    }
}

/// Where a pipeline stands: what it may hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Top,
    /// In a `$lookup` or `$unionWith`.
    Nested,
    Facet,
    /// What a view is defined by: simple stages only.
    View,
}

/// Names that stages give to what they make.
const NEW: [&str; 6] = ["y", "z", "v1", "v2", "o.y", "g"];

impl Composer<'_> {
    pub fn pipeline(&mut self, place: Place, flow: &mut Flow) -> Vec<Document> {
        let mut pipeline = Vec::new();
        let count = match place {
            Place::Top => *self.choose(&[1, 1, 2, 2, 3, 3, 4, 5]),
            Place::View => 1,
            Place::Nested | Place::Facet => *self.choose(&[0, 1, 1, 2]),
        };
        for _ in 0..count {
            self.stage(place, flow, &mut pipeline);
        }
        pipeline
    }

    /// A pipeline inside another: its rows come in an order, so that the array they end in is the same everywhere.
    pub fn closed_pipeline(&mut self, place: Place, flow: &mut Flow) -> Vec<Document> {
        let mut pipeline = self.pipeline(place, flow);
        if place == Place::Facet && pipeline.is_empty() {
            pipeline.push(doc! {"$match": self.filter(1)});
        }
        if !self.order(flow, &mut pipeline) {
            pipeline.push(doc! {"$count": "count"});
            self.shape = vec![("count".to_owned(), Kind::Int)];
            *flow = Flow { unique: vec!["count".to_owned()], ordered: true };
        }
        pipeline
    }

    /// Makes the documents come in an order, if anything tells them apart.
    pub fn order(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) -> bool {
        if !flow.ordered && !flow.unique.is_empty() {
            pipeline.push(doc! {"$sort": by_unique(&flow.unique)});
            flow.ordered = true;
        }
        flow.ordered
    }

    fn stage(&mut self, place: Place, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        if self.windowed && place != Place::View && self.chance(0.7) {
            return match self.up_to(4) {
                0 => self.densify(flow, pipeline),
                _ => self.window_fields(flow, pipeline),
            };
        }
        match self.up_to(if place == Place::View { 9 } else { 38 }) {
            0..3 => pipeline.push(doc! {"$match": self.filter(2)}),
            3..5 => pipeline.push(self.project(flow)),
            5..8 => pipeline.push(self.add_fields(flow)),
            8 => pipeline.extend(self.unset(flow)),
            9..12 => pipeline.push(self.sort(flow)),
            12 if self.order(flow, pipeline) => pipeline.push(doc! {"$limit": 1 + self.up_to(6) as i64}),
            13 if self.order(flow, pipeline) => pipeline.push(doc! {"$skip": self.up_to(4) as i32}),
            14..17 => self.unwind(flow, pipeline),
            17..21 => self.group(flow, pipeline),
            21 => self.bucket(flow, pipeline),
            22 => self.bucket_auto(flow, pipeline),
            23 => self.sort_by_count(flow, pipeline),
            24 => {
                pipeline.push(doc! {"$count": "total"});
                self.shape = vec![("total".to_owned(), Kind::Int)];
                *flow = Flow { unique: vec!["total".to_owned()], ordered: true };
            }
            25 | 26 => pipeline.push(self.replace_root(flow)),
            27 => pipeline.push(self.redact()),
            28 => {
                pipeline.push(doc! {"$sample": {"size": 1000}});
                flow.ordered = false;
            }
            29 | 30 => self.lookup(flow, pipeline),
            31 if place != Place::Facet => self.graph_lookup(pipeline),
            32 => self.union_with(flow, pipeline),
            33 if place != Place::Facet => self.facet(flow, pipeline),
            34..37 => self.window_fields(flow, pipeline),
            37 => self.densify(flow, pipeline),
            _ => pipeline.push(doc! {"$match": self.filter(1)}),
        }
    }

    fn project(&mut self, flow: &mut Flow) -> Document {
        let mut spec = Document::new();
        if self.chance(0.25) {
            let mut dropped: Vec<String> = Vec::new();
            for _ in 0..1 + self.up_to(3) {
                if let Some(path) = self.path(&Kind::Any)
                    && path != "_id"
                    && !dropped.iter().any(|known| super::super::filters::overlap(known, &path))
                {
                    spec.push(&path, 0);
                    dropped.push(path);
                }
            }
            if spec.is_empty() {
                spec.push("none", false);
            }
            self.forget(&dropped, flow);
            return doc! {"$project": spec};
        }
        let mut shape: Shape = Vec::new();
        let keeps_id = self.chance(0.8);
        if keeps_id {
            shape.extend(self.shape.iter().find(|(name, _)| name == "_id").cloned());
            if self.chance(0.3) {
                spec.push("_id", 1);
            }
        } else {
            spec.push("_id", 0);
        }
        for _ in 0..1 + self.up_to(4) {
            if self.chance(0.4) {
                let Some(path) = self.path(&Kind::Any).filter(|path| path != "_id") else { continue };
                if spec.iter().any(|(known, _)| super::super::filters::overlap(known, &path)) {
                    continue;
                }
                spec.push(&path, *self.choose(&[true, true, true]));
                let top = path.split('.').next().unwrap_or_default();
                if let Some(kept) = self.shape.iter().find(|(name, _)| name == top).cloned()
                    && !shape.contains(&kept)
                {
                    shape.push(kept);
                }
            } else {
                let name = *self.choose(&NEW);
                if spec.iter().any(|(known, _)| super::super::filters::overlap(known, name)) {
                    continue;
                }
                let (kind, value) = self.computed();
                spec.push(name, value);
                remember(&mut shape, name, kind);
            }
        }
        if spec.iter().all(|(name, _)| name == "_id") {
            let value = self.expression(&Kind::Int, 2);
            spec.push("y", value);
            shape.push(("y".to_owned(), Kind::Int));
        }
        self.shape = shape;
        if !keeps_id || flow.unique.iter().any(|path| path != "_id") {
            flow.unique.clear();
        }
        doc! {"$project": spec}
    }

    fn add_fields(&mut self, flow: &mut Flow) -> Document {
        let mut spec = Document::new();
        for _ in 0..1 + self.up_to(3) {
            let known = self.shape.iter().filter(|(name, _)| name != "_id" && !flow.unique.contains(name));
            let known: Vec<String> = known.map(|(name, _)| name.clone()).collect();
            let name = match known.is_empty() || self.chance(0.7) {
                true => (*self.choose(&NEW)).to_owned(),
                false => self.choose(&known).clone(),
            };
            let unique = flow.unique.iter().any(|path| super::super::filters::overlap(path, &name));
            if unique || spec.iter().any(|(known, _)| super::super::filters::overlap(known, &name)) {
                continue;
            }
            let (kind, value) = self.computed();
            spec.push(&name, value);
            remember(&mut self.shape, &name, kind);
        }
        if spec.is_empty() {
            spec.push("y9", 1);
        }
        let name = if self.chance(0.5) { "$addFields" } else { "$set" };
        [(name, Value::Document(spec))].into_iter().collect()
    }

    /// An expression and what it gives.
    pub fn computed(&mut self) -> (Kind, Value) {
        let kind = match self.up_to(12) {
            0 | 1 => Kind::Num,
            2 => Kind::Int,
            3 | 4 => Kind::Str,
            5 => Kind::Date,
            6 => Kind::Bool,
            7 => Kind::array(Kind::Num),
            8 => Kind::array(Kind::Str),
            9 => Kind::array(Kind::Object(vec![("i".to_owned(), Kind::Int), ("x".to_owned(), Kind::Any)])),
            10 => Kind::Object(vec![("i".to_owned(), Kind::Int), ("s".to_owned(), Kind::Str)]),
            _ => Kind::Any,
        };
        let value = self.expression(&kind, 3);
        (kind, value)
    }

    fn unset(&mut self, flow: &mut Flow) -> Option<Document> {
        let path = self.path(&Kind::Any).filter(|path| path != "_id")?;
        self.forget(std::slice::from_ref(&path), flow);
        if self.chance(0.5) {
            return Some(doc! {"$unset": path});
        }
        Some(doc! {"$unset": [path, "none"]})
    }

    fn forget(&mut self, paths: &[String], flow: &mut Flow) {
        self.shape.retain(|(name, _)| !paths.contains(name));
        if flow.unique.iter().any(|it| paths.iter().any(|path| super::super::filters::overlap(it, path))) {
            flow.unique.clear();
        }
    }

    fn sort(&mut self, flow: &mut Flow) -> Document {
        let mut spec = Document::new();
        for _ in 0..self.up_to(3) {
            if let Some(path) = self.path(&Kind::Any)
                && !flow.unique.contains(&path)
                && !spec.iter().any(|(known, _)| super::super::filters::overlap(known, &path))
            {
                spec.push(&path, *self.choose(&[1, -1]));
            }
        }
        // Without something that tells documents apart, an order once had may get lost.
        flow.ordered = !flow.unique.is_empty();
        for path in &flow.unique {
            if !spec.iter().any(|(known, _)| super::super::filters::overlap(known, path)) {
                spec.push(path, *self.choose(&[1, 1, -1]));
            } else {
                flow.ordered = false;
            }
        }
        if spec.is_empty() {
            spec.push("_id", 1);
            flow.ordered = false;
        }
        doc! {"$sort": spec}
    }

    fn unwind(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        let Some(path) = self.path(&Kind::array(Kind::Any)) else {
            return pipeline.push(doc! {"$match": self.filter(1)});
        };
        let keep = self.chance(0.3);
        let index = self.chance(0.4);
        let mut spec = doc! {"path": format!("${path}")};
        if keep {
            spec.push("preserveNullAndEmptyArrays", true);
        }
        if index {
            spec.push("includeArrayIndex", "at");
        }
        let spec = if keep || index { Value::Document(spec) } else { Value::from(format!("${path}")) };
        pipeline.push([("$unwind", spec)].into_iter().collect());
        for (name, kind) in &mut self.shape {
            if let Kind::Array(of) = kind
                && *name == path
            {
                *kind = (**of).clone();
            }
        }
        // A sort by the position would tell them apart, but mongod 6.0 puts it ahead of the unwind.
        flow.unique.clear();
        if index {
            remember(&mut self.shape, "at", Kind::Int);
        }
    }

    fn replace_root(&mut self, flow: &mut Flow) -> Document {
        let piece = *self.choose(&[
            "{$mergeObjects: ['$$ROOT', {y: '@any', i: '@int'}]}",
            "{$mergeObjects: ['@obj', {_id: '$_id', y: '@any'}]}",
            "{_id: '$_id', x: '@any', n: '@num', s: '@str'}",
            "{$ifNull: ['@obj', {i: 1}]}",
            "'@obj'",
        ]);
        let root = self.fill(parse(piece).expect("valid").as_raw(), &Kind::Any, 2);
        if !piece.contains("_id") && !piece.contains("ROOT") {
            flow.unique.clear();
        }
        flow.unique.retain(|name| name == "_id");
        if !piece.contains("ROOT") {
            let id = self.shape.iter().find(|(name, _)| name == "_id").cloned();
            self.shape =
                [("x", Kind::Any), ("y", Kind::Any), ("i", Kind::Int), ("n", Kind::Num), ("s", Kind::Str)]
                    .into_iter()
                    .map(|(name, kind)| (name.to_owned(), kind))
                    .collect();
            self.shape.extend(id);
        }
        match self.chance(0.5) {
            true => doc! {"$replaceWith": root},
            false => doc! {"$replaceRoot": {"newRoot": root}},
        }
    }

    fn redact(&mut self) -> Document {
        let piece = *self.choose(&[
            "{$cond: ['@bool', '$$DESCEND', '$$PRUNE']}",
            "{$cond: ['@bool', '$$KEEP', '$$PRUNE']}",
            "{$cond: [{$gt: ['$i', 3]}, '$$PRUNE', '$$DESCEND']}",
            "{$switch: {branches: [{case: '@bool', then: '$$KEEP'}], default: '$$DESCEND'}}",
        ]);
        doc! {"$redact": self.fill(parse(piece).expect("valid").as_raw(), &Kind::Any, 1)}
    }
}

fn by_unique(unique: &[String]) -> Document {
    unique.iter().map(|path| (path.as_str(), Value::Int32(1))).collect()
}

/// The shape with a field more, or of another kind.
pub(super) fn remember(shape: &mut Shape, path: &str, kind: Kind) {
    // What lies deeper is not kept track of.
    if path.contains('.') {
        return;
    }
    match shape.iter_mut().find(|(name, _)| name == path) {
        Some(known) => known.1 = kind,
        None => shape.push((path.to_owned(), kind)),
    }
}
