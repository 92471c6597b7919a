// Aggregation by mongosh: `mongosh URI --file mongosh_aggregation_test.js`. One line per check, non-zero exit if one
// fails. What is expected here is true of mongod too: run it there first.

const home = `mongosh_aggregation_${process.pid}`;
load(`${__dirname}/mongosh_checks.js`);

check('pipelines are written by hand', () => {
  db.orders.insertMany([
    { _id: 1, who: 'ada', lines: [{ sku: 'a', n: 2, price: 3 }, { sku: 'b', n: 1, price: 10 }] },
    { _id: 2, who: 'ben', lines: [{ sku: 'a', n: 5, price: 3 }] },
  ]);
  const totals = db.orders.aggregate([
    { $set: { total: { $sum: { $map: { input: '$lines', in: { $multiply: ['$$this.n', '$$this.price'] } } } } } },
    { $project: { who: 1, total: 1 } },
    { $sort: { _id: 1 } },
  ]);
  equal(totals.toArray(), [{ _id: 1, who: 'ada', total: 16 }, { _id: 2, who: 'ben', total: 15 }]);
  const sold = db.orders.aggregate([{ $unwind: '$lines' }, { $group: { _id: '$lines.sku', n: { $sum: '$lines.n' } } }, { $sort: { _id: 1 } }]);
  equal(sold.toArray(), [{ _id: 'a', n: 7 }, { _id: 'b', n: 1 }]);
  // Without a collection.
  equal(db.aggregate([{ $documents: [{ a: 1 }, { a: 2 }] }, { $match: { a: { $gt: 1 } } }]).toArray(), [{ a: 2 }]);
});

check('cursors of pipelines batch and iterate', () => {
  db.t.insertMany(Array.from({ length: 300 }, (_, n) => ({ _id: n })));
  const cursor = db.t.aggregate([{ $sort: { _id: 1 } }], { cursor: { batchSize: 11 } });
  let seen = 0;
  while (cursor.hasNext()) equal(cursor.next()._id, seen++);
  equal(seen, 300);
  equal(db.t.aggregate([{ $match: { _id: { $lt: 5 } } }]).map((it) => it._id * 2).toArray().length, 5);
});

check('views are made and read', () => {
  db.people.insertMany([{ _id: 1, name: 'Ada', secret: 'x' }, { _id: 2, name: 'Ben', secret: 'y' }]);
  db.createView('names', 'people', [{ $unset: 'secret' }]);
  equal(db.names.find().sort({ _id: 1 }).toArray(), [{ _id: 1, name: 'Ada' }, { _id: 2, name: 'Ben' }]);
  equal(db.names.countDocuments({}), 2);
  equal(db.getCollectionInfos({ name: 'names' })[0].type, 'view');
  db.runCommand({ collMod: 'names', viewOn: 'people', pipeline: [{ $match: { _id: 2 } }, { $project: { name: 1 } }] });
  equal(db.names.find().toArray(), [{ _id: 2, name: 'Ben' }]);
});

check('references are joined, trees are walked', () => {
  db.users.insertOne({ _id: 'u1', name: 'Ada' });
  db.orders.insertOne({ _id: 1, user: 'u1', total: 99.5 });
  equal(db.orders.aggregate([{ $lookup: { from: 'users', localField: 'user', foreignField: '_id', as: 'who' } }]).toArray(), [{ _id: 1, user: 'u1', total: 99.5, who: [{ _id: 'u1', name: 'Ada' }] }]);
  db.tree.insertMany([{ _id: 'a' }, { _id: 'b', parent: 'a' }, { _id: 'c', parent: 'b' }]);
  const [row] = db.tree.aggregate([
    { $match: { _id: 'a' } },
    { $graphLookup: { from: 'tree', startWith: '$_id', connectFromField: '_id', connectToField: 'parent', as: 'below' } },
    { $project: { below: { $sortArray: { input: '$below._id', sortBy: 1 } } } },
  ]).toArray();
  equal(row, { _id: 'a', below: ['b', 'c'] });
});

check('an average is computed on write', () => {
  db.products.insertOne({ _id: 1, reviews: 2, average: 4 });
  const stars = 1;
  db.products.updateOne({ _id: 1 }, [
    {
      $set: {
        reviews: { $add: ['$reviews', 1] },
        average: { $divide: [{ $add: [{ $multiply: ['$average', '$reviews'] }, stars] }, { $add: ['$reviews', 1] }] },
      },
    },
  ]);
  equal(db.products.findOne(), { _id: 1, reviews: 3, average: 3 });
  const after = db.products.findOneAndUpdate({ _id: 1 }, [{ $set: { at: '$$NOW' } }], { returnDocument: 'after' });
  assert.ok(after.at instanceof Date);
});

check('results are written elsewhere', () => {
  db.sales.insertMany([{ d: ISODate('2024-03-01T10:00:00Z'), n: 1 }, { d: ISODate('2024-03-01T18:00:00Z'), n: 2 }, { d: ISODate('2024-03-02T00:00:00Z'), n: 4 }]);
  const daily = { $group: { _id: { $dateTrunc: { date: '$d', unit: 'day' } }, n: { $sum: '$n' } } };
  db.sales.aggregate([daily, { $merge: 'daily' }]);
  db.sales.aggregate([daily, { $merge: { into: 'daily', whenMatched: [{ $set: { n: { $add: ['$n', '$$new.n'] } } }] } }]);
  equal(db.daily.find().sort({ _id: 1 }).toArray().map((it) => it.n), [6, 8]);
  db.sales.aggregate([daily, { $out: 'daily' }]);
  equal(db.daily.countDocuments({ n: { $lt: 4 } }), 1);
});

check('explain and counts answer', () => {
  db.t.insertMany(Array.from({ length: 40 }, (_, n) => ({ a: n % 4 })));
  db.t.createIndex({ a: 1 });
  assert.match(plain(db.t.explain().aggregate([{ $match: { a: 1 } }, { $group: { _id: null, n: { $sum: 1 } } }])), /IXSCAN|COUNT_SCAN/);
  assert.match(plain(db.t.aggregate([{ $match: { b: 1 } }], { explain: true })), /COLLSCAN/);
  equal(db.t.countDocuments({ a: { $in: [1, 2] } }), 20);
  equal(db.t.estimatedDocumentCount(), 40);
  equal(db.t.distinct('a').sort(), [0, 1, 2, 3]);
  equal(db.t.aggregate([{ $collStats: { count: {} } }, { $project: { _id: 0, count: 1 } }]).toArray(), [{ count: 40 }]);
  equal(db.t.aggregate([{ $indexStats: {} }, { $sort: { name: 1 } }, { $project: { _id: 0, name: 1 } }]).toArray(), [{ name: '_id_' }, { name: 'a_1' }]);
});

check('errors of pipelines carry their codes', () => {
  db.t.insertOne({ a: 'x' });
  fails(40324, () => db.t.aggregate([{ $nonsense: {} }]).toArray());
  fails(16612, () => db.t.aggregate([{ $match: { $expr: { $eq: [{ $add: [ISODate('2024-01-01'), ISODate('2024-01-01')] }, 1] } } }]).toArray());
  fails(17276, () => db.t.aggregate([{ $project: { b: '$$unknown' } }]).toArray());
});

if (failed) quit(1);
