//! The collation document: its fields, their types, and what may go together.
//!
//! A command's `collation` is checked as it stands, and what it leaves out is the locale's to say.
//! `create` is stricter with types and fills in defaults of its own before the locale is asked; so there
//! [`full_spec`] goes first.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use crate::VERSION;
use crate::locale::{self, Defaults};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaseFirst {
    Off,
    Upper,
    Lower,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) locale: String,
    pub(crate) case_level: bool,
    pub(crate) case_first: CaseFirst,
    /// 1 to 5.
    pub(crate) strength: u8,
    pub(crate) numeric_ordering: bool,
    /// `alternate: "shifted"`: spaces and perhaps punctuation do not count.
    pub(crate) shifted: bool,
    /// `maxVariable: "space"`: of those, only spaces.
    pub(crate) only_spaces: bool,
    pub(crate) normalization: bool,
    pub(crate) backwards: bool,
}

/// The document's fields as they were given.
#[derive(Default)]
struct Given<'a> {
    locale: Option<&'a str>,
    case_level: Option<bool>,
    case_first: Option<CaseFirst>,
    strength: Option<u8>,
    numeric_ordering: Option<bool>,
    shifted: Option<bool>,
    only_spaces: Option<bool>,
    normalization: Option<bool>,
    backwards: Option<bool>,
    version: Option<&'a str>,
}

impl Spec {
    /// `None` is the simple collation.
    pub(crate) fn parse(document: RawDocument<'_>) -> Result<Option<Spec>> {
        let given = Given::parse(document, "collation")?;
        let name = given.locale.unwrap_or_default();
        if name == "simple" {
            return Ok(None);
        }
        let shown = || shown(document);
        let bad = |message: String| Err(Error::user(ErrorCode::BadValue, message));
        if name.contains('\0') {
            return bad(format!("Field 'locale' cannot contain null byte. Collation spec: {}", shown()));
        }
        if name.is_empty() {
            return bad(format!("Field 'locale' cannot be the empty string in: {}", shown()));
        }
        if name.ends_with('=') {
            return bad(format!("Field 'locale' is not valid in: {}", shown()));
        }
        if !locale::is_known(name) {
            let hint = locale::suggestion(name).map(|known| format!(". Did you mean '{known}'?"));
            return bad(format!("Field 'locale' is invalid in: {}{}", shown(), hint.unwrap_or_default()));
        }
        if let Some(version) = given.version
            && version != VERSION
        {
            return Err(Error::user(
                ErrorCode::IncompatibleCollationVersion,
                format!(
                    "Requested collation version {version} but the only available collator version was \
                     {VERSION}. Requested collation spec: {}",
                    shown()
                ),
            ));
        }
        if given.strength == Some(0) {
            return Err(not_a_value("0", "collation", "strength"));
        }
        let spec = given.resolve();
        if spec.backwards && spec.strength == 1 {
            return bad(format!("'backwards' is invalid with 'strength' of 1 in: {}", shown()));
        }
        if spec.case_first != CaseFirst::Off && !spec.case_level && spec.strength <= 2 {
            return bad(format!(
                "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2 in: {}",
                shown()
            ));
        }
        Ok(Some(spec))
    }

    pub(crate) fn to_document(&self) -> Document {
        let mut document = doc! {
            "locale": self.locale.as_str(),
            "caseLevel": self.case_level,
            "caseFirst": self.case_first.name(),
            "strength": i32::from(self.strength),
            "numericOrdering": self.numeric_ordering,
        };
        document.push("alternate", alternate_name(self.shifted));
        document.push("maxVariable", max_variable_name(self.only_spaces));
        document.push("normalization", self.normalization);
        document.push("backwards", self.backwards);
        document.push("version", VERSION);
        document
    }
}

impl CaseFirst {
    fn parse(name: &str) -> Option<CaseFirst> {
        [CaseFirst::Off, CaseFirst::Upper, CaseFirst::Lower].into_iter().find(|known| known.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            CaseFirst::Off => "off",
            CaseFirst::Upper => "upper",
            CaseFirst::Lower => "lower",
        }
    }
}

fn alternate_name(shifted: bool) -> &'static str {
    if shifted { "shifted" } else { "non-ignorable" }
}

fn max_variable_name(only_spaces: bool) -> &'static str {
    if only_spaces { "space" } else { "punct" }
}

