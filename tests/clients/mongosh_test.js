// mongosh against a server: `mongosh URI --file mongosh_test.js`. One line per check, non-zero exit if one
// fails. What is expected here is true of mongod too: run it there first.

const home = `mongosh_${process.pid}`;
load(`${__dirname}/mongosh_checks.js`);

check('the shell greets the server', () => {
  assert.equal(db.runCommand({ ping: 1 }).ok, 1);
  assert.ok(db.hello().isWritablePrimary);
  assert.match(db.version(), /^\d+\.\d+\.\d+$/);
  assert.ok(db.serverBuildInfo().maxBsonObjectSize === 16777216);
  assert.ok(db.adminCommand({ connectionStatus: 1 }).authInfo);
  assert.ok(db.serverStatus().connections.current >= 1);
  assert.ok(db.hostInfo().system);
  db.t.insertOne({});
  assert.ok(db.adminCommand({ listDatabases: 1 }).databases.some((it) => it.name === db.getName()));
});

check('documents are inserted, found, updated and deleted', () => {
  equal(db.t.insertOne({ _id: 1, a: 1 }).insertedId, 1);
  equal(db.t.insertMany([{ _id: 2, a: 2 }, { _id: 3, a: [1, 2] }]).insertedIds, { 0: 2, 1: 3 });
  equal(db.t.find({ a: 2 }).sort({ _id: 1 }).toArray(), [{ _id: 2, a: 2 }, { _id: 3, a: [1, 2] }]);
  equal(db.t.findOne({ _id: 1 }), { _id: 1, a: 1 });
  equal(db.t.updateOne({ _id: 1 }, { $set: { b: { c: 1 } } }).modifiedCount, 1);
  equal(db.t.updateMany({}, { $currentDate: { at: true } }).matchedCount, 3);
  equal(db.t.replaceOne({ _id: 2 }, { x: 1 }).modifiedCount, 1);
  equal(db.t.findOneAndUpdate({ _id: 2 }, { $inc: { x: 1 } }, { returnDocument: 'after' }), { _id: 2, x: 2 });
  equal(db.t.findAndModify({ query: { _id: 2 }, update: { $inc: { x: 1 } }, new: true }), { _id: 2, x: 3 });
  equal(db.t.deleteOne({ _id: 2 }).deletedCount, 1);
  equal([db.t.countDocuments(), db.t.estimatedDocumentCount()], [2, 2]);
  equal(db.t.distinct('a'), [1, 2]);
});

check('every type of the shell is stored and found', () => {
  const values = [
    NumberInt(1), NumberLong('2'), 1.5, NumberDecimal('1.50'), 'text', ObjectId(), ISODate('2024-01-15T10:00:00Z'),
    UUID(), BinData(0, 'AAEC'), /^a/i, Timestamp(1, 2), MinKey(), MaxKey(), null, true, { a: [1] }, [{ b: 1 }],
  ];
  values.forEach((value, n) => db.t.insertOne({ _id: n, value }));
  values.forEach((value, n) => equal(db.t.findOne({ _id: n }).value, value));
  equal(db.t.countDocuments({ value: { $type: 'decimal' } }), 1);
  equal(db.t.find({ value: { $type: 'number' } }).toArray().map((it) => it._id), [0, 1, 2, 3]);
  equal(db.t.find({ value: ISODate('2024-01-15T10:00:00Z') }).toArray().length, 1);
});

check('cursors chain and batch', () => {
  db.t.insertMany(Array.from({ length: 150 }, (_, n) => ({ _id: n })));
  const cursor = db.t.find().batchSize(10).sort({ _id: -1 });
  equal(cursor.next(), { _id: 149 });
  equal(cursor.toArray().length, 149);
  equal(db.t.find().skip(140).limit(20).map((it) => it._id).toArray().length, 10);
  let total = 0;
  db.t.find({ _id: { $lt: 10 } }).forEach((it) => { total += it._id; });
  equal(total, 45);
  equal(db.t.find({ _id: { $gte: 100 } }).itcount(), 50);
});

