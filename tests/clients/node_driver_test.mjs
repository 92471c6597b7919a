// The Node driver against the server of MONGODB_URI: one line per check, non-zero exit if one fails.
// What is expected here is true of mongod too: run it there first.

import { createRequire } from 'node:module';
import { check, equal, fails, planStages, run } from './checks.mjs';

// The packages lie in .tools, not beside this file.
const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const { MongoClient, ObjectId, Long, Decimal128, Timestamp, UUID, BSONRegExp } = require('mongodb');

const uri = process.env.MONGODB_URI;

check('documents come back as they went', async (db) => {
  const document = {
    _id: new ObjectId(),
    double: 1.5,
    int: 7,
    long: Long.fromString('1099511627776'),
    decimal: Decimal128.fromString('1.50'),
    text: 'Grüße 🧶',
    date: new Date('2024-01-15T10:00:00.123Z'),
    none: null,
    list: [1, [2, { three: 3 }]],
    uuid: new UUID(),
    stamp: new Timestamp({ t: 5, i: 6 }),
    regex: new BSONRegExp('^a', 'i'),
  };
  await db.collection('t').insertOne(document);
  const found = await db.collection('t').findOne({ _id: document._id }, { promoteLongs: false, bsonRegExp: true });
  equal(Object.keys(found), Object.keys(document));
  equal(found.decimal.toString(), '1.50');
  equal(found.long.toString(), '1099511627776');
  equal([found.text, found.date, found.none], [document.text, document.date, null]);
  equal(found.uuid.toString('hex'), document.uuid.toString('hex'));
});

check('an application creates, reads, updates and deletes', async (db) => {
  const users = db.collection('users');
  const inserted = await users.insertMany(Array.from({ length: 10 }, (_, age) => ({ name: `user ${age}`, age })));
  equal(inserted.insertedCount, 10);
  equal(await users.countDocuments({ age: { $gte: 5 } }), 5);
  equal(await users.estimatedDocumentCount(), 10);
  let result = await users.updateOne({ age: 3 }, { $set: { name: 'Alice' }, $unset: { age: '' } });
  equal([result.matchedCount, result.modifiedCount], [1, 1]);
  result = await users.updateMany({ age: { $lt: 3 } }, { $mul: { age: 2 } });
  equal([result.matchedCount, result.modifiedCount], [3, 2]);
  result = await users.updateOne({ name: 'Zoe' }, { $setOnInsert: { age: 1 } }, { upsert: true });
  equal(result.upsertedCount, 1);
  equal((await users.replaceOne({ name: 'Zoe' }, { name: 'Zoe', replaced: true })).modifiedCount, 1);
  equal((await users.deleteMany({ age: { $gt: 6 } })).deletedCount, 3);
  equal(await users.distinct('age'), [0, 2, 4, 5, 6]);
});

check('cursors iterate, count batches, and close', async (db) => {
  const numbers = db.collection('numbers');
  await numbers.insertMany(Array.from({ length: 250 }, (_, n) => ({ _id: n })));
  const seen = [];
  for await (const document of numbers.find({}, { batchSize: 9 }).sort({ _id: -1 })) seen.push(document._id);
  equal(seen, Array.from({ length: 250 }, (_, n) => 249 - n));
  equal((await numbers.find().sort({ _id: 1 }).skip(10).limit(3).toArray()).map((it) => it._id), [10, 11, 12]);
  const cursor = numbers.find({}, { batchSize: 2 });
  equal(await cursor.hasNext(), true);
  await cursor.next();
  await cursor.close();
  equal(cursor.killed, true);
  equal(await numbers.find({ _id: { $lt: 5 } }).map((it) => it._id * 2).toArray(), [0, 2, 4, 6, 8]);
  const texts = [];
  await numbers.find({ _id: { $in: [3, 1] } }).sort({ _id: 1 }).forEach((it) => { texts.push(`${it._id}`); });
  equal(texts, ['1', '3']);
});

check('find and modify answer before or after', async (db) => {
  const t = db.collection('t');
  await t.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
  equal(await t.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }), { _id: 1, n: 1 });
  equal(await t.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }, { returnDocument: 'after' }), { _id: 1, n: 3 });
  equal(await t.findOneAndReplace({ _id: 2 }, { m: 1 }, { returnDocument: 'after' }), { _id: 2, m: 1 });
  equal(await t.findOneAndDelete({}, { sort: { _id: -1 } }), { _id: 2, m: 1 });
  equal(await t.findOneAndUpdate({ _id: 9 }, { $set: { n: 1 } }), null);
});

