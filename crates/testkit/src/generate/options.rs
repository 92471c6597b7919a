//! Every command, every option, every type of value: asked of both servers, one by one.
//!
//! What varies is one place of a command that is otherwise as it should be. Not random: the list is gone through as a whole,
//! or every so-manyth question of it. Where both servers succeed, replies of commands about data are compared too. A
//! difference that is meant to be is a row of [`PERMITTED`], with its reason.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kilim_bson::{Document, RawDocument, RawValue, Value, Writer};
use kilim_client::Client;

use crate::shell::{parse, parse_document, print};

/// Values of every type, and the edges of numbers.
const VALUES: &[&str] = &[
    "null",
    "undefined",
    "MinKey",
    "MaxKey",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "2147483647",
    "-2147483648",
    "Long(0)",
    "Long(1)",
    "Long(-1)",
    "2147483648",
    "Long(\"9223372036854775807\")",
    "Long(\"-9223372036854775808\")",
    "0.0",
    "-0.0",
    "1.0",
    "0.5",
    "1.5",
    "2.5",
    "-0.5",
    "-1.5",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e300",
    "9223372036854775808.0",
    "NumberDecimal(\"0\")",
    "NumberDecimal(\"1\")",
    "NumberDecimal(\"0.5\")",
    "NumberDecimal(\"1.5\")",
    "NumberDecimal(\"-1\")",
    "NumberDecimal(\"NaN\")",
    "NumberDecimal(\"Infinity\")",
    "NumberDecimal(\"-Infinity\")",
    "NumberDecimal(\"1E+6144\")",
    "\"\"",
    "\"a\"",
    "\"a_1\"",
    "\"$a\"",
    "[]",
    "[1]",
    "[\"a\"]",
    "[{}]",
    "{}",
    "{a: 1}",
    "{a: \"x\"}",
    "{$a: 1}",
    "{$eq: 1}",
    "ObjectId(\"507f1f77bcf86cd799439011\")",
    "Date(0)",
    "Timestamp(0, 0)",
    "Timestamp(1, 1)",
    "BinData(0, \"\")",
    "UUID(\"3b241101-e2bb-4255-8caf-4136c566a962\")",
    "/a/",
];

/// A command, and the places in it that vary: `updates.0.q` is the filter of the first of `updates`.
struct Question {
    command: &'static str,
    database: Option<&'static str>,
    /// It changes something: collections are made anew before every question.
    writes: bool,
    /// Whether replies are compared where both succeed.
    compared: bool,
    places: &'static [&'static str],
}

