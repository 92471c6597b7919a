//! Time-series collections against plain ones that had the same commands.

use std::path::Path;
use std::thread;

use kilim::Database;
use kilim::bson::{Bson, DateTime, Document, doc};
use kilim_testkit::histories;

/// Numbers from a seed (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides) as i64
    }
}

fn time(dice: &mut Dice) -> Bson {
    // Now and then around 1970, or at one of the ends of time, otherwise some hours of one day.
    let base = match dice.roll(24) {
        0..=2 => -3_600_000,
        3 => i64::MIN,
        4 => i64::MAX - 20_000 * 1000,
        _ => 1_700_000_000_000,
    };
    Bson::DateTime(DateTime::from_millis(base + dice.roll(20_000) * 1000 + dice.roll(3)))
}

fn meta(dice: &mut Dice) -> Option<Bson> {
    match dice.roll(6) {
        0 => None,
        1 => Some(Bson::Null),
        2 => Some(Bson::Document(doc! {"a": dice.roll(2), "b": [1, dice.roll(2)]})),
        _ => Some(Bson::Int64(dice.roll(3))),
    }
}

fn value(dice: &mut Dice) -> Option<Bson> {
    Some(match dice.roll(14) {
        0 => return None,
        1 => Bson::Null,
        2 => Bson::String(["a", "b", "zz"][dice.roll(3) as usize].to_owned()),
        3 => Bson::Document(doc! {"x": dice.roll(5), "y": {"z": dice.roll(5)}}),
        4 => Bson::Array(vec![Bson::Int64(dice.roll(9)), Bson::Int64(dice.roll(9))]),
        5 => Bson::Double(f64::NAN),
        6 => Bson::Boolean(dice.roll(2) == 0),
        7 => Bson::Array(vec![Bson::Document(doc! {"x": dice.roll(5)})]),
        8 => Bson::Double(dice.roll(90) as f64 / 10.0),
        _ => Bson::Int64(dice.roll(10)),
    })
}

/// A value that may be under an index: no array.
fn indexed(dice: &mut Dice) -> Option<Bson> {
    Some(match dice.roll(14) {
        0 => return None,
        1 => Bson::Null,
        2 => Bson::String(["a", "b", "zz"][dice.roll(3) as usize].to_owned()),
        3 => Bson::Document(doc! {"x": dice.roll(5), "y": [dice.roll(5)]}),
        4 => {
            let text = ["a", "b"][dice.roll(2) as usize];
            Bson::Document(doc! {"x": text})
        }
        5 => Bson::Double(f64::NAN),
        6 => Bson::Boolean(dice.roll(2) == 0),
        7 => time(dice),
        8 => Bson::Double(dice.roll(90) as f64 / 10.0),
        _ => Bson::Int64(dice.roll(10)),
    })
}

fn measurement(dice: &mut Dice, id: i64) -> Document {
    // Fields in the order in which a time-series collection shows them.
    let mut document = doc! {"t": time(dice)};
    if let Some(meta) = meta(dice) {
        document.insert("k", meta);
    }
    document.insert("_id", id);
    if let Some(value) = value(dice) {
        document.insert("v", value);
    }
    if let Some(value) = indexed(dice) {
        document.insert("w", value);
    }
    document
}

