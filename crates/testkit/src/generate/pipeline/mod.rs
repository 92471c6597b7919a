//! Random pipelines as spec cases.
//!
//! A case is three small collections, indexes, a view, and then many questions about them: pipelines of all
//! kinds, finds with expressions, `$merge` and `$out` with a look at what they wrote, pipeline updates. Types
//! are kept track of, so that most questions mean something; a few are broken on purpose.

mod compose;
mod conditions;
mod group;
mod joins;
mod kinds;
mod mutate;
mod stages;
mod templates;
mod windows;
mod writes;

use kilim_bson::{Document, Value, doc};
use rand::Rng;
use rand::rngs::StdRng;

use self::compose::Composer;
use self::joins::COLLECTIONS;
use self::kinds::{Kind, Shape, base};
use self::stages::{Flow, Place};
use crate::spec::{Action, Case, default_index_name};

/// Questions a case: setting up a database costs more than asking.
const QUESTIONS: usize = 16;

pub(super) const VIEW: &str = "view";

/// Pipelines of all kinds.
pub(super) fn generate(random: &mut StdRng) -> Case {
    generate_about(random, false)
}

/// Pipelines most of whose stages are windows, `$densify` and `$fill`.
pub(super) fn generate_windows(random: &mut StdRng) -> Case {
    generate_about(random, true)
}

fn generate_about(random: &mut StdRng, windowed: bool) -> Case {
    let odd = if random.random_bool(0.5) { 0.0 } else { 0.02 };
    let mut actions = Vec::new();
    for collection in COLLECTIONS {
        let count = random.random_range(1..10);
        let documents = (0..count).map(|id| kinds::document(random, id, &base(), odd)).collect();
        actions.push(Action::Given { collection: collection.to_owned(), documents });
    }
    for _ in 0..random.random_range(0..4) {
        actions.push(Action::Run(index(random)));
    }
    let wrong = if random.random_bool(0.5) { 0.0 } else { 0.01 };
    let mut composer = Composer {
        random,
        shape: base(),
        variables: Vec::new(),
        wrong,
        clean: odd == 0.0 && wrong == 0.0,
        views: false,
        windowed,
    };
    let view = composer.view();
    composer.views = true;
    actions.push(Action::Run(doc! {"create": VIEW, "viewOn": "t", "pipeline": view.pipeline.clone()}));
    for _ in 0..QUESTIONS {
        composer.question(&view, &mut actions);
    }
    if !windowed {
        composer.updates(&mut actions);
    }
    super::one_case(actions)
}

struct View {
    pipeline: Vec<Document>,
    shape: Shape,
    flow: Flow,
}

