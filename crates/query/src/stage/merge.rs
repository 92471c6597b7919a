//! `$merge`: every document into a collection, beside or over what is there.

use std::sync::Arc;

use kilim_bson::{Array, Document, RawArray, RawDocument, RawValue, Value, Writer};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result};

use super::lookup::{parse_variables, variables_document, wrong_type};
use super::{Behaviour, Context, Pipeline, Stage};
use crate::expression::{Base, Expression, FieldPath, Variable};
use crate::names;

#[derive(Debug, Clone)]
pub struct Merge {
    pub database: Box<str>,
    pub collection: Box<str>,
    /// The fields that say which document is meant.
    pub on: Vec<FieldPath>,
    /// They were named, so an index must make them unique.
    pub on_was_given: bool,
    pub when_matched: WhenMatched,
    pub when_not_matched: WhenNotMatched,
    /// How texts compare in the pipeline: an index that makes `on` unique must agree.
    pub collation: Option<Collation>,
}

/// What becomes of a document that is there.
#[derive(Debug, Clone)]
pub enum WhenMatched {
    Replace,
    KeepExisting,
    Merge,
    Fail,
    Pipeline(Arc<MatchedPipeline>),
}

/// A pipeline over the document that is there, which sees variables of the one that comes.
#[derive(Debug, Clone)]
pub struct MatchedPipeline {
    pub written: Array,
    /// `let`, and `new`.
    pub variables: Vec<(Box<str>, Expression)>,
}

/// What becomes of a document that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenNotMatched {
    Insert,
    Discard,
    Fail,
}

impl WhenMatched {
    fn name(&self) -> &'static str {
        match self {
            WhenMatched::Replace => "replace",
            WhenMatched::KeepExisting => "keepExisting",
            WhenMatched::Merge => "merge",
            WhenMatched::Fail => "fail",
            WhenMatched::Pipeline(_) => "pipeline",
        }
    }
}

impl WhenNotMatched {
    fn name(self) -> &'static str {
        match self {
            WhenNotMatched::Insert => "insert",
            WhenNotMatched::Discard => "discard",
            WhenNotMatched::Fail => "fail",
        }
    }
}

/// `whenMatched` as it was written.
enum Matched<'a> {
    Mode(WhenMatched),
    Pipeline(RawArray<'a>),
}

/// The fields of the specification as they come.
#[derive(Default)]
struct Fields<'a> {
    into: Option<(Option<&'a str>, &'a str)>,
    on: Option<Vec<&'a str>>,
    variables: Option<RawDocument<'a>>,
    when_matched: Option<Matched<'a>>,
    when_not_matched: Option<WhenNotMatched>,
}

pub(super) fn glance(_: &str, value: RawValue<'_>, database: &str) -> Result<()> {
    let fields = Fields::of(value)?;
    let (database, collection) = fields.target(database)?;
    check_names(database, collection)?;
    match fields.when_matched {
        Some(Matched::Pipeline(pipeline)) => Pipeline::glance(pipeline, database),
        _ => Ok(()),
    }
}

pub(super) fn parse(_: &str, value: RawValue<'_>, context: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let fields = Fields::of(value)?;
    let (database, collection) = fields.target(context.database)?;
    check_target(database, collection)?;
    let when_not_matched = fields.when_not_matched.unwrap_or(WhenNotMatched::Insert);
    let when_matched = parse_when_matched(fields.when_matched, fields.variables, context)?;
    let only_insert = matches!(when_matched, WhenMatched::KeepExisting | WhenMatched::Fail);
    if only_insert && when_not_matched != WhenNotMatched::Insert {
        return Err(Error::location(
            51181,
            format!(
                "Combination of $merge modes 'whenMatched: {}' and 'whenNotMatched: {}' is not supported",
                when_matched.name(),
                when_not_matched.name()
            ),
        ));
    }
    let on_was_given = fields.on.is_some();
    let on = match fields.on {
        Some(names) => paths_of(names)?,
        None => vec![FieldPath::parse("_id")?],
    };
    out.push(Stage::Merge(Arc::new(Merge {
        database: database.into(),
        collection: collection.into(),
        on,
        on_was_given,
        when_matched,
        when_not_matched,
        collation: context.scope.collation().clone(),
    })));
    Ok(())
}

