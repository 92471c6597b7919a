"""Aggregation by pymongo against the server of MONGODB_URI: one line per check, non-zero exit if one fails.

What is expected here is true of mongod too: run it there first.
"""

import datetime

from bson import Decimal128, Int64, ObjectId
from pymongo import InsertOne, MongoClient, ReturnDocument, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, ExecutionTimeout, OperationFailure, WriteError

from checks import URI, check, equal, fails, main


def day(month, number, hour=0, minute=0):
    return datetime.datetime(2024, month, number, hour, minute)


# Cursors.


@check
def a_large_result_comes_in_small_batches(db):
    db.t.insert_many([{"_id": n, "g": n % 10, "text": "x" * 50} for n in range(2500)])
    cursor = db.t.aggregate([{"$addFields": {"twice": {"$multiply": ["$_id", 2]}}}, {"$sort": {"_id": 1}}], batchSize=7)
    seen = 0
    for number, document in enumerate(cursor):
        equal((document["_id"], document["twice"]), (number, number * 2))
        seen += 1
    equal(seen, 2500)
    equal(cursor.alive, False)
    cursor = db.t.aggregate([{"$unwind": "$text"}, {"$group": {"_id": "$_id"}}], batchSize=0)
    equal(len(list(cursor)), 2500)


@check
def a_cursor_is_closed_halfway(db):
    db.t.insert_many([{"_id": n} for n in range(500)])
    cursor = db.t.aggregate([{"$match": {}}], batchSize=2)
    next(cursor)
    identifier = cursor.cursor_id
    cursor.close()
    fails(43, lambda: db.command("getMore", Int64(identifier), collection="t"))


@check
def batches_stay_below_the_size_of_a_message(db):
    db.t.insert_many([{"_id": n, "text": "x" * 1_000_000} for n in range(40)])
    equal(sum(len(d["text"]) for d in db.t.aggregate([{"$sort": {"_id": -1}}], allowDiskUse=True)), 40_000_000)


@check
def what_does_not_fit_in_memory_goes_to_disk_if_allowed(db):
    db.t.insert_many([{"_id": n, "k": (n * 7919) % 12_000, "text": "y" * 10_000} for n in range(12_000)])
    pipeline = [{"$sort": {"k": 1, "text": 1}}, {"$group": {"_id": None, "n": {"$sum": 1}, "first": {"$first": "$k"}, "last": {"$last": "$k"}}}]
    expected = [{"_id": None, "n": 12_000, "first": 0, "last": 11_999}]
    equal(list(db.t.aggregate(pipeline, allowDiskUse=True)), expected)
    whole = [{"$group": {"_id": "$_id", "all": {"$push": "$text"}}}, {"$count": "n"}]
    equal(list(db.t.aggregate(whole, allowDiskUse=True)), [{"n": 12_000}])
    fails(292, lambda: list(db.t.aggregate([{"$sort": {"k": 1, "text": 1}}], allowDiskUse=False)))
    fails(292, lambda: list(db.t.aggregate(whole, allowDiskUse=False)))


@check
def a_pipeline_ends_when_its_time_is_up(db):
    db.t.insert_many([{"_id": n} for n in range(300)])
    slow = {"$reduce": {"input": {"$range": [0, 100_000]}, "initialValue": 0, "in": {"$add": ["$$value", "$$this"]}}}
    try:
        list(db.t.aggregate([{"$project": {"slow": {"$add": [slow, "$_id"]}, "i": {"$map": {"input": {"$range": [0, 200_000]}, "in": {"$mod": ["$$this", {"$add": ["$_id", 1]}]}}}}}], maxTimeMS=150))
        raise AssertionError("it had no end")
    except ExecutionTimeout as error:
        equal(error.code, 50)
    equal(db.t.count_documents({}), 300)


