//! What the stages of a pipeline ask for: every collection that one of them names, however deep.

use kilim_auth::{Action, UserName};
use kilim_bson::{RawArray, RawValue};

use super::Demands;

const FIND: Action = Action::named("find");
const INSERT: Action = Action::named("insert");
const UPDATE: Action = Action::named("update");
const REMOVE: Action = Action::named("remove");
const BYPASS: Action = Action::named("bypassDocumentValidation");

/// The name and the argument of a stage.
fn stage(value: RawValue<'_>) -> Option<(&str, RawValue<'_>)> {
    value.as_document().and_then(|stage| stage.iter().next())
}

impl<'a> Demands<'a> {
    /// A pipeline over a collection, or with none over the database.
    pub(super) fn need_pipeline(&mut self, db: &str, collection: Option<&str>, stages: Option<RawArray<'a>>) {
        let first = stages.and_then(|stages| stages.iter().next()).and_then(stage);
        let is_set = |options: RawValue<'_>, name: &str| {
            let is_it = |(own, value)| own == name && matches!(value, RawValue::Bool(true));
            options.as_document().is_some_and(|options| options.iter().any(is_it))
        };
        let special = match first {
            Some(("$collStats", _)) => Some(Action::named("collStats")),
            Some(("$indexStats", _)) => Some(Action::named("indexStats")),
            Some(("$planCacheStats", _)) => Some(Action::named("planCacheRead")),
            Some(("$patternStats", _)) => Some(Action::named("listPatterns")),
            Some(("$currentOp", options)) => {
                // Without `allUsers` it shows the user's own operations.
                if is_set(options, "allUsers") {
                    self.need_on_cluster(Action::named("inprog"));
                }
                return self.need_stages(db, stages);
            }
            Some(("$listSessions" | "$listLocalSessions", options)) => {
                // Whatever names somebody else, and what cannot be read.
                let is_own = |user: RawValue<'_>| {
                    let own = self.identity.map(|identity| &identity.name);
                    let named = user.as_document().and_then(|_| UserName::parse(user, "").ok());
                    named.is_some() && named.as_ref() == own
                };
                let named = options.as_document().into_iter().flat_map(|options| options.iter());
                let mut named =
                    named.filter(|(name, _)| *name == "users").filter_map(|(_, list)| list.as_array());
                let names_others = named.any(|list| !list.iter().all(is_own));
                if is_set(options, "allUsers") || names_others {
                    self.need_on_cluster(Action::named("listSessions"));
                }
                return self.need_stages(db, stages);
            }
            Some(("$shardedDataDistribution", _)) => {
                self.need_on_cluster(Action::named("shardedDataDistribution"));
                return self.need_stages(db, stages);
            }
            Some(("$changeStream", options)) => {
                if is_set(options, "allChangesForCluster") {
                    self.need_on_every_database(&[FIND, Action::named("changeStream")]);
                    return self.need_stages(db, stages);
                }
                self.need_on(db, collection, Action::named("changeStream"));
                None
            }
            _ => None,
        };
        self.need_on(db, collection, special.unwrap_or(FIND));
        self.need_stages(db, stages);
    }

    fn need_on(&mut self, db: &str, collection: Option<&str>, action: Action) {
        match collection {
            Some(collection) => self.need(db, collection, action),
            None => self.need_on_database(db, action),
        }
    }

    /// What stages name beside the collection that they begin with.
    fn need_stages(&mut self, db: &str, stages: Option<RawArray<'a>>) {
        for (name, argument) in stages.into_iter().flat_map(|stages| stages.iter()).filter_map(stage) {
            match (name, argument) {
                ("$lookup" | "$graphLookup", RawValue::Document(options)) => {
                    let stages = self.field(options, "pipeline").and_then(RawValue::as_array);
                    match self.field(options, "from") {
                        Some(from) => self.need_source(db, from, stages),
                        None => self.need_stages(db, stages),
                    }
                }
                ("$unionWith", RawValue::Document(options)) => {
                    let stages = self.field(options, "pipeline").and_then(RawValue::as_array);
                    match self.field(options, "coll") {
                        Some(from) => self.need_source(db, from, stages),
                        None => self.need_stages(db, stages),
                    }
                }
                ("$unionWith", from) => self.need_source(db, from, None),
                ("$facet", RawValue::Document(facets)) => {
                    for (_, stages) in facets.iter() {
                        self.need_stages(db, stages.as_array());
                    }
                }
                ("$out", target) => {
                    let (db, collection) = self.target_of(db, target);
                    self.need(db, collection, INSERT);
                    self.need(db, collection, REMOVE);
                    self.need_bypass(db, collection);
                }
                ("$merge", options) => self.need_merge(db, options),
                _ => {}
            }
        }
    }

    fn need_source(&mut self, db: &str, from: RawValue<'a>, stages: Option<RawArray<'a>>) {
        let (db, collection) = self.target_of(db, from);
        self.need_pipeline(db, Some(collection), stages);
    }

    fn need_merge(&mut self, db: &str, options: RawValue<'a>) {
        let (into, matched, not_matched) = match options {
            RawValue::Document(options) => (
                self.field(options, "into"),
                self.field(options, "whenMatched"),
                self.field(options, "whenNotMatched"),
            ),
            other => (Some(other), None, None),
        };
        let Some(into) = into else { return };
        let (db, collection) = self.target_of(db, into);
        let inserts = matches!(not_matched.and_then(RawValue::as_str), None | Some("insert"));
        let updates = !(inserts && matched.and_then(RawValue::as_str) == Some("fail"));
        if inserts {
            self.need(db, collection, INSERT);
        }
        if updates {
            self.need(db, collection, UPDATE);
        }
        self.need_bypass(db, collection);
        if let Some(RawValue::Array(stages)) = matched {
            self.need_stages(db, Some(stages));
        }
    }

    fn need_bypass(&mut self, db: &str, collection: &str) {
        if self.is_true("bypassDocumentValidation") {
            self.need(db, collection, BYPASS);
        }
    }

    fn need_on_every_database(&mut self, actions: &[Action]) {
        for action in actions {
            // Only a privilege on all databases allows something on one that cannot exist.
            self.need_on_database("", *action);
        }
    }

    /// `"name"`, or `{db, coll}`.
    fn target_of<'v>(&mut self, db: &'v str, target: RawValue<'a>) -> (&'v str, &'v str)
    where
        'a: 'v,
    {
        match target {
            RawValue::String(collection) => (db, collection),
            RawValue::Document(named) => {
                let own = self.field(named, "db").and_then(RawValue::as_str);
                let collection = self.field(named, "coll").and_then(RawValue::as_str);
                (own.unwrap_or(db), collection.unwrap_or_default())
            }
            _ => (db, ""),
        }
    }
}
