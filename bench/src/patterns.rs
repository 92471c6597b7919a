//! Declared patterns against what they replace: the same shop kept by declarations and by hand.
//!
//! A contest has several entrants, which are measured in turns, each in a database of its own: Kilim with declarations,
//! Kilim without any, Kilim with the recipe that an application would write, and mongod with that recipe. Its rows set
//! the declared entrant against each of the others.

use kilim_bson::{Document, Value, doc};
use kilim_testkit::link::{Fault, Link, check_reply, message, whole};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::data::mix;
use crate::workload::{Leaves, Operation, Place, Target, Workload, counted, durable, found, fresh_ids};

/// The servers, as they stand in the list of those that run.
pub const KILIM: usize = 0;
pub const MONGOD: usize = 1;

/// A way to do the same thing.
pub struct Entrant {
    pub name: &'static str,
    pub server: usize,
    pub workload: Workload,
}

impl Entrant {
    /// By one connection, with nothing before a round. What it is to reach, the contest says.
    pub fn new(
        name: &'static str,
        server: usize,
        operations: usize,
        leaves: Leaves,
        prepare: fn(&mut Link) -> Result<(), Fault>,
        make: fn(Place) -> Operation,
    ) -> Entrant {
        let (connections, target) = (1, Target::Told);
        let before = |_: &mut Link, _| Ok(());
        let workload = Workload { name, connections, operations, target, leaves, prepare, before, make };
        Entrant { name, server, workload }
    }
}

pub struct Contest {
    pub name: &'static str,
    /// The declared way first.
    pub entrants: Vec<Entrant>,
    /// What the declared way is to reach, set against one of the others.
    pub claims: Vec<(usize, Target)>,
}

const PRODUCTS: i32 = 1_000;
/// Reviews that each product has before the first is measured, more than a subset shows.
const REVIEWS_EACH: i32 = 8;
/// The product whose page is read, and its reviews.
const PAGE_REVIEWS: i32 = 2_847;
const CUSTOMERS: i32 = 20;
const ORDERS_EACH: i32 = 1_000;
/// The newest date that is loaded; what is written later is newer.
const LOADED_UNTIL: i64 = 1_700_000_000_000;

