//! From a projection document to the tree, with mongod's errors.

use kilim_bson::{Path, RawDocument, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{Branch, Kind, Node, Projection, Slice};
use crate::expression::{Expression, Scope, Variables, check_available, operators};
use crate::filter::Filter;
use crate::filter::number::{self, display, display_document};
use crate::filter::parse::{FilterPlace, is_true, parse_field};
use crate::path::{check_field_path, is_dbref_name};

impl Projection {
    /// A projection of find that knows no variables.
    pub fn parse(projection: RawDocument<'_>) -> Result<Projection> {
        Projection::parse_in(projection, &Scope::new(&Variables::default()))
    }

    /// A projection of find and its kin.
    pub fn parse_in(projection: RawDocument<'_>, scope: &Scope<'_>) -> Result<Projection> {
        let mut projection = parse(projection, Language::Find, scope)?;
        projection.optimise()?;
        Ok(projection)
    }

    /// The same, with the number of the record as `$recordId` behind the fields.
    pub fn showing_record_id(shown: Option<Projection>) -> Result<Projection> {
        let variables = Variables::default();
        let meta = doc! {"$meta": "recordId"};
        let number = Expression::parse(RawValue::Document(meta.as_raw()), &Scope::new(&variables))?;
        let (kind, mut root, positional) = match shown {
            Some(Projection { kind, root, positional }) => (kind, root, positional),
            None => (Kind::Exclusion, Branch::default(), false),
        };
        root.children.push(("$recordId".into(), Node::Computed(Box::new(number))));
        Ok(Projection::new(kind, root, positional))
    }

    /// The document of `$project`, which has no operators of its own.
    pub fn parse_stage(projection: RawDocument<'_>, scope: &Scope<'_>) -> Result<Projection> {
        if projection.is_empty() {
            return Err(Error::location(51272, "projection specification must have at least one field"));
        }
        parse(projection, Language::Aggregation, scope)
    }
}

/// Where a projection stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Find,
    Aggregation,
}

fn parse(projection: RawDocument<'_>, language: Language, scope: &Scope<'_>) -> Result<Projection> {
    let mut parser = Parser {
        language,
        scope,
        kind: None,
        id: None,
        positional: false,
        elem_match: false,
        slice: false,
        meta: false,
    };
    let mut root = Branch::default();
    parser.fields(projection, &mut root, true)?;
    let kind = parser.kind.unwrap_or(match parser {
        Parser { id: Some(true), .. } => Kind::Inclusion,
        Parser { elem_match: true, slice: false, .. } => Kind::Inclusion,
        Parser { id: None, meta: true, language: Language::Aggregation, .. } => Kind::Inclusion,
        _ => Kind::Exclusion,
    });
    // `_id` is the one field that may go against the kind, and is shown unless refused.
    match (kind, parser.id) {
        (Kind::Inclusion, Some(false)) | (Kind::Exclusion, Some(true)) => {
            root.children.retain(|(name, _)| **name != *"_id");
        }
        (Kind::Inclusion, None) if root.child("_id").is_none() => {
            root.children.push(("_id".into(), Node::Leaf));
        }
        _ => {}
    }
    Ok(Projection::new(kind, root, parser.positional))
}

/// What has been seen so far.
struct Parser<'s> {
    language: Language,
    /// What variables mean in expressions.
    scope: &'s Scope<'s>,
    kind: Option<Kind>,
    /// `_id` as a whole is included or excluded.
    id: Option<bool>,
    positional: bool,
    elem_match: bool,
    slice: bool,
    meta: bool,
}

