//! Applying the update tree to one document.
//!
//! The walk follows the tree, not the document: each child in turn looks for its field, so errors appear and
//! fields are added in mongod's order. It only reads; the changes it returns are written afterwards.
//!
//! Several nodes may lead to one place once `$`, `$[]` and `$[identifier]` are resolved. They are carried
//! along as a list and must stay disjoint.

use std::borrow::Cow;

use kilim_bson::{Document, RawArray, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};

use super::array_filter::ArrayFilter;
use super::change::{self, BUILT_BYTES_MAX, Change, FieldChange};
use super::description::Described;
use super::operator::{Missing, Operator, Site};
use super::path::array_index;
use super::tree::{ArrayNode, Node, ObjectNode, check_disjoint, compare_names, conflict_in_document, join};
use super::{Context, storage};
use crate::{interrupt, text};

/// How many nulls may be put between the end of an array and a new element: a slip of the keyboard
/// should not fill the document.
const BACKFILL_MAX: usize = 1_500_000;

pub(super) struct Walk<'a, 'w> {
    root: RawDocument<'a>,
    context: &'w Context,
    filters: &'a [ArrayFilter],
    path: Vec<String>,
    /// How many steps lead to the value in which a path could not be made, once that has failed.
    blocked_at: Option<usize>,
    /// Bytes of new values that operators have built, watched because one operator may apply to many elements.
    built_bytes: usize,
}

/// What stands where the walk is.
#[derive(Clone, Copy)]
enum Spot<'a> {
    Value(RawValue<'a>),
    /// Nothing: the path ends after `depth` steps, in `parent`.
    Gap {
        parent: RawValue<'a>,
        depth: usize,
    },
}

type Children<'a> = Vec<(Cow<'a, str>, Vec<&'a Node>)>;

impl<'a, 'w> Walk<'a, 'w> {
    pub fn new(root: RawDocument<'a>, filters: &'a [ArrayFilter], context: &'w Context) -> Walk<'a, 'w> {
        Walk { root, context, filters, path: Vec::new(), blocked_at: None, built_bytes: 0 }
    }

    /// The document after the update, or none where nothing changed.
    /// With `describe`, it is put there what changed.
    pub fn run(
        mut self,
        tree: &'a ObjectNode,
        describe: Option<&mut Option<Document>>,
    ) -> Result<Option<Document>> {
        match self.object(&[tree], Spot::Value(RawValue::Document(self.root)))? {
            Change::Fields(fields) => {
                let after = change::write_after(self.root, &fields)?;
                if let Some(description) = describe {
                    let described = Described::of_changes(self.root, after.as_raw(), &fields);
                    *description = Some(described.into_document());
                }
                Ok(Some(after))
            }
            _ => Ok(None),
        }
    }

    fn node(&mut self, nodes: &[&'a Node], spot: Spot<'a>) -> Result<Change<'a>> {
        for (index, node) in nodes.iter().enumerate() {
            nodes[..index].iter().try_for_each(|other| check_disjoint(other, node, &self.path_text()))?;
        }
        match nodes {
            [Node::Leaf(operator)] => self.leaf(&**operator, spot),
            [Node::Object(object)] => self.object(&[object], spot),
            [Node::Array(array)] => self.array(&[array], spot),
            nodes => {
                let objects: Vec<&ObjectNode> = nodes.iter().filter_map(|node| node.as_object()).collect();
                if !objects.is_empty() {
                    return self.object(&objects, spot);
                }
                let arrays: Vec<&ArrayNode> = nodes.iter().filter_map(|node| node.as_array()).collect();
                self.array(&arrays, spot)
            }
        }
    }

    fn child(&mut self, name: &str, nodes: &[&'a Node], spot: Spot<'a>) -> Result<Change<'a>> {
        self.path.push(name.to_owned());
        let change = self.node(nodes, spot);
        self.path.pop();
        change
    }

