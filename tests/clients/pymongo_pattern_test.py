"""Declared patterns by pymongo: declare, write, verify, and break things on purpose. One line per check."""

import datetime
import random
import threading
import time

from bson import Int64, ObjectId
from pymongo import DeleteOne, InsertOne, MongoClient, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import AutoReconnect, BulkWriteError, OperationFailure, WriteError

from checks import URI, check, equal, fails, main

READ_ONLY = 90000001
CYCLE = 90000002
CONFLICT = 90000003
SOURCE_MISSING = 90000004
NOT_DETERMINISTIC = 90000006
NOT_READY = 90000007
NOT_FOUND = 90000009
EXISTS = 90000010
DANGLING = 90000011
RESTRICT = 90000012
INDEX_OWNED = 90000013
COLLECTION_OWNED = 90000014
VARIANT = 90000030

VARIANTS = {
    "discriminator": "type",
    "base": {"required": ["title"], "properties": {"title": {"bsonType": "string"}}},
    "variants": {
        "book": {
            "required": ["isbn"], "properties": {"isbn": {"bsonType": "string"}},
            "indexes": [{"key": {"isbn": 1}, "unique": True}],
        },
        "ebook": {"extends": "book", "properties": {"format": {"enum": ["epub", "pdf"]}}},
        "dvd": {"required": ["minutes"], "properties": {"minutes": {"bsonType": "int"}}},
    },
}

