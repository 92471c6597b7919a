//! What has to be done so that a database has the declared patterns: a comparison, which changes nothing.
//!
//! Invariant: a plan made from what its own steps lead to is empty.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Result, ensure};
use kilim_bson::{Document, RawDocument, RawValue, Value, compare, doc};
use kilim_patterns::Declaration;

use crate::connect::text;
use crate::pattern::collection;
use crate::text::flow;

/// What a field that is left out means. `{}` matches all, as no filter does.
const DEFAULTS: &str = r#"{
    "extendedReference": {"foreignField": "_id", "while": {}, "onSourceDelete": "keep", "onMissing": "null"},
    "computed": {"on": "_id", "whenNotMatched": "discard"},
    "subset": {"localField": "_id", "match": {}},
    "polymorphic": {"base": {}, "unknown": "reject", "extra": "allow", "onTypeChange": "validate",
                    "validationLevel": "strict", "validationAction": "error"},
    "attribute": {"store": "flat", "units": {}},
    "options": {"mode": "sync", "maxSync": 1000, "whenBehind": "patch", "whileBuilding": "absent",
                "onUserWrite": "smart", "touch": null, "createIndexes": true,
                "backfill": {"batch": 128, "throttleMs": 0}, "scrub": false}
}"#;

pub(super) struct Plan {
    steps: Vec<Step>,
}

pub(super) struct Step {
    pub(super) collection: String,
    pub(super) name: String,
    pub(super) what: What,
}

pub(super) enum What {
    /// A collection that a pattern reads from and that is not there. A server refuses to declare such a pattern, since
    /// the name may be mistyped; here it is shown before anything is done.
    Source {
        reader: String,
    },
    Create {
        command: Document,
        summary: String,
    },
    Modify {
        command: Document,
        changes: Vec<Change>,
    },
    Unchanged {
        state: String,
    },
    Drop,
    /// There, not in the file, and not to be dropped.
    LeftAlone,
    Impossible {
        reason: String,
    },
}

pub(super) struct Change {
    path: String,
    from: String,
    to: String,
}

impl Plan {
    /// Drops come first, so that a pattern can take over the path of one that goes. `collections` are those that exist.
    pub(super) fn make(
        declared: Vec<Document>,
        existing: &[Document],
        collections: &[String],
        prune: bool,
    ) -> Result<Plan> {
        let mut seen = BTreeSet::new();
        let mut steps = Vec::new();
        for command in &declared {
            let target = text(command, "createPattern");
            // Found here, a mistake costs nothing; the server would find it half way.
            let declaration =
                Declaration::parse(target, without_command(command).as_raw()).map_err(|error| {
                    anyhow::anyhow!("pattern '{}' of {target}: {error}", text(command, "name"))
                })?;
            let key = (declaration.target.to_string(), declaration.name.to_string());
            ensure!(seen.insert(key), "{target}.{} is declared twice", declaration.name);
            let found = existing
                .iter()
                .find(|found| collection(found) == target && text(found, "name") == &*declaration.name);
            let what = found
                .map_or_else(|| creation(command, &declaration), |found| comparison(found, &declaration));
            if let (true, Some(source)) = (what.is_work(), declaration.source())
                && !collections.iter().any(|known| **known == *source)
                && !steps.iter().any(|step: &Step| step.is_for_source(source))
            {
                let reader = format!("{target}.{}", declaration.name);
                let (collection, name) = (source.to_string(), String::new());
                steps.push(Step { collection, name, what: What::Source { reader } });
            }
            steps.push(Step { collection: target.to_owned(), name: declaration.name.to_string(), what });
        }
        for found in existing {
            let (collection, name) = (collection(found).to_owned(), text(found, "name").to_owned());
            if !seen.contains(&(collection.clone(), name.clone())) {
                let what = if prune { What::Drop } else { What::LeftAlone };
                steps.push(Step { collection, name, what });
            }
        }
        steps.sort_by_key(|step| step.what.rank());
        Ok(Plan { steps })
    }

    /// Whether nothing has to be done.
    pub(super) fn is_empty(&self) -> bool {
        self.to_do().next().is_none()
    }

