//! What must be maintained, computed as simply as it can be said: no states, no indexes, nothing of what maintenance
//! does. What a deleted source may leave behind, and what is frozen, has no one right value; it is left to
//! verification.

use std::cmp::Ordering;

use kilim_bson::{Document, RawValue, Value, compare, doc};

use crate::support::Db;

/// What is not as it should be, in words.
pub fn faults(db: &Db) -> Vec<String> {
    let read = |name: &str| db.find(name, doc! {});
    let world = World { brands: read("brands"), products: read("products"), reviews: read("reviews") };
    let mut faults = Vec::new();
    let mut expect = |what: String, stored: Option<Value>, expected: Option<Value>| {
        if !same(&stored, &expected) {
            faults.push(format!("{what}: stored {stored:?}, expected {expected:?}"));
        }
    };
    for product in &world.products {
        world.check_product(product, &mut expect);
    }
    for review in &world.reviews {
        let source = at(review, "productId").and_then(|id| by_id(&world.products, &id));
        if let Some(source) = source {
            let mut copy = Document::new();
            push(&mut copy, "label", at(source, "label"));
            push(&mut copy, "brand", at(source, "brand.name"));
            expect(format!("product of review {}", name(review)), at(review, "product"), Some(copy.into()));
        }
    }
    for order in &read("orders") {
        world.check_order(order, &mut expect);
    }
    let (ratings, kinds) = (read("ratings"), read("kinds"));
    world.check_ratings(&ratings, &mut expect);
    for is_number in [true, false].map(Value::Bool) {
        let of_kind =
            |group: &&Document| at(group, "_id.isNumber").is_some_and(|own| equal(&own, &is_number));
        let count = ratings.iter().filter(of_kind).count();
        let stored = by_id(&kinds, &is_number).and_then(|kind| at(kind, "groups"));
        expect(format!("kind {is_number:?}"), stored, (count > 0).then_some(Value::Int32(count as i32)));
    }
    world.check_tags(&read("tags"), &mut expect);
    check_chain(&read, &mut expect);
    faults
}

/// Entries in their bills, bills in their accounts and in documents of their own, and those once more.
fn check_chain(read: &dyn Fn(&str) -> Vec<Document>, expect: &mut Expect<'_>) {
    let whole = |document: &Document, field: &str| match at(document, field) {
        Some(Value::Int32(number)) => i64::from(number),
        Some(Value::Int64(number)) => number,
        other => panic!("{field} of {document:?} is {other:?}"),
    };
    let (entries, bills, spending) = (read("entries"), read("bills"), read("spending"));
    let mut check = |what: String, stored: Option<i64>, expected: Option<i64>| {
        expect(what, stored.map(Value::Int64), expected.map(Value::Int64));
    };
    for bill in &bills {
        let id = i64::from(name(bill));
        let own = entries.iter().filter(|entry| whole(entry, "bill") == id);
        let sum = own.map(|entry| whole(entry, "sum")).sum();
        check(format!("total of bill {id}"), Some(whole(bill, "total")), Some(sum));
    }
    let spent = |id: i64| -> (i64, usize) {
        let own = || bills.iter().filter(|bill| whole(bill, "account") == id);
        (own().map(|bill| whole(bill, "total")).sum(), own().count())
    };
    for account in &read("accounts") {
        let id = i64::from(name(account));
        check(format!("spent of account {id}"), Some(whole(account, "spent")), Some(spent(id).0));
    }
    for id in 0..4 {
        let key = Value::Document(doc! {"of": id as i32});
        let stored = by_id(&spending, &key).map(|one| whole(one, "total"));
        let (sum, count) = spent(id);
        check(format!("spending of account {id}"), stored, (count > 0).then_some(sum));
    }
    let levels = read("levels");
    for rest in 0..3i64 {
        let key = Value::Document(doc! {"rest": rest});
        let own = || spending.iter().filter(|one| whole(one, "total") % 3 == rest);
        let sum = own().map(|one| whole(one, "total")).sum();
        let stored = by_id(&levels, &key).map(|one| whole(one, "total"));
        check(format!("level {rest}"), stored, (own().count() > 0).then_some(sum));
    }
}

type Expect<'e> = dyn FnMut(String, Option<Value>, Option<Value>) + 'e;

struct World {
    brands: Vec<Document>,
    products: Vec<Document>,
    reviews: Vec<Document>,
}

