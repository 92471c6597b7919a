"""pymongo against the server of MONGODB_URI: one line per check, non-zero exit if one fails.

Every check has a database of its own. What is expected here is true of mongod too: run it there first.
"""

import datetime
import re
import threading

import pymongo
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions
from pymongo import (
    DeleteMany,
    DeleteOne,
    InsertOne,
    MongoClient,
    ReplaceOne,
    ReturnDocument,
    UpdateMany,
    UpdateOne,
)
from pymongo.errors import BulkWriteError, DuplicateKeyError, NotPrimaryError, WriteError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from checks import URI, check, equal, fails, main, plan_stages


@check
def the_server_introduces_itself(db):
    hello = db.client.admin.command("hello")
    assert hello["isWritablePrimary"] and hello["setName"], hello
    assert hello["maxBsonObjectSize"] == 16 * 1024 * 1024
    assert hello["logicalSessionTimeoutMinutes"] == 30
    assert db.client.server_info()["versionArray"][0] >= 6
    equal(db.command("ping")["ok"], 1.0)


@check
def documents_come_back_as_they_went(db):
    document = {
        "_id": ObjectId(),
        "double": 1.5,
        "text": "Grüße 🧶",
        "nested": {"list": [1, [2, {"three": 3}]], "empty": {}},
        "binary": Binary(b"\x00\x01", 5),
        "bytes": b"\x02",
        "bool": True,
        "date": datetime.datetime(2024, 1, 15, 10, 0, 0, 123000),
        "null": None,
        "regex": Regex("^a", re.IGNORECASE),
        "code": Code("f()"),
        "int": 42,
        "stamp": Timestamp(5, 6),
        "long": Int64(2**40),
        "decimal": Decimal128("1.50"),
        "min": MinKey(),
        "max": MaxKey(),
    }
    db.things.insert_one(document)
    found = db.things.find_one({"_id": document["_id"]})
    equal(found, document)
    equal(list(found), list(document))


@check
def an_application_creates_reads_updates_and_deletes(db):
    users = db.users
    ids = users.insert_many([{"name": f"user {n}", "age": n} for n in range(10)]).inserted_ids
    equal(len(ids), 10)
    equal(users.count_documents({}), 10)
    equal(users.count_documents({"age": {"$gte": 5}}), 5)
    equal(users.count_documents({}, skip=3, limit=4), 4)
    equal(users.estimated_document_count(), 10)
    result = users.update_one({"age": 3}, {"$set": {"name": "Alice"}, "$inc": {"age": 30}})
    equal((result.matched_count, result.modified_count), (1, 1))
    result = users.update_many({"age": {"$lt": 3}}, {"$set": {"young": True}})
    equal((result.matched_count, result.modified_count), (3, 3))
    result = users.update_one({"name": "nobody"}, {"$set": {"age": 1}}, upsert=True)
    equal((result.matched_count, type(result.upserted_id)), (0, ObjectId))
    result = users.replace_one({"name": "Alice"}, {"name": "Alice", "replaced": True})
    equal(result.modified_count, 1)
    equal(users.find_one({"name": "Alice"}, {"_id": 0}), {"name": "Alice", "replaced": True})
    equal(users.delete_one({"age": 9}).deleted_count, 1)
    equal(users.delete_many({"young": True}).deleted_count, 3)
    equal(users.count_documents({}), 7)
    equal(users.distinct("age", {"age": {"$gt": 4}}), [5, 6, 7, 8])


@check
def a_cursor_fetches_in_batches_and_honours_skip_limit_and_sort(db):
    db.numbers.insert_many([{"_id": n, "parity": n % 2} for n in range(250)])
    cursor = db.numbers.find({}, batch_size=7).sort("_id", -1)
    equal([document["_id"] for document in cursor], list(range(249, -1, -1)))
    cursor = db.numbers.find({"parity": 0}).sort([("_id", 1)]).skip(10).limit(5).batch_size(2)
    equal([document["_id"] for document in cursor], [20, 22, 24, 26, 28])
    equal(len(list(db.numbers.find(limit=-3))), 3)
    equal([d["_id"] for d in db.numbers.find().sort("_id", 1)[5:8]], [5, 6, 7])
    with db.numbers.find(batch_size=10) as cursor:
        next(cursor)
        assert cursor.alive and cursor.cursor_id
        identifier = cursor.cursor_id
    fails(43, lambda: db.command("getMore", Int64(identifier), collection="numbers"))
    equal(list(db.nowhere.find()), [])


@check
def a_cursor_larger_than_a_message_comes_in_pieces(db):
    db.large.insert_many([{"_id": n, "text": "x" * 1_000_000} for n in range(40)])
    equal(sum(len(document["text"]) for document in db.large.find()), 40_000_000)


