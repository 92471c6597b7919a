//! Every operator, variable and command of MongoDB 7.0's manual, with its proof: how many cases of the specs use it.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Result, ensure};
use kilim_testkit::spec::SpecFile;

/// Operators of one kind: what they are called, the areas of specs that prove them, and their names.
struct Kind {
    name: &'static str,
    areas: &'static [&'static str],
    operators: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        name: "Query",
        areas: &["filter", "text", "geo", "sort", "index", "command", "collation", "update"],
        operators: "$eq $gt $gte $in $lt $lte $ne $nin $and $not $nor $or $exists $type $expr $jsonSchema $mod $regex \
            $text $where $geoIntersects $geoWithin $near $nearSphere $box $center $centerSphere $geometry $maxDistance \
            $minDistance $polygon $all $elemMatch $size $bitsAllClear $bitsAllSet $bitsAnyClear $bitsAnySet $comment \
            $natural $sampleRate $rand",
    },
    Kind { name: "Projection", areas: &["projection", "text"], operators: "$ $elemMatch $meta $slice" },
    Kind {
        name: "Update",
        areas: &["update"],
        operators: "$currentDate $inc $min $max $mul $rename $set $setOnInsert $unset $ $[] $[ $addToSet $pop $pull $push \
            $pullAll $each $position $slice $sort $bit",
    },
    Kind {
        name: "Stage",
        areas: &["stage", "window", "geo", "collation", "command", "index", "text"],
        operators: "$addFields $bucket $bucketAuto $changeStream $changeStreamSplitLargeEvent $collStats $count $currentOp \
            $densify $documents $facet $fill $geoNear $graphLookup $group $indexStats $limit $listLocalSessions \
            $listSampledQueries $listSearchIndexes $listSessions $lookup $match $merge $out $planCacheStats $project \
            $redact $replaceRoot $replaceWith $sample $search $searchMeta $set $setWindowFields $shardedDataDistribution \
            $skip $sort $sortByCount $unionWith $unset $unwind $vectorSearch",
    },
    Kind {
        name: "Accumulator",
        areas: &["accumulator", "stage"],
        operators: "$accumulator $addToSet $avg $bottom $bottomN $count $first $firstN $last $lastN $max $maxN $median \
            $mergeObjects $min $minN $percentile $push $stdDevPop $stdDevSamp $sum $top $topN",
    },
    Kind {
        name: "Window",
        areas: &["window"],
        operators: "$addToSet $avg $bottom $bottomN $count $covariancePop $covarianceSamp $denseRank $derivative \
            $documentNumber $expMovingAvg $first $firstN $integral $last $lastN $linearFill $locf $max $maxN $median $min \
            $minN $percentile $push $rank $shift $stdDevPop $stdDevSamp $sum $top $topN",
    },
    Kind {
        name: "Expression",
        areas: &["expression", "stage", "text", "collation"],
        operators: "$abs $acos $acosh $add $allElementsTrue $and $anyElementTrue $arrayElemAt $arrayToObject $asin $asinh \
            $atan $atan2 $atanh $avg $binarySize $bitAnd $bitNot $bitOr $bitXor $bsonSize $ceil $cmp $concat \
            $concatArrays $cond $convert $cos $cosh $dateAdd $dateDiff $dateFromParts $dateFromString $dateSubtract \
            $dateToParts $dateToString $dateTrunc $dayOfMonth $dayOfWeek $dayOfYear $degreesToRadians $divide $eq $exp \
            $filter $first $firstN $floor $function $getField $gt $gte $hour $ifNull $in $indexOfArray $indexOfBytes \
            $indexOfCP $isArray $isNumber $isoDayOfWeek $isoWeek $isoWeekYear $last $lastN $let $literal $ln $log $log10 \
            $lt $lte $ltrim $map $max $maxN $median $mergeObjects $meta $millisecond $min $minN $minute $mod $month \
            $multiply $ne $not $objectToArray $or $percentile $pow $radiansToDegrees $rand $range $reduce $regexFind \
            $regexFindAll $regexMatch $replaceAll $replaceOne $reverseArray $round $rtrim $second \
            $setDifference $setEquals $setField $setIntersection $setIsSubset $setUnion $sin $sinh $size $slice \
            $sortArray $split $sqrt $stdDevPop $stdDevSamp $strLenBytes $strLenCP $strcasecmp $substr $substrBytes \
            $substrCP $subtract $sum $switch $tan $tanh $toBool $toDate $toDecimal $toDouble $toHashedIndexKey $toInt \
            $toLong $toLower $toObjectId $toString $toUpper $trim $trunc $tsIncrement $tsSecond $type $unsetField $week $year $zip",
    },
    Kind {
        name: "Variable",
        areas: &["expression", "stage", "command", "update", "accumulator"],
        operators: "$$NOW $$CLUSTER_TIME $$ROOT $$CURRENT $$REMOVE $$DESCEND $$PRUNE $$KEEP $$USER_ROLES $$SEARCH_META",
    },
    Kind {
        name: COMMAND,
        areas: &[
            "command",
            "stage",
            "index",
            "collection",
            "update",
            "filter",
            "collation",
            "validation",
            "expression",
            "projection",
            "timeseries",
            "text",
            "geo",
            "pattern",
            "sort",
        ],
        operators: "aggregate count distinct mapReduce delete find findAndModify getMore insert update planCacheClear \
            planCacheClearFilters planCacheListFilters planCacheSetFilter authenticate getnonce logout createUser \
            dropAllUsersFromDatabase dropUser grantRolesToUser revokeRolesFromUser updateUser usersInfo createRole \
            dropAllRolesFromDatabase dropRole grantPrivilegesToRole grantRolesToRole invalidateUserCache \
            revokePrivilegesFromRole revokeRolesFromRole rolesInfo updateRole applyOps hello replSetAbortPrimaryCatchUp \
            replSetFreeze replSetGetConfig replSetGetStatus replSetInitiate replSetMaintenance replSetReconfig \
            replSetResizeOplog replSetStepDown replSetSyncFrom abortTransaction commitTransaction endSessions \
            killAllSessions killAllSessionsByPattern killSessions refreshSessions startSession cloneCollectionAsCapped \
            collMod compact compactStructuredEncryptionData convertToCapped create createIndexes currentOp drop \
            dropConnections dropDatabase dropIndexes filemd5 fsync fsyncUnlock getAuditConfig getClusterParameter \
            getDefaultRWConcern getParameter killCursors killOp listCollections listDatabases listIndexes logRotate \
            reIndex renameCollection rotateCertificates setAuditConfig setClusterParameter setDefaultRWConcern \
            setFeatureCompatibilityVersion setIndexCommitQuorum setParameter setUserWriteBlockMode shutdown \
            availableQueryOptions buildInfo collStats connPoolStats connectionStatus dataSize dbHash dbStats \
            driverOIDTest explain features getCmdLineOpts getLog hostInfo listCommands lockInfo logApplicationMessage \
            ping profile serverStatus top validate validateDBMetadata whatsmyuri createSearchIndexes dropSearchIndex \
            updateSearchIndex abortReshardCollection addShard addShardToZone analyzeShardKey balancerCollectionStatus \
            balancerStart balancerStatus balancerStop cleanupOrphaned cleanupReshardCollection clearJumboFlag \
            commitReshardCollection configureCollectionBalancing configureQueryAnalyzer enableSharding \
            flushRouterConfig getShardMap getShardVersion isdbgrid listShards mergeAllChunksOnShard mergeChunks \
            moveChunk movePrimary moveRange refineCollectionShardKey removeShard removeShardFromZone reshardCollection \
            setShardVersion shardCollection shardingState split splitVector unsetSharding updateZoneKeyRange",
    },
];

