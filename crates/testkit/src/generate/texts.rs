//! Histories of texts: a text index, and searches with phrases, negations, languages and scores.
//!
//! Words come from small vocabularies of several languages, so that searches meet them: words with the same stem, stop words,
//! accents, both cases, the letters that Turkish folds in its own way, apostrophes, hyphens and writings without spaces.
//! Scores are compared to the last bit. Version 1 of the index is not asked for: mongod looks at documents by the rules of
//! version 2 there, and so misses some that its index has. Rows of equal score are sorted by `_id`.

use kilim_bson::{Document, Value, doc};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use super::one_case;
use crate::spec::{Action, Case};

const COLLECTION: &str = "t";

const VOCABULARIES: [(&str, &str); 10] = [
    (
        "english",
        "the running runs Runner connection connected CONNECT o'clock don't isn't rock'n'roll naïve café e-mail \
         foo_bar flies lazily quick happiness",
    ),
    (
        "german",
        "das Häuser Haus laufen läuft Straße strasse STRASSE über Verbindung verbunden und nicht schönste",
    ),
    (
        "french",
        "l'avion avions les être école écoles naïf naïve continuellement mangé mangeons aujourd'hui où",
    ),
    ("spanish", "niño niños corriendo corrió la acción acciones él más rápido rapidamente"),
    ("russian", "бегать бегали дома домов Дом не ёлка елка красивый"),
    ("turkish", "İstanbul istanbul ISPARTA ısparta ırmak Irmak evler evlerin ve"),
    ("hungarian", "házak házban környezetéről szép szebb és nők"),
    ("swedish", "flickorna flicka springer sprang och åäö över"),
    ("portuguese", "correndo correu amigos amiga não ônibus fazer"),
    ("none", "the running 東京都 日本 42 3.14 x a_b C++ ЕЛЬ ﬁne ß"),
];

/// What stands between words.
const GAPS: [&str; 12] = [" ", " ", " ", " ", "  ", ", ", "-", "'", ". ", "\n", "’", "_"];

const FIELDS: [&str; 4] = ["title", "body", "tags", "sub.text"];

pub(super) fn generate(random: &mut StdRng) -> Case {
    let language = VOCABULARIES.choose(random).expect("not empty").0;
    let mut actions = Vec::new();
    let count = random.random_range(1..12);
    let documents = (0..count).map(|id| document(random, language, id)).collect();
    actions.push(Action::Given { collection: COLLECTION.to_owned(), documents });
    actions.push(Action::Run(index(random, language)));
    if random.random_bool(0.3) {
        actions.push(Action::Run(
            doc! {"createIndexes": COLLECTION, "indexes": [{"key": {"k": 1}, "name": "k"}]},
        ));
    }
    for _ in 0..random.random_range(5..14) {
        actions.push(question(random, language, count));
    }
    actions.push(Action::Docs { unordered: false, command: doc! {"find": COLLECTION, "sort": {"_id": 1}} });
    one_case(actions)
}

fn choose<T: Copy>(random: &mut StdRng, list: &[T]) -> T {
    *list.choose(random).expect("not empty")
}

/// A word of the language, or now and then of another one.
fn word(random: &mut StdRng, language: &str) -> String {
    let own = VOCABULARIES.iter().find(|(name, _)| *name == language && random.random_bool(0.85));
    let (_, words) = own.copied().unwrap_or_else(|| choose(random, &VOCABULARIES));
    let words: Vec<&str> = words.split_whitespace().collect();
    let word = choose(random, &words);
    match random.random_range(0..10) {
        0 => word.to_uppercase(),
        1 => word.to_lowercase(),
        _ => word.to_owned(),
    }
}

fn text(random: &mut StdRng, language: &str) -> String {
    let mut text = String::new();
    for at in 0..random.random_range(0..9) {
        if at > 0 {
            text += choose(random, &GAPS);
        }
        text += &word(random, language);
    }
    text
}

fn document(random: &mut StdRng, language: &str, id: i32) -> Document {
    let mut document = doc! {"_id": id, "k": random.random_range(0..3)};
    if random.random_bool(0.8) {
        document.push("title", text(random, language));
    }
    if random.random_bool(0.7) {
        document.push("body", text(random, language));
    }
    match random.random_range(0..6) {
        0 | 1 => {
            let tags: Vec<Value> =
                (0..random.random_range(0..4)).map(|_| Value::from(text(random, language))).collect();
            document.push("tags", tags);
        }
        2 => document.push("tags", random.random_range(0..5)),
        _ => {}
    }
    if random.random_bool(0.3) {
        let mut parts = Vec::new();
        for _ in 0..random.random_range(1..3) {
            let mut part = doc! {"text": text(random, language)};
            if random.random_bool(0.4) {
                part.push("language", choose(random, &VOCABULARIES).0);
            }
            parts.push(Value::Document(part));
        }
        match parts.len() {
            1 => document.push("sub", parts.remove(0)),
            _ => document.push("sub", parts),
        }
    }
    match random.random_range(0..12) {
        0 | 1 => document.push("language", choose(random, &VOCABULARIES).0),
        2 => document.push("idioma", choose(random, &VOCABULARIES).0),
        3 => document.push("language", choose(random, &["klingon", "", "de", "FRENCH"])),
        _ => {}
    }
    document
}