@check
def explain_shows_stages(db):
    db.t.insert_many([{"_id": n, "a": n % 5, "b": n} for n in range(100)])
    db.t.create_index("a")
    pipeline = [{"$match": {"a": 3}}, {"$group": {"_id": "$b", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}]
    explain = db.command("explain", {"aggregate": "t", "pipeline": pipeline, "cursor": {}}, verbosity="queryPlanner")
    assert "stages" in explain or "queryPlanner" in explain, explain
    text = str(explain)
    assert "IXSCAN" in text and "a_1" in text, text
    explain = db.command("aggregate", "t", pipeline=[{"$match": {"b": 1}}], explain=True)
    assert "COLLSCAN" in str(explain), explain


# Collections made of others.


@check
def a_view_reads_as_a_collection(db):
    db.sales.insert_many([{"_id": n, "shop": n % 3, "amount": n} for n in range(30)])
    db.create_collection("by_shop", viewOn="sales", pipeline=[{"$group": {"_id": "$shop", "sum": {"$sum": "$amount"}}}, {"$sort": {"_id": 1}}])
    equal(list(db.by_shop.find()), [{"_id": 0, "sum": 135}, {"_id": 1, "sum": 145}, {"_id": 2, "sum": 155}])
    equal(db.by_shop.find_one({"sum": {"$gt": 150}}), {"_id": 2, "sum": 155})
    equal(db.by_shop.count_documents({"sum": {"$lt": 150}}), 2)
    equal(sorted(db.by_shop.distinct("sum")), [135, 145, 155])
    equal(list(db.by_shop.aggregate([{"$match": {"_id": 1}}, {"$project": {"_id": 0}}])), [{"sum": 145}])
    equal([c["type"] for c in db.list_collections(filter={"name": "by_shop"})], ["view"])
    fails(166, lambda: db.by_shop.insert_one({"a": 1}))
    db.sales.insert_one({"_id": 100, "shop": 1, "amount": 1000})
    equal(db.by_shop.find_one({"_id": 1})["sum"], 1145)
    db.by_shop.drop()
    equal(db.sales.count_documents({}), 31)


@check
def a_report_is_written_by_out_and_kept_current_by_merge(db):
    db.sales.insert_many([{"_id": n, "day": day(3, 1 + n % 4), "amount": n} for n in range(40)])
    group = {"$group": {"_id": {"$dateToString": {"date": "$day", "format": "%Y-%m-%d"}}, "sum": {"$sum": "$amount"}, "n": {"$sum": 1}}}
    equal(list(db.sales.aggregate([group, {"$out": "report"}])), [])
    equal(db.report.find_one({"_id": "2024-03-02"}), {"_id": "2024-03-02", "sum": 190, "n": 10})
    db.sales.insert_many([{"_id": 100, "day": day(3, 2), "amount": 5}, {"_id": 101, "day": day(3, 9), "amount": 7}])
    newest = [{"$match": {"_id": {"$gte": 100}}}, group]
    add = [{"$set": {"sum": {"$add": ["$sum", "$$new.sum"]}, "n": {"$add": ["$n", "$$new.n"]}}}]
    equal(list(db.sales.aggregate(newest + [{"$merge": {"into": "report", "whenMatched": add, "whenNotMatched": "insert"}}])), [])
    equal(db.report.find_one({"_id": "2024-03-02"}), {"_id": "2024-03-02", "sum": 195, "n": 11})
    equal(db.report.find_one({"_id": "2024-03-09"}), {"_id": "2024-03-09", "sum": 7, "n": 1})
    db.sales.aggregate([group, {"$merge": {"into": "report", "on": "_id", "whenMatched": "replace", "whenNotMatched": "discard"}}])
    equal(db.report.count_documents({}), 5)
    fails(11000, lambda: db.sales.aggregate([group, {"$merge": {"into": "report", "whenMatched": "fail"}}]))
    fails(51183, lambda: db.sales.aggregate([group, {"$merge": {"into": "report", "on": "sum"}}]))
    db.report.create_index("sum", unique=True)
    db.sales.aggregate([{"$limit": 1}, {"$project": {"_id": 0, "sum": {"$literal": 195}, "seen": {"$literal": True}}}, {"$merge": {"into": "report", "on": "sum"}}])
    equal(db.report.find_one({"_id": "2024-03-02"})["seen"], True)
    other = db.client[db.name + "_other"]
    try:
        db.sales.aggregate([group, {"$out": {"db": other.name, "coll": "report"}}])
        equal(other.report.count_documents({}), 5)
    finally:
        db.client.drop_database(other.name)


# Updates by pipeline.


@check
def an_average_is_kept_by_the_update_itself(db):
    db.products.insert_one({"_id": "rug", "reviews": 0, "average": 0})
    for stars in [5, 4, 3, 5]:
        result = db.products.update_one(
            {"_id": "rug"},
            [
                {
                    "$set": {
                        "reviews": {"$add": ["$reviews", 1]},
                        "average": {"$divide": [{"$add": [{"$multiply": ["$average", "$reviews"]}, stars]}, {"$add": ["$reviews", 1]}]},
                    }
                }
            ],
        )
        equal((result.matched_count, result.modified_count), (1, 1))
    equal(db.products.find_one(), {"_id": "rug", "reviews": 4, "average": 4.25})


@check
def many_documents_are_updated_by_what_they_hold(db):
    db.people.insert_many(
        [{"_id": 1, "version": 1, "phone": "555-1234"}, {"_id": 2, "version": 1, "phone": "030-99"}, {"_id": 3, "version": 2, "phone": {"area": "1", "number": "2"}}]
    )
    split = {"$split": ["$phone", "-"]}
    result = db.people.update_many(
        {"version": {"$lt": 2}},
        [
            {"$set": {"phone": {"area": {"$arrayElemAt": [split, 0]}, "number": {"$last": split}}, "version": 2}},
            {"$unset": "old"},
        ],
    )
    equal((result.matched_count, result.modified_count), (2, 2))
    equal(db.people.find_one({"_id": 2}), {"_id": 2, "version": 2, "phone": {"area": "030", "number": "99"}})
    result = db.people.update_many({}, [{"$set": {"version": 2}}])
    equal((result.matched_count, result.modified_count), (3, 0))
    result = db.people.update_one({"_id": 9}, [{"$set": {"version": {"$ifNull": ["$version", 1]}, "made": "$$NOW"}}], upsert=True)
    equal(result.upserted_id, 9)
    equal(type(db.people.find_one({"_id": 9})["made"]), datetime.datetime)
    fails(66, lambda: db.people.update_one({"_id": 1}, [{"$set": {"_id": 5}}]), WriteError)
    fails(40324, lambda: db.people.update_one({"_id": 1}, [{"$nonsense": {"a": 5}}]))
    fails(72, lambda: db.people.update_one({"_id": 1}, [{"$match": {"a": 5}}]))


@check
def find_and_modify_takes_a_pipeline(db):
    db.t.insert_one({"_id": 1, "items": [{"p": 3, "n": 2}, {"p": 1.5, "n": 4}]})
    total = {"$sum": {"$map": {"input": "$items", "as": "it", "in": {"$multiply": ["$$it.p", "$$it.n"]}}}}
    before = db.t.find_one_and_update({"_id": 1}, [{"$set": {"total": total}}])
    equal("total" in before, False)
    after = db.t.find_one_and_update(
        {"_id": 1}, [{"$set": {"total": {"$add": ["$total", "$$extra"]}}}, {"$replaceWith": {"_id": "$_id", "total": "$total"}}],
        let={"extra": 1}, return_document=ReturnDocument.AFTER,
    )
    equal(after, {"_id": 1, "total": 13.0})
    made = db.t.find_one_and_update({"_id": 2}, [{"$set": {"n": 1}}], upsert=True, return_document=ReturnDocument.AFTER)
    equal(made, {"_id": 2, "n": 1})


@check
def bulk_writes_mix_pipelines_and_operators(db):
    db.t.insert_many([{"_id": n, "a": n} for n in range(6)])
    result = db.t.bulk_write(
        [
            InsertOne({"_id": 6, "a": 6}),
            UpdateMany({"a": {"$gte": 3}}, [{"$set": {"b": {"$pow": ["$a", 2]}}}]),
            UpdateOne({"_id": 0}, {"$inc": {"a": 10}}),
            UpdateOne({"_id": 0}, [{"$set": {"a": {"$add": ["$a", "$$NOW"]}}}, {"$set": {"a": {"$type": "$a"}}}]),
        ]
    )
    equal((result.inserted_count, result.matched_count, result.modified_count), (1, 6, 6))
    equal([d.get("b") for d in db.t.find().sort("_id")], [None, None, None, 9, 16, 25, 36])
    equal(db.t.find_one({"_id": 0})["a"], "date")
    try:
        db.t.bulk_write([UpdateOne({"_id": 1}, [{"$set": {"a": {"$divide": ["$a", 0]}}}])])
        raise AssertionError("divided by zero")
    except BulkWriteError as error:
        equal(error.details["writeErrors"][0]["code"], 2)


@check
def a_transaction_holds_a_pipeline_and_what_it_wrote(db):
    db.t.insert_many([{"_id": n, "a": n} for n in range(5)])
    with db.client.start_session() as session:
        with session.start_transaction():
            db.t.update_many({}, [{"$set": {"a": {"$multiply": ["$a", 10]}}}], session=session)
            inside = list(db.t.aggregate([{"$group": {"_id": None, "sum": {"$sum": "$a"}}}], session=session))
            outside = list(db.t.aggregate([{"$group": {"_id": None, "sum": {"$sum": "$a"}}}]))
            equal((inside[0]["sum"], outside[0]["sum"]), (100, 10))
            session.abort_transaction()
    equal(db.t.find_one({"_id": 4})["a"], 4)


# Counting.


@check
def documents_are_counted_in_three_ways(db):
    db.t.insert_many([{"_id": n, "a": n % 7, "tags": ["x"] * (n % 3)} for n in range(100)])
    equal(db.t.count_documents({}), 100)
    equal(db.t.count_documents({"a": 3}), 14)
    equal(db.t.count_documents({"a": {"$gte": 5}}, skip=5, limit=10), 10)
    equal(db.t.count_documents({"$expr": {"$eq": [{"$size": "$tags"}, 2]}}), 33)
    equal(db.t.estimated_document_count(), 100)
    equal(sorted(db.t.distinct("a", {"$expr": {"$gt": ["$a", 4]}})), [5, 6])
    equal(db.none.count_documents({}), 0)
    equal(db.none.estimated_document_count(), 0)
    equal(list(db.none.aggregate([{"$count": "n"}])), [])


@check
def finds_compute_what_they_show(db):
    db.t.insert_many([{"_id": 1, "price": 5, "n": 3}, {"_id": 2, "price": Decimal128("2.50"), "n": 2}, {"_id": 3, "n": 1}])
    shown = list(db.t.find({"$expr": {"$gt": ["$n", 1]}}, {"total": {"$multiply": ["$price", "$n"]}}).sort("_id"))
    equal(shown, [{"_id": 1, "total": 15}, {"_id": 2, "total": Decimal128("5.00")}])
    shown = list(db.t.find({"$expr": {"$eq": ["$n", "$$wanted"]}}, {"_id": 1}, let={"wanted": 1}))
    equal(shown, [{"_id": 3}])


# What people do with schemas by hand.


@check
def references_are_followed_by_lookup(db):
    ada, ben = ObjectId(), ObjectId()
    db.customers.insert_many([{"_id": ada, "name": "Ada", "city": "Bursa"}, {"_id": ben, "name": "Ben", "city": "Konya"}])
    db.orders.insert_many(
        [
            {"_id": 1, "customer": ada, "total": 40, "lines": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}]},
            {"_id": 2, "customer": ben, "total": 15, "lines": [{"sku": "a", "n": 1}]},
            {"_id": 3, "customer": ObjectId(), "total": 1, "lines": []},
        ]
    )
    db.goods.insert_many([{"_id": "a", "title": "Rug"}, {"_id": "b", "title": "Bag"}])
    joined = list(
        db.orders.aggregate(
            [{"$lookup": {"from": "customers", "localField": "customer", "foreignField": "_id", "as": "who"}}, {"$sort": {"_id": 1}}]
        )
    )
    equal([[w["name"] for w in order["who"]] for order in joined], [["Ada"], ["Ben"], []])
    rows = list(
        db.orders.aggregate(
            [
                {"$lookup": {"from": "customers", "localField": "customer", "foreignField": "_id", "as": "who"}},
                {"$unwind": "$who"},
                {"$match": {"who.city": "Bursa"}},
                {"$project": {"total": 1, "name": "$who.name"}},
            ]
        )
    )
    equal(rows, [{"_id": 1, "total": 40, "name": "Ada"}])
    rows = list(
        db.orders.aggregate(
            [
                {"$unwind": "$lines"},
                {"$lookup": {"from": "goods", "localField": "lines.sku", "foreignField": "_id", "as": "good"}},
                {"$group": {"_id": {"$first": "$good.title"}, "sold": {"$sum": "$lines.n"}}},
                {"$sort": {"_id": 1}},
            ]
        )
    )
    equal(rows, [{"_id": "Bag", "sold": 1}, {"_id": "Rug", "sold": 3}])
    rows = list(
        db.customers.aggregate(
            [
                {
                    "$lookup": {
                        "from": "orders",
                        "let": {"id": "$_id", "least": 20},
                        "pipeline": [
                            {"$match": {"$expr": {"$and": [{"$eq": ["$customer", "$$id"]}, {"$gte": ["$total", "$$least"]}]}}},
                            {"$project": {"_id": 1}},
                        ],
                        "as": "big",
                    }
                },
                {"$sort": {"name": 1}},
                {"$project": {"_id": 0, "name": 1, "big": 1}},
            ]
        )
    )
    equal(rows, [{"name": "Ada", "big": [{"_id": 1}]}, {"name": "Ben", "big": []}])