check('indexes are made, used, explained and dropped', () => {
  db.orders.insertMany(Array.from({ length: 50 }, (_, n) => ({ customer: n % 5, made: n, status: n % 2 ? 'open' : 'done' })));
  equal(db.orders.createIndex({ customer: 1, made: -1 }), 'customer_1_made_-1');
  equal(db.orders.createIndex({ made: 1 }, { partialFilterExpression: { status: 'open' }, name: 'open' }), 'open');
  equal(db.orders.getIndexes().map((it) => it.name), ['_id_', 'customer_1_made_-1', 'open']);
  const explain = db.orders.find({ customer: 2 }).sort({ made: -1 }).explain('executionStats');
  equal(explain.queryPlanner.winningPlan.inputStage.stage, 'IXSCAN');
  equal(explain.executionStats.totalDocsExamined, 10);
  equal(db.orders.find({ status: 'x' }).explain().queryPlanner.winningPlan.stage, 'COLLSCAN');
  db.orders.hideIndex('customer_1_made_-1');
  equal(db.orders.find({ customer: 2 }).explain().queryPlanner.winningPlan.stage, 'COLLSCAN');
  db.orders.unhideIndex('customer_1_made_-1');
  db.orders.dropIndex('open');
  fails(27, () => db.orders.dropIndex('open'));
  db.users.createIndex({ email: 1 }, { unique: true });
  db.users.insertOne({ email: 'a' });
  fails(11000, () => db.users.insertOne({ email: 'a' }));
});

check('bulk operations run in order', () => {
  const bulk = db.t.initializeOrderedBulkOp();
  bulk.insert({ _id: 1 });
  bulk.find({ _id: 1 }).updateOne({ $set: { a: 1 } });
  bulk.find({ _id: 2 }).upsert().updateOne({ $set: { a: 2 } });
  bulk.find({ a: 1 }).delete();
  const result = bulk.execute();
  equal([result.insertedCount, result.modifiedCount, result.upsertedCount, result.deletedCount], [1, 1, 1, 1]);
  equal(db.t.find().toArray(), [{ _id: 2, a: 2 }]);
});

check('a session holds a transaction', () => {
  db.t.insertOne({ _id: 1, n: 1 });
  const session = db.getMongo().startSession();
  const inside = session.getDatabase(db.getName()).t;
  session.startTransaction();
  inside.updateOne({ _id: 1 }, { $inc: { n: 1 } });
  equal([inside.findOne().n, db.t.findOne().n], [2, 1]);
  session.commitTransaction();
  session.startTransaction();
  inside.deleteMany({});
  session.abortTransaction();
  equal(db.t.findOne().n, 2);
  session.withTransaction(() => inside.insertOne({ _id: 2 }));
  equal(db.t.countDocuments(), 2);
  session.endSession();
});

check('collections are made, measured, renamed and dropped', () => {
  equal(db.createCollection('a').ok, 1);
  db.b.insertOne({ x: 1 });
  equal(db.getCollectionNames().sort(), ['a', 'b']);
  equal(db.getCollectionInfos({ name: 'b' })[0].type, 'collection');
  equal(db.runCommand({ collStats: 'b' }).count, 1);
  equal(db.stats().collections, 2);
  equal(db.b.validate().valid, true);
  equal(db.a.renameCollection('c').ok, 1);
  equal(db.c.drop(), true);
  assert.ok(db.runCommand({ dataSize: `${db.getName()}.b` }).size > 0);
  equal(db.getCollectionNames(), ['b']);
});

check('errors carry their codes', () => {
  fails(59, () => db.runCommand({ noSuchCommand: 1 }));
  fails(2, () => db.t.find({ a: { $nonsense: 1 } }).toArray());
  db.t.insertOne({ _id: 1, text: 'a' });
  fails(14, () => db.t.updateOne({ _id: 1 }, { $inc: { text: 1 } }));
  fails(66, () => db.t.updateOne({ _id: 1 }, { $set: { _id: 2 } }));
});

