//! `$setWindowFields`: fields computed from the documents around each document, in partitions and in order.
//!
//! As on mongod it becomes several stages: a `$sort` by partition and sort fields, and the stage proper, which sees
//! partitions one behind the other. A partition that is not a field is made one before and taken away behind.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use kilim_bson::{Collator, Document, RawDocument, RawValue, Value};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, ErrorCode, Result};

use super::field::{given, missing, specification, unknown, wrong_type};
use super::{AddFields, Behaviour, Beyond, Context, Project, SortBy, Stage};
use crate::expression::{Dependencies, Expression, FieldPath, Scope};
use crate::path::check_field_path;
use crate::projection::Projection;
use crate::sort::Sort;
use crate::window::WindowFunction;

/// Computes over partitions that come one behind the other, each in order.
#[derive(Debug, Clone)]
pub struct SetWindowFields {
    /// What is equal in all documents of a partition; none where there is one partition.
    pub partition: Option<Expression>,
    /// The order within a partition, as it was written.
    pub sort: Option<Arc<Sort>>,
    pub output: Vec<(Box<str>, WindowFunction)>,
    /// Puts the values of the output into a document, in the same order.
    pub projection: Projection,
    /// Of the documents that leave it, later stages read the output alone.
    pub only_output_is_read: bool,
    /// Which texts are one partition.
    collation: Option<Collation>,
}

pub(super) fn parse(
    name: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let spec = specification(name, value)?;
    let (mut partition, mut sort, mut output) = (None, None, None);
    for (field, value) in given(spec) {
        let path = || format!("{name}.{field}");
        match (field, value) {
            ("partitionBy", value) => partition = Some(value),
            ("sortBy", RawValue::Document(by)) => sort = Some(by),
            ("output", RawValue::Document(fields)) => output = Some(fields),
            ("sortBy" | "output", value) => return Err(wrong_type(&path(), value, "type 'object'")),
            _ => return Err(unknown(&path())),
        }
    }
    let output = output.ok_or_else(|| missing(&format!("{name}.output")))?;
    let partition = partition.map(|partition| Expression::parse(partition, context.scope)).transpose()?;
    let sort = sort.map(|sort| parse_sort(sort, context.scope)).transpose()?;
    let mut fields = Vec::new();
    for (field, value) in output {
        check_field_path(field)?;
        fields.push((field.into(), WindowFunction::parse(field, value, sort.as_ref(), context.scope)?));
    }
    SetWindowFields::push(partition, sort, fields, context, out)
}