CARD = {"from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1, "email": 1}}
STATS = {
    "from": "reviews",
    "pipeline": [{"$group": {"_id": "$productId", "reviewCount": {"$count": {}}, "avgRating": {"$avg": "$rating"}}}],
}
RECENT = {
    "from": "reviews", "localField": "_id", "foreignField": "productId", "as": "recentReviews",
    "sort": {"date": -1}, "limit": 5, "fields": {"userId": 1, "rating": 1, "text": 1, "date": 1},
}


def declare(db, collection, name, **declaration):
    for spec in declaration.values():
        # Patterns read from collections that are there.
        if isinstance(spec, dict) and "from" in spec and spec["from"] not in db.list_collection_names():
            db.create_collection(spec["from"])
    db.command("createPattern", collection, name=name, **declaration)
    db.command("waitPattern", collection, name=name, timeoutMS=60_000)


def true(db, collection, name):
    """Nothing is wrong, by the server's own recomputation."""
    found = db.command("verifyPattern", collection, name=name)
    equal((found["wrong"], found["examples"]), (0, []))
    return found


def day(number):
    return datetime.datetime(2024, 3, 1) + datetime.timedelta(days=number)


@check
def a_copy_follows_its_source(db):
    db.customers.insert_many([{"_id": n, "name": f"c{n}", "email": f"c{n}@example.org"} for n in range(3)])
    db.orders.insert_many([{"_id": n, "customerId": n % 3} for n in range(9)])
    declare(db, "orders", "customerCard", extendedReference=CARD)
    equal(db.orders.find_one({"_id": 4})["customer"], {"name": "c1", "email": "c1@example.org"})
    db.customers.update_one({"_id": 1}, {"$set": {"name": "Ann"}})
    equal(db.orders.count_documents({"customer.name": "Ann"}), 3)
    db.orders.insert_one({"_id": 9, "customerId": 1})
    equal(db.orders.find_one({"_id": 9})["customer"]["name"], "Ann")
    db.orders.update_one({"_id": 9}, {"$set": {"customerId": 2}})
    equal(db.orders.find_one({"_id": 9})["customer"]["name"], "c2")
    equal(true(db, "orders", "customerCard")["checked"], 10)


@check
def naming_a_maintained_path_is_refused_and_the_error_says_where_the_value_comes_from(db):
    db.customers.insert_one({"_id": 1, "name": "Ann", "email": "a@example.org"})
    db.orders.insert_one({"_id": 1, "customerId": 1})
    declare(db, "orders", "customerCard", extendedReference=CARD)
    for update in ({"$set": {"customer.name": "Eve"}}, {"$unset": {"customer": 1}}, {"$rename": {"customer.name": "x"}},
                   {"$set": {"customer.other": 1}}):
        error = fails(READ_ONLY, lambda: db.orders.update_one({"_id": 1}, update), WriteError)
        for word in ("customer", "customerCard", f"{db.name}.customers", "dropPattern"):
            assert word in str(error), error
    try:
        db.orders.bulk_write([UpdateOne({"_id": 1}, {"$set": {"note": "x"}}), UpdateMany({}, {"$set": {"customer": 1}})])
        raise AssertionError("the second write went through")
    except BulkWriteError as error:
        first = error.details["writeErrors"][0]
        equal((first["index"], first["code"], error.details["nModified"]), (1, READ_ONLY, 1))
    equal(db.orders.find_one(), {"_id": 1, "customerId": 1, "customer": {"name": "Ann", "email": "a@example.org"}, "note": "x"})


@check
def an_odm_that_replaces_the_document_with_a_stale_count_changes_nothing_true(db):
    db.products.insert_one({"_id": 1, "title": "Loom"})
    declare(db, "products", "stats", computed=STATS)
    stale = db.products.find_one({"_id": 1})
    equal((stale["reviewCount"], stale["avgRating"]), (0, None))
    db.reviews.insert_many([{"productId": 1, "rating": rating} for rating in (5, 4)])
    stale["title"] = "A loom"
    db.products.replace_one({"_id": 1}, stale)
    equal(db.products.find_one(), {"_id": 1, "title": "A loom", "reviewCount": 2, "avgRating": 4.5})
    db.products.find_one_and_replace({"_id": 1}, {"title": "Loom", "reviewCount": 99})
    db.products.update_one({"_id": 1}, [{"$set": {"reviewCount": 77}}])
    equal(db.products.find_one(), {"_id": 1, "title": "Loom", "reviewCount": 2, "avgRating": 4.5})
    listed = db.command("listPatterns", "products")["cursor"]["firstBatch"][0]
    assert listed["counters"]["userWritesReplaced"] >= 2, listed
    true(db, "products", "stats")


@check
def the_strict_mode_refuses_replacements_too(db):
    db.products.insert_one({"_id": 1})
    declare(db, "products", "stats", computed=STATS, onUserWrite="reject")
    fails(READ_ONLY, lambda: db.products.replace_one({"_id": 1}, {"reviewCount": 9}), WriteError)
    fails(READ_ONLY, lambda: db.products.insert_one({"_id": 2, "reviewCount": 9}), WriteError)
    equal(db.products.count_documents({}), 1)


@check
def every_way_to_write_a_child_counts(db):
    db.products.insert_many([{"_id": n} for n in range(3)])
    declare(db, "products", "stats", computed=STATS)
    declare(db, "products", "recent", subset=RECENT)
    db.reviews.insert_many([{"_id": n, "productId": n % 3, "rating": n % 5 + 1, "date": day(n)} for n in range(30)])
    db.reviews.bulk_write([
        InsertOne({"_id": 30, "productId": 0, "rating": 5, "date": day(30)}),
        UpdateOne({"_id": 0}, {"$set": {"rating": 5}}),
        ReplaceOne({"_id": 3}, {"productId": 1, "rating": 1, "date": day(99)}),
        UpdateMany({"productId": 2}, {"$inc": {"rating": 1}}),
        DeleteOne({"_id": 29}),
    ])
    db.reviews.find_one_and_update({"_id": 4}, {"$set": {"productId": 0}})
    db.reviews.find_one_and_delete({"_id": 28})
    db.reviews.update_one({"_id": 100}, {"$set": {"productId": 0, "rating": 3, "date": day(50)}}, upsert=True)
    db.incoming.insert_many([{"_id": 200 + n, "productId": 1, "rating": 2, "date": day(200 + n)} for n in range(3)])
    db.incoming.aggregate([{"$merge": {"into": "reviews"}}])
    for product in db.products.find():
        own = list(db.reviews.find({"productId": product["_id"]}).sort([("date", -1), ("_id", 1)]))
        equal(product["reviewCount"], len(own))
        equal(product["avgRating"], sum(review["rating"] for review in own) / len(own))
        equal([review["_id"] for review in product["recentReviews"]], [review["_id"] for review in own[:5]])
    true(db, "products", "stats")
    true(db, "products", "recent")


@check
def a_transaction_counts_when_it_commits_and_never_when_it_aborts(db):
    client = db.client
    db.products.insert_one({"_id": 1})
    declare(db, "products", "stats", computed=STATS)
    with client.start_session() as session:
        with session.start_transaction():
            db.reviews.insert_one({"productId": 1, "rating": 5}, session=session)
            equal(db.products.find_one()["reviewCount"], 0)
        equal(db.products.find_one()["reviewCount"], 1)
        session.start_transaction()
        db.reviews.insert_one({"productId": 1, "rating": 1}, session=session)
        session.abort_transaction()
    # Two at once that meet on one counter: both commit.
    with client.start_session() as one, client.start_session() as other:
        one.start_transaction()
        other.start_transaction()
        db.reviews.insert_one({"productId": 1, "rating": 4}, session=one)
        db.reviews.insert_one({"productId": 1, "rating": 3}, session=other)
        one.commit_transaction()
        other.commit_transaction()
    equal(db.products.find_one(), {"_id": 1, "reviewCount": 3, "avgRating": 4.0})


@check
def a_circle_is_refused_and_printed(db):
    declare(db, "a", "fromB", extendedReference={"from": "b", "localField": "bId", "as": "b", "fields": {"label": 1}})
    back = {"from": "a", "pipeline": [{"$group": {"_id": "$bId", "label": {"$max": "$b.label"}}}]}
    error = fails(CYCLE, lambda: db.command("createPattern", "b", name="back", computed=back))
    for name in ("fromB", "back"):
        assert name in str(error), error


@check
def two_patterns_cannot_own_one_path(db):
    declare(db, "orders", "card", extendedReference=CARD)
    fails(CONFLICT, lambda: db.command("createPattern", "orders", name="other", computed={"set": {"customer.name": "x"}}))
    fails(EXISTS, lambda: db.command("createPattern", "orders", name="card", computed={"set": {"y": 1}}))
    fails(NOT_FOUND, lambda: db.command("dropPattern", "orders", name="none"))


@check
def what_cannot_be_kept_is_refused_when_it_is_declared(db):
    missing = fails(SOURCE_MISSING, lambda: db.command("createPattern", "t", name="m", extendedReference=CARD))
    assert f"{db.name}.customers" in str(missing), missing
    fails(NOT_DETERMINISTIC, lambda: db.command("createPattern", "t", name="r", computed={"set": {"a": {"$rand": {}}}}))
    for spec in ({"from": "x", "localField": "y", "as": "z"}, {"from": "x", "fields": {"a": 1}}):
        try:
            db.command("createPattern", "t", name="bad", extendedReference=spec)
            raise AssertionError(f"{spec} went through")
        except OperationFailure:
            pass
    fails(40415, lambda: db.command("createPattern", "t", name="bad", computed={"set": {"a": 1}}, maxSink=5))
    equal(db.command("listPatterns", 1)["cursor"]["firstBatch"], [])


@check
def dangling_references_wait_or_are_refused(db):
    declare(db, "orders", "card", extendedReference=CARD)
    db.orders.insert_one({"_id": 1, "customerId": 7})
    equal(db.orders.find_one(), {"_id": 1, "customerId": 7, "customer": None})
    db.customers.insert_one({"_id": 7, "name": "Late", "email": "l@example.org"})
    equal(db.orders.find_one()["customer"]["name"], "Late")
    strict = {**CARD, "onMissing": "reject", "onSourceDelete": "restrict"}
    declare(db, "invoices", "card", extendedReference=strict)
    fails(DANGLING, lambda: db.invoices.insert_one({"_id": 1, "customerId": 99}), WriteError)
    db.invoices.insert_one({"_id": 1, "customerId": 7})
    fails(RESTRICT, lambda: db.customers.delete_one({"_id": 7}), WriteError)
    db.invoices.delete_one({"_id": 1})
    db.customers.delete_one({"_id": 7})
    # keep: the copy of a source that is gone is whatever it was.
    equal(db.orders.find_one()["customer"]["name"], "Late")


@check
def deletes_of_sources_cascade_unset_or_leave_null(db):
    db.customers.insert_many([{"_id": n, "name": f"c{n}"} for n in range(3)])
    for action in ("cascade", "unset", "null"):
        declare(db, action, "card", extendedReference={
            "from": "customers", "localField": "c", "as": "who", "fields": {"name": 1}, "onSourceDelete": action})
        db[action].insert_many([{"_id": n, "c": n} for n in range(3)])
    db.customers.delete_one({"_id": 1})
    equal(db.cascade.distinct("_id"), [0, 2])
    equal(db.unset.find_one({"_id": 1}), {"_id": 1, "c": 1})
    equal(db.null.find_one({"_id": 1}), {"_id": 1, "c": 1, "who": None})


@check
def a_unique_index_over_a_maintained_path_is_refused(db):
    declare(db, "orders", "card", extendedReference=CARD)
    try:
        db.orders.create_index("customer.email", unique=True)
        raise AssertionError("it was built")
    except OperationFailure as error:
        assert "customer.email" in str(error) or "card" in str(error), error
    db.orders.create_index("customer.email")


@check
def a_supporting_index_cannot_be_dropped(db):
    declare(db, "orders", "card", extendedReference=CARD)
    assert "kilim_card_1" in db.orders.index_information()
    error = fails(INDEX_OWNED, lambda: db.orders.drop_index("kilim_card_1"))
    assert "dropPattern" in str(error), error
    db.command("dropPattern", "orders", name="card")
    assert "kilim_card_1" not in db.orders.index_information()


@check
def a_paused_pattern_leaves_its_fields_alone_and_catches_up(db):
    db.customers.insert_one({"_id": 1, "name": "Ann", "email": "a@example.org"})
    db.orders.insert_one({"_id": 1, "customerId": 1})
    declare(db, "orders", "card", extendedReference=CARD)
    db.command("pausePattern", "orders", name="card")
    db.customers.update_one({"_id": 1}, {"$set": {"name": "Bea"}})
    found = db.command("verifyPattern", "orders", name="card")
    equal((found["state"], found["checked"], found["wrong"]), ("paused", 1, 1))
    equal(found["examples"][0]["stored"]["name"], "Ann")
    equal(found["examples"][0]["expected"]["name"], "Bea")
    fails(NOT_READY, lambda: db.command("repairPattern", "orders", name="card"))
    db.command("resumePattern", "orders", name="card")
    db.command("waitPattern", "orders", name="card", timeoutMS=60_000)
    equal(db.orders.find_one()["customer"]["name"], "Bea")


@check
def a_backfill_goes_on_under_writers(db):
    db.products.insert_many([{"_id": n} for n in range(50)])
    db.reviews.insert_many([{"_id": n, "productId": n % 50, "rating": n % 5} for n in range(3000)])
    stop = threading.Event()
    written = []

    def write():
        other = MongoClient(URI)[db.name]
        while not stop.is_set():
            other.reviews.insert_one({"productId": random.randrange(50), "rating": 5})
            written.append(1)
        other.client.close()

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        db.command("createPattern", "products", name="stats", computed=STATS, backfill={"batch": 4, "throttleMs": 5})
        db.command("waitPattern", "products", name="stats", timeoutMS=60_000)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    counted = db.products.aggregate([{"$group": {"_id": None, "n": {"$sum": "$reviewCount"}}}]).next()["n"]
    equal(counted, 3000 + len(written))
    true(db, "products", "stats")


@check
def renamed_sixty_times_beside_six_inserters_no_order_is_stale(db):
    db.customers.insert_one({"_id": 1, "name": "n0", "email": "e0"})
    declare(db, "orders", "card", extendedReference=CARD)
    stop = threading.Event()

    def insert():
        other = MongoClient(URI)[db.name]
        while not stop.is_set():
            other.orders.insert_one({"customerId": 1})
        other.client.close()

    inserters = [threading.Thread(target=insert) for _ in range(6)]
    for inserter in inserters:
        inserter.start()
    for number in range(1, 61):
        db.customers.update_one({"_id": 1}, {"$set": {"name": f"n{number}", "email": f"e{number}"}})
    stop.set()
    for inserter in inserters:
        inserter.join()
    total = db.orders.count_documents({})
    assert total > 0
    equal(db.orders.count_documents({"customer.name": "n60", "customer.email": "e60"}), total)


@check
def a_client_that_dies_between_two_writes_leaves_nothing_wrong(db):
    db.products.insert_one({"_id": 1})
    declare(db, "products", "stats", computed=STATS)
    declare(db, "products", "recent", subset=RECENT)
    for number in range(20):
        short = MongoClient(URI)
        try:
            short[db.name].reviews.insert_one({"_id": number, "productId": 1, "rating": 3, "date": day(number)})
        except AutoReconnect:
            pass
        short.close()
    equal(db.products.find_one()["reviewCount"], db.reviews.count_documents({}))
    db.reviews.delete_many({"_id": {"$gte": 17}})
    equal([review["_id"] for review in db.products.find_one()["recentReviews"]], [16, 15, 14, 13, 12])


@check
def a_rollup_collection_has_a_document_for_each_group(db):
    declare(db, "byDay", "sales", computed={
        "from": "orders", "whenNotMatched": "insert",
        "pipeline": [{"$unwind": "$items"},
                     {"$group": {"_id": "$day", "units": {"$sum": "$items.qty"}, "orders": {"$addToSet": "$_id"}}},
                     {"$project": {"units": 1, "orders": {"$size": "$orders"}}}]})
    db.orders.insert_many([
        {"_id": 1, "day": "mon", "items": [{"qty": 1}, {"qty": 2}]},
        {"_id": 2, "day": "mon", "items": [{"qty": 4}]},
        {"_id": 3, "day": "tue", "items": [{"qty": 8}]},
    ])
    equal(list(db.byDay.find().sort("_id", 1)), [{"_id": "mon", "units": 7, "orders": 2}, {"_id": "tue", "units": 8, "orders": 1}])
    db.orders.update_one({"_id": 3}, {"$set": {"day": "mon"}})
    equal(list(db.byDay.find()), [{"_id": "mon", "units": 15, "orders": 3}])
    true(db, "byDay", "sales")


@check
def dropped_fields_stay_or_go(db):
    db.products.insert_many([{"_id": n} for n in range(3)])
    db.reviews.insert_one({"productId": 1, "rating": 5})
    declare(db, "products", "stats", computed=STATS)
    db.command("dropPattern", "products", name="stats")
    equal(db.products.find_one({"_id": 1}), {"_id": 1, "reviewCount": 1, "avgRating": 5.0})
    db.products.update_one({"_id": 1}, {"$set": {"reviewCount": 9}})
    declare(db, "products", "stats", computed=STATS)
    equal(db.products.find_one({"_id": 1})["reviewCount"], 1)
    equal(db.command("dropPattern", "products", name="stats", keepFields=False)["cleared"], 3)
    equal(list(db.products.find()), [{"_id": 0}, {"_id": 1}, {"_id": 2}])


@check
def the_published_recipes_still_work_as_plain_commands(db):
    customer, product = ObjectId(), ObjectId()
    # Extended reference, by hand.
    db.orders.insert_one({"customerId": customer, "customer": {
        "name": "Alice Johnson", "email": "old@example.com", "tier": "gold"}, "total": 249.99})
    equal(db.orders.update_many(
        {"customer.email": "old@example.com"},
        {"$set": {"customer.name": "Alice Smith", "customer.email": "new@example.com"}}).modified_count, 1)
    # Computed, by hand.
    db.products.insert_one({"_id": product, "name": "Wireless Headphones", "reviewCount": 2847, "avgRating": 4.3})
    new_rating = 5
    db.products.update_one({"_id": product}, [{"$set": {
        "reviewCount": {"$add": ["$reviewCount", 1]},
        "avgRating": {"$divide": [
            {"$add": [{"$multiply": ["$avgRating", "$reviewCount"]}, new_rating]},
            {"$add": ["$reviewCount", 1]}]}}}])
    found = db.products.find_one()
    equal((found["reviewCount"], round(found["avgRating"], 4)), (2848, 4.3002))
    # Subset, by hand.
    for number in range(7):
        review = {"userId": ObjectId(), "rating": 5, "text": "Amazing sound!", "date": day(number)}
        db.products.update_one({"_id": product}, {
            "$push": {"recentReviews": {"$each": [review], "$sort": {"date": -1}, "$slice": 5}},
            "$inc": {"reviewCount": 1}})
    found = db.products.find_one()
    equal((found["reviewCount"], [review["date"] for review in found["recentReviews"]]),
          (2855, [day(number) for number in (6, 5, 4, 3, 2)]))


@check
def the_same_shop_declared_instead(db):
    customer, product = ObjectId(), ObjectId()
    db.customers.insert_one({"_id": customer, "name": "Alice Johnson", "email": "old@example.com", "tier": "gold"})
    db.products.insert_one({"_id": product, "name": "Wireless Headphones"})
    declare(db, "orders", "customerCard", extendedReference={
        "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1, "email": 1, "tier": 1}})
    declare(db, "products", "stats", computed=STATS)
    declare(db, "products", "recent", subset=RECENT)
    db.orders.insert_one({"customerId": customer, "total": 249.99})
    db.customers.update_one({"_id": customer}, {"$set": {"name": "Alice Smith", "email": "new@example.com"}})
    equal(db.orders.find_one()["customer"], {"name": "Alice Smith", "email": "new@example.com", "tier": "gold"})
    db.reviews.insert_many([
        {"productId": product, "userId": n, "rating": 5, "text": "Amazing sound!", "date": day(n)} for n in range(7)])
    found = db.products.find_one()
    equal((found["reviewCount"], found["avgRating"], len(found["recentReviews"])), (7, 5.0, 5))
    equal(db.orders.find_one({"customer.email": "new@example.com"})["total"], 249.99)
    for collection, name in (("orders", "customerCard"), ("products", "stats"), ("products", "recent")):
        true(db, collection, name)


@check
def sums_of_doubles_come_back_to_nothing(db):
    db.products.insert_one({"_id": 1})
    declare(db, "products", "sums", computed={
        "from": "sales", "pipeline": [{"$group": {"_id": "$p", "revenue": {"$sum": "$amount"}, "large": {"$sum": "$n"}}}]})
    amounts = random.Random(1)
    db.sales.insert_many([{"p": 1, "amount": amounts.uniform(0, 1000), "n": Int64(2**62)} for _ in range(2000)])
    true(db, "products", "sums")
    db.sales.delete_many({})
    equal(db.products.find_one(), {"_id": 1, "revenue": 0, "large": 0})


@check
def a_large_fan_out_is_a_job_and_readers_see_the_truth_meanwhile(db):
    db.customers.insert_many([{"_id": n, "name": f"c{n}", "email": f"c{n}@example.org"} for n in range(2)])
    db.orders.insert_many([{"_id": n, "customerId": n % 2} for n in range(1000)])
    declare(db, "orders", "card", extendedReference=CARD, maxSync=50, backfill={"batch": 50, "throttleMs": 20})
    reply = db.command("update", "customers", updates=[{"q": {"_id": 1}, "u": {"$set": {"name": "Bea"}}}])
    assert reply["kilim"]["pending"]["documents"] > 50, reply
    equal(db.orders.count_documents({"customer.name": "Bea"}), 500)
    equal(db.orders.count_documents({"customer.name": "c1"}), 0)
    equal(db.orders.find_one({"_id": 999})["customer"]["name"], "Bea")
    for _ in range(1000):
        if not db.command("patternJobs", 1)["cursor"]["firstBatch"]:
            break
        time.sleep(0.02)
    else:
        raise AssertionError("the job does not end")
    equal(db.orders.count_documents({"customer.name": "Bea"}), 500)
    # A small one is part of the write, and told.
    db.orders.delete_many({"_id": {"$gte": 20}})
    reply = db.command("update", "customers", updates=[{"q": {"_id": 1}, "u": {"$set": {"name": "Cem"}}}])
    equal(reply["kilim"], {"maintained": 10})
    true(db, "orders", "card")


@check
def attributes_are_found_by_either_form_whatever_is_stored(db):
    colours, loads = ("black", "white", "red"), (80, 100, 120)
    chairs = [
        {"_id": n, "specs": {"color": colours[n % 3], "max_load_kg": loads[n // 3], f"only_{n}": [n, "x"]}}
        for n in range(9)
    ]
    db.products.insert_many(chairs)
    spec = {"paths": ["specs.*"], "as": "kv", "units": {"max_load_kg": "kg"}}
    declare(db, "products", "specs", attribute={**spec, "store": "flat"})
    pair = lambda name, value: {"$elemMatch": {"k": name, "v": value}}
    for store in ("flat", "kv", "both", "kv", "flat"):
        db.command("modifyPattern", "products", name="specs", attribute={"store": store})
        db.command("waitPattern", "products", name="specs", timeoutMS=60_000)
        found = lambda filter: sorted(document["_id"] for document in db.products.find(filter))
        equal(found({"specs.color": "black", "specs.max_load_kg": {"$gte": 100}}), [3, 6])
        equal(found({"kv": {"$all": [pair("color", "black"), pair("max_load_kg", {"$gte": 100})]}}), [3, 6])
        equal(found({"specs.only_4": "x"}), [4])
        equal(found({"specs.only_4": {"$exists": False}, "specs.color": {"$ne": "red"}}), [0, 1, 3, 6, 7])
        equal(db.products.update_many({"specs.color": "red"}, {"$set": {"seen": store}}).modified_count, 3)
        equal([d["_id"] for d in db.products.aggregate([{"$match": {"specs.max_load_kg": 120}}, {"$sort": {"_id": 1}}])], [6, 7, 8])
        true(db, "products", "specs")
    equal([{key: d[key] for key in ("_id", "specs")} for d in db.products.find().sort("_id", 1)], chairs)
    plan = db.products.find({"specs.color": "red"}).explain()["queryPlanner"]
    equal([stage["stage"] for stage in plan["rewritten"]], ["PATTERN_REWRITE"])
    fails(CONFLICT, lambda: db.products.insert_one({"specs": {"color": "red"}, "kv": [{"k": "color", "v": "blue"}]}))
    fails(READ_ONLY, lambda: db.products.update_one({"_id": 1}, {"$push": {"kv": {"k": "a", "v": 1}}}))


@check
def a_pattern_is_modified_in_place(db):
    db.products.insert_one({"_id": 1})
    declare(db, "products", "recent", subset=RECENT)
    db.reviews.insert_many([{"_id": n, "productId": 1, "rating": n, "date": day(n)} for n in range(9)])
    for limit in (2, 7, 5):
        db.command("modifyPattern", "products", name="recent", subset={"limit": limit})
        db.command("waitPattern", "products", name="recent", timeoutMS=60_000)
        equal([review["_id"] for review in db.products.find_one()["recentReviews"]], list(range(8, 8 - limit, -1)))
    true(db, "products", "recent")
    [stats] = db.products.aggregate([{"$patternStats": {}}])
    equal((stats["name"], stats["state"], stats["counters"]["drift"]), ("recent", "active", 0))
    # The definition is a document, which dumps carry and only commands change.
    definition = db["kilim.patterns"].find_one()["definition"]
    equal((definition["createPattern"], definition["subset"]["limit"]), ("products", 5))
    try:
        db["kilim.patterns"].delete_many({})
        raise AssertionError("definitions were deleted")
    except OperationFailure:
        pass


TREE = {
    "parent": "parent", "ancestors": "ancestors", "path": "path", "nestedSets": ["lft", "rgt"], "depth": "depth",
    "childCount": "children", "descendantCount": "descendants", "order": "order",
}
TREE_CYCLE = 90000020
TREE_NOT_EMPTY = 90000022


@check
def a_tree_answers_the_queries_that_people_write_for_one_kept_by_hand(db):
    declare(db, "categories", "tree", tree=TREE)
    db.categories.insert_many([
        {"_id": "mongodb", "parent": "databases", "name": "MongoDB"},
        {"_id": "databases", "parent": "tech", "name": "Databases"},
        {"_id": "tech", "parent": None, "name": "Technology"},
    ])
    ids = lambda cursor: sorted(node["_id"] for node in cursor)
    equal(ids(db.categories.find({"parent": "databases"})), ["mongodb"])
    equal(ids(db.categories.find({"ancestors": "tech"})), ["databases", "mongodb"])
    equal(ids(db.categories.find({"path": {"$regex": ",databases,"}})), ["databases", "mongodb"])
    mongodb = db.categories.find_one({"_id": "mongodb"})
    equal((mongodb["ancestors"], mongodb["path"]), (["tech", "databases"], ",tech,databases,mongodb,"))
    above = {"lft": {"$lt": mongodb["lft"]}, "rgt": {"$gt": mongodb["rgt"]}}
    equal(ids(db.categories.find(above)), ["databases", "tech"])
    lookup = {"from": "categories", "startWith": "$_id", "connectFromField": "_id", "connectToField": "parent", "as": "below"}
    [tech] = db.categories.aggregate([{"$match": {"_id": "tech"}}, {"$graphLookup": lookup}])
    below = [{"$tree": {"of": "tech", "what": "descendants"}}]
    equal(ids(tech["below"]), ids(db.categories.aggregate(below)))
    fails(TREE_CYCLE, lambda: db.categories.update_one({"_id": "tech"}, {"$set": {"parent": "mongodb"}}))
    fails(TREE_NOT_EMPTY, lambda: db.categories.delete_one({"_id": "tech"}))
    db.command("moveNode", "categories", node="mongodb", to="tech", position="first")
    equal([node["_id"] for node in db.categories.find({"parent": "tech"}).sort("order")], ["mongodb", "databases"])
    true(db, "categories", "tree")


@check
def sixteen_writers_grow_move_and_cut_one_tree(db):
    declare(db, "nodes", "tree", tree={**TREE, "onDelete": "reparent"})
    db.nodes.insert_one({"_id": 0})
    failures = []

    def write(writer):
        chance = random.Random(writer)
        nodes = MongoClient(URI)[db.name].nodes
        for n in range(25):
            own = 1 + writer * 25 + n
            try:
                nodes.insert_one({"_id": own, "parent": chance.randrange(own)})
                if n % 3 == 0:
                    nodes.update_one({"_id": chance.randrange(1, 400)}, {"$set": {"parent": chance.randrange(400)}})
                if n % 5 == 0:
                    nodes.delete_one({"_id": chance.randrange(1, 400)})
            except (OperationFailure, WriteError) as error:
                if not 90000020 <= error.code <= 90000023:
                    failures.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    equal(failures, [])
    bounds = [bound for node in db.nodes.find() for bound in (node["lft"], node["rgt"])]
    equal(len(bounds), len(set(bounds)))
    true(db, "nodes", "tree")


@check
def a_tree_is_loaded_in_any_order_and_in_transactions(db):
    declare(db, "nodes", "tree", tree=TREE)
    nodes = [{"_id": n, "parent": (n - 1) // 4 if n else None} for n in range(2000)]
    random.Random(26).shuffle(nodes)
    db.nodes.insert_many(nodes)
    equal(db.nodes.find_one({"_id": 0})["descendants"], 1999)
    with db.client.start_session() as session:
        with session.start_transaction():
            db.nodes.insert_one({"_id": "a", "parent": 5}, session=session)
            db.nodes.update_one({"_id": 6}, {"$set": {"parent": "a"}}, session=session)
    equal(db.nodes.find_one({"_id": 6})["ancestors"], [0, 1, 5, "a"])
    true(db, "nodes", "tree")


@check
def nested_sets_without_gaps_are_those_of_textbooks(db):
    declare(db, "nodes", "tree", tree={"parent": "parent", "nestedSets": ["lft", "rgt"], "dense": True, "onDelete": "cascade"})
    chance = random.Random(14)
    db.nodes.insert_many([{"_id": n, "parent": chance.randrange(n) if n else None} for n in range(60)])
    for _ in range(40):
        try:
            db.nodes.update_one({"_id": chance.randrange(60)}, {"$set": {"parent": chance.randrange(60)}})
        except (OperationFailure, WriteError) as error:
            equal(error.code, TREE_CYCLE)
    db.nodes.delete_one({"_id": db.nodes.find_one({"parent": {"$ne": None}})["_id"]})
    nodes = list(db.nodes.find().sort("lft"))
    equal(sorted(bound for node in nodes for bound in (node["lft"], node["rgt"])), list(range(1, 2 * len(nodes) + 1)))
    for node in nodes:
        below = db.nodes.count_documents({"lft": {"$gt": node["lft"]}, "rgt": {"$lt": node["rgt"]}})
        equal(below, (node["rgt"] - node["lft"] - 1) // 2)
    true(db, "nodes", "tree")


@check
def a_move_of_many_is_seen_at_once(db):
    kept = {"parent": "parent", "ancestors": "ancestors", "path": "path", "depth": "depth", "descendantCount": "below"}
    declare(db, "nodes", "tree", tree=kept, maxSync=50, backfill={"batch": 10, "throttleMs": 20})
    db.nodes.insert_many([{"_id": "a"}, {"_id": "b"}, {"_id": "c", "parent": "a"}])
    db.nodes.insert_many([{"_id": n, "parent": "c" if n < 10 else n // 10} for n in range(1, 500)])
    reply = db.command("update", "nodes", updates=[{"q": {"_id": "c"}, "u": {"$set": {"parent": "b"}}}])
    equal(reply["kilim"]["pending"]["documents"], 499)
    equal(db.nodes.count_documents({"ancestors": "b"}), 500)
    equal(db.nodes.count_documents({"ancestors": "a"}), 0)
    equal(db.nodes.count_documents({"path": {"$regex": "^,b,c,"}}), 500)
    equal(db.nodes.find_one({"_id": 123})["ancestors"], ["b", "c", 1, 12])
    db.nodes.insert_one({"_id": "new", "parent": 123})
    db.nodes.update_one({"_id": 12}, {"$set": {"parent": "a"}})
    equal(db.nodes.find_one({"_id": "new"})["path"], ",a,12,123,new,")
    equal((db.nodes.find_one({"_id": "a"})["below"], db.nodes.find_one({"_id": "b"})["below"]), (12, 489))
    true(db, "nodes", "tree")
    db.command("waitPattern", "nodes", name="tree", timeoutMS=60_000)
    [stats] = db.nodes.aggregate([{"$patternStats": {}}])
    equal((stats["counters"]["pendingSources"], stats["lagMillis"]), (0, 0))
    equal(db.nodes.count_documents({"ancestors": "b"}), 489)
    true(db, "nodes", "tree")


@check
def variants_keep_their_rules(db):
    declare(db, "items", "variants", polymorphic=VARIANTS)
    db.items.insert_many([
        {"_id": 1, "type": "book", "title": "Looms", "isbn": "a"},
        {"_id": 2, "type": "ebook", "title": "Dyes", "isbn": "b", "format": "pdf"},
        {"_id": 3, "type": "dvd", "title": "Weaving", "minutes": 90},
    ])
    error = fails(VARIANT, lambda: db.items.insert_one({"_id": 9, "type": "ebook", "title": "t"}))
    info = error.details["errInfo"]
    equal((info["variant"], info["path"], info["rule"], info["failingDocumentId"]), ("ebook", "isbn", "required", 9))
    equal(info["details"]["operatorName"], "$and")
    for change in ({"$unset": {"type": 1}}, {"$set": {"isbn": 5}}, {"$rename": {"type": "kind"}}, [{"$unset": "type"}]):
        fails(VARIANT, lambda: db.items.update_one({"_id": 1}, change))
    fails(VARIANT, lambda: db.items.replace_one({"_id": 3}, {"type": "dvd", "title": "t"}))
    fails(VARIANT, lambda: db.items.insert_one({"type": "vinyl", "title": "t"}, bypass_document_validation=True))
    fails(11000, lambda: db.items.insert_one({"type": "ebook", "title": "t", "isbn": "a"}))
    try:
        db.items.bulk_write([
            InsertOne({"_id": 4, "type": "dvd", "title": "t", "minutes": 1}),
            InsertOne({"_id": 5, "type": "dvd", "title": "t"}),
            UpdateOne({"_id": 4}, {"$set": {"minutes": 2}}),
        ], ordered=False)
        raise AssertionError("a bulk with a broken rule went through")
    except BulkWriteError as error:
        equal([(each["index"], each["code"]) for each in error.details["writeErrors"]], [(1, VARIANT)])
    equal(db.items.count_documents({}), 4)
    plan = db.items.find({"type": "ebook", "isbn": "b"}).explain()["queryPlanner"]["winningPlan"]
    equal(plan["inputStage"]["indexName"], "kilim_variants_1")
    true(db, "items", "variants")


@check
def rules_over_documents_that_break_them(db):
    db.items.insert_many([{"_id": 1, "type": "book", "title": 5, "isbn": "a"}, {"_id": 2, "type": "dvd", "title": "t", "minutes": 1}])
    told = db.command("createPattern", "items", name="variants", polymorphic=VARIANTS, dryRun=True)
    equal((told["checked"], told["wrong"], told["examples"][0]["path"]), (2, 1, "title"))
    declare(db, "items", "variants", polymorphic=VARIANTS)
    equal(db.command("listPatterns", "items")["cursor"]["firstBatch"][0]["state"], "suspect")
    db.items.update_one({"_id": 1}, {"$set": {"title": "t"}})
    true(db, "items", "variants")
    equal(db.command("listPatterns", "items")["cursor"]["firstBatch"][0]["state"], "active")


FANS = {"field": "followers", "limit": 20, "pageSize": 50, "flag": "hasOverflow", "count": "followerCount"}


@check
def a_celebrity_is_found_by_every_follower(db):
    db.users.insert_one({"_id": "celebrity", "followers": [f"f{n}" for n in range(1_000)]})
    db.users.insert_one({"_id": "somebody", "followers": ["f1"]})
    declare(db, "users", "fans", outlier=FANS)
    seen = db.users.find_one({"followers": "f999"})
    equal((seen["_id"], len(seen["followers"]), seen["hasOverflow"], seen["followerCount"]), ("celebrity", 20, True, 1_000))
    equal(db.users.count_documents({"followers": {"$size": 1_000}}), 1)
    equal(db.users.count_documents({"followers": {"$all": ["f1", "f500"]}}), 1)
    equal(db.users.count_documents({"followers": {"$ne": "f500"}}), 1)
    equal(db.users.update_one({"_id": "celebrity"}, {"$addToSet": {"followers": "f777"}}).modified_count, 0)
    equal(db.users.update_one({"_id": "celebrity"}, {"$push": {"followers": "late"}}).modified_count, 1)
    equal(db.users.update_one({"_id": "celebrity"}, {"$pull": {"followers": "f0"}}).modified_count, 1)
    page = db.users.find_one({"_id": "celebrity"}, {"followers": {"$slice": [998, 10]}})
    equal(page["followers"], ["f999", "late"])
    equal(sum(each["count"] for each in db["users.overflow"].find()) + len(db.users.find_one()["followers"]), 1_000)
    fails(COLLECTION_OWNED, lambda: db["users.overflow"].delete_many({}))
    fails(READ_ONLY, lambda: db.users.update_one({}, {"$inc": {"followerCount": 1}}))
    true(db, "users", "fans")
    db.command("dropPattern", "users", name="fans")
    equal(len(db.users.find_one({"_id": "celebrity"})["followers"]), 1_000)
    equal("users.overflow" in db.list_collection_names(), False)


@check
def followers_come_from_many_clients_at_once(db):
    db.users.insert_one({"_id": 1, "followers": []})
    declare(db, "users", "fans", outlier={**FANS, "read": "whole"})

    def follow(first):
        own = MongoClient(URI, retryWrites=True)
        for number in range(first, first + 60):
            own[db.name].users.update_one({"_id": 1}, {"$addToSet": {"followers": number}})
        own.close()

    clients = [threading.Thread(target=follow, args=(first,)) for first in (0, 30, 60, 90)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    seen = db.users.find_one({"_id": 1})
    equal((sorted(seen["followers"]), seen["followerCount"]), (list(range(150)), 150))
    true(db, "users", "fans")


@check
def readings_are_single_documents_and_buckets_tell_of_them(db):
    declare(db, "readings", "b", bucket={"timeField": "ts", "metaField": "s", "maxCount": 60, "stats": {"t": ["min", "avg"]}})
    db.readings.insert_many({"_id": n, "s": n % 2, "ts": day(1), "t": n} for n in range(200))
    # Full buckets are packed within seconds; what is read stays the same.
    until = time.monotonic() + 20
    while db["readings.buckets"].count_documents({"sealed": True}) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    equal(db["readings.buckets"].count_documents({"sealed": True}) >= 2, True)
    equal([row["_id"] for row in db.readings.find().sort("_id")], list(range(200)))
    with db.readings.watch() as stream:
        equal(db.readings.update_one({"_id": 0}, {"$set": {"t": 50}}).modified_count, 1)
        equal(db.readings.delete_one({"_id": 2}).deleted_count, 1)
        equal([next(stream)["operationType"] for _ in range(2)], ["update", "delete"])
    told = {"$group": {"_id": "$meta", "n": {"$sum": "$count"}, "min": {"$min": "$stats.t.min"}}}
    equal(list(db["readings.buckets"].aggregate([told, {"$sort": {"_id": 1}}])),
          [{"_id": 0, "n": 99, "min": 4}, {"_id": 1, "n": 100, "min": 1}])
    fails(COLLECTION_OWNED, lambda: db["readings.buckets"].delete_many({}))
    equal("readings.buckets" in db.list_collection_names(), False)
    true(db, "readings", "b")
    equal(db.command("validate", "readings")["valid"], True)
    db.command("dropPattern", "readings", name="b")
    equal(db.readings.count_documents({}), 199)


@check
def two_versions_of_an_application_work_at_once(db):
    """The old one writes phones as texts to users@1, the new one as documents to users. No update is lost."""
    db.users.insert_many({"_id": n, "schemaVersion": 1, "name": f"u{n}", "phone": f"555-{n:04}", "logins": 0} for n in range(40))
    db.command("createPattern", "users", name="phones", schemaVersion={
        "field": "schemaVersion", "from": 1, "to": 2,
        "up": [{"$set": {"phone": {"countryCode": "+1", "number": "$phone"}}}],
        "down": [{"$set": {"phone": "$phone.number"}}],
    })

    def old_application():
        own = MongoClient(URI)
        users = own[db.name]["users@1"]
        for n in range(200):
            user = users.find_one_and_update({"_id": n % 40}, {"$inc": {"logins": 1}})
            equal((user["schemaVersion"], type(user["phone"])), (1, str))
        for n in range(0, 40, 4):
            user = users.find_one({"_id": n})
            equal(users.replace_one({"_id": n}, {**user, "name": "old"}).modified_count, 1)
        users.insert_one({"_id": 100, "name": "by the old one", "phone": "555-9999", "logins": 0})
        own.close()

    def new_application():
        own = MongoClient(URI)
        users = own[db.name].users
        for n in range(200):
            equal(users.update_one({"_id": n % 40}, {"$inc": {"logins": 1}, "$set": {"phone.countryCode": "+49"}}).modified_count, 1)
            equal(users.count_documents({"phone.number": f"555-{n % 40:04}"}), 1)
        users.insert_one({"_id": 101, "name": "by the new one", "phone": {"countryCode": "+44", "number": "555-0101"}, "logins": 0})
        own.close()

    failed = []

    def run(application):
        try:
            application()
        except BaseException as error:  # noqa: BLE001: told below
            failed.append(error)

    applications = [threading.Thread(target=run, args=(application,)) for application in (old_application, new_application)]
    for application in applications:
        application.start()
    for application in applications:
        application.join()
    equal(failed, [])
    # A client that replaces what it read takes back what came between; all others count every login of both.
    logins = [user["logins"] for user in db.users.find({"_id": {"$lt": 40}, "name": {"$ne": "old"}})]
    equal(logins, [10] * 30)
    equal(db["users@1"].find_one({"_id": 101})["phone"], "555-0101")
    equal(db.users.find_one({"_id": 100})["phone"], {"countryCode": "+1", "number": "555-9999"})
    equal(db.users.count_documents({"phone.number": {"$exists": True}}), 42)
    equal(db.users.count_documents({"schemaVersion": 2}), 42)
    # Version 1 has no word for the country: the old application's writes leave it.
    equal(db.users.count_documents({"phone.countryCode": "+49"}), 40)
    db.command("waitPattern", "users", name="phones", timeoutMS=60_000)
    true(db, "users", "phones")
    db.command("completeVersion", "users", name="phones")
    equal(db["users@1"].count_documents({}), 0)
    equal(db.users.count_documents({"phone.number": "555-9999"}), 1)


if __name__ == "__main__":
    main("pymongo_pattern")