pub fn all() -> Vec<Contest> {
    use Target::{CpuAtMost, RateAtLeast, Told};
    let entrant = |name, server, connections, operations, prepare, make| {
        let before = |_: &mut Link, _| Ok(());
        let target = Told;
        let workload =
            Workload { name, connections, operations, target, leaves: Leaves::Some, prepare, before, make };
        Entrant { name, server, workload }
    };
    let read = |mut entrant: Entrant| {
        entrant.workload.leaves = Leaves::Nothing;
        entrant
    };
    let inserts = |name, connections, operations, claims| Contest {
        name,
        entrants: vec![
            entrant("declared", KILIM, connections, operations, declared, declared_review),
            entrant("plain, one index", KILIM, connections, operations, plain, plain_review),
            entrant("plain, no index", KILIM, connections, operations, bare, bare_review),
            entrant("by hand", KILIM, connections, operations, by_hand, review_by_hand),
            entrant("mongod by hand", MONGOD, connections, operations, by_hand, review_by_hand),
        ],
        claims,
    };
    let variants = |connections, operations| Contest {
        name: "variant_insert",
        entrants: vec![
            entrant("declared", KILIM, connections, operations, declared_items, declared_item),
            entrant("oneOf validator", KILIM, connections, operations, validated_items, validated_item),
            entrant(
                "mongod oneOf validator",
                MONGOD,
                connections,
                operations,
                validated_items,
                validated_item,
            ),
            entrant("plain", KILIM, connections, operations, plain_items, plain_item),
        ],
        claims: vec![(1, CpuAtMost(1.3)), (2, CpuAtMost(1.0)), (3, Told)],
    };
    let by_cpu = || vec![(1, CpuAtMost(2.0)), (2, Told), (3, CpuAtMost(1.0)), (4, Told)];
    vec![
        inserts("review_insert", 1, 1_000, by_cpu()),
        inserts("review_insert", 16, 6_000, by_cpu()),
        variants(1, 2_000),
        variants(16, 8_000),
        Contest {
            name: "one_product",
            entrants: vec![
                entrant("declared", KILIM, 16, 6_000, declared, declared_review_of_one),
                entrant("plain, one index", KILIM, 16, 6_000, plain, plain_review_of_one),
                entrant("by hand", KILIM, 16, 6_000, by_hand, review_of_one_by_hand),
                entrant("mongod by hand", MONGOD, 16, 6_000, by_hand, review_of_one_by_hand),
            ],
            claims: vec![(1, RateAtLeast(0.5)), (2, Told), (3, Told)],
        },
        Contest {
            name: "fan_out",
            entrants: vec![
                entrant("declared", KILIM, 1, 20, declared_orders, rename_declared),
                entrant("mongod updateMany", MONGOD, 1, 20, plain_orders, rename_by_hand),
                entrant("updateMany", KILIM, 1, 20, plain_orders, rename_by_hand),
            ],
            claims: vec![(1, CpuAtMost(1.0)), (2, Told)],
        },
        Contest {
            name: "page_read",
            entrants: vec![
                read(entrant("declared", KILIM, 1, 5_000, declared_page, read_page)),
                read(entrant("$lookup+$group", KILIM, 1, 20, plain_page, compute_page)),
                read(entrant("mongod $lookup+$group", MONGOD, 1, 20, plain_page, compute_page)),
            ],
            claims: vec![(1, CpuAtMost(0.01)), (2, Told)],
        },
        Contest {
            name: "newest_deleted",
            entrants: vec![
                entrant("declared", KILIM, 1, 300, declared_page, delete_newest_declared),
                entrant("plain, one index", KILIM, 1, 300, plain_page, delete_newest_plain),
            ],
            claims: vec![(1, Told)],
        },
    ]
}

fn product(id: i32) -> Document {
    doc! {
        "_id": id,
        "title": format!("product {id}"),
        "price": (mix(id as u64) % 10_000) as f64 / 100.0,
        "description": "y".repeat(200),
    }
}

/// A few lines of text, as reviews are.
fn review(id: i32, product: i32, date: i64) -> Document {
    let random = mix(id as u64);
    doc! {
        "_id": id,
        "productId": product,
        "userId": (random % 100_000) as i32,
        "rating": (random >> 20) as i32 % 5 + 1,
        "text": format!("review {id}: {}", "it does what it says, more or less. ".repeat(4)),
        "date": Value::DateTime(date),
    }
}

fn shown(review: &Document) -> Document {
    let mut shown = Document::new();
    for name in ["_id", "userId", "rating", "text", "date"] {
        shown.push(name, review.get(name).map(kilim_bson::RawValue::to_value));
    }
    shown
}

/// Whether a database has to be filled first.
pub fn is_new(link: &mut Link, database: &str, collection: &str) -> Result<bool, Fault> {
    Ok(whole(link.run(database, doc! {"count": collection})?.get("n")) == Some(0))
}

pub fn load(
    link: &mut Link,
    database: &str,
    collection: &str,
    documents: impl Iterator<Item = Document>,
) -> Result<(), Fault> {
    let documents: Vec<Document> = documents.collect();
    for batch in documents.chunks(1000) {
        link.run(database, doc! {"insert": collection, "documents": batch.to_vec(), "ordered": false})?;
    }
    Ok(())
}

pub fn index(
    link: &mut Link,
    database: &str,
    collection: &str,
    key: Document,
    name: &str,
) -> Result<(), Fault> {
    let index = doc! {"key": key, "name": name};
    link.run(database, doc! {"createIndexes": collection, "indexes": [index]}).map(drop)
}