    fn object(&mut self, nodes: &[&'a ObjectNode], spot: Spot<'a>) -> Result<Change<'a>> {
        let children = self.children(nodes)?;
        match spot {
            Spot::Value(RawValue::Document(document)) => self.fields(children, document),
            Spot::Value(RawValue::Array(array)) => self.elements(children, array),
            Spot::Value(parent) => {
                let depth = self.path.len();
                self.new_fields(children, Spot::Gap { parent, depth })
            }
            gap => self.new_fields(children, gap),
        }
    }

    /// The children of all nodes by name, in the order of application, `$` resolved.
    fn children(&self, nodes: &[&'a ObjectNode]) -> Result<Children<'a>> {
        let mut children: Children<'a> = Vec::new();
        let mut add =
            |name: Cow<'a, str>, node: &'a Node| match children.iter_mut().find(|child| child.0 == name) {
                Some((_, nodes)) => nodes.push(node),
                None => {
                    let at = children.partition_point(|child| compare_names(&child.0, &name).is_lt());
                    children.insert(at, (name, vec![node]));
                }
            };
        for node in nodes {
            node.children.iter().for_each(|(name, child)| add(Cow::Borrowed(name), child));
        }
        for positional in nodes.iter().filter_map(|node| node.positional.as_deref()) {
            let Some(position) = self.context.position else {
                let message = "The positional operator did not find the match needed from the query.";
                return Err(Error::user(ErrorCode::BadValue, message));
            };
            add(Cow::Owned(position.to_string()), positional);
        }
        Ok(children)
    }

    fn fields(&mut self, children: Children<'a>, document: RawDocument<'a>) -> Result<Change<'a>> {
        let gap = Spot::Gap { parent: RawValue::Document(document), depth: self.path.len() };
        let mut changes = Vec::new();
        for (name, nodes) in children {
            let found = document.get(&name);
            let change = self.child(&name, &nodes, found.map_or(gap, Spot::Value))?;
            if !change.is_keep() {
                changes.push(FieldChange { name, exists: found.is_some(), change });
            }
        }
        Ok(if changes.is_empty() { Change::Keep } else { Change::Fields(changes) })
    }

    /// Fields of a document that is not there either, or that cannot be.
    fn new_fields(&mut self, children: Children<'a>, gap: Spot<'a>) -> Result<Change<'a>> {
        let mut changes = Vec::new();
        for (name, nodes) in children {
            let change = self.child(&name, &nodes, gap)?;
            if !change.is_keep() {
                changes.push(FieldChange { name, exists: false, change });
            }
        }
        Ok(if changes.is_empty() { Change::Keep } else { Change::Fields(changes) })
    }

    /// Elements of an array, addressed by index.
    fn elements(&mut self, children: Children<'a>, array: RawArray<'a>) -> Result<Change<'a>> {
        let gap = Spot::Gap { parent: RawValue::Array(array), depth: self.path.len() };
        let mut length = array.len();
        let mut changes: Vec<(usize, Change<'a>)> = Vec::new();
        for (name, nodes) in children {
            let index = array_index(&name);
            let found = index.and_then(|index| array.get(index));
            let change = match self.child(&name, &nodes, found.map_or(gap, Spot::Value)) {
                Err(error) if self.blocked_at == Some(self.path.len()) => {
                    return Err(self.as_changed_so_far(error, array, changes));
                }
                change => change?,
            };
            let Some(index) = index.filter(|_| !change.is_keep()) else { continue };
            if changes.iter().any(|(other, _)| *other == index) {
                // `1` and `01` lead to the same element.
                return Err(conflict_in_document(&join(&self.path_text(), &index.to_string())));
            }
            if index.saturating_sub(length) > BACKFILL_MAX {
                let message = format!("can't backfill more than {BACKFILL_MAX} elements");
                return Err(Error::user(ErrorCode::CannotBackfillArray, message));
            }
            length = length.max(index + 1);
            changes.push((index, change));
        }
        changes.sort_by_key(|(index, _)| *index);
        Ok(if changes.is_empty() { Change::Keep } else { Change::Elements(changes) })
    }

