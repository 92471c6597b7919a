//! The document of `$addFields`: paths and what to compute for them.

use std::collections::BTreeSet;
use std::ops::Bound;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, Result};

use super::parse::descend;
use super::{Branch, Kind, Node, Projection};
use crate::expression::{Base, Env, Evaluated, Expression, Scope, Slot, Variable};
use crate::path::check_field_path;
use crate::text;

impl Projection {
    /// Parses the document of `$addFields`.
    pub fn parse_addition(specification: RawDocument<'_>, scope: &Scope<'_>) -> Result<Projection> {
        if !is_plain(specification) {
            let mut checker = Checker { specification, seen: BTreeSet::new() };
            for (name, value) in specification {
                check_field_path(name)?;
                checker.element(name, value)?;
            }
        }
        let mut root = Branch::default();
        fill(&mut root, specification, scope)?;
        Ok(Projection::new(Kind::Addition, root, false))
    }
}

impl Projection {
    /// Adds the values of variables, by the number of each path in the list. No path begins another.
    pub(crate) fn of_variables<'p>(paths: impl Iterator<Item = &'p str>) -> Result<Projection> {
        let mut root = Branch::default();
        for (number, path) in paths.enumerate() {
            let (above, last) = path.rsplit_once('.').unwrap_or(("", path));
            let mut branch = &mut root;
            for step in above.split('.').filter(|step| !step.is_empty()) {
                branch = below(branch, step)?;
            }
            let base = Base::Slot(Slot::numbered(number));
            let variable = Variable { name: "".into(), base, path: None };
            branch.children.push((last.into(), Node::Computed(Box::new(Expression::Variable(variable)))));
        }
        Ok(Projection::new(Kind::Addition, root, false))
    }

    /// Adds one computed field.
    pub(crate) fn adding(name: &str, expression: Expression) -> Projection {
        let mut root = Branch::default();
        root.children.push((name.into(), Node::Computed(Box::new(expression))));
        Projection::new(Kind::Addition, root, false)
    }

    /// The document with the values of those variables in it; what has none is taken away.
    pub fn with_values(&self, env: &Env<'_>, values: &[Evaluated<'_>]) -> Result<Document> {
        self.with_frames(env, values, 0)
    }

    fn with_frames(&self, env: &Env<'_>, values: &[Evaluated<'_>], number: usize) -> Result<Document> {
        match values.get(number) {
            None => self.made_of(env),
            Some(value) => {
                let frame = env.frame(Slot::numbered(number), value.raw());
                self.with_frames(&env.with(&frame), values, number + 1)
            }
        }
    }
}

/// Whether there is nothing to check: a few different fields, each with a value or one operator. Most are so, and
/// updates parse them over and over.
fn is_plain(specification: RawDocument<'_>) -> bool {
    const FIELDS_MAX: usize = 8;
    let names = || specification.iter().map(|(name, _)| name);
    names().count() <= FIELDS_MAX
        && specification.iter().enumerate().all(|(at, (name, value))| {
            let one = |document: RawDocument<'_>| {
                let mut fields = document.iter();
                fields.next().is_some_and(|(operator, _)| operator.starts_with('$'))
                    && fields.next().is_none()
            };
            !name.is_empty()
                && !name.contains(['.', '$'])
                && names().take(at).all(|other| other != name)
                && value.as_document().is_none_or(one)
        })
}

/// Looks at the whole before any expression is parsed, as mongod does.
struct Checker<'a> {
    specification: RawDocument<'a>,
    /// Paths by their names, so that what begins alike stands together.
    seen: BTreeSet<Vec<String>>,
}

impl Checker<'_> {
    fn element(&mut self, path: &str, value: RawValue<'_>) -> Result<()> {
        match value {
            RawValue::Document(nested) => self.nested(path, nested),
            _ => self.see(path),
        }
    }

    fn nested(&mut self, path: &str, document: RawDocument<'_>) -> Result<()> {
        if document.is_empty() {
            return Err(Error::location(
                40180,
                format!("an empty object is not a valid value. Found empty object at path {path}"),
            ));
        }
        let count = document.iter().count();
        for (name, value) in document {
            if name.starts_with('$') {
                if count != 1 {
                    return Err(Error::location(
                        40181,
                        format!(
                            "an expression specification must contain exactly one field, the name of the expression. \
                             Found {count} fields in {}, while parsing object {}",
                            text::document(document),
                            text::document(self.specification)
                        ),
                    ));
                }
                self.see(path)?;
                continue;
            }
            if name.contains('.') {
                return Err(Error::location(
                    40183,
                    format!(
                        "cannot use dotted field name '{name}' in a sub object: {}",
                        text::document(self.specification)
                    ),
                ));
            }
            self.element(&format!("{path}.{name}"), value)?;
        }
        Ok(())
    }

    /// Refuses a path that another one is, begins or goes on.
    fn see(&mut self, path: &str) -> Result<()> {
        let names: Vec<String> = path.split('.').map(str::to_owned).collect();
        let range = |from, to| self.seen.range::<Vec<String>, _>((from, to));
        let before = range(Bound::Unbounded, Bound::Included(&names)).next_back();
        let after = range(Bound::Excluded(&names), Bound::Unbounded).next();
        let begins = before.filter(|other| names.starts_with(other));
        if let Some(other) = begins.or(after.filter(|other| other.starts_with(&names))) {
            return Err(Error::location(
                40176,
                format!(
                    "specification contains two conflicting paths. Cannot specify both '{path}' and '{}': {}",
                    other.join("."),
                    text::document(self.specification)
                ),
            ));
        }
        self.seen.insert(names);
        Ok(())
    }
}

fn fill(branch: &mut Branch, document: RawDocument<'_>, scope: &Scope<'_>) -> Result<()> {
    for (name, value) in document {
        let (above, last) = name.rsplit_once('.').unwrap_or(("", name));
        let mut branch = &mut *branch;
        for step in above.split('.').filter(|step| !step.is_empty()) {
            branch = below(branch, step)?;
        }
        match value {
            RawValue::Document(nested) if nested.iter().all(|(name, _)| !name.starts_with('$')) => {
                fill(below(branch, last)?, nested, scope)?;
            }
            value => {
                let expression = Expression::parse(value, scope)?;
                branch.children.push((last.into(), Node::Computed(Box::new(expression))));
            }
        }
    }
    Ok(())
}

/// The branch of that name, made if new.
fn below<'b>(branch: &'b mut Branch, name: &str) -> Result<&'b mut Branch> {
    descend(branch, name).ok_or_else(|| Error::bug("two paths of $addFields conflict unseen"))
}
