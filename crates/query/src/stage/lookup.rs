//! `$lookup`: to every document, those of another collection that go with it.
//!
//! What goes with a document is said by an equality of two fields, by a pipeline that sees variables of the
//! document, or by both. A following `$unwind` of what was found, and a `$match` on it, become part of the
//! stage: then nothing has to be gathered.
//!
//! Invariant: `equality` or `inner` is there, and `from` is missing only where the pipeline brings its documents.

use std::sync::Arc;

use kilim_bson::{Array, Document, Path, RawArray, RawDocument, RawValue, Value, Writer, parse_index};
use kilim_collation::{Collation, collator};
use kilim_error::{Error, ErrorCode, Result};

use super::{Behaviour, Beyond, Context, Modified, Owner, Paths, Pipeline, Stage};
use crate::expression::{Dependencies, Expression, FieldPath, Scope, check_variable_name};
use crate::filter::Filter;
use crate::names;
use crate::path::{self, Leaf};
use crate::text;

/// Variables of one stage. Scopes form a list on the stack, so their number is bounded.
const VARIABLES_MAX: usize = 1000;

#[derive(Debug, Clone)]
pub struct Lookup {
    pub database: Box<str>,
    /// A collection of that database.
    pub from: Option<Box<str>>,
    /// `as`: where the found documents go.
    pub target: FieldPath,
    pub equality: Option<Equality>,
    pub variables: Variables,
    pub inner: Option<Inner>,
    pub unwinding: Option<Unwinding>,
    /// What an absorbed `$match` asks of a found document; only where it is unwound.
    pub matching: Option<Arc<Filter>>,
    /// The finds go to the end of the document even if the field is there, and null finds no undefined: what mongod's
    /// newer engine does, which runs lookups at the head of a pipeline.
    pub appended: bool,
    /// How texts compare.
    pub collation: Option<Collation>,
}

/// `let`: what the pipeline sees of the document.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    pub definitions: Vec<(Box<str>, Expression)>,
    /// The number of the first among all that pipelines around have bound.
    pub first: usize,
}

/// `pipeline`, and as it was written.
#[derive(Debug, Clone, Default)]
pub struct Inner {
    pub pipeline: Pipeline,
    pub written: Array,
    /// Why a constant part of it cannot be computed. Nobody need know before there is a document to look up for.
    pub flaw: Option<Error>,
}

/// `localField` and `foreignField`.
#[derive(Debug, Clone)]
pub struct Equality {
    pub local: FieldPath,
    pub foreign: Path,
}

/// An absorbed `$unwind`.
#[derive(Debug, Clone)]
pub struct Unwinding {
    pub preserve_null_and_empty_arrays: bool,
    pub include_array_index: Option<FieldPath>,
}

pub(super) fn glance(_: &str, value: RawValue<'_>, database: &str) -> Result<()> {
    let specification = specification(value)?;
    let pipeline = specification.get("pipeline");
    match specification.get("from") {
        None if pipeline.is_none() => return Err(from_nowhere()),
        None => {}
        Some(from) => check_from("$lookup", database, parse_from("$lookup", from)?)?,
    }
    pipeline.map_or(Ok(()), |pipeline| Pipeline::glance(parse_array(pipeline)?, database))
}

fn specification(value: RawValue<'_>) -> Result<RawDocument<'_>> {
    value.as_document().ok_or_else(|| {
        let found = value.element_type().name();
        failed(format!("the $lookup stage specification must be an object, but found {found}"))
    })
}

fn from_nowhere() -> Error {
    failed("must specify 'pipeline' when 'from' is empty".to_owned())
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let written = Written::parse(specification(value)?)?;
    written.check(context.database)?;
    let target = FieldPath::parse(written.target)?;
    let equality = written.joins().then(|| Equality::parse(written.local, written.foreign)).transpose()?;
    let (variables, inner) = match written.pipeline {
        None => (Variables::default(), None),
        Some(stages) => {
            let (variables, inner) = parse_inner(stages, written.variables, context)?;
            (variables, Some(inner))
        }
    };
    out.push(Stage::Lookup(Arc::new(Lookup {
        database: context.database.into(),
        from: written.from.map(Into::into),
        target,
        equality,
        variables,
        inner,
        unwinding: None,
        matching: None,
        appended: false,
        collation: context.scope.collation().clone(),
    })));
    Ok(())
}

/// The fields of a stage, each by itself. A text that is empty is none.
#[derive(Default)]
struct Written<'a> {
    from: Option<&'a str>,
    target: &'a str,
    local: &'a str,
    foreign: &'a str,
    variables: Option<RawDocument<'a>>,
    pipeline: Option<RawArray<'a>>,
}

