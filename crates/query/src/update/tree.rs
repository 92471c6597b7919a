//! The update tree: one node per path step, an operator at each leaf.
//!
//! All operators of an update meet in one tree, so two that touch the same place are found when the update
//! is parsed, and a document is walked once. Children are kept in the order in which mongod applies them,
//! which decides where new fields are added.

use std::cmp::Ordering;
use std::sync::Arc;

use kilim_error::{Error, ErrorCode, Result};

use super::operator::Operator;
use super::path::Step;

#[derive(Debug, Clone)]
pub(super) enum Node {
    Leaf(Arc<dyn Operator>),
    Object(ObjectNode),
    Array(ArrayNode),
}

/// A step into a document field or, where the document has an array there, into an element by index.
#[derive(Debug, Clone, Default)]
pub(super) struct ObjectNode {
    pub children: Vec<(Box<str>, Node)>,
    /// What `$` leads to: the name is known only once a document has matched.
    pub positional: Option<Box<Node>>,
}

/// A step into some elements of an array, by array filter identifier; the empty one is `$[]`.
#[derive(Debug, Clone, Default)]
pub(super) struct ArrayNode {
    pub children: Vec<(Box<str>, Node)>,
}

impl Node {
    pub fn as_object(&self) -> Option<&ObjectNode> {
        match self {
            Node::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&ArrayNode> {
        match self {
            Node::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl ObjectNode {
    /// Puts an operator at the end of a path.
    pub fn insert(&mut self, steps: &[Step<'_>], path: &str, operator: Arc<dyn Operator>) -> Result<()> {
        // How many bytes of the path lead to the node at hand, for the message.
        let mut reached = 0;
        let mut at = InsertionPoint::Object(self);
        for (step, next) in steps.iter().zip(&steps[1..]) {
            reached += step_text(step).len() + usize::from(reached > 0);
            let array = matches!(next, Step::Elements(_));
            let child = at.child(*step, || match array {
                true => Node::Array(ArrayNode::default()),
                false => Node::Object(ObjectNode::default()),
            });
            at = match (child, array) {
                (Node::Object(object), false) => InsertionPoint::Object(object),
                (Node::Array(array), true) => InsertionPoint::Array(array),
                _ => return Err(conflict(path, &path[..reached])),
            };
        }
        let last = steps[steps.len() - 1];
        if at.has(last) {
            return Err(conflict(path, path));
        }
        at.child(last, || Node::Leaf(operator));
        Ok(())
    }
}

/// Where an insertion stands.
enum InsertionPoint<'n> {
    Object(&'n mut ObjectNode),
    Array(&'n mut ArrayNode),
}

impl<'n> InsertionPoint<'n> {
    fn has(&self, step: Step<'_>) -> bool {
        let named =
            |children: &[(Box<str>, Node)], name: &str| children.iter().any(|(child, _)| **child == *name);
        match (self, step) {
            (InsertionPoint::Object(object), Step::Positional) => object.positional.is_some(),
            (InsertionPoint::Object(object), Step::Field(name)) => named(&object.children, name),
            (InsertionPoint::Array(array), Step::Elements(identifier)) => named(&array.children, identifier),
            _ => false,
        }
    }

    /// The child that a step leads to, made where it is missing.
    fn child(self, step: Step<'_>, make: impl FnOnce() -> Node) -> &'n mut Node {
        match (self, step) {
            (InsertionPoint::Object(object), Step::Positional) => {
                object.positional.get_or_insert_with(|| Box::new(make()))
            }
            (InsertionPoint::Object(object), Step::Field(name) | Step::Elements(name)) => {
                child_named(&mut object.children, name, make)
            }
            (InsertionPoint::Array(array), step) => child_named(&mut array.children, step_name(&step), make),
        }
    }
}

fn child_named<'n>(
    children: &'n mut Vec<(Box<str>, Node)>,
    name: &str,
    make: impl FnOnce() -> Node,
) -> &'n mut Node {
    let at = match children.iter().position(|(child, _)| **child == *name) {
        Some(at) => at,
        None => insert_sorted(children, name, make()),
    };
    &mut children[at].1
}

fn insert_sorted(children: &mut Vec<(Box<str>, Node)>, name: &str, node: Node) -> usize {
    let at = children.partition_point(|(child, _)| compare_names(child, name) == Ordering::Less);
    children.insert(at, (name.into(), node));
    at
}

/// Numbers by value, everything else by bytes. A number with a leading zero is no number.
pub(super) fn compare_names(left: &str, right: &str) -> Ordering {
    let number = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_digit()) && (name.len() == 1 || !name.starts_with('0'))
    };
    match number(left) && number(right) {
        true => left.len().cmp(&right.len()).then_with(|| left.cmp(right)),
        false => left.cmp(right),
    }
}

/// Refuses two nodes that turn out to lead to the same place in this document, if they cannot share it.
pub(super) fn check_disjoint(left: &Node, right: &Node, path: &str) -> Result<()> {
    match (left, right) {
        (Node::Object(left), Node::Object(right)) => {
            if let (Some(left), Some(right)) = (&left.positional, &right.positional) {
                check_disjoint(left, right, &join(path, "$"))?;
            }
            check_children(&left.children, &right.children, |name| join(path, name))
        }
        (Node::Array(left), Node::Array(right)) => {
            check_children(&left.children, &right.children, |name| join(path, &format!("$[{name}]")))
        }
        _ => Err(conflict_in_document(path)),
    }
}

fn check_children(
    left: &[(Box<str>, Node)],
    right: &[(Box<str>, Node)],
    path: impl Fn(&str) -> String,
) -> Result<()> {
    for (name, node) in right {
        if let Some((_, other)) = left.iter().find(|(child, _)| child == name) {
            check_disjoint(other, node, &path(name))?;
        }
    }
    Ok(())
}

pub(super) fn conflict_in_document(path: &str) -> Error {
    let message = format!("Update created a conflict at '{path}'");
    Error::user(ErrorCode::ConflictingUpdateOperators, message)
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn step_name<'p>(step: &Step<'p>) -> &'p str {
    match step {
        Step::Field(name) | Step::Elements(name) => name,
        Step::Positional => "$",
    }
}

fn step_text(step: &Step<'_>) -> String {
    match step {
        Step::Elements(identifier) => format!("$[{identifier}]"),
        step => step_name(step).to_owned(),
    }
}

fn conflict(path: &str, at: &str) -> Error {
    Error::user(
        ErrorCode::ConflictingUpdateOperators,
        format!("Updating the path '{path}' would create a conflict at '{at}'"),
    )
}
