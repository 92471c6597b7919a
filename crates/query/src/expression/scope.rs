//! What variables mean while an expression is parsed.

use std::sync::{Arc, LazyLock};

use kilim_bson::{RawDocument, Timestamp, Value};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::{Base, Evaluated, Expression, FieldPath, Slot, Variable};

static NO_ROLES: LazyLock<Value> = LazyLock::new(|| Value::Array(Default::default()));

/// What a whole command knows: variables by their values, and how texts compare.
///
/// All that is parsed sees this, as a [`Scope`], and whatever compares takes the collation from there. So a
/// filter, an expression, a sort or an update knows by itself how it compares, and nobody can forget to say.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    /// `$$NOW` and `$$CLUSTER_TIME`.
    time: Option<(Value, Value)>,
    /// `$$USER_ROLES`; none where nobody has logged in.
    roles: Option<Arc<Value>>,
    /// None where the expression of a command's variable gave nothing.
    values: Vec<(Box<str>, Option<Value>)>,
    collation: Option<Collation>,
}

impl Variables {
    /// `$$NOW` and `$$CLUSTER_TIME`: the same for all of a command.
    pub fn at(now_millis: i64, cluster_time: Timestamp) -> Variables {
        let time = (Value::DateTime(now_millis), Value::Timestamp(cluster_time));
        Variables { time: Some(time), ..Variables::default() }
    }

    /// The same for a user with these roles.
    pub fn of_user(self, roles: Option<Arc<Value>>) -> Variables {
        Variables { roles, ..self }
    }

    /// The same where texts compare like this.
    pub fn under(self, collation: Option<Collation>) -> Variables {
        Variables { collation, ..self }
    }

    /// How texts compare; none where they do by their bytes.
    pub fn collation(&self) -> &Option<Collation> {
        &self.collation
    }

    pub fn define(&mut self, name: &str, value: Value) {
        self.values.push((name.into(), Some(value)));
    }

    /// The variables of a command's `let` or an update's `c`, whose expressions see no document.
    pub fn define_all(&mut self, definitions: RawDocument<'_>) -> Result<()> {
        for (name, value) in definitions {
            check_variable_name(name)?;
            let expression = Expression::parse(value, &Scope::new(self))?;
            let mut needed = super::Dependencies::default();
            expression.dependencies(&mut needed);
            if needed.whole_document || !needed.fields.is_empty() {
                return Err(Error::location(
                    4_890_500,
                    "Command let Expression tried to access a field, but this is not allowed because Command let \
                     Expressions run before the query examines any documents.",
                ));
            }
            let value = expression.evaluate_constant()?.into_value();
            self.values.push((name.into(), value));
        }
        Ok(())
    }

    /// The constants of an update's `c`, which are values as they are.
    pub fn define_constants(&mut self, constants: RawDocument<'_>) -> Result<()> {
        for (name, value) in constants {
            check_variable_use(name)?;
            self.define(name, value.to_value());
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Option<Option<&Value>> {
        if let Some((_, value)) = self.values.iter().rev().find(|(known, _)| **known == *name) {
            return Some(value.as_ref());
        }
        match (name, &self.time) {
            ("NOW", Some((now, _))) => Some(Some(now)),
            ("CLUSTER_TIME", Some((_, time))) => Some(Some(time)),
            ("USER_ROLES", Some(_)) => Some(Some(self.roles.as_deref().unwrap_or(&NO_ROLES))),
            _ => None,
        }
    }
}

/// What is known at one place of an expression. Scopes form a list on the stack, the innermost first.
#[derive(Clone, Copy)]
pub struct Scope<'s> {
    variables: &'s Variables,
    entry: Option<&'s Entry<'s>>,
    /// How many variables expressions have bound around.
    depth: u32,
    /// How many variables pipelines have bound around.
    bindings: usize,
    found_by: FoundBy,
}

/// How documents were found, which decides what `$meta` can tell of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FoundBy {
    /// By their fields, or not at all.
    #[default]
    Fields,
    /// By a `$text`, with a score.
    Text,
    /// By their distance from a place.
    Distance,
}

/// A variable of a scope; [`Scope::with`] makes it known.
pub struct Entry<'s> {
    name: &'s str,
    meaning: Meaning<'s>,
    outer: Option<&'s Entry<'s>>,
}

enum Meaning<'s> {
    Base(Base),
    Constant(&'s Value),
}

impl<'s> Scope<'s> {
    pub fn new(variables: &'s Variables) -> Scope<'s> {
        Scope { variables, entry: None, depth: 0, bindings: 0, found_by: FoundBy::Fields }
    }

    /// A variable to be bound by an expression, and its slot.
    pub fn bind<'n>(&self, name: &'n str) -> (Entry<'n>, Slot)
    where
        's: 'n,
    {
        let slot = Slot(self.depth);
        (Entry { name, meaning: Meaning::Base(Base::Slot(slot)), outer: self.entry }, slot)
    }

    /// A variable to be bound for a pipeline within this one: its number is [`Scope::bindings`].
    pub fn bind_for_pipeline<'n>(&self, name: &'n str) -> Entry<'n>
    where
        's: 'n,
    {
        Entry { name, meaning: Meaning::Base(Base::Binding(self.bindings)), outer: self.entry }
    }

    /// A variable that is a constant here.
    pub fn constant<'n>(&self, name: &'n str, value: &'n Value) -> Entry<'n>
    where
        's: 'n,
    {
        Entry { name, meaning: Meaning::Constant(value), outer: self.entry }
    }

