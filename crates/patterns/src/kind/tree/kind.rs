//! What a tree means for documents.

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{OnDelete, Step, Tree};
use crate::declaration::{Mode, Options, WhenBehind};
use crate::effect::{Cause, Change, Due, DueByKey, Effect, Reader, Role, Sight};
use crate::kind::{Kind, Readings, WantedIndex};

impl Kind for Tree {
    fn maintained_paths(&self) -> Vec<Box<str>> {
        self.maintained().map(|field| field.path.clone()).collect()
    }

    fn written_paths(&self) -> Vec<Box<str>> {
        let mut paths = self.maintained_paths();
        if self.on_delete == OnDelete::Reparent {
            paths.push(self.parent.path.clone());
        }
        paths
    }

    fn evaluate(
        &self,
        change: &Change<'_>,
        _reader: &mut dyn Reader,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        if change.role != Role::Target {
            return Ok(());
        }
        let refresh = change.cause.is_refresh();
        let replants = match (change.before, change.after) {
            (Some(before), Some(after)) => refresh || change.is_placed || self.replants(before, after),
            (before, after) => before.is_some() || after.is_some(),
        };
        if replants {
            let id = change.after.or(change.before).and_then(|document| document.get("_id"));
            effects.push(Effect::Replants(Box::new(Step {
                id: id.map_or(Value::Null, RawValue::to_value),
                before: change.before.map(RawDocument::to_document),
                after: change.after.map(RawDocument::to_document),
                position: None,
                refresh,
                is_thorough: false,
            })));
        } else if let (Some(before), Some(after), Cause::User) = (change.before, change.after, change.cause)
            && let Some(document) = self.restored(before, after)
        {
            effects.push(Effect::Becomes { document, replaced: true });
        }
        Ok(())
    }

    fn readings(&self) -> Readings {
        let read = [Some(&self.parent), self.path_of.as_ref(), self.scope.as_ref()];
        Readings {
            source: None,
            target: read.into_iter().flatten().map(|field| field.path.clone()).collect(),
        }
    }

    fn check_options(&self, options: &Options) -> Result<()> {
        self.check_scope()?;
        if self.leaves_to_jobs() {
            return Ok(());
        }
        let default = Options::default();
        let refuse = |name: &str| {
            Err(Error::user(
                ErrorCode::NotImplemented,
                format!(
                    "'{name}' is supported for trees that keep 'ancestors' and are not 'dense': nodes that a job has yet to \
                     write are found by their ancestors, and labels without gaps are never late. Of any other tree a move \
                     writes all nodes below in its own commit, so nothing is ever behind. Leave the option out"
                ),
            ))
        };
        match options {
            Options { mode: Mode::Async, .. } => refuse("mode: \"async\""),
            Options { when_behind: WhenBehind::Serve, .. } => refuse("whenBehind: \"serve\""),
            Options { max_sync, .. } if *max_sync != default.max_sync => refuse("maxSync"),
            _ => Ok(()),
        }
    }

    fn key_path(&self) -> Option<&str> {
        self.ancestors_path().filter(|_| self.leaves_to_jobs())
    }

    fn keys_of(&self, target: RawDocument<'_>) -> Vec<Value> {
        match self.leaves_to_jobs() {
            true => self.ancestor_ids(target).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    fn refers(&self, target: RawDocument<'_>, key: RawValue<'_>) -> bool {
        self.refers_to(target, key)
    }

    fn becomes(&self, target: RawDocument<'_>, key: RawValue<'_>, due: &Due) -> Result<Sight> {
        Ok(self.with_due(target, key, due))
    }

    fn see(&self, target: RawDocument<'_>, due: &DueByKey) -> Result<Sight> {
        Ok(self.with_lowest_due(target, due))
    }

    fn is_about_data(&self, field: &str) -> bool {
        // It says what becomes of writes to come.
        field != "onDelete"
    }

    fn found_by(&self) -> Option<(Role, &str)> {
        Some((Role::Target, "_id"))
    }

    fn indexes(&self) -> Vec<WantedIndex> {
        let wanted = |paths: &[&str]| {
            let mut key = Document::new();
            paths.iter().for_each(|path| key.push(path, 1));
            WantedIndex { role: Role::Target, key, options: Document::new(), exact: false }
        };
        // Where order keys are given out by parents, the index also tells who has one.
        let order = self.order.iter().filter(|_| self.nested_sets.is_none());
        let by_parent: Vec<&str> =
            [&self.parent].into_iter().chain(order).map(|field| &*field.path).collect();
        let mut indexes = vec![wanted(&by_parent)];
        indexes.extend(self.ancestors.iter().map(|field| wanted(&[&field.path])));
        indexes.extend(self.path.iter().map(|field| wanted(&[&field.path])));
        for label in self.nested_sets.iter().flatten() {
            let scope = self.scope.as_ref().map(|scope| &*scope.path);
            indexes.push(wanted(&scope.into_iter().chain([&*label.path]).collect::<Vec<_>>()));
        }
        indexes
    }

    fn corrected(&self, target: RawDocument<'_>, reader: &mut dyn Reader) -> Result<Option<Document>> {
        self.made_right(target, reader)
    }

    fn tree(&self) -> Option<&Tree> {
        Some(self)
    }

    fn relates_targets(&self) -> bool {
        true
    }

    fn comes_and_goes(&self) -> bool {
        self.on_delete == OnDelete::Cascade
    }

    fn explained(&self) -> Document {
        doc! {"parent": &*self.parent.path}
    }
}
