"""Encrypted connections, by pymongo: logins by each mechanism, a certificate's among them, and what is not trusted. Needs a server
with users and certificates: KILIM_CERTS has ca.pem and ann.pem, KILIM_PASSWORD is the password of the user root."""
import os

from pymongo import MongoClient
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

URI = os.environ["MONGODB_URI"]
CERTS = os.environ["KILIM_CERTS"]
PASSWORD = os.environ["KILIM_PASSWORD"]
CA, ANN = f"{CERTS}/ca.pem", f"{CERTS}/ann.pem"


def check(name, is_true):
    if not is_true:
        raise AssertionError(name)
    print(f"ok {name}")


def connect(**options):
    return MongoClient(URI, directConnection=True, **options)


def unreachable(**options):
    try:
        connect(serverSelectionTimeoutMS=2000, **options).admin.command("ping")
    except ServerSelectionTimeoutError:
        return True
    return False


for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256", None):
    chosen = {"authMechanism": mechanism} if mechanism else {}
    root = connect(tls=True, tlsCAFile=CA, username="root", password=PASSWORD, **chosen)
    check(f"{mechanism or 'the default'} logs in over TLS", root.admin.command("usersInfo", "root")["users"][0]["user"] == "root")
root.shop.pymongo_tls.drop()
root.shop.pymongo_tls.insert_many([{"_id": number, "text": "x" * 1000} for number in range(20_000)])
check("20 MB go both ways", sum(1 for _ in root.shop.pymongo_tls.find()) == 20_000)
check("plain text is refused", unreachable())
check("an authority that is not trusted is refused", unreachable(tls=True))
check("everything is trusted where that is asked for",
      connect(tls=True, tlsAllowInvalidCertificates=True).admin.command("ping")["ok"] == 1)

external = root["$external"]
if external.command("usersInfo", "CN=ann")["users"]:
    external.command("dropUser", "CN=ann")
try:
    connect(tls=True, tlsCAFile=CA, tlsCertificateKeyFile=ANN, authMechanism="MONGODB-X509").shop.pymongo_tls.find_one()
    check("a certificate of nobody is refused", False)
except OperationFailure as error:
    check("a certificate of nobody is refused", error.code in (11, 18))
external.command("createUser", "CN=ann", roles=[{"role": "read", "db": "shop"}])
ann = connect(tls=True, tlsCAFile=CA, tlsCertificateKeyFile=ANN, authMechanism="MONGODB-X509")
check("MONGODB-X509 logs in", ann.shop.pymongo_tls.find_one({"_id": 1})["_id"] == 1)
status = ann.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
check("by the certificate's subject", status == [{"user": "CN=ann", "db": "$external"}])
try:
    ann.shop.pymongo_tls.insert_one({})
    check("and may do what its roles say", False)
except OperationFailure as error:
    check("and may do what its roles say", error.code == 13)
try:
    connect(tls=True, tlsCAFile=CA, authMechanism="MONGODB-X509").admin.command("ping")
    check("without a certificate it does not", False)
except OperationFailure as error:
    check("without a certificate it does not", error.code == 18)
