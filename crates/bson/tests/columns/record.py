"""Records columns as a mongod compresses them, beside the values that the same mongod reads from them.

    python record.py HOST:PORT SEED COLLECTIONS FILE [BYTES]

Measurements are made at random from the seed: numbers that grow, jump, repeat, have few decimals or many, texts of all
lengths, times, ids, decimals, binaries, nulls, documents and arrays within each other, fields that come and go. FILE gets a
document {column, values} for each column. With BYTES, no more than that, of small columns with different beginnings and lengths.
"""
import datetime, random, sys

import bson
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

address, seed, collections, path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
limit = int(sys.argv[5]) if len(sys.argv) > 5 else None
client = MongoClient("mongodb://" + address, directConnection=True)
raw = MongoClient("mongodb://" + address, directConnection=True, document_class=RawBSONDocument)
dice = random.Random(seed)
BEGIN = datetime.datetime(2024, 1, 1)


def walk(step):
    at = [dice.randint(-1000, 1000)]

    def move():
        at[0] += dice.randint(-step, step)
        return at[0]

    return move


def evenly(step):
    at = [0]

    def move():
        at[0] += step if dice.random() < 0.99 else 0
        return at[0]

    return move


def rarely(make):
    """A value that mostly repeats."""
    last = [make()]

    def next_value():
        if dice.random() < 0.01:
            last[0] = make()
        return last[0]

    return next_value


def maker(depth=0):
    kind = dice.randint(0, 33 if depth < 3 else 27)
    few, many, wide = walk(3), walk(10**6), walk(10**12)
    even = evenly(dice.choice([1, 10, 1000, 2**20]))
    if kind >= 28:
        parts = [maker(depth + 1) for _ in range(dice.randint(1, 3))]
        whole = dice.choice([1, 1, 0.9, 0.3])
        names = lambda: {f"x{i}": part() for i, part in enumerate(parts) if dice.random() < whole}
        return [
            names,
            lambda: {"in": names(), "n": few()},
            lambda: [part() for part in parts],
            lambda: {"list": [part() for part in parts], "empty": {}},
            lambda: [names(), few()],
            lambda: {} if dice.random() < 0.2 else names(),
        ][kind - 28]
    if kind == 27:
        return rarely(maker(depth + 1))
    texts = ["a", "on", "off", "idle", "x" * 16, "x" * 17, "", "a long text that has no number", "é", "sensor-1", "sensor-2"]
    few_texts = texts[: dice.randint(1, len(texts))]
    size = dice.choice([0, 1, 4, 16, 17])
    return [
        lambda: few(),
        lambda: max(-(2**31), min(2**31 - 1, many())),
        lambda: Int64(wide()),
        lambda: few() / 10,
        lambda: many() / 100,
        lambda: many() / 10000,
        lambda: dice.random(),
        lambda: float(few()),
        lambda: dice.choice(few_texts),
        lambda: dice.random() < 0.5,
        lambda: None,
        lambda: ObjectId(),
        lambda: ObjectId(bytes(dice.randbytes(12))),
        lambda: BEGIN + datetime.timedelta(milliseconds=many()),
        lambda: BEGIN + datetime.timedelta(milliseconds=even()),
        lambda: Decimal128(f"{few()}.{dice.randint(0, 9)}"),
        lambda: Binary(dice.randbytes(size), dice.choice([0, 0, 0, 5])),
        lambda: Timestamp(1000 + abs(few()), abs(few())),
        lambda: Int64(few() << dice.choice([0, 4, 16, 40])),
        lambda: Int64(dice.choice([1, -1]) * dice.getrandbits(dice.randint(1, 63))),
        lambda: dice.choice([1, 1.5, Int64(3)]),
        lambda: Regex("a", dice.choice(["", "i"])),
        lambda: Code(dice.choice(["a", "b", "function() {}"])),
        lambda: Int64(even()),
        lambda: dice.choice([float("nan"), float("inf"), -0.0, 1e300, 5e-324, 1.5]),
        lambda: dice.choice([MinKey(), MaxKey()]),
        lambda: Code("f", {"a": few()}),
    ][kind]


def sparsely(make):
    """A field that is there for a while, and then is not."""
    state = [True]

    def next_value():
        if dice.random() < 0.01:
            state[0] = not state[0]
        return make() if state[0] else dice

    return next_value


database = client.columns
client.drop_database("columns")
for number in range(collections):
    name = f"c{number}"
    database.create_collection(name, timeseries={"timeField": "t", "metaField": "k"})
    fields = []
    for at in range(dice.randint(1, 5)):
        make, share = maker(), dice.choice([1, 1, 1, 0.9, 0.5, 0.05, None])
        fields.append((f"f{at}", sparsely(make) if share is None else make, share or 1))
    documents, millis = [], 0
    for at in range(dice.choice([3, 40, 300, 1500, 4000])):
        millis += dice.choice([800, 800, 800, dice.randint(0, 900)])
        document = {"t": BEGIN + datetime.timedelta(milliseconds=millis), "k": 1}
        if number % 2:
            document["_id"] = at
        for field, make, share in fields:
            value = make() if dice.random() < share else dice
            if value is not dice:
                document[field] = value
        documents.append(document)
    for at in range(0, len(documents), 700):
        database[name].insert_many(documents[at : at + 700], ordered=False)
    # The next day closes the bucket that is open, and what is closed is compressed.
    database[name].insert_one({"t": BEGIN + datetime.timedelta(days=1), "k": 1})

unpack = {"$_internalUnpackBucket": {"timeField": "t", "metaField": "k", "bucketMaxSpanSeconds": 3600}}
seen, written, columns, values = set(), 0, 0, 0
with open(path, "wb") as out:
    for number in range(collections):
        buckets = raw.columns[f"system.buckets.c{number}"]
        for bucket in buckets.find({"control.version": 2}):
            rows = list(buckets.aggregate([{"$match": {"_id": bucket["_id"]}}, unpack]))
            assert len(rows) == bucket["control"]["count"]
            for field, column in bson.decode(bucket["data"].raw).items():
                kind = (column[:3], len(column) // 64)
                if limit and kind in seen:
                    continue
                seen.add(kind)
                found = {str(at): row[field] for at, row in enumerate(rows) if field in row}
                pair = {"column": Binary(column, 7), "values": found}
                encoded = bson.encode(pair)
                if limit and (written + len(encoded) > limit or len(encoded) > limit // 80):
                    continue
                out.write(encoded)
                written += len(encoded)
                columns += 1
                values += len(found)
print(columns, "columns", values, "values", written, "bytes")
