//! Pipelines that write: `$merge`, `$out`, and updates.

use kilim_bson::{Document, Value, doc};

use super::compose::Composer;
use super::kinds::{Kind, base};
use super::stages::{Flow, Place};
use crate::shell::parse;
use crate::spec::Action;

const TARGET: &str = "target";

impl Composer<'_> {
    pub fn merge_or_out(&mut self, actions: &mut Vec<Action>) {
        actions.push(Action::Run(doc! {"delete": TARGET, "deletes": [{"q": {}, "limit": 0}]}));
        let unique = self.chance(0.3);
        if unique {
            let index = doc! {"key": {"k": 1, "i": 1}, "name": "k_1_i_1", "unique": true};
            actions.push(Action::Run(doc! {"createIndexes": TARGET, "indexes": [index]}));
        }
        let documents: Vec<Document> = (0..self.up_to(4) as i32)
            .map(|id| doc! {"_id": id * 2, "k": id, "i": id % 3, "n": 10 + id, "a": [id]})
            .collect();
        if !documents.is_empty() {
            actions.push(Action::Run(doc! {"insert": TARGET, "documents": documents}));
        }
        let mut flow = Flow::of_collection();
        let mut pipeline = Vec::new();
        if self.chance(0.5) {
            pipeline = self.pipeline(Place::Nested, &mut flow);
        }
        // Later documents meet what earlier ones wrote.
        if !self.order(&mut flow, &mut pipeline) {
            self.group(&mut flow, &mut pipeline);
            self.order(&mut flow, &mut pipeline);
        }
        let written = match self.chance(0.2) {
            true => doc! {"$out": TARGET},
            false => doc! {"$merge": self.merge(unique)},
        };
        pipeline.push(written);
        let collection = *self.choose(&["t", "u"]);
        let command = doc! {"aggregate": collection, "pipeline": pipeline, "cursor": {}};
        actions.push(Action::Docs { unordered: false, command });
        // Documents that come without an `_id` are given one that differs from run to run.
        let shown = doc! {"aggregate": TARGET, "pipeline": [{"$sort": {"_id": 1}}], "cursor": {}};
        actions.push(Action::Docs { unordered: true, command: shown });
        actions.push(Action::Run(doc! {"drop": TARGET}));
    }

    fn merge(&mut self, unique: bool) -> Document {
        let mut merge = doc! {"into": TARGET};
        if unique && self.chance(0.7) {
            merge.push("on", parse("['k', 'i']").expect("valid"));
        } else if self.chance(0.2) {
            merge.push("on", "_id");
        }
        match self.up_to(7) {
            0 => merge.push("whenMatched", "replace"),
            1 => merge.push("whenMatched", "keepExisting"),
            2 => merge.push("whenMatched", "merge"),
            3 => merge.push("whenMatched", "fail"),
            4 | 5 => {
                if self.chance(0.5) {
                    let value = self.expression(&Kind::Num, 1);
                    merge.push("let", doc! {"l1": value, "new": "$$ROOT"});
                }
                let piece = *self.choose(&[
                    "[{$set: {n: {$add: ['$n', 1]}, was: '$$new.i'}}]",
                    "[{$replaceWith: {$mergeObjects: ['$$ROOT', '$$new', {y: 1}]}}]",
                    "[{$set: {y: '@any', z: '$$new.s'}}, {$unset: 'a'}]",
                    "[{$project: {k: 1, i: 1, n: '@num'}}]",
                ]);
                let whole = parse(piece).expect("valid");
                let value = self.fill(whole.as_raw(), &Kind::Any, 2);
                merge.push("whenMatched", value);
            }
            _ => {}
        }
        match self.up_to(5) {
            0 => merge.push("whenNotMatched", "insert"),
            1 => merge.push("whenNotMatched", "discard"),
            2 => merge.push("whenNotMatched", "fail"),
            _ => {}
        }
        merge
    }

    /// A few pipeline updates, and what they left.
    pub fn updates(&mut self, actions: &mut Vec<Action>) {
        for _ in 0..self.up_to(4) {
            self.shape = base();
            self.variables.clear();
            let constants = match self.chance(0.3) {
                true => {
                    self.variables.push(("c1".to_owned(), Kind::Int));
                    Some(doc! {"c1": (self.up_to(5) as i32)})
                }
                false => None,
            };
            let pipeline = self.update_pipeline();
            let id = self.up_to(12) as i32;
            let mut command = match self.up_to(4) {
                0 => {
                    let mut command = doc! {"findAndModify": "t", "query": {"_id": id}, "update": pipeline};
                    if self.chance(0.6) {
                        command.push("new", true);
                    }
                    if self.chance(0.2) {
                        command.push("upsert", true);
                    }
                    if self.chance(0.3) {
                        let (_, value) = self.computed();
                        command.push("fields", doc! {"y": value, "i": 1});
                    }
                    command
                }
                1 => doc! {"update": "t", "updates": [{"q": self.filter(1), "u": pipeline, "multi": true}]},
                _ => {
                    let mut statement = doc! {"q": {"_id": id}, "u": pipeline};
                    if self.chance(0.3) {
                        statement.push("upsert", true);
                    }
                    doc! {"update": "t", "updates": [statement]}
                }
            };
            if let Some(constants) = constants {
                command.push("let", constants);
            }
            actions.push(Action::Run(command));
        }
        actions.push(Action::Docs { unordered: false, command: doc! {"find": "t", "sort": {"_id": 1}} });
    }

    fn update_pipeline(&mut self) -> Vec<Document> {
        let mut pipeline = Vec::new();
        for _ in 0..1 + self.up_to(3) {
            match self.up_to(6) {
                0..3 => {
                    let mut spec = Document::new();
                    for name in ["y", "i", "o.s", "r.i", "a"] {
                        if self.chance(0.35) {
                            let (_, value) = self.computed();
                            spec.push(name, value);
                        }
                    }
                    if !spec.is_empty() {
                        pipeline.push(doc! {"$set": spec});
                    }
                }
                3 => {
                    if let Some(path) = self.path(&Kind::Any).filter(|path| path != "_id") {
                        pipeline.push(doc! {"$unset": path});
                    }
                }
                4 => {
                    let (_, value) = self.computed();
                    pipeline.push(doc! {"$project": {"i": 1, "r": 1, "s": 1, "y": value}});
                }
                _ => {
                    let value = self.expression(&Kind::Object(Vec::new()), 2);
                    let merged = Value::from(vec![Value::from("$$ROOT"), value]);
                    pipeline.push(doc! {"$replaceWith": {"$mergeObjects": merged}});
                }
            }
        }
        pipeline
    }
}
