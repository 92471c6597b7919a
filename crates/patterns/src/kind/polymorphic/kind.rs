//! What the kind means to whoever runs patterns.

use kilim_bson::{Document, RawDocument, doc};
use kilim_error::{Error, ErrorCode, Result};

use super::{OnTypeChange, Polymorphic};
use crate::declaration::Options;
use crate::effect::{Cause, Change, Effect, Reader, Role};
use crate::kind::rules::Rules;
use crate::kind::{Kind, Readings, WantedIndex};

impl Kind for Polymorphic {
    fn maintained_paths(&self) -> Vec<Box<str>> {
        Vec::new()
    }

    fn removed_paths(&self) -> Vec<Box<str>> {
        match self.on_type_change {
            OnTypeChange::Unset => {
                let mut paths: Vec<Box<str>> =
                    self.variants.iter().flat_map(|variant| variant.fields.iter().cloned()).collect();
                paths.sort_unstable();
                paths.dedup();
                paths.retain(|path| !self.variants.iter().all(|variant| variant.fields.contains(path)));
                paths
            }
            OnTypeChange::Validate | OnTypeChange::Reject => Vec::new(),
        }
    }

    fn evaluate(
        &self,
        change: &Change<'_>,
        _reader: &mut dyn Reader,
        effects: &mut Vec<Effect>,
    ) -> Result<()> {
        if let (Role::Target, Cause::User, OnTypeChange::Unset, Some(before), Some(after)) =
            (change.role, change.cause, self.on_type_change, change.before, change.after)
            && let Some(document) = self.without_foreign_fields(before, after)
        {
            effects.push(Effect::Becomes { document, replaced: false });
        }
        Ok(())
    }

    fn readings(&self) -> Readings {
        Readings { target: vec![self.discriminator.clone()], ..Readings::default() }
    }

    fn check_options(&self, options: &Options) -> Result<()> {
        if !options.create_indexes && self.variants.iter().any(|variant| !variant.indexes.is_empty()) {
            return Err(Error::user(
                ErrorCode::BadValue,
                "createIndexes: false is not for variants with 'indexes', which are part of their rules: leave one out",
            ));
        }
        let default = Options::default();
        let given = if options.touch.is_some() {
            "'touch'"
        } else if options.on_user_write != default.on_user_write {
            "onUserWrite: \"reject\""
        } else if options.while_building != default.while_building {
            "whileBuilding: \"fail\""
        } else {
            return options.check_never_behind("rules, which are asked before a document is written");
        };
        let message = format!("{given} is not for rules, which maintain no field: leave it out");
        Err(Error::user(ErrorCode::BadValue, message))
    }

    fn is_about_data(&self, field: &str) -> bool {
        // They say what becomes of writes to come.
        !matches!(field, "onTypeChange" | "validationLevel" | "validationAction")
    }

    fn indexes(&self) -> Vec<WantedIndex> {
        let mut wanted = Vec::new();
        let path = &*self.discriminator;
        for variant in &self.variants {
            let condition = match &variant.family[..] {
                [name] => doc! {path: &**name},
                names => {
                    let names: kilim_bson::Array =
                        names.iter().map(|name| kilim_bson::Value::from(&**name)).collect();
                    doc! {path: {"$in": names}}
                }
            };
            for index in &variant.indexes {
                let mut options = Document::new();
                if index.unique {
                    options.push("unique", true);
                }
                options.push("partialFilterExpression", condition.clone());
                wanted.push(WantedIndex { role: Role::Target, key: index.key.clone(), options, exact: true });
            }
        }
        wanted
    }

    fn corrected(&self, _target: RawDocument<'_>, _reader: &mut dyn Reader) -> Result<Option<Document>> {
        Ok(None)
    }

    fn rules(&self) -> Option<&dyn Rules> {
        Some(self)
    }
}