const fn read(command: &'static str, places: &'static [&'static str]) -> Question {
    Question { command, database: None, writes: false, compared: true, places }
}

const fn write(command: &'static str, places: &'static [&'static str]) -> Question {
    Question { command, database: None, writes: true, compared: true, places }
}

/// A command whose reply tells of the server, so that only codes are compared.
const fn about(command: &'static str, places: &'static [&'static str]) -> Question {
    Question { command, database: None, writes: false, compared: false, places }
}

const fn admin(command: &'static str, places: &'static [&'static str]) -> Question {
    Question { command, database: Some("admin"), writes: false, compared: false, places }
}

const QUESTIONS: &[Question] = &[
    read(
        "{find: \"c\", sort: {_id: 1}}",
        &[
            "find",
            "filter",
            "sort",
            "projection",
            "hint",
            "skip",
            "limit",
            "batchSize",
            "singleBatch",
            "comment",
            "maxTimeMS",
            "max",
            "min",
            "returnKey",
            "showRecordId",
            "tailable",
            "awaitData",
            "noCursorTimeout",
            "allowPartialResults",
            "oplogReplay",
            "collation",
            "allowDiskUse",
            "let",
            "readConcern",
            "lsid",
            "txnNumber",
            "$readPreference",
            "nothing",
        ],
    ),
    read("{find: \"c\", min: {a: 1}, hint: {a: 1}}", &["min", "max", "hint", "returnKey"]),
    read(
        "{count: \"c\"}",
        &["count", "query", "limit", "skip", "hint", "collation", "comment", "readConcern", "fields"],
    ),
    read("{distinct: \"c\", key: \"a\"}", &["distinct", "key", "query", "collation", "comment", "hint"]),
    read(
        "{aggregate: \"c\", pipeline: [{$sort: {_id: 1}}], cursor: {}}",
        &[
            "aggregate",
            "pipeline",
            "cursor",
            "cursor.batchSize",
            "explain",
            "allowDiskUse",
            "maxTimeMS",
            "bypassDocumentValidation",
            "collation",
            "hint",
            "comment",
            "let",
            "readConcern",
            "pipeline.0.$sort",
        ],
    ),
    read("{aggregate: \"c\", pipeline: [{$limit: 1}], cursor: {}}", &["pipeline.0.$limit", "pipeline.0"]),
    read("{aggregate: \"c\", pipeline: [{$skip: 1}], cursor: {}}", &["pipeline.0.$skip"]),
    read("{aggregate: \"c\", pipeline: [{$count: \"n\"}], cursor: {}}", &["pipeline.0.$count"]),
    read(
        "{aggregate: \"c\", pipeline: [{$match: {}}], cursor: {}}",
        &["pipeline.0.$match", "pipeline.0.$match.a"],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$project: {a: 1}}], cursor: {}}",
        &["pipeline.0.$project", "pipeline.0.$project.a"],
    ),
    read("{aggregate: \"c\", pipeline: [{$addFields: {z: 1}}], cursor: {}}", &["pipeline.0.$addFields"]),
    read("{aggregate: \"c\", pipeline: [{$unset: \"a\"}], cursor: {}}", &["pipeline.0.$unset"]),
    read(
        "{aggregate: \"c\", pipeline: [{$group: {_id: 1}}], cursor: {}}",
        &["pipeline.0.$group", "pipeline.0.$group.x"],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$sample: {size: 100}}, {$sort: {_id: 1}}], cursor: {}}",
        &["pipeline.0.$sample", "pipeline.0.$sample.size"],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$unwind: {path: \"$l\"}}], cursor: {}}",
        &[
            "pipeline.0.$unwind",
            "pipeline.0.$unwind.path",
            "pipeline.0.$unwind.includeArrayIndex",
            "pipeline.0.$unwind.preserveNullAndEmptyArrays",
        ],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$lookup: {from: \"c\", localField: \"a\", foreignField: \"a\", as: \"x\"}}], cursor: {}}",
        &[
            "pipeline.0.$lookup",
            "pipeline.0.$lookup.from",
            "pipeline.0.$lookup.localField",
            "pipeline.0.$lookup.foreignField",
            "pipeline.0.$lookup.as",
            "pipeline.0.$lookup.let",
            "pipeline.0.$lookup.pipeline",
        ],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$graphLookup: {from: \"c\", startWith: \"$a\", connectFromField: \"a\", connectToField: \"_id\", as: \"x\"}}, {$project: {n: {$size: \"$x\"}}}], cursor: {}}",
        &[
            "pipeline.0.$graphLookup",
            "pipeline.0.$graphLookup.from",
            "pipeline.0.$graphLookup.startWith",
            "pipeline.0.$graphLookup.connectFromField",
            "pipeline.0.$graphLookup.connectToField",
            "pipeline.0.$graphLookup.as",
            "pipeline.0.$graphLookup.maxDepth",
            "pipeline.0.$graphLookup.depthField",
            "pipeline.0.$graphLookup.restrictSearchWithMatch",
        ],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$bucket: {groupBy: \"$a\", boundaries: [0, 5, 100], default: \"x\"}}], cursor: {}}",
        &[
            "pipeline.0.$bucket",
            "pipeline.0.$bucket.groupBy",
            "pipeline.0.$bucket.boundaries",
            "pipeline.0.$bucket.default",
            "pipeline.0.$bucket.output",
        ],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$bucketAuto: {groupBy: \"$a\", buckets: 2}}], cursor: {}}",
        &[
            "pipeline.0.$bucketAuto",
            "pipeline.0.$bucketAuto.buckets",
            "pipeline.0.$bucketAuto.granularity",
            "pipeline.0.$bucketAuto.output",
        ],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$facet: {x: []}}], cursor: {}}",
        &["pipeline.0.$facet", "pipeline.0.$facet.x"],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$sortByCount: \"$a\"}, {$sort: {_id: 1}}], cursor: {}}",
        &["pipeline.0.$sortByCount"],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$replaceRoot: {newRoot: {x: 1}}}], cursor: {}}",
        &["pipeline.0.$replaceRoot", "pipeline.0.$replaceRoot.newRoot"],
    ),
    read("{aggregate: \"c\", pipeline: [{$redact: \"$$KEEP\"}], cursor: {}}", &["pipeline.0.$redact"]),
    read(
        "{aggregate: \"c\", pipeline: [{$unionWith: {coll: \"d\"}}], cursor: {}}",
        &["pipeline.0.$unionWith", "pipeline.0.$unionWith.coll", "pipeline.0.$unionWith.pipeline"],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$setWindowFields: {sortBy: {_id: 1}, output: {z: {$sum: \"$a\", window: {documents: [-1, 0]}}}}}], cursor: {}}",
        &[
            "pipeline.0.$setWindowFields",
            "pipeline.0.$setWindowFields.partitionBy",
            "pipeline.0.$setWindowFields.sortBy",
            "pipeline.0.$setWindowFields.output",
            "pipeline.0.$setWindowFields.output.z",
            "pipeline.0.$setWindowFields.output.z.window",
            "pipeline.0.$setWindowFields.output.z.window.documents",
            "pipeline.0.$setWindowFields.output.z.window.documents.0",
            "pipeline.0.$setWindowFields.output.z.window.unit",
        ],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$densify: {field: \"a\", range: {step: 1, bounds: \"full\"}}}], cursor: {}}",
        &[
            "pipeline.0.$densify",
            "pipeline.0.$densify.field",
            "pipeline.0.$densify.partitionByFields",
            "pipeline.0.$densify.range",
            "pipeline.0.$densify.range.step",
            "pipeline.0.$densify.range.bounds",
            "pipeline.0.$densify.range.unit",
        ],
    ),
    read(
        "{aggregate: \"c\", pipeline: [{$fill: {sortBy: {_id: 1}, output: {z: {value: 1}}}}], cursor: {}}",
        &[
            "pipeline.0.$fill",
            "pipeline.0.$fill.sortBy",
            "pipeline.0.$fill.partitionBy",
            "pipeline.0.$fill.partitionByFields",
            "pipeline.0.$fill.output",
            "pipeline.0.$fill.output.z",
            "pipeline.0.$fill.output.z.method",
        ],
    ),
    write(
        "{aggregate: \"c\", pipeline: [{$out: \"o\"}], cursor: {}}",
        &["pipeline.0.$out", "pipeline.0.$out.db", "pipeline.0.$out.coll"],
    ),
    write(
        "{aggregate: \"c\", pipeline: [{$merge: {into: \"d\"}}], cursor: {}}",
        &[
            "pipeline.0.$merge",
            "pipeline.0.$merge.into",
            "pipeline.0.$merge.on",
            "pipeline.0.$merge.let",
            "pipeline.0.$merge.whenMatched",
            "pipeline.0.$merge.whenNotMatched",
        ],
    ),
    write(
        "{insert: \"c\", documents: [{_id: 90}]}",
        &[
            "insert",
            "documents",
            "documents.0",
            "documents.0._id",
            "ordered",
            "bypassDocumentValidation",
            "writeConcern",
            "writeConcern.w",
            "writeConcern.j",
            "writeConcern.wtimeout",
            "writeConcern.fsync",
            "comment",
            "maxTimeMS",
            "stmtId",
            "stmtIds",
            "nothing",
        ],
    ),
    write(
        "{update: \"c\", updates: [{q: {_id: 1}, u: {$set: {z: 1}}}]}",
        &[
            "update",
            "updates",
            "updates.0",
            "updates.0.q",
            "updates.0.u",
            "updates.0.multi",
            "updates.0.upsert",
            "updates.0.collation",
            "updates.0.arrayFilters",
            "updates.0.hint",
            "updates.0.c",
            "updates.0.nothing",
            "ordered",
            "let",
            "updates.0.u.$set",
            "updates.0.u.$inc",
            "updates.0.u.$push",
            "updates.0.u.$unset",
            "updates.0.u.$rename",
            "updates.0.u.$currentDate",
            "updates.0.u.$bit",
            "updates.0.u.$pop",
            "updates.0.u.$mul",
            "updates.0.u.$nothing",
        ],
    ),
    write(
        "{update: \"c\", updates: [{q: {_id: 1}, u: {$push: {l: {$each: [7]}}}}]}",
        &[
            "updates.0.u.$push.l.$each",
            "updates.0.u.$push.l.$slice",
            "updates.0.u.$push.l.$position",
            "updates.0.u.$push.l.$sort",
        ],
    ),
    write("{update: \"c\", updates: [{q: {_id: 1}, u: {$inc: {a: 1}}}]}", &["updates.0.u.$inc.a"]),
    write("{update: \"c\", updates: [{q: {_id: 1}, u: {$mul: {a: 2}}}]}", &["updates.0.u.$mul.a"]),
    write(
        "{update: \"c\", updates: [{q: {_id: 1}, u: {$bit: {a: {and: 1}}}}]}",
        &["updates.0.u.$bit.a", "updates.0.u.$bit.a.and"],
    ),
    write("{update: \"c\", updates: [{q: {_id: 1}, u: {$pop: {l: 1}}}]}", &["updates.0.u.$pop.l"]),
    write(
        "{update: \"c\", updates: [{q: {_id: 1}, u: {$currentDate: {d: true}}}]}",
        &["updates.0.u.$currentDate.d", "updates.0.u.$currentDate.d.$type"],
    ),
    write(
        "{delete: \"c\", deletes: [{q: {_id: 1}, limit: 1}]}",
        &[
            "delete",
            "deletes",
            "deletes.0",
            "deletes.0.q",
            "deletes.0.limit",
            "deletes.0.collation",
            "deletes.0.hint",
            "ordered",
            "let",
        ],
    ),
    write(
        "{findAndModify: \"c\", query: {_id: 1}, update: {$set: {z: 1}}}",
        &[
            "findAndModify",
            "query",
            "sort",
            "update",
            "remove",
            "new",
            "fields",
            "upsert",
            "bypassDocumentValidation",
            "maxTimeMS",
            "collation",
            "arrayFilters",
            "hint",
            "comment",
            "let",
            "nothing",
        ],
    ),
    write(
        "{create: \"n\"}",
        &[
            "create",
            "capped",
            "autoIndexId",
            "size",
            "max",
            "validator",
            "validationLevel",
            "validationAction",
            "viewOn",
            "pipeline",
            "collation",
            "idIndex",
            "expireAfterSeconds",
            "comment",
            "nothing",
            "clusteredIndex",
            "changeStreamPreAndPostImages",
            "temp",
            "flags",
        ],
    ),
    write("{create: \"n\", capped: true, size: 4096}", &["size", "max", "capped"]),
    write(
        "{create: \"n\", clusteredIndex: {key: {_id: 1}, unique: true}}",
        &[
            "clusteredIndex.key",
            "clusteredIndex.unique",
            "clusteredIndex.name",
            "clusteredIndex.v",
            "expireAfterSeconds",
        ],
    ),
    write("{create: \"n\", viewOn: \"c\", pipeline: []}", &["viewOn", "pipeline", "collation"]),
    write(
        "{createIndexes: \"c\", indexes: [{key: {z: 1}, name: \"z\"}]}",
        &[
            "createIndexes",
            "indexes",
            "indexes.0",
            "indexes.0.key",
            "indexes.0.key.z",
            "indexes.0.name",
            "indexes.0.unique",
            "indexes.0.sparse",
            "indexes.0.background",
            "indexes.0.partialFilterExpression",
            "indexes.0.expireAfterSeconds",
            "indexes.0.hidden",
            "indexes.0.collation",
            "indexes.0.v",
            "indexes.0.wildcardProjection",
            "indexes.0.prepareUnique",
            "indexes.0.nothing",
            "indexes.0.storageEngine",
            "commitQuorum",
            "ignoreUnknownIndexOptions",
        ],
    ),
    write(
        "{createIndexes: \"c\", indexes: [{key: {s: \"text\"}, name: \"t\"}]}",
        &[
            "indexes.0.weights",
            "indexes.0.weights.s",
            "indexes.0.default_language",
            "indexes.0.language_override",
            "indexes.0.textIndexVersion",
        ],
    ),
    write(
        "{createIndexes: \"c\", indexes: [{key: {p: \"2dsphere\"}, name: \"p\"}]}",
        &["indexes.0.2dsphereIndexVersion", "indexes.0.sparse", "indexes.0.unique"],
    ),
    write(
        "{createIndexes: \"c\", indexes: [{key: {p: \"2d\"}, name: \"p\"}]}",
        &["indexes.0.bits", "indexes.0.min", "indexes.0.max"],
    ),
    write("{dropIndexes: \"c\", index: \"a_1\"}", &["dropIndexes", "index", "comment", "nothing"]),
    write(
        "{collMod: \"c\"}",
        &[
            "collMod",
            "index",
            "validator",
            "validationLevel",
            "validationAction",
            "viewOn",
            "pipeline",
            "expireAfterSeconds",
            "changeStreamPreAndPostImages",
            "cappedSize",
            "cappedMax",
            "nothing",
        ],
    ),
    write(
        "{collMod: \"c\", index: {name: \"a_1\", hidden: true}}",
        &[
            "index.name",
            "index.keyPattern",
            "index.hidden",
            "index.expireAfterSeconds",
            "index.unique",
            "index.prepareUnique",
            "index.nothing",
        ],
    ),
    write("{drop: \"c\"}", &["drop", "collectionUUID", "comment", "nothing"]),
    write("{dropDatabase: 1}", &["dropDatabase", "comment", "nothing"]),
    write("{convertToCapped: \"c\", size: 10000}", &["convertToCapped", "size"]),
    write(
        "{cloneCollectionAsCapped: \"c\", toCollection: \"k\", size: 10000}",
        &["cloneCollectionAsCapped", "toCollection", "size"],
    ),
    about(
        "{listCollections: 1}",
        &["filter", "nameOnly", "cursor", "cursor.batchSize", "authorizedCollections", "comment", "nothing"],
    ),
    about("{listIndexes: \"c\"}", &["listIndexes", "cursor", "cursor.batchSize", "comment", "nothing"]),
    about("{collStats: \"c\"}", &["collStats", "scale"]),
    about("{dbStats: 1}", &["scale", "freeStorage"]),
    about("{validate: \"c\"}", &["validate", "full"]),
    about("{explain: {find: \"c\"}}", &["explain", "verbosity", "explain.filter", "explain.find"]),
    about("{getMore: Long(1), collection: \"c\"}", &["getMore", "collection", "batchSize", "maxTimeMS"]),
    about("{killCursors: \"c\", cursors: [Long(1)]}", &["killCursors", "cursors", "cursors.0"]),
    about("{endSessions: []}", &["endSessions"]),
    about("{refreshSessions: []}", &["refreshSessions"]),
    about(
        "{killSessions: [{id: UUID(\"3b241101-e2bb-4255-8caf-4136c566a962\")}]}",
        &["killSessions", "killSessions.0", "killSessions.0.id"],
    ),
    about("{planCacheClear: \"c\"}", &["planCacheClear", "query", "sort", "projection", "collation"]),
    about("{planCacheListFilters: \"c\"}", &["planCacheListFilters"]),
    about("{planCacheClearFilters: \"c\"}", &["planCacheClearFilters", "query"]),
    about(
        "{planCacheSetFilter: \"c\", query: {q: 1}, indexes: [\"a_1\"]}",
        &["planCacheSetFilter", "query", "sort", "projection", "collation", "indexes", "indexes.0"],
    ),
    about("{filemd5: 1, root: \"fs\"}", &["filemd5", "root"]),
    about(
        "{setIndexCommitQuorum: \"c\", indexNames: [\"a_1\"], commitQuorum: 1}",
        &["setIndexCommitQuorum", "indexNames", "commitQuorum"],
    ),
    about(
        "{validateDBMetadata: 1, apiParameters: {version: \"1\"}}",
        &["db", "collection", "apiParameters", "apiParameters.version", "apiParameters.strict", "nothing"],
    ),
    about("{connectionStatus: 1}", &["showPrivileges"]),
    about(
        "{ping: 1}",
        &[
            "ping",
            "comment",
            "apiVersion",
            "apiStrict",
            "apiDeprecationErrors",
            "lsid",
            "lsid.id",
            "$clusterTime",
            "maxTimeMS",
        ],
    ),
    about("{hello: 1}", &["hello", "saslSupportedMechs", "comment"]),
    about("{dataSize: \"<db>.c\"}", &["dataSize", "keyPattern", "min", "max", "estimate"]),
    admin(
        "{listDatabases: 1}",
        &["listDatabases", "filter", "nameOnly", "authorizedDatabases", "comment", "nothing"],
    ),
    Question {
        command: "{renameCollection: \"<db>.c\", to: \"<db>.r\"}",
        database: Some("admin"),
        writes: true,
        compared: false,
        places: &["renameCollection", "to", "dropTarget", "nothing"],
    },
    admin(
        "{getParameter: 1, quiet: 1}",
        &["getParameter", "getParameter.showDetails", "getParameter.allParameters", "quiet"],
    ),
    admin("{getDefaultRWConcern: 1}", &["getDefaultRWConcern", "inMemory", "nothing"]),
    admin("{logRotate: 1}", &["nothing", "comment"]),
    admin("{killOp: 1, op: 1234567}", &["op"]),
    admin("{top: 1}", &["top"]),
    admin("{serverStatus: 1}", &["serverStatus", "metrics", "nothing"]),
    admin("{hostInfo: 1}", &["hostInfo"]),
    admin("{getLog: \"global\"}", &["getLog"]),
    admin("{currentOp: 1}", &["currentOp", "$all", "$ownOps"]),
    admin(
        "{aggregate: 1, pipeline: [{$currentOp: {}}], cursor: {}}",
        &[
            "pipeline.0.$currentOp",
            "pipeline.0.$currentOp.allUsers",
            "pipeline.0.$currentOp.idleConnections",
            "pipeline.0.$currentOp.idleSessions",
            "pipeline.0.$currentOp.idleCursors",
            "pipeline.0.$currentOp.localOps",
            "pipeline.0.$currentOp.backtrace",
            "pipeline.0.$currentOp.nothing",
        ],
    ),
    admin(
        "{aggregate: 1, pipeline: [{$listLocalSessions: {}}], cursor: {}}",
        &[
            "pipeline.0.$listLocalSessions",
            "pipeline.0.$listLocalSessions.users",
            "pipeline.0.$listLocalSessions.allUsers",
        ],
    ),
    admin("{setUserWriteBlockMode: 1, global: false}", &["nothing"]),
    admin("{lockInfo: 1}", &["lockInfo", "nothing"]),
    admin(
        "{killAllSessionsByPattern: [{uid: BinData(0, \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\")}]}",
        &[
            "killAllSessionsByPattern.0.uid",
            "killAllSessionsByPattern.0.lsid",
            "killAllSessionsByPattern.0.users",
            "killAllSessionsByPattern.0.nothing",
        ],
    ),
];

/// Differences that are meant to be: the command, the place, and why.
const PERMITTED: &[(&str, &str, &str)] = &[
    ("delete", "deletes.0.limit", "a limit that is no number is refused"),
    ("aggregate", "pipeline.0.$sample.size", "a sample is another one each time"),
    ("insert", "maxTimeMS", "a time of a millisecond is over or not"),
    ("update", "maxTimeMS", "a time of a millisecond is over or not"),
    ("find", "maxTimeMS", "a time of a millisecond is over or not"),
    ("aggregate", "maxTimeMS", "a time of a millisecond is over or not"),
    ("insert", "writeConcern.w", "nobody reads the answer to an unacknowledged write"),
    ("collMod", "index.expireAfterSeconds", "NaN means never in collMod, too"),
    ("createIndexes", "indexes.0.storageEngine", "options that Kilim has not are refused by name"),
    ("createIndexes", "commitQuorum", "a quorum is shown as it was given"),
    ("dataSize", "keyPattern", "options that Kilim has not are refused by name"),
    ("dataSize", "min", "options that Kilim has not are refused by name"),
    ("dataSize", "max", "options that Kilim has not are refused by name"),
    ("dataSize", "estimate", "an option of a wrong type is refused"),
    ("distinct", "hint", "distinct takes a hint, as from MongoDB 7.1 on"),
    ("distinct", "distinct", "a collection is named by a text"),
    ("distinct", "key", "a name with a dollar finds nothing"),
    ("dbStats", "scale", "a large scale is a scale"),
    ("findAndModify", "sort", "a sort is looked at also where one document is named"),
    ("aggregate", "pipeline.0.$fill.sortBy", "a sort is looked at also where it is not needed"),
    ("aggregate", "pipeline.0.$setWindowFields.sortBy", "a window of documents needs an order"),
    ("aggregate", "pipeline.0.$setWindowFields.output", "a name with a dollar is refused as a name"),
    ("aggregate", "aggregate", "a collection is named by a text"),
    ("count", "count", "a collection is named by a text"),
    ("find", "find", "a collection is named by a text"),
    ("listIndexes", "listIndexes", "a collection is named by a text"),
    ("aggregate", "explain", "explain shows hashes and sizes of Kilim's own"),
    (
        "aggregate",
        "pipeline.0.$setWindowFields.output.z.window.documents.0",
        "mongod counts places in 32 bits, and wraps around",
    ),
    ("create", "autoIndexId", "an option of old says nothing of itself"),
    ("collMod", "viewOn", "a collection is no view"),
    ("createIndexes", "indexes.0.v", "a version that is none"),
    ("createIndexes", "indexes.0.2dsphereIndexVersion", "a version that is none"),
    ("createIndexes", "indexes.0.weights", "weights are a document"),
    ("killAllSessionsByPattern", "killAllSessionsByPattern.0.lsid", "of several faults either may be named"),
    ("drop", "collectionUUID", "options that Kilim has not are refused by name"),
    ("filemd5", "filemd5", "an _id with operators finds no file"),
];

/// Differences of whole kinds, and why they are meant to be.
fn is_meant(text: &str, mongod: &str, kilim: &str) -> Option<&'static str> {
    let failed = |answer: &str| answer.starts_with(|first: char| first.is_ascii_digit() || first == '-');
    match (mongod, kilim) {
        ("an error without a code", kilim) if failed(kilim) => {
            Some("errors that MongoDB gives no code have one")
        }
        _ if text == "undefined" => Some("undefined stands for null in an option"),
        _ if text == "null" => Some("null stands for no option"),
        (_, kilim) if text.starts_with('[') && failed(kilim) => Some("an array is no document"),
        _ => None,
    }
}

/// What came of it.
#[derive(Default)]
pub struct Comparison {
    pub questions: usize,
    /// By command, place and the two answers: the values that were answered so.
    pub differences: BTreeMap<(String, String, String, String), Vec<String>>,
    pub permitted: BTreeMap<&'static str, usize>,
}

/// Asks every `step`th question from `first` on.
pub fn compare(
    mongod: &str,
    kilim: &str,
    first: usize,
    step: usize,
    only: Option<&str>,
) -> Result<Comparison> {
    let mut servers = [Server::connect(mongod)?, Server::connect(kilim)?];
    let mut comparison = Comparison::default();
    let mut number = 0;
    for question in QUESTIONS {
        let base = parse_document(question.command).context(question.command)?;
        let name = base.iter().next().map(|(name, _)| name.to_owned()).unwrap_or_default();
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let mut fresh = false;
        for place in question.places {
            for text in VALUES {
                number += 1;
                if number % step != first % step {
                    continue;
                }
                let value = parse(text).context(*text)?;
                let path: Vec<&str> = place.split('.').collect();
                let Value::Document(command) = with(RawValue::Document(base.as_raw()), &path, &value) else {
                    continue;
                };
                let mut answers = Vec::new();
                for server in &mut servers {
                    if question.writes || !fresh {
                        server.begin_anew()?;
                    }
                    answers.push(server.ask(question, &command)?);
                }
                fresh = true;
                comparison.questions += 1;
                if answers[0] == answers[1] {
                    continue;
                }
                let listed = |(command, at, _): &&(&str, &str, &str)| *command == name && at == place;
                let listed = PERMITTED.iter().find(listed).map(|(_, _, reason)| *reason);
                if let Some(reason) = listed.or_else(|| is_meant(text, &answers[0], &answers[1])) {
                    *comparison.permitted.entry(reason).or_default() += 1;
                    continue;
                }
                let [mongod, kilim] = [answers[0].clone(), answers[1].clone()];
                let key = (print(RawValue::Document(base.as_raw())), (*place).to_owned(), mongod, kilim);
                comparison.differences.entry(key).or_default().push((*text).to_owned());
            }
        }
    }
    for server in &mut servers {
        server.end();
    }
    Ok(comparison)
}

/// The value with another one in some place, which is made where it is missing.
fn with(value: RawValue<'_>, path: &[&str], replacement: &Value) -> Value {
    let [name, rest @ ..] = path else { return replacement.clone() };
    let inner = |found: Option<RawValue<'_>>| {
        let empty = RawValue::Document(RawDocument::empty());
        with(found.unwrap_or(empty), rest, replacement)
    };
    match value {
        RawValue::Array(array) => {
            let position: usize = name.parse().unwrap_or_default();
            let elements = array.iter().enumerate().map(|(at, element)| match at == position {
                true => inner(Some(element)),
                false => element.to_value(),
            });
            Value::Array(elements.collect())
        }
        RawValue::Document(document) => {
            let mut writer = Writer::new();
            for (field, value) in document.iter() {
                match field == *name {
                    true => writer.append(field, inner(Some(value)).as_raw()),
                    false => writer.append(field, value),
                }
            }
            if document.get(name).is_none() {
                writer.append(name, inner(None).as_raw());
            }
            Value::Document(writer.finish())
        }
        other => other.to_value(),
    }
}

struct Server {
    client: Client,
    address: String,
    database: String,
}

impl Server {
    fn connect(address: &str) -> Result<Server> {
        let client = Client::connect(address)?;
        Ok(Server {
            client,
            address: address.to_owned(),
            database: format!("options_{}", std::process::id()),
        })
    }

    /// The collections as they are at the beginning.
    fn begin_anew(&mut self) -> Result<()> {
        for command in [
            "{drop: \"a\"}",
            "{drop: \"a_1\"}",
            "{drop: \"n\"}",
            "{drop: \"o\"}",
            "{drop: \"k\"}",
            "{drop: \"r\"}",
            "{drop: \"c\"}",
            "{drop: \"d\"}",
            "{insert: \"c\", documents: [{_id: 1, a: 1, s: \"x\", l: [1, 2, 3]}, {_id: 2, a: 5, s: \"y\", l: []}, {_id: 3, a: 9}]}",
            "{insert: \"d\", documents: [{_id: 1, b: 1}]}",
            "{createIndexes: \"c\", indexes: [{key: {a: 1}, name: \"a_1\"}]}",
        ] {
            let command = parse_document(command)?;
            let database = self.database.clone();
            self.reply(&database, &command)?;
        }
        Ok(())
    }

    fn reply(&mut self, database: &str, command: &Document) -> Result<Document> {
        match self.client.reply(database, command.as_raw()) {
            Ok(reply) => Ok(reply),
            Err(_) => {
                // Some questions are answered by closing the connection.
                self.client = Client::connect(&self.address)?;
                Ok(kilim_bson::doc! {"ok": 0, "code": -1, "codeName": "closed the connection"})
            }
        }
    }

    /// A code, or what else the answer says.
    fn ask(&mut self, question: &Question, command: &Document) -> Result<String> {
        let named = with_database(command, &self.database);
        let database = question.database.map_or_else(|| self.database.clone(), str::to_owned);
        let reply = self.reply(&database, &named)?;
        let text = |name: &str| reply.get(name).map(print);
        if let Some(code) = text("code") {
            return Ok(format!("{code} {}", text("codeName").unwrap_or_default()));
        }
        if text("errmsg").is_some() {
            return Ok("an error without a code".to_owned());
        }
        if let Some(RawValue::Array(errors)) = reply.get("writeErrors") {
            let first = errors.get(0).and_then(RawValue::as_document);
            let code = first.and_then(|error| error.get("code")).map(print).unwrap_or_default();
            return Ok(format!("write error {code}"));
        }
        if !question.compared {
            return Ok("ok".to_owned());
        }
        let mut fields: Vec<String> = reply
            .iter()
            .filter(|(name, _)| !matches!(*name, "$clusterTime" | "operationTime" | "electionId" | "opTime"))
            .map(|(name, value)| match (name, value.as_document()) {
                ("cursor", Some(cursor)) => cursor_text(cursor),
                _ => format!("{name}: {}", print(value).replace(&self.database, "<db>")),
            })
            .collect();
        fields.sort();
        Ok(fields.join(", "))
    }

    fn end(&mut self) {
        let database = self.database.clone();
        // Nobody needs it any more, so it does not matter whether it goes.
        let _ = self.reply(&database, &kilim_bson::doc! {"dropDatabase": 1});
    }
}

/// Documents of a cursor. Its id is one of many.
fn cursor_text(cursor: RawDocument<'_>) -> String {
    let open = !matches!(cursor.get("id"), Some(RawValue::Int64(0)));
    let batch = cursor.get("firstBatch").map(print).unwrap_or_default();
    format!("cursor: {{open: {open}, firstBatch: {batch}}}")
}

fn with_database(command: &Document, database: &str) -> Document {
    let mut writer = Writer::new();
    for (name, value) in command.iter() {
        match value {
            RawValue::String(text) if text.contains("<db>") => {
                writer.append(name, RawValue::String(&text.replace("<db>", database)));
            }
            value => writer.append(name, value),
        }
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_value_can_be_read() {
        for question in QUESTIONS {
            parse_document(question.command).unwrap();
        }
        for value in VALUES {
            parse(value).unwrap();
        }
    }

    #[test]
    fn a_value_takes_the_place_that_is_named() {
        let base = parse_document("{update: \"c\", updates: [{q: {}}]}").unwrap();
        let changed = with(RawValue::Document(base.as_raw()), &["updates", "0", "multi"], &Value::Int32(7));
        assert_eq!(print(changed.as_raw()), "{update: \"c\", updates: [{q: {}, multi: 7}]}");
    }
}
