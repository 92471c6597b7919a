// The Node driver over TLS, by each mechanism. Needs a server with users and certificates: KILIM_CERTS has ca.pem and ann.pem,
// KILIM_PASSWORD is the password of the user root.

import { createRequire } from 'node:module';
import { check, equal, fails, run } from './checks.mjs';

const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const { MongoClient } = require('mongodb');

const { MONGODB_URI: uri, KILIM_CERTS: certs, KILIM_PASSWORD: password } = process.env;
const tls = { directConnection: true, tls: true, tlsCAFile: `${certs}/ca.pem` };
const asRoot = { ...tls, auth: { username: 'root', password } };

async function using(options, work) {
  const client = new MongoClient(uri, { serverSelectionTimeoutMS: 5000, ...options });
  try {
    return await work(client);
  } finally {
    await client.close();
  }
}

for (const authMechanism of ['SCRAM-SHA-1', 'SCRAM-SHA-256', undefined]) {
  check(`${authMechanism ?? 'the default'} logs in over TLS`, async () => {
    const status = await using({ ...asRoot, authMechanism }, (client) => client.db('admin').command({ connectionStatus: 1 }));
    equal(status.authInfo.authenticatedUsers, [{ user: 'root', db: 'admin' }]);
  });
}

check('a wrong password is refused', async () => {
  const wrong = { ...tls, auth: { username: 'root', password: 'wrong' } };
  await using(wrong, (client) => fails(18, client.db('shop').collection('t').findOne()));
});

check('a certificate logs in', async (name) => {
  await using(asRoot, async (client) => {
    await client.db(name).collection('t').insertOne({ _id: 1 });
    const external = client.db('$external');
    if ((await external.command({ usersInfo: 'CN=ann' })).users.length) await external.command({ dropUser: 'CN=ann' });
    await external.command({ createUser: 'CN=ann', roles: [{ role: 'read', db: name }] });
  });
  const asAnn = { ...tls, tlsCertificateKeyFile: `${certs}/ann.pem`, authMechanism: 'MONGODB-X509', authSource: '$external' };
  await using(asAnn, async (client) => {
    equal(await client.db(name).collection('t').findOne(), { _id: 1 });
    await fails(13, client.db(name).collection('t').insertOne({}));
  });
  await using(asRoot, (client) => client.db(name).dropDatabase());
});

check('plain text and unknown authorities are refused', async () => {
  for (const options of [{ directConnection: true }, { directConnection: true, tls: true }]) {
    const refused = await using({ ...options, serverSelectionTimeoutMS: 2000 },
      (client) => client.db('admin').command({ ping: 1 }).catch((error) => error));
    equal(refused.name, 'MongoServerSelectionError');
  }
});

await run('node_tls', async (name) => name, async () => {});