/// Reviews before anything is measured, the latest last. Their numbers are below 0, out of the way of new ones.
fn loaded_reviews(database: &str) -> impl Iterator<Item = Document> {
    let (products, each) = match database.starts_with("page") {
        true => (1, PAGE_REVIEWS),
        false => (PRODUCTS, REVIEWS_EACH),
    };
    let count = products * each;
    (0..count).map(move |n| review(n - count, n % products, LOADED_UNTIL - i64::from(count - n) * 60_000))
}

fn load_shop(link: &mut Link, database: &str) -> Result<(), Fault> {
    load(link, database, "products", (0..PRODUCTS).map(product))?;
    load(link, database, "reviews", loaded_reviews(database))
}

fn shop(link: &mut Link, database: &str) -> Result<(), Fault> {
    if is_new(link, database, "products")? {
        load_shop(link, database)?;
        index(link, database, "reviews", doc! {"productId": 1, "date": -1}, "productId_1_date_-1")?;
    }
    Ok(())
}

fn declared_shop(link: &mut Link, database: &str) -> Result<(), Fault> {
    if !is_new(link, database, "products")? {
        return Ok(());
    }
    load_shop(link, database)?;
    let subset = doc! {
        "from": "reviews", "localField": "_id", "foreignField": "productId", "as": "recentReviews",
        "sort": {"date": -1}, "limit": 5, "fields": {"userId": 1, "rating": 1, "text": 1, "date": 1},
    };
    let group = doc! {"_id": "$productId", "reviewCount": {"$count": {}}, "avgRating": {"$avg": "$rating"}};
    let computed = doc! {"from": "reviews", "pipeline": [{"$group": group}], "on": "_id"};
    declare(link, database, doc! {"createPattern": "products", "name": "recent", "subset": subset})?;
    declare(link, database, doc! {"createPattern": "products", "name": "stats", "computed": computed})
}

pub fn declare(link: &mut Link, database: &str, command: Document) -> Result<(), Fault> {
    let text = |name: &str| command.get(name).and_then(|value| value.as_str()).unwrap_or("").to_owned();
    let (target, name) = (text("createPattern"), text("name"));
    link.run(database, command)?;
    link.run(database, doc! {"waitPattern": target, "name": name, "timeoutMS": 60_000}).map(drop)
}

fn declared(link: &mut Link) -> Result<(), Fault> {
    declared_shop(link, "declared")
}

fn plain(link: &mut Link) -> Result<(), Fault> {
    shop(link, "plain")
}

fn bare(link: &mut Link) -> Result<(), Fault> {
    match is_new(link, "bare", "products")? {
        true => load_shop(link, "bare"),
        false => Ok(()),
    }
}

/// As plain, and every product has the fields that the recipe keeps.
fn by_hand(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, "hand", "products")? {
        return Ok(());
    }
    shop(link, "hand")?;
    let reviews: Vec<Document> = loaded_reviews("hand").collect();
    for product in 0..PRODUCTS {
        let own = |review: &&Document| whole(review.get("productId")) == Some(i64::from(product));
        for review in reviews.iter().filter(own) {
            link.run("hand", doc! {"update": "products", "updates": [recipe(product, review)]})?;
        }
    }
    Ok(())
}

/// What an application does to the product when a review was written.
fn recipe(product: i32, review: &Document) -> Document {
    let rating = review.get("rating").map(kilim_bson::RawValue::to_value);
    let push = doc! {"$each": [shown(review)], "$sort": {"date": -1}, "$slice": 5};
    let update = doc! {"$inc": {"reviewCount": 1, "ratingSum": rating}, "$push": {"recentReviews": push}};
    doc! {"q": {"_id": product}, "u": update}
}

