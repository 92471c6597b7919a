"""hello, insert, find, kill -9, recover, find: the whole way of a durable write, from pymongo.

KILIM_BINARY names the binary. The data lies in a temporary directory and the server is ours, so this script
starts and kills it itself.
"""

import atexit
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

import bson
from bson import Binary, Int64
from pymongo import MongoClient
from pymongo.errors import DuplicateKeyError, PyMongoError

BINARY = os.environ["KILIM_BINARY"]


class Server:
    def __init__(self, data):
        command = [BINARY, "serve", "--port", "0", "--data", data]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # However this script ends, the server ends with it.
        atexit.register(self.process.kill)
        line = self.process.stdout.readline()
        found = re.search(r"mongodb://[^\s/]+", line)
        assert found, f"no ready line, but {line!r}"
        self.client = MongoClient(found.group(), serverSelectionTimeoutMS=3_000)

    def end(self, how):
        self.process.send_signal(how)
        status = self.process.wait(timeout=30)
        self.client.close()
        return status


def say(line):
    print("ok    ", line, flush=True)


def main():
    with tempfile.TemporaryDirectory() as data:
        server = Server(data)
        assert server.client.admin.command("hello")["isWritablePrimary"]
        shop = server.client.shop
        shop.rugs.create_index("name", unique=True)
        shop.rugs.insert_many([{"_id": n, "name": f"rug {n}"} for n in range(1000)])
        with server.client.start_session() as session, session.start_transaction():
            shop.rugs.update_one({"_id": 1}, {"$set": {"sold": True}}, session=session)
            shop.sales.insert_one({"_id": 1, "rug": 1}, session=session)
        retried = {
            "update": "rugs",
            "updates": [{"q": {"_id": 2}, "u": {"$inc": {"views": 1}}}],
            "lsid": {"id": Binary(bytes(range(16)), 4)},
            "txnNumber": Int64(1),
        }
        first = retryable(server.client, retried)
        assert shop.rugs.count_documents({}) == 1000
        say("inserted, indexed, committed a transaction")

        server.end(signal.SIGKILL)
        started = time.monotonic()
        server = Server(data)
        recovered = time.monotonic() - started
        shop = server.client.shop
        assert shop.rugs.count_documents({}) == 1000
        assert [rug["name"] for rug in shop.rugs.find({"name": "rug 7"})] == ["rug 7"]
        assert shop.rugs.find_one({"_id": 1})["sold"] and shop.sales.count_documents({}) == 1
        assert shop.command("validate", "rugs")["valid"]
        try:
            shop.rugs.insert_one({"name": "rug 7"})
            raise AssertionError("the unique index is gone")
        except DuplicateKeyError:
            pass
        say(f"all of it is there after kill -9 (ready in {recovered * 1000:.0f} ms)")

        second = retryable(server.client, retried)
        assert (second["n"], second["nModified"]) == (first["n"], first["nModified"])
        assert shop.rugs.find_one({"_id": 2})["views"] == 1
        say("a write retried across the restart was applied once")

        # Killed in the middle of writes: what was acknowledged is there, and nothing else.
        acknowledged = []
        child = os.fork()
        if child == 0:
            time.sleep(0.3)
            os.kill(server.process.pid, signal.SIGKILL)
            os._exit(0)
        try:
            for n in range(1_000_000):
                shop.stream.insert_one({"_id": n})
                acknowledged.append(n)
        except PyMongoError:
            pass
        os.waitpid(child, 0)
        server.end(signal.SIGKILL)
        server = Server(data)
        found = [document["_id"] for document in server.client.shop.stream.find().sort("_id")]
        # The one in flight may have been written without an answer.
        assert found in (acknowledged, acknowledged + [len(acknowledged)]), (len(found), len(acknowledged))
        assert acknowledged
        say(f"{len(acknowledged)} acknowledged writes survived a kill in their midst")

        started = time.monotonic()
        assert server.end(signal.SIGTERM) == 0
        stopped = time.monotonic() - started
        server = Server(data)
        assert server.client.shop.rugs.count_documents({}) == 1000
        assert server.end(signal.SIGINT) == 0
        say(f"SIGTERM and SIGINT stop cleanly (in {stopped * 1000:.0f} ms)")


def retryable(client, command):
    """Sends a command over a bare socket, because the driver would replace our session id by its own."""
    body = bson.encode({**command, "$db": "shop"})
    message = struct.pack("<iiiiIb", 21 + len(body), 1, 0, 2013, 0, 0) + body
    with socket.create_connection(client.address) as connection:
        connection.sendall(message)
        length, *_ = struct.unpack("<iiii", read(connection, 16))
        reply = bson.decode(read(connection, length - 16)[5:])
    assert reply["ok"] == 1, reply
    return reply


def read(connection, length):
    parts = b""
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        assert part, "the connection closed"
        parts += part
    return parts


if __name__ == "__main__":
    main()
