//! Updates: a pure function from a before-image to an after-image.
//!
//! An update is parsed once per statement into a tree with one node per path step (`tree`), applied to each
//! document by one walk over that tree (`walk`), and written by copying what it does not touch (`change`).
//! Each operator has its own file and its line in the table of `operator`. A pipeline computes the whole
//! document instead (`pipeline`).
//!
//! Invariant: applying reads nothing but the before-image and the [`Context`], so it can be repeated.

mod add_to_set;
mod arithmetic;
mod array;
mod array_filter;
mod bit;
mod bound;
mod change;
mod current_date;
mod delta;
mod description;
mod inc;
mod max;
mod min;
mod mul;
mod operator;
mod path;
mod pipeline;
mod pop;
mod pull;
mod pull_all;
mod push;
mod rename;
mod replacement;
mod set;
mod set_on_insert;
mod storage;
mod tree;
mod unset;
mod upsert;
mod walk;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use kilim_bson::{Document, Path, RawArray, RawDocument, RawValue, Timestamp, Value, identical};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use self::array_filter::ArrayFilter;
use self::delta::Delta;
pub use self::description::describe_difference;
pub use self::operator::Append;
use self::path::{Step, parse_path};
use self::pipeline::PipelineUpdate;
pub use self::storage::check_id;
pub(crate) use self::storage::is_deeper;
use self::tree::ObjectNode;
use self::walk::Walk;
use crate::expression::{Dependencies, Scope, Variables};
use crate::filter::Filter;
use crate::{interrupt, text};

/// A parsed update.
#[derive(Debug, Clone)]
pub struct Update {
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Replacement(Document),
    Pipeline(PipelineUpdate),
    Delta(Delta),
    Operators {
        tree: ObjectNode,
        filters: Vec<ArrayFilter>,
        /// Paths without `$`, `$[]`, `$[identifier]` and indexes.
        touched: Vec<Box<[Box<str>]>>,
        positional: bool,
    },
}

/// What an update depends on besides the document.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The array index that `$` stands for, from the filter's match.
    pub position: Option<usize>,
    /// A document is being inserted: `$setOnInsert` applies.
    pub inserting: bool,
    /// The present, in milliseconds since 1970, for `$currentDate`.
    pub now_millis: i64,
    /// The present for timestamps.
    pub timestamp: Timestamp,
}

/// What an update did.
#[derive(Debug, Clone)]
pub struct Applied {
    /// None where nothing changed.
    pub after: Option<Document>,
    /// What operators changed, as change events describe it, if that was asked for.
    pub description: Option<Document>,
}

impl Update {
    /// Parses the `u` of an update statement that knows no variables.
    pub fn parse(update: RawValue<'_>, array_filters: Option<RawArray<'_>>, multi: bool) -> Result<Update> {
        Update::parse_in(update, array_filters, multi, &Scope::new(&Variables::default()))
    }

    /// Parses the `u` of an update statement; a pipeline may use the variables of the scope, and all compare under its
    /// collation.
    pub fn parse_in(
        update: RawValue<'_>,
        array_filters: Option<RawArray<'_>>,
        multi: bool,
        scope: &Scope<'_>,
    ) -> Result<Update> {
        let failed = |message: &str| Err(Error::user(ErrorCode::FailedToParse, message));
        let document = match update {
            RawValue::Document(document) => document,
            RawValue::Array(_) if array_filters.is_some_and(|filters| !filters.is_empty()) => {
                return failed("arrayFilters may not be specified for pipeline-style updates");
            }
            RawValue::Array(stages) => {
                return Ok(Update { kind: Kind::Pipeline(PipelineUpdate::parse(stages, scope)?) });
            }
            _ => return failed("Update argument must be either an object or an array"),
        };
        let filters = array_filters
            .map_or_else(|| Ok(Vec::new()), |filters| ArrayFilter::parse_all(filters, scope.collation()))?;
        if is_operators(document) {
            return parse_operators(document, filters, scope.collation());
        }
        if multi {
            return failed("multi update is not supported for replacement-style update");
        }
        Ok(Update { kind: Kind::Replacement(document.to_document()) })
    }

    /// Parses an update as a log of MongoDB holds it: a difference, a replacement, or operators.
    pub fn parse_logged(update: RawDocument<'_>) -> Result<Update> {
        match update.get("$v") {
            Some(RawValue::Int32(2)) => {
                Ok(Update { kind: Kind::Delta(Delta::parse(delta::diff_of(update)?)?) })
            }
            _ => Update::parse(RawValue::Document(update), None, false),
        }
    }

    /// Whether it is written with operators, which name paths.
    pub fn is_operators(&self) -> bool {
        matches!(self.kind, Kind::Operators { .. })
    }