check('time series as the handbook makes them', () => {
  db.createCollection("sensor_data", { timeseries: { timeField: "timestamp", metaField: "sensorId" } });
  db.sensor_data.insertMany([
    { sensorId: "S1", timestamp: ISODate("2024-03-01T10:00:00Z"), temp: 22.4 },
    { sensorId: "S1", timestamp: ISODate("2024-03-01T10:01:00Z"), temp: 22.5 },
    { sensorId: "S2", timestamp: ISODate("2024-03-01T10:01:00Z"), temp: 19 },
  ]);
  equal(db.sensor_data.find({ sensorId: "S1" }, { _id: 0, temp: 1 }).sort({ timestamp: -1 }).toArray(), [{ temp: 22.5 }, { temp: 22.4 }]);
  equal(db.sensor_data.aggregate([
    { $group: { _id: "$sensorId", avg: { $avg: "$temp" }, min: { $min: "$temp" } } }, { $sort: { _id: 1 } },
  ]).toArray(), [{ _id: 'S1', avg: 22.45, min: 22.4 }, { _id: 'S2', avg: 19, min: 19 }]);
  db.sensor_data.drop();
  db.createCollection("sensor_data", { timeseries: { timeField: "ts", metaField: "sensorId", granularity: "minutes" } });
  db.sensor_data.insertOne({ sensorId: "S1", ts: ISODate("2024-03-01T10:00:00Z"), temp: 22.4, humid: 60 });
  db.sensor_data.createIndex({ sensorId: 1, ts: -1 });
  equal(db.sensor_data.find({ sensorId: "S1", ts: { $gte: ISODate("2024-03-01T00:00:00Z") } }).sort({ ts: -1 }).toArray().length, 1);
  equal(db.getCollectionInfos({ name: 'sensor_data' })[0].options.timeseries.granularity, 'minutes');
  equal(db.sensor_data.stats().timeseries.bucketCount, 1);
});

check('the patterns of the handbook work by hand', () => {
  // Buckets by upsert.
  for (let n = 0; n < 7; n += 1) {
    db.readings.updateOne(
      { sensor: 's1', count: { $lt: 3 } },
      { $push: { values: { at: new Date(), n } }, $inc: { count: 1 }, $min: { 'stats.min': n }, $max: { 'stats.max': n } },
      { upsert: true },
    );
  }
  equal(db.readings.find({}, { _id: 0, count: 1, 'stats.max': 1 }).sort({ 'stats.min': 1 }).toArray(), [
    { count: 3, stats: { max: 2 } }, { count: 3, stats: { max: 5 } }, { count: 1, stats: { max: 6 } },
  ]);
  // Kinds in one collection, each with its own unique field.
  db.products.createIndex({ isbn: 1 }, { unique: true, partialFilterExpression: { type: 'book' } });
  db.products.insertMany([{ _id: 1, type: 'book', isbn: 'x', title: 'Weaving' }, { _id: 2, type: 'cloth', isbn: 'x' }]);
  fails(11000, () => db.products.insertOne({ type: 'book', isbn: 'x' }));
  equal(db.products.find({ title: /Weav/ }).count(), 1);
  // Trees by path and ancestors.
  db.tree.insertMany([
    { _id: 'a', path: ',a,', ancestors: [] },
    { _id: 'b', path: ',a,b,', ancestors: ['a'] },
    { _id: 'c', path: ',a,b,c,', ancestors: ['a', 'b'] },
  ]);
  equal(db.tree.find({ path: /,b,/ }).sort({ _id: 1 }).toArray().map((it) => it._id), ['b', 'c']);
  equal(db.tree.find({ ancestors: 'a' }).count(), 2);
  // Attributes under one index.
  db.chairs.createIndex({ 'specs.k': 1, 'specs.v': 1 });
  db.chairs.insertOne({ _id: 1, specs: [{ k: 'colour', v: 'black' }, { k: 'kilos', v: 15 }] });
  equal(db.chairs.find({ specs: { $elemMatch: { k: 'colour', v: 'black' } } }).count(), 1);
  equal(db.chairs.find({ specs: { $elemMatch: { k: 'colour', v: 15 } } }).count(), 0);
  // Versions, migrated by a loop.
  db.people.insertMany([{ _id: 1, v: 1, phone: '5' }, { _id: 2, v: 2, phone: { n: '6' } }]);
  db.people.find({ v: { $lt: 2 } }).forEach((person) => {
    db.people.updateOne({ _id: person._id }, { $set: { phone: { n: person.phone }, v: 2 } });
  });
  equal(db.people.find({ v: 2, 'phone.n': { $exists: true } }).count(), 2);
});

if (failed) quit(1);
