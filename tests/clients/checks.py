"""The frame of the Python scripts: named checks, each with a database of its own, one line per check."""

import os
import sys
import traceback

from pymongo import MongoClient
from pymongo.errors import OperationFailure

URI = os.environ["MONGODB_URI"]
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def equal(actual, expected):
    assert actual == expected, f"expected {expected!r}, got {actual!r}"


def fails(code, action, kind=OperationFailure):
    try:
        action()
    except kind as error:
        equal(error.code, code)
        return error
    raise AssertionError(f"no error, although {code} was expected")


def plan_stages(explain):
    stages = []
    stage = explain["queryPlanner"]["winningPlan"]
    while stage:
        stages.append(stage["stage"])
        stage = stage.get("inputStage")
    return stages


def main(prefix):
    # A server that said it is shutting down is not chosen again before its monitor has heard of it, at the next heartbeat:
    # with the usual ten seconds between two of them, checks that make it say so would take as long.
    client = MongoClient(URI, serverSelectionTimeoutMS=30_000, heartbeatFrequencyMS=500)
    client.admin.command("ping")
    chosen = sys.argv[1:]
    failed = 0
    for number, function in enumerate(CHECKS):
        if chosen and function.__name__ not in chosen:
            continue
        name = f"{prefix}_{os.getpid()}_{number}"
        try:
            function(client[name])
            print("ok    ", function.__name__.replace("_", " "), flush=True)
        except Exception:
            failed += 1
            print("FAILED", function.__name__.replace("_", " "), flush=True)
            traceback.print_exc(file=sys.stdout)
        finally:
            client.drop_database(name)
    sys.exit(1 if failed else 0)