fn condition(dice: &mut Dice) -> Document {
    let operator = ["$eq", "$lt", "$lte", "$gt", "$gte"][dice.roll(5) as usize];
    match dice.roll(15) {
        9 => doc! {"w": {operator: indexed(dice).unwrap_or(Bson::Null)}},
        10 => {
            doc! {"w.x": {operator: if dice.roll(2) == 0 { Bson::from("a") } else { Bson::from(dice.roll(5)) }}}
        }
        11 => doc! {"w": {"$in": [indexed(dice).unwrap_or(Bson::Null), dice.roll(10), dice.roll(10)]}},
        12 => doc! {"w": {"$gte": dice.roll(10), "$lt": dice.roll(10)}, "k": dice.roll(3)},
        13 => doc! {"$expr": {operator: ["$w", dice.roll(10)]}},
        14 => doc! {"w": {"$exists": dice.roll(2) == 0}},
        0 => doc! {},
        1 | 2 => doc! {"t": {operator: time(dice)}},
        3 => doc! {"t": {"$gte": time(dice), "$lt": time(dice)}},
        4 => doc! {"k": meta(dice).unwrap_or(Bson::Null)},
        5 => doc! {"v.x": {operator: dice.roll(5)}},
        6 => doc! {"v": {"$in": [value(dice).unwrap_or(Bson::Null), dice.roll(10)]}},
        _ => doc! {"v": {operator: value(dice).unwrap_or(Bson::Null)}},
    }
}

fn filter(dice: &mut Dice) -> Document {
    match dice.roll(5) {
        0 => doc! {"$or": [condition(dice), condition(dice)]},
        1 => doc! {"$and": [condition(dice), condition(dice)]},
        2 => doc! {"$nor": [condition(dice)]},
        _ => condition(dice),
    }
}

/// An index over measurements, or one over part of them.
fn index(dice: &mut Dice) -> Document {
    let mut index = match dice.roll(8) {
        0 => doc! {"key": {"w": 1}, "name": "up"},
        1 => doc! {"key": {"w": -1}, "name": "down"},
        2 => doc! {"key": {"w.x": 1}, "name": "below"},
        3 => doc! {"key": {"k": 1, "w": 1}, "name": "meta"},
        4 => doc! {"key": {"t": 1, "w": -1}, "name": "time"},
        5 => doc! {"key": {"t": -1}, "name": "late"},
        6 => doc! {"key": {"w": 1, "w.x": 1}, "name": "both"},
        _ => doc! {"key": {"_id": 1}, "name": "id"},
    };
    let partial = match dice.roll(8) {
        0 => doc! {"w": {"$gt": 4}},
        1 => doc! {"k": {"$gte": 1}},
        2 => doc! {"w": {"$exists": true}},
        3 => doc! {"t": {"$gte": Bson::DateTime(DateTime::from_millis(1_700_000_000_000))}, "w": {"$lte": 7}},
        _ => return index,
    };
    let name = format!("{} where {partial}", index.get_str("name").unwrap());
    index.insert("name", name);
    index.insert("partialFilterExpression", partial);
    index
}

/// What a filter finds, by `_id`, each document's fields in the order of their names.
fn found(database: &Database, name: &str, filter: &Document) -> Vec<Vec<(String, String)>> {
    let found = database.collection::<Document>(name).find(filter.clone()).sort(doc! {"_id": 1}).run();
    let fields = |document: Document| {
        let mut fields: Vec<_> =
            document.into_iter().map(|(name, value)| (name, value.to_string())).collect();
        fields.sort();
        fields
    };
    found.unwrap().map(|document| fields(document.unwrap())).collect()
}

fn run(database: &Database, command: Document) -> Document {
    database.run_command(command).unwrap()
}

fn open(directory: Option<&Path>) -> Database {
    match directory {
        Some(directory) => Database::open(directory).unwrap(),
        None => Database::in_memory().unwrap(),
    }
}