fn index(random: &mut StdRng, language: &str) -> Document {
    let mut fields: Vec<&str> = FIELDS.to_vec();
    fields.retain(|_| random.random_bool(0.6));
    let mut key = Document::new();
    if random.random_bool(0.15) {
        key.push("k", 1);
    }
    if fields.is_empty() || random.random_bool(0.2) {
        key.push("$**", "text");
    } else {
        fields.iter().for_each(|field| key.push(field, "text"));
    }
    if key.get("k").is_none() && random.random_bool(0.15) {
        key.push("k", -1);
    }
    let mut index = doc! {"key": key, "name": "words"};
    if random.random_bool(0.8) {
        index.push("default_language", language);
    }
    if random.random_bool(0.3) && !fields.is_empty() {
        let weights: Document =
            fields.iter().map(|field| (*field, Value::Int32(choose(random, &[1, 2, 10, 99_999])))).collect();
        index.push("weights", weights);
    }
    if random.random_bool(0.15) {
        index.push("language_override", "idioma");
    }
    match random.random_range(0..12) {
        0..3 => index.push("textIndexVersion", 2),
        3 => index.push("textIndexVersion", 3),
        _ => {}
    }
    if random.random_bool(0.1) {
        index.push("partialFilterExpression", doc! {"k": {"$gt": 0}});
    }
    doc! {"createIndexes": COLLECTION, "indexes": [index]}
}

/// A search string: words, phrases, and either of them negated.
fn search(random: &mut StdRng, language: &str) -> String {
    let mut search = String::new();
    for _ in 0..choose(random, &[0, 1, 1, 1, 2, 2, 3, 4]) {
        if !search.is_empty() {
            search += choose(random, &[" ", " ", " ", "  ", ",", "-", "\t"]);
        }
        if random.random_bool(0.2) {
            search += "-";
        }
        if random.random_bool(0.25) {
            let words: Vec<String> = (0..random.random_range(0..4)).map(|_| word(random, language)).collect();
            search += &format!("\"{}\"", words.join(choose(random, &GAPS)));
        } else {
            search += &word(random, language);
        }
    }
    if random.random_bool(0.05) {
        search += "\"";
    }
    search
}

fn condition(random: &mut StdRng, language: &str) -> Document {
    let mut condition = doc! {"$search": search(random, language)};
    if random.random_bool(0.25) {
        condition
            .push("$language", choose(random, &["english", "german", "none", "fr", "turkish", "klingon"]));
    }
    if random.random_bool(0.2) {
        condition.push("$caseSensitive", random.random_bool(0.8));
    }
    if random.random_bool(0.2) {
        condition.push("$diacriticSensitive", random.random_bool(0.8));
    }
    condition
}

fn filter(random: &mut StdRng, language: &str) -> Document {
    let mut filter = doc! {"$text": condition(random, language)};
    match random.random_range(0..10) {
        0..3 => filter.push("k", random.random_range(0..3)),
        3 => filter.push("k", doc! {"$gt": 0}),
        4 => filter.push("_id", doc! {"$lt": 6}),
        5 => {
            let text = filter;
            filter = doc! {"$or": [text, {"k": 1}]};
        }
        _ => {}
    }
    filter
}

fn question(random: &mut StdRng, language: &str, count: i32) -> Action {
    let score = doc! {"$meta": "textScore"};
    let sort = doc! {"score": score.clone(), "_id": 1};
    let mut filter = filter(random, language);
    match random.random_range(0..20) {
        0..8 => {
            let mut find =
                doc! {"find": COLLECTION, "filter": filter, "projection": {"score": score}, "sort": sort};
            if random.random_bool(0.3) {
                find.push("limit", random.random_range(1..4));
            }
            Action::Docs { unordered: false, command: find }
        }
        8 | 9 => Action::Docs { unordered: true, command: doc! {"find": COLLECTION, "filter": filter} },
        10 => Action::Run(doc! {"count": COLLECTION, "query": filter}),
        11 => Action::Docs {
            unordered: true,
            command: doc! {"distinct": COLLECTION, "key": "_id", "query": filter},
        },
        12..16 => {
            let mut pipeline = vec![doc! {"$match": filter}];
            match random.random_range(0..4) {
                0 => pipeline.push(doc! {"$sort": sort}),
                1 => {
                    pipeline.push(doc! {"$project": {"score": score}});
                    pipeline.push(doc! {"$match": {"score": {"$gt": 1}}});
                    pipeline.push(doc! {"$sort": {"score": 1, "_id": 1}});
                }
                2 => pipeline.push(doc! {"$group": {"_id": "$k", "best": {"$max": score}, "n": {"$sum": 1}}}),
                _ => {
                    pipeline.push(doc! {"$addFields": {"score": {"$multiply": [score, 2]}}});
                    pipeline.push(doc! {"$sort": {"score": -1, "_id": -1}});
                    pipeline.push(doc! {"$limit": 3});
                }
            }
            let unordered = pipeline.iter().any(|stage| stage.get("$group").is_some());
            Action::Docs {
                unordered,
                command: doc! {"aggregate": COLLECTION, "pipeline": pipeline, "cursor": {}},
            }
        }
        16 => {
            let statement = doc! {"q": filter, "u": {"$inc": {"n": 1}}, "multi": true};
            Action::Run(doc! {"update": COLLECTION, "updates": [statement]})
        }
        17 => Action::Run(doc! {"delete": COLLECTION, "deletes": [{"q": filter, "limit": 0}]}),
        18 => {
            let id = random.random_range(0..count + 3);
            let new = document(random, language, id);
            filter = doc! {"_id": id};
            let statement = doc! {"q": filter, "u": new, "upsert": true};
            Action::Run(doc! {"update": COLLECTION, "updates": [statement]})
        }
        _ => {
            let field = choose(random, &FIELDS);
            let statement = doc! {
                "q": {"_id": random.random_range(0..count)}, "u": {"$set": {field: text(random, language)}},
            };
            Action::Run(doc! {"update": COLLECTION, "updates": [statement]})
        }
    }
}
