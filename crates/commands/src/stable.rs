//! What version 1 of the stable API leaves out: clients that are strict (`apiStrict: true`) are refused it. Asked of mongod
//! 6.0.5, option by option and stage by stage.

use kilim_bson::{RawArray, RawDocument, RawValue};
use kilim_engine::{Engine, Namespace};
use kilim_error::{Error, ErrorCode, Result};

/// Options of commands that are in the API themselves.
const OPTIONS: &[(&str, &[&str])] = &[
    (
        "find",
        &[
            "min",
            "max",
            "returnKey",
            "showRecordId",
            "tailable",
            "oplogReplay",
            "noCursorTimeout",
            "awaitData",
        ],
    ),
    ("aggregate", &["explain"]),
    (
        "create",
        &[
            "size",
            "max",
            "storageEngine",
            "indexOptionDefaults",
            "autoIndexId",
            "changeStreamPreAndPostImages",
            "temp",
            "flags",
            "recordPreImages",
        ],
    ),
    ("createIndexes", &["ignoreUnknownIndexOptions"]),
    ("collMod", &["recordPreImages", "changeStreamPreAndPostImages", "dryRun"]),
    ("listCollections", &["includePendingDrops"]),
    ("listIndexes", &["includeIndexBuildInfo", "includeBuildUUIDs"]),
];

const STAGES: &[&str] = &[
    "$currentOp",
    "$fill",
    "$indexStats",
    "$listCatalog",
    "$listLocalSessions",
    "$listSessions",
    "$operationMetrics",
    "$planCacheStats",
    "$tree",
];

/// Refuses what a strict client may not use of a command that is in the API.
pub fn check_command(engine: &Engine, database: &str, command: RawDocument<'_>) -> Result<()> {
    let Some((name, value)) = command.iter().next() else { return Ok(()) };
    if let (true, Some(explained)) = (name == "explain", value.as_document()) {
        return check_command(engine, database, explained);
    }
    if let Some((_, options)) = OPTIONS.iter().find(|(command, _)| *command == name)
        && let Some((option, _)) = command.iter().find(|(option, _)| options.contains(option))
    {
        return refuse(format!("BSON field '{name}.{option}' is not allowed with apiStrict:true."));
    }
    match name {
        "aggregate" | "create" | "collMod" => {
            if let Some(RawValue::Array(pipeline)) = command.get("pipeline") {
                check_pipeline(pipeline)?;
            }
        }
        "createIndexes" => {
            let indexes = command.get("indexes").and_then(RawValue::as_array);
            for index in indexes.iter().flat_map(|indexes| indexes.iter()).filter_map(RawValue::as_document) {
                check_index(index)?;
            }
        }
        _ => {}
    }
    match value.as_str() {
        Some(collection) => check_views(engine, database, collection),
        None => Ok(()),
    }
}

/// Refuses a stage, also within other stages. What is no pipeline is left to whoever parses it.
pub fn check_pipeline(pipeline: RawArray<'_>) -> Result<()> {
    for (name, spec) in pipeline.iter().filter_map(|stage| stage.as_document()?.iter().next()) {
        if STAGES.contains(&name) {
            return refuse(format!("{name} is not allowed with 'apiStrict: true' in API Version 1"));
        }
        let Some(spec) = spec.as_document() else { continue };
        match name {
            "$collStats" if spec.iter().any(|(option, _)| option != "count") => {
                return refuse(
                    "only the 'count' option to $collStats is supported in API Version 1".to_owned(),
                );
            }
            "$lookup" | "$unionWith" => {
                if let Some(RawValue::Array(inner)) = spec.get("pipeline") {
                    check_pipeline(inner)?;
                }
            }
            "$facet" => {
                for inner in spec.iter().filter_map(|(_, inner)| inner.as_array()) {
                    check_pipeline(inner)?;
                }
            }
            "$setWindowFields" => {
                let output = spec.get("output").and_then(RawValue::as_document);
                let functions = output.iter().flat_map(|output| output.iter());
                let uses = |(_, function): (&str, RawValue<'_>)| {
                    function.as_document().is_some_and(|function| function.get("$linearFill").is_some())
                };
                if functions.into_iter().any(uses) {
                    return refuse(
                        "$linearFill is not allowed with 'apiStrict: true' in API Version 1".to_owned(),
                    );
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Refuses an index of a kind that is not in the API.
pub fn check_index(index: RawDocument<'_>) -> Result<()> {
    let key = index.get("key").and_then(RawValue::as_document).unwrap_or(RawDocument::empty());
    match key.iter().any(|(_, kind)| matches!(kind, RawValue::String("text"))) {
        true => refuse("text indexes cannot be created with apiStrict: true".to_owned()),
        false => Ok(()),
    }
}

/// Refuses a view whose pipeline a strict client could not write.
fn check_views(engine: &Engine, database: &str, collection: &str) -> Result<()> {
    let Ok(mut namespace) = Namespace::parse(database, collection) else { return Ok(()) };
    while let Some(view) = engine.view(&namespace) {
        check_pipeline(view.pipeline.as_raw())?;
        namespace = view.on.clone();
    }
    Ok(())
}

fn refuse(message: String) -> Result<()> {
    Err(Error::user(ErrorCode::APIStrictError, message))
}
