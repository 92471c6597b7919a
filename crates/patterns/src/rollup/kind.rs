//! What a rollup means for documents: a child's rows leave groups and enter others, a parent shows its group.

use kilim_bson::{Document, RawDocument, RawValue, Value, compare, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{Rollup, WhenNotMatched};
use crate::declaration::{Mode, Options, WhenBehind};
use crate::effect::{Cause, Change, Due, DueByKey, Effect, Reader, Role, Sight, key_bytes};
use crate::kind::{Kind, Readings, WantedIndex};

impl Kind for Rollup {
    fn maintained_paths(&self) -> Vec<Box<str>> {
        self.outputs.iter().map(|(_, path)| path.clone()).collect()
    }

    fn evaluate(
        &self,
        change: &Change<'_>,
        _reader: &mut dyn Reader,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        match change.role {
            Role::Target => {
                effects.extend(self.shown_in(change));
                Ok(())
            }
            Role::Source => {
                effects.extend(self.moved_by(change)?);
                Ok(())
            }
        }
    }

    fn readings(&self) -> Readings {
        Readings { source: self.needed_paths(), target: vec![self.on.clone()] }
    }

    fn source(&self) -> Option<&str> {
        Some(&self.from)
    }

    fn check_options(&self, options: &Options) -> Result<()> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        let is_late = options.mode == Mode::Async && options.when_behind == WhenBehind::Patch;
        match is_late && self.inserts_parents() {
            false => Ok(()),
            true => Err(Error::user(
                ErrorCode::BadValue,
                "mode: \"async\" with whenNotMatched: \"insert\" needs whenBehind: \"serve\": a document that is not \
                 there yet cannot be shown",
            )),
        }
    }

    fn found_by(&self) -> Option<(Role, &str)> {
        Some((Role::Target, &self.on))
    }

    fn indexes(&self) -> Vec<WantedIndex> {
        let wanted = |key: Document| {
            let exact = key.iter().count() == 1 && self.walks_as_they_came();
            WantedIndex::over(Role::Source, key, exact)
        };
        self.supporting_indexes().into_iter().map(wanted).collect()
    }

    fn key_path(&self) -> Option<&str> {
        Some(&self.on)
    }

    fn keys_of(&self, target: RawDocument<'_>) -> Vec<Value> {
        self.key_of_parent(target).into_iter().collect()
    }

    fn refers(&self, target: RawDocument<'_>, key: RawValue<'_>) -> bool {
        self.key_of_parent(target).is_some_and(|own| compare(own.as_raw(), key).is_eq())
    }

    fn becomes(&self, target: RawDocument<'_>, key: RawValue<'_>, due: &Due) -> Result<Sight> {
        match due {
            Due::Group(Some(state)) => Ok(Sight::of(self.merged(target, key, state)?)),
            _ => Ok(Sight::AsStored),
        }
    }

    fn see(&self, target: RawDocument<'_>, due: &DueByKey) -> Result<Sight> {
        let Some(key) = self.key_of_parent(target) else { return Ok(Sight::AsStored) };
        match due.get(&key_bytes(key.as_raw())) {
            Some(due) => self.becomes(target, key.as_raw(), due),
            None => Ok(Sight::AsStored),
        }
    }

    fn corrected(&self, _target: RawDocument<'_>, _reader: &mut dyn Reader) -> Result<Option<Document>> {
        Ok(None)
    }

    fn rollup(&self) -> Option<&Rollup> {
        Some(self)
    }

    fn comes_and_goes(&self) -> bool {
        self.inserts_parents()
    }

    fn notices_deletion(&self) -> bool {
        true
    }

    fn explained(&self) -> Document {
        let mut accumulators = Document::new();
        self.upkeep().for_each(|(field, upkeep)| accumulators.push(field, upkeep.name()));
        doc! {"accumulators": accumulators}
    }
}

impl Rollup {
    /// Whether groups have documents of their own, made and removed with them.
    pub fn inserts_parents(&self) -> bool {
        self.when_not_matched == WhenNotMatched::Insert
    }

    /// What a parent shows that is written.
    fn shown_in(&self, change: &Change<'_>) -> Option<Effect> {
        let after = change.after.filter(|_| change.shapes_target())?;
        let key = self.key_of_parent(after);
        let before = change.before.filter(|_| !change.cause.is_refresh());
        let bytes = |key: &Value| key_bytes(key.as_raw());
        if let Some(before) = before
            && self.key_of_parent(before).as_ref().map(bytes) == key.as_ref().map(bytes)
        {
            let document = self.restored(before, after)?;
            return Some(Effect::Becomes { document, replaced: true });
        }
        // A new document that brings such fields: they give way too.
        let bare = || self.restored(RawDocument::empty(), after);
        let may_bring = before.is_none() && change.cause == Cause::User;
        match key {
            Some(key) => Some(Effect::ShowsGroup { key, replaced: may_bring && bare().is_some() }),
            None => bare().map(|document| Effect::Becomes { document, replaced: may_bring }),
        }
    }

    /// The rows that a changed child takes from groups and brings to groups.
    fn moved_by(&self, change: &Change<'_>) -> Result<Option<Effect>> {
        let (out, into) = (self.rows_of(change.before), self.rows_of(change.after));
        let stays = change.before.is_some() && change.after.is_some() && self.same_rows(&out, &into)?;
        if stays || out.is_empty() && into.is_empty() {
            return Ok(None);
        }
        Ok(Some(Effect::Rows { out, into, newest: change.before.is_none() }))
    }
}
