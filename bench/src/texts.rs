//! Articles with a text index: built, searched with the best first, and inserted.

use kilim_bson::{Document, doc};
use kilim_testkit::link::{Fault, Link, check_reply, message};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::data::mix;
use crate::patterns::{Contest, Entrant, KILIM, MONGOD, is_new, load};
use crate::workload::{Leaves, Operation, Place, Target, counted, durable, fresh_ids};

const ARTICLES: i32 = 100_000;
/// Articles are made and sent in so many at once.
const BATCH: i32 = 10_000;
/// Words of an article: about 1 KB.
const WORDS: u64 = 150;
const VOCABULARY: u64 = 20_000;
const DATABASE: &str = "texts";

pub fn all() -> Vec<Contest> {
    use Target::CpuAtMost;
    let contest = |name, writes, operations, prepare, make, target| {
        let entrant =
            |name, server| Entrant::new(name, server, operations, Leaves::of(writes), prepare, make);
        let entrants = vec![entrant("kilim", KILIM), entrant("mongod", MONGOD)];
        Contest { name, entrants, claims: vec![(1, target)] }
    };
    vec![
        contest("text_build", true, 2, filled, build, CpuAtMost(0.5)),
        contest("text_search", false, 200, indexed, search, CpuAtMost(0.4)),
        contest("text_insert", true, 1_000, indexed, insert, CpuAtMost(0.4)),
    ]
}

/// Frequent words come first, as in a language.
fn word(random: u64) -> String {
    let spread = (random % VOCABULARY) * (mix(random) % VOCABULARY) / VOCABULARY;
    let endings = ["", "s", "ing", "ed", "ation", "ly"];
    let letters = (0..4).map(|at| char::from(b'a' + (mix(spread ^ at << 40) % 26) as u8));
    let stem: String = letters.collect();
    format!("{stem}{}", endings[(spread % 6) as usize])
}

fn article(id: i32) -> Document {
    let words = (0..WORDS).map(|at| word(mix((id as u64) << 20 | at)));
    doc! {"_id": id, "text": words.collect::<Vec<_>>().join(" ")}
}

fn create_index(link: &mut Link) -> Result<(), Fault> {
    let index = doc! {"key": {"text": "text"}, "name": "text"};
    let create = doc! {"createIndexes": "articles", "indexes": [index], "$db": DATABASE};
    check_reply(link.exchange(&message(&create))?)
}

fn filled(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, DATABASE, "articles")? {
        return Ok(());
    }
    for first in (0..ARTICLES).step_by(BATCH as usize) {
        load(link, DATABASE, "articles", (first..first + BATCH).map(article))?;
    }
    Ok(())
}

fn indexed(link: &mut Link) -> Result<(), Fault> {
    filled(link)?;
    create_index(link)
}

fn build(_: Place) -> Operation {
    Box::new(|link| {
        let drop = doc! {"dropIndexes": "articles", "index": "*", "$db": DATABASE};
        check_reply(link.exchange(&message(&drop))?)?;
        create_index(link)
    })
}

/// Two words, the ten best articles.
fn search(place: Place) -> Operation {
    let mut rng = StdRng::seed_from_u64(place.turn as u64);
    Box::new(move |link| {
        let words = format!("{} {}", word(rng.random()), word(rng.random()));
        let score = doc! {"score": {"$meta": "textScore"}};
        let find = doc! {
            "find": "articles",
            "filter": {"$text": {"$search": words}},
            "projection": score.clone(),
            "sort": score,
            "limit": 10,
            "singleBatch": true,
            "$db": DATABASE,
        };
        check_reply(link.exchange(&message(&find))?)
    })
}

fn insert(place: Place) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let document = article(ARTICLES + ids.next().expect("ids do not end"));
        let insert =
            doc! {"insert": "articles", "documents": [document], "writeConcern": durable(), "$db": DATABASE};
        counted(link.exchange(&message(&insert))?, 1)
    })
}
