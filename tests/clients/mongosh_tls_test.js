// mongosh over TLS: `mongosh URI --file mongosh_tls_test.js`, where the URI logs in as root. Needs what node_tls_test.mjs needs.

const home = `mongosh_tls_${process.pid}`;
load(`${__dirname}/mongosh_checks.js`);

const { KILIM_CERTS: certs, MONGODB_URI: uri } = process.env;

check('the shell is logged in over TLS', () => {
  equal(db.adminCommand({ connectionStatus: 1 }).authInfo.authenticatedUsers, [{ user: 'root', db: 'admin' }]);
  db.t.insertOne({ _id: 1 });
  equal(db.t.find().toArray(), [{ _id: 1 }]);
});

check('a certificate logs in', () => {
  db.t.insertOne({ _id: 1 });
  const external = db.getSiblingDB('$external');
  if (external.getUser('CN=ann')) external.dropUser('CN=ann');
  external.createUser({ user: 'CN=ann', roles: [{ role: 'read', db: db.getName() }] });
  const files = `tlsCAFile=${encodeURIComponent(`${certs}/ca.pem`)}&tlsCertificateKeyFile=${encodeURIComponent(`${certs}/ann.pem`)}`;
  const shell = Mongo(`${uri}?tls=true&${files}&authMechanism=MONGODB-X509&authSource=$external&directConnection=true`);
  equal(shell.getDB(db.getName()).t.findOne(), { _id: 1 });
});

if (failed) quit(1);
