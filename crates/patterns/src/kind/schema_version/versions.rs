//! The versions of a collection: steps that lead from every version to the current one.
//!
//! Each version but the current one is left by exactly one step, so there is one way from each. A version is shown if all
//! steps on its way can be taken back.

use std::sync::Arc;

use kilim_bson::{Document, JsonFormat, RawDocument, RawValue, value_to_extended_json};
use kilim_error::{Error, ErrorCode, Result};

use super::merge::{merged, same_but};
use super::step::{OnError, VersionStep, version_in, with_version};

/// The versions that documents of one collection may have.
#[derive(Debug, Clone)]
pub struct Versions {
    steps: Vec<Arc<VersionStep>>,
    field: Box<str>,
    current: i32,
    /// The version of documents that say none.
    lowest: i32,
}

impl Versions {
    /// The versions that these steps lead between.
    pub fn of(steps: Vec<Arc<VersionStep>>) -> Result<Versions> {
        let gap = |message: String| Error::user(ErrorCode::VersionChainGap, message);
        let [first, ..] = &steps[..] else { return Err(Error::bug("versions without a step")) };
        let field = first.field.clone();
        if let Some(other) = steps.iter().find(|step| step.field != field) {
            return Err(gap(format!(
                "versions of one collection are in one field: '{field}' and '{}' differ",
                other.field
            )));
        }
        let leaving = |version: i32| steps.iter().filter(move |step| step.from == version);
        if let Some(step) = steps.iter().find(|step| leaving(step.from).count() > 1) {
            return Err(gap(format!(
                "two steps lead from version {}: a version is converted to one other, so declare a step from the newest",
                step.from
            )));
        }
        let mut ends = steps.iter().map(|step| step.to).filter(|version| leaving(*version).next().is_none());
        let current = ends.next().ok_or_else(|| gap("the steps lead in a circle".to_owned()))?;
        if let Some(other) = ends.find(|version| *version != current) {
            return Err(gap(format!(
                "the steps lead to version {current} and to version {other}: declare a step from the newest version"
            )));
        }
        let lowest = steps.iter().flat_map(|step| [step.from, step.to]).min().unwrap_or(current);
        let versions = Versions { field, current, lowest, steps };
        // A circle beside the way to the current version.
        match versions.steps.iter().find(|step| versions.way(step.from).is_none()) {
            Some(step) => Err(gap(format!("version {} does not lead to version {current}", step.from))),
            None => Ok(versions),
        }
    }

    pub fn current(&self) -> i32 {
        self.current
    }

    /// The version of documents that say none.
    pub fn lowest(&self) -> i32 {
        self.lowest
    }

    pub fn steps(&self) -> &[Arc<VersionStep>] {
        &self.steps
    }

    /// The steps from a version to the current one; none where it is not among the versions.
    fn way(&self, from: i32) -> Option<Vec<&VersionStep>> {
        let (mut way, mut at) = (Vec::new(), from);
        while at != self.current {
            let step = self.steps.iter().find(|step| step.from == at)?;
            if way.len() > self.steps.len() {
                return None;
            }
            way.push(&**step);
            at = step.to;
        }
        Some(way)
    }

    /// Whether a version is among these.
    pub fn has(&self, version: i32) -> bool {
        self.way(version).is_some()
    }

    /// Which version a stored document has; none where it says something that is no version.
    pub fn version_of(&self, document: RawDocument<'_>) -> Option<i32> {
        match document.get(&self.field) {
            None | Some(RawValue::Null) => Some(self.lowest),
            Some(value) => version_in(value),
        }
    }

    /// The version that a document says it has; none where it says nothing, or something that is no version.
    pub fn says(&self, document: RawDocument<'_>) -> Option<i32> {
        document.get(&self.field).and_then(version_in)
    }

    fn says_none(&self, document: RawDocument<'_>) -> bool {
        matches!(document.get(&self.field), None | Some(RawValue::Null))
    }

