// Mongoose over TLS, logged in by a password and by a certificate. Needs what node_tls_test.mjs needs.

import { createRequire } from 'node:module';
import { check, equal, run } from './checks.mjs';

const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const mongoose = require('mongoose');

const { MONGODB_URI: uri, KILIM_CERTS: certs, KILIM_PASSWORD: password } = process.env;
const tls = { directConnection: true, tls: true, tlsCAFile: `${certs}/ca.pem` };

check('a model works over TLS by every login', async (name) => {
  const root = await mongoose.createConnection(uri, { ...tls, user: 'root', pass: password, authSource: 'admin', dbName: name }).asPromise();
  const Pet = root.model('Pet', new mongoose.Schema({ name: String }));
  await Pet.create({ name: 'Findus' });
  const external = root.getClient().db('$external');
  if ((await external.command({ usersInfo: 'CN=ann' })).users.length) await external.command({ dropUser: 'CN=ann' });
  await external.command({ createUser: 'CN=ann', roles: [{ role: 'read', db: name }] });
  const options = { ...tls, tlsCertificateKeyFile: `${certs}/ann.pem`, authMechanism: 'MONGODB-X509', authSource: '$external', dbName: name };
  const ann = await mongoose.createConnection(uri, options).asPromise();
  const found = await ann.model('Pet', Pet.schema).findOne().lean();
  equal(found.name, 'Findus');
  await ann.close();
  await root.dropDatabase();
  await root.close();
});

await run('mongoose_tls', async (name) => name, async () => {});
