// Aggregation by the Node driver against the server of MONGODB_URI: one line per check, non-zero exit if one fails.
// What is expected here is true of mongod too: run it there first.

import { createRequire } from 'node:module';
import { check, equal, fails, run } from './checks.mjs';

const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const { MongoClient, Long, Decimal128 } = require('mongodb');

const uri = process.env.MONGODB_URI;

check('a cursor over a large result takes small batches', async (db) => {
  await db.collection('t').insertMany(Array.from({ length: 1500 }, (_, n) => ({ _id: n, g: n % 7 })));
  const cursor = db.collection('t').aggregate([{ $sort: { _id: 1 } }, { $set: { square: { $multiply: ['$_id', '$_id'] } } }], { batchSize: 13 });
  let expected = 0;
  for await (const document of cursor) {
    equal(document, { _id: expected, g: expected % 7, square: expected * expected });
    expected += 1;
  }
  equal(expected, 1500);
  const half = db.collection('t').aggregate([], { batchSize: 2 });
  equal((await half.next())._id, 0);
  equal(await half.hasNext(), true);
  const id = half.id;
  await half.close();
  await fails(43, db.command({ getMore: id, collection: 't' }));
});

check('stages chain on the cursor, as a builder', async (db) => {
  await db.collection('sales').insertMany([
    { shop: 'a', items: [{ sku: 1, n: 2 }, { sku: 2, n: 1 }] },
    { shop: 'b', items: [{ sku: 1, n: 5 }] },
    { shop: 'a', items: [] },
  ]);
  const rows = await db.collection('sales').aggregate()
    .unwind('$items')
    .group({ _id: '$items.sku', n: { $sum: '$items.n' }, shops: { $addToSet: '$shop' } })
    .addStage({ $set: { shops: { $sortArray: { input: '$shops', sortBy: 1 } } } })
    .sort({ _id: 1 })
    .limit(10)
    .toArray();
  equal(rows, [{ _id: 1, n: 7, shops: ['a', 'b'] }, { _id: 2, n: 1, shops: ['a'] }]);
});

check('numbers keep their types through arithmetic', async (db) => {
  await db.collection('t').insertOne({ _id: 1, int: 2147483647, long: Long.fromString('9007199254740993'), double: 0.1, decimal: Decimal128.fromString('0.10') });
  const [row] = await db.collection('t').aggregate([
    {
      $project: {
        _id: 0,
        over: { $type: { $add: ['$int', 1] } },
        longer: { $toString: { $add: ['$long', 1] } },
        double: { $add: ['$double', 0.2] },
        decimal: { $add: ['$decimal', Decimal128.fromString('0.2')] },
        mixed: { $type: { $multiply: ['$int', '$decimal'] } },
        divided: { $type: { $divide: [6, 3] } },
      },
    },
  ]).toArray();
  equal(row.over, 'long');
  equal(row.longer, '9007199254740994');
  equal(row.double, 0.1 + 0.2);
  equal(row.decimal.toString(), '0.30');
  equal([row.mixed, row.divided], ['decimal', 'double']);
});

check('views, $out and $merge make collections of others', async (db) => {
  const sales = db.collection('sales');
  await sales.insertMany(Array.from({ length: 20 }, (_, n) => ({ _id: n, shop: n % 2 ? 'a' : 'b', n })));
  await db.createCollection('odd', { viewOn: 'sales', pipeline: [{ $match: { shop: 'a' } }, { $project: { n: 1 } }] });
  equal(await db.collection('odd').countDocuments(), 10);
  equal(await db.collection('odd').find({ n: { $gt: 15 } }).sort({ _id: 1 }).toArray(), [{ _id: 17, n: 17 }, { _id: 19, n: 19 }]);
  const totals = { $group: { _id: '$shop', n: { $sum: '$n' } } };
  equal(await sales.aggregate([totals, { $out: 'totals' }]).toArray(), []);
  equal(await db.collection('totals').find().sort({ _id: 1 }).toArray(), [{ _id: 'a', n: 100 }, { _id: 'b', n: 90 }]);
  await sales.insertOne({ _id: 50, shop: 'c', n: 1 });
  await sales.aggregate([totals, { $merge: { into: 'totals', whenMatched: 'keepExisting' } }]).toArray();
  equal(await db.collection('totals').countDocuments(), 3);
  await fails(11000, sales.aggregate([totals, { $merge: { into: 'totals', whenMatched: 'fail' } }]).toArray());
  const elsewhere = { $set: { _id: { $concat: ['$_id', '!'] } } };
  await fails(13113, sales.aggregate([totals, elsewhere, { $merge: { into: 'totals', whenNotMatched: 'fail' } }]).toArray());
});