/// Writes a review, and what `then` says.
fn insert_review(
    place: Place,
    database: &'static str,
    products: i32,
    then: fn(&mut Link, i32, &Document) -> Result<(), Fault>,
) -> Operation {
    let mut ids = fresh_ids(place);
    let mut rng = StdRng::seed_from_u64((place.turn as u64) << 16 | place.connection as u64);
    Box::new(move |link| {
        let id = ids.next().expect("ids do not end");
        let product = rng.random_range(0..products);
        let review = review(id, product, LOADED_UNTIL + i64::from(id));
        let mut insert = doc! {"insert": "reviews", "documents": [review.clone()], "writeConcern": durable()};
        insert.push("$db", database);
        counted(link.exchange(&message(&insert))?, 1)?;
        then(link, product, &review)
    })
}

fn nothing(_: &mut Link, _: i32, _: &Document) -> Result<(), Fault> {
    Ok(())
}

fn update_by_hand(link: &mut Link, product: i32, review: &Document) -> Result<(), Fault> {
    let update = doc! {
        "update": "products", "updates": [recipe(product, review)], "writeConcern": durable(), "$db": "hand",
    };
    counted(link.exchange(&message(&update))?, 1)
}

fn declared_review(place: Place) -> Operation {
    insert_review(place, "declared", PRODUCTS, nothing)
}

fn plain_review(place: Place) -> Operation {
    insert_review(place, "plain", PRODUCTS, nothing)
}

fn bare_review(place: Place) -> Operation {
    insert_review(place, "bare", PRODUCTS, nothing)
}

fn review_by_hand(place: Place) -> Operation {
    insert_review(place, "hand", PRODUCTS, update_by_hand)
}

/// Numbers of its own for a contest in a database that others use too.
fn further(place: Place) -> Place {
    Place { turn: place.turn + 32, ..place }
}

fn declared_review_of_one(place: Place) -> Operation {
    insert_review(further(place), "declared", 1, nothing)
}

fn plain_review_of_one(place: Place) -> Operation {
    insert_review(further(place), "plain", 1, nothing)
}

fn review_of_one_by_hand(place: Place) -> Operation {
    insert_review(further(place), "hand", 1, update_by_hand)
}

/// What all items have.
fn item_base() -> Document {
    doc! {
        "required": ["title", "price"],
        "properties": {"title": {"bsonType": "string"}, "price": {"bsonType": "number", "minimum": 0}},
    }
}