check('bulk writes report counts and errors', async (db) => {
  const t = db.collection('t');
  const result = await t.bulkWrite([
    { insertOne: { document: { _id: 1 } } },
    { insertOne: { document: { _id: 2 } } },
    { updateMany: { filter: {}, update: { $set: { seen: true } } } },
    { replaceOne: { filter: { _id: 3 }, replacement: { n: 3 }, upsert: true } },
    { deleteOne: { filter: { _id: 1 } } },
  ]);
  equal(
    [result.insertedCount, result.matchedCount, result.modifiedCount, result.upsertedCount, result.deletedCount],
    [2, 2, 2, 1, 1],
  );
  const error = await fails(11000, t.insertMany([{ _id: 5 }, { _id: 2 }, { _id: 6 }], { ordered: false }));
  equal([error.writeErrors.length, error.writeErrors[0].index, error.result.insertedCount], [1, 1, 2]);
  equal(await t.countDocuments(), 4);
});

check('indexes serve queries, and explain says so', async (db) => {
  const orders = db.collection('orders');
  await orders.insertMany(
    Array.from({ length: 100 }, (_, n) => ({ customer: n % 5, status: n % 2 ? 'open' : 'done', made: new Date(n * 1000) })),
  );
  equal(await orders.createIndex({ customer: 1, status: 1, made: -1 }), 'customer_1_status_1_made_-1');
  const explain = await orders.find({ customer: 1, status: 'open' }).sort({ made: -1 }).explain('executionStats');
  equal(planStages(explain), ['FETCH', 'IXSCAN']);
  equal([explain.executionStats.totalKeysExamined, explain.executionStats.nReturned], [10, 10]);
  equal((await orders.indexes()).map((index) => index.name), ['_id_', 'customer_1_status_1_made_-1']);
  equal(await orders.indexExists('_id_'), true);
  await orders.dropIndex('customer_1_status_1_made_-1');
  await fails(27, orders.dropIndex('customer_1_status_1_made_-1'));
  equal(planStages(await orders.find({ customer: 1 }).explain()), ['COLLSCAN']);
});

check('a unique index names the duplicate', async (db) => {
  const users = db.collection('users');
  await users.createIndex({ email: 1 }, { unique: true });
  await users.insertOne({ email: 'a@example.com' });
  const error = await fails(11000, users.insertOne({ email: 'a@example.com' }));
  equal([error.keyPattern, error.keyValue], [{ email: 1 }, { email: 'a@example.com' }]);
});

check('withTransaction commits, aborts and retries', async (db) => {
  const accounts = db.collection('accounts');
  await accounts.insertMany([{ _id: 'a', balance: 100 }, { _id: 'b', balance: 0 }]);
  const session = db.client.startSession();
  const transfer = async (amount) =>
    session.withTransaction(async () => {
      const from = await accounts.findOneAndUpdate(
        { _id: 'a' }, { $inc: { balance: -amount } }, { session, returnDocument: 'after' });
      if (from.balance < 0) throw new Error('not enough');
      await accounts.updateOne({ _id: 'b' }, { $inc: { balance: amount } }, { session });
    });
  await transfer(60);
  await transfer(60).then(() => { throw new Error('should not commit'); }, (error) => equal(error.message, 'not enough'));
  equal((await accounts.find().sort({ _id: 1 }).toArray()).map((it) => it.balance), [40, 60]);

  // Sixteen at once on one document: all commit in the end, none is lost.
  await Promise.all(Array.from({ length: 16 }, () => db.client.withSession((own) => own.withTransaction(async () => {
    const { balance } = await accounts.findOne({ _id: 'b' }, { session: own });
    await accounts.updateOne({ _id: 'b' }, { $set: { balance: balance + 1 } }, { session: own });
  }))));
  equal((await accounts.findOne({ _id: 'b' })).balance, 76);
  await session.endSession();
});

check('two sessions conflict, and the label says that a retry helps', async (db) => {
  const t = db.collection('t');
  await t.insertOne({ _id: 1 });
  const [first, second] = [db.client.startSession(), db.client.startSession()];
  first.startTransaction();
  second.startTransaction();
  await t.updateOne({ _id: 1 }, { $set: { by: 'first' } }, { session: first });
  const error = await fails(112, t.updateOne({ _id: 1 }, { $set: { by: 'second' } }, { session: second }));
  equal(error.hasErrorLabel('TransientTransactionError'), true);
  await second.abortTransaction();
  await first.commitTransaction();
  equal(await t.findOne(), { _id: 1, by: 'first' });
  await first.endSession();
  await second.endSession();
});

check('a write outside waits for the transaction inside', async (db) => {
  const t = db.collection('t');
  await t.insertOne({ _id: 1, n: 0 });
  const session = db.client.startSession();
  session.startTransaction();
  await t.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
  const outside = t.updateOne({ _id: 1 }, { $inc: { n: 10 } });
  await new Promise((resolve) => setTimeout(resolve, 100));
  await session.commitTransaction();
  equal((await outside).modifiedCount, 1);
  equal((await t.findOne()).n, 11);
  session.startTransaction();
  await t.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
  await fails(50, t.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { maxTimeMS: 100 }));
  await session.abortTransaction();
  await session.endSession();
});