@check
def projections_shape_what_comes_back(db):
    db.t.insert_one({"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "list": [1, 2, 3, 4], "items": [{"k": 1}, {"k": 2}]})
    equal(db.t.find_one({}, {"a": 1}), {"_id": 1, "a": 1})
    equal(db.t.find_one({}, {"b.c": 1, "_id": 0}), {"b": {"c": 2}})
    equal(db.t.find_one({}, {"b": 0, "list": 0, "items": 0}), {"_id": 1, "a": 1})
    equal(db.t.find_one({}, {"list": {"$slice": [1, 2]}, "a": 1}), {"_id": 1, "a": 1, "list": [2, 3]})
    equal(db.t.find_one({}, {"items": {"$elemMatch": {"k": 2}}}), {"_id": 1, "items": [{"k": 2}]})
    equal(db.t.find_one({"list": {"$gt": 2}}, {"list.$": 1}), {"_id": 1, "list": [3]})


@check
def every_update_operator_does_its_work(db):
    t = db.t

    def updated(before, update, **options):
        t.delete_many({})
        t.insert_one({"_id": 1, **before})
        t.update_one(options.pop("filter", {"_id": 1}), update, **options)
        document = t.find_one({"_id": 1})
        del document["_id"]
        return document

    equal(updated({"a": 1}, {"$set": {"b.c": 2}}), {"a": 1, "b": {"c": 2}})
    equal(updated({"a": 1, "b": 2}, {"$unset": {"a": ""}}), {"b": 2})
    equal(updated({"a": 1}, {"$inc": {"a": 2, "n": 5}}), {"a": 3, "n": 5})
    equal(updated({"a": 2}, {"$mul": {"a": 2.5}}), {"a": 5.0})
    equal(updated({"a": 5, "b": 5}, {"$min": {"a": 3}, "$max": {"b": 3}}), {"a": 3, "b": 5})
    equal(updated({"a": 1}, {"$rename": {"a": "z"}}), {"z": 1})
    equal(updated({"a": 13}, {"$bit": {"a": {"and": 10}}}), {"a": 8})
    equal(updated({"a": [1]}, {"$push": {"a": 2}}), {"a": [1, 2]})
    equal(
        updated({"a": [5, 1]}, {"$push": {"a": {"$each": [3, 9], "$sort": -1, "$slice": 3}}}),
        {"a": [9, 5, 3]},
    )
    equal(updated({"a": [1, 2]}, {"$push": {"a": {"$each": [8], "$position": 0}}}), {"a": [8, 1, 2]})
    equal(updated({"a": [1]}, {"$addToSet": {"a": {"$each": [1, 2]}}}), {"a": [1, 2]})
    equal(updated({"a": [1, 2, 3]}, {"$pop": {"a": -1}}), {"a": [2, 3]})
    equal(updated({"a": [1, 5, 9]}, {"$pull": {"a": {"$gte": 5}}}), {"a": [1]})
    equal(updated({"a": [1, 2, 1]}, {"$pullAll": {"a": [1]}}), {"a": [2]})
    equal(updated({"a": [1, 2, 3]}, {"$set": {"a.$": 9}}, filter={"a": 2}), {"a": [1, 9, 3]})
    equal(updated({"a": [1, 2]}, {"$inc": {"a.$[]": 10}}), {"a": [11, 12]})
    equal(
        updated({"a": [{"k": 1, "v": 1}, {"k": 2, "v": 1}]}, {"$inc": {"a.$[it].v": 5}}, array_filters=[{"it.k": 2}]),
        {"a": [{"k": 1, "v": 1}, {"k": 2, "v": 6}]},
    )
    dated = updated({}, {"$currentDate": {"at": True, "stamp": {"$type": "timestamp"}}})
    assert isinstance(dated["at"], datetime.datetime) and isinstance(dated["stamp"], Timestamp)
    equal(
        t.update_one({"_id": 7, "kind": "x"}, {"$setOnInsert": {"made": 1}, "$set": {"seen": 2}}, upsert=True).upserted_id,
        7,
    )
    equal(list(t.find_one({"_id": 7}).items()), [("_id", 7), ("kind", "x"), ("made", 1), ("seen", 2)])
    fails(66, lambda: t.update_one({"_id": 7}, {"$set": {"_id": 8}}), WriteError)
    fails(40, lambda: t.update_one({"_id": 7}, {"$set": {"a": 1}, "$inc": {"a": 1}}), WriteError)


@check
def find_one_and_modify_answers_before_or_after(db):
    t = db.t
    t.insert_many([{"_id": n, "n": n} for n in range(3)])
    equal(t.find_one_and_update({"_id": 1}, {"$inc": {"n": 5}}), {"_id": 1, "n": 1})
    after = t.find_one_and_update({"_id": 1}, {"$inc": {"n": 5}}, return_document=ReturnDocument.AFTER)
    equal(after, {"_id": 1, "n": 11})
    newest = t.find_one_and_update({}, {"$set": {"picked": True}}, sort=[("n", -1)], projection={"n": 1})
    equal(newest, {"_id": 1, "n": 11})
    made = t.find_one_and_replace({"_id": 9}, {"x": 1}, upsert=True, return_document=ReturnDocument.AFTER)
    equal(made, {"_id": 9, "x": 1})
    equal(t.find_one_and_delete({"_id": 2}), {"_id": 2, "n": 2})
    equal(t.find_one_and_delete({"_id": 2}), None)


@check
def bulk_writes_report_counts_and_errors(db):
    result = db.t.bulk_write(
        [
            InsertOne({"_id": 1, "n": 1}),
            InsertOne({"_id": 2, "n": 2}),
            UpdateOne({"_id": 1}, {"$inc": {"n": 10}}),
            UpdateMany({}, {"$set": {"seen": True}}),
            ReplaceOne({"_id": 3}, {"n": 3}, upsert=True),
            DeleteOne({"_id": 2}),
            DeleteMany({"n": {"$gt": 100}}),
        ]
    )
    equal(
        (result.inserted_count, result.matched_count, result.modified_count, result.deleted_count, result.upserted_ids),
        (2, 3, 3, 1, {4: 3}),
    )
    equal(list(db.t.find(sort=[("_id", 1)])), [{"_id": 1, "n": 11, "seen": True}, {"_id": 3, "n": 3}])
    batch = [{"_id": 10}, {"_id": 1}, {"_id": 11}]
    error = fails(65, lambda: db.t.insert_many(batch), BulkWriteError)
    equal((error.details["nInserted"], error.details["writeErrors"][0]["index"]), (1, 1))
    equal(db.t.count_documents({"_id": {"$gte": 10}}), 1)
    error = fails(65, lambda: db.t.insert_many([{"_id": 1}, {"_id": 12}], ordered=False), BulkWriteError)
    equal(error.details["nInserted"], 1)
    many = db.big.insert_many([{"_id": n} for n in range(25_000)])
    equal(len(many.inserted_ids), 25_000)
    equal(db.big.count_documents({}), 25_000)


@check
def indexes_are_listed_used_and_dropped(db):
    t = db.t
    t.insert_many([{"a": n % 10, "b": n, "tags": ["x", n % 3]} for n in range(100)])
    equal(t.create_index("a"), "a_1")
    equal(t.create_index([("a", 1), ("b", -1)], name="ab"), "ab")
    equal(sorted(t.create_indexes([pymongo.IndexModel("tags"), pymongo.IndexModel("b", sparse=True)])), ["b_1", "tags_1"])
    information = t.index_information()
    equal(sorted(information), ["_id_", "a_1", "ab", "b_1", "tags_1"])
    equal(information["ab"]["key"], [("a", 1), ("b", -1)])
    explain = t.find({"a": 3}).sort("b", -1).explain()
    equal(plan_stages(explain), ["FETCH", "IXSCAN"])
    statistics = explain["executionStats"]
    equal((statistics["nReturned"], statistics["totalKeysExamined"], statistics["totalDocsExamined"]), (10, 10, 10))
    equal(plan_stages(t.find({"c": 3}).explain()), ["COLLSCAN"])
    equal(plan_stages(t.find({"a": 3}, {"_id": 0, "a": 1, "b": 1}).hint("ab").explain()), ["PROJECTION_COVERED", "IXSCAN"])
    equal(len(list(t.find({"tags": 1}).hint("tags_1"))), 33)
    fails(2, lambda: list(t.find({"a": 1}).hint("nothing")))
    t.drop_index("a_1")
    fails(27, lambda: t.drop_index("a_1"))
    t.drop_indexes()
    equal(list(t.index_information()), ["_id_"])


@check
def a_unique_index_refuses_the_second(db):
    db.users.create_index("email", unique=True)
    db.users.insert_one({"_id": 1, "email": "a@example.com"})
    error = fails(11000, lambda: db.users.insert_one({"email": "a@example.com"}), DuplicateKeyError)
    equal((error.details["keyPattern"], error.details["keyValue"]), ({"email": 1}, {"email": "a@example.com"}))
    db.users.insert_one({"_id": 2, "email": "b@example.com"})
    fails(11000, lambda: db.users.update_one({"_id": 2}, {"$set": {"email": "a@example.com"}}), DuplicateKeyError)
    fails(11000, lambda: db.users.find_one_and_update({"_id": 2}, {"$set": {"email": "a@example.com"}}), DuplicateKeyError)
    db.users.insert_one({"_id": 3})
    fails(11000, lambda: db.users.insert_one({"_id": 4}), DuplicateKeyError)
    db.copies.insert_many([{"x": 1}, {"x": 1}])
    fails(11000, lambda: db.copies.create_index("x", unique=True), DuplicateKeyError)


@check
def collections_and_databases_are_listed_renamed_and_dropped(db):
    db.create_collection("made")
    db.other.insert_one({})
    equal(sorted(db.list_collection_names()), ["made", "other"])
    assert db.name in db.client.list_database_names()
    db.made.rename("renamed")
    equal(sorted(db.list_collection_names()), ["other", "renamed"])
    fails(48, lambda: db.other.rename("renamed"))
    db.other.rename("renamed", dropTarget=True)
    equal(db.renamed.count_documents({}), 1)
    db.renamed.drop()
    equal(db.list_collection_names(), [])
    assert db.command("dbStats")["db"] == db.name


@check
def a_transaction_commits_all_or_nothing(db):
    db.accounts.insert_many([{"_id": "a", "balance": 100}, {"_id": "b", "balance": 0}])
    with db.client.start_session() as session:
        with session.start_transaction():
            db.accounts.update_one({"_id": "a"}, {"$inc": {"balance": -30}}, session=session)
            db.accounts.update_one({"_id": "b"}, {"$inc": {"balance": 30}}, session=session)
            equal(db.accounts.find_one({"_id": "a"}, session=session)["balance"], 70)
            equal(db.accounts.find_one({"_id": "a"})["balance"], 100)
            equal(db.accounts.count_documents({"balance": 30}, session=session), 1)
        equal(db.accounts.find_one({"_id": "b"})["balance"], 30)
        session.start_transaction()
        db.accounts.delete_many({}, session=session)
        db.journal.insert_one({"made": "inside"}, session=session)
        session.abort_transaction()
        equal(db.accounts.count_documents({}), 2)
        assert "journal" not in db.list_collection_names()
        with session.start_transaction(read_concern=ReadConcern("snapshot"), write_concern=WriteConcern("majority")):
            db.journal.insert_one({"made": "inside"}, session=session)
    equal(db.journal.count_documents({}), 1)


@check
def a_transaction_reads_one_snapshot(db):
    db.t.insert_one({"_id": 1, "n": 1})
    with db.client.start_session() as session, session.start_transaction():
        equal(db.t.find_one({"_id": 1}, session=session)["n"], 1)
        db.t.update_one({"_id": 1}, {"$set": {"n": 2}})
        db.t.insert_one({"_id": 2})
        equal(db.t.find_one({"_id": 1}, session=session)["n"], 1)
        equal(db.t.count_documents({}, session=session), 1)
    equal(db.t.count_documents({}), 2)


@check
def two_transactions_on_one_document_conflict(db):
    db.t.insert_one({"_id": 1, "n": 0})
    with db.client.start_session() as first, db.client.start_session() as second:
        first.start_transaction()
        second.start_transaction()
        db.t.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=first)
        error = fails(112, lambda: db.t.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=second))
        assert error.has_error_label("TransientTransactionError")
        fails(251, lambda: db.t.find_one({}, session=second))
        second.abort_transaction()
        first.commit_transaction()
        # Committed after the snapshot of a later one was opened: a conflict too.
        second.start_transaction()
        db.t.find_one({"_id": 1}, session=second)
        db.t.update_one({"_id": 1}, {"$inc": {"n": 1}})
        fails(112, lambda: db.t.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=second))
        second.abort_transaction()
    equal(db.t.find_one({"_id": 1})["n"], 2)