/// The fields of each kind of item, by its name.
fn item_variants() -> [(&'static str, Document); 4] {
    let book = doc! {
        "required": ["isbn", "pages"],
        "properties": {"isbn": {"bsonType": "string", "minLength": 10}, "pages": {"bsonType": "int", "minimum": 1}},
    };
    let dvd = doc! {
        "required": ["minutes"],
        "properties": {"minutes": {"bsonType": "int"}, "region": {"enum": [1, 2, 3, 4]}},
    };
    let cd = doc! {
        "required": ["artist", "tracks"],
        "properties": {"artist": {"bsonType": "string"}, "tracks": {"bsonType": "array", "items": {"bsonType": "string"}}},
    };
    let toy = doc! {
        "required": ["age"],
        "properties": {"age": {"bsonType": "int", "minimum": 0}, "parts": {"bsonType": "int"}},
    };
    [("book", book), ("dvd", dvd), ("cd", cd), ("toy", toy)]
}

fn item(id: i32) -> Document {
    let random = mix(id as u64);
    let mut item = doc! {
        "_id": id,
        "type": item_variants()[id as usize % 4].0,
        "title": format!("item {id}"),
        "price": (random % 10_000) as f64 / 100.0,
    };
    match id % 4 {
        0 => {
            item.push("isbn", format!("978-{id:010}"));
            item.push("pages", ((random >> 20) % 900) as i32 + 1);
        }
        1 => {
            item.push("minutes", ((random >> 20) % 200) as i32);
            item.push("region", 2);
        }
        2 => {
            item.push("artist", "somebody");
            item.push("tracks", kilim_bson::array!["one", "two", "three"]);
        }
        _ => item.push("age", 6),
    }
    item.push("description", "y".repeat(200));
    item
}

/// Items before anything is measured, out of the way of new ones.
fn loaded_items() -> impl Iterator<Item = Document> {
    (1..=1_000).map(|id| doc! {"_id": -id, "type": "toy", "title": "t", "price": 1, "age": id % 12})
}

fn declared_items(link: &mut Link) -> Result<(), Fault> {
    let database = "items_declared";
    if is_new(link, database, "items")? {
        let variants: Document =
            item_variants().into_iter().map(|(name, schema)| (name, Value::Document(schema))).collect();
        let polymorphic = doc! {"discriminator": "type", "base": item_base(), "variants": variants};
        declare(
            link,
            database,
            doc! {"createPattern": "items", "name": "variants", "polymorphic": polymorphic},
        )?;
        load(link, database, "items", loaded_items())?;
    }
    Ok(())
}

/// The same rules as an application writes them: one schema, of which exactly one branch holds.
fn validated_items(link: &mut Link) -> Result<(), Fault> {
    let database = "items_validated";
    if is_new(link, database, "items")? {
        let branches: Vec<Document> = (item_variants().into_iter())
            .map(|(name, schema)| {
                let properties = schema.get("properties").and_then(kilim_bson::RawValue::as_document);
                let mut properties = properties.map_or(Document::new(), |own| own.to_document());
                properties.push("type", doc! {"enum": [name]});
                doc! {"required": schema.get("required").map(kilim_bson::RawValue::to_value), "properties": properties}
            })
            .collect();
        let mut schema = item_base();
        schema.push("oneOf", branches);
        link.run(database, doc! {"create": "items", "validator": {"$jsonSchema": schema}})?;
        load(link, database, "items", loaded_items())?;
    }
    Ok(())
}

fn plain_items(link: &mut Link) -> Result<(), Fault> {
    let database = "items_plain";
    if is_new(link, database, "items")? {
        load(link, database, "items", loaded_items())?;
    }
    Ok(())
}

fn insert_item(place: Place, database: &'static str) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let id = ids.next().expect("ids do not end");
        let insert = doc! {
            "insert": "items", "documents": [item(id)], "writeConcern": durable(), "$db": database,
        };
        counted(link.exchange(&message(&insert))?, 1)
    })
}

fn declared_item(place: Place) -> Operation {
    insert_item(place, "items_declared")
}

fn validated_item(place: Place) -> Operation {
    insert_item(place, "items_validated")
}

fn plain_item(place: Place) -> Operation {
    insert_item(place, "items_plain")
}

fn order(id: i32) -> Document {
    let customer = id % CUSTOMERS;
    doc! {
        "_id": id,
        "customerId": customer,
        "total": (mix(id as u64) % 100_000) as f64 / 100.0,
        "status": "open",
        "note": "z".repeat(200),
        "customer": {"name": format!("customer {customer}"), "tier": "gold"},
    }
}

fn load_orders(link: &mut Link, database: &str) -> Result<bool, Fault> {
    let new = is_new(link, database, "orders")?;
    if new {
        let customer = |id: i32| doc! {"_id": id, "name": format!("customer {id}"), "tier": "gold"};
        load(link, database, "customers", (0..CUSTOMERS).map(customer))?;
        load(link, database, "orders", (0..CUSTOMERS * ORDERS_EACH).map(order))?;
        index(link, database, "orders", doc! {"customerId": 1}, "customerId_1")?;
        index(link, database, "orders", doc! {"status": 1}, "status_1")?;
    }
    Ok(new)
}

fn plain_orders(link: &mut Link) -> Result<(), Fault> {
    load_orders(link, "orders_plain").map(drop)
}

fn declared_orders(link: &mut Link) -> Result<(), Fault> {
    if load_orders(link, "orders_declared")? {
        let reference = doc! {
            "from": "customers", "localField": "customerId", "foreignField": "_id", "as": "customer",
            "fields": {"name": 1, "tier": 1},
        };
        let command = doc! {"createPattern": "orders", "name": "card", "extendedReference": reference};
        declare(link, "orders_declared", command)?;
    }
    Ok(())
}