impl<'a> Given<'a> {
    /// `path` is how messages name the document. A null means absent.
    fn parse(document: RawDocument<'a>, path: &'static str) -> Result<Given<'a>> {
        let mut given = Given::default();
        for (name, value) in document {
            let field = Field { path, name, value };
            // The one field that may not be null: mongod takes it for "true, false, or as the locale has it".
            if name == "backwards" {
                let RawValue::Bool(value) = value else {
                    return Err(Error::user(
                        ErrorCode::TypeMismatch,
                        format!(
                            "Field 'backwards' should be a boolean value, but found: {}",
                            value.element_type().name()
                        ),
                    ));
                };
                given.backwards = Some(value);
                continue;
            }
            let absent = matches!(value, RawValue::Null | RawValue::Undefined);
            match name {
                "locale" | "caseLevel" | "caseFirst" | "strength" | "numericOrdering" | "alternate"
                | "maxVariable" | "normalization" | "version"
                    if absent => {}
                "locale" => given.locale = Some(field.string()?),
                "caseLevel" => given.case_level = Some(field.boolean()?),
                "caseFirst" => given.case_first = Some(field.one_of(CaseFirst::parse)?),
                "strength" => given.strength = Some(field.strength()?),
                "numericOrdering" => given.numeric_ordering = Some(field.boolean()?),
                "alternate" => {
                    let names = |name: &str| [false, true].into_iter().find(|&it| alternate_name(it) == name);
                    given.shifted = Some(field.one_of(names)?);
                }
                "maxVariable" => {
                    let names =
                        |name: &str| [false, true].into_iter().find(|&it| max_variable_name(it) == name);
                    given.only_spaces = Some(field.one_of(names)?);
                }
                "normalization" => given.normalization = Some(field.boolean()?),
                "version" => given.version = Some(field.string()?),
                _ => {
                    return Err(Error::location(
                        40415,
                        format!("BSON field '{path}.{name}' is an unknown field."),
                    ));
                }
            }
        }
        if given.locale.is_none() {
            return Err(Error::location(
                40414,
                format!("BSON field '{path}.locale' is missing but a required field"),
            ));
        }
        Ok(given)
    }

    /// Leaves to the locale what was not said.
    fn resolve(self) -> Spec {
        let locale = self.locale.unwrap_or_default();
        let defaults = Defaults::of(locale);
        Spec {
            case_level: self.case_level.unwrap_or(false),
            case_first: self.case_first.unwrap_or(if defaults.upper_first {
                CaseFirst::Upper
            } else {
                CaseFirst::Off
            }),
            strength: self.strength.unwrap_or(3),
            numeric_ordering: self.numeric_ordering.unwrap_or(false),
            shifted: self.shifted.unwrap_or(defaults.shifted),
            only_spaces: self.only_spaces.unwrap_or(false),
            normalization: self.normalization.unwrap_or(defaults.normalization),
            backwards: self.backwards.unwrap_or(defaults.backwards),
            locale: locale.to_owned(),
        }
    }
}

/// What `create` makes of its `collation` before it asks the locale: every field but `backwards` and
/// `version` has a default there, so that the locale's own are not asked for.
pub fn full_spec(document: RawDocument<'_>) -> Result<Document> {
    let given = Given::parse(document, "create.collation")?;
    let mut full = doc! {
        "locale": given.locale.unwrap_or_default(),
        "caseLevel": given.case_level.unwrap_or(false),
        "caseFirst": given.case_first.unwrap_or(CaseFirst::Off).name(),
        "strength": i32::from(given.strength.unwrap_or(3)),
        "numericOrdering": given.numeric_ordering.unwrap_or(false),
        "alternate": alternate_name(given.shifted.unwrap_or(false)),
        "maxVariable": max_variable_name(given.only_spaces.unwrap_or(false)),
        "normalization": given.normalization.unwrap_or(false),
    };
    if let Some(backwards) = given.backwards {
        full.push("backwards", backwards);
    }
    if let Some(version) = given.version {
        full.push("version", version);
    }
    Ok(full)
}

/// One field, read with the type it must have.
struct Field<'a> {
    path: &'static str,
    name: &'a str,
    value: RawValue<'a>,
}

impl<'a> Field<'a> {
    fn wrong_type(&self, expected: &str) -> Error {
        Error::user(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{}.{}' is the wrong type '{}', expected {expected}",
                self.path,
                self.name,
                self.value.element_type().name()
            ),
        )
    }

    fn boolean(&self) -> Result<bool> {
        match self.value {
            RawValue::Bool(value) => Ok(value),
            _ => Err(self.wrong_type("type 'bool'")),
        }
    }

    fn string(&self) -> Result<&'a str> {
        self.value.as_str().ok_or_else(|| self.wrong_type("type 'string'"))
    }

    fn one_of<T>(&self, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        let name = self.string()?;
        parse(name).ok_or_else(|| not_a_value(name, self.path, self.name))
    }

    /// 0 to 5: that 0 is none is said once the locale is known to be good.
    fn strength(&self) -> Result<u8> {
        let number = match self.value {
            RawValue::Int32(value) => f64::from(value),
            RawValue::Int64(value) => value as f64,
            RawValue::Double(value) => value,
            RawValue::Decimal128(value) => value.to_f64(),
            _ => return Err(self.wrong_type("types '[long, int, decimal, double']")),
        };
        let out_of_range = |bound: &str| {
            Error::location(
                51024,
                format!("BSON field 'strength' value must be {bound}, actual value '{}'", number as i32),
            )
        };
        match number as i32 {
            ..0 => Err(out_of_range(">= 0")),
            value @ 0..=5 => Ok(value as u8),
            6.. => Err(out_of_range("<= 5")),
        }
    }
}

fn not_a_value(value: &str, path: &str, name: &str) -> Error {
    Error::user(
        ErrorCode::BadValue,
        format!("Enumeration value '{value}' for field '{path}.{name}' is not a valid value."),
    )
}

/// The document as messages show it. Its fields have been read, so they are texts, numbers, truth values
/// and nulls.
fn shown(document: RawDocument<'_>) -> String {
    let fields: Vec<String> = document
        .iter()
        .map(|(name, value)| match value {
            RawValue::String(text) => format!("{name}: \"{text}\""),
            RawValue::Bool(value) => format!("{name}: {value}"),
            RawValue::Int32(value) => format!("{name}: {value}"),
            RawValue::Int64(value) => format!("{name}: {value}"),
            RawValue::Double(value) => format!("{name}: {value:?}"),
            RawValue::Decimal128(value) => format!("{name}: {value}"),
            _ => format!("{name}: null"),
        })
        .collect();
    format!("{{ {} }}", fields.join(", "))
}