fn history(seed: u64, directory: Option<&Path>) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut database = open(directory);
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    run(&database, doc! {"create": "plain"});
    if dice.roll(2) == 0 {
        let indexes = doc! {"createIndexes": "series", "indexes": [{"key": {"k": 1, "t": 1}, "name": "i"}]};
        run(&database, indexes);
    }
    let mut next = 0;
    for round in 0..60 {
        match dice.roll(11) {
            10 => {
                let index = index(&mut dice);
                run(&database, doc! {"createIndexes": "series", "indexes": [index]});
            }
            0..=4 => {
                let documents: Vec<Bson> = (0..1 + dice.roll(25))
                    .map(|_| {
                        next += 1;
                        Bson::Document(measurement(&mut dice, next))
                    })
                    .collect();
                // All in one command, or one in each.
                let at_once = if dice.roll(2) == 0 { documents.len() } else { 1 };
                for batch in documents.chunks(at_once) {
                    for name in ["series", "plain"] {
                        run(&database, doc! {"insert": name, "documents": batch.to_vec()});
                    }
                }
            }
            5 => {
                let filter = filter(&mut dice);
                let delete = |name| doc! {"delete": name, "deletes": [{"q": filter.clone(), "limit": 0}]};
                let removed = ["series", "plain"].map(|name| run(&database, delete(name)));
                assert_eq!(removed[0].get("n"), removed[1].get("n"), "seed {seed}: {filter}");
            }
            6 => {
                let (old, new) = (dice.roll(3), dice.roll(3));
                let update = doc! {"q": {"k": old}, "u": {"$set": {"k": new}}, "multi": true};
                for name in ["series", "plain"] {
                    run(&database, doc! {"update": name, "updates": [update.clone()]});
                }
            }
            7 if directory.is_some() && round % 3 == 0 => {
                drop(database);
                database = open(directory);
            }
            _ => {
                let filter = filter(&mut dice);
                let [series, plain] = ["series", "plain"].map(|name| found(&database, name, &filter));
                assert_eq!(series, plain, "seed {seed}: {filter}");
            }
        }
    }
    let [series, plain] = ["series", "plain"].map(|name| found(&database, name, &doc! {}));
    assert_eq!(series, plain, "seed {seed}");
    let valid = run(&database, doc! {"validate": "system.buckets.series"});
    assert_eq!(valid.get("valid"), Some(&Bson::Boolean(true)), "seed {seed}: {valid}");
}

/// A few histories, or as many as are asked for.
#[test]
fn measurements_are_what_plain_documents_with_the_same_commands_are() {
    for seed in histories(20) {
        match seed % 4 {
            0 => history(seed, Some(tempfile::tempdir().unwrap().path())),
            _ => history(seed, None),
        }
    }
}

#[test]
fn a_partial_index_may_be_asked_for_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let index = doc! {"createIndexes": "series", "indexes": [{
        "key": {"t": -1}, "name": "late", "partialFilterExpression": {"t": {"$gte": DateTime::from_millis(0)}, "w": {"$lte": 7}},
    }]};
    let database = open(Some(directory.path()));
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    run(&database, index.clone());
    run(&database, index.clone());
    drop(database);
    let database = open(Some(directory.path()));
    let answer = run(&database, index);
    assert_eq!(answer.get_str("note").unwrap(), "all indexes already exist");
}

/// Pipelines that want the first or last measurements of each series, and some that seem to.
fn foremost(dice: &mut Dice) -> Vec<Document> {
    let direction = if dice.roll(2) == 0 { 1 } else { -1 };
    let by = match dice.roll(4) {
        0 => doc! {"t": direction},
        1 => doc! {"k": 1, "t": direction, "v": 1},
        2 => doc! {"k.a": -1, "t": direction},
        _ => doc! {"t": direction, "_id": -1},
    };
    let id = match dice.roll(4) {
        0 => Bson::Null,
        1 => Bson::from("$k.a"),
        2 => Bson::Document(doc! {"a": "$k.a", "b": "$k.b"}),
        _ => Bson::from("$k"),
    };
    let mut stages = Vec::new();
    match dice.roll(4) {
        0 => stages.push(doc! {"$match": {"t": {"$gte": time(dice)}}}),
        1 => stages.push(doc! {"$match": {"t": {"$lt": time(dice)}}}),
        2 => stages.push(doc! {"$match": condition(dice)}),
        _ => {}
    }
    let taken = |operator: &str| doc! {"_id": id.clone(), "n": {operator: "$_id"}, "v": {operator: "$v"}};
    match dice.roll(6) {
        0 => {
            let output = doc! {"$top": {"sortBy": by, "output": ["$_id", "$v"]}};
            stages.push(doc! {"$group": {"_id": id, "n": output}});
        }
        1 => {
            let output = doc! {"$bottom": {"sortBy": by, "output": ["$_id", "$v"]}};
            stages.push(doc! {"$group": {"_id": id, "n": output, "t": {"$max": "$t"}}});
        }
        2 => stages.push(doc! {"$group": {"_id": id, "t": {"$max": "$t"}}}),
        3 => stages.extend([doc! {"$sort": by}, doc! {"$group": taken("$last")}]),
        4 => {
            let group = doc! {"_id": id, "n": {"$first": "$_id"}, "sum": {"$sum": 1}};
            stages.extend([doc! {"$sort": by}, doc! {"$group": group}]);
        }
        _ => stages.extend([doc! {"$sort": by}, doc! {"$group": taken("$first")}]),
    }
    stages
}