@check
def ratings_are_averaged_on_read_and_stored(db):
    db.products.insert_many([{"_id": "rug"}, {"_id": "bag"}])
    db.reviews.insert_many([{"product": p, "stars": s} for p, s in [("rug", 5), ("rug", 4), ("bag", 3), ("rug", 5), ("bag", 2)]])
    db.reviews.create_index("product")
    rows = list(db.reviews.aggregate([{"$match": {"product": "rug"}}, {"$group": {"_id": None, "average": {"$avg": "$stars"}, "n": {"$sum": 1}}}]))
    equal(rows, [{"_id": None, "average": 14 / 3, "n": 3}])
    db.reviews.aggregate(
        [
            {"$group": {"_id": "$product", "average": {"$avg": "$stars"}, "reviews": {"$count": {}}}},
            {"$merge": {"into": "products", "whenMatched": "merge", "whenNotMatched": "discard"}},
        ]
    )
    equal(db.products.find_one({"_id": "bag"}), {"_id": "bag", "average": 2.5, "reviews": 2})
    stars = list(db.reviews.aggregate([{"$sortByCount": "$stars"}, {"$match": {"count": {"$gt": 1}}}]))
    equal(stars, [{"_id": 5, "count": 2}])


@check
def a_page_shows_each_product_with_its_newest_reviews(db):
    db.products.insert_many([{"_id": "rug"}, {"_id": "bag"}])
    db.reviews.insert_many([{"_id": n, "product": "rug" if n % 2 else "bag", "at": day(3, n + 1), "stars": n % 5} for n in range(20)])
    db.reviews.create_index([("product", 1), ("at", -1)])
    newest = [{"$sort": {"at": -1}}, {"$limit": 3}, {"$project": {"stars": 1}}]
    rows = list(
        db.products.aggregate(
            [
                {"$lookup": {"from": "reviews", "localField": "_id", "foreignField": "product", "pipeline": newest, "as": "newest"}},
                {"$sort": {"_id": 1}},
            ]
        )
    )
    equal([[r["_id"] for r in row["newest"]] for row in rows], [[18, 16, 14], [19, 17, 15]])
    rows = list(
        db.reviews.aggregate(
            [{"$sort": {"at": -1}}, {"$group": {"_id": "$product", "newest": {"$firstN": {"input": "$_id", "n": 3}}, "top": {"$top": {"sortBy": {"stars": -1, "_id": 1}, "output": "$_id"}}}}, {"$sort": {"_id": 1}}]
        )
    )
    equal(rows, [{"_id": "bag", "newest": [18, 16, 14], "top": 4}, {"_id": "rug", "newest": [19, 17, 15], "top": 9}])