    /// Where a later child cannot be made in an array, mongod's message shows the array with what the earlier
    /// children have done to it.
    fn as_changed_so_far(
        &self,
        error: Error,
        array: RawArray<'a>,
        changes: Vec<(usize, Change<'a>)>,
    ) -> Error {
        let name = self.name_at(self.path.len());
        let mut before = Document::new();
        before.push(name, array);
        let field =
            FieldChange { name: Cow::Borrowed(name), exists: true, change: Change::Elements(changes) };
        let (Error::User(mut user), Ok(after)) =
            (error.clone(), change::write_after(before.as_raw(), &[field]))
        else {
            return error;
        };
        let shown = after.get(name).map(|array| text::element(name, array)).unwrap_or_default();
        user.message = user.message.replace(&text::element(name, RawValue::Array(array)), &shown);
        Error::User(user)
    }

    /// Elements of an array, chosen by `$[]` and array filters.
    fn array(&mut self, nodes: &[&'a ArrayNode], spot: Spot<'a>) -> Result<Change<'a>> {
        let array = match spot {
            Spot::Value(RawValue::Array(array)) => array,
            Spot::Value(value) => {
                let name = self.path.last().map_or("", String::as_str);
                let element = text::element(name, value);
                let message = format!("Cannot apply array updates to non-array element {element}");
                return Err(Error::user(ErrorCode::BadValue, message));
            }
            Spot::Gap { .. } => {
                let path = self.path_text();
                let message =
                    format!("The path '{path}' must exist in the document in order to apply array updates.");
                return Err(Error::user(ErrorCode::BadValue, message));
            }
        };
        let filters = self.filters;
        let chosen = |identifier: &str, element: RawValue<'_>| {
            let mut named = filters.iter().filter(|filter| *filter.identifier == *identifier);
            identifier.is_empty() || named.any(|filter| filter.matches(element))
        };
        let mut changes = Vec::new();
        for (index, element) in array.iter().enumerate() {
            interrupt::tick()?;
            let children = nodes.iter().flat_map(|node| &node.children);
            let matching: Vec<&Node> =
                children.filter(|(name, _)| chosen(name, element)).map(|(_, node)| node).collect();
            if matching.is_empty() {
                continue;
            }
            let change = self.child(&index.to_string(), &matching, Spot::Value(element))?;
            if !change.is_keep() {
                changes.push((index, change));
            }
        }
        Ok(match changes.len() {
            0 => Change::Keep,
            1 => Change::Elements(changes),
            // As mongod records it: of several elements, the whole array.
            _ => Change::Several(changes),
        })
    }