fn aggregated(database: &Database, stages: &[Document]) -> Vec<String> {
    let found = database.collection::<Document>("series").aggregate(stages.to_vec()).run::<Document>();
    let mut found: Vec<String> = found.unwrap().map(|document| document.unwrap().to_string()).collect();
    found.sort();
    found
}

#[test]
fn foremost_measurements_are_those_that_are_found_among_all() {
    for seed in 1..13u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let database = open(None);
        run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
        if dice.roll(2) == 0 {
            let indexes =
                doc! {"createIndexes": "series", "indexes": [{"key": {"k": 1, "t": 1}, "name": "i"}]};
            run(&database, indexes);
        }
        for number in 0..8 {
            let documents: Vec<Document> =
                (0..40).map(|at| measurement(&mut dice, number * 100 + at)).collect();
            run(&database, doc! {"insert": "series", "documents": documents});
        }
        for _ in 0..30 {
            let stages = foremost(&mut dice);
            // A stage in between lets all measurements pass.
            let mut all = vec![doc! {"$addFields": {"other": 1}}];
            all.extend(stages.iter().cloned());
            assert_eq!(
                aggregated(&database, &stages),
                aggregated(&database, &all),
                "seed {seed}: {stages:?}"
            );
        }
    }
}

/// Sorts by the time, and by the meta and the time, of all measurements or of the first ones.
fn sorted(dice: &mut Dice) -> Vec<Document> {
    let mut stages = Vec::new();
    if dice.roll(2) == 0 {
        stages.push(doc! {"$match": condition(dice)});
    }
    let direction = |dice: &mut Dice| if dice.roll(2) == 0 { 1 } else { -1 };
    let (one, other) = (direction(dice), direction(dice));
    stages.push(doc! {"$sort": match dice.roll(7) {
        0 => doc! {"t": one, "_id": 1},
        1 => doc! {"k": other, "t": one, "_id": 1},
        2 => doc! {"k.a": other, "t": one, "_id": 1},
        3 => doc! {"k.b": other, "k.a": 1, "t": one, "w": 1, "_id": 1},
        4 => doc! {"t": one, "k": other, "_id": 1},
        5 => doc! {"k.c": other, "t": one, "_id": 1},
        _ => doc! {"v": other, "t": one, "_id": 1},
    }});
    match dice.roll(4) {
        0 => stages.push(doc! {"$limit": 1 + dice.roll(20)}),
        1 => stages.extend([doc! {"$skip": dice.roll(20)}, doc! {"$limit": 1 + dice.roll(20)}]),
        _ => {}
    }
    stages.push(doc! {"$project": {"_id": 1}});
    stages
}

fn ids(database: &Database, stages: &[Document]) -> Result<Vec<i64>, String> {
    let found = database.collection::<Document>("series").aggregate(stages.to_vec()).run::<Document>();
    let id = |found: Result<Document, _>| found.map(|found| found.get_i64("_id").unwrap());
    found.and_then(|found| found.map(id).collect()).map_err(|error| error.to_string())
}

