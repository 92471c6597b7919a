//! A celebrity: an array that grows beyond what a document holds, cut off by hand and declared.
//!
//! By hand, an application puts followers beyond the first ones into another collection and sets a flag. Queries that do not
//! know of the flag miss them, and whoever follows twice is counted twice. The same commands run over the declared array.

use anyhow::{Context, Result};
use kilim_bson::{Array, Document, RawValue, Value, doc};
use kilim_client::{Client, whole};

use super::{BY_HAND, DECLARED};
use crate::connect::explained;
use crate::output::say;
use crate::text::grouped;

/// Followers, of whom each tenth follows a second time, but for those of the last batch.
const FOLLOWERS: i64 = 20_000;
const TWICE: i64 = 10;
const INLINE: i64 = 500;
const AT_ONCE: i64 = 1_000;
/// Of so many followers it is asked whom they follow.
const ASKED: i64 = 200;

/// Lets both celebrities gain followers; whether the declared one is right in everything.
pub(super) fn show(client: &mut Client) -> Result<bool> {
    let kind = doc! {"field": "followers", "limit": INLINE, "count": "followerCount"};
    client
        .run(DECLARED, doc! {"createPattern": "stars", "name": "fans", "outlier": kind})
        .map_err(explained)?;
    for database in [BY_HAND, DECLARED] {
        let star = doc! {"_id": "celebrity", "followers": Array::new()};
        client.run(database, doc! {"insert": "stars", "documents": [star]})?;
    }
    follow_by_hand(client)?;
    follow_declared(client)?;
    let by_hand = Told::of(client, BY_HAND)?;
    let declared = Told::of(client, DECLARED)?;
    let verify = client.run(DECLARED, doc! {"verifyPattern": "stars", "name": "fans"}).map_err(explained)?;
    say!(
        "A celebrity with {} followers, of whom {} follow twice. Overflow by hand: {} of {ASKED} followers are not found,\n\
         and {} are counted. Declared: {} are not found, and {} are counted; the document has {} of them inline.\n",
        grouped(FOLLOWERS),
        grouped((FOLLOWERS - AT_ONCE) / TWICE),
        grouped(by_hand.missed),
        grouped(by_hand.count),
        grouped(declared.missed),
        grouped(declared.count),
        grouped(declared.inline),
    )?;
    let is_true =
        declared.missed == 0 && declared.count == FOLLOWERS && whole(verify.get("wrong")) == Some(0);
    Ok(is_true && declared.inline <= INLINE)
}

/// What queries say of a celebrity.
struct Told {
    missed: i64,
    count: i64,
    inline: i64,
}

impl Told {
    fn of(client: &mut Client, database: &str) -> Result<Told> {
        let mut missed = 0;
        for at in 0..ASKED {
            let follower = at * (FOLLOWERS / ASKED);
            let found = client.run(database, doc! {"count": "stars", "query": {"followers": follower}})?;
            missed += i64::from(whole(found.get("n")) != Some(1));
        }
        let star = client.all(database, doc! {"find": "stars"})?;
        let star = star.first().context("the celebrity is gone")?;
        let inline = match star.get("followers") {
            Some(RawValue::Array(followers)) => followers.len() as i64,
            _ => 0,
        };
        let kept = whole(star.get("followerCount"));
        Ok(Told { missed, count: kept.context("a celebrity without a count")?, inline })
    }
}

/// Batches of followers as they come: each tenth comes again with the next batch.
fn batches() -> impl Iterator<Item = Vec<i64>> {
    let mut again = Vec::new();
    (0..FOLLOWERS / AT_ONCE).map(move |batch| {
        let mut followers = std::mem::take(&mut again);
        let own = batch * AT_ONCE..(batch + 1) * AT_ONCE;
        again.extend(own.clone().filter(|follower| follower % TWICE == 0));
        followers.extend(own);
        followers
    })
}

fn values(followers: &[i64]) -> Array {
    followers.iter().copied().map(Value::Int64).collect()
}

fn update(
    client: &mut Client,
    database: &str,
    collection: &str,
    filter: Document,
    change: Document,
) -> Result<()> {
    let update = doc! {"q": filter, "u": change, "upsert": collection != "stars"};
    client.run(database, doc! {"update": collection, "updates": [update]}).map_err(explained)?;
    Ok(())
}

/// As the pattern is told: the first ones inline, the others beside, a flag and a count.
fn follow_by_hand(client: &mut Client) -> Result<()> {
    let mut inline = 0;
    for (number, followers) in batches().enumerate() {
        let room = (INLINE - inline).clamp(0, followers.len() as i64) as usize;
        let (first, rest) = followers.split_at(room);
        inline += room as i64;
        let change = doc! {
            "$addToSet": {"followers": {"$each": values(first)}},
            "$inc": {"followerCount": followers.len() as i64},
            "$set": {"hasOverflow": !rest.is_empty()},
        };
        update(client, BY_HAND, "stars", doc! {"_id": "celebrity"}, change)?;
        if !rest.is_empty() {
            let page = doc! {"_id": {"of": "celebrity", "page": number as i32}};
            let change = doc! {"$addToSet": {"followers": {"$each": values(rest)}}};
            update(client, BY_HAND, "stars_overflow", page, change)?;
        }
    }
    Ok(())
}

fn follow_declared(client: &mut Client) -> Result<()> {
    for followers in batches() {
        let change = doc! {"$addToSet": {"followers": {"$each": values(&followers)}}};
        update(client, DECLARED, "stars", doc! {"_id": "celebrity"}, change)?;
    }
    Ok(())
}
