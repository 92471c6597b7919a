//! The options of `create` that stay with a collection, as listCollections shows them.

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::Argument;

/// Options by name, in whatever order they were given.
#[derive(Default)]
pub struct CollectionOptions<'a> {
    pub validator: Option<RawDocument<'a>>,
    pub validation_level: Option<&'a str>,
    pub validation_action: Option<&'a str>,
}

impl<'a> CollectionOptions<'a> {
    /// Takes an option that `create` and `collMod` share; whether it is one.
    pub fn take(&mut self, argument: &Argument<'a>) -> Result<bool> {
        match argument.name {
            "validator" => self.validator = Some(argument.document()?),
            "validationLevel" => {
                self.validation_level = Some(one_of(argument, &["off", "strict", "moderate"])?);
            }
            "validationAction" => self.validation_action = Some(one_of(argument, &["error", "warn"])?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The first that was given, where none has a place.
    pub fn first_given(&self) -> Option<&'static str> {
        match (self.validator, self.validation_level, self.validation_action) {
            (Some(_), ..) => Some("validator"),
            (_, Some(_), _) => Some("validationLevel"),
            (.., Some(_)) => Some("validationAction"),
            _ => None,
        }
    }

    /// The same for `collMod`, after which it is written down how validation works.
    pub fn spelt_out_over(&self, options: RawDocument<'_>) -> Document {
        let or_else = |given: Option<&'a str>, name: &str, default: &'a str| {
            given.or_else(|| options.get(name).is_none().then_some(default))
        };
        let spelt_out = CollectionOptions {
            validator: self.validator,
            validation_level: or_else(self.validation_level, "validationLevel", "strict"),
            validation_action: or_else(self.validation_action, "validationAction", "error"),
        };
        spelt_out.over(options)
    }

    /// A collection's options with these put over them. A validator that asks nothing is none.
    pub fn over(&self, options: RawDocument<'_>) -> Document {
        let mut changed = Document::new();
        let given = |name: &str| match name {
            "validator" => self.validator.map(RawValue::Document),
            "validationLevel" => self.validation_level.map(RawValue::String),
            "validationAction" => self.validation_action.map(RawValue::String),
            _ => None,
        };
        for name in ORDER {
            let value = given(name).or_else(|| options.get(name));
            match value {
                None => {}
                Some(RawValue::Document(validator)) if name == "validator" && validator.is_empty() => {}
                Some(value) => changed.push(name, value.to_value()),
            }
        }
        for (name, value) in options.iter().filter(|(name, _)| !ORDER.contains(name)) {
            changed.push(name, value.to_value());
        }
        changed
    }
}

/// The order in which options are shown.
const ORDER: [&str; 9] = [
    "capped",
    "size",
    "max",
    "validator",
    "validationLevel",
    "validationAction",
    "collation",
    "clusteredIndex",
    "expireAfterSeconds",
];

fn one_of<'a>(argument: &Argument<'a>, names: &[&str]) -> Result<&'a str> {
    let given = argument.string()?;
    if names.contains(&given) {
        return Ok(given);
    }
    Err(Error::user(
        ErrorCode::BadValue,
        format!(
            "Enumeration value '{given}' for field '{}.{}' is not a valid value.",
            argument.command, argument.name
        ),
    ))
}