@check
def with_transaction_retries_until_both_have_counted(db):
    db.t.insert_one({"_id": "counter", "n": 0})
    attempts = []

    def work():
        def count(session):
            attempts.append(1)
            value = db.t.find_one({"_id": "counter"}, session=session)["n"]
            db.t.update_one({"_id": "counter"}, {"$set": {"n": value + 1}}, session=session)

        for _ in range(10):
            with db.client.start_session() as session:
                session.with_transaction(count)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    equal(db.t.find_one({"_id": "counter"})["n"], 40)
    assert len(attempts) >= 40


@check
def a_failed_statement_ends_its_transaction(db):
    db.t.insert_one({"_id": 1})
    with db.client.start_session() as session:
        session.start_transaction()
        db.t.insert_one({"_id": 2}, session=session)
        fails(11000, lambda: db.t.insert_one({"_id": 1}, session=session), DuplicateKeyError)
        fails(251, lambda: db.t.insert_one({"_id": 3}, session=session))
        session.abort_transaction()
    equal(db.t.count_documents({}), 1)


def fail_command(db, mode, **data):
    db.client.admin.command("configureFailPoint", "failCommand", mode=mode, data=data)


@check
def a_retryable_write_survives_a_lost_connection(db):
    db.t.insert_one({"_id": 0})
    try:
        fail_command(db, {"times": 1}, failCommands=["insert"], closeConnection=True)
        db.t.insert_one({"_id": 1})
        fail_command(db, {"times": 1}, failCommands=["update"], errorCode=91, errorLabels=["RetryableWriteError"])
        equal(db.t.update_one({"_id": 1}, {"$inc": {"n": 1}}).modified_count, 1)
        fail_command(db, {"times": 1}, failCommands=["findAndModify"], errorCode=11600, errorLabels=["RetryableWriteError"])
        db.t.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}})
        fail_command(db, {"times": 1}, failCommands=["find"], closeConnection=True)
        equal(db.t.find_one({"_id": 1}), {"_id": 1, "n": 2})
        fail_command(db, {"times": 1}, failCommands=["delete"], errorCode=8000)
        fails(8000, lambda: db.t.delete_one({"_id": 1}))
    finally:
        fail_command(db, "off")
    equal(db.t.count_documents({}), 2)