impl World {
    fn check_product(&self, product: &Document, expect: &mut Expect<'_>) {
        let who = name(product);
        let mut check = |field: &str, expected: Option<Value>| {
            expect(format!("{field} of product {who}"), at(product, field), expected);
        };
        if let Some(brand) = at(product, "brandId").and_then(|id| by_id(&self.brands, &id)) {
            let mut copy = Document::new();
            push(&mut copy, "name", at(brand, "name"));
            check("brand", Some(copy.into()));
        }
        let brand = at(product, "brand.name").and_then(|name| name.as_raw().as_str().map(str::to_owned));
        check("label", Some(Value::from(format!("{}-{who}", brand.as_deref().unwrap_or("?")))));

        let own = |review: &&Document| {
            at(review, "productId").is_some_and(|id| equal(&id, &at(product, "_id").expect("an id")))
                && !matches!(at(review, "hidden"), Some(Value::Bool(true)))
        };
        let visible: Vec<&Document> = self.reviews.iter().filter(own).collect();
        let ratings: Vec<Value> = visible.iter().filter_map(|review| at(review, "rating")).collect();
        let numbers: Vec<&Value> = ratings.iter().filter(|rating| rating.as_raw().is_number()).collect();
        let mut ordered: Vec<&Value> =
            ratings.iter().filter(|rating| !matches!(rating, Value::Null)).collect();
        ordered.sort_by(|left, right| compare(left.as_raw(), right.as_raw()));
        let count = visible.len();
        check("count", Some(Value::Int32(count as i32)));
        check("average", Some(mean(&numbers)));
        check("best", Some(ordered.last().map_or(Value::Null, |best| (*best).clone())));
        check("worst", Some(ordered.first().map_or(Value::Null, |worst| (*worst).clone())));
        check("spread", Some(deviation(&numbers)));
        check("first", Some(ratings.first().cloned().unwrap_or(Value::Null)));
        check("last", Some(ratings.last().cloned().unwrap_or(Value::Null)));
        check("all", Some(ratings.to_vec().into()));
        check("top", Some(ordered.iter().rev().take(2).map(|one| (*one).clone()).collect::<Vec<_>>().into()));
        check("share", Some(if count == 0 { Value::Null } else { Value::Double(1.0 / count as f64) }));

        let mut newest = visible.clone();
        newest.sort_by(|left, right| {
            let by = |path: &str| compare_at(left, right, path);
            by("at").reverse().then(by("_id"))
        });
        let shown = newest.iter().take(3).map(|review| {
            let mut shown = Document::new();
            push(&mut shown, "_id", at(review, "_id"));
            push(&mut shown, "rating", at(review, "rating"));
            push(&mut shown, "brand", at(review, "product.brand"));
            Value::Document(shown)
        });
        check("recent", Some(shown.collect::<Vec<_>>().into()));
    }

    fn check_order(&self, order: &Document, expect: &mut Expect<'_>) {
        let who = name(order);
        for (place, item) in elements(order, "items").iter().enumerate() {
            let Some(item) = item.as_raw().as_document().map(|item| item.to_document()) else { continue };
            if let Some(source) = at(&item, "p").and_then(|id| by_id(&self.products, &id)) {
                let mut copy = Document::new();
                push(&mut copy, "label", at(source, "label"));
                expect(format!("item {place} of order {who}"), at(&item, "product"), Some(copy.into()));
            }
        }
        let labels = elements(order, "items").into_iter().map(|item| {
            let item = item.as_raw().as_document().expect("an item").to_document();
            let source = at(&item, "p").and_then(|id| by_id(&self.products, &id));
            source.map_or(Value::Null, |source| {
                let mut copy = Document::new();
                push(&mut copy, "label", at(source, "label"));
                Value::Document(copy)
            })
        });
        let labels: Vec<Value> = labels.collect();
        expect(format!("copies apart of order {who}"), at(order, "apart"), Some(labels.into()));
        let names = elements(order, "brandIds")
            .into_iter()
            .map(|id| by_id(&self.brands, &id).and_then(|brand| at(brand, "name")).unwrap_or(Value::Null));
        let names: Vec<Value> = names.collect();
        expect(format!("flat copies of order {who}"), at(order, "brandNames"), Some(names.into()));
        if !matches!(at(order, "open"), Some(Value::Bool(true))) {
            return;
        }
        let copies = elements(order, "brandIds").into_iter().map(|id| match by_id(&self.brands, &id) {
            Some(brand) => {
                let mut copy = Document::new();
                push(&mut copy, "name", at(brand, "name"));
                Value::Document(copy)
            }
            None => Value::Null,
        });
        let copies: Vec<Value> = copies.collect();
        expect(format!("brands of order {who}"), at(order, "brands"), Some(copies.into()));
    }

