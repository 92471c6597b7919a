// Change streams through the Node driver: watch, resume after a network error, invalidate, transactions.
// What is expected here is true of mongod too: run it there first.

import { createRequire } from 'node:module';
import { check, equal, fails, run } from './checks.mjs';

const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const { MongoClient } = require('mongodb');

const uri = process.env.MONGODB_URI;
const awhile = { maxAwaitTimeMS: 100 };

/** The events up to a marker that is written last, so that nothing depends on time. */
async function until(stream, count) {
  const events = [];
  while (events.length < count) events.push(await stream.next());
  return events;
}

const kinds = (events) => events.map((event) => event.operationType);

/** Opens a stream and has it ask the server, so that it sees what is written from here on. */
async function open(target, pipeline = [], options = {}) {
  const stream = target.watch(pipeline, { ...awhile, ...options });
  await stream.tryNext();
  return stream;
}

check('a collection is watched', async (db) => {
  const orders = db.collection('orders');
  await orders.insertOne({ _id: 0 });
  const stream = await open(orders, [], { fullDocument: 'updateLookup' });
  await orders.insertOne({ _id: 1, a: 1 });
  await orders.updateOne({ _id: 1 }, { $set: { a: 2 } });
  await orders.replaceOne({ _id: 1 }, { b: 1 });
  await orders.deleteOne({ _id: 1 });
  const events = await until(stream, 4);
  equal(kinds(events), ['insert', 'update', 'replace', 'delete']);
  equal(events[0].fullDocument, { _id: 1, a: 1 });
  equal(events[1].updateDescription.updatedFields, { a: 2 });
  equal(events[3].documentKey, { _id: 1 });
  await stream.close();
});

check('a stream is resumed after its token', async (db) => {
  const orders = db.collection('orders');
  const stream = await open(db);
  await orders.insertMany(Array.from({ length: 5 }, (_, n) => ({ _id: n })));
  const events = await until(stream, 5);
  await stream.close();
  for (const [at, event] of events.slice(0, 4).entries()) {
    const resumed = db.watch([], { ...awhile, resumeAfter: event._id });
    equal(await until(resumed, 4 - at), events.slice(at + 1));
    await resumed.close();
  }
  // mongod says so when the next event comes, Kilim at once.
  const other = db.collection('other').watch([], { ...awhile, resumeAfter: events[0]._id });
  const told = fails(280, other.next());
  await db.collection('other').insertOne({});
  await told;
});

check('the driver resumes after a network error', async (db) => {
  const orders = db.collection('orders');
  await orders.insertOne({ _id: 0 });
  const stream = await open(orders);
  await orders.insertOne({ _id: 1 });
  equal((await stream.next()).documentKey, { _id: 1 });
  await db.admin().command({
    configureFailPoint: 'failCommand',
    mode: { times: 1 },
    data: { failCommands: ['getMore'], closeConnection: true },
  });
  await orders.insertOne({ _id: 2 });
  equal((await stream.next()).documentKey, { _id: 2 });
  await db.admin().command({ configureFailPoint: 'failCommand', mode: 'off' });
  await orders.insertOne({ _id: 3 });
  equal((await stream.next()).documentKey, { _id: 3 });
  await stream.close();
});

check('an error that is no reason to resume ends the stream', async (db) => {
  const orders = db.collection('orders');
  await orders.insertOne({ _id: 0 });
  const stream = await open(orders, [{ $project: { _id: 0 } }]);
  await orders.insertOne({ _id: 1 });
  await fails(280, stream.next());
});

check('a drop invalidates, and a new stream starts after it', async (db) => {
  const orders = db.collection('orders');
  await orders.insertOne({ _id: 0 });
  const stream = await open(orders);
  await orders.drop();
  const events = await until(stream, 2);
  equal(kinds(events), ['drop', 'invalidate']);
  await fails(260, orders.watch([], { ...awhile, resumeAfter: events[1]._id }).next());
  const after = await open(orders, [], { startAfter: events[1]._id });
  await orders.insertOne({ _id: 1 });
  equal(kinds(await until(after, 1)), ['insert']);
  await after.close();
});

check('a transaction comes at once', async (db) => {
  const orders = db.collection('orders');
  await orders.insertOne({ _id: 0 });
  const stream = await open(db);
  const session = db.client.startSession();
  await session.withTransaction(async () => {
    await orders.insertOne({ _id: 1 }, { session });
    await orders.insertOne({ _id: 2 }, { session });
  });
  await session.endSession();
  const events = await until(stream, 2);
  equal(events.map((event) => event.documentKey._id), [1, 2]);
  equal(events[0].clusterTime.toString(), events[1].clusterTime.toString());
  equal(events.every((event) => 'lsid' in event && 'txnNumber' in event), true);
  await stream.close();
});

check('images are shown where the collection keeps them', async (db) => {
  const orders = await db.createCollection('orders', { changeStreamPreAndPostImages: { enabled: true } });
  await orders.insertOne({ _id: 1, a: 1 });
  const stream = await open(orders, [], { fullDocument: 'required', fullDocumentBeforeChange: 'required' });
  await orders.updateOne({ _id: 1 }, { $inc: { a: 1 } });
  const [event] = await until(stream, 1);
  equal([event.fullDocumentBeforeChange, event.fullDocument], [{ _id: 1, a: 1 }, { _id: 1, a: 2 }]);
  await stream.close();
});

await run(
  'node_change_streams',
  async (name) => {
    const client = new MongoClient(uri);
    const db = client.db(name);
    db.client = client;
    return db;
  },
  async (db) => {
    await db.dropDatabase();
    await db.client.close();
  },
);