    /// The scope in which an entry is known too.
    pub fn with<'n>(&self, entry: &'n Entry<'n>) -> Scope<'n>
    where
        's: 'n,
    {
        let (slots, bindings) = match entry.meaning {
            Meaning::Base(Base::Slot(_)) => (1, 0),
            Meaning::Base(Base::Binding(_)) => (0, 1),
            _ => (0, 0),
        };
        Scope {
            variables: self.variables,
            entry: Some(entry),
            depth: self.depth + slots,
            bindings: self.bindings + bindings,
            found_by: self.found_by,
        }
    }

    /// How many variables pipelines have bound around: the number of the next.
    pub fn bindings(&self) -> usize {
        self.bindings
    }

    /// The scope of documents that were found in some way.
    pub fn of_found_by(self, found_by: FoundBy) -> Scope<'s> {
        Scope { found_by, ..self }
    }

    pub fn found_by(&self) -> FoundBy {
        self.found_by
    }

    /// The constants that the whole command knows.
    pub fn variables(&self) -> &'s Variables {
        self.variables
    }

    /// How texts compare.
    pub fn collation(&self) -> &'s Option<Collation> {
        &self.variables.collation
    }

    fn find(&self, name: &str) -> Option<&Meaning<'s>> {
        let mut entry = self.entry;
        while let Some(known) = entry {
            if known.name == name {
                return Some(&known.meaning);
            }
            entry = known.outer;
        }
        None
    }

    /// `"$a.b"`, which means `"$$CURRENT.a.b"`.
    pub(super) fn field(&self, path: &str) -> Result<Expression> {
        let path = FieldPath::parse(path)?;
        Ok(match self.find("CURRENT") {
            Some(Meaning::Base(base)) => {
                Expression::Variable(Variable { name: "CURRENT".into(), base: *base, path: Some(path) })
            }
            Some(Meaning::Constant(value)) => constant(Some(value), Some(path.as_str()))?,
            None => match self.variables.get("CURRENT") {
                Some(value) => constant(value, Some(path.as_str()))?,
                None => Expression::Field(path),
            },
        })
    }

    /// What follows `$$`.
    pub(super) fn variable(&self, text: &str) -> Result<Expression> {
        let (name, path) = match text.split_once('.') {
            Some((name, path)) => (name, Some(path)),
            None => (text, None),
        };
        check_variable_use(name)?;
        let base = match self.find(name) {
            Some(Meaning::Base(base)) => *base,
            Some(Meaning::Constant(value)) => return constant(Some(value), path),
            None => match name {
                "ROOT" => Base::Root,
                "CURRENT" => match path {
                    None if self.variables.get(name).is_none() => Base::Root,
                    None => return constant(self.variables.get(name).flatten(), None),
                    Some(path) => {
                        rest_of_path(path)?;
                        return self.field(path);
                    }
                },
                "REMOVE" => {
                    path.map(rest_of_path).transpose()?;
                    return Ok(Expression::Missing);
                }
                _ => {
                    let value = self.variables.get(name).ok_or_else(|| undefined(name))?;
                    return constant(value, path);
                }
            },
        };
        let path = path.map(rest_of_path).transpose()?;
        Ok(Expression::Variable(Variable { name: name.into(), base, path }))
    }
}

/// What follows a variable's name and a dot. The two form one path, so it may not be empty.
fn rest_of_path(path: &str) -> Result<FieldPath> {
    if path.is_empty() {
        return Err(Error::location(40_353, "FieldPath must not end with a '.'."));
    }
    FieldPath::parse(path)
}

fn constant(value: Option<&Value>, path: Option<&str>) -> Result<Expression> {
    let value = value.map_or(Evaluated::Missing, |value| Evaluated::Raw(value.as_raw()));
    let value = match path {
        None => value,
        Some(path) => rest_of_path(path)?.evaluate_in(value),
    };
    Ok(value.into_value().map_or(Expression::Missing, Expression::Constant))
}

fn undefined(name: &str) -> Error {
    match name {
        "SEARCH_META" => Error::location(
            6_347_903,
            "Can't access $$SEARCH_META without a $search stage earlier in the pipeline",
        ),
        "JS_SCOPE" | "IS_MR" => {
            Error::location(51_144, format!("Builtin variable '$${name}' is not available"))
        }
        _ => Error::location(17_276, format!("Use of undefined variable: {name}")),
    }
}

/// Refuses a name that a user may not give to a variable.
pub fn check_variable_name(name: &str) -> Result<()> {
    // The one system variable that may be bound anew.
    if name == "CURRENT" {
        return Ok(());
    }
    check_name(name, |first| first.is_ascii_lowercase() || !first.is_ascii())
}

fn check_variable_use(name: &str) -> Result<()> {
    check_name(name, |first| first.is_ascii_alphabetic() || !first.is_ascii())
}

fn check_name(name: &str, may_begin: impl Fn(char) -> bool) -> Result<()> {
    let failed = |message: String| Err(Error::user(ErrorCode::FailedToParse, message));
    let Some(first) = name.chars().next() else {
        return failed("empty variable names are not allowed".to_owned());
    };
    if !may_begin(first) {
        return failed(format!("'{name}' starts with an invalid character for a user variable name"));
    }
    let may_follow = |c: &char| c.is_ascii_alphanumeric() || *c == '_' || !c.is_ascii();
    if let Some(wrong) = name.chars().find(|c| !may_follow(c)) {
        return failed(format!("'{name}' contains an invalid character for a variable name: '{wrong}'"));
    }
    Ok(())
}
