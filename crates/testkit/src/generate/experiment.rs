//! Differences that mongod explains itself: asked once more in another way, it answers as Kilim does.
//!
//! A rule over the words of a command (`permitted`) may permit more than its reason. An experiment permits exactly it.

use anyhow::Result;
use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value, doc};

use super::pipeline::VIEW;
use super::{Pair, answers, command, fault, permitted, shrink};
use crate::spec::{Action, Answer, Case};

/// mongod looks at the fields of a projection in an order that differs from process to process, and at documents in
/// the order of its plan.
const SEVERAL_FAULTS: &str = "of several faults of a command, either may be named";

/// mongod has two engines, and which one runs a pipeline depends on its stages, its expressions and the indexes of the
/// collection. Where they answer differently, Kilim answers as one of them.
const ENGINES: &str = "mongod's two engines answer differently, and Kilim as one of them";

const SPARSE: &str = "mongod asks a sparse index for an $expr that holds of documents it lacks";

const VIEW_FOR_NOTHING: &str =
    "mongod reads a view for a $graphLookup that begins with nothing, and fails with it";

/// Two answers that differ.
pub(super) struct Differing<'a> {
    pub case: &'a Case,
    pub step: usize,
    /// The definition of the view that the command may read.
    pub view: Option<&'a Document>,
    pub mongod: &'a Answer,
    pub kilim: &'a Answer,
    /// The lines of an answer that must be equal.
    pub comparable: &'a dyn Fn(&Answer) -> Vec<String>,
}

impl Differing<'_> {
    fn is_as_kilim(&self, answer: Option<Answer>) -> bool {
        answer.is_some_and(|answer| (self.comparable)(&answer) == (self.comparable)(self.kilim))
    }

    fn fails_on_mongod_alone(&self) -> bool {
        fault(self.mongod).is_some() && fault(self.kilim).is_none()
    }
}

impl Pair {
    /// Why two answers differ, if mongod shows it.
    pub(super) fn explained(&mut self, differing: &Differing<'_>) -> Result<Option<&'static str>> {
        Ok(if self.has_another_fault(differing) {
            Some(SEVERAL_FAULTS)
        } else if self.is_told_by_its_other_engine(differing)? {
            Some(ENGINES)
        } else if self.is_told_without_sparse_indexes(differing) {
            Some(SPARSE)
        } else if self.is_the_fault_of_a_view(differing) {
            Some(VIEW_FOR_NOTHING)
        } else {
            None
        })
    }

    /// Whether both refuse a command and mongod, too, finds the fault that Kilim names, in a part of it or with one of
    /// the documents alone.
    fn has_another_fault(&mut self, differing: &Differing<'_>) -> bool {
        let Differing { case, step, .. } = *differing;
        let (Some(_), Some(fault)) = (fault(differing.mongod), fault(differing.kilim)) else { return false };
        let parts = shrink::parts_of_question(case, step);
        let answers = answers(&mut self.mongod, &parts).unwrap_or_default();
        let named = |answer: &Answer| self::fault(answer).as_ref() == Some(&fault);
        if answers.iter().flatten().any(named) {
            return true;
        }
        shrink::with_single_documents(case, step).iter().any(|case| {
            let answers = self::answers(&mut self.mongod, case).unwrap_or_default();
            answers.last().and_then(Option::as_ref).is_some_and(named)
        })
    }

    fn is_told_by_its_other_engine(&mut self, differing: &Differing<'_>) -> Result<bool> {
        let force = |classic: bool| doc! {"setParameter": 1, "internalQueryForceClassicEngine": classic};
        self.control.run("admin", force(true))?;
        let classic = self.answer_to(differing, |_| {});
        self.control.run("admin", force(false))?;
        Ok(differing.is_as_kilim(classic) || {
            let newer = self.answer_to_literals(differing);
            differing.is_as_kilim(newer)
        })
    }

    /// What mongod answers where a command's variables have their values as literals: what computes them may be all
    /// that keeps a command from the newer engine.
    fn answer_to_literals(&mut self, differing: &Differing<'_>) -> Option<Answer> {
        let definitions = command(differing.case, differing.step)?.get("let")?.as_document()?.to_document();
        let shown: Document =
            definitions.iter().map(|(name, _)| (name, Value::from(format!("$${name}")))).collect();
        let ask = doc! {
            "aggregate": 1, "pipeline": [{"$documents": [{}]}, {"$replaceWith": shown}], "cursor": {}, "let": definitions,
        };
        let reply = self.control.run("admin", ask).ok()?;
        let values =
            reply.get("cursor")?.as_document()?.get("firstBatch")?.as_array()?.get(0)?.as_document()?;
        let literal = |value: RawValue<'_>| Value::Document(doc! {"$literal": value.to_value()});
        let literals: Document = values.iter().map(|(name, value)| (name, literal(value))).collect();
        self.answer_to(differing, |case| {
            if let Some(command) = command_mut(&mut case.steps[differing.step].action) {
                *command = shrink::with(command, "let", &Value::Document(literals));
            }
        })
    }

    /// Whether an `$expr` finds as Kilim does once an index has documents without its fields, too.
    fn is_told_without_sparse_indexes(&mut self, differing: &Differing<'_>) -> bool {
        let Some(asked) = command(differing.case, differing.step) else { return false };
        let operators = permitted::operators(asked, differing.view);
        let has = |name: &str| operators.iter().any(|operator| operator == name);
        if !has("$expr") || !(has("$lt") || has("$lte")) {
            return false;
        }
        let answer = self.answer_to(differing, |case| {
            for command in case.steps.iter_mut().filter_map(|step| command_mut(&mut step.action)) {
                if let Some(RawValue::Array(indexes)) = command.get("indexes") {
                    *command = shrink::with(command, "indexes", &not_sparse(indexes));
                }
            }
        });
        differing.is_as_kilim(answer)
    }

    /// Whether a `$graphLookup` in a view fails as a look at the view does.
    fn is_the_fault_of_a_view(&mut self, differing: &Differing<'_>) -> bool {
        let searches_view = command(differing.case, differing.step)
            .is_some_and(|asked| permitted::searches_view(RawValue::Document(asked.as_raw())));
        if !searches_view || !differing.fails_on_mongod_alone() {
            return false;
        }
        let look = doc! {"aggregate": VIEW, "pipeline": [], "cursor": {}};
        let answer = self.answer_to(differing, |case| {
            case.steps[differing.step].action = Action::Docs { unordered: true, command: look };
        });
        let seen = answer.as_ref().and_then(fault);
        seen.is_some() && seen == fault(differing.mongod)
    }

    /// What mongod answers at the end of a history that was changed.
    fn answer_to(&mut self, differing: &Differing<'_>, change: impl FnOnce(&mut Case)) -> Option<Answer> {
        let mut case = differing.case.clone();
        case.steps.truncate(differing.step + 1);
        change(&mut case);
        answers(&mut self.mongod, &case).ok()?.pop()?
    }
}

fn command_mut(action: &mut Action) -> Option<&mut Document> {
    match action {
        Action::Run(command) | Action::Docs { command, .. } | Action::Error { command, .. } => Some(command),
        _ => None,
    }
}

/// The indexes of a command, each with all documents.
fn not_sparse(indexes: RawArray<'_>) -> Value {
    let dense = |index: RawDocument<'_>| -> Document {
        let options = index.iter().filter(|(name, _)| *name != "sparse");
        options.map(|(name, value)| (name, value.to_value())).collect()
    };
    let indexes = indexes.iter().filter_map(RawValue::as_document).map(dense).map(Value::Document);
    Value::from(indexes.collect::<Vec<_>>())
}