fn parse_sort(by: RawDocument<'_>, scope: &Scope<'_>) -> Result<Sort> {
    if by.get("$natural").is_some() {
        return Err(Error::location(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    Sort::parse_in(by, scope)
}

impl SetWindowFields {
    /// Appends the stages that these fields stand for.
    pub(super) fn push(
        partition: Option<Expression>,
        sort: Option<Sort>,
        output: Vec<(Box<str>, WindowFunction)>,
        context: &Context<'_>,
        out: &mut Vec<Stage>,
    ) -> Result<()> {
        check_paths(&output)?;
        let partition = match partition {
            None => None,
            Some(partition) => {
                let folded = partition
                    .optimised()
                    .map_err(|error| error.during("Failed to optimize partitionBy expression"))?;
                if let Some(constant) = folded.as_constant() {
                    check_partition(constant.as_raw())?;
                }
                Some(folded).filter(|folded| folded.as_constant().is_none())
            }
        };
        // A partition that no path leads to gets a name that no document has.
        let (partition, made) = match partition {
            Some(expression) if expression.as_field().is_none() => {
                let name = format!("__partition_{:016x}", RandomState::new().build_hasher().finish());
                out.push(Stage::AddFields(AddFields::of(Projection::adding(&name, expression))));
                (Some(Expression::Field(FieldPath::parse(&name)?)), Some(name))
            }
            partition => (partition, None),
        };
        let by = order(partition.as_ref().and_then(Expression::as_field), sort.as_ref());
        if !by.is_empty() {
            let sort = Arc::new(Sort::parse_in(by.as_raw(), context.scope)?);
            out.push(Stage::Sort(SortBy::new(sort)));
        }
        let projection = Projection::of_variables(output.iter().map(|(path, _)| &**path))?;
        let sort = sort.filter(|sort| !sort.is_empty()).map(Arc::new);
        let collation = context.scope.collation().clone();
        let stage =
            SetWindowFields { partition, sort, output, projection, only_output_is_read: false, collation };
        out.push(Stage::SetWindowFields(Arc::new(stage)));
        if let Some(name) = made {
            let without: Document = [(&*name, Value::Bool(false))].into_iter().collect();
            out.push(Stage::Project(Project::parse("$project", without.as_raw(), context)?));
        }
        Ok(())
    }

    /// How texts of partitions compare.
    pub fn collator(&self) -> Option<&dyn Collator> {
        collator(&self.collation)
    }

    /// The order in which documents leave it, as a `$sort` would say it.
    pub(super) fn order(&self) -> Document {
        order(self.partition.as_ref().and_then(Expression::as_field), self.sort.as_deref())
    }

    /// Whether what is read of its documents lies in its output, which is made of fields and not of parts of fields.
    pub fn gives_all_of(&self, needed: &Dependencies) -> bool {
        let given = |path: &str| {
            let field = path.split('.').next().unwrap_or(path);
            self.output.iter().any(|(output, _)| **output == *field)
        };
        let whole_fields = self.output.iter().all(|(output, _)| !output.contains('.'));
        whole_fields && !needed.whole_document && needed.fields.iter().all(|path| given(path))
    }

    /// Whether no more rows than this wait for each other.
    pub fn holds_at_most(&self, rows: u64) -> bool {
        self.output
            .iter()
            .all(|(_, function)| function.frame().documents().is_some_and(|count| count <= rows))
    }

    /// Whether it writes to a path, above it or below it.
    pub(super) fn writes(&self, path: &str) -> bool {
        self.output.iter().any(|(output, _)| overlap(output, path))
    }

    /// Fails where a part that is always evaluated the same way always fails.
    pub(super) fn check_folded(&self) -> Result<()> {
        self.output.iter().try_for_each(|(_, function)| function.check_folded())
    }

    pub(super) fn wants_index_key(&self) -> bool {
        self.output.iter().any(|(_, function)| function.wants_index_key())
    }
}

/// Refuses a partition that is an array: which of its elements it is sorted by says nothing of the others.
pub fn check_partition(value: RawValue<'_>) -> Result<()> {
    match value {
        RawValue::Array(_) => Err(Error::user(
            ErrorCode::TypeMismatch,
            "An expression used to partition cannot evaluate to value of type array",
        )),
        _ => Ok(()),
    }
}

/// Partition first, then the sort fields that are not the partition, which decide on its direction.
fn order(partition: Option<&FieldPath>, sort: Option<&Sort>) -> Document {
    let mut by = Document::new();
    let parts = sort.map_or(&[][..], Sort::parts);
    let direction = |descending: bool| if descending { -1 } else { 1 };
    if let Some(partition) = partition {
        let same = parts.iter().find(|part| part.path.as_str() == partition.as_str());
        by.push(partition.as_str(), direction(same.is_some_and(|part| part.descending)));
    }
    for part in parts.iter().filter(|part| partition.is_none_or(|it| it.as_str() != part.path.as_str())) {
        by.push(part.path.as_str(), direction(part.descending));
    }
    by
}

fn check_paths(output: &[(Box<str>, WindowFunction)]) -> Result<()> {
    for (at, (path, _)) in output.iter().enumerate() {
        if output[..at].iter().any(|(other, _)| overlap(other, path)) {
            return Err(Error::location(
                6_307_900,
                "$setWindowFields 'output' specification contains two conflicting paths",
            ));
        }
    }
    Ok(())
}

/// Whether one path is the other, or lies below it.
fn overlap(one: &str, other: &str) -> bool {
    let below = |path: &str, above: &str| {
        path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    below(one, other) || below(other, one)
}

impl Behaviour for SetWindowFields {
    fn to_document(&self) -> Document {
        let mut stage = Document::new();
        if let Some(partition) = &self.partition {
            stage.push("partitionBy", partition.to_value());
        }
        if let Some(sort) = &self.sort {
            stage.push("sortBy", sort_document(sort));
        }
        let output: Document = self
            .output
            .iter()
            .map(|(path, function)| (&**path, Value::Document(function.to_document())))
            .collect();
        stage.push("output", output);
        [("$_internalSetWindowFields", Value::Document(stage))].into_iter().collect()
    }

    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        if let Some(partition) = &self.partition {
            partition.dependencies(needed);
        }
        for part in self.sort.iter().flat_map(|sort| sort.parts()) {
            needed.field(part.path.as_str());
        }
        self.output.iter().for_each(|(_, function)| function.dependencies(needed));
        self.projection.dependencies(needed)
    }
}

fn sort_document(sort: &Sort) -> Document {
    let parts = sort.parts().iter();
    parts.map(|part| (part.path.as_str(), Value::Int32(if part.descending { -1 } else { 1 }))).collect()
}
