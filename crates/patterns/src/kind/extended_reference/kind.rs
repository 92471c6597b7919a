//! What an extended reference means for documents.

use kilim_bson::{Document, RawDocument, RawValue, Value, compare};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::Dependencies;

use super::{FanOut, OnSourceDelete, Reference, Shaped, has};
use crate::effect::{Cause, Change, Copied, Due, DueByKey, Effect, Reader, Role, Sight, key_bytes};
use crate::kind::{Kind, Readings, Title, WantedIndex};
use crate::path::lies_within;

impl Kind for Reference {
    fn maintained_paths(&self) -> Vec<Box<str>> {
        match &self.as_path {
            Some(path) => vec![path.clone()],
            None => self.fields.names().map(Into::into).collect(),
        }
    }

    fn evaluate(
        &self,
        change: &Change<'_>,
        reader: &mut dyn Reader,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        match change.role {
            Role::Target => self.fill(change, reader, effects),
            Role::Source => {
                self.spread(change, effects);
                Ok(())
            }
        }
    }

    fn readings(&self) -> Readings {
        let mut needed = Dependencies::default();
        self.fields.dependencies(&mut needed);
        needed.field(&self.foreign_field);
        let source = (!needed.whole_document).then(|| needed.fields.into_iter().collect());
        let mut own = Dependencies::default();
        own.field(&self.local_field);
        if let Some(filter) = &self.while_filter {
            filter.dependencies(&mut own);
        }
        Readings { source, target: own.fields.into_iter().collect() }
    }

    fn source(&self) -> Option<&str> {
        Some(&self.from)
    }

    fn is_about_data(&self, field: &str) -> bool {
        // It says what becomes of writes to come.
        field != "onMissing"
    }

    fn found_by(&self) -> Option<(Role, &str)> {
        Some((Role::Source, &self.foreign_field))
    }

    fn indexes(&self) -> Vec<WantedIndex> {
        let mut key = Document::new();
        key.push(&self.local_field, 1);
        vec![WantedIndex::over(Role::Target, key, false)]
    }

    fn key_path(&self) -> Option<&str> {
        Some(&self.local_field)
    }

    fn keys_of(&self, target: RawDocument<'_>) -> Vec<Value> {
        self.references(target)
    }

    fn refers(&self, target: RawDocument<'_>, key: RawValue<'_>) -> bool {
        let mut found = false;
        self.visit_references(target, &mut |own| found |= compare(own, key).is_eq());
        found
    }

    fn becomes(&self, target: RawDocument<'_>, key: RawValue<'_>, due: &Due) -> Result<Sight> {
        if !self.refers(target, key) {
            return Ok(Sight::AsStored);
        }
        match due {
            Due::Remove => Ok(Sight::Gone),
            Due::Copy(copied) if self.is_live(target)? => Ok(Sight::of(self.patched(target, key, copied)?)),
            Due::Copy(_) | Due::Group(_) => Ok(Sight::AsStored),
        }
    }

    fn see(&self, target: RawDocument<'_>, due: &DueByKey) -> Result<Sight> {
        let (mut met, mut gone) = (false, false);
        let mut bytes = Vec::new();
        self.visit_references(target, &mut |key| {
            bytes.clear();
            kilim_bson::encode_value(&mut bytes, key, false);
            match due.get(&bytes) {
                Some(Due::Remove) => gone = true,
                Some(_) => met = true,
                None => {}
            }
        });
        if gone {
            return Ok(Sight::Gone);
        }
        if !met || !self.is_live(target)? {
            return Ok(Sight::AsStored);
        }
        let made = self.rewrite(target, &mut |key| {
            Ok(match due.get(&key_bytes(key)) {
                Some(Due::Copy(copied)) => copied.clone(),
                _ => Copied::Keep,
            })
        })?;
        Ok(Sight::of((made.as_bytes() != target.as_bytes()).then_some(made)))
    }

    fn renewed(&self, due: &Due, source: Option<RawDocument<'_>>) -> Option<Due> {
        Some(match (source, due) {
            (Some(source), _) => Due::Copy(Copied::To(self.copy_of(source))),
            (None, Due::Remove) => Due::Remove,
            (None, due) => self.when_gone().map_or_else(|| due.clone(), Due::Copy),
        })
    }

    fn corrected(&self, target: RawDocument<'_>, reader: &mut dyn Reader) -> Result<Option<Document>> {
        // An empty copy that follows no source any more looks like none. Only a backfill knows that it was never made.
        if !self.is_live(target)? && self.site.hides_empty_copies() {
            return Ok(None);
        }
        self.corrected_by(target, &mut |key| reader.source(key))
    }