    fn check_ratings(&self, groups: &[Document], expect: &mut Expect<'_>) {
        let mut expected: Vec<(Value, Vec<&Value>, i32)> = Vec::new();
        let ratings: Vec<Value> = self.reviews.iter().filter_map(|review| at(review, "rating")).collect();
        for rating in &ratings {
            let rest = match rating {
                Value::Null => Value::Null,
                Value::Int32(number) => Value::Int32(number % 3),
                Value::Int64(number) => Value::Int64(number % 3),
                Value::Double(number) => Value::Double(number % 3.0),
                // No remainder, no group.
                _ => continue,
            };
            let key = Value::Document(doc! {"rest": rest, "isNumber": rating.as_raw().is_number()});
            let at = expected.iter().position(|(known, _, _)| equal(known, &key)).unwrap_or_else(|| {
                expected.push((key, Vec::new(), 0));
                expected.len() - 1
            });
            expected[at].2 += 1;
            if rating.as_raw().is_number() {
                expected[at].1.push(rating);
            }
        }
        expect(
            "ratings".to_owned(),
            Some(Value::Int32(groups.len() as i32)),
            Some(Value::Int32(expected.len() as i32)),
        );
        for (key, numbers, count) in expected {
            let group = by_id(groups, &key);
            let stored = |field: &str| group.and_then(|group| at(group, field));
            expect(format!("count of rating {key:?}"), stored("count"), Some(Value::Int32(count)));
            expect(format!("sum of rating {key:?}"), stored("sum"), Some(total(&numbers)));
        }
    }

    fn check_tags(&self, groups: &[Document], expect: &mut Expect<'_>) {
        let tags: Vec<Value> = self.reviews.iter().flat_map(|review| elements(review, "tags")).collect();
        for tag in 0..3 {
            let count = tags.iter().filter(|own| equal(own, &Value::Int32(tag))).count();
            let stored = by_id(groups, &Value::Int32(tag)).and_then(|group| at(group, "count"));
            expect(format!("tag {tag}"), stored, (count > 0).then_some(Value::Int32(count as i32)));
        }
    }
}

fn at(document: &Document, path: &str) -> Option<Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = document.get(first)?;
    match rest {
        None => Some(value.to_value()),
        Some(rest) => at(&value.as_document()?.to_document(), rest),
    }
}

fn elements(document: &Document, field: &str) -> Vec<Value> {
    let array = document.get(field).and_then(RawValue::as_array);
    array.map_or(Vec::new(), |array| array.iter().map(RawValue::to_value).collect())
}

fn push(document: &mut Document, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        document.push(name, value);
    }
}

fn name(document: &Document) -> i32 {
    match document.get("_id") {
        Some(RawValue::Int32(id)) => id,
        other => panic!("{other:?} is no id"),
    }
}

fn equal(left: &Value, right: &Value) -> bool {
    compare(left.as_raw(), right.as_raw()) == Ordering::Equal
}

fn compare_at(left: &Document, right: &Document, path: &str) -> Ordering {
    let value = |document: &Document| at(document, path).unwrap_or(Value::Null);
    compare(value(left).as_raw(), value(right).as_raw())
}

fn by_id<'d>(documents: &'d [Document], id: &Value) -> Option<&'d Document> {
    documents.iter().find(|document| at(document, "_id").is_some_and(|own| equal(&own, id)))
}

/// The same, but for the last digits of a double.
fn same(stored: &Option<Value>, expected: &Option<Value>) -> bool {
    match (stored, expected) {
        (Some(Value::Double(stored)), Some(Value::Double(expected))) => {
            (stored - expected).abs() <= 1e-9 * expected.abs()
        }
        (Some(stored), Some(expected)) => equal(stored, expected),
        (None, None) => true,
        _ => false,
    }
}

/// All of these numbers are multiples of 2^-60 and less than 2^60.
fn exact(number: &Value) -> i128 {
    const ONE: f64 = (1u64 << 60) as f64;
    match number {
        Value::Int32(number) => i128::from(*number) << 60,
        Value::Int64(number) => i128::from(*number) << 60,
        Value::Double(number) => (number * ONE) as i128,
        other => panic!("{other:?} is no number"),
    }
}

fn total(numbers: &[&Value]) -> Value {
    let sum: i128 = numbers.iter().map(|number| exact(number)).sum();
    match numbers.iter().any(|number| matches!(number, Value::Double(_))) {
        true => Value::Double(sum as f64 / (1u64 << 60) as f64),
        false => Value::Int64((sum >> 60) as i64),
    }
}

fn as_double(value: &Value) -> f64 {
    exact(value) as f64 / (1u64 << 60) as f64
}

fn mean(numbers: &[&Value]) -> Value {
    match numbers.len() {
        0 => Value::Null,
        count => Value::Double(as_double(&total(numbers)) / count as f64),
    }
}

fn deviation(numbers: &[&Value]) -> Value {
    let Value::Double(mean) = mean(numbers) else { return Value::Null };
    let squares: f64 = numbers.iter().map(|number| (as_double(number) - mean).powi(2)).sum();
    Value::Double((squares / numbers.len() as f64).sqrt())
}
