//! What filters on one form mean where the other is stored.
//!
//! Invariant: a filter matches a document as users may write it exactly if its meaning matches the document as it is stored.
//! While data from before the declaration is being filled, documents of both forms are met, and the meaning is true of
//! both.

use kilim_bson::{Path, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::filter::{Comparison, Filter, Predicate};

use super::{Attribute, Fields, Store};
use crate::path::lies_within;

impl Attribute {
    /// What a filter means for what is stored; none where it means itself.
    pub(super) fn meaning_of(&self, filter: &Filter, is_filled: bool) -> Result<Option<Filter>> {
        let made = match self.store {
            Store::Both => None,
            Store::Kv => mapped(filter, &|path, predicate| self.in_array(path, predicate, is_filled))?,
            Store::Flat => mapped(filter, &|path, predicate| self.in_fields(path, predicate, is_filled))?,
        };
        Ok(made.map(|made| Filter::all_of(vec![made])))
    }

    /// A filter on fields as one on names and values; none where it asks for no attribute, or only for what is not there.
    pub(super) fn in_pairs(&self, filter: &Filter) -> Option<Filter> {
        let made = mapped(filter, &|path, predicate| {
            let Some((name, rest)) = self.fields.split(path.as_str()) else { return Ok(None) };
            let is_served = !matches!(predicate, Predicate::Not(_) | Predicate::Expr(..));
            Ok((is_served && !accepts_missing(path, predicate)).then(|| self.element(name, rest, predicate)))
        });
        made.ok().flatten().map(|made| Filter::all_of(vec![made]))
    }

    /// A predicate on the flat form, of the array.
    fn in_array(&self, path: &Path, predicate: &Predicate, is_filled: bool) -> Result<Option<Filter>> {
        if let Predicate::Not(inner) = predicate {
            return Ok(self.in_array(path, inner, is_filled)?.map(|made| Filter::Nor(vec![made])));
        }
        // What stands beside an expression only helps to find documents, and here it does not.
        if matches!(predicate, Predicate::Expr(..)) {
            return Ok(self.fields.split(path.as_str()).map(|_| Filter::True));
        }
        let original = field(path.clone(), predicate.clone());
        let may_be_missing = accepts_missing(path, predicate);
        let found = match (self.fields.split(path.as_str()), &self.fields) {
            (Some((name, rest)), _) => {
                let found = self.element(name, rest, predicate);
                match may_be_missing {
                    true => Filter::Or(vec![Filter::Nor(vec![self.has(name)]), found]),
                    false => found,
                }
            }
            (None, Fields::Within { path: container, .. }) if **container == *path.as_str() => {
                // A null in the place of the fields stays there.
                return Ok(Some(both_forms(original, self.whole(predicate)?, may_be_missing, false)));
            }
            (None, Fields::Listed(listed)) => {
                return match listed.iter().find(|(own, _)| lies_within(own, path.as_str())) {
                    Some((own, _)) => Err(self.not_whole(path.as_str(), own)),
                    None => Ok(None),
                };
            }
            _ => return Ok(None),
        };
        Ok(Some(both_forms(original, found, may_be_missing, is_filled)))
    }

    /// A document that holds attributes is asked for as a whole, and they are not stored in it.
    fn not_whole(&self, path: &str, attribute: &str) -> Error {
        let array = &self.array;
        let reason = format!("holds '{attribute}', which is stored in '{array}': ask for its fields");
        cannot(path, &reason)
    }

    /// A predicate on the flat form as a whole.
    fn whole(&self, predicate: &Predicate) -> Result<Filter> {
        let array = Path::parse(&self.array);
        match predicate {
            Predicate::Exists => Ok(field(array, Predicate::Exists)),
            Predicate::Compare(Comparison::Eq, operand) if matches!(**operand, Value::Null) => {
                Ok(Filter::Nor(vec![field(array, Predicate::Exists)]))
            }
            _ => Err(cannot(
                self.fields.paths().next().unwrap_or_default(),
                &format!(
                    "is stored as '{}', so it cannot be compared as a whole: ask for its fields",
                    self.array
                ),
            )),
        }
    }

    /// A predicate on the k/v form, of the fields.
    fn in_fields(&self, path: &Path, predicate: &Predicate, is_filled: bool) -> Result<Option<Filter>> {
        let Some(below) = lies_within(path.as_str(), &self.array).then(|| &path.as_str()[self.array.len()..])
        else {
            return Ok(None);
        };
        if let Predicate::Not(inner) = predicate {
            return Ok(self.in_fields(path, inner, is_filled)?.map(|made| Filter::Nor(vec![made])));
        }
        let found = match (below, predicate) {
            ("", Predicate::ElemMatchObject(element)) => self.of_element(element)?,
            ("", Predicate::Exists) => {
                let exist = self.fields.paths().map(|path| field(Path::parse(path), Predicate::Exists));
                Filter::Or(exist.collect())
            }
            (".k", predicate) => {
                let names = names_in(predicate).ok_or_else(|| self.not_by_fields())?;
                let exist = names.iter().map(|name| self.with_fields(name, &[]));
                Filter::Or(exist.collect::<Result<_>>()?)
            }
            _ => return Err(self.not_by_fields()),
        };
        let original = field(path.clone(), predicate.clone());
        Ok(Some(both_forms(original, found, false, is_filled)))
    }

    /// `{k: name, v: …}` of one element.
    fn of_element(&self, element: &Filter) -> Result<Filter> {
        let conjuncts = match element {
            Filter::And(conjuncts) => &conjuncts[..],
            one => std::slice::from_ref(one),
        };
        let (mut names, mut others) = (None, Vec::new());
        for conjunct in conjuncts {
            let Filter::Field { path, predicate } = conjunct else { return Err(self.not_by_fields()) };
            match names_in(predicate).filter(|_| path.as_str() == "k" && names.is_none()) {
                Some(found) => names = Some(found),
                None => others.push((path, predicate)),
            }
        }
        let names = names.ok_or_else(|| self.not_by_fields())?;
        let each = names.iter().map(|name| self.with_fields(name, &others));
        Ok(Filter::Or(each.collect::<Result<_>>()?))
    }

    /// An attribute is there and its element would satisfy these.
    fn with_fields(&self, name: &str, predicates: &[(&Path, &Predicate)]) -> Result<Filter> {
        let Some(own) = self.fields.path_of(name) else {
            return match self.fields.may_have(name) {
                true => Err(cannot(
                    name,
                    "is an attribute that no path leads to, for its name is empty or has a '.'",
                )),
                false => Ok(Filter::False),
            };
        };
        let mut all = vec![field(Path::parse(&own), Predicate::Exists)];
        for (path, predicate) in predicates {
            all.push(match path.as_str() {
                "v" => field(Path::parse(&own), (*predicate).clone()),
                "u" => {
                    let mut element = kilim_bson::Document::new();
                    if let Some(unit) = self.units.get(name) {
                        element.push("u", &**unit);
                    }
                    match field((*path).clone(), (*predicate).clone()).matches(element.as_raw())? {
                        true => Filter::True,
                        false => Filter::False,
                    }
                }
                below => match below.strip_prefix("v.") {
                    Some(rest) => field(Path::parse(&format!("{own}.{rest}")), (*predicate).clone()),
                    None => return Err(self.not_by_fields()),
                },
            });
        }
        Ok(Filter::And(all))
    }

    /// The array has an element of this name.
    fn has(&self, name: &str) -> Filter {
        field(Path::parse(&self.array), Predicate::ElemMatchObject(Box::new(is_named(name))))
    }

    /// The array has an element of this name whose value satisfies a predicate.
    fn element(&self, name: &str, rest: &str, predicate: &Predicate) -> Filter {
        let value = Attribute::value_path(rest);
        let element = Filter::And(vec![is_named(name), field(value, predicate.clone())]);
        field(Path::parse(&self.array), Predicate::ElemMatchObject(Box::new(element)))
    }

    /// From an element to its value, and along a path within that.
    pub(super) fn value_path(rest: &str) -> Path {
        match rest {
            "" => Path::parse("v"),
            rest => Path::parse(&format!("v.{rest}")),
        }
    }

    fn not_by_fields(&self) -> Error {
        cannot(
            &self.array,
            "is stored as fields: ask for {$elemMatch: {k: name, v: …}}, or for the fields, or declare store: \"both\"",
        )
    }
}

/// True of documents of both forms, while there are such.
fn both_forms(original: Filter, found: Filter, may_be_missing: bool, is_filled: bool) -> Filter {
    match (is_filled, may_be_missing) {
        (true, _) => found,
        (false, true) => Filter::And(vec![original, found]),
        (false, false) => Filter::Or(vec![original, found]),
    }
}

/// The filter with some of its predicates in other words; none where all stay.
fn mapped(
    filter: &Filter,
    words: &dyn Fn(&Path, &Predicate) -> Result<Option<Filter>>,
) -> Result<Option<Filter>> {
    let list = |children: &[Filter]| -> Result<Option<Vec<Filter>>> {
        let made: Vec<Option<Filter>> =
            children.iter().map(|child| mapped(child, words)).collect::<Result<_>>()?;
        if made.iter().all(Option::is_none) {
            return Ok(None);
        }
        let kept = made.into_iter().zip(children).map(|(made, child)| made.unwrap_or_else(|| child.clone()));
        Ok(Some(kept.collect()))
    };
    Ok(match filter {
        Filter::And(children) => list(children)?.map(Filter::And),
        Filter::Or(children) => list(children)?.map(Filter::Or),
        Filter::Nor(children) => list(children)?.map(Filter::Nor),
        Filter::Field { path, predicate } => words(path, predicate)?,
        Filter::True | Filter::False | Filter::Expr(_) | Filter::JsonSchema(_) | Filter::Text(_) => None,
    })
}

/// Whether a predicate is true of a path that leads to nothing.
fn accepts_missing(path: &Path, predicate: &Predicate) -> bool {
    field(path.clone(), predicate.clone()).matches(RawDocument::empty()).unwrap_or(false)
}

fn is_named(name: &str) -> Filter {
    let name = Value::String(name.into());
    field(Path::parse("k"), Predicate::Compare(Comparison::Eq, name.into()))
}

/// The names that a predicate on `k` is true of; none where they cannot be told.
fn names_in(predicate: &Predicate) -> Option<Vec<String>> {
    let text = |value: &Value| match value.as_raw() {
        RawValue::String(text) => Some(text.to_owned()),
        _ => None,
    };
    match predicate {
        Predicate::Compare(Comparison::Eq, operand) if operand.collation().is_none() => {
            text(operand).map(|name| vec![name])
        }
        Predicate::In(list) if list.regexes().is_empty() && list.collation().is_none() => {
            list.values().iter().map(text).collect()
        }
        _ => None,
    }
}

fn field(path: Path, predicate: Predicate) -> Filter {
    Filter::Field { path, predicate }
}

fn cannot(path: &str, reason: &str) -> Error {
    Error::user(ErrorCode::BadValue, format!("'{path}' {reason}"))
}
