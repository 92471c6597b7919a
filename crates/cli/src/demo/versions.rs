//! Two versions of an application at once: a field moves while both run.
//!
//! By hand, a reader that meets an old document converts it and writes it back, as recipes say; a client that counts logins
//! writes between the two. Declared, the old application counts under the name of the old version, the new one under that of the
//! collection, and a job converts what is stored.

use anyhow::{Context, Result, anyhow};
use kilim_bson::{Document, doc};
use kilim_client::{Client, Uri, whole};

use super::{BY_HAND, DECLARED, shop};
use crate::connect::explained;
use crate::output::say;
use crate::text::grouped;

const USERS: i32 = 400;

/// Converts both collections while clients write; whether the declared one lost nothing and was found whole.
pub(super) fn show(client: &mut Client, uri: &Uri) -> Result<bool> {
    let users: Vec<Document> = (0..USERS)
        .map(|id| doc! {"_id": id, "phone": format!("555-{id}"), "old": 0, "new": 0, "schemaVersion": 1})
        .collect();
    for database in [BY_HAND, DECLARED] {
        client.run(database, doc! {"insert": "users", "documents": users.clone()})?;
    }
    let new_shape = doc! {"phone.number": {"$exists": true}};
    let found_by_hand = count(client, BY_HAND, &new_shape)?;
    client.run(DECLARED, declaration()).map_err(explained)?;
    let found = count(client, DECLARED, &new_shape)?;
    std::thread::scope(|scope| {
        let workers = [
            scope.spawn(|| logins(uri, BY_HAND, "users", "old")),
            scope.spawn(|| convert_by_hand(uri)),
            scope.spawn(|| logins(uri, DECLARED, "users@1", "old")),
            scope.spawn(|| logins(uri, DECLARED, "users", "new")),
        ];
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a client panicked"))?)
    })?;
    let lost_by_hand = i64::from(USERS) - sum(client, BY_HAND, "old")?;
    let lost = 2 * i64::from(USERS) - sum(client, DECLARED, "old")? - sum(client, DECLARED, "new")?;
    let completed =
        client.run(DECLARED, doc! {"completeVersion": "users", "name": "phones"}).map_err(explained);
    completed.context("the version is completed")?;
    let left = count(client, DECLARED, &doc! {"schemaVersion": 2, "phone.number": {"$exists": true}})?;
    say!(
        "A field moves while two versions of the application run. Converted by hand when read, the new filter finds {} of {} \
         users\nat first, and {} logins are lost. Declared: it finds {} at once, {} are lost, and {} are stored in the new version.\n",
        grouped(found_by_hand),
        grouped(i64::from(USERS)),
        grouped(lost_by_hand),
        grouped(found),
        grouped(lost),
        grouped(left),
    )?;
    Ok(found == i64::from(USERS) && lost == 0 && left == i64::from(USERS))
}

fn declaration() -> Document {
    doc! {"createPattern": "users", "name": "phones", "schemaVersion": {
        "field": "schemaVersion", "from": 1, "to": 2,
        "up": [{"$set": {"phone": {"countryCode": "+1", "number": "$phone"}}}],
        "down": [{"$set": {"phone": "$phone.number"}}],
        "background": {"batch": 16, "throttleMs": 1},
    }}
}

/// Every user logs in once.
fn logins(uri: &Uri, database: &str, collection: &str, field: &str) -> Result<()> {
    let mut client = Client::connect(uri.address()).context("a client cannot connect")?;
    for id in 0..USERS {
        let update = doc! {"q": {"_id": id}, "u": {"$inc": {(field): 1}}};
        client.run(database, doc! {"update": collection, "updates": [update]}).map_err(explained)?;
    }
    Ok(())
}

/// Reads every user and writes those of the old version back in the new one.
fn convert_by_hand(uri: &Uri) -> Result<()> {
    let mut client = Client::connect(uri.address()).context("a client cannot connect")?;
    for id in 0..USERS {
        for user in client.all(BY_HAND, doc! {"find": "users", "filter": {"_id": id}})? {
            let mut converted = Document::new();
            for (name, value) in user.iter() {
                match name {
                    "phone" => converted.push(name, doc! {"countryCode": "+1", "number": value.to_value()}),
                    "schemaVersion" => converted.push(name, 2),
                    _ => converted.push(name, value),
                }
            }
            let update = doc! {"q": {"_id": id}, "u": converted};
            client.run(BY_HAND, doc! {"update": "users", "updates": [update]})?;
        }
    }
    Ok(())
}

fn count(client: &mut Client, database: &str, filter: &Document) -> Result<i64> {
    let counted = client.run(database, doc! {"count": "users", "query": filter.clone()})?;
    whole(counted.get("n")).context("count tells no number")
}

fn sum(client: &mut Client, database: &str, field: &str) -> Result<i64> {
    let users = shop::all(client, database, "users")?;
    Ok(users.iter().filter_map(|user| whole(user.get(field))).sum())
}
