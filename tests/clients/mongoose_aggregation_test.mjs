// Aggregation by Mongoose, as an application uses it, against the server of MONGODB_URI.
// What is expected here is true of mongod too: run it there first.

import { createRequire } from 'node:module';
import { check, equal, run } from './checks.mjs';

const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const mongoose = require('mongoose');
const { Schema } = mongoose;

const plain = (value) => JSON.parse(JSON.stringify(value));

async function shop(connection) {
  const Author = connection.model('Author', new Schema({ name: String, country: String }));
  const Book = connection.model('Book', new Schema({ title: String, price: Number, tags: [String], author: { type: Schema.Types.ObjectId, ref: 'Author' } }));
  const [ada, ben] = await Author.create([{ name: 'Ada', country: 'TR' }, { name: 'Ben', country: 'DE' }]);
  await Book.create([
    { title: 'Warp', price: 10, tags: ['craft', 'wool'], author: ada._id },
    { title: 'Weft', price: 20, tags: ['craft'], author: ada._id },
    { title: 'Knots', price: 5, tags: [], author: ben._id },
  ]);
  return { Author, Book };
}

check('an aggregate chains as a query does', async (connection) => {
  const { Book } = await shop(connection);
  const rows = await Book.aggregate()
    .match({ price: { $gte: 5 } })
    .unwind('tags')
    .group({ _id: '$tags', price: { $avg: '$price' }, n: { $sum: 1 } })
    .sort({ n: -1 })
    .project({ _id: 0, tag: '$_id', price: 1, n: 1 });
  equal(rows, [{ price: 15, n: 2, tag: 'craft' }, { price: 10, n: 1, tag: 'wool' }]);
});

check('a lookup gives what populate gives', async (connection) => {
  const { Book } = await shop(connection);
  const joined = await Book.aggregate([
    { $lookup: { from: 'authors', localField: 'author', foreignField: '_id', as: 'author' } },
    { $unwind: '$author' },
    { $sort: { title: 1 } },
  ]);
  const populated = await Book.find().sort({ title: 1 }).populate('author').lean();
  equal(plain(joined), plain(populated));
  const Author = connection.model('Author');
  const counted = await Author.aggregate([
    { $lookup: { from: 'books', localField: '_id', foreignField: 'author', as: 'books', pipeline: [{ $match: { price: { $gt: 5 } } }, { $project: { title: 1, _id: 0 } }, { $sort: { title: 1 } }] } },
    { $project: { _id: 0, name: 1, books: '$books.title' } },
    { $sort: { name: 1 } },
  ]);
  equal(counted, [{ name: 'Ada', books: ['Warp', 'Weft'] }, { name: 'Ben', books: [] }]);
});

check('virtual counts and count methods agree', async (connection) => {
  const { Book } = await shop(connection);
  equal(await Book.countDocuments({ tags: 'craft' }), 2);
  equal(await Book.estimatedDocumentCount(), 3);
  equal((await Book.distinct('tags')).sort(), ['craft', 'wool']);
  const [{ count }] = await Book.aggregate().match({ tags: 'craft' }).count('count');
  equal(count, 2);
});

check('a facet serves a page with its counts', async (connection) => {
  const { Book } = await shop(connection);
  const [page] = await Book.aggregate().facet({
    rows: [{ $sort: { price: -1 } }, { $limit: 2 }, { $project: { _id: 0, title: 1 } }],
    total: [{ $count: 'n' }],
    prices: [{ $bucket: { groupBy: '$price', boundaries: [0, 10, 100] } }],
  });
  equal(page, { rows: [{ title: 'Weft' }, { title: 'Warp' }], total: [{ n: 3 }], prices: [{ _id: 0, count: 1 }, { _id: 10, count: 2 }] });
});

check('an update pipeline computes from the document', async (connection) => {
  const { Book } = await shop(connection);
  const done = await Book.updateMany({}, [{ $set: { price: { $round: [{ $multiply: ['$price', 1.21] }, 2] } } }], { updatePipeline: true });
  equal(done.modifiedCount, 3);
  equal((await Book.find().sort({ price: 1 })).map((book) => book.price), [6.05, 12.1, 24.2]);
  const after = await Book.findOneAndUpdate({ title: 'Warp' }, [{ $set: { tags: { $concatArrays: ['$tags', ['new']] } } }], { returnDocument: 'after', updatePipeline: true });
  equal([...after.tags], ['craft', 'wool', 'new']);
});

check('a cursor streams an aggregate', async (connection) => {
  const Point = connection.model('Point', new Schema({ n: Number }));
  await Point.insertMany(Array.from({ length: 400 }, (_, n) => ({ n })));
  let sum = 0;
  for await (const row of Point.aggregate([{ $match: { n: { $gte: 100 } } }, { $project: { n: 1 } }]).cursor({ batchSize: 9 })) sum += row.n;
  equal(sum, (100 + 399) * 150);
});

check('a tree is walked by graphLookup', async (connection) => {
  const Topic = connection.model('Topic', new Schema({ _id: String, parent: String }));
  await Topic.create([{ _id: 'craft' }, { _id: 'textile', parent: 'craft' }, { _id: 'kilim', parent: 'textile' }]);
  const [row] = await Topic.aggregate()
    .match({ _id: 'kilim' })
    .graphLookup({ from: 'topics', startWith: '$parent', connectFromField: 'parent', connectToField: '_id', as: 'above', depthField: 'depth' })
    .addFields({ above: { $sortArray: { input: '$above', sortBy: { depth: 1 } } } })
    .project({ above: '$above._id' });
  equal(row, { _id: 'kilim', above: ['textile', 'craft'] });
});

check('a sum is kept by a merge into its model', async (connection) => {
  const { Book } = await shop(connection);
  const Total = connection.model('Total', new Schema({ _id: Schema.Types.ObjectId, books: Number }));
  await Book.aggregate([{ $group: { _id: '$author', books: { $sum: 1 } } }, { $merge: { into: 'totals' } }]);
  equal((await Total.find().sort({ books: 1 }).lean()).map((total) => total.books), [1, 2]);
});

const uri = process.env.MONGODB_URI;
await run(
  'mongoose_aggregation',
  (name) => mongoose.createConnection(uri, { dbName: name }).asPromise(),
  async (connection) => {
    await connection.dropDatabase();
    await connection.close();
  },
);