    pub(super) fn to_do(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.what.is_work())
    }

    pub(super) fn impossible(&self) -> Option<&Step> {
        self.steps.iter().find(|step| matches!(step.what, What::Impossible { .. }))
    }

    pub(super) fn to_document(&self, database: &str) -> Document {
        let steps = self.steps.iter().map(|step| {
            let mut shown = doc! {"action": step.what.verb(), "collection": &*step.collection};
            if !step.name.is_empty() {
                shown.push("name", &*step.name);
            }
            if let What::Modify { changes, .. } = &step.what {
                let changes = changes.iter().map(|change| {
                    Value::Document(doc! {"path": &*change.path, "from": &*change.from, "to": &*change.to})
                });
                shown.push("changes", Value::Array(changes.collect()));
            }
            if let What::Impossible { reason } = &step.what {
                shown.push("reason", &**reason);
            }
            Value::Document(shown)
        });
        doc! {"database": database, "steps": Value::Array(steps.collect()), "toDo": self.to_do().count() as i64}
    }
}

impl What {
    fn rank(&self) -> u8 {
        match self {
            What::Drop => 0,
            What::Source { .. } => 1,
            What::Modify { .. } => 2,
            What::Create { .. } => 3,
            What::Impossible { .. } => 4,
            What::Unchanged { .. } => 5,
            What::LeftAlone => 6,
        }
    }

    fn is_work(&self) -> bool {
        matches!(self, What::Drop | What::Source { .. } | What::Modify { .. } | What::Create { .. })
    }

    fn verb(&self) -> &'static str {
        match self {
            What::Source { .. } | What::Create { .. } => "create",
            What::Modify { .. } => "modify",
            What::Unchanged { .. } => "unchanged",
            What::Drop => "drop",
            What::LeftAlone => "not declared",
            What::Impossible { .. } => "impossible",
        }
    }
}

fn without_command(command: &Document) -> Document {
    command
        .iter()
        .filter(|(name, _)| *name != "createPattern")
        .map(|(name, value)| (name, value.to_value()))
        .collect()
}

fn creation(command: &Document, declaration: &Declaration) -> What {
    let source = declaration.source().map_or(String::new(), |source| format!(" from {source}"));
    What::Create { command: command.clone(), summary: format!("{}{source}", declaration.kind_name) }
}

fn comparison(found: &Document, declared: &Declaration) -> What {
    let kind = text(found, "kind");
    if kind != declared.kind_name {
        let (target, name) = (&declared.target, &declared.name);
        let reason = format!(
            "{target}.{name} is {kind} now and {} in the file; a pattern keeps its kind. \
             Give the new one another name, or drop the old one first: kilim pattern drop {target} {name}",
            declared.kind_name
        );
        return What::Impossible { reason };
    }
    let mut command = doc! {"modifyPattern": &*declared.target, "name": &*declared.name};
    let mut changes = Vec::new();
    let old = part(found, "spec");
    match differences(kind, &old, &declared.spec, &format!("{kind}."), &mut changes) {
        Ok(spec) if spec.is_empty() => {}
        Ok(spec) => command.push(kind, spec),
        Err(field) => {
            let reason = format!(
                "{}.{}: '{field}' of {kind} cannot be taken out of a declaration; drop the pattern first: \
                 kilim pattern drop {0} {1}",
                declared.target, declared.name
            );
            return What::Impossible { reason };
        }
    }
    let options =
        differences("options", &part(found, "options"), &declared.options.to_document(), "", &mut changes);
    for (name, value) in options.unwrap_or_default().iter() {
        command.push(name, value.to_value());
    }
    match changes.is_empty() {
        true => What::Unchanged { state: text(found, "state").to_owned() },
        false => What::Modify { command, changes },
    }
}

fn part(found: &Document, name: &str) -> Document {
    found.get(name).and_then(RawValue::as_document).map(RawDocument::to_document).unwrap_or_default()
}

/// The fields of `new` that differ from `old`, defaults counted in; or the field that is gone and has none.
fn differences(
    kind: &str,
    old: &Document,
    new: &Document,
    place: &str,
    changes: &mut Vec<Change>,
) -> Result<Document, String> {
    let defaults = kilim_bson::parse_extended_json(DEFAULTS).expect("it is written above");
    let defaults = part(&defaults, kind);
    let mut changed = Document::new();
    let gone = old.iter().map(|(name, _)| name).filter(|name| new.get(name).is_none());
    for name in new.iter().map(|(name, _)| name).chain(gone) {
        let before = old.get(name).or(defaults.get(name));
        let after = new.get(name).or(defaults.get(name)).ok_or_else(|| name.to_owned())?;
        if before.is_some_and(|before| compare(before, after) == Ordering::Equal) {
            continue;
        }
        changed.push(name, after.to_value());
        let from = before.map_or("(none)".to_owned(), flow);
        changes.push(Change { path: format!("{place}{name}"), from, to: flow(after) });
    }
    Ok(changed)
}

