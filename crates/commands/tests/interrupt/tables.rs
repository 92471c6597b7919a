//! Every row of the tables of operators, accumulators, filters, stages, update operators and commands ends when it is killed.
//!
//! The rows are the tables' own. A new operator is tried with operands made of what the table says of its arguments, and
//! where none of these suits it, or it parses its operand itself, the test fails until a sample stands here.

use std::sync::Arc;
use std::time::Duration;

use kilim_bson::{Document, RawValue, Value, doc, parse_extended_json};
use kilim_commands::COMMANDS;
use kilim_engine::{Durability, Engine, EngineOptions};
use kilim_query::expression::Arguments;
use kilim_query::{accumulator, expression, filter, stage, update};

use super::{INTERRUPTED, PATIENCE, ask, code, engine, kill, parse};

/// When a command is killed. What ends before, on a fast machine or because this thread was woken late, is killed sooner the
/// next time.
const RUNS: &[Duration] = &[
    Duration::from_millis(40),
    Duration::from_millis(15),
    Duration::from_millis(5),
    Duration::from_millis(1),
    Duration::ZERO,
    Duration::ZERO,
    Duration::ZERO,
    Duration::ZERO,
    Duration::ZERO,
];

/// Documents with something large of every kind.
fn fill(engine: &Arc<Engine>) {
    let numbers: Vec<Value> =
        (0..20_000).map(|at: i32| Value::Int32(at.wrapping_mul(7919) % 100_003)).collect();
    let objects: Vec<Value> = (0..5_000).map(|at: i32| doc! {"b": at, "t": "x".repeat(20)}.into()).collect();
    let mut wide = Document::new();
    for at in 0..5_000 {
        wide.push(&format!("f{at}"), at);
    }
    let scalars = r#"{"d": {"$date": "2024-02-29T12:00:00Z"}, "f": 0.5, "g": 1, "w": "2024-02-29T12:00:00",
        "i": {"$oid": "507f1f77bcf86cd799439011"}, "b": true, "h": {"$timestamp": {"t": 1700000000, "i": 1}}}"#;
    let scalars = parse_extended_json(scalars).unwrap();
    for batch in 0..4 {
        let documents: Vec<Document> = (0..10)
            .map(|at| {
                let id: i32 = batch * 10 + at;
                let mut document = doc! {"_id": id, "a": numbers.clone(), "o": objects.clone()};
                document.push("s", "a".repeat(5_000));
                document.push("m", wide.clone());
                for (name, value) in scalars.iter() {
                    document.push(name, value.to_value());
                }
                document
            })
            .collect();
        let reply = ask(engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
        assert_eq!(code(&reply), 0, "{reply:?}");
    }
}

/// What was tried, to be told all at once.
#[derive(Default)]
struct Findings {
    wrong: Vec<String>,
    worst: Duration,
}

impl Findings {
    /// Kills a command that must run long.
    fn kill(&mut self, engine: &Arc<Engine>, name: &str, command: &str) {
        let command = parse(command);
        let mut answers = Vec::new();
        for &runs in RUNS {
            let (time, reply) = kill(engine, &command, runs);
            self.worst = self.worst.max(time);
            if time >= PATIENCE {
                self.wrong.push(format!("{name} went on for {time:?}: {command:?}"));
                return;
            }
            if code(&reply) == INTERRUPTED {
                return;
            }
            answers.push(reply.get("errmsg").map_or("done".to_owned(), |message| format!("{message:?}")));
        }
        self.wrong.push(format!("{name} was never interrupted, {answers:?}: {command:?}"));
    }