#[test]
fn measurements_sorted_by_their_buckets_are_those_sorted_as_documents() {
    for seed in 1..17u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let directory = tempfile::tempdir().unwrap();
        let database = open((seed % 4 == 0).then(|| directory.path()));
        run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
        if dice.roll(2) == 0 {
            run(&database, doc! {"createIndexes": "series", "indexes": [index(&mut dice)]});
        }
        for number in 0..8 {
            let documents: Vec<Document> =
                (0..40).map(|at| measurement(&mut dice, number * 100 + at)).collect();
            let at_once = if dice.roll(2) == 0 { 40 } else { 3 };
            for batch in documents.chunks(at_once) {
                run(&database, doc! {"insert": "series", "documents": batch.to_vec()});
            }
        }
        for _ in 0..40 {
            let stages = sorted(&mut dice);
            // A stage in between lets nobody know that measurements come from buckets.
            let mut all = vec![doc! {"$addFields": {"other": 1}}];
            all.extend(stages.iter().cloned());
            assert_eq!(ids(&database, &stages), ids(&database, &all), "seed {seed}: {stages:?}");
        }
    }
}

#[test]
fn the_first_measurements_by_time_unpack_few_buckets() {
    let database = Database::in_memory().unwrap();
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    for hour in 0..50i64 {
        let t = DateTime::from_millis(1_700_000_000_000 + hour * 3_600_000);
        let documents: Vec<Document> =
            (0..4i64).map(|k| doc! {"t": t, "k": k, "_id": hour * 10 + k, "v": hour}).collect();
        run(&database, doc! {"insert": "series", "documents": documents});
    }
    for (sort, most) in [(doc! {"t": -1}, 9), (doc! {"t": 1}, 9), (doc! {"k": 1, "t": -1}, 7)] {
        let stages = [doc! {"$sort": sort.clone()}, doc! {"$limit": 5}];
        let aggregate = doc! {"aggregate": "series", "pipeline": stages.to_vec(), "cursor": {}};
        let explained = run(&database, doc! {"explain": aggregate, "verbosity": "executionStats"});
        let stages = explained.get_array("stages").unwrap();
        let unpacking = stages[1].as_document().unwrap();
        let unpacked = unpacking.get_i64("bucketsUnpacked").unwrap();
        assert!(unpacked <= most, "{sort}: {unpacked} of 200 buckets");
        let bounded = stages[2].as_document().unwrap().get_document("$_internalBoundedSort").unwrap();
        assert_eq!(bounded.get_document("sortKey").unwrap(), &sort);
    }
}

/// The plan of a find, and how many buckets it looked at.
fn looked_at(database: &Database, filter: Document) -> (String, i32) {
    let find = doc! {"find": "series", "filter": filter};
    let explained = run(database, doc! {"explain": find, "verbosity": "executionStats"});
    let cursor = explained.get_array("stages").unwrap()[0].as_document().unwrap();
    let cursor = cursor.get_document("$cursor").unwrap();
    let plan = cursor.get_document("queryPlanner").unwrap().get_document("winningPlan").unwrap();
    let examined = cursor.get_document("executionStats").unwrap().get_i32("totalDocsExamined").unwrap();
    (plan.to_string(), examined)
}