    /// Whether a path holds `$`, so that the filter's match must be known.
    pub fn requires_position(&self) -> bool {
        matches!(self.kind, Kind::Operators { positional: true, .. })
    }

    /// Whether applying this update may change what is found at a path. Array indexes are disregarded on both
    /// sides: `a.0.b` is touched by `a.$[].b`.
    pub fn may_touch(&self, path: &Path) -> bool {
        let Some(touched) = self.touched() else { return true };
        let names = || path.components().iter().filter(|step| !is_index(&step.name)).map(|step| &*step.name);
        touched.iter().any(|touched| {
            touched.iter().map(|name| &**name).zip(names()).all(|(ours, theirs)| ours == theirs)
        })
    }

    /// The paths that applying may change, without array indexes; none for a replacement, which may
    /// change all.
    pub fn touched_paths(&self) -> Option<Vec<Path>> {
        Some(self.touched()?.iter().map(|names| Path::parse(&names.join("."))).collect())
    }

    /// What a pipeline computes from; nothing for other updates.
    pub fn computes_from(&self) -> Dependencies {
        match &self.kind {
            Kind::Pipeline(pipeline) => pipeline.computes_from(),
            Kind::Replacement(_) | Kind::Delta(_) | Kind::Operators { .. } => Dependencies::default(),
        }
    }

    /// How it appends to the array of a field, where that is all it does to the field.
    pub fn appends(&self, field: &str) -> Option<Append> {
        let Kind::Operators { tree, .. } = &self.kind else { return None };
        match tree.children.iter().find(|(name, _)| **name == *field)? {
            (_, tree::Node::Leaf(operator)) => operator.appends(),
            _ => None,
        }
    }

    /// The value that a field gets by it, whatever was there.
    pub fn assigns(&self, field: &str) -> Option<RawValue<'_>> {
        let Kind::Operators { tree, .. } = &self.kind else { return None };
        match tree.children.iter().find(|(name, _)| **name == *field)? {
            (_, tree::Node::Leaf(operator)) => operator.assigns(),
            _ => None,
        }
    }

    /// Whether all it does is to remove elements from the array of a field, each for its own sake.
    pub fn only_removes_from(&self, field: &str) -> bool {
        let Kind::Operators { tree, .. } = &self.kind else { return false };
        match &tree.children[..] {
            [(name, tree::Node::Leaf(operator))] => **name == *field && operator.removes_elements(),
            _ => false,
        }
    }

    fn touched(&self) -> Option<&[Box<[Box<str>]>]> {
        match &self.kind {
            Kind::Replacement(_) | Kind::Delta(_) => None,
            Kind::Pipeline(pipeline) => pipeline.touched(),
            Kind::Operators { touched, .. } => Some(touched),
        }
    }

    pub fn apply(&self, before: RawDocument<'_>, context: &Context) -> Result<Applied> {
        self.apply_described(before, context, false)
    }

    /// Whether the whole document is replaced.
    pub fn is_replacement(&self) -> bool {
        matches!(self.kind, Kind::Replacement(_))
    }

    /// Applies the update; with `describe`, an update by operators says what it changed.
    pub fn apply_described(
        &self,
        before: RawDocument<'_>,
        context: &Context,
        describe: bool,
    ) -> Result<Applied> {
        let mut description = None;
        let after = match &self.kind {
            Kind::Replacement(replacement) => replacement::apply(replacement.as_raw(), before, context)?,
            Kind::Pipeline(pipeline) => pipeline.apply(before)?,
            Kind::Delta(delta) => apply_delta(delta, before)?,
            Kind::Operators { tree, filters, .. } => {
                let described = describe.then_some(&mut description);
                Walk::new(before, filters, context).run(tree, described)?
            }
        };
        // A filter on elements may have ended early: what it said is not to be written.
        interrupt::settled()?;
        Ok(Applied { after, description })
    }

    /// The document to insert where the filter matched none.
    pub fn document_for_upsert(&self, filter: &Filter, context: &Context) -> Result<Document> {
        let context = Context { inserting: true, ..*context };
        let mut sorted = filter.clone();
        // In mongod's order, which decides what a contradictory filter is reported for.
        sorted.sort();
        let filter = &sorted;
        let (document, id) = match &self.kind {
            Kind::Replacement(replacement) => {
                let id = upsert::id_from_filter(filter)?;
                let document = replacement::insert(replacement.as_raw(), id.map(Value::as_raw), &context)?;
                let id = document.get("_id").map(RawValue::to_value);
                (document, id)
            }
            Kind::Pipeline(pipeline) => {
                return pipeline.insert(upsert::document_from(&upsert::equalities(filter)?)?);
            }
            Kind::Operators { .. } | Kind::Delta(_) => {
                let equalities = upsert::equalities(filter)?;
                let before = upsert::document_from(&equalities)?;
                let after = self.apply(before.as_raw(), &context)?.after.unwrap_or(before);
                (after, equalities.get("_id").map(|id| (*id).clone()))
            }
        };
        // An `_id` that `$set` made has been checked, one made of single fields of the filter need not be.
        if let Some(id) = id {
            storage::check_id(id.as_raw())?;
        }
        if let Kind::Operators { .. } = self.kind
            && let Some(RawValue::Array(array)) = document.get("_id")
        {
            // An empty one is refused as a value, since no element was added to it.
            return if array.is_empty() {
                Err(storage::id_of_type("array"))
            } else {
                Err(storage::array_as_id("field"))
            };
        }
        upsert::with_id_first(document.as_raw())
    }
}