/// Customers in turn, each time with another name.
fn renames(place: Place) -> impl Iterator<Item = (i32, String)> + Send {
    let turn = place.turn;
    (0..).map(move |n: i32| (n % CUSTOMERS, format!("name {turn} {n}")))
}

fn rename_declared(place: Place) -> Operation {
    let mut renames = renames(place);
    Box::new(move |link| {
        let (customer, name) = renames.next().expect("names do not end");
        let update = doc! {"q": {"_id": customer}, "u": {"$set": {"name": name}}};
        let command = doc! {"update": "customers", "updates": [update], "writeConcern": durable(), "$db": "orders_declared"};
        counted(link.exchange(&message(&command))?, 1)
    })
}

/// The copies alone: the customer itself is left out, in favour of this side.
fn rename_by_hand(place: Place) -> Operation {
    let mut renames = renames(place);
    Box::new(move |link| {
        let (customer, name) = renames.next().expect("names do not end");
        let update =
            doc! {"q": {"customerId": customer}, "u": {"$set": {"customer.name": name}}, "multi": true};
        let command =
            doc! {"update": "orders", "updates": [update], "writeConcern": durable(), "$db": "orders_plain"};
        counted(link.exchange(&message(&command))?, i64::from(ORDERS_EACH))
    })
}

fn declared_page(link: &mut Link) -> Result<(), Fault> {
    declared_shop(link, "page_declared")
}

fn plain_page(link: &mut Link) -> Result<(), Fault> {
    shop(link, "page_plain")
}

fn read_page(_: Place) -> Operation {
    let find = doc! {"find": "products", "filter": {"_id": 0}, "limit": 1, "singleBatch": true, "$db": "page_declared"};
    let message = message(&find);
    Box::new(move |link| found(link.exchange(&message)?, 1))
}

fn compute_page(_: Place) -> Operation {
    let lookup = doc! {"from": "reviews", "localField": "_id", "foreignField": "productId", "as": "reviews"};
    let shown = doc! {
        "_id": "$reviews._id", "userId": "$reviews.userId", "rating": "$reviews.rating",
        "text": "$reviews.text", "date": "$reviews.date",
    };
    let group = doc! {
        "_id": "$_id",
        "title": {"$first": "$title"},
        "price": {"$first": "$price"},
        "description": {"$first": "$description"},
        "reviewCount": {"$sum": 1},
        "avgRating": {"$avg": "$reviews.rating"},
        "recentReviews": {"$topN": {"n": 5, "sortBy": {"reviews.date": -1}, "output": shown}},
    };
    let pipeline = vec![
        doc! {"$match": {"_id": 0}},
        doc! {"$lookup": lookup},
        doc! {"$unwind": "$reviews"},
        doc! {"$group": group},
    ];
    let message =
        message(&doc! {"aggregate": "products", "pipeline": pipeline, "cursor": {}, "$db": "page_plain"});
    Box::new(move |link| found(link.exchange(&message)?, 1))
}

/// The newest review goes, and comes again, so that there is one to delete the next time.
fn delete_newest(place: Place, database: &'static str) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let id = ids.next().expect("ids do not end");
        let review = review(id, 0, LOADED_UNTIL + i64::from(id));
        let insert = doc! {"insert": "reviews", "documents": [review], "$db": database};
        counted(link.exchange(&message(&insert))?, 1)?;
        let delete = doc! {"q": {"_id": id}, "limit": 1};
        let delete =
            doc! {"delete": "reviews", "deletes": [delete], "writeConcern": durable(), "$db": database};
        let reply = link.exchange(&message(&delete))?;
        check_reply(reply)?;
        counted(reply, 1)
    })
}

fn delete_newest_declared(place: Place) -> Operation {
    delete_newest(place, "page_declared")
}

fn delete_newest_plain(place: Place) -> Operation {
    delete_newest(place, "page_plain")
}