#[test]
fn an_index_over_measurements_serves_conditions_on_them() {
    let database = Database::in_memory().unwrap();
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    let t = DateTime::from_millis(1_700_000_000_000);
    let documents: Vec<Document> = (0..200i64)
        .flat_map(|k| {
            let own = move |at| doc! {"t": t, "k": k, "_id": k * 10 + at, "v": k * 10 + at, "w": {"x": -k}};
            (0..5i64).map(own)
        })
        .collect();
    run(&database, doc! {"insert": "series", "documents": documents});
    for (key, filter) in [
        (doc! {"v": 1}, doc! {"v": {"$lt": 25}}),
        (doc! {"v": 1}, doc! {"v": {"$gt": 1975}}),
        (doc! {"v": -1}, doc! {"v": {"$gt": 1975}}),
        (doc! {"v": 1}, doc! {"v": {"$gte": 51, "$lte": 62}}),
        (doc! {"v": 1}, doc! {"v": 53}),
        (doc! {"v": 1}, doc! {"v": {"$in": [53, 62]}}),
        (doc! {"w.x": 1}, doc! {"w.x": {"$lt": -197}}),
        (doc! {"k": 1, "v": 1}, doc! {"k": 7, "v": {"$gt": 0}}),
        (doc! {"t": 1, "v": 1}, doc! {"t": t, "v": {"$lt": 25}}),
    ] {
        run(&database, doc! {"createIndexes": "series", "indexes": [{"key": key.clone(), "name": "i"}]});
        let expected = found(&database, "series", &filter);
        assert!(!expected.is_empty());
        let (plan, examined) = looked_at(&database, filter.clone());
        assert!(plan.contains("IXSCAN"), "{key} for {filter}: {plan}");
        assert!(examined <= 4, "{key} for {filter}: {examined} buckets");
        run(&database, doc! {"dropIndexes": "series", "index": "i"});
        assert_eq!(found(&database, "series", &filter), expected);
        assert_eq!(looked_at(&database, filter).1, 200);
    }
}

#[test]
fn a_partial_index_over_measurements_serves_what_implies_its_filter() {
    let database = Database::in_memory().unwrap();
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    let t = DateTime::from_millis(1_700_000_000_000);
    let documents: Vec<Document> = (0..100i64).map(|k| doc! {"t": t, "k": k, "v": k}).collect();
    run(&database, doc! {"insert": "series", "documents": documents});
    let index = doc! {"key": {"v": 1}, "name": "i", "partialFilterExpression": {"v": {"$gt": 90}}};
    run(&database, doc! {"createIndexes": "series", "indexes": [index]});
    let keys = run(&database, doc! {"validate": "system.buckets.series"});
    let keys = keys.get_document("keysPerIndex").unwrap().get_i32("i").unwrap();
    assert_eq!(keys, 9, "buckets that hold nothing above 90 are left out");
    assert!(looked_at(&database, doc! {"v": {"$gt": 95}}).0.contains("IXSCAN"));
    assert!(looked_at(&database, doc! {"v": {"$gt": 80}}).0.contains("COLLSCAN"));
    assert_eq!(found(&database, "series", &doc! {"v": {"$gt": 95}}).len(), 4);
    assert_eq!(found(&database, "series", &doc! {"v": {"$gt": 80}}).len(), 19);
}

#[test]
fn an_index_over_measurements_outlives_a_restart_and_refuses_arrays() {
    let directory = tempfile::tempdir().unwrap();
    let database = open(Some(directory.path()));
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    let index = doc! {"key": {"v": 1, "k": 1}, "name": "i", "partialFilterExpression": {"w": {"$lt": 5}}};
    run(&database, doc! {"createIndexes": "series", "indexes": [index]});
    let listed = run(&database, doc! {"listIndexes": "series"});
    drop(database);
    let database = open(Some(directory.path()));
    let again = run(&database, doc! {"listIndexes": "series"});
    assert_eq!(listed.get_document("cursor").unwrap(), again.get_document("cursor").unwrap());
    let t = DateTime::from_millis(1_700_000_000_000);
    let documents = [
        doc! {"_id": 1, "t": t, "k": 1, "v": 1, "w": 1},
        doc! {"_id": 2, "t": t, "k": 1, "v": [1], "w": 1},
        doc! {"_id": 3, "t": t, "k": 1, "v": 2, "w": [1]},
        doc! {"_id": 4, "t": t, "k": 1, "v": {"a": [1]}, "w": 9},
    ];
    let insert = doc! {"insert": "series", "documents": documents.to_vec(), "ordered": false};
    let reply = run(&database, insert);
    assert_eq!(reply.get_i32("n").unwrap(), 2, "{reply}");
    let failed = reply.get_array("writeErrors").unwrap();
    let positions: Vec<i32> =
        failed.iter().map(|failed| failed.as_document().unwrap().get_i32("index").unwrap()).collect();
    assert_eq!(positions, [1, 2], "{reply}");
    assert_eq!(found(&database, "series", &doc! {}).len(), 2);
}

