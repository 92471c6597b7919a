"""Change streams through pymongo: watch, resume after an error, invalidate, transactions."""

from pymongo.errors import OperationFailure

from checks import check, equal, fails, main


def drain(stream):
    events = []
    while stream.alive:
        event = stream.try_next()
        if event is None:
            break
        events.append(event)
    return events


@check
def a_collection_is_watched(db):
    db.c.insert_one({"_id": 0})
    with db.c.watch(max_await_time_ms=50) as stream:
        db.c.insert_one({"_id": 1, "a": 1})
        db.c.update_one({"_id": 1}, {"$set": {"a": 2}})
        db.c.replace_one({"_id": 1}, {"b": 1})
        db.c.delete_one({"_id": 1})
        events = drain(stream)
    equal([event["operationType"] for event in events], ["insert", "update", "replace", "delete"])
    equal(events[0]["fullDocument"], {"_id": 1, "a": 1})
    equal(events[1]["updateDescription"]["updatedFields"], {"a": 2})
    equal(events[3]["documentKey"], {"_id": 1})


@check
def a_stream_is_resumed_after_its_token(db):
    with db.watch(max_await_time_ms=50) as stream:
        db.c.insert_many([{"_id": number} for number in range(5)])
        events = drain(stream)
    equal(len(events), 5)
    for at, event in enumerate(events):
        with db.watch(resume_after=event["_id"], max_await_time_ms=50) as stream:
            equal(drain(stream), events[at + 1 :])

    def of_another_collection():
        # mongod says so when the next event comes, Kilim at once.
        with db.d.watch(resume_after=events[0]["_id"], max_await_time_ms=50) as stream:
            db.d.insert_one({})
            next(stream)

    fails(280, of_another_collection, OperationFailure)


@check
def the_driver_resumes_when_its_cursor_is_gone(db):
    db.c.insert_one({"_id": 0})
    with db.c.watch(max_await_time_ms=50) as stream:
        db.c.insert_one({"_id": 1})
        equal(next(stream)["documentKey"], {"_id": 1})
        db.command({"killCursors": "c", "cursors": [stream._cursor.cursor_id]})
        db.c.insert_one({"_id": 2})
        equal(next(stream)["documentKey"], {"_id": 2})


@check
def the_driver_resumes_after_a_network_error(db):
    db.c.insert_one({"_id": 0})
    with db.c.watch(max_await_time_ms=50) as stream:
        db.c.insert_one({"_id": 1})
        equal(next(stream)["documentKey"], {"_id": 1})
        fail = {"failCommands": ["getMore"], "closeConnection": True}
        db.client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=fail)
        db.c.insert_one({"_id": 2})
        equal(next(stream)["documentKey"], {"_id": 2})
        db.client.admin.command("configureFailPoint", "failCommand", mode="off")


@check
def a_drop_invalidates(db):
    db.c.insert_one({"_id": 0})
    with db.c.watch(max_await_time_ms=50) as stream:
        db.c.drop()
        events = drain(stream)
        equal([event["operationType"] for event in events], ["drop", "invalidate"])
        equal(stream.alive, False)
    with db.c.watch(start_after=events[-1]["_id"], max_await_time_ms=50) as stream:
        db.c.insert_one({"_id": 1})
        equal([event["operationType"] for event in drain(stream)], ["insert"])


@check
def a_transaction_comes_at_once(db):
    db.c.insert_one({"_id": 0})
    with db.client.watch(max_await_time_ms=50) as stream:
        with db.client.start_session() as session, session.start_transaction():
            db.c.insert_one({"_id": 1}, session=session)
            db.c.insert_one({"_id": 2}, session=session)
        events = [event for event in drain(stream) if event["ns"]["db"] == db.name]
    equal([event["documentKey"]["_id"] for event in events], [1, 2])
    equal(events[0]["clusterTime"], events[1]["clusterTime"])
    assert all("lsid" in event and "txnNumber" in event for event in events)


@check
def stages_look_at_events(db):
    pipeline = [{"$match": {"operationType": "update"}}, {"$project": {"documentKey": 1}}]
    with db.c.watch(pipeline, full_document="updateLookup", max_await_time_ms=50) as stream:
        db.c.insert_one({"_id": 1})
        db.c.update_one({"_id": 1}, {"$set": {"a": 1}})
        events = drain(stream)
    equal([event["documentKey"] for event in events], [{"_id": 1}])
    fails(20, lambda: db.c.watch([{"$group": {"_id": 1}}]).close(), OperationFailure)


main("change_streams")