check('updates take pipelines', async (db) => {
  const t = db.collection('t');
  await t.insertMany([{ _id: 1, scores: [3, 5] }, { _id: 2, scores: [] }, { _id: 3 }]);
  const result = await t.updateMany({}, [
    { $set: { scores: { $ifNull: ['$scores', []] } } },
    { $set: { best: { $max: '$scores' }, sum: { $sum: '$scores' } } },
  ]);
  equal([result.matchedCount, result.modifiedCount], [3, 3]);
  equal(await t.find().sort({ _id: 1 }).toArray(), [
    { _id: 1, scores: [3, 5], best: 5, sum: 8 },
    { _id: 2, scores: [], best: null, sum: 0 },
    { _id: 3, scores: [], best: null, sum: 0 },
  ]);
  const after = await t.findOneAndUpdate({ _id: 1 }, [{ $unset: ['best', 'scores'] }, { $set: { half: { $divide: ['$sum', 2] } } }], { returnDocument: 'after' });
  equal(after, { _id: 1, sum: 8, half: 4 });
  const made = await t.updateOne({ _id: 'new' }, [{ $set: { n: { $add: [{ $ifNull: ['$n', 0] }, 1] } } }], { upsert: true });
  equal(made.upsertedId, 'new');
  await fails(16702, t.updateOne({ _id: 1 }, [{ $set: { a: { $concat: ['x', '$sum'] } } }]));
});

check('counts come in three ways', async (db) => {
  const t = db.collection('t');
  await t.insertMany(Array.from({ length: 50 }, (_, n) => ({ a: n % 5, tags: [n % 2, 'x'] })));
  equal(await t.countDocuments(), 50);
  equal(await t.countDocuments({ a: 2 }), 10);
  equal(await t.countDocuments({ $expr: { $eq: [{ $arrayElemAt: ['$tags', 0] }, 1] } }, { skip: 5 }), 20);
  equal(await t.estimatedDocumentCount(), 50);
  equal((await t.distinct('a', { a: { $gte: 3 } })).sort(), [3, 4]);
  equal((await t.distinct('tags')).length, 3);
});

check('explain tells how a pipeline runs', async (db) => {
  const t = db.collection('t');
  await t.insertMany(Array.from({ length: 50 }, (_, n) => ({ a: n, b: n % 3 })));
  await t.createIndex({ a: 1 });
  const explain = await t.aggregate([{ $match: { a: { $gt: 45 } } }, { $group: { _id: '$b' } }]).explain('executionStats');
  const text = JSON.stringify(explain);
  equal([text.includes('IXSCAN'), text.includes('COLLSCAN')], [true, false]);
});

check('maxTimeMS and allowDiskUse are taken', async (db) => {
  const t = db.collection('t');
  await t.insertMany(Array.from({ length: 200 }, (_, n) => ({ _id: n })));
  const long = { $map: { input: { $range: [0, 300000] }, in: { $multiply: ['$$this', '$_id'] } } };
  await fails(50, t.aggregate([{ $project: { x: { $sum: long } } }], { maxTimeMS: 100 }).toArray());
  equal((await t.aggregate([{ $sort: { x: 1, _id: -1 } }, { $limit: 1 }], { allowDiskUse: true }).toArray()), [{ _id: 199 }]);
});

check('dates group by zone, week and month', async (db) => {
  await db.collection('visits').insertMany([
    { at: new Date('2024-03-31T22:30:00Z') },
    { at: new Date('2024-03-31T23:30:00Z') },
    { at: new Date('2024-04-01T12:00:00Z') },
  ]);
  const by = (timezone) => db.collection('visits').aggregate([
    { $group: { _id: { $dateToString: { date: '$at', format: '%Y-%m', timezone } }, n: { $sum: 1 } } },
    { $sort: { _id: 1 } },
  ]).toArray();
  equal(await by('UTC'), [{ _id: '2024-03', n: 2 }, { _id: '2024-04', n: 1 }]);
  equal(await by('Europe/Istanbul'), [{ _id: '2024-04', n: 3 }]);
  equal(await by('America/New_York'), [{ _id: '2024-03', n: 2 }, { _id: '2024-04', n: 1 }]);
});

check('a session carries a pipeline in its transaction', async (db) => {
  await db.collection('t').insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }]);
  const session = client.startSession();
  const sum = await session.withTransaction(async () => {
    await db.collection('t').updateMany({}, [{ $set: { n: { $add: ['$n', 10] } } }], { session });
    const [row] = await db.collection('t').aggregate([{ $group: { _id: null, n: { $sum: '$n' } } }], { session }).toArray();
    return row.n;
  });
  equal(sum, 23);
  await session.endSession();
});

const client = await MongoClient.connect(uri);
await run('node_aggregation', async (name) => client.db(name), (db) => db.dropDatabase());
await client.close();