    /// Kills a command that may be done before.
    fn try_to_kill(&mut self, engine: &Arc<Engine>, name: &str, command: &str) {
        let (time, reply) = kill(engine, &parse(command), RUNS[0]);
        self.worst = self.worst.max(time);
        let is_batch = command.starts_with(r#"{"insert""#) || reply.get("writeErrors").is_some();
        // A fast machine may come to what memory bounds before.
        if !matches!(code(&reply), 0 | INTERRUPTED | 146) && !is_batch {
            self.wrong.push(format!("{name} failed, {reply:?}"));
        } else if time >= PATIENCE {
            self.wrong.push(format!("{name} went on for {time:?}: {}", &command[..command.len().min(300)]));
        }
    }

    fn done(self) {
        println!("the longest went on for {:?}", self.worst);
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

/// Operands of operators that parse theirs by themselves, or that need something particular.
const OPERANDS: &[(&str, &str)] = &[
    ("$cond", r#"[{"$in": [-1, "$a"]}, 1, 2]"#),
    ("$ifNull", r#"[{"$first": {"$filter": {"input": "$a", "cond": {"$eq": ["$$this", -1]}}}}, 1]"#),
    ("$switch", r#"{"branches": [{"case": {"$in": [-1, "$a"]}, "then": 1}], "default": 2}"#),
    ("$let", r#"{"vars": {"x": "$a"}, "in": {"$in": [-1, "$$x"]}}"#),
    ("$map", r#"{"input": "$a", "as": "each", "in": {"$add": ["$$each", 1]}}"#),
    ("$filter", r#"{"input": "$a", "as": "each", "cond": {"$gt": ["$$each", 5]}}"#),
    ("$reduce", r#"{"input": "$a", "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}"#),
    ("$sortArray", r#"{"input": "$o", "sortBy": {"b": -1}}"#),
    ("$zip", r#"{"inputs": ["$a", "$o"], "useLongestLength": true}"#),
    ("$getField", r#"{"field": "f4999", "input": "$m"}"#),
    ("$setField", r#"{"field": "f4999", "input": "$m", "value": 1}"#),
    ("$unsetField", r#"{"field": "f4999", "input": "$m"}"#),
    ("$dateFromParts", r#"{"year": "$g", "month": 100, "day": 1000}"#),
    ("$dateFromString", r#"{"dateString": "$w"}"#),
    ("$dateToString", r#"{"date": "$d", "format": "%Y-%m-%d %H:%M:%S %j %U"}"#),
    ("$dateAdd", r#"{"startDate": "$d", "unit": "month", "amount": "$g", "timezone": "Europe/Berlin"}"#),
    ("$dateSubtract", r#"{"startDate": "$d", "unit": "month", "amount": "$g"}"#),
    ("$dateDiff", r#"{"startDate": "$d", "endDate": "$d", "unit": "day"}"#),
    ("$dateTrunc", r#"{"date": "$d", "unit": "week", "binSize": 3}"#),
    ("$toHashedIndexKey", r#""$a""#),
    ("$rand", "{}"),
    ("$sampleRate", ""),
    ("$meta", r#""recordId""#),
    ("$literal", r#"[1, 2, 3]"#),
    ("$convert", r#"{"input": "$g", "to": "string"}"#),
    ("$toObjectId", r#"{"$toString": "$i"}"#),
    ("$median", r#"{"input": "$a", "method": "approximate"}"#),
    ("$percentile", r#"{"input": "$a", "p": [0.5, 0.9], "method": "approximate"}"#),
    ("$regexFindAll", r#"{"input": "$s", "regex": "a"}"#),
    ("$regexFind", r#"{"input": "$s", "regex": "(a*)*b"}"#),
    ("$regexMatch", r#"{"input": "$s", "regex": "(?=(a+)+b)"}"#),
    ("$replaceAll", r#"{"input": "$s", "find": "a", "replacement": "bb"}"#),
    ("$replaceOne", r#"{"input": "$s", "find": "b", "replacement": "bb"}"#),
    ("$arrayToObject", r#"{"$map": {"input": "$o", "in": {"k": {"$toString": "$$this.b"}, "v": 1}}}"#),
    ("$setEquals", r#"["$a", "$o"]"#),
    ("$setIsSubset", r#"["$a", "$a"]"#),
    ("$concatArrays", r#"["$a", "$o", "$a"]"#),
    ("$slice", r#"["$a", 1, 19000]"#),
    ("$range", r#"[0, {"$multiply": ["$g", 100000]}]"#),
    ("$in", r#"[-1, "$a"]"#),
    ("$indexOfArray", r#"["$a", -1]"#),
    ("$arrayElemAt", r#"["$a", -1]"#),
    ("$firstN", r#"{"input": "$a", "n": 19000}"#),
    ("$lastN", r#"{"input": "$a", "n": 19000}"#),
    ("$minN", r#"{"input": "$a", "n": 19000}"#),
    ("$maxN", r#"{"input": "$a", "n": 19000}"#),
    ("$substr", r#"["$s", 1, 4000]"#),
    ("$substrBytes", r#"["$s", 1, 4000]"#),
    ("$substrCP", r#"["$s", 1, 4000]"#),
    ("$indexOfBytes", r#"["$s", "b"]"#),
    ("$indexOfCP", r#"["$s", "b"]"#),
    ("$split", r#"["$s", "a"]"#),
    ("$trim", r#"{"input": "$s", "chars": "ab"}"#),
    ("$ltrim", r#"{"input": "$s", "chars": "ab"}"#),
    ("$rtrim", r#"{"input": "$s", "chars": "ab"}"#),
    ("$tsSecond", r#""$h""#),
    ("$tsIncrement", r#""$h""#),
];

/// What is always refused.
const REFUSED: &[&str] = &["$function", "$accumulator"];

/// Operands of so many arguments, those that make the most work first.
fn positional(count: usize) -> Vec<String> {
    let same = |value: &'static str| vec![value; count];
    let mut lists: Vec<Vec<&'static str>> =
        [r#""$a""#, r#""$s""#, r#""$m""#, r#""$o""#, r#""$d""#, r#""$f""#, r#""$g""#].map(same).to_vec();
    for first in [r#""$a""#, r#""$s""#, r#""$m""#, r#""$d""#] {
        for others in [r#""$g""#, r#""a""#] {
            let mut list = same(others);
            list[0] = first;
            lists.push(list);
        }
    }
    lists.into_iter().map(|list| format!("[{}]", list.join(","))).collect()
}

fn operands(operator: &expression::Operator) -> Vec<String> {
    if let Some((_, operand)) = OPERANDS.iter().find(|(name, _)| *name == operator.name) {
        return vec![(*operand).to_owned()];
    }
    match operator.arguments {
        Arguments::Exactly(count) | Arguments::Between(count, _) => positional(count.max(1)),
        Arguments::Any => positional(2),
        Arguments::Named(named) => {
            let inputs = [r#""$a""#, r#""$s""#, r#""$d""#, r#""$g""#];
            let document = |input: &str| {
                let parameters = named.parameters.iter().filter(|parameter| parameter.required);
                let fields: Vec<String> =
                    parameters.map(|parameter| format!(r#""{}": {input}"#, parameter.name)).collect();
                format!("{{{}}}", fields.join(","))
            };
            inputs.map(document).to_vec()
        }
        // Those that take one value, or one in a document.
        Arguments::Special(_) => {
            [r#""$a""#, r#""$s""#, r#""$d""#, r#""$g""#, r#"{"date": "$d"}"#].map(str::to_owned).to_vec()
        }
    }
}

#[test]
fn every_operator_ends_when_it_is_killed() {
    let engine = engine();
    fill(&engine);
    let mut findings = Findings::default();
    for operator in expression::operators() {
        let name = operator.name;
        let pipeline = |over: &str, limit: &str, operand: &str| {
            format!(
                r#"{{"aggregate": "c", "pipeline": [{limit} {{"$project": {{"r": {{"$reduce": {{"input": {over}, "initialValue": 0,
                    "in": {{"$cond": [{{"$eq": [{{"{name}": {operand}}}, "never"]}}, 1, 0]}}}}}}}}}}], "cursor": {{}}}}"#
            )
        };
        let short =
            |operand: &str| code(&ask(&engine, &parse(&pipeline("[1]", r#"{"$limit": 1},"#, operand))));
        let operands = operands(operator);
        let suits = operands.iter().find(|operand| short(operand) == 0);
        match suits {
            _ if REFUSED.contains(&name) => assert!(suits.is_none(), "{name} is not refused"),
            Some(operand) => findings.kill(&engine, name, &pipeline(r#""$a""#, "", operand)),
            None => findings.wrong.push(format!("{name} needs a sample in OPERANDS")),
        }
    }
    findings.done();
    engine.close().unwrap();
}

#[test]
fn every_accumulator_ends_when_it_is_killed() {
    let engine = engine();
    fill(&engine);
    let mut findings = Findings::default();
    for accumulator in accumulator::DEFINITIONS {
        let name = accumulator.name;
        let operand = match name {
            "$accumulator" => continue,
            "$count" => "{}",
            "$mergeObjects" => r#"{"x": "$a"}"#,
            "$firstN" | "$lastN" | "$minN" | "$maxN" => r#"{"input": "$a", "n": 100000}"#,
            "$top" | "$bottom" => r#"{"output": "$a", "sortBy": {"a": 1}}"#,
            "$topN" | "$bottomN" => r#"{"output": "$a", "sortBy": {"a": 1}, "n": 100000}"#,
            "$median" => r#"{"input": "$a", "method": "approximate"}"#,
            "$percentile" => r#"{"input": "$a", "p": [0.5], "method": "approximate"}"#,
            _ => r#""$a""#,
        };
        let command = format!(
            r#"{{"aggregate": "c", "pipeline": [{{"$project": {{"a": 1}}}}, {{"$unwind": "$a"}},
                {{"$group": {{"_id": null, "r": {{"{name}": {operand}}}}}}}], "cursor": {{}}}}"#
        );
        findings.kill(&engine, name, &command);
    }
    findings.done();
    engine.close().unwrap();
}

/// A stage at work on much.
fn stage_sample(name: &str) -> Option<String> {
    let unwind = r#"{"$project": {"a": 1}}, {"$unwind": "$a"}"#;
    let slow =
        r#"{"$size": {"$filter": {"input": {"$range": [0, 1000000]}, "cond": {"$gt": ["$$this", "$g"]}}}}"#;
    let ids = r#"{"$project": {"_id": {"$concat": [{"$toString": "$_id"}, "-", {"$toString": "$a"}]}}}"#;
    Some(match name {
        "$_internalUnpackBucket" => format!(
            r#"{unwind}, {{"$set": {{"data": {{"t": {{"0": "$a", "1": "$a"}}}}}}}},
                {{"{name}": {{"timeField": "t", "bucketMaxSpanSeconds": 3600}}}}, {{"$count": "n"}}"#
        ),
        "$addFields" | "$set" | "$project" => format!(r#"{{"{name}": {{"r": {slow}}}}}"#),
        "$bucket" => {
            format!(r#"{unwind}, {{"$bucket": {{"groupBy": "$a", "boundaries": [-1000000, 0, 1000000]}}}}"#)
        }
        "$bucketAuto" => format!(r#"{unwind}, {{"$bucketAuto": {{"groupBy": "$a", "buckets": 10}}}}"#),
        "$count" => format!(r#"{unwind}, {{"$count": "n"}}"#),
        "$documents" => return None,
        "$facet" => format!(r#"{{"$facet": {{"x": [{unwind}, {{"$sort": {{"a": 1}}}}], "y": [{unwind}, {{"$count": "n"}}]}}}}"#),
        "$graphLookup" => r#"{"$graphLookup": {"from": "c", "as": "x", "startWith": "$a", "connectFromField": "a", "connectToField": "a"}}"#.to_owned(),
        "$group" => format!(r#"{unwind}, {{"$group": {{"_id": "$a"}}}}"#),
        "$limit" => format!(r#"{unwind}, {{"$limit": 10000000}}, {{"$count": "n"}}"#),
        "$lookup" => r#"{"$lookup": {"from": "c", "as": "x", "localField": "g", "foreignField": "g",
            "pipeline": [{"$match": {"$expr": {"$in": [-1, "$a"]}}}]}}"#.to_owned(),
        "$match" => format!(r#"{{"$match": {{"$expr": {{"$gt": [{slow}, 5]}}}}}}"#),
        "$merge" => format!(r#"{unwind}, {ids}, {{"$merge": "merged"}}"#),
        "$out" => format!(r#"{unwind}, {ids}, {{"$out": "made"}}"#),
        "$redact" => format!(r#"{unwind}, {{"$redact": {{"$cond": [{{"$gt": ["$a", 5]}}, "$$PRUNE", "$$DESCEND"]}}}}"#),
        "$replaceRoot" => format!(r#"{{"$replaceRoot": {{"newRoot": {{"r": {slow}}}}}}}"#),
        "$replaceWith" => format!(r#"{{"$replaceWith": {{"r": {slow}}}}}"#),
        "$sample" => format!(r#"{unwind}, {{"$sample": {{"size": 100000}}}}"#),
        "$setWindowFields" => format!(
            r#"{unwind}, {{"$setWindowFields": {{"sortBy": {{"a": 1}}, "output": {{"r": {{"$sum": "$a"}}}}}}}}"#
        ),
        "$densify" => format!(r#"{unwind}, {{"$densify": {{"field": "a", "range": {{"step": 1, "bounds": "full"}}}}}}"#),
        "$fill" => format!(r#"{unwind}, {{"$fill": {{"sortBy": {{"a": 1}}, "output": {{"r": {{"method": "locf"}}}}}}}}"#),
        "$skip" => format!(r#"{unwind}, {{"$skip": 10000000}}"#),
        "$sort" => format!(r#"{unwind}, {{"$sort": {{"a": 1}}}}"#),
        "$sortByCount" => format!(r#"{unwind}, {{"$sortByCount": "$a"}}"#),
        "$unionWith" => format!(r#"{{"$unionWith": {{"coll": "c", "pipeline": [{unwind}]}}}}, {{"$count": "n"}}"#),
        "$unset" => format!(r#"{unwind}, {{"$unset": "a"}}, {{"$count": "n"}}"#),
        "$unwind" => format!(r#"{unwind}, {{"$match": {{"a": -1}}}}"#),
        _ => return None,
    })
}

/// Stages that look at no documents: what they tell of is bounded, or they are refused (`$geoNear` without an index).
const STAGES_WITHOUT_DOCUMENTS: &[&str] = &[
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$currentOp",
    "$documents",
    "$geoNear",
    "$indexStats",
    "$listLocalSessions",
    "$listSessions",
    "$patternStats",
    "$planCacheStats",
    "$shardedDataDistribution",
    // Refused where no measurements are packed; with them it asks for each bucket and each open measurement.
    "$_internalPackedBuckets",
    // Refused where no tree is declared; with one it reads by pipelines of the stages above.
    "$tree",
];

#[test]
fn every_stage_ends_when_it_is_killed() {
    let engine = engine();
    fill(&engine);
    let mut findings = Findings::default();
    for definition in stage::DEFINITIONS {
        match stage_sample(definition.name) {
            Some(stages) => {
                let command = format!(
                    r#"{{"aggregate": "c", "pipeline": [{stages}], "cursor": {{"batchSize": 1000000}}}}"#
                );
                findings.kill(&engine, definition.name, &command);
            }
            None if STAGES_WITHOUT_DOCUMENTS.contains(&definition.name) => {}
            None => findings.wrong.push(format!("{} needs a sample", definition.name)),
        }
    }
    findings.kill(
        &engine,
        "$documents",
        r#"{"aggregate": 1, "pipeline": [{"$documents": {"$map": {"input": {"$range": [0, 1000000]}, "in": {"x": "$$this"}}}}], "cursor": {}}"#,
    );
    findings.done();
    engine.close().unwrap();
}

/// An update of every document, by an operator at work on much.
fn update_sample(name: &str) -> Option<(String, String)> {
    let many: Vec<String> = (0..1000).map(|at| format!(r#"{{"x.b": {}}}"#, 1_000_000 + at)).collect();
    let elements = format!(r#", "arrayFilters": [{{"$nor": [{}]}}]"#, many.join(","));
    let numbers: Vec<String> = (0..50_000).map(|at| (at * 3 + 1_000_000).to_string()).collect();
    let numbers = numbers.join(",");
    let pulled: Vec<String> = (0..1000).map(|at| format!(r#"{{"b": {}}}"#, 1_000_000 + at)).collect();
    let pulled = pulled.join(",");
    let plain = |operand: String| Some((format!(r#"{{"{name}": {operand}}}"#), String::new()));
    match name {
        "$addToSet" => plain(format!(r#"{{"a": {{"$each": [{numbers}]}}}}"#)),
        "$pullAll" => plain(format!(r#"{{"a": [{numbers}]}}"#)),
        "$pull" => plain(format!(r#"{{"o": {{"$or": [{pulled}]}}}}"#)),
        "$push" => plain(format!(r#"{{"a": {{"$each": [{numbers}], "$sort": -1}}}}"#)),
        // Each of these changes every element that a slow filter finds.
        "$inc" | "$mul" | "$max" | "$min" => Some((format!(r#"{{"{name}": {{"o.$[x].b": 7}}}}"#), elements)),
        "$set" => Some((r#"{"$set": {"o.$[x].t": "y"}}"#.to_owned(), elements)),
        "$unset" => Some((r#"{"$unset": {"o.$[x].t": 1}}"#.to_owned(), elements)),
        "$bit" => Some((r#"{"$bit": {"o.$[x].b": {"xor": 5}}}"#.to_owned(), elements)),
        "$currentDate" => Some((r#"{"$currentDate": {"o.$[x].t": true}}"#.to_owned(), elements)),
        "$pop" => Some((r#"{"$pop": {"o.$[x].n": 1}, "$set": {"o.$[x].t": "y"}}"#.to_owned(), elements)),
        "$setOnInsert" => {
            Some((r#"{"$setOnInsert": {"z": 1}, "$set": {"o.$[x].t": "y"}}"#.to_owned(), elements))
        }
        // It takes no arrays, so a document holds no more of them than it has fields.
        "$rename" => Some((r#"{"$rename": {"m": "n"}, "$set": {"o.$[x].t": "y"}}"#.to_owned(), elements)),
        _ => None,
    }
}

#[test]
fn every_update_operator_ends_when_it_is_killed() {
    let engine = engine();
    fill(&engine);
    let mut findings = Findings::default();
    for (name, _) in update::operators() {
        match update_sample(name) {
            Some((change, more)) => {
                let command = format!(
                    r#"{{"update": "c", "updates": [{{"q": {{}}, "u": {change}, "multi": true{more}}}]}}"#
                );
                findings.kill(&engine, name, &command);
            }
            None => findings.wrong.push(format!("{name} needs a sample")),
        }
    }
    findings.done();
    engine.close().unwrap();
}

/// A command at work on the collection `small`.
fn command_sample(name: &str) -> Option<&'static str> {
    Some(match name {
        "aggregate" => {
            r#"{"aggregate": "small", "pipeline": [{"$group": {"_id": {"$concat": ["$t", {"$toString": "$n"}]}}}], "cursor": {}}"#
        }
        "cloneCollectionAsCapped" => {
            r#"{"cloneCollectionAsCapped": "small", "toCollection": "cap", "size": 1000000000}"#
        }
        "collMod" => {
            r#"{"collMod": "small", "index": {"keyPattern": {"n": 1}, "unique": true}, "dryRun": true}"#
        }
        "compact" => r#"{"compact": "small"}"#,
        "convertToCapped" => r#"{"convertToCapped": "other", "size": 1000000000}"#,
        "count" => r#"{"count": "small", "query": {"t": {"$regex": "x{3}y"}}}"#,
        "createIndexes" => {
            r#"{"createIndexes": "small", "indexes": [{"key": {"t": 1, "_id": 1}, "name": "t"}]}"#
        }

        "dbHash" => r#"{"dbHash": 1}"#,
        "delete" => r#"{"delete": "small", "deletes": [{"q": {"t": {"$regex": "x{3}y"}}, "limit": 0}]}"#,
        "distinct" => r#"{"distinct": "small", "key": "m", "query": {"t": {"$regex": "x{3}y|z?"}}}"#,
        "explain" => {
            r#"{"explain": {"find": "small", "filter": {"t": {"$regex": "x{3}y"}}}, "verbosity": "executionStats"}"#
        }
        "filemd5" => r#"{"filemd5": 1, "root": "file"}"#,
        "find" => r#"{"find": "small", "filter": {"t": {"$regex": "x{3}y"}}}"#,
        "findAndModify" => {
            r#"{"findAndModify": "small", "query": {"t": {"$regex": "x{3}y"}}, "update": {"$set": {"z": 1}}}"#
        }
        "update" => r#"{"update": "small", "updates": [{"q": {}, "u": {"$inc": {"z": 1}}, "multi": true}]}"#,
        "verifyPattern" => r#"{"verifyPattern": "small", "name": "p"}"#,
        "repairPattern" => r#"{"repairPattern": "small", "name": "p"}"#,
        "validate" => r#"{"validate": "small", "full": true}"#,
        _ => return None,
    })
}

/// Commands whose work is bounded by their message, by what the catalog holds or by one batch, and those that leave the
/// work to a job.
const COMMANDS_WITHOUT_LONG_WORK: &[&str] = &[
    "_mergeAuthzCollections",
    "authenticate",
    "createRole",
    "createUser",
    "dropAllRolesFromDatabase",
    "dropAllUsersFromDatabase",
    "dropRole",
    "dropUser",
    "fsyncUnlock",
    "grantPrivilegesToRole",
    "grantRolesToRole",
    "grantRolesToUser",
    "invalidateUserCache",
    "logout",
    "revokePrivilegesFromRole",
    "revokeRolesFromRole",
    "revokeRolesFromUser",
    "rolesInfo",
    "saslContinue",
    "saslStart",
    "updateRole",
    "updateUser",
    "usersInfo",
    "abortTransaction",
    "buildInfo",
    "collStats",
    "commitTransaction",
    "configureFailPoint",
    "connectionStatus",
    "create",
    "createPattern",
    "currentOp",
    "dataSize",
    "dbStats",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "dropPattern",
    "endSessions",
    "getCmdLineOpts",
    "getDefaultRWConcern",
    "getLog",
    "getParameter",
    "hello",
    "hostInfo",
    "insert",
    "isMaster",
    "killAllSessions",
    "killCursors",
    "killOp",
    "killPatternJob",
    "killSessions",
    "listCollections",
    "kilimBackup",
    "listCommands",
    "listDatabases",
    "listIndexes",
    "listPatterns",
    "modifyPattern",
    "patternJobs",
    "pausePattern",
    "completeVersion",
    "rollbackVersion",
    "ping",
    "planCacheClear",
    "planCacheClearFilters",
    "planCacheListFilters",
    "planCacheSetFilter",
    "refreshSessions",
    "renameCollection",
    "connPoolStats",
    "dropConnections",
    "fsync",
    "replSetGetConfig",
    "replSetGetStatus",
    "resumePattern",
    "serverStatus",
    "setParameter",
    "startSession",
    "applyOps",
    "getClusterParameter",
    "setClusterParameter",
    "killAllSessionsByPattern",
    "lockInfo",
    "logRotate",
    "reIndex",
    "setDefaultRWConcern",
    "setFeatureCompatibilityVersion",
    "setIndexCommitQuorum",
    "setUserWriteBlockMode",
    "validateDBMetadata",
    "profile",
    "top",
    "waitPattern",
    "whatsmyuri",
];

#[test]
fn every_command_that_works_long_ends_when_it_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(EngineOptions {
        data: Some(folder.path().join("data")),
        durability: Durability::Relaxed,
        storage: kilim_engine::StorageOptions { cache_bytes: 64 << 20, ..Default::default() },
        test_commands: false,
    })
    .unwrap();
    for batch in 0..60 {
        let documents: Vec<Document> = (0..1000)
            .map(|at| {
                let id: i32 = batch * 1000 + at;
                doc! {"_id": id, "n": (id.wrapping_mul(7919) % 100_003), "m": (id % 7), "t": "x".repeat(300)}
            })
            .collect();
        // A collection with patterns cannot be converted.
        ask(&engine, &doc! {"insert": "other", "documents": documents.clone(), "$db": "test"});
        ask(&engine, &doc! {"insert": "small", "documents": documents, "$db": "test"});
    }
    for batch in 0..20 {
        let chunk = || Value::Binary { subtype: 0, bytes: vec![7; 20_000] };
        let chunks: Vec<Document> =
            (0..100).map(|at| doc! {"files_id": 1, "n": (batch * 100 + at), "data": chunk()}).collect();
        ask(&engine, &doc! {"insert": "file.chunks", "documents": chunks, "$db": "test"});
    }
    let index =
        r#"{"createIndexes": "file.chunks", "indexes": [{"key": {"files_id": 1, "n": 1}, "name": "n"}]}"#;
    assert_eq!(code(&ask(&engine, &parse(index))), 0);
    let index =
        r#"{"createIndexes": "small", "indexes": [{"key": {"n": 1}, "name": "n", "prepareUnique": true}]}"#;
    assert_eq!(code(&ask(&engine, &parse(index))), 0);
    let pattern =
        r#"{"createPattern": "small", "name": "p", "computed": {"set": {"c": {"$strLenCP": "$t"}}}}"#;
    assert_eq!(code(&ask(&engine, &parse(pattern))), 0);
    let mut findings = Findings::default();
    for command in COMMANDS {
        match command_sample(command.name) {
            _ if command.name == "getMore" => {
                let find = r#"{"find": "small", "filter": {"t": {"$regex": "x{3}y"}}, "batchSize": 0}"#;
                let opened = ask(&engine, &parse(find));
                let cursor = opened.get("cursor").and_then(RawValue::as_document).unwrap();
                let Some(RawValue::Int64(id)) = cursor.get("id") else {
                    panic!("an open cursor: {opened:?}")
                };
                let sample = format!(r#"{{"getMore": {{"$numberLong": "{id}"}}, "collection": "small"}}"#);
                findings.kill(&engine, command.name, &sample);
            }
            _ if command.name == "moveNode" => {
                let tree = r#"{"createPattern": "nodes", "name": "t", "tree": {"parent": "up", "ancestors": "ancestors"}}"#;
                assert_eq!(code(&ask(&engine, &parse(tree))), 0);
                let below =
                    |id: i32| doc! {"_id": id, "up": if id < 2 { Value::Null } else { Value::Int32(0) }};
                let nodes: Vec<Document> = (0..1000).map(below).collect();
                let inserted = ask(&engine, &doc! {"insert": "nodes", "documents": nodes, "$db": "test"});
                assert_eq!(code(&inserted), 0, "{inserted:?}");
                findings.try_to_kill(&engine, command.name, r#"{"moveNode": "nodes", "_id": 0, "to": 1}"#);
            }
            Some(sample) => findings.kill(&engine, command.name, sample),
            None if COMMANDS_WITHOUT_LONG_WORK.contains(&command.name) => {}
            None => findings.wrong.push(format!("{} needs a sample", command.name)),
        }
    }
    findings.done();
    engine.close().unwrap();
}

/// What a filter's operator is given; the number makes operands of one filter differ.
fn filter_operand(name: &str, number: usize) -> Option<String> {
    let absent = 1_000_000 + number;
    let large =
        |count: usize| (0..count).map(|at| (absent + at * 3).to_string()).collect::<Vec<_>>().join(",");
    Some(match name {
        "$eq" | "$ne" | "$gt" | "$gte" | "$size" => absent.to_string(),
        "$lt" | "$lte" => format!("-{absent}"),
        "$in" | "$nin" => format!("[{}]", large(1000)),
        "$all" => format!("[{}]", large(10)),
        "$exists" => number.is_multiple_of(2).to_string(),
        "$type" => r#""regex""#.to_owned(),
        "$mod" => format!("[{absent}, 999999]"),
        "$elemMatch" => format!(r#"{{"$gt": {absent}}}"#),
        "$bitsAllSet" | "$bitsAnySet" => format!("[{}]", 40 + number % 20),
        "$bitsAllClear" | "$bitsAnyClear" => "[0, 1, 2, 3, 4, 5, 6, 7]".to_owned(),
        "$not" => format!(r#"{{"$gt": {absent}}}"#),
        "$geoWithin" | "$within" => r#"{"$centerSphere": [[0, 0], 0.001]}"#.to_owned(),
        "$geoIntersects" => {
            r#"{"$geometry": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}}"#.to_owned()
        }
        _ => return None,
    })
}

/// Filters on a field that are refused: no index is there for them.
const FILTERS_REFUSED: &[&str] = &["$near", "$nearSphere", "$geoNear"];

/// A filter at the top.
fn top_level_filter(name: &str) -> Option<String> {
    let conditions = |count: usize| {
        let each = |at: usize| format!(r#"{{"a": {{"$gt": {}}}}}"#, 1_000_000 + at);
        (0..count).map(each).collect::<Vec<_>>().join(",")
    };
    let slow = format!(r#""$nor": [{}]"#, conditions(300));
    Some(match name {
        "$and" => format!(r#"{{"$and": [{{{slow}}}, {{"a": -1}}]}}"#),
        "$or" | "$nor" => format!(r#"{{"{name}": [{}]}}"#, conditions(300)),
        "$comment" => format!(r#"{{"$comment": "why", {slow}}}"#),
        "$alwaysTrue" | "$alwaysFalse" => format!(r#"{{"$or": [{{"{name}": 1}}, {{{slow}}}], "a": -1, {slow}}}"#),
        "$expr" => r#"{"$expr": {"$in": ["never", {"$map": {"input": {"$range": [0, 1000]}, "in": "$a"}}]}}"#.to_owned(),
        "$jsonSchema" => r#"{"$jsonSchema": {"properties": {"o": {"items": {"properties": {"t": {"pattern": "(?=(x+)+y)"}}}}, "a": {"uniqueItems": true}}, "anyOf": [{"properties": {"a": {"items": {"maximum": -1}}}}, {"patternProperties": {"^f": {"minimum": 5}}}]}}"#.to_owned(),
        "$sampleRate" => format!(r#"{{"$sampleRate": 1.0, {slow}}}"#),
        _ => return None,
    })
}

#[test]
fn every_filter_operator_ends_when_it_is_killed() {
    let engine = engine();
    fill(&engine);
    let mut findings = Findings::default();
    let conditions = |field: &str, name: &str, count: usize| -> Option<String> {
        let each = |at| Some(format!(r#"{{"{field}": {{"{name}": {}}}}}"#, filter_operand(name, at)?));
        Some((0..count).map(each).collect::<Option<Vec<String>>>()?.join(","))
    };
    for &name in filter::FIELD_OPERATORS.iter().chain(["$not"].iter()) {
        let slow = r#"{"s": {"$regex": "(?=(a+)+b)", "$options": "i"}}"#;
        let conditions = |field: &str, count: usize| match name {
            // Each has the other.
            "$regex" | "$options" => Some(vec![slow; count].join(",")),
            _ => conditions(field, name, count),
        };
        let Some(many) = conditions("a", 300) else {
            let refused = format!(r#"{{"count": "c", "query": {{"a": {{"{name}": [0, 0]}}}}}}"#);
            let is_refused = FILTERS_REFUSED.contains(&name) && code(&ask(&engine, &parse(&refused))) != 0;
            if !is_refused {
                findings.wrong.push(format!("{name} needs an operand"));
            }
            continue;
        };
        // On many documents with a little each, and on long arrays.
        let little = conditions("a", 20).unwrap();
        findings.kill(
            &engine,
            name,
            &format!(
                r#"{{"aggregate": "c", "pipeline": [{{"$project": {{"a": 1, "s": 1}}}}, {{"$unwind": "$a"}},
                    {{"$match": {{"$nor": [{{"$or": [{little}], "s": "never"}}]}}}}, {{"$group": {{"_id": "$a"}}}}], "cursor": {{}}}}"#
            ),
        );
        for list in ["$or", "$nor", "$and"] {
            findings.try_to_kill(
                &engine,
                name,
                &format!(r#"{{"count": "c", "query": {{"{list}": [{many}]}}}}"#),
            );
        }
    }
    for &name in filter::TOP_LEVEL_OPERATORS {
        match top_level_filter(name) {
            Some(filter) => {
                findings.try_to_kill(&engine, name, &format!(r#"{{"count": "c", "query": {filter}}}"#))
            }
            None if ["$where", "$text"].contains(&name) => {}
            None => findings.wrong.push(format!("{name} needs a sample")),
        }
    }
    findings.done();
    engine.close().unwrap();
}

/// What else works on a document, each on large ones: projections, sorts, keys of indexes, collations, schemas, long lists.
#[test]
fn projections_sorts_keys_and_long_lists_end_when_they_are_killed() {
    let engine = engine();
    fill(&engine);
    let numbers: Vec<String> = (0..100_000).map(|at| (at * 3 + 1_000_000).to_string()).collect();
    let numbers = numbers.join(",");
    let texts: Vec<String> = (0..20_000).map(|at| format!(r#""{}{at}""#, "ä".repeat(30))).collect();
    let texts = texts.join(",");
    let documents: Vec<String> = (0..100_000).map(|at| format!(r#"{{"_id": "i{at}", "n": {at}}}"#)).collect();
    let updates: Vec<String> = (0..2_000)
        .map(|at| {
            format!(
                r#"{{"q": {{"a": {{"$gt": {}}}}}, "u": {{"$set": {{"z": 1}}}}, "multi": true}}"#,
                1_000_000 + at
            )
        })
        .collect();
    let deletes: Vec<String> =
        (0..2_000).map(|at| format!(r#"{{"q": {{"a": {}}}, "limit": 0}}"#, 1_000_000 + at)).collect();
    let find = |rest: &str| format!(r#"{{"find": "c", {rest}, "batchSize": 1000}}"#);
    let german = r#""collation": {"locale": "de", "strength": 1}"#;
    let schema = r#"{"$jsonSchema": {"properties": {"o": {"items": {"properties": {"t": {"pattern": "(?=(x+)+y)"}}}}, "a": {"uniqueItems": true}}}}"#;
    let commands = [
        ("$slice", find(r#""projection": {"a": {"$slice": [10, 19000]}}"#)),
        (
            "$elemMatch",
            find(r#""projection": {"o": {"$elemMatch": {"b": -1, "t": {"$regex": "(?=(x+)+y)"}}}}"#),
        ),
        ("positional", find(r#""filter": {"o.b": 4999}, "projection": {"o.$": 1}"#)),
        ("inclusion", find(r#""projection": {"o.b": 1, "m.f4999": 1}"#)),
        ("exclusion", find(r#""projection": {"o.b": 0, "m.f4999": 0}"#)),
        ("computed", find(r#""projection": {"x": {"$sortArray": {"input": "$o", "sortBy": {"b": -1}}}}"#)),
        ("sort by arrays", find(r#""sort": {"a": 1}"#)),
        ("sort by paths", find(r#""sort": {"o.b": -1, "m.f1": 1}"#)),
        (
            "sort with a collation",
            format!(
                r#"{{"aggregate": "c", "pipeline": [{{"$project": {{"o": 1}}}}, {{"$unwind": "$o"}}, {{"$sort": {{"o.t": 1, "o.b": 1}}}}], "cursor": {{}}, {german}}}"#
            ),
        ),
        (
            "filter with a collation",
            format!(r#"{{"find": "c", "filter": {{"o.t": {{"$in": [{texts}]}}}}, {german}}}"#),
        ),
        ("long $in", format!(r#"{{"find": "c", "filter": {{"a": {{"$in": [{numbers}]}}}}}}"#)),
        (
            "long $nin",
            format!(
                r#"{{"find": "c", "filter": {{"a": {{"$nin": [{numbers}]}}}}, "projection": {{"_id": 1}}}}"#
            ),
        ),
        ("long $all", format!(r#"{{"find": "c", "filter": {{"a": {{"$all": [{numbers}]}}}}}}"#)),
        ("distinct of arrays", r#"{"distinct": "c", "key": "a"}"#.to_owned()),
        ("distinct of paths", format!(r#"{{"distinct": "c", "key": "o.t", {german}}}"#)),
        ("count by schema", format!(r#"{{"count": "c", "query": {schema}}}"#)),
        (
            "keys of arrays",
            r#"{"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]}"#.to_owned(),
        ),
        (
            "keys of paths",
            r#"{"createIndexes": "c", "indexes": [{"key": {"o.t": 1, "g": -1}, "name": "o"}]}"#.to_owned(),
        ),
        (
            "wildcard keys",
            r#"{"createIndexes": "c", "indexes": [{"key": {"$**": 1}, "name": "w"}]}"#.to_owned(),
        ),
        (
            "hashed keys",
            r#"{"createIndexes": "c", "indexes": [{"key": {"m": "hashed"}, "name": "h"}]}"#.to_owned(),
        ),
        (
            "keys with a collation",
            format!(
                r#"{{"createIndexes": "c", "indexes": [{{"key": {{"o.t": 1}}, "name": "t", {german}}}]}}"#
            ),
        ),
        (
            "partial index",
            format!(
                r#"{{"createIndexes": "c", "indexes": [{{"key": {{"g": 1}}, "name": "p", "partialFilterExpression": {{"a": {{"$in": [{numbers}]}}}}}}]}}"#
            ),
        ),
        ("many inserts", format!(r#"{{"insert": "d", "documents": [{}]}}"#, documents.join(","))),
        (
            "many updates",
            format!(r#"{{"update": "c", "updates": [{}], "ordered": false}}"#, updates.join(",")),
        ),
        (
            "many deletes",
            format!(r#"{{"delete": "c", "deletes": [{}], "ordered": false}}"#, deletes.join(",")),
        ),
        ("validate", r#"{"validate": "c", "full": true}"#.to_owned()),
    ];
    let mut findings = Findings::default();
    for (name, command) in &commands {
        findings.try_to_kill(&engine, name, command);
    }
    findings.done();
    engine.close().unwrap();
}