#[test]
fn the_last_point_of_each_series_unpacks_one_bucket_of_it() {
    let database = Database::in_memory().unwrap();
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    for hour in 0..20i64 {
        let t = DateTime::from_millis(1_700_000_000_000 + hour * 3_600_000);
        let documents: Vec<Document> =
            (0..5i64).map(|k| doc! {"t": t, "k": k, "_id": hour * 10 + k, "v": hour}).collect();
        run(&database, doc! {"insert": "series", "documents": documents});
    }
    let stages = [
        doc! {"$sort": {"k": 1, "t": -1}},
        doc! {"$group": {"_id": "$k", "v": {"$first": "$v"}, "n": {"$first": "$_id"}}},
    ];
    let aggregate = doc! {"aggregate": "series", "pipeline": stages.to_vec(), "cursor": {}};
    let explained = run(&database, doc! {"explain": aggregate, "verbosity": "executionStats"});
    let stage = explained.get_array("stages").unwrap()[1].as_document().unwrap();
    let unpacking = stage.get_document("$_internalUnpackBucket").unwrap();
    assert_eq!(unpacking.get_str("ofEachMeta").unwrap(), "latest");
    assert_eq!(stage.get_i64("bucketsUnpacked").unwrap(), 5, "{stage}");
    let found = aggregated(&database, &stages);
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|group| group.contains("\"v\": 19")), "{found:?}");
}

#[test]
fn writers_of_one_bucket_lose_nothing() {
    let database = Database::in_memory().unwrap();
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    thread::scope(|scope| {
        for writer in 0..4i64 {
            let database = &database;
            scope.spawn(move || {
                for at in 0..100i64 {
                    let t = DateTime::from_millis(1_700_000_000_000 + at * 1000);
                    let documents = [
                        doc! {"t": t, "k": 1, "_id": writer * 1000 + at},
                        doc! {"t": t, "k": at % 3, "_id": 100_000 + writer * 1000 + at},
                    ];
                    run(database, doc! {"insert": "series", "documents": documents.to_vec()});
                }
            });
        }
    });
    assert_eq!(run(&database, doc! {"count": "series"}).get("n"), Some(&Bson::Int32(800)));
    let different = run(&database, doc! {"distinct": "series", "key": "_id"});
    assert_eq!(different.get_array("values").unwrap().len(), 800);
}

#[test]
fn an_index_serves_a_meta_and_a_range_of_time() {
    let database = Database::in_memory().unwrap();
    run(&database, doc! {"create": "series", "timeseries": {"timeField": "t", "metaField": "k"}});
    run(&database, doc! {"createIndexes": "series", "indexes": [{"key": {"k": 1, "t": 1}, "name": "i"}]});
    let at = |hour: i64| DateTime::from_millis(1_700_000_000_000 + hour * 3_600_000);
    let documents: Vec<Document> =
        (0..500).map(|number| doc! {"t": at(number / 5), "k": number % 5, "v": number}).collect();
    run(&database, doc! {"insert": "series", "documents": documents});
    let filter = doc! {"k": 2, "t": {"$gte": at(50), "$lt": at(52)}};
    let explained = run(
        &database,
        doc! {"explain": {"find": "series", "filter": filter.clone()}, "verbosity": "executionStats"},
    );
    let stages = explained.get_array("stages").unwrap();
    let cursor = stages[0].as_document().unwrap().get_document("$cursor").unwrap();
    let stats = cursor.get_document("executionStats").unwrap();
    assert!(stats.get_i32("totalDocsExamined").unwrap() <= 4, "{stats}");
    assert!(stages[1].as_document().unwrap().contains_key("$_internalUnpackBucket"));
    assert_eq!(found(&database, "series", &filter).len(), 2);
}
