//! Random histories as spec cases.

use kilim_bson::{Document, RawValue, Value, Writer, doc};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::filters::{filter, overlap, projection, sort};
use super::one_case;
use super::updates::update;
use super::values::{document, id, path};
use crate::spec::{Action, Case};

const COLLECTION: &str = "t";

pub(super) fn generate(random: &mut impl Rng) -> Case {
    let mut actions = Vec::new();
    let count = random.random_range(0..12);
    let documents = (0..count).map(|number| with_id(Value::Int32(number), &document(random, 2))).collect();
    actions.push(Action::Given { collection: COLLECTION.to_owned(), documents });
    for _ in 0..*[0, 0, 1, 1, 2].choose(random).expect("not empty") {
        actions.push(Action::Run(create_index(random)));
    }
    for _ in 0..random.random_range(3..10) {
        actions.push(question(random));
    }
    actions.push(rows(doc! {"find": COLLECTION, "sort": {"_id": 1}}));
    actions.push(Action::Run(doc! {"count": COLLECTION}));
    one_case(actions)
}

fn question(random: &mut impl Rng) -> Action {
    match random.random_range(0..20) {
        0..7 => find(random),
        7..14 => Action::Run(update_command(random)),
        14 => Action::Run(doc! {"delete": COLLECTION, "deletes": [{"q": filter(random, 1), "limit": 0}]}),
        15 => {
            let inserted = with_id(id(random), &document(random, 2));
            Action::Run(doc! {"insert": COLLECTION, "documents": [inserted]})
        }
        16 | 17 => Action::Run(find_and_modify(random)),
        18 => Action::Run(doc! {"count": COLLECTION, "query": filter(random, 2)}),
        _ => {
            let (key, mut query) = (path(random), filter(random, 1));
            // Where an index serves it, mongod's distinct takes a missing field for null.
            if query.get(key).is_none() {
                query.push(key, doc! {"$exists": true});
            }
            let command = doc! {"distinct": COLLECTION, "key": key, "query": query};
            Action::Docs { unordered: true, command }
        }
    }
}

fn find(random: &mut impl Rng) -> Action {
    let mut command = doc! {"find": COLLECTION, "filter": filter(random, 2)};
    if random.random_bool(0.3) {
        command.push("projection", projection(random));
    }
    if random.random_bool(0.6) {
        command.push("sort", sort(random));
        if random.random_bool(0.3) {
            command.push("skip", random.random_range(0..4));
        }
        if random.random_bool(0.4) {
            command.push("limit", random.random_range(0..5));
        }
    }
    if random.random_bool(0.2) {
        command.push("batchSize", random.random_range(1..4));
    }
    rows(command)
}

/// Rows have an order only if one was asked for.
fn rows(command: Document) -> Action {
    Action::Docs { unordered: command.get("sort").is_none(), command }
}

fn update_command(random: &mut impl Rng) -> Document {
    let update = update(random);
    let multi = !update.replaces && random.random_bool(0.3);
    let query = if multi { filter(random, 1) } else { one(random) };
    let mut statement = doc! {"q": query, "u": update.document};
    if multi {
        statement.push("multi", true);
    } else if random.random_bool(0.3) {
        statement.push("upsert", true);
    }
    if !update.array_filters.is_empty() {
        statement.push("arrayFilters", update.array_filters);
    }
    doc! {"update": COLLECTION, "updates": [statement]}
}

fn find_and_modify(random: &mut impl Rng) -> Document {
    let mut command = doc! {"findAndModify": COLLECTION, "query": filter(random, 1), "sort": sort(random)};
    if random.random_bool(0.3) {
        command.push("remove", true);
        return command;
    }
    let update = update(random);
    command.push("update", update.document);
    if random.random_bool(0.5) {
        command.push("new", true);
    }
    if random.random_bool(0.2) {
        command.push("upsert", true);
    }
    if !update.array_filters.is_empty() {
        command.push("arrayFilters", update.array_filters);
    }
    command
}

/// A filter that at most one document matches, so that no plan chooses among several.
fn one(random: &mut impl Rng) -> Document {
    let rest = filter(random, 1);
    let mut query = Writer::new();
    query.append("_id", id(random).as_raw());
    for (name, value) in rest.iter().filter(|(name, _)| *name != "_id") {
        query.append(name, value);
    }
    query.finish()
}

fn create_index(random: &mut impl Rng) -> Document {
    let mut key = Document::new();
    for _ in 0..random.random_range(1..4) {
        let path = path(random);
        if path != "_id" && !key.iter().any(|(name, _)| overlap(name, path)) {
            key.push(path, if random.random_bool(0.7) { 1 } else { -1 });
        }
    }
    if key.is_empty() {
        key.push("a", 1);
    }
    let name = crate::spec::default_index_name(key.as_raw());
    let mut index = doc! {"key": key, "name": name};
    match random.random_range(0..8) {
        0 => index.push("unique", true),
        1 => index.push("sparse", true),
        2 => index.push("partialFilterExpression", doc! {"b": {"$gt": 1}}),
        3 => index.push("partialFilterExpression", doc! {"a": {"$exists": true}}),
        _ => {}
    }
    doc! {"createIndexes": COLLECTION, "indexes": [index]}
}

fn with_id(id: Value, document: &Document) -> Document {
    let mut writer = Writer::new();
    writer.append("_id", id.as_raw());
    document.iter().for_each(|(name, value): (&str, RawValue<'_>)| writer.append(name, value));
    writer.finish()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::shell::print_document;

    fn commands(seed: u64) -> Vec<String> {
        let case = generate(&mut StdRng::seed_from_u64(seed));
        let commands = case.steps.iter().filter_map(|step| match &step.action {
            Action::Run(command) | Action::Docs { command, .. } => Some(print_document(command.as_raw())),
            _ => None,
        });
        commands.collect()
    }

    #[test]
    fn a_seed_replays_its_history() {
        assert_eq!(commands(7), commands(7));
        assert_ne!(commands(7), commands(8));
    }

    #[test]
    fn every_operator_is_generated_before_long() {
        let all = (0..3000).flat_map(commands).collect::<Vec<_>>().join("\n");
        for operator in [
            "$eq",
            "$ne",
            "$gt",
            "$gte",
            "$lt",
            "$lte",
            "$in",
            "$nin",
            "$exists",
            "$type",
            "$size",
            "$all",
            "$elemMatch",
            "$mod",
            "$regex",
            "$bitsAllSet",
            "$bitsAnyClear",
            "$not",
            "$and",
            "$or",
            "$nor",
            "$set",
            "$unset",
            "$inc",
            "$mul",
            "$min",
            "$max",
            "$rename",
            "$setOnInsert",
            "$bit",
            "$push",
            "$addToSet",
            "$pop",
            "$pull",
            "$pullAll",
            "$each",
            "$slice",
            "$sort",
            "$position",
            ".$[]",
            ".$[it]",
            "arrayFilters",
            "upsert",
            "multi",
            "findAndModify",
            "distinct",
            "count",
            "delete",
            "insert",
            "unique",
            "sparse",
            "partialFilterExpression",
        ] {
            assert!(all.contains(operator), "{operator} never came");
        }
    }
}
