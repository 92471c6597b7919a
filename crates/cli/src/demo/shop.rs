//! The shop: what it begins with, and what is declared over it.

use anyhow::Result;
use kilim_bson::{Array, Document, Value, array, doc};
use kilim_client::{Client, Fault};

use crate::connect::explained;

pub(super) const CUSTOMERS: i32 = 60;
pub(super) const PRODUCTS: i32 = 24;
const ORDERS: i32 = 240;
const REVIEWS_EACH: i32 = 8;
/// How many reviews a product page shows.
pub(super) const RECENT: i32 = 5;
pub(super) const TAX: f64 = 0.08;

const FIRST_NAMES: [&str; 12] =
    ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gül", "Hugo", "Ines", "Jan", "Kaja", "Liv"];
const LAST_NAMES: [&str; 10] =
    ["Berg", "Costa", "Dahl", "Erdem", "Fox", "Gray", "Holm", "Ito", "Jansen", "Kaya"];
const THINGS: [&str; 6] = ["Rug", "Loom", "Shuttle", "Wool", "Dye", "Comb"];

/// A customer's name after so many renames.
pub(super) fn name(customer: i32, renamed: i32) -> String {
    let first = FIRST_NAMES[customer as usize % FIRST_NAMES.len()];
    let last = LAST_NAMES[(customer + renamed) as usize % LAST_NAMES.len()];
    match renamed / LAST_NAMES.len() as i32 {
        0 => format!("{first} {last}"),
        again => format!("{first} {last} {}", again + 1),
    }
}

pub(super) fn email(customer: i32, renamed: i32) -> String {
    format!("c{customer}.{renamed}@example.org")
}

pub(super) fn customer(id: i32) -> Document {
    doc! {"_id": id, "name": name(id, 0), "email": email(id, 0), "tier": ["silver", "gold"][id as usize % 2],
    "address": {"city": "Konya"}}
}

pub(super) fn review(id: i32, product: i32, user: i32, rating: i32, date: i64) -> Document {
    doc! {"_id": id, "productId": product, "userId": user, "rating": rating, "text": format!("{rating} of 5"),
    "date": Value::DateTime(date)}
}

pub(super) fn item(product: i32, qty: i32) -> Document {
    doc! {"productId": product, "qty": qty, "price": price(product)}
}

/// In whole cents, so that two ways of adding up agree but for rounding.
pub(super) fn price(product: i32) -> f64 {
    f64::from(product * 7 + 5) + 0.25
}

/// 2024-03-01, when the shop opened.
pub(super) const OPENED: i64 = 1_709_251_200_000;

/// Loads a shop whose copies, counts and subsets are right: the recipes begin with the truth.
pub(super) fn load(client: &mut Client, database: &str) -> Result<()> {
    let mut products = Vec::new();
    let mut reviews = Vec::new();
    for product in 0..PRODUCTS {
        let mut recent = Vec::new();
        let mut sum = 0;
        for number in 0..REVIEWS_EACH {
            let id = product * REVIEWS_EACH + number;
            let rating = 1 + (product + number * 3) % 5;
            sum += rating;
            let review = review(id, product, id % CUSTOMERS, rating, OPENED + i64::from(id) * 1000);
            recent.insert(0, Value::Document(in_page(&review)));
            reviews.push(Value::Document(review));
        }
        recent.truncate(RECENT as usize);
        let thing = THINGS[product as usize % THINGS.len()];
        products.push(Value::Document(doc! {
            "_id": product, "name": format!("{thing} No. {product}"), "price": price(product),
            "reviewCount": REVIEWS_EACH, "avgRating": f64::from(sum) / f64::from(REVIEWS_EACH),
            "recentReviews": Value::Array(recent.into_iter().collect::<Array>()),
        }));
    }
    let customers = (0..CUSTOMERS).map(|id| Value::Document(customer(id)));
    let orders = (0..ORDERS).map(|id| {
        let (who, product) = (id % CUSTOMERS, id % PRODUCTS);
        let subtotal = price(product);
        Value::Document(doc! {
            "_id": id, "customerId": who,
            "customer": {"name": name(who, 0), "email": email(who, 0), "tier": ["silver", "gold"][who as usize % 2]},
            "items": Value::Array(array![{"productId": product, "qty": 1, "price": price(product)}]),
            "subtotal": subtotal, "tax": subtotal * TAX, "total": subtotal + subtotal * TAX,
        })
    });
    for (collection, documents) in [
        ("customers", customers.collect::<Array>()),
        ("products", products.into_iter().collect()),
        ("reviews", reviews.into_iter().collect()),
        ("orders", orders.collect()),
    ] {
        client.run(database, doc! {"insert": collection, "documents": Value::Array(documents)})?;
    }
    // What the recipes look for.
    client.run(
        database,
        doc! {"createIndexes": "reviews", "indexes": [{"key": {"productId": 1, "date": -1}, "name": "newest"}]},
    )?;
    client.run(
        database,
        doc! {"createIndexes": "orders", "indexes": [{"key": {"customer.email": 1}, "name": "email"}]},
    )?;
    Ok(())
}

/// What a product page keeps of a review.
pub(super) fn in_page(review: &Document) -> Document {
    ["_id", "userId", "rating", "text", "date"]
        .into_iter()
        .filter_map(|field| Some((field, review.get(field)?.to_value())))
        .collect()
}

/// The declarations that replace the recipes.
pub(super) fn declarations() -> [Document; 4] {
    [
        doc! {"createPattern": "orders", "name": "customerCard", "extendedReference": {
        "from": "customers", "localField": "customerId", "foreignField": "_id", "as": "customer",
        "fields": {"name": 1, "email": 1, "tier": 1}}},
        doc! {"createPattern": "orders", "name": "totals", "computed": {"set": {
        "subtotal": {"$sum": {"$map": {"input": "$items", "in": {"$multiply": ["$$this.qty", "$$this.price"]}}}},
        "tax": {"$multiply": ["$subtotal", TAX]},
        "total": {"$add": ["$subtotal", "$tax"]}}}},
        doc! {"createPattern": "products", "name": "reviewStats", "computed": {"from": "reviews", "pipeline": [
        {"$group": {"_id": "$productId", "reviewCount": {"$count": {}}, "avgRating": {"$avg": "$rating"}}}]}},
        doc! {"createPattern": "products", "name": "recent", "subset": {
        "from": "reviews", "localField": "_id", "foreignField": "productId", "as": "recentReviews",
        "sort": {"date": -1}, "limit": RECENT, "fields": {"userId": 1, "rating": 1, "text": 1, "date": 1}}},
    ]
}

/// Declares, and waits until all is filled.
pub(super) fn declare(client: &mut Client, database: &str) -> Result<()> {
    for declaration in declarations() {
        client.run(database, declaration).map_err(explained)?;
    }
    for (collection, name) in names() {
        client
            .run(database, doc! {"waitPattern": collection, "name": name, "timeoutMS": 60_000})
            .map_err(explained)?;
    }
    Ok(())
}

pub(super) fn names() -> [(&'static str, &'static str); 4] {
    [("orders", "customerCard"), ("orders", "totals"), ("products", "reviewStats"), ("products", "recent")]
}

/// All documents of a collection.
pub(super) fn all(client: &mut Client, database: &str, collection: &str) -> Result<Vec<Document>, Fault> {
    client.all(database, doc! {"find": collection})
}