    /// Whether a document says that it has the current version.
    #[inline]
    fn is_current(&self, document: RawDocument<'_>) -> bool {
        self.says(document) == Some(self.current)
    }

    /// A stored document in the current version; none where it is seen as it is stored.
    pub fn seen(&self, document: RawDocument<'_>) -> Result<Option<Document>> {
        if self.is_current(document) {
            return Ok(None);
        }
        let Some(way) = self.version_of(document).and_then(|version| self.way(version)) else {
            return Ok(None);
        };
        if way.is_empty() {
            // It has the current version and does not say so.
            return Ok(Some(with_version(document, &self.field, self.current)));
        }
        match self.converted(document, &way, false) {
            Ok(converted) => Ok(Some(converted)),
            Err(_) if keeps_old(&way) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A document that a user writes in any version, as it is stored; none where it is stored as it is. `made_of`: the document
    /// that it was before an update, as it was seen. `is_validated`: what steps ask of documents of their newer version is
    /// asked of it.
    pub fn settled(
        &self,
        document: RawDocument<'_>,
        made_of: Option<RawDocument<'_>>,
        is_validated: bool,
    ) -> Result<Option<Document>> {
        let version = match document.get(&self.field) {
            // One that was seen without a version is kept in an older one, and an update does not change that.
            None | Some(RawValue::Null) if made_of.is_some_and(|before| self.says_none(before)) => {
                Some(self.lowest)
            }
            None | Some(RawValue::Null) => {
                self.check_valid(document, is_validated)?;
                return Ok(Some(with_version(document, &self.field, self.current)));
            }
            Some(value) => version_in(value),
        };
        let Some(way) = version.and_then(|version| self.way(version)) else {
            return Err(self.unknown(document));
        };
        if way.is_empty() {
            self.check_valid(document, is_validated)?;
            return Ok(None);
        }
        match self.converted(document, &way, is_validated) {
            Ok(converted) => Ok(Some(converted)),
            Err(_) if keeps_old(&way) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A document of the current version as an older one shows it. One that is kept in an older version is shown as it is.
    pub fn shown(&self, document: RawDocument<'_>, version: i32) -> Result<Document> {
        if !self.is_current(document) {
            return Ok(document.to_document());
        }
        let way = self.way(version).ok_or_else(|| Error::bug("a version that does not exist is shown"))?;
        match self.taken_back(document, &way) {
            Ok(shown) => Ok(shown),
            Err(_) if keeps_old(&way) => Ok(document.to_document()),
            Err(error) => Err(Error::user(
                ErrorCode::VersionLossy,
                format!(
                    "the document with _id {} cannot be shown in version {version}: {error}",
                    id_of(document)
                ),
            )),
        }
    }

    /// What is stored if a user makes `after` of a document that he was shown in an older version. `current` is that document
    /// in the current version; none where he inserts one. `is_whole`: he wrote all of `after`, not a change of what he was
    /// shown.
    pub fn written(
        &self,
        version: i32,
        current: Option<RawDocument<'_>>,
        after: RawDocument<'_>,
        is_whole: bool,
    ) -> Result<Document> {
        let made_of = current.filter(|_| !is_whole);
        // One that is kept in an older version was shown as it is, and is still in that one.
        let is_kept = made_of.is_some_and(|before| self.says_none(before));
        let after = match after.get(&self.field) {
            None | Some(RawValue::Null) if !is_kept => with_version(after, &self.field, version),
            _ => after.to_document(),
        };
        let current = current.filter(|current| self.is_current(*current));
        let new = match self.settled(after.as_raw(), made_of, true)? {
            Some(settled) => settled,
            // It is in the current version, or it is kept as it is.
            None => {
                return match current.filter(|_| !self.is_current(after.as_raw())) {
                    Some(current) if !self.says_all(current, version)? => Err(Error::user(
                        ErrorCode::VersionLossy,
                        format!(
                            "the document with _id {} has values that version {version} cannot say, and that would be lost: what \
                             is written cannot be converted to version {}",
                            id_of(after.as_raw()),
                            self.current
                        ),
                    )),
                    _ => Ok(after),
                };
            }
        };
        if !self.is_current(new.as_raw()) || version_in_field(&after, &self.field) != Some(version) {
            return Ok(new);
        }
        let stored = match current {
            Some(current) => {
                let shown = self.shown(current, version)?;
                match self.settled(shown.as_raw(), None, false)? {
                    Some(base) => merged(current, base.as_raw(), new.as_raw()).ok_or_else(|| {
                        Error::user(
                            ErrorCode::VersionLossy,
                            format!(
                                "elements of an array of the document with _id {} have values that version {version} cannot say, \
                                 and that would be lost if they are removed or moved: write it in version {}",
                                id_of(after.as_raw()),
                                self.current
                            ),
                        )
                    })?,
                    None => new,
                }
            }
            None => new,
        };
        let back = self.shown(stored.as_raw(), version)?;
        if same_but(back.as_raw(), after.as_raw(), Some(&self.field)) {
            return Ok(stored);
        }
        Err(Error::user(
            ErrorCode::VersionLossy,
            format!(
                "the document with _id {} would not be read in version {version} as it is written: the conversion to version \
                 {} and back changes it",
                id_of(after.as_raw()),
                self.current
            ),
        ))
    }

    /// Whether a stored document can be put into the current version, and taken back where that is declared.
    pub fn check(&self, document: RawDocument<'_>) -> Result<()> {
        let Some(way) = self.version_of(document).and_then(|version| self.way(version)) else {
            return Err(self.unknown(document));
        };
        if way.is_empty() {
            return Ok(());
        }
        let converted = self.converted(document, &way, true)?;
        if way.iter().any(|step| !step.has_down()) {
            return Ok(());
        }
        let back = self.taken_back(converted.as_raw(), &way);
        let back = back.as_ref().map(Document::as_raw);
        if back.is_ok_and(|back| same_but(back, document, Some(&self.field))) {
            return Ok(());
        }
        Err(Error::user(
            ErrorCode::VersionLossy,
            format!(
                "the document with _id {} is another one after the conversion to version {} and back: correct 'up' or 'down', \
                 or leave out 'down', if the older version is not to be shown",
                id_of(document),
                self.current
            ),
        ))
    }

    /// Whether nothing is lost if a document of the current version is given up for an older one.
    pub fn check_back(&self, document: RawDocument<'_>, version: i32) -> Result<()> {
        if self.says_all(document, version)? {
            return Ok(());
        }
        Err(Error::user(
            ErrorCode::VersionLossy,
            format!(
                "the document with _id {} has values that version {version} cannot say, and that would be lost: {{lossy: true}} \
                 gives them up",
                id_of(document)
            ),
        ))
    }

    /// Whether an older version says all that a document of the current one says.
    fn says_all(&self, document: RawDocument<'_>, version: i32) -> Result<bool> {
        let shown = self.shown(document, version)?;
        let again = self.settled(shown.as_raw(), Some(document), false)?;
        let again = again.as_ref().map_or(shown.as_raw(), Document::as_raw);
        Ok(same_but(again, document, Some(&self.field)))
    }

    /// The versions that are shown beside the current one, and the names of collections under which they are.
    pub fn aliases(&self, collection: &str) -> Vec<(i32, Box<str>)> {
        let is_shown = |version: i32| {
            self.way(version).is_some_and(|way| !way.is_empty() && way.iter().all(|step| step.has_down()))
        };
        let mut versions: Vec<i32> =
            self.steps.iter().map(|step| step.from).filter(|it| is_shown(*it)).collect();
        versions.sort_unstable();
        let name = |version: i32| {
            let declared = self.steps.iter().find_map(|step| step.aliases.get(&version));
            declared.cloned().unwrap_or_else(|| format!("{collection}@{version}").into())
        };
        versions.into_iter().map(|version| (version, name(version))).collect()
    }

    /// Whether values at a path may differ between versions.
    pub fn touches(&self, path: &str) -> bool {
        // A number in a path may be an index of an array.
        let names: Vec<&str> = path.split('.').filter(|name| name.parse::<u32>().is_err()).collect();
        let path = names.join(".");
        path != "_id"
            && !path.starts_with("_id.")
            && self.steps.iter().any(|step| match step.touched() {
                Some(paths) => paths.iter().any(|own| crate::path::overlap(own, &path)),
                None => true,
            })
    }

    fn converted(
        &self,
        document: RawDocument<'_>,
        way: &[&VersionStep],
        is_validated: bool,
    ) -> Result<Document> {
        let mut made: Option<Document> = None;
        for step in way {
            let now = made.as_ref().map_or(document, Document::as_raw);
            let converted = step.up.apply(now).and_then(|converted| {
                let converted = step.with_version(converted.as_raw(), step.to);
                if is_validated {
                    step.check_valid(converted.as_raw())?;
                }
                Ok(converted)
            });
            made = Some(converted.map_err(|error| up_failed(document, step, &error))?);
        }
        made.ok_or_else(|| Error::bug("a conversion of no steps"))
    }

    fn taken_back(&self, document: RawDocument<'_>, way: &[&VersionStep]) -> Result<Document> {
        let mut made: Option<Document> = None;
        for step in way.iter().rev() {
            let now = made.as_ref().map_or(document, Document::as_raw);
            let down = step.down.as_ref().ok_or_else(|| Error::bug("a step is taken back that cannot be"))?;
            made = Some(step.with_version(down.apply(now)?.as_raw(), step.from));
        }
        Ok(made.unwrap_or_else(|| document.to_document()))
    }

    /// Asks the step that leads to the current version about a document of it.
    fn check_valid(&self, document: RawDocument<'_>, is_asked: bool) -> Result<()> {
        let leading = self.steps.iter().filter(|step| is_asked && step.to == self.current);
        leading.into_iter().try_for_each(|step| step.check_valid(document))
    }

    fn unknown(&self, document: RawDocument<'_>) -> Error {
        let says = document.get(&self.field).map(|value| value_to_extended_json(value, JsonFormat::Relaxed));
        Error::user(
            ErrorCode::VersionChainGap,
            format!(
                "the document with _id {} has {} as its '{}', from which no step leads to version {}",
                id_of(document),
                says.unwrap_or_default(),
                self.field,
                self.current
            ),
        )
    }
}

impl VersionStep {
    fn check_valid(&self, document: RawDocument<'_>) -> Result<()> {
        match &self.validator {
            Some(validator) if !validator.matches(document)? => Err(Error::user(
                ErrorCode::DocumentValidationFailure,
                format!(
                    "Document failed validation: the document with _id {} does not match what 'schemaVersion.validator' asks of \
                     version {}",
                    id_of(document),
                    self.to
                ),
            )),
            _ => Ok(()),
        }
    }
}

fn version_in_field(document: &Document, field: &str) -> Option<i32> {
    document.get(field).and_then(version_in)
}

fn keeps_old(way: &[&VersionStep]) -> bool {
    way.iter().any(|step| step.on_error == OnError::KeepOld)
}

fn up_failed(document: RawDocument<'_>, step: &VersionStep, error: &Error) -> Error {
    Error::user(
        ErrorCode::VersionUpFailed,
        format!(
            "the document with _id {} cannot be converted from version {} to {}: {error}",
            id_of(document),
            step.from,
            step.to
        ),
    )
}

fn id_of(document: RawDocument<'_>) -> String {
    document.get("_id").map(|id| value_to_extended_json(id, JsonFormat::Relaxed)).unwrap_or_default()
}
