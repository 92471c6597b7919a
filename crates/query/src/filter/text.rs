//! `$text`: words to look for in the texts that a collection's text index has.
//!
//! A filter alone does not say which texts these are. Planning binds it to the index, which then answers for a document.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::Filter;

/// What a `$text` asks for.
#[derive(Debug, Clone)]
pub struct TextQuery {
    pub search: Box<str>,
    /// None asks for the index's own.
    pub language: Option<Box<str>>,
    pub case_sensitive: bool,
    pub diacritic_sensitive: bool,
    /// The index that it is bound to.
    pub bound: Option<Arc<dyn TextMatcher>>,
}

/// A text index, as a filter sees it.
pub trait TextMatcher: std::fmt::Debug + Send + Sync {
    /// Whether a document has what the search asks for.
    fn matches(&self, document: RawDocument<'_>) -> Result<bool>;

    /// The language in which the search string is read.
    fn language(&self) -> &str;
}

impl TextQuery {
    pub(super) fn parse(value: RawValue<'_>) -> Result<TextQuery> {
        let RawValue::Document(document) = value else {
            return Err(Error::user(ErrorCode::BadValue, "$text expects an object"));
        };
        let wrong = |name: &str, expected: &str, found: RawValue<'_>| {
            let found = found.element_type().name();
            Error::user(
                ErrorCode::TypeMismatch,
                format!("\"{name}\" had the wrong type. Expected {expected}, found {found}"),
            )
        };
        let flag = |name: &str| match document.get(name) {
            None => Ok(false),
            Some(RawValue::Bool(flag)) => Ok(flag),
            Some(other) => Err(wrong(name, "bool", other)),
        };
        let search = match document.get("$search") {
            Some(RawValue::String(search)) => search.into(),
            Some(other) => return Err(wrong("$search", "string", other)),
            None => {
                return Err(Error::user(ErrorCode::NoSuchKey, "Missing expected field \"$search\""));
            }
        };
        let language = match document.get("$language") {
            None | Some(RawValue::String("")) => None,
            Some(RawValue::String(language)) => Some(language.into()),
            Some(other) => return Err(wrong("$language", "string", other)),
        };
        let query = TextQuery {
            search,
            language,
            case_sensitive: flag("$caseSensitive")?,
            diacritic_sensitive: flag("$diacriticSensitive")?,
            bound: None,
        };
        let known = ["$search", "$language", "$caseSensitive", "$diacriticSensitive"];
        if document.iter().any(|(name, _)| !known.contains(&name)) {
            return Err(Error::user(ErrorCode::BadValue, "extra fields in $text"));
        }
        Ok(query)
    }

    pub(super) fn matches(&self, document: RawDocument<'_>) -> Result<bool> {
        match &self.bound {
            Some(index) => index.matches(document),
            None => Err(Error::bug("a $text was asked before it was bound to an index")),
        }
    }

    pub(super) fn to_document(&self) -> Document {
        let language = self.bound.as_ref().map_or("", |index| index.language());
        doc! {"$text": {
            "$search": &*self.search,
            "$language": self.language.as_deref().unwrap_or(language),
            "$caseSensitive": self.case_sensitive,
            "$diacriticSensitive": self.diacritic_sensitive,
        }}
    }
}

impl Filter {
    /// The `$text` that it has, if it has one.
    pub fn text(&self) -> Option<&Arc<TextQuery>> {
        match self {
            Filter::Text(query) => Some(query),
            Filter::And(children) | Filter::Or(children) | Filter::Nor(children) => {
                children.iter().find_map(Filter::text)
            }
            _ => None,
        }
    }

    /// The filter with another `$text` in place of the one that it has.
    pub fn with_text(&self, query: &Arc<TextQuery>) -> Filter {
        let all = |children: &[Filter]| children.iter().map(|child| child.with_text(query)).collect();
        match self {
            Filter::Text(_) => Filter::Text(query.clone()),
            Filter::And(children) => Filter::And(all(children)),
            Filter::Or(children) => Filter::Or(all(children)),
            other => other.clone(),
        }
    }

    /// Refuses more than one `$text`, and one that is negated.
    pub fn check_text(&self) -> Result<()> {
        let bad = |message| Err(Error::user(ErrorCode::BadValue, message));
        match self.count_texts(false) {
            None => bad("text expression not allowed in nor"),
            Some(0 | 1) => Ok(()),
            Some(_) => bad("Too many text expressions"),
        }
    }

    /// How many there are; none where one is negated.
    fn count_texts(&self, negated: bool) -> Option<usize> {
        match self {
            Filter::Text(_) if negated => None,
            Filter::Text(_) => Some(1),
            Filter::And(children) | Filter::Or(children) => {
                children.iter().try_fold(0, |sum, child| Some(sum + child.count_texts(negated)?))
            }
            Filter::Nor(children) => {
                children.iter().try_fold(0, |sum, child| Some(sum + child.count_texts(true)?))
            }
            _ => Some(0),
        }
    }
}

/// Whether a filter document that is not parsed yet asks for a `$text`.
pub(crate) fn names_text(filter: RawDocument<'_>) -> bool {
    filter.iter().any(|(name, value)| match (name, value) {
        ("$text", _) => true,
        ("$and" | "$or", RawValue::Array(branches)) => {
            branches.iter().any(|branch| branch.as_document().is_some_and(names_text))
        }
        _ => false,
    })
}