@check
def a_driver_that_is_told_not_primary_stays_with_the_server(db):
    topology = db.client.admin.command("hello")["topologyVersion"]
    try:
        for code in [189, 10107, 11602, 13435, 13436]:
            fail_command(db, {"times": 1}, failCommands=["insert"], errorCode=code)
            # Its own retry succeeds, because the error told of no newer topology than it knew.
            db.t.insert_one({"_id": code})
            fail_command(db, {"times": 1}, failCommands=["ping"], errorCode=code)
            try:
                db.command("ping")
                raise AssertionError(f"no error, although {code} was expected")
            except NotPrimaryError as error:
                equal((error.details["code"], error.details["topologyVersion"]), (code, topology))
    finally:
        fail_command(db, "off")
    equal(db.t.count_documents({}), 5)


@check
def a_repeated_statement_is_applied_once(db):
    db.t.insert_one({"_id": 1, "n": 0})
    command = {
        "update": "t",
        "updates": [{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}],
        "txnNumber": Int64(1),
    }
    # A client of its own, because its session goes back to a pool whose next user numbers from 1 too.
    with MongoClient(URI) as own, own.start_session() as session:
        first, second = [own[db.name].command(command, session=session) for _ in range(2)]
    equal((first["n"], first["nModified"]), (second["n"], second["nModified"]))
    equal(second["retriedStmtIds"], [0])
    equal(db.t.find_one({"_id": 1})["n"], 1)