/// Commands stand at the beginning of a document.
const COMMAND: &str = "Command";

/// Commands about the shards of a cluster.
const OF_SHARDS: &str = "abortReshardCollection addShard addShardToZone analyzeShardKey balancerCollectionStatus \
    balancerStart balancerStatus balancerStop cleanupOrphaned cleanupReshardCollection clearJumboFlag \
    commitReshardCollection configureCollectionBalancing configureQueryAnalyzer enableSharding flushRouterConfig \
    getShardMap getShardVersion isdbgrid listShards mergeAllChunksOnShard mergeChunks moveChunk movePrimary moveRange \
    refineCollectionShardKey removeShard removeShardFromZone reshardCollection setShardVersion shardCollection \
    shardingState split splitVector unsetSharding updateZoneKeyRange";

const SET_OF_ONE: &str = "not there: Kilim is always a replica set of one node";

/// Operators that are not there, or whose proof is no spec.
const ELSEWHERE: &[(&str, &str)] = &[
    ("$where", "refused by name: server-side JavaScript"),
    ("$function", "refused by name: server-side JavaScript"),
    ("$accumulator", "refused by name: server-side JavaScript"),
    ("$search", "unknown, as on MongoDB without Atlas"),
    ("$searchMeta", "unknown, as on MongoDB without Atlas"),
    ("$vectorSearch", "unknown, as on MongoDB without Atlas"),
    ("$listSearchIndexes", "unknown, as on MongoDB without Atlas"),
    ("$listSampledQueries", "unknown: there are no shards"),
    ("$shardedDataDistribution", "refused by name: there are no shards"),
    ("$$SEARCH_META", "unknown, as on MongoDB without Atlas"),
    ("mapReduce", "not there: server-side JavaScript"),
    ("getnonce", "not there: it belongs to a way of logging in that MongoDB has given up"),
    ("authenticate", "proved by tests of TLS: certificates log in by it"),
    ("invalidateUserCache", "proved by tests of users"),
    ("replSetAbortPrimaryCatchUp", SET_OF_ONE),
    ("replSetFreeze", SET_OF_ONE),
    ("replSetGetConfig", "proved by tests of drivers"),
    ("replSetInitiate", SET_OF_ONE),
    ("replSetMaintenance", SET_OF_ONE),
    ("replSetReconfig", SET_OF_ONE),
    ("replSetResizeOplog", "not there: `--change-log-size` and `--change-log-hours` bound the change log"),
    ("replSetStepDown", SET_OF_ONE),
    ("replSetSyncFrom", SET_OF_ONE),
    ("compactStructuredEncryptionData", "not there: fields are not encrypted by queries"),
    ("getAuditConfig", "unknown, as on MongoDB without Enterprise; `--audit` writes an audit log"),
    ("setAuditConfig", "unknown, as on MongoDB without Enterprise; `--audit` writes an audit log"),
    ("logApplicationMessage", "unknown, as on MongoDB without Enterprise"),
    ("rotateCertificates", "not there: SIGHUP has certificates read anew"),
    ("setFeatureCompatibilityVersion", "proved by tests of commands: there is one version"),
    ("shutdown", "not there: SIGTERM ends the server in order"),
    ("availableQueryOptions", "not there: internal"),
    ("driverOIDTest", "not there: internal"),
    ("features", "not there: internal"),
    ("createSearchIndexes", "unknown, as on MongoDB without Atlas"),
    ("dropSearchIndex", "unknown, as on MongoDB without Atlas"),
    ("updateSearchIndex", "unknown, as on MongoDB without Atlas"),
    ("$changeStream", "proved by tests of drivers and of commands (docs/change-streams.md)"),
    ("$changeStreamSplitLargeEvent", "docs/change-streams.md says how far it is there"),
];