impl Step {
    fn is_for_source(&self, source: &str) -> bool {
        matches!(self.what, What::Source { .. }) && self.collection == source
    }

    /// What it is about: a pattern, or a collection.
    pub(super) fn subject(&self) -> String {
        match self.what {
            What::Source { .. } => self.collection.clone(),
            _ => format!("{}.{}", self.collection, self.name),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what.verb(), self.subject())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.steps.iter().map(|step| step.subject().chars().count()).max().unwrap_or(0);
        for step in &self.steps {
            let sign = match step.what {
                What::Source { .. } | What::Create { .. } => '+',
                What::Modify { .. } => '~',
                What::Drop => '-',
                What::Impossible { .. } => '!',
                What::Unchanged { .. } => '=',
                What::LeftAlone => '?',
            };
            let note = match &step.what {
                What::Source { reader } => format!("an empty collection, which {reader} reads"),
                What::Create { summary, .. } => summary.clone(),
                What::Drop => "its fields stay, as plain ones".to_owned(),
                What::LeftAlone => "left alone; --prune drops it".to_owned(),
                What::Unchanged { state } => match &**state {
                    "active" => String::new(),
                    "suspect" | "failed" | "unverified" => format!("but {state}: `kilim pattern repair` it"),
                    "paused" => "but paused: `kilim pattern resume` it".to_owned(),
                    other => format!("and {other}"),
                },
                _ => String::new(),
            };
            let line = format!("  {sign} {:<12}  {:<width$}  {note}", step.what.verb(), step.subject());
            writeln!(f, "{}", line.trim_end())?;
            if let What::Modify { changes, .. } = &step.what {
                for Change { path, from, to } in changes {
                    writeln!(f, "        {path}: {from} → {to}")?;
                }
            }
        }
        if self.steps.is_empty() {
            writeln!(f, "  none, and none declared")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(spec: Document) -> Document {
        doc! {"createPattern": "products", "name": "recent", "subset": spec}
    }

    fn existing(spec: Document) -> Document {
        doc! {"name": "recent", "kind": "subset", "ns": "shop.products", "spec": spec, "options": {}, "state": "active"}
    }

    fn spec(limit: i32) -> Document {
        doc! {"from": "reviews", "localField": "_id", "foreignField": "productId", "as": "recent",
        "sort": {"date": -1}, "limit": limit}
    }

    /// A plan where all collections exist.
    fn plan(declared: Vec<Document>, existing: &[Document], prune: bool) -> Result<Plan> {
        Plan::make(declared, existing, &["products".to_owned(), "reviews".to_owned()], prune)
    }

    fn verbs(plan: &Plan) -> Vec<&'static str> {
        plan.steps.iter().map(|step| step.what.verb()).collect()
    }

    /// The table above and the crate that knows what declarations mean agree.
    #[test]
    fn what_is_left_out_means_its_default() {
        let defaults = kilim_bson::parse_extended_json(DEFAULTS).unwrap();
        let least = [
            ("extendedReference", doc! {"from": "s", "localField": "l", "as": "a", "fields": {"f": 1}}),
            ("computed", doc! {"from": "s", "pipeline": [{"$group": {"_id": "$g", "n": {"$count": {}}}}]}),
            ("subset", doc! {"from": "s", "foreignField": "f", "as": "a", "sort": {"d": 1}, "limit": 5}),
            ("polymorphic", doc! {"discriminator": "t", "variants": {"a": {"required": ["x"]}}}),
            ("attribute", doc! {"paths": ["specs.*"], "as": "kv"}),
        ];
        let parse = |kind: &str, spec: &Document, options: &Document| {
            let mut fields = doc! {"name": "n"};
            fields.push(kind, spec.clone());
            options.iter().for_each(|(name, value)| fields.push(name, value.to_value()));
            Declaration::parse("t", fields.as_raw()).unwrap_or_else(|error| panic!("{fields:?}: {error}"))
        };
        for (kind, spec) in least {
            let left_out = parse(kind, &spec, &Document::new());
            let mut written = spec.clone();
            part(&defaults, kind).iter().for_each(|(name, value)| written.push(name, value.to_value()));
            let written = parse(kind, &written, &part(&defaults, "options"));
            assert_eq!(written.options.to_document(), Document::new(), "{kind}");
            // A filter that matches all is the one that may be there or not.
            let shown = |declaration: &Declaration| format!("{:?}", declaration.kind);
            if part(&defaults, kind).iter().all(|(_, value)| !matches!(value, RawValue::Document(_))) {
                assert_eq!(shown(&written), shown(&left_out), "{kind}");
            }
        }
    }

    #[test]
    fn what_is_there_already_is_left_as_it_is() {
        let planned = plan(vec![declared(spec(5))], &[], false).unwrap();
        assert_eq!(verbs(&planned), ["create"]);
        let mut same = spec(5);
        same.push("match", Document::new());
        let mut floats = doc! {"from": "reviews", "foreignField": "productId", "as": "recent"};
        floats.push("sort", doc! {"date": -1.0});
        floats.push("limit", 5.0);
        for stored in [spec(5), same, floats] {
            let planned = plan(vec![declared(spec(5))], &[existing(stored)], false).unwrap();
            assert!(planned.is_empty(), "{planned}");
        }
    }

    #[test]
    fn a_change_sends_what_changed() {
        let mut new = declared(spec(10));
        new.push("onUserWrite", "reject");
        let planned = plan(vec![new], &[existing(spec(5))], false).unwrap();
        let Some(Step { what: What::Modify { command, .. }, .. }) = planned.to_do().next() else {
            panic!("{planned}")
        };
        let expected = doc! {"modifyPattern": "products", "name": "recent", "subset": {"limit": 10}, "onUserWrite": "reject"};
        assert_eq!(*command, expected);
        assert!(planned.to_string().contains("subset.limit: 5 → 10"), "{planned}");
    }

    #[test]
    fn what_is_taken_out_goes_back_to_its_default_or_is_refused() {
        let mut old = spec(5);
        old.push("match", doc! {"hidden": false});
        let planned = plan(vec![declared(spec(5))], &[existing(old)], false).unwrap();
        assert!(planned.to_string().contains("subset.match: { hidden: false } → {}"), "{planned}");
        let mut old = spec(5);
        old.push("fields", doc! {"rating": 1});
        let planned = plan(vec![declared(spec(5))], &[existing(old)], false).unwrap();
        assert_eq!(verbs(&planned), ["impossible"]);
    }

    #[test]
    fn a_source_that_is_not_there_is_made_and_shown() {
        let another = doc! {"createPattern": "products", "name": "stats", "computed": {"from": "reviews",
        "pipeline": [{"$group": {"_id": "$productId", "n": {"$count": {}}}}]}};
        let made = Plan::make(vec![declared(spec(5)), another], &[], &[], false).unwrap();
        let subjects: Vec<String> = made.to_do().map(Step::subject).collect();
        assert_eq!(subjects, ["reviews", "products.recent", "products.stats"]);
        assert!(made.to_string().contains("+ create        reviews"), "{made}");
        // A pattern that is as declared needs nothing.
        let made = Plan::make(vec![declared(spec(5))], &[existing(spec(5))], &[], false).unwrap();
        assert!(made.is_empty(), "{made}");
    }

    #[test]
    fn only_prune_drops_and_it_drops_first() {
        let other =
            doc! {"name": "old", "kind": "computed", "ns": "shop.products", "spec": {}, "state": "active"};
        let planned = plan(vec![declared(spec(5))], std::slice::from_ref(&other), false).unwrap();
        assert_eq!(verbs(&planned), ["create", "not declared"]);
        let planned = plan(vec![declared(spec(5))], &[other], true).unwrap();
        assert_eq!(verbs(&planned), ["drop", "create"]);
    }

    #[test]
    fn mistakes_are_found_before_anything_is_done() {
        let twice = plan(vec![declared(spec(5)), declared(spec(5))], &[], false);
        assert!(twice.is_err_and(|error| error.to_string().contains("twice")));
        let mut unknown = declared(spec(5));
        unknown.push("maxSink", 5);
        assert!(plan(vec![unknown], &[], false).is_err_and(|error| error.to_string().contains("maxSink")));
        let kinds = plan(
            vec![declared(spec(5))],
            &[doc! {"name": "recent", "kind": "computed", "ns": "shop.products", "spec": {}}],
            false,
        )
        .unwrap();
        assert!(kinds.impossible().is_some());
    }
}