impl Parser<'_> {
    fn fields(&mut self, fields: RawDocument<'_>, branch: &mut Branch, top: bool) -> Result<()> {
        fields.iter().try_for_each(|(name, value)| self.field(name, value, branch, top))
    }

    fn field(&mut self, name: &str, value: RawValue<'_>, branch: &mut Branch, top: bool) -> Result<()> {
        if name.contains(".$.") {
            return Err(Error::location(
                31394,
                "As of 4.4, it's illegal to specify positional operator in the middle of a path.Positional \
                 projection may only be used at the end, for example: a.b.$. If the query previously used a \
                 form like a.b.$.d, remove the parts following the '$' and the results will be equivalent.",
            ));
        }
        let positional = name.strip_suffix(".$");
        if positional.is_some() && self.language == Language::Aggregation {
            return Err(Error::location(31324, "Cannot use positional projection in aggregation projection"));
        }
        match value {
            RawValue::Document(_) if positional.is_some() => Err(Error::location(
                31271,
                "positional projection cannot be used with an expression or sub object",
            )),
            RawValue::Document(nested) => self.document(name, nested, branch, top),
            RawValue::Bool(_) => self.flag(name, positional, is_true(value), branch, top),
            value if value.is_number() => self.flag(name, positional, is_true(value), branch, top),
            _ if positional.is_some() => {
                Err(Error::location(31308, "positional projection cannot be used with a literal"))
            }
            value => {
                check_field_path(name)?;
                let expression = Expression::parse(value, self.scope)?;
                let excludes = self.kind == Some(Kind::Exclusion);
                self.computed(name, expression, branch)?;
                if excludes {
                    return Err(Error::location(
                        31310,
                        format!(
                            "Cannot use an expression {name}: {} in an exclusion projection",
                            display(value)
                        ),
                    ));
                }
                Ok(())
            }
        }
    }

    /// Puts an expression at a path. It adds a field, which only an inclusion can.
    fn computed(&mut self, name: &str, expression: Expression, branch: &mut Branch) -> Result<()> {
        insert(branch, name, name, Node::Computed(Box::new(expression)))?;
        self.kind = Some(Kind::Inclusion);
        Ok(())
    }

    fn flag(
        &mut self,
        name: &str,
        positional: Option<&str>,
        include: bool,
        branch: &mut Branch,
        top: bool,
    ) -> Result<()> {
        let path = positional.unwrap_or(name);
        check_field_path(path)?;
        if positional.is_some() && !include {
            return Err(Error::location(31395, "positional projection cannot be used with exclusion"));
        }
        if positional.is_some() && self.elem_match {
            return Err(Error::location(31256, "Cannot specify positional operator and $elemMatch."));
        }
        if positional.is_some() && std::mem::replace(&mut self.positional, true) {
            return Err(Error::location(
                31276,
                "Cannot specify more than one positional projection per query.",
            ));
        }
        let node = if positional.is_some() { Node::Positional } else { Node::Leaf };
        insert(branch, path, path, node)?;
        if top && name == "_id" {
            self.id = Some(include);
        } else {
            self.set_kind(name, if include { Kind::Inclusion } else { Kind::Exclusion })?;
        }
        Ok(())
    }

    fn set_kind(&mut self, name: &str, kind: Kind) -> Result<()> {
        match (*self.kind.get_or_insert(kind), kind) {
            (Kind::Inclusion, Kind::Exclusion) => Err(Error::location(
                31254,
                format!("Cannot do exclusion on field {name} in inclusion projection"),
            )),
            (Kind::Exclusion, Kind::Inclusion) => Err(Error::location(
                31253,
                format!("Cannot do inclusion on field {name} in exclusion projection"),
            )),
            _ => Ok(()),
        }
    }

    /// An operator, or a projection of what is nested.
    fn document(&mut self, name: &str, value: RawDocument<'_>, branch: &mut Branch, top: bool) -> Result<()> {
        let mut fields = value.iter();
        let Some((operator, operand)) = fields.next() else {
            return Err(Error::location(
                51270,
                "An empty sub-projection is not a valid value. Found empty object at path",
            ));
        };
        check_field_path(name)?;
        if operator.starts_with('$') && !is_dbref_name(operator) && fields.next().is_none() {
            return match operator {
                "$slice" if self.language == Language::Find => self.slice(name, value, operand, branch),
                "$elemMatch" if self.language == Language::Find => {
                    self.elem_match(name, value, operand, branch, top)
                }
                "$elemMatch" => Err(Error::user(
                    ErrorCode::InvalidPipelineOperator,
                    "Cannot use $elemMatch in this context",
                )),
                "$meta" => self.metadata(name, operand, branch),
                _ => self.expression(name, operator, operand, branch),
            };
        }
        let nested = branch_at(branch, name, name)?;
        let positional = self.positional;
        self.fields(value, nested, false)?;
        if self.positional && !positional {
            mark_positional(branch, name);
        }
        Ok(())
    }

    fn expression(
        &mut self,
        name: &str,
        operator: &str,
        operand: RawValue<'_>,
        branch: &mut Branch,
    ) -> Result<()> {
        if !operators().any(|known| known.name == operator) {
            return Err(Error::location(31325, format!("Unknown expression {operator}")));
        }
        if self.kind == Some(Kind::Exclusion) {
            return Err(Error::location(
                31252,
                "Cannot use expression other than $meta in exclusion projection",
            ));
        }
        let expression = Expression::parse_call(operator, operand, self.scope)?;
        self.computed(name, expression, branch)
    }

    /// Something known of the document beside its fields. It goes with inclusion and exclusion.
    fn metadata(&mut self, name: &str, operand: RawValue<'_>, branch: &mut Branch) -> Result<()> {
        check_meta(operand, self.scope)?;
        let expression = Expression::parse_call("$meta", operand, self.scope)?;
        self.meta = true;
        insert(branch, name, name, Node::Computed(Box::new(expression)))
    }

    /// The `$slice` of find; what does not fit it is taken for the expression of that name.
    fn slice(
        &mut self,
        name: &str,
        syntax: RawDocument<'_>,
        operand: RawValue<'_>,
        branch: &mut Branch,
    ) -> Result<()> {
        let taken = parse_slice(operand).and_then(|slice| insert(branch, name, name, Node::Slice(slice)));
        let Err(why) = taken else {
            self.slice = true;
            return Ok(());
        };
        self.expression(name, "$slice", operand, branch).map_err(|cause| {
            Error::location(
                cause.code().0,
                format!(
                    "Invalid $slice syntax. The given syntax {} did not match the find() syntax because :: \
                     Location{}: {why} :: The given syntax did not match the expression $slice syntax. :: \
                     caused by :: {cause}",
                    display_document(syntax),
                    why.code().0,
                ),
            )
        })
    }

    fn elem_match(
        &mut self,
        name: &str,
        value: RawDocument<'_>,
        operand: RawValue<'_>,
        branch: &mut Branch,
        top: bool,
    ) -> Result<()> {
        if !matches!(operand, RawValue::Document(_)) {
            return Err(Error::location(
                31274,
                format!(
                    "elemMatch: Invalid argument, object required, but got {}",
                    operand.element_type().name()
                ),
            ));
        }
        if self.positional {
            return Err(Error::location(31255, "Cannot specify positional operator and $elemMatch."));
        }
        if !top || name.contains('.') {
            return Err(Error::location(31275, "Cannot use $elemMatch projection on a nested field."));
        }
        self.elem_match = true;
        let place = FilterPlace::elements(self.scope.collation());
        let mut predicates = Vec::new();
        parse_field(Path::parse(name), RawValue::Document(value), place, &mut predicates)?;
        let filter = Filter::And(predicates).simplified();
        insert(branch, name, name, Node::ElemMatch(Box::new(filter)))
    }
}

