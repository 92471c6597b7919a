//! What the specs ask, for each fuzz target in the form that it takes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use kilim_bson::{
    COLUMN_SUBTYPE, Document, JsonFormat, RawArray, RawDocument, RawValue, doc, to_extended_json,
};

use crate::spec::{Action, parse};

/// For targets that are no commands, so that no spec asks them.
const BESIDE_SPECS: [(&str, &str); 4] = [
    ("sasl", "n,,n=ann=2Cof=3Dshop,r=fyko+d2lbbFgONRv9qkxdawL"),
    ("sasl", "c=biws,r=fyko+d2lbbFgONRv9qkxdawL,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="),
    (
        "access",
        r#"{"_id": "shop.buyer", "role": "buyer", "db": "shop", "roles": [{"role": "read", "db": "shop"}], "privileges":
        [{"resource": {"db": "shop", "collection": ""}, "actions": ["find", "insert"]}, {"resource": {"cluster": true},
        "actions": ["serverStatus"]}], "authenticationRestrictions": [{"clientSource": ["127.0.0.1/8", "::1"]}]}"#,
    ),
    (
        "access",
        r#"{"_id": "shop.ann", "user": "ann", "db": "shop", "userId": {"$uuid": "00000000-0000-4000-8000-000000000001"},
        "credentials": {"SCRAM-SHA-1": {"iterationCount": 10000, "salt": "AAAAAAAAAAAAAAAAAAAAAA==",
        "storedKey": "AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "serverKey": "AAAAAAAAAAAAAAAAAAAAAAAAAAA="}}, "roles":
        [{"role": "readWrite", "db": "shop"}], "customData": {"a": 1}}"#,
    ),
];

/// By the names of targets; each seed once, in a fixed order.
#[derive(Default)]
pub struct Seeds {
    by_target: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
}

impl Seeds {
    /// From all specs below a folder.
    pub fn read(specs: &Path) -> Result<Seeds> {
        let mut seeds = Seeds::default();
        let mut folders = vec![specs.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "spec") {
                    seeds.take_file(&path)?;
                }
            }
        }
        for (target, seed) in BESIDE_SPECS {
            seeds.put(target, seed.as_bytes().to_vec());
        }
        Ok(seeds)
    }

    pub fn of(&self, target: &str) -> impl Iterator<Item = &[u8]> {
        self.by_target.get(target).into_iter().flatten().map(Vec::as_slice)
    }

    fn take_file(&mut self, path: &Path) -> Result<()> {
        let file = parse(path, &fs::read_to_string(path)?)?;
        for step in file.cases.iter().flat_map(|case| &case.steps) {
            match &step.action {
                Action::Do(command)
                | Action::Run(command)
                | Action::Docs { command, .. }
                | Action::Error { command, .. }
                | Action::WriteError(command)
                | Action::Plan(command) => self.take_command(command),
                Action::Given { documents, .. } => {
                    documents.iter().for_each(|document| self.take_document(document))
                }
                Action::Index { .. } | Action::Begin => {}
            }
        }
        Ok(())
    }

    fn take_document(&mut self, document: &Document) {
        self.put("extended_json", canonical(document.as_raw()));
        self.put("key_order", canonical(document.as_raw()));
        self.put("bson", document.as_bytes().to_vec());
    }

    fn take_command(&mut self, command: &Document) {
        self.put("command", text(command.as_raw()));
        self.put("extended_json", text(command.as_raw()));
        self.put("bson", command.as_bytes().to_vec());
        self.put("wire", kilim_client::message(command));
        for bucket in documents(command.get("documents")) {
            for (_, column) in document(bucket.get("data")).into_iter().flatten() {
                if let RawValue::Binary { subtype: COLUMN_SUBTYPE, bytes } = column {
                    self.put("column", bytes.to_vec());
                }
            }
        }
        if let Some(collation) = document(command.get("collation")) {
            let texts = doc! {"c": (collation), "s": "a-b 10", "t": "A\u{301}b 9", "u": "ß", "v": ["", {"x": "日本"}]};
            self.put("collation", text(texts.as_raw()));
        }
        for name in ["filter", "query", "validator"] {
            if let Some(filter) = document(command.get(name)) {
                self.take_filter(filter);
            }
        }
        if let Some(projection) = document(command.get("projection")) {
            self.put("projection", text(projection));
        }
        for statement in documents(command.get("updates")).chain(documents(command.get("deletes"))) {
            if let Some(filter) = document(statement.get("q")) {
                self.take_filter(filter);
            }
            if statement.get("u").is_some() {
                self.put("update", text(statement));
            }
        }
        if let Some(stages) = command.get("pipeline").and_then(RawValue::as_array) {
            self.put("pipeline", text(doc! {"pipeline": (RawValue::Array(stages))}.as_raw()));
            self.take_stages(stages);
        }
    }

    fn take_filter(&mut self, filter: RawDocument<'_>) {
        self.put("filter", text(filter));
        self.put("validator", text(filter));
        if let Some(schema) = document(filter.get("$jsonSchema")) {
            self.put("validator", text(schema));
        }
        if let Some(expression) = filter.get("$expr") {
            self.take_expression(expression);
        }
    }

    fn take_stages(&mut self, stages: RawArray<'_>) {
        for stage in stages.iter().filter_map(RawValue::as_document) {
            for (name, value) in stage {
                match (name, value) {
                    ("$match", RawValue::Document(filter)) => self.take_filter(filter),
                    (
                        "$project" | "$addFields" | "$set" | "$group" | "$replaceRoot",
                        RawValue::Document(fields),
                    ) => {
                        if name == "$project" {
                            self.put("projection", text(fields));
                        }
                        fields.iter().for_each(|(_, value)| self.take_expression(value));
                    }
                    _ => {}
                }
            }
        }
    }

    fn take_expression(&mut self, expression: RawValue<'_>) {
        if expression.as_container().is_some() {
            self.put("expression", text(doc! {"e": (expression)}.as_raw()));
        }
    }

    fn put(&mut self, target: &'static str, seed: Vec<u8>) {
        /// Large inputs make a fuzzer slow and teach it little.
        const BYTES_MAX: usize = 2048;
        if seed.len() <= BYTES_MAX {
            self.by_target.entry(target).or_default().insert(seed);
        }
    }
}

fn text(document: RawDocument<'_>) -> Vec<u8> {
    to_extended_json(document, JsonFormat::Relaxed).into_bytes()
}

fn canonical(document: RawDocument<'_>) -> Vec<u8> {
    to_extended_json(document, JsonFormat::Canonical).into_bytes()
}

fn document(value: Option<RawValue<'_>>) -> Option<RawDocument<'_>> {
    value.and_then(RawValue::as_document)
}

fn documents(value: Option<RawValue<'_>>) -> impl Iterator<Item = RawDocument<'_>> {
    let array = value.and_then(RawValue::as_array);
    array.into_iter().flat_map(|array| array.iter().filter_map(RawValue::as_document))
}