impl<'a> Fields<'a> {
    fn of(value: RawValue<'a>) -> Result<Fields<'a>> {
        match value {
            RawValue::String(name) => Ok(Fields { into: Some((None, name)), ..Fields::default() }),
            RawValue::Document(specification) => Fields::parse(specification),
            _ => {
                let found = value.element_type().name();
                let message = format!("$merge requires a string or object argument, but found {found}");
                Err(Error::user(ErrorCode::TypeMismatch, message))
            }
        }
    }

    /// Database and collection.
    fn target(&self, database: &'a str) -> Result<(&'a str, &'a str)> {
        let Some((other, collection)) = self.into else {
            return Err(Error::location(40414, "BSON field '$merge.into' is missing but a required field"));
        };
        Ok((other.unwrap_or(database), collection))
    }

    fn parse(specification: RawDocument<'a>) -> Result<Fields<'a>> {
        let mut fields = Fields::default();
        for (name, value) in specification {
            match name {
                "into" => fields.into = Some(parse_into(value)?),
                "on" => fields.on = Some(parse_on(value)?),
                "let" => match value {
                    RawValue::Document(variables) => fields.variables = Some(variables),
                    RawValue::Null => {}
                    _ => return Err(wrong_type("$merge", name, value, "object")),
                },
                "whenMatched" => {
                    fields.when_matched = Some(match value {
                        RawValue::String(mode) => Matched::Mode(parse_mode(mode)?),
                        RawValue::Array(pipeline) => Matched::Pipeline(pipeline),
                        _ => return Err(neither(51191, "whenMatched", "an array", value)),
                    });
                }
                "whenNotMatched" if matches!(value, RawValue::Null) => {}
                "whenNotMatched" => {
                    let mode = value.as_str().ok_or_else(|| wrong_type("$merge", name, value, "string"))?;
                    fields.when_not_matched = Some(match mode {
                        "insert" => WhenNotMatched::Insert,
                        "discard" => WhenNotMatched::Discard,
                        "fail" => WhenNotMatched::Fail,
                        _ => return Err(not_a_mode(mode, "$merge.whenNotMatched")),
                    });
                }
                _ => {
                    let message = format!("BSON field '$merge.{name}' is an unknown field.");
                    return Err(Error::location(40415, message));
                }
            }
        }
        Ok(fields)
    }
}

fn parse_into(value: RawValue<'_>) -> Result<(Option<&str>, &str)> {
    match value {
        RawValue::String("") => {
            Err(Error::location(5_786_800, "$merge 'into' field cannot be an empty string"))
        }
        RawValue::String(name) => Ok((None, name)),
        RawValue::Document(namespace) => {
            let (mut database, mut collection) = (None, "");
            for (name, value) in namespace {
                let text = || value.as_str().ok_or_else(|| wrong_type("into", name, value, "string"));
                match name {
                    "db" => database = Some(text()?),
                    "coll" => collection = text()?,
                    _ => {
                        let message = format!("BSON field 'into.{name}' is an unknown field.");
                        return Err(Error::location(40415, message));
                    }
                }
            }
            if collection.is_empty() {
                return Err(Error::location(
                    5_786_801,
                    "$merge 'into' field must specify a 'coll' that is not empty, null or undefined",
                ));
            }
            Ok((database, collection))
        }
        _ => Err(neither(51178, "into", "an object", value)),
    }
}

fn parse_on(value: RawValue<'_>) -> Result<Vec<&str>> {
    match value {
        RawValue::String(name) => Ok(vec![name]),
        RawValue::Array(names) if names.is_empty() => Err(Error::location(
            51187,
            "If explicitly specifying $merge 'on', must include at least one field",
        )),
        RawValue::Array(names) => names.iter().map(parse_on_element).collect(),
        _ => Err(neither(51186, "on", "an array of strings", value)),
    }
}

fn paths_of(names: Vec<&str>) -> Result<Vec<FieldPath>> {
    let mut paths: Vec<FieldPath> = Vec::with_capacity(names.len());
    for name in names {
        if paths.iter().any(|known| known.as_str() == name) {
            return Err(Error::location(31465, format!("Found a duplicate field '{name}'")));
        }
        paths.push(FieldPath::parse(name)?);
    }
    // As a set: the first of them is the first to be complained of.
    paths.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    Ok(paths)
}

fn parse_on_element(value: RawValue<'_>) -> Result<&str> {
    let kind = value.element_type().name();
    value.as_str().ok_or_else(|| {
        Error::location(51134, format!("$merge 'on' array elements must be strings, but found {kind}"))
    })
}

fn parse_mode(mode: &str) -> Result<WhenMatched> {
    match mode {
        "replace" => Ok(WhenMatched::Replace),
        "keepExisting" => Ok(WhenMatched::KeepExisting),
        "merge" => Ok(WhenMatched::Merge),
        "fail" => Ok(WhenMatched::Fail),
        other => Err(not_a_mode(other, "whenMatched")),
    }
}

fn parse_when_matched(
    written: Option<Matched<'_>>,
    variables: Option<RawDocument<'_>>,
    context: &Context<'_>,
) -> Result<WhenMatched> {
    let mode = match written {
        Some(Matched::Pipeline(pipeline)) => return parse_pipeline(pipeline, variables, context),
        None => WhenMatched::Merge,
        Some(Matched::Mode(mode)) => mode,
    };
    if variables.is_some() {
        return Err(Error::location(
            51199,
            format!("Cannot use 'let' variables with 'whenMatched: {}' mode", mode.name()),
        ));
    }
    Ok(mode)
}

fn parse_pipeline(
    pipeline: RawArray<'_>,
    variables: Option<RawDocument<'_>>,
    context: &Context<'_>,
) -> Result<WhenMatched> {
    if pipeline.iter().any(|stage| stage.as_document().is_none()) {
        return Err(Error::user(
            ErrorCode::TypeMismatch,
            "Each element of the 'pipeline' array must be an object",
        ));
    }
    let mut variables = variables.map_or(Ok(Vec::new()), |it| parse_variables(it, context.scope))?;
    let is_root = |expression: &Expression| {
        matches!(expression, Expression::Variable(Variable { base: Base::Root, path: None, .. }))
    };
    match variables.iter().find(|(name, _)| &**name == "new") {
        Some((_, expression)) if !is_root(expression) => {
            return Err(Error::location(
                51273,
                "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'",
            ));
        }
        Some(_) => {}
        None => variables.push(("new".into(), Expression::parse(RawValue::String("$$ROOT"), context.scope)?)),
    }
    Ok(WhenMatched::Pipeline(Arc::new(MatchedPipeline { written: pipeline.to_array(), variables })))
}

fn check_target(database: &str, collection: &str) -> Result<()> {
    check_names(database, collection)?;
    if collection.starts_with("system.") {
        return Err(Error::location(31319, format!("Cannot $merge to special collection: {collection}")));
    }
    if matches!(database, "admin" | "config" | "local") {
        return Err(Error::location(31320, format!("Cannot $merge to internal database: {database}")));
    }
    Ok(())
}

fn check_names(database: &str, collection: &str) -> Result<()> {
    names::check_parts(database, collection)?;
    if !names::is_database(database) || collection.is_empty() {
        return Err(Error::user(
            ErrorCode::InvalidNamespace,
            format!("Invalid $merge target namespace: '{database}.{collection}'"),
        ));
    }
    Ok(())
}

/// mongod's text has the two spaces.
fn neither(code: i32, field: &str, or: &str, value: RawValue<'_>) -> Error {
    Error::location(
        code,
        format!(
            "$merge '{field}' field  must be either a string or {or}, but found {}",
            value.element_type().name()
        ),
    )
}

fn not_a_mode(mode: &str, field: &str) -> Error {
    Error::user(
        ErrorCode::BadValue,
        format!("Enumeration value '{mode}' for field '{field}' is not a valid value."),
    )
}

impl Behaviour for Merge {
    fn to_document(&self) -> Document {
        let mut writer = Writer::new();
        writer.open_document("$merge");
        writer.open_document("into");
        writer.append("db", RawValue::String(&self.database));
        writer.append("coll", RawValue::String(&self.collection));
        writer.close();
        match &self.on[..] {
            [path] => writer.append("on", RawValue::String(path.as_str())),
            paths => {
                writer.open_array("on");
                for (at, path) in paths.iter().enumerate() {
                    writer.append_index(at, RawValue::String(path.as_str()));
                }
                writer.close();
            }
        }
        match &self.when_matched {
            WhenMatched::Pipeline(pipeline) => {
                let variables = Value::Document(variables_document(&pipeline.variables));
                writer.append("let", variables.as_raw());
                writer.append("whenMatched", RawValue::Array(pipeline.written.as_raw()));
            }
            mode => writer.append("whenMatched", RawValue::String(mode.name())),
        }
        writer.append("whenNotMatched", RawValue::String(self.when_not_matched.name()));
        writer.close();
        writer.finish()
    }
}