/// The document after a difference, or none where nothing changed.
fn apply_delta(delta: &Delta, before: RawDocument<'_>) -> Result<Option<Document>> {
    let after = delta.apply(before);
    if after.as_bytes() == before.as_bytes() {
        return Ok(None);
    }
    match (before.get("_id"), after.get("_id")) {
        (Some(id), Some(now)) if identical(id, now) => Ok(Some(after)),
        (None, _) => Ok(Some(after)),
        _ => Err(storage::id_would_change("_id")),
    }
}

/// Every update operator with a line on what it does, by name.
pub fn operators() -> impl Iterator<Item = (&'static str, &'static str)> {
    operator::OPERATORS.iter().map(|kind| (kind.name, kind.help))
}

fn is_operators(update: RawDocument<'_>) -> bool {
    update.iter().next().is_some_and(|(name, _)| name.starts_with('$'))
}

fn is_index(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse_operators(
    update: RawDocument<'_>,
    filters: Vec<ArrayFilter>,
    collation: &Option<Collation>,
) -> Result<Update> {
    let mut parsing = Parsing { filters, ..Parsing::default() };
    for (name, fields) in update {
        let Some(kind) = operator::find(name) else {
            let message = format!(
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style update specified as \
                 an array"
            );
            return Err(Error::user(ErrorCode::FailedToParse, message));
        };
        let RawValue::Document(fields) = fields else {
            let message = format!(
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: {{<field>: ...}}}} \
                 not {{{}}}",
                fields.element_type().name(),
                text::element(name, fields)
            );
            return Err(Error::user(ErrorCode::FailedToParse, message));
        };
        for (path, argument) in fields {
            if kind.name == "$rename" {
                parsing.insert(path, |_| Ok(Arc::new(rename::RenamedAway)))?;
                let target = rename::target(path, argument)?;
                parsing.insert(target, |_| (kind.parse)(path, argument, collation))?;
            } else {
                parsing.insert(path, |path| (kind.parse)(path, argument, collation))?;
            }
        }
    }
    if let Some(unused) = parsing.filters.iter().find(|filter| !parsing.used.contains(&filter.identifier)) {
        let message = format!(
            "The array filter for identifier '{}' was not used in the update {}",
            unused.identifier,
            text::document(update)
        );
        return Err(Error::user(ErrorCode::FailedToParse, message));
    }
    let Parsing { tree, filters, touched, positional, .. } = parsing;
    Ok(Update { kind: Kind::Operators { tree, filters, touched, positional } })
}

#[derive(Default)]
struct Parsing {
    tree: ObjectNode,
    filters: Vec<ArrayFilter>,
    /// Identifiers that a path has named.
    used: Vec<Box<str>>,
    touched: Vec<Box<[Box<str>]>>,
    positional: bool,
}

impl Parsing {
    fn insert(
        &mut self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<Arc<dyn operator::Operator>>,
    ) -> Result<()> {
        let steps = parse_path(path)?;
        let operator = parse(path)?;
        for step in &steps {
            match step {
                Step::Elements(identifier) if !identifier.is_empty() => {
                    if !self.filters.iter().any(|filter| *filter.identifier == **identifier) {
                        let message =
                            format!("No array filter found for identifier '{identifier}' in path '{path}'");
                        return Err(Error::user(ErrorCode::BadValue, message));
                    }
                    self.used.push((*identifier).into());
                }
                Step::Positional => self.positional = true,
                _ => {}
            }
        }
        self.tree.insert(&steps, path, operator)?;
        let name = |step: &Step<'_>| match step {
            Step::Field(name) if !is_index(name) => Some((*name).into()),
            _ => None,
        };
        self.touched.push(steps.iter().filter_map(name).collect());
        Ok(())
    }
}