@check
def a_commit_is_retried_and_found_done(db):
    db.t.insert_one({"_id": 1})
    try:
        with db.client.start_session() as session:
            session.start_transaction()
            db.t.insert_one({"_id": 2}, session=session)
            fail_command(db, {"times": 1}, failCommands=["commitTransaction"], closeConnection=True)
            session.commit_transaction()
            session.commit_transaction()
    finally:
        fail_command(db, "off")
    equal(db.t.count_documents({}), 2)


@check
def sessions_are_started_used_and_ended(db):
    with db.client.start_session(causal_consistency=True) as session:
        db.t.insert_one({"_id": 1}, session=session)
        assert session.operation_time is not None and session.cluster_time is not None
        equal(db.t.find_one({}, session=session), {"_id": 1})
        identifier = session.session_id
    db.command("endSessions", [identifier])


@check
def a_snapshot_session_reads_one_moment(db):
    db.t.insert_one({"_id": 1})
    with db.client.start_session(snapshot=True) as session:
        equal(db.t.count_documents({}, session=session), 1)
        db.t.insert_one({"_id": 2})
        equal(db.t.count_documents({}, session=session), 1)


@check
def compressed_connections_carry_the_same(db):
    for compressor in ["zlib", "zstd", "snappy"]:
        client = MongoClient(URI, compressors=compressor)
        collection = client[db.name][compressor]
        collection.insert_many([{"_id": n, "text": "kilim " * 100} for n in range(100)])
        equal(sum(len(document["text"]) for document in collection.find()), 60_000)
        client.close()


@check
def options_are_honoured_or_refused(db):
    db.t.insert_many([{"_id": n, "n": n} for n in range(5)])
    equal(len(list(db.t.find({"n": {"$gt": 1}}, comment="why", max_time_ms=10_000, allow_disk_use=True))), 3)
    db.get_collection("t", write_concern=WriteConcern(w=1, j=True)).insert_one({"_id": 10})
    db.get_collection("t", write_concern=WriteConcern(w=0)).insert_one({"_id": 11})
    equal(db.t.count_documents({"_id": {"$gte": 10}}), 2)
    for level in ["local", "available", "majority", "linearizable"]:
        assert db.get_collection("t", read_concern=ReadConcern(level)).find_one({"_id": 10})
    fails(59, lambda: db.command("noSuchCommand"))
    fails(2, lambda: list(db.t.find({"n": {"$nonsense": 1}})))
    fails(9, lambda: db.t.update_one({}, {"$nonsense": {"a": 1}}), WriteError)
    fails(73, lambda: db.command("find", "$bad"))


@check
def large_and_deep_documents_meet_their_limits(db):
    db.t.insert_one({"_id": 1, "text": "x" * 15_000_000})
    equal(len(db.t.find_one({"_id": 1})["text"]), 15_000_000)
    fails(10334, lambda: db.t.update_one({"_id": 1}, {"$set": {"more": "y" * 3_000_000}}), WriteError)
    equal("more" in db.t.find_one({"_id": 1}, {"more": 1}), False)


