//! The fields that a `$group` reads, fetched in one pass over the document.
//!
//! Most keys and inputs are plain paths. Looking each up from the front of the document would walk it once for
//! the key and once for every accumulator.
//!
//! Invariant: what is read here is what evaluating the expression would give.

use std::ops::Range;

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
    /// The key is the same for all documents.
    pub constant: bool,
    /// The field whose dates are rounded down to the key, where that is all that the key is.
    rounded: Option<usize>,
}

#[derive(Debug)]
enum Read {
    /// A field that was fetched.
    Field(usize),
    /// A path that goes on from one.
    Path(usize, FieldPath),
    Evaluate,
}

/// The values of one document's fields, in the places of their names.
pub type Fetched<'a> = [Option<RawValue<'a>>; FIELDS_MAX];

impl GroupFields {
    pub fn of(group: &Group) -> GroupFields {
        let mut names: Vec<Box<str>> = Vec::new();
        let mut reads = GroupFields::placed(group, |name| {
            let at = names.iter().position(|known| **known == *name);
            if at.is_none() && names.len() < FIELDS_MAX {
                names.push(name.into());
                return Some(names.len() - 1);
            }
            at
        });
        reads.names = names;
        reads
    }

    /// How they are read of rows that are no documents but the values of these fields.
    pub fn over(group: &Group, names: &[Box<str>]) -> GroupFields {
        GroupFields::placed(group, |name| names.iter().position(|known| **known == *name))
    }

    fn placed(group: &Group, mut place: impl FnMut(&str) -> Option<usize>) -> GroupFields {
        let compound = group.id_fields();
        let mut read = |expression| Read::of(expression, &mut place);
        let key = match compound {
            Some(fields) => fields.iter().map(|(_, expression)| read(expression)).collect(),
            None => vec![read(group.single_id())],
        };
        let inputs = group.fields.iter().map(|(_, accumulator)| match accumulator.is_sorted() {
            true => Read::Evaluate,
            false => read(&accumulator.input),
        });
        let inputs = inputs.collect();
        let constant = compound.is_none() && group.single_id().as_constant().is_some();
        let rounded = compound.is_none().then(|| group.single_id().rounded_field()).flatten();
        let rounded = match rounded.map(FieldPath::names) {
            Some([name]) => place(name),
            _ => None,
        };
        GroupFields { key, inputs, compound: compound.is_some(), constant, rounded, names: Vec::new() }
    }

    /// The date that is rounded down to the key.
    #[inline]
    pub fn rounded_date(&self, fetched: &[Option<RawValue<'_>>]) -> Option<i64> {
        match fetched[self.rounded?] {
            Some(RawValue::DateTime(millis)) => Some(millis),
            _ => None,
        }
    }

    /// The dates that give the same key as this one.
    pub fn same_key(group: &Group, millis: i64) -> Option<Range<i64>> {
        group.single_id().rounded_alike(millis)
    }

    #[inline]
    pub fn fetch<'a>(&self, document: RawDocument<'a>) -> Fetched<'a> {
        let mut places = [None; FIELDS_MAX];
        document.get_each(&self.names, &mut places);
        places
    }

    /// As [`Group::key_of`].
    #[inline]
    pub fn key_of<'a>(
        &self,
        group: &'a Group,
        env: &Env<'a>,
        fetched: &[Option<RawValue<'a>>],
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
    pub fn accumulate<'a>(
        &self,
        group: &'a Group,
        states: &mut [State],
        env: &Env<'a>,
        fetched: &[Option<RawValue<'a>>],
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
    fn of(expression: &Expression, place: impl FnOnce(&str) -> Option<usize>) -> Read {
        let Some([first, rest @ ..]) = expression.as_field().map(FieldPath::names) else {
            return Read::Evaluate;
        };
        let rest = match rest {
            [] => None,
            rest => match FieldPath::parse(&rest.join(".")) {
                Ok(rest) => Some(rest),
                Err(_) => return Read::Evaluate,
            },
        };
        match (place(first), rest) {
            (None, _) => Read::Evaluate,
            (Some(at), None) => Read::Field(at),
            (Some(at), Some(rest)) => Read::Path(at, rest),
        }
    }

    #[inline]
    fn value<'a>(
        &self,
        expression: &'a Expression,
        env: &Env<'a>,
        fetched: &[Option<RawValue<'a>>],
    ) -> Result<Evaluated<'a>> {
        Ok(match self {
            Read::Field(at) => fetched[*at].into(),
            Read::Path(at, rest) => rest.evaluate_in(fetched[*at].into()),
            Read::Evaluate => return expression.evaluate(env),
        })
    }
}

#[cfg(test)]
mod tests {
    use kilim_bson::{array, doc};

    use super::super::{Context, Owner, Pipeline, Stage};
    use super::*;
    use crate::expression::{Bindings, Fields, Scope, Variables};

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
        let mut taken_apart = 0;
        for spec in [
            doc! {"_id": "$a", "n": {"$push": "$b.c"}, "m": {"$push": "$f"}},
            doc! {"_id": {"a": "$a", "e": "$b.d.e"}, "n": {"$push": "$$ROOT.b"}, "m": {"$first": "$$ROOT"}},
            doc! {"_id": {"one": "$b.c"}, "n": {"$top": {"output": "$a", "sortBy": {"f": 1}}}},
            doc! {"_id": ["$a", "$f"], "n": {"$sum": {"$add": ["$a", 1]}}},
            doc! {"_id": {"$concat": ["$f", "!"]}, "n": {"$push": {"$ifNull": ["$$ROOT.b.c", "$$CURRENT.a"]}}},
            doc! {"_id": "$f", "n": {"$push": {"$map": {"input": ["$b", "$a"], "in": ["$$this.c", "$b.c"]}}}},
            doc! {"_id": "$missing.too", "n": {"$firstN": {"n": 2, "input": "$b.d.e"}}},
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
                let expected = finish(plain);
                assert_eq!(finish(quick), expected, "{spec:?} of {document:?}");
                // The same document, taken apart.
                if !group.reads_fields_only() {
                    continue;
                }
                let names: Vec<Box<str>> = ["x", "f", "a", "missing", "b"].map(Into::into).into();
                let values: Vec<_> = names.iter().map(|name| document.get(name)).collect();
                let over = GroupFields::over(group, &names);
                let fields = Fields { names: &names, values: &values };
                let env = Env::of_fields(fields, Bindings::none());
                let (mut plain, mut apart) = (Vec::new(), Vec::new());
                group.key_of(&Env::new(document.as_raw(), Bindings::none()), &mut plain).expect("a key");
                over.key_of(group, &env, &values, &mut apart).expect("a key");
                assert_eq!(apart, plain, "{spec:?} of {document:?}");
                let mut states = begin();
                over.accumulate(group, &mut states, &env, &values).expect("taken");
                assert_eq!(finish(states), expected, "{spec:?} of {document:?}");
                taken_apart += 1;
            }
        }
        assert_eq!(taken_apart, 5 * documents.len(), "all but the whole document and the sorted one");
    }
}
