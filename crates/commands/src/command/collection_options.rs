//! The options of `create` that stay with a collection, as listCollections shows them.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_error::{Error, ErrorCode, Result};

use kilim_engine::Namespace;
use kilim_engine::change_log::IMAGES_OPTION;

use crate::argument::{Argument, nested};

/// Options by name, in whatever order they were given.
#[derive(Default)]
pub struct CollectionOptions<'a> {
    pub capped: bool,
    pub size: Option<i64>,
    /// The size that `collMod` was asked for, before it was rounded.
    pub asked_size: Option<i64>,
    pub max: Option<i64>,
    pub clustered: Option<Document>,
    pub expires: Option<Expires>,
    pub collation: Option<Document>,
    pub validator: Option<RawDocument<'a>>,
    pub validation_level: Option<&'a str>,
    pub validation_action: Option<&'a str>,
    /// Whether images are kept for change streams.
    pub images: Option<bool>,
}

/// When the documents of a clustered collection go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expires {
    Never,
    AfterSeconds(i64),
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
            IMAGES_OPTION => self.images = Some(parse_images(argument)?),
            // The names that `collMod` has for them.
            "cappedSize" if argument.command == "collMod" => {
                self.size = Some(capped_size(argument)?);
                self.asked_size = Some(argument.integer()?);
            }
            "cappedMax" if argument.command == "collMod" => self.max = Some(capped_max(argument)?),
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
            _ if self.images.is_some() => Some(IMAGES_OPTION),
            _ if self.resizes() => Some("cappedSize"),
            _ => self.expires.map(|_| "expireAfterSeconds"),
        }
    }

    /// Whether validation is to change.
    pub fn validates(&self) -> bool {
        self.validator.is_some() || self.validation_level.is_some() || self.validation_action.is_some()
    }

    /// Whether a bound is to change.
    pub fn resizes(&self) -> bool {
        self.size.is_some() || self.max.is_some()
    }

    /// The same for `collMod`, after which it is written down how validation works.
    pub fn spelt_out_over(&self, options: RawDocument<'_>) -> Document {
        if !self.validates() {
            return self.over(options);
        }
        let or_else = |given: Option<&'a str>, name: &str, default: &'a str| {
            given.or_else(|| options.get(name).is_none().then_some(default))
        };
        let spelt_out = CollectionOptions {
            asked_size: None,
            capped: self.capped,
            size: self.size,
            max: self.max,
            clustered: None,
            expires: self.expires,
            collation: None,
            validator: self.validator,
            validation_level: or_else(self.validation_level, "validationLevel", "strict"),
            validation_action: or_else(self.validation_action, "validationAction", "error"),
            images: self.images,
        };
        spelt_out.over(options)
    }

    /// Adds what was given to the description of a `collMod`, in MongoDB's order.
    pub fn describe_in(&self, description: &mut Document) {
        let mut add = |name: &str, value: Option<RawValue<'_>>| {
            value.into_iter().for_each(|value| description.push(name, value));
        };
        if let Some(enabled) = self.images {
            add(IMAGES_OPTION, Some(RawValue::Document(doc! {"enabled": enabled}.as_raw())));
        }
        add("cappedSize", self.asked_size.map(RawValue::Int64));
        add("cappedMax", self.max.map(RawValue::Int64));
        add("validator", self.validator.map(RawValue::Document));
        add("validationLevel", self.validation_level.map(RawValue::String));
        add("validationAction", self.validation_action.map(RawValue::String));
        add(
            "expireAfterSeconds",
            self.expires.map(|expires| match expires {
                Expires::Never => RawValue::String("off"),
                Expires::AfterSeconds(seconds) => RawValue::Int64(seconds),
            }),
        );
    }

    /// A collection's options with these put over them. A validator that asks nothing is none.
    pub fn over(&self, options: RawDocument<'_>) -> Document {
        let mut changed = Document::new();
        let images = doc! {"enabled": true};
        let given = |name: &str| match name {
            "capped" => self.capped.then_some(RawValue::Bool(true)),
            "size" => self.size.map(whole),
            "max" => self.max.map(whole),
            "clusteredIndex" => self.clustered.as_ref().map(|spec| RawValue::Document(spec.as_raw())),
            "expireAfterSeconds" => match self.expires {
                Some(Expires::AfterSeconds(seconds)) => Some(RawValue::Int64(seconds)),
                _ => None,
            },
            "collation" => self.collation.as_ref().map(|collation| RawValue::Document(collation.as_raw())),
            "validator" => self.validator.map(RawValue::Document),
            "validationLevel" => self.validation_level.map(RawValue::String),
            "validationAction" => self.validation_action.map(RawValue::String),
            IMAGES_OPTION if self.images == Some(true) => Some(RawValue::Document(images.as_raw())),
            _ => None,
        };
        for name in ORDER {
            if name == IMAGES_OPTION && self.images == Some(false) {
                continue;
            }
            if name == "expireAfterSeconds" && self.expires == Some(Expires::Never) {
                continue;
            }
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

/// `{enabled: true}`.
fn parse_images(argument: &Argument<'_>) -> Result<bool> {
    let path = match argument.command {
        "create" => "create.changeStreamPreAndPostImages",
        _ => "collMod.changeStreamPreAndPostImages",
    };
    let mut enabled = None;
    for field in nested(path, argument.document()?) {
        match field.name {
            "enabled" => enabled = Some(field.strict_boolean()?),
            _ => return Err(field.unknown()),
        }
    }
    enabled.ok_or_else(|| {
        Error::location(40414, format!("BSON field '{path}.enabled' is missing but a required field"))
    })
}

/// Refuses images where there are no change streams that could show them.
pub fn check_images(namespace: &Namespace) -> Result<()> {
    match &*namespace.database {
        database @ ("admin" | "config" | "local") => Err(Error::user(
            ErrorCode::InvalidOptions,
            format!("{IMAGES_OPTION} collection option is not supported on the {database} database"),
        )),
        _ => Ok(()),
    }
}

/// The order in which options are shown.
const ORDER: [&str; 10] = [
    "capped",
    "size",
    "max",
    "validator",
    "validationLevel",
    "validationAction",
    "collation",
    "clusteredIndex",
    "expireAfterSeconds",
    IMAGES_OPTION,
];

/// An int where it fits one.
fn whole(number: i64) -> RawValue<'static> {
    i32::try_from(number).map_or(RawValue::Int64(number), RawValue::Int32)
}

/// Sizes are whole multiples of this.
const SIZE_STEP: i64 = 256;
pub const SIZE_MAX: i64 = 1 << 50;
const DOCUMENTS_MAX: i64 = i32::MAX as i64;

/// The size of a capped collection, rounded up.
pub fn capped_size(argument: &Argument<'_>) -> Result<i64> {
    let size = argument.integer()?;
    let refuse = |bound: String| {
        let message = format!("BSON field '{}' value must be {bound}, actual value '{size}'", argument.name);
        Err(Error::location(51024, message))
    };
    match size {
        ..1 => refuse(">= 1".to_owned()),
        size if size > SIZE_MAX => refuse(format!("<= {SIZE_MAX}")),
        size => Ok(round_size(size)),
    }
}

pub fn round_size(size: i64) -> i64 {
    (size.max(1) + SIZE_STEP - 1) / SIZE_STEP * SIZE_STEP
}

/// How many documents a capped collection may have; nothing and less mean the most there can be.
pub fn capped_max(argument: &Argument<'_>) -> Result<i64> {
    match argument.integer()? {
        ..1 => Ok(DOCUMENTS_MAX),
        max if max > DOCUMENTS_MAX => Err(Error::location(
            51024,
            format!(
                "BSON field '{}' value must be < {}, actual value '{max}'",
                argument.name,
                DOCUMENTS_MAX + 1
            ),
        )),
        max => Ok(max),
    }
}

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
