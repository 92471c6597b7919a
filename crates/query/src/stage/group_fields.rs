//! The fields that a `$group` reads, fetched in one pass over the document.
//!
//! Most keys and inputs are plain paths. Looking each up from the front of the document would walk it once for
//! the key and once for every accumulator.
//!
//! Invariant: what is read here is what evaluating the expression would give.

use kilim_bson::{RawDocument, RawValue, encode_value_with};
use kilim_error::Result;

use super::Group;
use super::group::MISSING;
use crate::accumulator::State;
use crate::expression::{Env, Evaluated, Expression, FieldPath};

/// So many fields are fetched at once; further ones are looked up one by one.
const FIELDS_MAX: usize = 8;

/// How a group's expressions are read.
#[derive(Debug)]
pub struct GroupFields {
    names: Vec<Box<str>>,
    /// One, or one for each field of the key.
    key: Vec<Read>,
    inputs: Vec<Read>,
    /// The key is a document of several fields, each of which may be missing.
    compound: bool,
}

#[derive(Debug)]
enum Read {
    /// A field that was fetched.
    Field(usize),
    /// A path that goes on from one.
    Path(usize, FieldPath),
    Evaluate,
}

/// The values of one document's fields.
pub struct Fetched<'a>([Option<RawValue<'a>>; FIELDS_MAX]);

impl GroupFields {
    pub fn of(group: &Group) -> GroupFields {
        let mut names = Vec::new();
        let compound = group.id_fields();
        let key = match compound {
            Some(fields) => fields.iter().map(|(_, expression)| Read::of(expression, &mut names)).collect(),
            None => vec![Read::of(group.single_id(), &mut names)],
        };
        let inputs = group.fields.iter().map(|(_, accumulator)| match accumulator.is_sorted() {
            true => Read::Evaluate,
            false => Read::of(&accumulator.input, &mut names),
        });
        let inputs = inputs.collect();
        GroupFields { key, inputs, compound: compound.is_some(), names }
    }

    #[inline]
    pub fn fetch<'a>(&self, document: RawDocument<'a>) -> Fetched<'a> {
        let mut places = [None; FIELDS_MAX];
        document.get_each(&self.names, &mut places);
        Fetched(places)
    }

    /// As [`Group::key_of`].
    #[inline]
    pub fn key_of(
        &self,
        group: &Group,
        env: &Env<'_>,
        fetched: &Fetched<'_>,
        key: &mut Vec<u8>,
    ) -> Result<()> {
        if !self.compound {
            let value = self.key[0].value(group.single_id(), env, fetched)?;
            encode_value_with(key, value.raw_or_null(), false, group.collator());
            return Ok(());
        }
        for (read, (_, expression)) in self.key.iter().zip(group.id_fields().into_iter().flatten()) {
            match read.value(expression, env, fetched)?.raw() {
                Some(value) => encode_value_with(key, value, false, group.collator()),
                None => key.push(MISSING),
            }
        }
        Ok(())
    }

    /// Takes the document into the states of its group; how many bytes they grew.
    #[inline]
    pub fn accumulate(
        &self,
        group: &Group,
        states: &mut [State],
        env: &Env<'_>,
        fetched: &Fetched<'_>,
    ) -> Result<isize> {
        let mut grown = 0;
        for ((read, (_, accumulator)), state) in self.inputs.iter().zip(&group.fields).zip(states) {
            grown += match read {
                Read::Evaluate => accumulator.accumulate(state, env)?,
                read => accumulator.add(state, &read.value(&accumulator.input, env, fetched)?)?,
            };
        }
        Ok(grown)
    }
}

impl Read {
    fn of(expression: &Expression, names: &mut Vec<Box<str>>) -> Read {
        let Some([first, rest @ ..]) = expression.as_field().map(FieldPath::names) else {
            return Read::Evaluate;
        };
        let at = names.iter().position(|name| name == first).unwrap_or(names.len());
        if at >= FIELDS_MAX {
            return Read::Evaluate;
        }
        let read = match rest {
            [] => Read::Field(at),
            rest => match FieldPath::parse(&rest.join(".")) {
                Ok(rest) => Read::Path(at, rest),
                Err(_) => return Read::Evaluate,
            },
        };
        if at == names.len() {
            names.push(first.clone());
        }
        read
    }

    #[inline]
    fn value<'a>(
        &self,
        expression: &'a Expression,
        env: &Env<'a>,
        fetched: &Fetched<'a>,
    ) -> Result<Evaluated<'a>> {
        Ok(match self {
            Read::Field(at) => fetched.0[*at].into(),
            Read::Path(at, rest) => rest.evaluate_in(fetched.0[*at].into()),
            Read::Evaluate => return expression.evaluate(env),
        })
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{array, doc};

    use super::super::{Context, Owner, Pipeline, Stage};
    use super::*;
    use crate::expression::{Bindings, Scope, Variables};

    #[test]
    fn fetched_fields_give_what_expressions_give() {
        let variables = Variables::default();
        let scope = Scope::new(&variables);
        let context = Context::new(&scope, "db", Owner::Collection);
        let documents = [
            doc! {"a": 1, "b": {"c": 2, "d": {"e": 5}}, "f": "x"},
            doc! {"f": "x", "b": [{"c": 1}, {"c": 2}, 3], "a": null},
            doc! {"b": 5},
            doc! {},
        ];
        for spec in [
            doc! {"_id": "$a", "n": {"$push": "$b.c"}, "m": {"$push": "$f"}},
            doc! {"_id": {"a": "$a", "e": "$b.d.e"}, "n": {"$push": "$$ROOT.b"}, "m": {"$first": "$$ROOT"}},
            doc! {"_id": {"one": "$b.c"}, "n": {"$top": {"output": "$a", "sortBy": {"f": 1}}}},
            doc! {"_id": ["$a", "$f"], "n": {"$sum": {"$add": ["$a", 1]}}},
        ] {
            let pipeline = array![doc! {"$group": spec.clone()}];
            let pipeline = Pipeline::parse(pipeline.as_raw(), &context).expect("a pipeline");
            let [Stage::Group(group)] = &pipeline.stages[..] else { panic!("a group") };
            let reads = GroupFields::of(group);
            for document in &documents {
                let env = Env::new(document.as_raw(), Bindings::none());
                let fetched = reads.fetch(document.as_raw());
                let (mut plain, mut quick) = (Vec::new(), Vec::new());
                group.key_of(&env, &mut plain).expect("a key");
                reads.key_of(group, &env, &fetched, &mut quick).expect("a key");
                assert_eq!(quick, plain, "{spec:?} of {document:?}");
                let begin = || -> Vec<State> {
                    let states =
                        group.fields.iter().map(|(_, one)| one.begin(RawValue::Null, Bindings::none()));
                    states.map(|state| state.expect("a state")).collect()
                };
                let finish = |states: Vec<State>| {
                    let values = group.fields.iter().zip(states).map(|((_, one), state)| one.finish(state));
                    format!("{:?}", values.collect::<Vec<_>>())
                };
                let (mut plain, mut quick) = (begin(), begin());
                for ((_, accumulator), state) in group.fields.iter().zip(&mut plain) {
                    accumulator.accumulate(state, &env).expect("taken");
                }
                reads.accumulate(group, &mut quick, &env, &fetched).expect("taken");
                assert_eq!(finish(quick), finish(plain), "{spec:?} of {document:?}");
            }
        }
    }
}
