"""Users, by pymongo: logins by each mechanism, refusals, changes that count at once. Needs a server with users (--auth)."""
import os

from pymongo import MongoClient
from pymongo.errors import OperationFailure

URI = os.environ["MONGODB_URI"]
PASSWORD = "p@ss:/ wörd"


def check(name, is_true):
    if not is_true:
        raise AssertionError(name)
    print(f"ok {name}")


def refused(code, run):
    try:
        run()
    except OperationFailure as error:
        return error.code == code
    return False


open_client = MongoClient(URI, directConnection=True)
check("a command without a login is refused", refused(13, lambda: open_client.shop.a.find_one()))
open_client.admin.command("createUser", "root", pwd=PASSWORD, roles=["root"])
check("the exception ends with the first user", refused(
    13, lambda: open_client.admin.command("createUser", "two", pwd="x", roles=["root"])))
root = MongoClient(URI, directConnection=True, username="root", password=PASSWORD)
root.shop.a.insert_many([{"_id": number} for number in range(300)])
check("root writes", root.shop.a.count_documents({}) == 300)
root.shop.command("createUser", "ann", pwd=PASSWORD, roles=["read"])
for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256", None):
    chosen = {"authMechanism": mechanism} if mechanism else {}
    ann = MongoClient(URI, directConnection=True, username="ann", password=PASSWORD, authSource="shop", **chosen)
    check(f"{mechanism or 'the default'} logs in", ann.shop.a.find_one({"_id": 1}) == {"_id": 1})
    check(f"{mechanism or 'the default'} does not write", refused(13, lambda: ann.shop.a.insert_one({})))
    wrong = MongoClient(URI, directConnection=True, username="ann", password="wrong", authSource="shop", **chosen)
    check("a wrong password is refused", refused(18, lambda: wrong.shop.a.find_one()))
check("databases are those that one may see", ann.list_database_names() == ["shop"])
status = ann.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
check("connectionStatus tells who", status["authenticatedUsers"] == [{"user": "ann", "db": "shop"}])
check("and what he may", any("find" in one["actions"] for one in status["authenticatedUserPrivileges"]))
cursor = ann.shop.a.find(batch_size=2)
next(cursor)
root.shop.command("revokeRolesFromUser", "ann", roles=["read"])
check("a revoked role counts at once", refused(13, lambda: ann.shop.a.find_one()))
check("also for open cursors", refused(13, lambda: list(cursor)))
root.shop.command("grantRolesToUser", "ann", roles=["readWrite"])
check("a granted one, too", ann.shop.a.insert_one({"_id": "x"}).inserted_id == "x")
with ann.start_session() as session, session.start_transaction():
    ann.shop.a.insert_one({"_id": "y"}, session=session)
check("transactions work", ann.shop.a.find_one({"_id": "y"}) is not None)
check("lookups ask for their sources", refused(13, lambda: list(ann.shop.a.aggregate(
    [{"$unionWith": "system.profile"}]))))
root.shop.command("updateUser", "ann", pwd="new")
fresh = MongoClient(URI, directConnection=True, username="ann", password="new", authSource="shop")
check("a changed password logs in", fresh.shop.a.find_one({"_id": 1}) == {"_id": 1})
root.shop.command("dropUser", "ann")
check("a dropped user is out", refused(13, lambda: fresh.shop.a.find_one()))
shown = str(root.admin.command("currentOp", 1)) + str(list(root.admin["system.users"].find()))
check("no password is shown", PASSWORD not in shown)