@check
def filters_find_what_they_describe(db):
    db.t.insert_many(
        [
            {"_id": 1, "a": 1, "tags": ["x", "y"], "name": "Alice"},
            {"_id": 2, "a": 2.5, "tags": ["y"], "name": "bob", "nested": {"k": [1, 2]}},
            {"_id": 3, "a": None, "tags": [], "name": "Carol"},
            {"_id": 4, "name": "dave", "items": [{"k": 1, "v": 5}, {"k": 2, "v": 1}]},
        ]
    )

    def ids(query):
        return [document["_id"] for document in db.t.find(query).sort("_id")]

    equal(ids({"a": {"$gt": 1}}), [2])
    equal(ids({"a": None}), [3, 4])
    equal(ids({"a": {"$exists": False}}), [4])
    equal(ids({"a": {"$type": "double"}}), [2])
    equal(ids({"tags": "y"}), [1, 2])
    equal(ids({"tags": {"$all": ["x", "y"]}}), [1])
    equal(ids({"tags": {"$size": 0}}), [3])
    equal(ids({"name": re.compile("^[a-c]", re.IGNORECASE)}), [1, 2, 3])
    equal(ids({"nested.k": {"$in": [2, 7]}}), [2])
    equal(ids({"items": {"$elemMatch": {"k": 1, "v": {"$gt": 4}}}}), [4])
    equal(ids({"items": {"$elemMatch": {"k": 2, "v": {"$gt": 4}}}}), [])
    equal(ids({"$or": [{"_id": 1}, {"name": "dave"}]}), [1, 4])
    equal(ids({"$nor": [{"_id": 1}, {"name": "dave"}]}), [2, 3])
    equal(ids({"a": {"$not": {"$gt": 1}}}), [1, 3, 4])
    equal(ids({"_id": {"$mod": [2, 0]}}), [2, 4])
    equal(ids({"_id": {"$bitsAllSet": 2}}), [2, 3])


@check
def aware_dates_and_raw_batches_work(db):
    now = datetime.datetime(2024, 5, 17, 12, 0, tzinfo=datetime.timezone.utc)
    db.t.insert_one({"_id": 1, "at": now})
    aware = db.t.with_options(CodecOptions(tz_aware=True))
    equal(aware.find_one({"at": {"$lte": now}})["at"], now)
    equal(len(b"".join(db.t.find_raw_batches())) > 10, True)


# What people do with schemas by hand.


@check
def readings_fill_buckets_by_upsert(db):
    hour = datetime.datetime(2024, 3, 1, 10)
    readings = db.readings
    readings.create_index([("sensor", 1), ("hour", -1)])
    for minute in range(130):
        result = readings.update_one(
            {"sensor": "s1", "hour": hour, "count": {"$lt": 60}},
            {
                "$push": {"values": {"minute": minute % 60, "celsius": 20 + minute / 100}},
                "$inc": {"count": 1},
                "$min": {"coldest": 20 + minute / 100},
                "$max": {"warmest": 20 + minute / 100},
            },
            upsert=True,
        )
        equal(result.upserted_id is not None, minute % 60 == 0)
    buckets = list(readings.find({"sensor": "s1", "hour": {"$gte": hour}}).sort("coldest", 1))
    equal([bucket["count"] for bucket in buckets], [60, 60, 10])
    equal([len(bucket["values"]) for bucket in buckets], [60, 60, 10])
    equal((buckets[1]["coldest"], buckets[1]["warmest"]), (20.6, 21.19))
    equal(list(buckets[0]), ["_id", "hour", "sensor", "coldest", "count", "values", "warmest"])


@check
def measurements_of_sensors_are_a_time_series(db):
    db.create_collection("sensor_data", timeseries={"timeField": "timestamp", "metaField": "sensorId"})
    ten = datetime.datetime(2024, 3, 1, 10)
    minute = datetime.timedelta(minutes=1)
    sent = [{"sensorId": f"S{n % 2}", "timestamp": ten + n * minute, "temp": 22.4 + n} for n in range(120)]
    equal(len(db.sensor_data.insert_many(sent).inserted_ids), 120)
    equal(db.sensor_data.insert_one({"sensorId": "S1", "timestamp": ten, "temp": 22.5}).acknowledged, True)
    found = list(db.sensor_data.find({"sensorId": "S1", "timestamp": {"$gte": ten + 100 * minute}}).sort("timestamp", 1))
    equal([row["temp"] for row in found], [22.4 + n for n in range(101, 120, 2)])
    hours = {"$dateTrunc": {"date": "$timestamp", "unit": "hour"}}
    means = db.sensor_data.aggregate([
        {"$match": {"sensorId": "S0"}},
        {"$group": {"_id": hours, "n": {"$sum": 1}, "most": {"$max": "$temp"}}},
        {"$sort": {"_id": 1}},
    ])
    equal([(mean["_id"].hour, mean["n"], mean["most"]) for mean in means], [(10, 30, 80.4), (11, 30, 140.4)])
    last = db.sensor_data.aggregate([
        {"$sort": {"timestamp": 1}},
        {"$group": {"_id": "$sensorId", "last": {"$last": "$temp"}}},
        {"$sort": {"_id": 1}},
    ])
    equal(list(last), [{"_id": "S0", "last": 140.4}, {"_id": "S1", "last": 141.4}])
    error = fails(2, lambda: db.sensor_data.insert_one({"sensorId": "S1", "temp": 1}), WriteError)
    assert "'timestamp' must be present" in str(error)
    equal(db.sensor_data.delete_many({"sensorId": "S0"}).deleted_count, 60)
    equal(db.sensor_data.update_many({"sensorId": "S1"}, {"$set": {"sensorId": "S2"}}).modified_count, 61)
    equal(db.sensor_data.distinct("sensorId"), ["S2"])