/// Refuses metadata that only searches by text or place give.
fn check_meta(operand: RawValue<'_>, scope: &Scope<'_>) -> Result<()> {
    match operand {
        RawValue::String(name) => check_available(name, scope.found_by()),
        _ => Ok(()),
    }
}

/// A number as `$slice` takes it, within 32 bits.
fn clamped(value: RawValue<'_>) -> Option<i32> {
    let limit = |number: i64| number.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    match number::rounded_i64(value)? {
        Ok(number) => Some(limit(number)),
        Err(_) => Some(number::to_f64(value) as i32),
    }
}

fn parse_slice(operand: RawValue<'_>) -> Result<Slice> {
    let RawValue::Array(list) = operand else {
        return match clamped(operand) {
            Some(limit) => Ok(Slice { skip: None, limit }),
            None => Err(Error::location(31273, "$slice only supports numbers and [skip, limit] arrays")),
        };
    };
    let items: Vec<RawValue<'_>> = list.iter().collect();
    let pair = match items[..] {
        [skip, limit] => clamped(skip).zip(clamped(limit)).filter(|(_, limit)| *limit > 0),
        _ => None,
    };
    match pair {
        Some((skip, limit)) => Ok(Slice { skip: Some(skip), limit }),
        None => Err(Error::location(31272, "$slice array argument should be of form [skip, limit]")),
    }
}

/// Puts a node at a path, which must neither extend nor be extended by another.
fn insert(branch: &mut Branch, full: &str, path: &str, node: Node) -> Result<()> {
    let positional = matches!(node, Node::Positional);
    let Some((first, rest)) = path.split_once('.') else {
        if branch.child(path).is_some() {
            return Err(collision(full));
        }
        branch.positional |= positional;
        branch.children.push((path.into(), node));
        return Ok(());
    };
    branch.positional |= positional;
    match descend(branch, first) {
        Some(nested) => insert(nested, full, rest, node),
        None => Err(extension(full)),
    }
}

/// The path goes on where another ends.
fn extension(path: &str) -> Error {
    let (_, tail) = path.split_once('.').unwrap_or_default();
    Error::location(31249, format!("Path collision at {path} remaining portion {tail}"))
}

/// The path ends where another goes on, or ends too.
fn collision(path: &str) -> Error {
    Error::location(31250, format!("Path collision at {path}"))
}

/// The branch of that name, made if new; nothing if the name is taken by something else.
pub(super) fn descend<'b>(branch: &'b mut Branch, name: &str) -> Option<&'b mut Branch> {
    let at = match branch.children.iter().position(|(child, _)| **child == *name) {
        Some(at) => at,
        None => {
            branch.children.push((name.into(), Node::Branch(Branch::default())));
            branch.children.len() - 1
        }
    };
    match &mut branch.children[at].1 {
        Node::Branch(nested) => Some(nested),
        _ => None,
    }
}

/// The branch that a nested projection fills.
fn branch_at<'b>(branch: &'b mut Branch, full: &str, path: &str) -> Result<&'b mut Branch> {
    match path.split_once('.') {
        None => descend(branch, path).ok_or_else(|| collision(full)),
        Some((first, rest)) => branch_at(descend(branch, first).ok_or_else(|| extension(full))?, full, rest),
    }
}

fn mark_positional(branch: &mut Branch, path: &str) {
    branch.positional = true;
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    if let Some(nested) = descend(branch, first)
        && !rest.is_empty()
    {
        mark_positional(nested, rest);
    }
}
