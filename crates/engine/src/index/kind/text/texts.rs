//! The texts of a document that an index has: strings at its paths, through documents and arrays.

use kilim_bson::{RawDocument, RawValue};
use kilim_error::{Error, Result};
use kilim_query::interrupt;
use kilim_text::{Language, Version};

use super::{Definition, Text};

impl Text {
    /// Gives each text to `take`, with its weight and its language, in the order of the document.
    pub(super) fn each_text<'a>(
        &self,
        document: RawDocument<'a>,
        take: &mut impl FnMut(&'a str, f64, Language),
    ) -> Result<()> {
        let language = self.0.language_of(document)?.unwrap_or(self.0.language);
        if self.0.version == Version::One && !self.0.has_everything {
            self.0.each_at_path(document, &mut |text, weight| take(text, weight, language));
            return Ok(());
        }
        let mut walk = Walk { definition: &self.0, path: String::new(), take };
        walk.fields(document, language, false)
    }
}

impl Definition {
    /// The language that a document names, if it names one.
    fn language_of(&self, document: RawDocument<'_>) -> Result<Option<Language>> {
        match document.get(&self.override_field) {
            None => Ok(None),
            Some(RawValue::String(name)) => match Language::parse(name, self.version) {
                Some(language) => Ok(Some(language)),
                None => Err(Error::location(17262, format!("language override unsupported: {name}"))),
            },
            // The first version takes what is no name for nothing.
            Some(_) if self.version == Version::One => Ok(None),
            Some(_) => {
                Err(Error::location(17261, "found language override field in document with non-string type"))
            }
        }
    }

    /// The weight of the texts at a path; none where the index does not have them.
    fn weight(&self, path: &str) -> Option<i32> {
        match self.weights.get(path) {
            Some(weight) => Some(*weight),
            None => self.has_everything.then_some(1),
        }
    }

    /// Gives each text as the first version finds it: a string at a path, or the strings of an array there. The path leads
    /// through documents, and into an array by a number.
    fn each_at_path<'a>(&self, document: RawDocument<'a>, take: &mut impl FnMut(&'a str, f64)) {
        for (path, &weight) in &self.weights {
            let mut names = path.split('.');
            let first = names.next().and_then(|name| document.get(name));
            let found = names.fold(first, |value, name| match value? {
                RawValue::Document(document) => document.get(name),
                RawValue::Array(list) => list.as_document().get(name),
                _ => None,
            });
            match found {
                Some(RawValue::String(text)) => take(text, f64::from(weight)),
                Some(RawValue::Array(list)) => {
                    list.iter()
                        .filter_map(|value| value.as_str())
                        .for_each(|text| take(text, f64::from(weight)));
                }
                _ => {}
            }
        }
    }

    /// Whether the index has texts below a path.
    fn goes_below(&self, path: &str) -> bool {
        let begins = |known: &str| known.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.has_everything || self.weights.keys().any(|known| begins(known))
    }
}

struct Walk<'d, F> {
    definition: &'d Definition,
    path: String,
    take: &'d mut F,
}

impl<'a, F: FnMut(&'a str, f64, Language)> Walk<'_, F> {
    /// Recursion is bounded by the depth of a stored document.
    fn fields(&mut self, document: RawDocument<'a>, language: Language, in_array: bool) -> Result<()> {
        let length = self.path.len();
        for (name, value) in document {
            if !in_array {
                // A language is no text.
                if *name == *self.definition.override_field {
                    continue;
                }
                if length > 0 {
                    self.path.push('.');
                }
                self.path.push_str(name);
            }
            match value {
                RawValue::String(text) => {
                    // The first version looks up the weight of a field by its own name.
                    let place = match self.definition.version {
                        Version::One => name,
                        _ => &self.path,
                    };
                    if let Some(weight) = self.definition.weight(place) {
                        interrupt::copied(text.len())?;
                        (self.take)(text, f64::from(weight), language);
                    }
                }
                RawValue::Document(below) if self.definition.goes_below(&self.path) => {
                    // The first version looks for a language in the document alone.
                    let own = match self.definition.version {
                        Version::One => None,
                        _ => self.definition.language_of(below)?,
                    };
                    self.fields(below, own.unwrap_or(language), false)?;
                }
                RawValue::Array(list)
                    if self.definition.has_everything
                        || !in_array
                            && (self.definition.goes_below(&self.path)
                                || self.definition.weight(&self.path).is_some()) =>
                {
                    self.fields(list.as_document(), language, true)?;
                }
                _ => {}
            }
            self.path.truncate(length);
        }
        Ok(())
    }
}
