//! The recipes as tutorials give them: what an application sends after its own write.
//!
//! For new reviews, new orders and renames these are the published commands. The recipes say nothing about
//! a review that is edited or deleted; here it is undone as carefully as the same means allow.

use kilim_bson::{Document, Value, doc};

use super::shop::RECENT;

/// Computed: the running average and the count, in one atomic pipeline update.
pub(super) fn count_review(product: i32, rating: i32) -> Document {
    let count = doc! {"$add": ["$reviewCount", 1]};
    update(
        "products",
        doc! {"_id": product},
        Value::Array(kilim_bson::array![{"$set": {
            "reviewCount": count,
            // New average = (old average * old count + new rating) / (old count + 1).
            "avgRating": {"$divide": [
                {"$add": [{"$multiply": ["$avgRating", "$reviewCount"]}, rating]},
                {"$add": ["$reviewCount", 1]}]}}}]),
        false,
    )
}

/// Its mirror image for a review that is gone.
pub(super) fn uncount_review(product: i32, rating: i32) -> Document {
    update(
        "products",
        doc! {"_id": product},
        Value::Array(kilim_bson::array![{"$set": {
            "reviewCount": {"$subtract": ["$reviewCount", 1]},
            "avgRating": {"$cond": [{"$gt": ["$reviewCount", 1]},
                {"$divide": [
                    {"$subtract": [{"$multiply": ["$avgRating", "$reviewCount"]}, rating]},
                    {"$subtract": ["$reviewCount", 1]}]},
                Value::Null]}}}]),
        false,
    )
}

/// And for an edit: the count stays.
pub(super) fn recount_review(product: i32, change: i32) -> Document {
    update(
        "products",
        doc! {"_id": product},
        Value::Array(kilim_bson::array![{"$set": {
            "avgRating": {"$add": ["$avgRating", {"$divide": [change, "$reviewCount"]}]}}}]),
        false,
    )
}

/// Subset: the newest five, by `$push` with `$sort` and `$slice`.
pub(super) fn show_review(product: i32, shown: Document) -> Document {
    update(
        "products",
        doc! {"_id": product},
        Value::Document(doc! {"$push": {"recentReviews": {
        "$each": [Value::Document(shown)], "$sort": {"date": -1}, "$slice": RECENT}}}),
        false,
    )
}

/// A deleted review leaves the page; nothing brings the sixth one back.
pub(super) fn hide_review(product: i32, review: i32) -> Document {
    let pull = doc! {"$pull": {"recentReviews": {"_id": review}}};
    update("products", doc! {"_id": product}, Value::Document(pull), false)
}

/// An edited review, where the page shows it.
pub(super) fn edit_shown_review(product: i32, review: i32, rating: i32, text: &str) -> Document {
    let set = doc! {"$set": {"recentReviews.$.rating": rating, "recentReviews.$.text": text}};
    update("products", doc! {"_id": product, "recentReviews._id": review}, Value::Document(set), false)
}

/// Extended reference: all copies of a renamed customer, found by the old value.
pub(super) fn rename_copies(old_email: &str, name: &str, email: &str) -> Document {
    let set = doc! {"$set": {"customer.name": name, "customer.email": email}};
    update("orders", doc! {"customer.email": old_email}, Value::Document(set), true)
}

pub(super) fn update(collection: &str, filter: Document, change: Value, many: bool) -> Document {
    let mut update = doc! {"q": filter};
    update.push("u", change);
    update.push("multi", many);
    doc! {"update": collection, "updates": [Value::Document(update)]}
}
