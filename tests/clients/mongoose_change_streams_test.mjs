// Change streams through Mongoose: Model.watch, a connection's watch, hydrated documents.
// What is expected here is true of mongod too: run it there first.

import { createRequire } from 'node:module';
import { check, equal, run } from './checks.mjs';

const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const mongoose = require('mongoose');
const { Schema } = mongoose;

const order = new Schema({ _id: Number, total: Number });

/** Writes markers, whose _id is negative, until the stream shows one: from then on it shows everything. */
async function open(stream, write) {
  let isOpen = false;
  const first = stream.next().then(() => { isOpen = true; });
  for (let n = 1; !isOpen; n += 1) {
    await write(-n);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await first;
  return stream;
}

/** The next change that is none of a marker. */
async function next(stream) {
  for (;;) {
    const event = await stream.next();
    if (event.documentKey._id >= 0) return event;
  }
}

check('a model is watched', async (connection) => {
  const Order = connection.model('Order', order);
  const stream = await open(Order.watch([], { fullDocument: 'updateLookup' }), (_id) => Order.create({ _id }));
  await Order.create({ _id: 1, total: 5 });
  equal((await next(stream)).operationType, 'insert');
  await Order.updateOne({ _id: 1 }, { $inc: { total: 1 } });
  const updated = await next(stream);
  equal([updated.operationType, updated.fullDocument.total], ['update', 6]);
  const resumed = Order.watch([], { resumeAfter: updated._id });
  await Order.deleteOne({ _id: 1 });
  equal((await next(resumed)).operationType, 'delete');
  await stream.close();
  await resumed.close();
});

check('full documents come as documents of the model', async (connection) => {
  const Order = connection.model('Order', order);
  const stream = await open(Order.watch([], { hydrate: true }), (_id) => Order.create({ _id }));
  await Order.create({ _id: 1, total: 5 });
  const event = await next(stream);
  equal(event.fullDocument instanceof Order, true);
  equal(event.fullDocument.total, 5);
  await stream.close();
});

check('a connection is watched, with stages', async (connection) => {
  const Order = connection.model('Order', order);
  const Note = connection.model('Note', new Schema({ _id: Number }));
  const notes = connection.watch([{ $match: { 'ns.coll': 'notes' } }]);
  const stream = await open(notes, (_id) => Note.create({ _id }));
  await Order.create({ _id: 1 });
  await Note.create({ _id: 2 });
  const event = await next(stream);
  equal([event.ns.coll, event.documentKey._id], ['notes', 2]);
  await stream.close();
});

check('events are listened to, and a drop ends the stream', async (connection) => {
  const Order = connection.model('Order', order);
  const stream = await open(Order.watch(), (_id) => Order.create({ _id }));
  await Order.create({ _id: 0 });
  const { _id: token } = await next(stream);
  await stream.close();
  await Order.create({ _id: 1 });
  await Order.collection.drop();
  const listened = Order.watch([], { resumeAfter: token });
  const kinds = await new Promise((resolve, reject) => {
    const seen = [];
    listened.on('error', reject);
    listened.on('change', (event) => {
      if (!(event.documentKey?._id < 0)) seen.push(event.operationType);
      if (event.operationType === 'invalidate') resolve(seen);
    });
  });
  equal(kinds, ['insert', 'drop', 'invalidate']);
  await listened.close();
});

await run(
  'mongoose_change_streams',
  (name) => mongoose.createConnection(process.env.MONGODB_URI, { dbName: name }).asPromise(),
  async (connection) => {
    await connection.dropDatabase();
    await connection.close();
  },
);