    fn leaf(&mut self, operator: &'a dyn Operator, spot: Spot<'a>) -> Result<Change<'a>> {
        let site = Site { root: self.root, path: &self.path, context: self.context };
        let change = match spot {
            Spot::Value(value) => {
                let change = operator.update(value, &site)?;
                if change.is_keep() {
                    return Ok(change);
                }
                self.check_id_kept()?;
                if let ([name], Some(_)) = (&*self.path, change.new_value()) {
                    self.check_top_level_name(name)?;
                }
                change
            }
            Spot::Gap { parent, depth } => match operator.missing(&site)? {
                Missing::Ignore => return Ok(Change::Keep),
                Missing::Check => {
                    if self.is_viable(parent, depth) {
                        return Ok(Change::Keep);
                    }
                    self.blocked_at = Some(depth);
                    return Err(self.cannot_traverse(parent, depth));
                }
                Missing::Create(change) => {
                    if !self.is_viable(parent, depth) {
                        self.blocked_at = Some(depth);
                        return Err(self.cannot_create(parent, depth));
                    }
                    self.check_id_not_extended(parent, depth, &change)?;
                    if depth == 0 {
                        self.check_top_level_name(&self.path[0])?;
                    }
                    change
                }
            },
        };
        if let Some(value) = change.new_value() {
            if *self.path == ["_id"] {
                match change {
                    // An array that an operator built is refused when all is done.
                    Change::SetOwned(Value::Array(_)) | Change::Appended { .. } => {}
                    _ => storage::check_id(value)?,
                }
            }
            storage::check_depth(value, self.path.len())?;
        }
        self.watch_built_bytes(&change)?;
        Ok(change)
    }

    /// Whether the missing rest of the path could be made in `parent`.
    fn is_viable(&self, parent: RawValue<'_>, depth: usize) -> bool {
        match parent {
            RawValue::Document(_) => true,
            RawValue::Array(_) => array_index(&self.path[depth]).is_some(),
            _ => false,
        }
    }

    fn cannot_create(&self, parent: RawValue<'_>, depth: usize) -> Error {
        let element = text::element(self.name_at(depth), parent);
        let message = format!("Cannot create field '{}' in element {{{element}}}", self.path[depth]);
        Error::user(ErrorCode::PathNotViable, message)
    }

    fn cannot_traverse(&self, parent: RawValue<'_>, depth: usize) -> Error {
        let element = text::element(self.name_at(depth), parent);
        let message = format!(
            "Cannot use the part ({}) of ({}) to traverse the element ({{{element}}})",
            self.path[depth],
            self.path_text()
        );
        Error::user(ErrorCode::PathNotViable, message)
    }

    /// The name of the value that the first `depth` steps lead to.
    fn name_at(&self, depth: usize) -> &str {
        depth.checked_sub(1).map_or("", |last| &self.path[last])
    }

    /// Refuses a top-level name that looks like an operator. A document that is being inserted may have one, as it may by an
    /// insert.
    fn check_top_level_name(&self, name: &str) -> Result<()> {
        if self.context.inserting { Ok(()) } else { storage::check_top_level_name(name) }
    }

    /// An `_id` that is there stays as it is.
    fn check_id_kept(&self) -> Result<()> {
        if self.path[0] == "_id" { Err(storage::id_would_change(&self.path_text())) } else { Ok(()) }
    }

    fn check_id_not_extended(&self, parent: RawValue<'a>, depth: usize, change: &Change<'a>) -> Result<()> {
        if self.path[0] != "_id" || depth == 0 {
            return Ok(());
        }
        let name = self.name_at(depth);
        let element = match self.extended(name, parent, depth, change) {
            Some(value) => text::element(name, value.as_raw()),
            None => text::element(name, parent),
        };
        let path = self.path[..depth].join(".");
        let message =
            format!("Updating the path '{path}' to {element} would modify the immutable field '_id'");
        Err(Error::user(ErrorCode::ImmutableField, message))
    }

    /// `parent` as it would be with the missing path made in it, for the message.
    fn extended(&self, name: &str, parent: RawValue<'a>, depth: usize, change: &Change<'a>) -> Option<Value> {
        let new = |name: &str, change| {
            Change::Fields(vec![FieldChange { name: Cow::Owned(name.to_owned()), exists: false, change }])
        };
        let leaf = Change::SetOwned(change.new_value()?.to_value());
        let inner = self.path[depth + 1..].iter().rev().fold(leaf, |change, name| new(name, change));
        let change = match parent {
            RawValue::Array(_) => Change::Elements(vec![(array_index(&self.path[depth])?, inner)]),
            _ => new(&self.path[depth], inner),
        };
        let mut wrapped = Document::new();
        wrapped.push(name, parent);
        let field = FieldChange { name: Cow::Borrowed(name), exists: true, change };
        let after = change::write_after(wrapped.as_raw(), &[field]).ok()?;
        after.get(name).map(RawValue::to_value)
    }

    fn watch_built_bytes(&mut self, change: &Change<'_>) -> Result<()> {
        if let Change::SetOwned(value) | Change::Appended { array: value, .. } = change {
            self.built_bytes += match value {
                Value::Array(array) => array.as_raw().as_bytes().len(),
                _ => 16,
            };
        }
        match self.built_bytes > BUILT_BYTES_MAX {
            true => Err(change::too_large_to_build(self.built_bytes, "")),
            false => Ok(()),
        }
    }

    fn path_text(&self) -> String {
        self.path.join(".")
    }
}