@check
def measurements_by_the_minute_are_a_time_series(db):
    options = {"timeField": "ts", "metaField": "sensorId", "granularity": "minutes"}
    db.create_collection("sensor_data", timeseries=options)
    [info] = db.list_collections(filter={"name": "sensor_data"})
    equal((info["type"], info["options"]["timeseries"]), ("timeseries", {**options, "bucketMaxSpanSeconds": 86400}))
    db.sensor_data.create_index([("sensorId", 1), ("ts", -1)])
    first = datetime.datetime(2024, 3, 1)
    hour = datetime.timedelta(hours=1)
    db.sensor_data.insert_many({"sensorId": "S1", "ts": first + n * hour, "temp": n, "humid": 60} for n in range(48))
    found = db.sensor_data.find({"sensorId": "S1", "ts": {"$gte": first + 24 * hour}}).sort("ts", -1)
    equal([row["temp"] for row in found], list(range(47, 23, -1)))
    equal(sorted(db.list_collection_names()), ["sensor_data", "system.buckets.sensor_data", "system.views"])
    db.sensor_data.drop()
    equal(db.list_collection_names(filter={"name": {"$ne": "system.views"}}), [])


@check
def a_product_keeps_its_newest_reviews(db):
    db.products.insert_one({"_id": "rug", "name": "Rug", "reviewCount": 0, "newest": []})
    for day in [3, 1, 7, 5, 2, 9, 4]:
        review = {"by": f"reader {day}", "stars": day % 5 + 1, "date": datetime.datetime(2024, 3, day)}
        db.reviews.insert_one({"product": "rug", **review})
        db.products.update_one(
            {"_id": "rug"},
            {
                "$push": {"newest": {"$each": [review], "$sort": {"date": -1}, "$slice": 3}},
                "$inc": {"reviewCount": 1},
            },
        )
    product = db.products.find_one({"_id": "rug"})
    equal([review["date"].day for review in product["newest"]], [9, 7, 5])
    equal(product["reviewCount"], 7)
    db.reviews.create_index([("product", 1), ("date", -1)])
    page = db.reviews.find({"product": "rug"}).sort("date", -1).limit(4)
    equal([review["date"].day for review in page], [9, 7, 5, 4])


@check
def each_kind_has_its_own_unique_field(db):
    db.goods.create_index("isbn", unique=True, partialFilterExpression={"kind": "book"})
    db.goods.create_index([("kind", 1), ("title", 1)])
    db.goods.insert_many(
        [
            {"_id": 1, "kind": "book", "title": "Weaving", "isbn": "1", "pages": 320},
            {"_id": 2, "kind": "film", "title": "Weaving, the film", "isbn": "1"},
            {"_id": 3, "kind": "film", "title": "Dyes", "isbn": "1"},
        ]
    )
    fails(11000, lambda: db.goods.insert_one({"kind": "book", "isbn": "1"}), DuplicateKeyError)
    equal(db.goods.count_documents({"title": re.compile("Weaving")}), 2)
    equal(db.goods.find_one({"kind": "book", "pages": {"$gt": 200}})["_id"], 1)
    explain = db.goods.find({"kind": "book", "isbn": "1"}).hint("isbn_1").explain()
    equal(plan_stages(explain), ["FETCH", "IXSCAN"])


@check
def a_tree_is_walked_in_four_ways(db):
    db.topics.insert_many(
        [
            {"_id": "craft", "parent": None, "ancestors": [], "path": ",craft,", "left": 1, "right": 8},
            {"_id": "textile", "parent": "craft", "ancestors": ["craft"], "path": ",craft,textile,", "left": 2, "right": 7},
            {"_id": "kilim", "parent": "textile", "ancestors": ["craft", "textile"], "path": ",craft,textile,kilim,", "left": 3, "right": 4},
            {"_id": "lace", "parent": "textile", "ancestors": ["craft", "textile"], "path": ",craft,textile,lace,", "left": 5, "right": 6},
        ]
    )
    db.topics.create_index("ancestors")
    db.topics.create_index("path")

    def ids(query):
        return sorted(db.topics.distinct("_id", query))

    equal(ids({"parent": "textile"}), ["kilim", "lace"])
    equal(ids({"ancestors": "craft"}), ["kilim", "lace", "textile"])
    equal(ids({"path": re.compile(",textile,")}), ["kilim", "lace", "textile"])
    equal(ids({"path": re.compile("^,craft,textile,")}), ["kilim", "lace", "textile"])
    equal(ids({"left": {"$lt": 3}, "right": {"$gt": 4}}), ["craft", "textile"])
    equal(plan_stages(db.topics.find({"path": re.compile("^,craft,textile,")}).explain()), ["FETCH", "IXSCAN"])


@check
def attributes_are_found_by_name_and_value(db):
    db.chairs.insert_many(
        [
            {"_id": 1, "specs": [{"k": "colour", "v": "black"}, {"k": "kilos", "v": 15}]},
            {"_id": 2, "specs": [{"k": "colour", "v": "red"}, {"k": "lining", "v": "black"}]},
        ]
    )
    db.chairs.create_index([("specs.k", 1), ("specs.v", 1)])
    equal(db.chairs.distinct("_id", {"specs": {"$elemMatch": {"k": "colour", "v": "black"}}}), [1])
    equal(db.chairs.distinct("_id", {"specs": {"$elemMatch": {"k": "kilos", "v": {"$gt": 10}}}}), [1])
    explain = db.chairs.find({"specs": {"$elemMatch": {"k": "colour", "v": "black"}}}).explain()
    equal(plan_stages(explain), ["FETCH", "IXSCAN"])
    equal(explain["executionStats"]["totalKeysExamined"], 1)