impl Composer<'_> {
    fn view(&mut self) -> View {
        self.begin(base());
        let wrong = std::mem::replace(&mut self.wrong, 0.0);
        let mut flow = Flow::of_collection();
        let pipeline = self.pipeline(Place::View, &mut flow);
        self.wrong = wrong;
        View { pipeline, shape: self.shape.clone(), flow }
    }

    fn begin(&mut self, shape: Shape) {
        self.shape = shape;
        self.variables.clear();
    }

    fn question(&mut self, view: &View, actions: &mut Vec<Action>) {
        self.begin(base());
        match self.up_to(20) {
            0..3 if self.windowed => {
                let question = self.aggregate("t", Flow::of_collection());
                actions.push(question);
            }
            0..2 => actions.push(self.find()),
            2 => self.merge_or_out(actions),
            3..5 => {
                self.shape = view.shape.clone();
                let question = self.aggregate(VIEW, view.flow.clone());
                actions.push(question);
            }
            5 => {
                let question = self.documents();
                actions.push(question);
            }
            _ => {
                let collection = *self.choose(&["t", "t", "t", "u"]);
                let question = self.aggregate(collection, Flow::of_collection());
                actions.push(question);
            }
        }
    }

    fn aggregate(&mut self, collection: &str, mut flow: Flow) -> Action {
        let constants = self.constants();
        let mut pipeline = self.pipeline(Place::Top, &mut flow);
        if !flow.ordered && self.chance(0.5) {
            self.order(&mut flow, &mut pipeline);
        }
        let mut command = doc! {"aggregate": collection, "pipeline": pipeline};
        let broken = self.chance(0.06);
        if broken {
            command = mutate::mutate(self.random, &command);
        }
        match self.up_to(12) {
            0 => command.push("cursor", doc! {"batchSize": self.up_to(4) as i32}),
            1 => {
                command.push("allowDiskUse", true);
                command.push("cursor", Document::new());
            }
            _ => command.push("cursor", Document::new()),
        }
        if !constants.is_empty() {
            command.push("let", constants);
        }
        // Of a broken one nobody can tell any more what an order would be: only whether it is refused.
        match broken {
            true => Action::Error { message: false, command },
            false => Action::Docs { unordered: !flow.ordered, command },
        }
    }

    /// Sometimes a `let` of the command, and its variables in scope.
    fn constants(&mut self) -> Document {
        let mut constants = Document::new();
        if self.chance(0.2) {
            for name in ["c1", "c2"] {
                let kind = self
                    .choose(&[Kind::Int, Kind::Num, Kind::Str, Kind::Date, Kind::array(Kind::Int)])
                    .clone();
                let shape = std::mem::take(&mut self.shape);
                let depth = usize::from(self.chance(0.3));
                let value = self.expression(&kind, depth);
                self.shape = shape;
                constants.push(name, value);
                self.variables.push((name.to_owned(), kind));
            }
        }
        constants
    }

    /// A pipeline that brings its documents along.
    fn documents(&mut self) -> Action {
        let count = self.up_to(5) as i32;
        let documents: Vec<Document> =
            (0..count).map(|id| kinds::document(self.random, id, &base(), 0.0)).collect();
        let documents = doc! {"$documents": {"$literal": documents}};
        let mut flow = Flow::of_collection();
        // In the order in which they are written.
        flow.ordered = true;
        let mut pipeline = vec![documents];
        pipeline.extend(self.pipeline(Place::Top, &mut flow));
        let command = doc! {"aggregate": 1, "pipeline": pipeline, "cursor": {}};
        Action::Docs { unordered: !flow.ordered, command }
    }

    /// A find whose filter, projection or both hold expressions.
    fn find(&mut self) -> Action {
        let collection = *self.choose(&["t", "u", VIEW]);
        let constants = self.constants();
        let filter = match self.chance(0.6) {
            true => doc! {"$expr": self.variable_condition(3)},
            false => self.filter(1),
        };
        let mut command = doc! {"find": collection, "filter": filter};
        if self.chance(0.7) {
            let mut projection = Document::new();
            for name in ["y", "i", "o.s"] {
                match self.up_to(4) {
                    0 => {}
                    1 => projection.push(name, 1),
                    _ => {
                        let (_, value) = self.computed();
                        projection.push(name, value);
                    }
                }
            }
            command.push("projection", projection);
        }
        command.push("sort", doc! {"_id": 1});
        if !constants.is_empty() {
            command.push("let", constants);
        }
        Action::Docs { unordered: false, command }
    }
}

fn index(random: &mut StdRng) -> Document {
    let paths = ["k", "p", "i", "n", "s", "d", "a", "c", "o.i", "r.i", "r.s", "f", "x", "o.a"];
    let mut key = Document::new();
    for _ in 0..random.random_range(1..4) {
        let path = paths[random.random_range(0..paths.len())];
        if key.get(path).is_none() {
            key.push(path, if random.random_bool(0.7) { 1 } else { -1 });
        }
    }
    let name = default_index_name(key.as_raw());
    let mut index = doc! {"key": key, "name": name};
    match random.random_range(0..10) {
        0 => index.push("sparse", true),
        1 => index.push("partialFilterExpression", doc! {"i": {"$gt": 1}}),
        _ => {}
    }
    doc! {"createIndexes": COLLECTIONS[random.random_range(0..3)], "indexes": [index]}
}

/// Every name with a `$` in a command: its stages, operators and accumulators.
pub(super) fn operators(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Document(document) => {
            for (name, value) in document.iter() {
                if name.starts_with('$') && !found.iter().any(|known| known == name) {
                    found.push(name.to_owned());
                }
                if name != "$literal" {
                    operators(&value.to_value(), found);
                }
            }
        }
        Value::Array(array) => array.as_raw().iter().for_each(|value| operators(&value.to_value(), found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_stage_and_accumulator_is_generated_before_long() {
        let mut found = Vec::new();
        for seed in 0..150 {
            for step in generate(&mut StdRng::seed_from_u64(seed)).steps {
                if let Action::Run(command) | Action::Docs { command, .. } = step.action {
                    operators(&Value::Document(command), &mut found);
                }
            }
        }
        let expected = "$match $project $addFields $set $unset $group $sort $limit $skip $unwind $lookup $graphLookup \
             $facet $bucket $bucketAuto $setWindowFields $densify $fill $sortByCount $count $replaceRoot \
             $replaceWith $redact $sample $unionWith $merge $out $documents $sum $avg $min $max $first $last $push $addToSet $stdDevPop $stdDevSamp $mergeObjects \
             $firstN $lastN $minN $maxN $top $topN $bottom $bottomN $expr $let $map $filter $reduce $zip $switch \
             $convert $dateTrunc $regexFind $setUnion $sortArray";
        for name in expected.split_whitespace() {
            assert!(found.iter().any(|known| known == name), "{name} never came");
        }
    }
}