    fn stripped(&self, target: RawDocument<'_>) -> Result<Option<Document>> {
        let made = self.rewrite(target, &mut |_| Ok(Copied::Unset))?;
        Ok((made.as_bytes() != target.as_bytes()).then_some(made))
    }

    fn comes_and_goes(&self) -> bool {
        self.on_source_delete == OnSourceDelete::Cascade
    }

    fn notices_deletion(&self) -> bool {
        self.on_source_delete != OnSourceDelete::Keep
    }

    fn restricts(&self) -> bool {
        self.on_source_delete == OnSourceDelete::Restrict
    }

    fn restricted(&self, title: &Title<'_>, target: RawDocument<'_>, key: RawValue<'_>) -> Option<Error> {
        let id = target.get("_id").map(RawValue::to_value);
        let shown = kilim_query::text::document(kilim_bson::doc! {"_id": id}.as_raw());
        let mut source = Document::new();
        source.push(&self.foreign_field, key);
        let source = kilim_query::text::document(source.as_raw());
        let message = format!(
            "{} {source} cannot be deleted: {} {shown} refers to it by '{}' (extendedReference '{}', onSourceDelete: \
             \"restrict\"). Delete or change what refers to it first",
            title.source, title.target, self.local_field, title.name
        );
        Some(Error::user(ErrorCode::PatternRestrict, message))
    }

    fn is_user_path(&self, path: &str) -> bool {
        lies_within(path, &self.local_field)
    }

    fn path_in_source(&self, path: &str) -> Option<&str> {
        let name = match &self.as_path {
            Some(copy) => path.strip_prefix(&**copy)?.strip_prefix('.')?,
            None => path,
        };
        self.fields.path_in_source(name)
    }
}

impl Reference {
    /// The copies of a document that is written.
    fn fill(&self, change: &Change<'_>, reader: &mut dyn Reader, effects: &mut Vec<Effect>) -> Result<()> {
        let Some(after) = change.after.filter(|_| change.shapes_target()) else { return Ok(()) };
        if change.cause.is_refresh() {
            // A copy that was frozen before the pause stays as it is, also an empty one, which looks like none.
            if change.cause == Cause::Resume && !self.is_live(after)? && self.site.hides_empty_copies() {
                return Ok(());
            }
            if let Some(document) = self.corrected_by(after, &mut |key| reader.source(key))? {
                effects.push(Effect::Becomes { document, replaced: false });
            }
            return Ok(());
        }
        let caught_up = match change.before {
            Some(before) => self.frozen_as(before, after, reader)?,
            None => None,
        };
        let before = caught_up.as_ref().map(Document::as_raw).or(change.before);
        match self.shape(before, after, &mut |key| reader.source(key)) {
            Ok(Shaped::AsItIs) => {}
            Ok(Shaped::To { document, replaced }) => {
                let replaced = replaced && change.cause == Cause::User;
                effects.push(Effect::Becomes { document, replaced });
            }
            Err(error @ Error::User(_)) => effects.push(Effect::Refuse(error)),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A document whose copies become frozen by a change, with what they would have been by then.
    fn frozen_as(
        &self,
        before: RawDocument<'_>,
        after: RawDocument<'_>,
        reader: &mut dyn Reader,
    ) -> Result<Option<Document>> {
        if self.while_filter.is_none() || !self.is_live(before)? || self.is_live(after)? {
            return Ok(None);
        }
        let mut made: Option<Document> = None;
        for key in self.references(before) {
            if let Some(Due::Copy(copied)) = reader.pending(key.as_raw())? {
                let holder = made.as_ref().map_or(before, Document::as_raw);
                made = self.patched(holder, key.as_raw(), &copied)?.or(made);
            }
        }
        Ok(made)
    }

    /// What a change of a source means for those who refer to it.
    fn spread(&self, change: &Change<'_>, effects: &mut Vec<Effect>) {
        let had = change.before.map_or(Vec::new(), |before| self.keys_of_source(before));
        for (key, fan_out) in self.fan_out(change.before, change.after) {
            let due = match (fan_out, self.on_source_delete) {
                (FanOut::To(copy), _) => Due::Copy(Copied::To(copy)),
                (FanOut::Gone, OnSourceDelete::Cascade) => Due::Remove,
                (FanOut::Gone, OnSourceDelete::Restrict) => {
                    effects.push(Effect::Restrict { key });
                    continue;
                }
                (FanOut::Gone, _) => match self.when_gone() {
                    Some(copied) => Due::Copy(copied),
                    // The copies stay; those that are not there yet become what they would have.
                    None => continue,
                },
            };
            let is_new = !has(&had, key.as_raw());
            effects.push(Effect::Holders { key, due, is_new });
        }
    }
}
