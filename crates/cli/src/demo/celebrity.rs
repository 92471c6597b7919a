//! A celebrity among users: an array that is far longer than all others.
//!
//! By hand, the first followers are in the document and the rest in another collection, as recipes say. Declared, the array is
//! one for filters and updates, wherever its elements lie.

use anyhow::Result;
use kilim_bson::{Document, Value, doc};
use kilim_client::{Client, whole};

use super::{BY_HAND, DECLARED};
use crate::connect::explained;
use crate::output::say;
use crate::text::grouped;

const FOLLOWERS: i32 = 20_000;
const INLINE: i32 = 500;

/// Follows the celebrity once more by both ways; whether the declared array has everybody once.
pub(super) fn show(client: &mut Client) -> Result<bool> {
    let celebrity = doc! {"_id": "celebrity", "followers": names(0..INLINE), "hasOverflow": true};
    client.run(BY_HAND, doc! {"insert": "fans", "documents": [celebrity]})?;
    let rest = doc! {"of": "celebrity", "followers": names(INLINE..FOLLOWERS)};
    client.run(BY_HAND, doc! {"insert": "fans_rest", "documents": [rest]})?;
    let declaration = doc! {"createPattern": "fans", "name": "famous", "outlier": {
        "field": "followers", "limit": INLINE, "count": "followerCount",
    }};
    client.run(DECLARED, declaration).map_err(explained)?;
    let celebrity = doc! {"_id": "celebrity", "followers": names(0..FOLLOWERS)};
    client.run(DECLARED, doc! {"insert": "fans", "documents": [celebrity]})?;
    let known = format!("f{}", FOLLOWERS - 1);
    let follow = doc! {"q": {"_id": "celebrity"}, "u": {"$addToSet": {"followers": &*known}}};
    let mut seen = Vec::new();
    for database in [BY_HAND, DECLARED] {
        let found = count(client, database, "fans", &doc! {"followers": &*known})?;
        let followed = client.run(database, doc! {"update": "fans", "updates": [follow.clone()]})?;
        seen.push((found, whole(followed.get("nModified")).unwrap_or(0)));
    }
    let size = count(client, DECLARED, "fans", &doc! {"followers": {"$size": FOLLOWERS}})?;
    let pages = count(client, DECLARED, "fans.overflow", &doc! {})?;
    say!(
        "A celebrity has {} followers. Kept by hand in two collections, a filter for the last one finds {}, and following again \
         counts {} twice.\nDeclared: it finds {}, {} counted twice, and the array lies in {} pages beside its document.\n",
        grouped(i64::from(FOLLOWERS)),
        seen[0].0,
        seen[0].1,
        seen[1].0,
        seen[1].1,
        grouped(pages),
    )?;
    Ok(seen[1] == (1, 0) && size == 1)
}

fn names(range: std::ops::Range<i32>) -> Vec<Value> {
    range.map(|number| Value::from(format!("f{number}"))).collect()
}

fn count(client: &mut Client, database: &str, collection: &str, query: &Document) -> Result<i64> {
    let reply = client.run(database, doc! {"count": collection, "query": query.clone()})?;
    Ok(whole(reply.get("n")).unwrap_or(0))
}
