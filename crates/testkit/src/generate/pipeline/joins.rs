//! Stages that read other collections, and `$facet`, which reads its input more than once.

use kilim_bson::{Document, Value, doc};

use super::compose::Composer;
use super::kinds::{Kind, Shape, base};
use super::stages::{Flow, Place, remember};

pub(super) const COLLECTIONS: [&str; 3] = ["t", "u", "v"];

impl Composer<'_> {
    /// Runs `write` for documents of another shape, with further variables.
    fn within<T>(
        &mut self,
        shape: Shape,
        variables: Vec<(String, Kind)>,
        write: impl FnOnce(&mut Self) -> T,
    ) -> (T, Shape) {
        let outer = std::mem::replace(&mut self.shape, shape);
        let known = self.variables.len();
        self.variables.extend(variables);
        let written = write(self);
        self.variables.truncate(known);
        (written, std::mem::replace(&mut self.shape, outer))
    }

    fn source(&mut self) -> &'static str {
        match self.up_to(12) {
            0 => "none",
            1 if self.views => super::VIEW,
            at => COLLECTIONS[at % 3],
        }
    }

    pub fn lookup(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        let from = self.source();
        let equality = self.chance(0.6);
        let piped = !equality || self.chance(0.35);
        let mut spec = doc! {"from": from};
        if equality {
            let kind =
                self.choose(&[Kind::Int, Kind::Int, Kind::Str, Kind::array(Kind::Int), Kind::Any]).clone();
            let local = self.path(&kind).unwrap_or_else(|| "k".to_owned());
            let foreign = *self.choose(&["k", "k", "_id", "p", "i", "a", "s", "o.i", "r.i", "x"]);
            spec.push("localField", local);
            spec.push("foreignField", foreign);
        }
        let mut foreign = base();
        if piped {
            let mut variables = Vec::new();
            if self.chance(0.7) {
                let mut bound = Document::new();
                for name in ["l1", "l2"] {
                    let kind = self.choose(&[Kind::Int, Kind::Num, Kind::Str, Kind::Any]).clone();
                    let value = self.expression(&kind, 1);
                    bound.push(name, value);
                    variables.push((name.to_owned(), kind));
                }
                spec.push("let", bound);
            }
            let correlated = !variables.is_empty() && self.chance(0.7);
            let (inner, shape) = self.within(foreign, variables, |composer| {
                let mut inner = Vec::new();
                if correlated {
                    let field = *composer.choose(&["$k", "$_id", "$p", "$i", "$s", "$a", "$o.i"]);
                    let name = *composer.choose(&["$eq", "$eq", "$eq", "$lt", "$gte"]);
                    let compared = Value::from(vec![Value::from(field), Value::from("$$l1")]);
                    let compared: Document = [(name, compared)].into_iter().collect();
                    inner.push(doc! {"$match": {"$expr": compared}});
                }
                let mut flow = Flow::of_collection();
                inner.extend(composer.closed_pipeline(Place::Nested, &mut flow));
                inner
            });
            foreign = shape;
            spec.push("pipeline", inner);
        }
        let name = *self.choose(&["j", "j", "y", "o.j"]);
        spec.push("as", name);
        pipeline.push(doc! {"$lookup": spec});
        if !piped && self.chance(0.4) {
            // Joined with the unwind behind it, so it stands first.
            self.unwind_joined(name, flow, pipeline);
            remember(&mut self.shape, name, Kind::Object(foreign));
            return;
        }
        if !piped {
            let sorted = doc! {"$sortArray": {"input": format!("${name}"), "sortBy": {"_id": 1}}};
            pipeline.push(doc! {"$set": [(name, Value::Document(sorted))].into_iter().collect::<Document>()});
        }
        remember(&mut self.shape, name, Kind::array(Kind::Object(foreign)));
    }

    fn unwind_joined(&mut self, name: &str, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        let path = format!("${name}");
        pipeline.push(match self.up_to(3) {
            0 => doc! {"$unwind": {"path": path, "preserveNullAndEmptyArrays": true}},
            _ => doc! {"$unwind": path},
        });
        if self.chance(0.4) {
            let matched = format!("{name}.{}", self.choose(&["i", "k", "s", "_id"]));
            let condition = doc! {"$gte": (self.up_to(4) as i32)};
            pipeline.push(doc! {"$match": [(matched.as_str(), Value::Document(condition))].into_iter().collect::<Document>()});
        }
        flow.ordered = false;
        if !flow.unique.is_empty() {
            flow.unique.push(format!("{name}._id"));
        }
    }

    pub fn graph_lookup(&mut self, pipeline: &mut Vec<Document>) {
        let start = match self.path(&Kind::Int) {
            Some(path) if self.chance(0.7) => Value::from(format!("${path}")),
            _ => self.expression(&Kind::Int, 1),
        };
        let (from_field, to_field) =
            *self.choose(&[("p", "k"), ("k", "p"), ("i", "_id"), ("a", "k"), ("r.i", "i")]);
        let mut spec = doc! {
            "from": self.source(),
            "startWith": start,
            "connectFromField": from_field,
            "connectToField": to_field,
            "as": "tree",
        };
        if self.chance(0.4) {
            spec.push("maxDepth", self.up_to(4) as i32);
        }
        if self.chance(0.5) {
            spec.push("depthField", "depth");
        }
        if self.chance(0.3) {
            let (filter, _) = self.within(base(), Vec::new(), |composer| composer.filter(0));
            spec.push("restrictSearchWithMatch", filter);
        }
        pipeline.push(doc! {"$graphLookup": spec});
        pipeline.push(doc! {"$set": {"tree": {"$sortArray": {"input": "$tree", "sortBy": {"_id": 1}}}}});
        let mut shape = base();
        shape.push(("depth".to_owned(), Kind::Int));
        remember(&mut self.shape, "tree", Kind::array(Kind::Object(shape)));
    }

    pub fn union_with(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        let coll = self.source();
        if self.chance(0.2) {
            pipeline.push(doc! {"$unionWith": coll});
            *flow = Flow { unique: Vec::new(), ordered: false };
            return;
        }
        let ordered = flow.ordered || self.order(flow, pipeline);
        let (inner, shape) = self.within(base(), Vec::new(), |composer| {
            composer.closed_pipeline(Place::Nested, &mut Flow::of_collection())
        });
        pipeline.push(doc! {"$unionWith": {"coll": coll, "pipeline": inner}});
        for (name, kind) in shape {
            if !self.shape.iter().any(|(known, _)| *known == name) {
                self.shape.push((name, kind));
            }
        }
        *flow = Flow { unique: Vec::new(), ordered };
    }

    pub fn facet(&mut self, flow: &mut Flow, pipeline: &mut Vec<Document>) {
        if !self.order(flow, pipeline) {
            return pipeline.push(doc! {"$match": self.filter(1)});
        }
        let mut spec = Document::new();
        let mut shape = Vec::new();
        for name in ["f1", "f2", "f3"] {
            if name != "f1" && self.chance(0.5) {
                continue;
            }
            let (inner, made) = self.within(self.shape.clone(), Vec::new(), |composer| {
                composer.closed_pipeline(Place::Facet, &mut flow.clone())
            });
            spec.push(name, inner);
            shape.push((name.to_owned(), Kind::array(Kind::Object(made))));
        }
        pipeline.push(doc! {"$facet": spec});
        self.shape = shape;
        *flow = Flow { unique: Vec::new(), ordered: true };
    }
}
