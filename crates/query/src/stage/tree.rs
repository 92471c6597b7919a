//! `$tree`: nodes of a declared tree, by where they stand to one of them.

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::field::{unknown, wrong_type};
use super::{Behaviour, Context, Stage};
use crate::filter::number::exact_i64;

#[derive(Debug, Clone)]
pub struct Tree {
    /// The `_id` of the node that is asked about.
    pub of: Value,
    pub what: Relation,
    /// How far from the node, in levels.
    pub max_depth: Option<usize>,
    /// The field of the node that gets the answer as an array; none where each node is a document of its own.
    pub as_field: Option<Box<str>>,
    /// Which tree, where the collection has several.
    pub name: Option<Box<str>>,
}

/// Where nodes stand to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// All below it, in the order of the tree.
    Descendants,
    /// All above it, from the root to its parent.
    Ancestors,
    Children,
    /// The other children of its parent.
    Siblings,
    /// Its ancestors and itself.
    Path,
    Root,
}

const RELATIONS: [(&str, Relation); 6] = [
    ("descendants", Relation::Descendants),
    ("ancestors", Relation::Ancestors),
    ("children", Relation::Children),
    ("siblings", Relation::Siblings),
    ("path", Relation::Path),
    ("root", Relation::Root),
];

pub(super) fn parse(_: &str, value: RawValue<'_>, _: &Context<'_>, out: &mut Vec<Stage>) -> Result<()> {
    let RawValue::Document(spec) = value else {
        return Err(wrong_type("$tree", value, "type 'object'"));
    };
    let text = |name: &str, value: RawValue<'_>| match value {
        RawValue::String(text) => Ok(text.to_owned()),
        _ => Err(wrong_type(&format!("$tree.{name}"), value, "type 'string'")),
    };
    let (mut of, mut what, mut max_depth, mut as_field, mut tree) = (None, None, None, None, None);
    for (name, value) in spec {
        match name {
            "of" => of = Some(value.to_value()),
            "what" => what = Some(relation(&text(name, value)?)?),
            "maxDepth" => {
                let levels = exact_i64(value).filter(|levels| *levels >= 0);
                max_depth = Some(levels.ok_or_else(|| {
                    Error::user(ErrorCode::BadValue, "'$tree.maxDepth' must be a whole number, 0 or more")
                })? as usize);
            }
            "as" => {
                let field = text(name, value)?;
                if field.is_empty() || field.starts_with('$') || field.contains('.') {
                    let message = "'$tree.as' must be the name of a field";
                    return Err(Error::user(ErrorCode::BadValue, message));
                }
                as_field = Some(field.into());
            }
            "name" => tree = Some(text(name, value)?.into()),
            _ => return Err(unknown(&format!("$tree.{name}"))),
        }
    }
    let missing = |name: &str| {
        Error::location(40414, format!("BSON field '$tree.{name}' is missing but a required field"))
    };
    let of = of.ok_or_else(|| missing("of"))?;
    let what = what.ok_or_else(|| missing("what"))?;
    out.push(Stage::Tree(Box::new(Tree { of, what, max_depth, as_field, name: tree })));
    Ok(())
}

fn relation(word: &str) -> Result<Relation> {
    RELATIONS.iter().find(|(known, _)| *known == word).map(|(_, relation)| *relation).ok_or_else(|| {
        let words: Vec<&str> = RELATIONS.iter().map(|(word, _)| *word).collect();
        Error::user(
            ErrorCode::BadValue,
            format!("'$tree.what' is '{word}', but can be one of {}", words.join(", ")),
        )
    })
}

impl Behaviour for Tree {
    fn to_document(&self) -> Document {
        let word =
            RELATIONS.iter().find(|(_, relation)| *relation == self.what).map_or("", |(word, _)| *word);
        let mut spec = doc! {"of": self.of.clone(), "what": word};
        if let Some(levels) = self.max_depth {
            spec.push("maxDepth", levels as i64);
        }
        if let Some(field) = &self.as_field {
            spec.push("as", &**field);
        }
        if let Some(name) = &self.name {
            spec.push("name", &**name);
        }
        doc! {"$tree": spec}
    }
}
