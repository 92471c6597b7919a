//! The values that options take, under the names that the driver has for them.
//!
//! What they say is checked where it is used, by the same code that reads a command from the wire.

use bson::{Bson, Document, doc};

/// The index to use: by its key, by its name, or `{$natural: 1}` for none.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Hint {
    Keys(Document),
    Name(String),
}

impl From<Document> for Hint {
    fn from(keys: Document) -> Hint {
        Hint::Keys(keys)
    }
}

impl From<String> for Hint {
    fn from(name: String) -> Hint {
        Hint::Name(name)
    }
}

impl From<&str> for Hint {
    fn from(name: &str) -> Hint {
        Hint::Name(name.to_owned())
    }
}

impl From<Hint> for Bson {
    fn from(hint: Hint) -> Bson {
        match hint {
            Hint::Keys(keys) => Bson::Document(keys),
            Hint::Name(name) => Bson::String(name),
        }
    }
}

/// How a language compares texts. A document as MongoDB has it does too: `doc! {"locale": "de", "strength": 1}`.
///
/// ```
/// use kilim::{Database, bson::{Document, doc}};
/// use kilim::options::{Collation, CollationStrength};
///
/// # fn main() -> kilim::Result<()> {
/// let streets = Database::in_memory()?.collection::<Document>("streets");
/// streets.insert_many([doc! {"_id": "10 Löwenweg"}, doc! {"_id": "9 löwenweg"}]).run()?;
///
/// let german = Collation::new("de").strength(CollationStrength::Primary).numeric_ordering(true);
/// let sorted = streets.find(doc! {}).sort(doc! {"_id": 1}).collation(german.clone()).run()?;
/// let sorted: Vec<Document> = sorted.collect::<kilim::Result<_>>()?;
/// assert_eq!(sorted, [doc! {"_id": "9 löwenweg"}, doc! {"_id": "10 Löwenweg"}]);
/// assert_eq!(streets.count_documents(doc! {"_id": "9 LOWENWEG"}).collation(german).run()?, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Collation(Document);

impl Collation {
    /// The order of a locale, such as `sv` or `de@collation=phonebook`; `simple` is that of bytes.
    pub fn new(locale: impl Into<String>) -> Collation {
        Collation(doc! {"locale": locale.into()})
    }

    /// Which differences count.
    pub fn strength(self, strength: CollationStrength) -> Collation {
        self.with("strength", strength as i32)
    }

    /// Whether case counts where the strength leaves it out.
    pub fn case_level(self, counts: bool) -> Collation {
        self.with("caseLevel", counts)
    }

    pub fn case_first(self, first: CollationCaseFirst) -> Collation {
        let first = match first {
            CollationCaseFirst::Upper => "upper",
            CollationCaseFirst::Lower => "lower",
            CollationCaseFirst::Off => "off",
        };
        self.with("caseFirst", first)
    }

    /// Whether digits in a row compare as the number they make.
    pub fn numeric_ordering(self, numeric: bool) -> Collation {
        self.with("numericOrdering", numeric)
    }

    /// Whether blanks and punctuation count.
    pub fn alternate(self, alternate: CollationAlternate) -> Collation {
        let alternate = match alternate {
            CollationAlternate::NonIgnorable => "non-ignorable",
            CollationAlternate::Shifted => "shifted",
        };
        self.with("alternate", alternate)
    }

    /// What [`CollationAlternate::Shifted`] leaves out.
    pub fn max_variable(self, variable: CollationMaxVariable) -> Collation {
        let variable = match variable {
            CollationMaxVariable::Punct => "punct",
            CollationMaxVariable::Space => "space",
        };
        self.with("maxVariable", variable)
    }

    pub fn normalization(self, normalize: bool) -> Collation {
        self.with("normalization", normalize)
    }

    /// Whether accents are compared from the end, as in Canadian French.
    pub fn backwards(self, backwards: bool) -> Collation {
        self.with("backwards", backwards)
    }

    fn with(mut self, name: &str, value: impl Into<Bson>) -> Collation {
        self.0.insert(name, value);
        self
    }
}

impl From<Document> for Collation {
    fn from(document: Document) -> Collation {
        Collation(document)
    }
}

impl From<Collation> for Bson {
    fn from(collation: Collation) -> Bson {
        Bson::Document(collation.0)
    }
}

/// Which differences count; each has those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollationStrength {
    /// Letters.
    Primary = 1,
    /// Accents.
    Secondary = 2,
    /// Case.
    Tertiary = 3,
    /// Punctuation, where it is left out otherwise.
    Quaternary = 4,
    /// All.
    Identical = 5,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollationCaseFirst {
    Upper,
    Lower,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollationAlternate {
    NonIgnorable,
    Shifted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollationMaxVariable {
    /// Blanks and punctuation.
    Punct,
    /// Blanks alone.
    Space,
}

/// Which of a changed document's two images is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnDocument {
    /// As it was: what happens where nothing is said.
    Before,
    /// As it is.
    After,
}

/// What a cursor over a capped collection does at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorType {
    /// It is done.
    NonTailable,
    /// The iterator ends, and goes on with what came since when it is asked again.
    Tailable,
    /// The iterator waits for what comes next, and ends with the collection.
    TailableAwait,
}

/// Which document an update shows in a change stream, beside what it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDocument {
    /// As it is when the event is read.
    UpdateLookup,
    /// As it was after the change, if the collection keeps images.
    WhenAvailable,
    /// As it was after the change; without an image the stream fails.
    Required,
}

impl From<FullDocument> for Bson {
    fn from(which: FullDocument) -> Bson {
        let which = match which {
            FullDocument::UpdateLookup => "updateLookup",
            FullDocument::WhenAvailable => "whenAvailable",
            FullDocument::Required => "required",
        };
        which.into()
    }
}

/// Whether changes show the document before in a change stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDocumentBeforeChange {
    /// If the collection keeps images.
    WhenAvailable,
    /// Without an image the stream fails.
    Required,
}

impl From<FullDocumentBeforeChange> for Bson {
    fn from(which: FullDocumentBeforeChange) -> Bson {
        let which = match which {
            FullDocumentBeforeChange::WhenAvailable => "whenAvailable",
            FullDocumentBeforeChange::Required => "required",
        };
        which.into()
    }
}

/// Which documents a validator looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidationLevel {
    Off,
    Strict,
    /// Not those that did not satisfy it before.
    Moderate,
}

impl From<ValidationLevel> for Bson {
    fn from(level: ValidationLevel) -> Bson {
        let level = match level {
            ValidationLevel::Off => "off",
            ValidationLevel::Strict => "strict",
            ValidationLevel::Moderate => "moderate",
        };
        level.into()
    }
}

/// What becomes of a document that a validator does not accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidationAction {
    Error,
    Warn,
}

impl From<ValidationAction> for Bson {
    fn from(action: ValidationAction) -> Bson {
        let action = match action {
            ValidationAction::Error => "error",
            ValidationAction::Warn => "warn",
        };
        action.into()
    }
}

/// A collection in the order of `_id`, which then needs no index.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ClusteredIndex {
    /// `_id_` where nothing is said.
    pub name: Option<String>,
}

impl From<ClusteredIndex> for Bson {
    fn from(index: ClusteredIndex) -> Bson {
        let mut document = doc! {"key": {"_id": 1}, "unique": true};
        if let Some(name) = index.name {
            document.insert("name", name);
        }
        Bson::Document(document)
    }
}