@check
def readings_are_put_into_buckets_and_taken_out(db):
    db.readings.insert_many([{"sensor": f"s{n % 2}", "at": day(3, 1, 10 + n // 60, n % 60), "celsius": 20 + (n % 10) / 2} for n in range(150)])
    hour = {"$dateTrunc": {"date": "$at", "unit": "hour"}}
    db.readings.aggregate(
        [
            {"$sort": {"at": 1}},
            {
                "$group": {
                    "_id": {"sensor": "$sensor", "hour": hour},
                    "count": {"$sum": 1},
                    "readings": {"$push": {"m": {"$minute": "$at"}, "celsius": "$celsius"}},
                    "coldest": {"$min": "$celsius"},
                    "warmest": {"$max": "$celsius"},
                    "average": {"$avg": "$celsius"},
                }
            },
            {"$out": "buckets"},
        ]
    )
    equal(db.buckets.count_documents({}), 6)
    bucket = db.buckets.find_one({"_id.sensor": "s1", "_id.hour": day(3, 1, 10)})
    equal((bucket["count"], bucket["coldest"], bucket["warmest"], bucket["average"]), (30, 20.5, 24.5, 22.5))
    equal(bucket["readings"][1], {"m": 3, "celsius": 21.5})
    rows = list(
        db.buckets.aggregate(
            [
                {"$match": {"_id.hour": {"$gte": day(3, 1, 11)}}},
                {"$unwind": "$readings"},
                {"$group": {"_id": "$_id.sensor", "n": {"$sum": 1}, "spread": {"$stdDevPop": "$readings.celsius"}}},
                {"$sort": {"_id": 1}},
            ]
        )
    )
    equal([(row["_id"], row["n"]) for row in rows], [("s0", 45), ("s1", 45)])
    assert abs(rows[0]["spread"] - 2**0.5) < 1e-9, rows
    faceted = list(
        db.readings.aggregate(
            [
                {
                    "$facet": {
                        "warm": [{"$match": {"celsius": {"$gte": 24}}}, {"$count": "n"}],
                        "ranges": [{"$bucket": {"groupBy": "$celsius", "boundaries": [20, 22, 25], "output": {"n": {"$sum": 1}}}}],
                        "halves": [{"$bucketAuto": {"groupBy": "$celsius", "buckets": 2}}],
                    }
                }
            ]
        )
    )
    equal(faceted[0]["warm"], [{"n": 30}])
    equal(faceted[0]["ranges"], [{"_id": 20, "n": 60}, {"_id": 22, "n": 90}])
    equal([half["count"] for half in faceted[0]["halves"]], [75, 75])


@check
def a_tree_is_climbed_and_descended(db):
    db.topics.insert_many(
        [
            {"_id": "craft", "parent": None},
            {"_id": "textile", "parent": "craft"},
            {"_id": "kilim", "parent": "textile"},
            {"_id": "lace", "parent": "textile"},
            {"_id": "slit weave", "parent": "kilim"},
        ]
    )
    db.topics.create_index("parent")

    def graph(start, connect_from, connect_to, **more):
        stage = {"from": "topics", "startWith": start, "connectFromField": connect_from, "connectToField": connect_to, "as": "all", "depthField": "depth", **more}
        return [{"$match": {"_id": "kilim" if connect_from == "parent" else "textile"}}, {"$graphLookup": stage}, {"$unwind": "$all"}, {"$sort": {"all.depth": 1, "all._id": 1}}, {"$replaceRoot": {"newRoot": "$all"}}]

    up = list(db.topics.aggregate(graph("$parent", "parent", "_id")))
    equal([(t["_id"], t["depth"]) for t in up], [("textile", 0), ("craft", 1)])
    down = list(db.topics.aggregate(graph("$_id", "_id", "parent")))
    equal([(t["_id"], t["depth"]) for t in down], [("kilim", 0), ("lace", 0), ("slit weave", 1)])
    down = list(db.topics.aggregate(graph("$_id", "_id", "parent", maxDepth=0, restrictSearchWithMatch={"_id": {"$ne": "lace"}})))
    equal([t["_id"] for t in down], ["kilim"])


@check
def kinds_are_reported_together(db):
    db.goods.insert_many(
        [
            {"_id": 1, "kind": "book", "price": 30, "pages": 300},
            {"_id": 2, "kind": "film", "price": 15, "minutes": 90},
            {"_id": 3, "kind": "book", "price": 10, "pages": 100},
        ]
    )
    rows = list(
        db.goods.aggregate(
            [
                {
                    "$project": {
                        "kind": 1,
                        "label": {
                            "$switch": {
                                "branches": [
                                    {"case": {"$eq": ["$kind", "book"]}, "then": {"$concat": [{"$toString": "$pages"}, " pages"]}},
                                    {"case": {"$eq": ["$kind", "film"]}, "then": {"$concat": [{"$toString": "$minutes"}, " min"]}},
                                ],
                                "default": "?",
                            }
                        },
                        "price": 1,
                    }
                },
                {"$group": {"_id": "$kind", "labels": {"$push": "$label"}, "price": {"$avg": "$price"}}},
                {"$sort": {"_id": 1}},
            ]
        )
    )
    equal(rows, [{"_id": "book", "labels": ["300 pages", "100 pages"], "price": 20.0}, {"_id": "film", "labels": ["90 min"], "price": 15.0}])


@check
def attributes_become_fields_and_fields_attributes(db):
    db.chairs.insert_one({"_id": 1, "name": "Chair", "specs": [{"k": "colour", "v": "black"}, {"k": "kilos", "v": 15}]})
    row = next(db.chairs.aggregate([{"$replaceWith": {"$mergeObjects": [{"name": "$name"}, {"$arrayToObject": "$specs"}]}}]))
    equal(row, {"name": "Chair", "colour": "black", "kilos": 15})
    db.flat.insert_one({"_id": 1, **row})
    row = next(db.flat.aggregate([{"$project": {"specs": {"$filter": {"input": {"$objectToArray": "$$ROOT"}, "cond": {"$not": {"$in": ["$$this.k", ["_id", "name"]]}}}}}}]))
    equal(row["specs"], [{"k": "colour", "v": "black"}, {"k": "kilos", "v": 15}])


@check
def an_outlier_is_read_with_its_overflow(db):
    db.members.insert_many([{"_id": "m", "followers": [1, 2], "overflows": True}, {"_id": "n", "followers": [3], "overflows": False}])
    db.overflow.insert_many([{"member": "m", "page": 2, "followers": [7]}, {"member": "m", "page": 1, "followers": [5, 6]}])
    rows = list(
        db.members.aggregate(
            [
                {"$lookup": {"from": "overflow", "localField": "_id", "foreignField": "member", "pipeline": [{"$sort": {"page": 1}}], "as": "pages"}},
                {"$set": {"followers": {"$reduce": {"input": "$pages.followers", "initialValue": "$followers", "in": {"$concatArrays": ["$$value", "$$this"]}}}}},
                {"$unset": "pages"},
                {"$sort": {"_id": 1}},
            ]
        )
    )
    equal([row["followers"] for row in rows], [[1, 2, 5, 6, 7], [3]])
    rows = list(
        db.members.aggregate(
            [
                {"$project": {"_id": 0, "member": "$_id", "n": {"$size": "$followers"}}},
                {"$unionWith": {"coll": "overflow", "pipeline": [{"$project": {"_id": 0, "member": 1, "n": {"$size": "$followers"}}}]}},
                {"$group": {"_id": "$member", "n": {"$sum": "$n"}}},
                {"$sort": {"_id": 1}},
            ]
        )
    )
    equal(rows, [{"_id": "m", "n": 5}, {"_id": "n", "n": 1}])


@check
def copies_are_found_stale_and_made_fresh(db):
    db.customers.insert_many([{"_id": n, "name": f"c{n}", "tier": "gold" if n else "iron"} for n in range(3)])
    db.orders.insert_many([{"_id": n, "customer": {"id": n % 3, "name": f"c{n % 3}", "tier": "tin"}} for n in range(9)])
    fresh = [
        {"$lookup": {"from": "customers", "localField": "customer.id", "foreignField": "_id", "as": "source"}},
        {"$set": {"source": {"$first": "$source"}}},
    ]
    stale = {"$match": {"$expr": {"$ne": ["$customer.tier", "$source.tier"]}}}
    equal(len(list(db.orders.aggregate(fresh + [stale]))), 9)
    db.orders.aggregate(fresh + [stale, {"$project": {"customer": {"id": 1, "name": "$source.name", "tier": "$source.tier"}}}, {"$merge": {"into": "orders", "whenMatched": "merge"}}])
    equal(len(list(db.orders.aggregate(fresh + [stale]))), 0)
    equal(db.orders.find_one({"_id": 4}), {"_id": 4, "customer": {"id": 1, "name": "c1", "tier": "gold"}})


@check
def two_clients_aggregate_while_one_writes(db):
    db.t.insert_many([{"_id": n, "a": 1} for n in range(2000)])
    cursor = db.t.aggregate([{"$match": {"a": 1}}, {"$sort": {"_id": 1}}], batchSize=10)
    next(cursor)
    other = MongoClient(URI)[db.name]
    other.t.delete_many({"_id": {"$gte": 1000}})
    equal(other.t.aggregate([{"$count": "n"}]).next(), {"n": 1000})
    assert len(list(cursor)) >= 999
    equal(db.t.estimated_document_count(), 1000)


@check
def a_refusal_says_what_it_is_about(db):
    db.t.insert_one({"_id": 1, "a": "x"})
    fails(40324, lambda: db.t.aggregate([{"$nonsense": 1}]))
    fails(168, lambda: db.t.aggregate([{"$group": {"_id": {"$nonsense": 1}}}]))
    fails(16554, lambda: list(db.t.aggregate([{"$project": {"b": {"$add": ["$a", 1]}}}])))
    fails(40323, lambda: db.t.aggregate([{"$match": {"a": 1}, "$limit": 1}]))
    fails(40601, lambda: db.t.aggregate([{"$out": "o"}, {"$match": {}}]))
    fails(9, lambda: db.command("aggregate", "t", pipeline=[{"$match": {}}]))
    error = fails(31249, lambda: db.t.aggregate([{"$project": {"a": 1, "a.b": 1}}]), OperationFailure)
    assert "collision" in str(error), error


if __name__ == "__main__":
    main("pymongo_aggregation")