check('retryable writes survive what a failover throws', async (db) => {
  const admin = db.client.db('admin');
  const failNext = (data) =>
    admin.command({ configureFailPoint: 'failCommand', mode: { times: 1 }, data });
  const t = db.collection('t');
  try {
    await failNext({ failCommands: ['insert'], closeConnection: true });
    await t.insertOne({ _id: 1, n: 0 });
    await failNext({ failCommands: ['update'], errorCode: 10107, errorLabels: ['RetryableWriteError'] });
    await t.updateOne({ _id: 1 }, { $inc: { n: 1 } });
    await failNext({ failCommands: ['find'], errorCode: 189 });
    equal(await t.findOne(), { _id: 1, n: 1 });
    const session = db.client.startSession();
    await failNext({ failCommands: ['commitTransaction'], errorCode: 91, errorLabels: ['UnknownTransactionCommitResult'] });
    await session.withTransaction(() => t.insertOne({ _id: 2 }, { session }));
    await session.endSession();
  } finally {
    await admin.command({ configureFailPoint: 'failCommand', mode: 'off' });
  }
  equal(await t.countDocuments(), 2);
});

check('compression is agreed on', async (db) => {
  const client = await MongoClient.connect(uri, { compressors: ['zlib'] });
  const t = client.db(db.databaseName).collection('t');
  await t.insertMany(Array.from({ length: 200 }, (_, n) => ({ _id: n, text: 'kilim '.repeat(100) })));
  equal((await t.find().toArray()).length, 200);
  await client.close();
});

check('write and read concerns are taken', async (db) => {
  const t = db.collection('t', { writeConcern: { w: 'majority', journal: true }, readConcern: { level: 'majority' } });
  await t.insertOne({ _id: 1 });
  equal(await t.findOne(), { _id: 1 });
  await db.collection('t').insertOne({ _id: 2 }, { writeConcern: { w: 1 } });
  equal(await t.countDocuments({}, { maxTimeMS: 5000, comment: 'why' }), 2);
});

check('collections are made, listed, renamed and dropped', async (db) => {
  await db.createCollection('a');
  await db.collection('b').insertOne({});
  equal((await db.listCollections({}, { nameOnly: true }).toArray()).map((it) => it.name).sort(), ['a', 'b']);
  await db.renameCollection('a', 'c');
  equal(await db.dropCollection('c'), true);
  equal((await db.collections()).map((it) => it.collectionName), ['b']);
  const { databases } = await db.admin().listDatabases();
  equal(databases.some((it) => it.name === db.databaseName), true);
});

check('array elements are updated by filter and position', async (db) => {
  const t = db.collection('t');
  await t.insertOne({ _id: 1, lines: [{ sku: 'a', n: 1 }, { sku: 'b', n: 2 }, { sku: 'c', n: 3 }] });
  await t.updateOne({ _id: 1 }, { $inc: { 'lines.$[many].n': 10 } }, { arrayFilters: [{ 'many.n': { $gte: 2 } }] });
  await t.updateOne({ _id: 1, 'lines.sku': 'a' }, { $set: { 'lines.$.n': 7 } });
  await t.updateOne({ _id: 1 }, { $pull: { lines: { sku: 'b' } } });
  equal(await t.findOne(), { _id: 1, lines: [{ sku: 'a', n: 7 }, { sku: 'c', n: 13 }] });
});

check('reviews keep the newest three, readings fill buckets', async (db) => {
  const products = db.collection('products');
  await products.insertOne({ _id: 'rug', newest: [], reviews: 0 });
  for (const day of [4, 1, 6, 2, 5]) {
    await products.updateOne({ _id: 'rug' }, {
      $push: { newest: { $each: [{ day }], $sort: { day: -1 }, $slice: 3 } },
      $inc: { reviews: 1 },
    });
  }
  equal(await products.findOne(), { _id: 'rug', newest: [{ day: 6 }, { day: 5 }, { day: 4 }], reviews: 5 });
  const readings = db.collection('readings');
  for (let n = 0; n < 25; n += 1) {
    await readings.updateOne(
      { sensor: 's', count: { $lt: 10 } },
      { $push: { values: n }, $inc: { count: 1 }, $min: { least: n }, $max: { most: n } },
      { upsert: true },
    );
  }
  const buckets = await readings.find({}, { projection: { _id: 0, values: 0 } }).sort({ least: 1 }).toArray();
  equal(buckets.map((it) => [it.count, it.least, it.most]), [[10, 0, 9], [10, 10, 19], [5, 20, 24]]);
});

const client = await MongoClient.connect(uri);
await run('node', async (name) => client.db(name), (db) => db.dropDatabase());
await client.close();