impl<'a> Written<'a> {
    fn parse(specification: RawDocument<'a>) -> Result<Written<'a>> {
        let mut written = Written::default();
        for (name, value) in specification {
            match name {
                "pipeline" => written.pipeline = Some(parse_array(value)?),
                "let" => match value {
                    RawValue::Document(definitions) => written.variables = Some(definitions),
                    _ => {
                        return Err(failed(format!(
                            "$lookup argument '{}' must be an object, is type {}",
                            text::element(name, value),
                            value.element_type().name()
                        )));
                    }
                },
                "from" => written.from = Some(parse_from("$lookup", value)?),
                _ => {
                    let RawValue::String(text) = value else {
                        return Err(failed(format!(
                            "$lookup argument '{name}' must be a string, found {}: {}",
                            text::element(name, value),
                            value.element_type().name()
                        )));
                    };
                    match name {
                        "as" => written.target = text,
                        "localField" => written.local = text,
                        "foreignField" => written.foreign = text,
                        _ => return Err(failed(format!("unknown argument to $lookup: {name}"))),
                    }
                }
            }
        }
        Ok(written)
    }

    /// Whether it looks for equal values of two fields.
    fn joins(&self) -> bool {
        !self.local.is_empty() && !self.foreign.is_empty()
    }

    /// Refuses fields that do not go together, and a stage that lacks some.
    fn check(&self, database: &str) -> Result<()> {
        match self.from {
            None if self.pipeline.is_none() => return Err(from_nowhere()),
            None => {}
            Some(name) => check_from("$lookup", database, name)?,
        }
        if self.target.is_empty() {
            return Err(failed("must specify 'as' field for a $lookup".to_owned()));
        }
        let names_one = self.local.is_empty() != self.foreign.is_empty();
        match self.pipeline {
            Some(_) if names_one => {
                return Err(failed(
                    "$lookup requires both or neither of 'localField' and 'foreignField' to be specified"
                        .to_owned(),
                ));
            }
            None if !self.joins() => {
                return Err(failed(
                    "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified"
                        .to_owned(),
                ));
            }
            None if self.variables.is_some() => {
                return Err(failed("$lookup with a 'let' argument must also specify 'pipeline'".to_owned()));
            }
            _ => {}
        }
        if self.from.is_none() && !self.pipeline.is_some_and(begins_with_documents) {
            return Err(failed(
                "$lookup stage without explicit collection must have a pipeline with $documents as first stage"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// The pipeline of a stage, and the variables that it knows. What always fails in either does so once there is a
/// document.
fn parse_inner(
    stages: RawArray<'_>,
    variables: Option<RawDocument<'_>>,
    context: &Context<'_>,
) -> Result<(Variables, Inner)> {
    let definitions = variables.map_or(Ok(Vec::new()), |it| parse_variables(it, context.scope))?;
    let folded = |(name, expression): (_, Expression)| (name, expression.optimised_if_it_can_be());
    let definitions: Vec<_> = definitions.into_iter().map(folded).collect();
    let first = context.scope.bindings();
    let names: Vec<&str> = definitions.iter().map(|(name, _)| &**name).collect();
    let mut pipeline = Pipeline::default();
    with_variables(context.scope, &names, &mut |scope| {
        let inside = Context { scope, ..context.within(Owner::Lookup)? };
        pipeline = Pipeline::parse(stages, &inside)?;
        Ok(())
    })?;
    let flaw = pipeline.fold().err();
    Ok((Variables { definitions, first }, Inner { pipeline, written: stages.to_array(), flaw }))
}

fn parse_array(value: RawValue<'_>) -> Result<RawArray<'_>> {
    value.as_array().ok_or_else(|| {
        Error::user(ErrorCode::TypeMismatch, "'pipeline' option must be specified as an array")
    })
}

/// The expressions of a `let`, which see what the stage itself sees.
pub(super) fn parse_variables(
    definitions: RawDocument<'_>,
    scope: &Scope<'_>,
) -> Result<Vec<(Box<str>, Expression)>> {
    let mut variables = Vec::new();
    for (name, value) in definitions {
        check_variable_name(name)?;
        variables.push((name.into(), Expression::parse(value, scope)?));
    }
    if variables.len() > VARIABLES_MAX {
        return Err(failed(format!("'let' may define {VARIABLES_MAX} variables at most")));
    }
    Ok(variables)
}

/// Goes on in the scope in which all of these are bound for a pipeline.
pub(super) fn with_variables(
    scope: &Scope<'_>,
    names: &[&str],
    then: &mut dyn FnMut(&Scope<'_>) -> Result<()>,
) -> Result<()> {
    match names.split_first() {
        None => then(scope),
        Some((name, rest)) => with_variables(&scope.with(&scope.bind_for_pipeline(name)), rest, then),
    }
}

/// The name of a collection, or a refusal of one in another database.
pub(super) fn parse_from<'a>(stage: &str, value: RawValue<'a>) -> Result<&'a str> {
    match value {
        RawValue::String(name) => Ok(name),
        RawValue::Document(namespace) => {
            let (mut database, mut collection) = ("", "");
            for (name, value) in namespace {
                let place = match name {
                    "db" => &mut database,
                    "coll" => &mut collection,
                    _ => {
                        let message = format!("BSON field 'from.{name}' is an unknown field.");
                        return Err(Error::location(40415, message));
                    }
                };
                *place = value.as_str().ok_or_else(|| wrong_type("from", name, value, "string"))?;
            }
            names::check_parts(database, collection)?;
            Err(failed(format!(
                "{stage} with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {database} and coll: \
                 {collection}"
            )))
        }
        _ => Err(failed(format!(
            "{stage} 'from' field must be a string, but found {}",
            value.element_type().name()
        ))),
    }
}

pub(super) fn wrong_type(place: &str, name: &str, value: RawValue<'_>, expected: &str) -> Error {
    Error::user(
        ErrorCode::TypeMismatch,
        format!(
            "BSON field '{place}.{name}' is the wrong type '{}', expected type '{expected}'",
            value.element_type().name()
        ),
    )
}

pub(super) fn check_from(stage: &str, database: &str, name: &str) -> Result<()> {
    names::check_parts(database, name)?;
    match name {
        "" => {
            Err(Error::user(ErrorCode::InvalidNamespace, format!("invalid {stage} namespace: {database}.")))
        }
        _ => Ok(()),
    }
}

fn begins_with_documents(pipeline: RawArray<'_>) -> bool {
    let first = pipeline.iter().next().and_then(RawValue::as_document);
    first.is_some_and(|stage| stage.iter().next().is_some_and(|(name, _)| name == "$documents"))
}

fn failed(message: String) -> Error {
    Error::user(ErrorCode::FailedToParse, message)
}

impl Lookup {
    /// Whether mongod's newer engine could run it: an equality of plain fields and nothing else.
    pub fn is_plain(&self) -> bool {
        let plain = |path: &str| path.split('.').all(|name| parse_index(name).is_none());
        let equality = self.equality.as_ref();
        self.inner.is_none()
            && self.unwinding.is_none()
            && equality.is_some_and(|it| plain(it.local.as_str()) && plain(it.foreign.as_str()))
    }

    /// The same with the `$unwind` that follows, if it is one of what was found.
    pub fn with_unwind(&self, path: &str, unwinding: Unwinding) -> Option<Lookup> {
        let fits = self.unwinding.is_none() && self.target.as_str() == path;
        fits.then(|| Lookup { unwinding: Some(unwinding), ..self.clone() })
    }

    /// The same with the `$match` that follows, if it asks of nothing but fields of what is unwound.
    pub fn with_match(&self, filter: &Filter) -> Option<Lookup> {
        let unwinding = self.unwinding.as_ref()?;
        // Where a document remains although nothing was found, the filter must see it; an index counts what was
        // found before the filter.
        if unwinding.preserve_null_and_empty_arrays || unwinding.include_array_index.is_some() {
            return None;
        }
        let own = descended(filter, self.target.as_str())?;
        let matching = match &self.matching {
            None => own,
            Some(known) => Filter::And(vec![(**known).clone(), own]),
        };
        Some(Lookup { matching: Some(Arc::new(matching)), ..self.clone() })
    }
}

/// The filter as it applies to the value at `path`, where it speaks of nothing but fields within.
fn descended(filter: &Filter, path: &str) -> Option<Filter> {
    let all =
        |children: &[Filter]| children.iter().map(|child| descended(child, path)).collect::<Option<_>>();
    Some(match filter {
        Filter::And(children) => Filter::And(all(children)?),
        Filter::Or(children) => Filter::Or(all(children)?),
        Filter::Nor(children) => Filter::Nor(all(children)?),
        Filter::Field { path: field, predicate } => {
            let rest = field.as_str().strip_prefix(path)?.strip_prefix('.')?;
            Filter::Field { path: Path::parse(rest), predicate: predicate.clone() }
        }
        _ => return None,
    })
}

impl Equality {
    fn parse(local: &str, foreign: &str) -> Result<Equality> {
        let local = FieldPath::parse(local)?;
        FieldPath::parse(foreign)?;
        Ok(Equality { local, foreign: Path::parse(foreign) })
    }

    /// Whether a foreign document has one of these values, undefined being none but itself.
    pub fn holds(
        &self,
        document: RawDocument<'_>,
        values: &[RawValue<'_>],
        collation: &Option<Collation>,
    ) -> bool {
        let collator = collator(collation);
        let mut holds = false;
        foreign_values(document, &self.foreign, &mut |found| {
            holds |= values.iter().any(|value| kilim_bson::compare_with(*value, found, collator).is_eq());
        });
        holds
    }

    /// The values that a document looks for: arrays stand for their elements, and nothing for null.
    pub fn local_values<'a>(&self, document: RawDocument<'a>, visit: &mut dyn FnMut(RawValue<'a>)) {
        let mut found = false;
        values_at(document, self.local.names(), &mut |value| {
            found = true;
            visit(value);
        });
        if !found {
            visit(RawValue::Null);
        }
    }
}

/// All values that `{path: {$eq: …}}` would compare with; null where there is none.
pub fn foreign_values<'a>(document: RawDocument<'a>, path: &Path, visit: &mut dyn FnMut(RawValue<'a>)) {
    path::visit(document, path.components(), Leaf::Elements, &mut |found: path::Found<'a>| {
        visit(found.value.unwrap_or(RawValue::Null));
        false
    });
}

/// What a path leads to, through arrays on the way and into the one at its end. A number right behind an array is a
/// position in it, elsewhere a name.
pub fn values_at<'a>(document: RawDocument<'a>, names: &[Box<str>], visit: &mut dyn FnMut(RawValue<'a>)) {
    let mut document = document;
    let mut names = names;
    while let Some((name, mut rest)) = names.split_first() {
        let Some(mut value) = document.get(name) else { return };
        while let (RawValue::Array(array), Some((position, behind))) = (value, rest.split_first()) {
            let Some(position) = parse_index(position) else { break };
            let Some(element) = array.get(position) else { return };
            (value, rest) = (element, behind);
        }
        match value {
            RawValue::Array(array) if rest.is_empty() => return array.iter().for_each(visit),
            value if rest.is_empty() => return visit(value),
            RawValue::Document(nested) => document = nested,
            RawValue::Array(array) => {
                for element in array.iter().filter_map(RawValue::as_document) {
                    values_at(element, rest, visit);
                }
                return;
            }
            _ => return,
        }
        names = rest;
    }
}

/// What a lookup does to paths: it writes where its finds go, and where their indexes go.
pub(super) fn modified(target: &FieldPath, unwinding: Option<&Unwinding>) -> Modified {
    let index = unwinding.and_then(|unwinding| unwinding.include_array_index.as_ref());
    let paths = std::iter::once(target).chain(index).map(|path| path.as_str().into()).collect();
    Modified::Paths(Paths { paths, renamed: Vec::new() })
}

impl Unwinding {
    pub(super) fn to_document(&self) -> Document {
        let mut writer = Writer::new();
        let preserve = RawValue::Bool(self.preserve_null_and_empty_arrays);
        writer.append("preserveNullAndEmptyArrays", preserve);
        if let Some(index) = &self.include_array_index {
            writer.append("includeArrayIndex", RawValue::String(index.as_str()));
        }
        writer.finish()
    }
}

/// `{name: expression, …}` as explain prints it.
pub(super) fn variables_document(variables: &[(Box<str>, Expression)]) -> Document {
    variables.iter().map(|(name, expression)| (&**name, expression.to_value())).collect()
}

impl Behaviour for Lookup {
    fn dependencies(&self, needed: &mut Dependencies) -> Beyond {
        if let Some(equality) = &self.equality {
            needed.field(equality.local.as_str());
        }
        for (_, expression) in &self.variables.definitions {
            expression.dependencies(needed);
        }
        Beyond::Later
    }

    fn modified(&self) -> Modified {
        modified(&self.target, self.unwinding.as_ref())
    }

    fn collections(&self, visit: &mut dyn FnMut(&str, &str)) {
        if let Some(from) = &self.from {
            visit(&self.database, from);
        }
        if let Some(inner) = &self.inner {
            inner.pipeline.collections(visit);
        }
    }

    fn to_document(&self) -> Document {
        let mut stage = Document::new();
        if let Some(from) = &self.from {
            stage.push("from", &**from);
        }
        stage.push("as", self.target.as_str());
        if let Some(equality) = &self.equality {
            stage.push("localField", equality.local.as_str());
            stage.push("foreignField", equality.foreign.as_str());
        }
        if self.inner.is_some() || self.matching.is_some() {
            stage.push("let", variables_document(&self.variables.definitions));
            let written = self.inner.iter().flat_map(|inner| inner.written.as_raw().iter());
            let mut stages: Array = written.map(RawValue::to_value).collect();
            if let Some(matching) = &self.matching {
                let own: Document =
                    [("$match", Value::Document(matching.to_document()))].into_iter().collect();
                stages =
                    (stages.as_raw().iter().map(RawValue::to_value)).chain([Value::Document(own)]).collect();
            }
            stage.push("pipeline", Value::Array(stages));
        }
        if let Some(unwinding) = &self.unwinding {
            stage.push("unwinding", unwinding.to_document());
        }
        [("$lookup", Value::Document(stage))].into_iter().collect()
    }
}