/// The part of COMPAT.md that goes through the manual.
pub fn section(areas: &BTreeMap<String, Vec<SpecFile>>) -> Result<String> {
    let mut page =
        "\n## Operators and commands of MongoDB 7.0's manual\n\nHow many cases of the specs use each.\n"
            .to_owned();
    for kind in KINDS {
        write!(page, "\n| {} | Cases |\n| --- | ---: |\n", kind.name)?;
        let files = kind.areas.iter().filter_map(|area| areas.get(*area)).flatten();
        let texts: Vec<&str> = files.flat_map(|file| cases(&file.text)).collect();
        for operator in kind.operators.split_whitespace() {
            let shown = match operator {
                "$[" => "`$[identifier]`".to_owned(),
                operator => format!("`{operator}`"),
            };
            let elsewhere = match OF_SHARDS.split_whitespace().any(|command| command == operator) {
                true => Some("not there: there are no shards"),
                false => ELSEWHERE.iter().find(|(name, _)| *name == operator).map(|(_, how)| *how),
            };
            match elsewhere {
                Some(how) => writeln!(page, "| {shown} | {how} |")?,
                None => {
                    let is_used = |text: &&&str| match kind.name {
                        COMMAND => text.contains(&format!("{{{operator}:")),
                        _ => uses(text, operator),
                    };
                    let count = texts.iter().filter(is_used).count();
                    ensure!(count > 0, "no spec uses {operator} ({})", kind.name);
                    writeln!(page, "| {shown} | {count} |")?;
                }
            }
        }
    }
    Ok(page)
}

/// The cases of a file; one without titles is one.
fn cases(text: &str) -> impl Iterator<Item = &str> {
    let titled = text.contains("\n=== ");
    text.split("\n=== ").skip(usize::from(titled))
}

/// Whether a text has an operator as a whole word.
fn uses(text: &str, operator: &str) -> bool {
    text.match_indices(operator).any(|(at, _)| {
        let behind = text[at + operator.len()..].chars().next();
        match operator {
            "$[" => behind.is_some_and(|next| next.is_ascii_lowercase()),
            "$[]" => true,
            // The positional one ends a name.
            "$" => text[..at].ends_with('.') && matches!(behind, Some('"' | '\'' | '.')),
            _ => !behind.is_some_and(|next| next.is_ascii_alphanumeric()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::uses;

    #[test]
    fn an_operator_is_a_whole_word() {
        assert!(uses("{$set: {a: 1}}", "$set"));
        assert!(!uses("{$setOnInsert: {a: 1}}", "$set"));
        assert!(uses("{$set: {'a.$[it].b': 1}}", "$["));
        assert!(!uses("{$set: {'a.$[].b': 1}}", "$["));
        assert!(uses("{$set: {'a.$.b': 1}}", "$"));
        assert!(!uses("{$set: {a: 1}}", "$"));
    }
}