@check
def old_documents_are_migrated_in_a_loop(db):
    db.people.insert_many([{"_id": n, "version": 1, "phone": f"555-{n:04}"} for n in range(150)])
    db.people.insert_one({"_id": 1000, "version": 2, "phone": {"country": "+1", "number": "555-1000"}})
    for person in db.people.find({"version": {"$lt": 2}}, batch_size=20):
        db.people.update_one(
            {"_id": person["_id"]},
            {"$set": {"phone": {"country": "+1", "number": person["phone"]}, "version": 2}},
        )
    equal(db.people.count_documents({"version": 2, "phone.country": "+1"}), 151)


@check
def copies_of_a_customer_are_renamed_everywhere(db):
    db.orders.insert_many(
        [{"_id": n, "customer": {"id": n % 3, "name": f"c{n % 3}", "email": f"c{n % 3}@example.com"}} for n in range(30)]
    )
    db.orders.create_index("customer.email")
    result = db.orders.update_many(
        {"customer.email": "c1@example.com"},
        {"$set": {"customer.name": "Chloe", "customer.email": "chloe@example.com"}},
    )
    equal((result.matched_count, result.modified_count), (10, 10))
    equal(db.orders.count_documents({"customer.email": "chloe@example.com", "customer.id": 1}), 10)


@check
def an_outlier_overflows_into_a_second_collection(db):
    limit = 5
    db.members.insert_one({"_id": "m", "followers": [], "count": 0})
    for follower in range(12):
        added = db.members.update_one(
            {"_id": "m", "count": {"$lt": limit}}, {"$push": {"followers": follower}, "$inc": {"count": 1}}
        )
        if added.matched_count == 0:
            db.members.update_one({"_id": "m"}, {"$set": {"overflows": True}, "$inc": {"count": 1}})
            db.overflow.update_one(
                {"member": "m", "n": {"$lt": limit}}, {"$push": {"followers": follower}, "$inc": {"n": 1}}, upsert=True
            )
    member = db.members.find_one({"_id": "m"})
    rest = [follower for page in db.overflow.find({"member": "m"}).sort("_id") for follower in page["followers"]]
    equal(member["followers"] + rest, list(range(12)))
    equal((member["count"], db.overflow.count_documents({})), (12, 2))


@check
def a_pending_queue_is_served_by_a_partial_index(db):
    db.jobs.create_index([("made", -1)], partialFilterExpression={"status": "pending"})
    db.jobs.insert_many([{"_id": n, "made": n, "status": "pending" if n % 10 == 0 else "done"} for n in range(100)])
    explain = db.jobs.find({"status": "pending", "made": {"$gte": 0}}).sort("made", -1).explain()
    equal(plan_stages(explain), ["FETCH", "IXSCAN"])
    equal(explain["executionStats"]["totalKeysExamined"], 10)
    equal(plan_stages(db.jobs.find({"made": {"$gte": 0}}).explain()), ["COLLSCAN"])
    taken = db.jobs.find_one_and_update({"status": "pending"}, {"$set": {"status": "taken"}}, sort=[("made", 1)])
    equal(taken["_id"], 0)



@check
def products_are_searched_by_text(db):
    db.products.insert_many(
        [
            {"_id": 1, "name": "Wireless headphones", "description": "Wireless sound, amazing sound!"},
            {"_id": 2, "name": "Cable", "description": "For everything that is not wireless"},
            {"_id": 3, "name": "Lamp", "description": "Light"},
        ]
    )
    name = db.products.create_index(
        [("name", pymongo.TEXT), ("description", pymongo.TEXT)], weights={"name": 10}, default_language="english"
    )
    equal(name, "name_text_description_text")
    listed = db.products.index_information()[name]
    equal(listed["key"], [("_fts", "text"), ("_ftsx", 1)])
    equal(dict(listed["weights"]), {"description": 1, "name": 10})
    score = {"$meta": "textScore"}
    search = {"$text": {"$search": "wireless"}}
    found = db.products.find(search, {"score": score}).sort([("score", score)])
    equal([(each["_id"], each["score"]) for each in found], [(1, 8.125), (2, 0.75)])
    equal([each["_id"] for each in db.products.find({"$text": {"$search": "wireless -cable"}})], [1])
    equal([each["_id"] for each in db.products.find({"$text": {"$search": '"amazing sound"'}})], [1])
    best = db.products.aggregate([{"$match": search}, {"$sort": {"score": score}}, {"$limit": 1}])
    equal([each["_id"] for each in best], [1])
    fails(27, lambda: db.others.find_one(search))
    db.products.update_one({"_id": 3}, {"$set": {"description": "Wireless light"}})
    equal(db.products.count_documents(search), 3)


if __name__ == "__main__":
    main("pymongo")
