// Declared patterns under an ODM, which keeps documents and writes them back.

import { createRequire } from 'node:module';
import { check, equal, fails, run } from './checks.mjs';

const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const mongoose = require('mongoose');
const { Schema } = mongoose;

const READ_ONLY = 90000001;

/** Products with statistics and newest reviews, both declared. */
async function shop(connection) {
  const Review = connection.model('Review', new Schema({ product: Number, rating: Number, text: String, date: Date }));
  const Product = connection.model('Product', new Schema({
    _id: Number, title: String, tags: [String], reviewCount: Number, avgRating: Number, recent: [{ rating: Number, text: String }],
  }, { timestamps: true }));
  await Review.createCollection();
  await Product.create({ _id: 1, title: 'Loom' });
  const declare = async (name, declaration) => {
    await connection.db.command({ createPattern: 'products', name, ...declaration });
    await connection.db.command({ waitPattern: 'products', name, timeoutMS: 60000 });
  };
  await declare('stats', {
    computed: {
      from: 'reviews',
      pipeline: [{ $group: { _id: '$product', reviewCount: { $count: {} }, avgRating: { $avg: '$rating' } } }],
    },
  });
  await declare('recent', {
    subset: {
      from: 'reviews', localField: '_id', foreignField: 'product', as: 'recent',
      sort: { date: -1 }, limit: 2, fields: { rating: 1, text: 1 },
    },
  });
  return { Product, Review };
}

const isTrue = async (connection, name) => {
  const { wrong } = await connection.db.command({ verifyPattern: 'products', name });
  equal(wrong, 0);
};

check('a saved document that is out of date takes nothing back', async (connection) => {
  const { Product, Review } = await shop(connection);
  const stale = await Product.findById(1);
  equal(stale.reviewCount, 0);
  await Review.create([1, 2, 3].map((n) => ({ product: 1, rating: n, text: `t${n}`, date: new Date(2024, 0, n) })));
  // A changed field alone, an array, and the whole document.
  stale.title = 'A loom';
  stale.tags.push('wood');
  await stale.save();
  await Product.replaceOne({ _id: 1 }, { title: 'The loom', reviewCount: 0, avgRating: null, recent: [] });
  const product = await Product.findById(1).lean();
  equal([product.title, product.reviewCount, product.avgRating], ['The loom', 3, 2]);
  equal(product.recent.map((review) => review.text), ['t3', 't2']);
  await isTrue(connection, 'stats');
  await isTrue(connection, 'recent');
});

check('a maintained field that is set is refused', async (connection) => {
  const { Product, Review } = await shop(connection);
  await Review.create({ product: 1, rating: 5, date: new Date() });
  const product = await Product.findById(1);
  product.reviewCount += 1;
  const error = await fails(READ_ONLY, product.save());
  equal(error.message.includes("computed 'stats'"), true);
  await fails(READ_ONLY, Product.updateOne({ _id: 1 }, { $push: { recent: { rating: 1 } } }));
  await fails(READ_ONLY, Product.findByIdAndUpdate(1, { $inc: { reviewCount: 1 } }));
  equal((await Product.findById(1)).reviewCount, 1);
});

check('maintenance leaves versions and time stamps alone', async (connection) => {
  const { Product, Review } = await shop(connection);
  const before = await Product.findById(1).lean();
  await Review.create({ product: 1, rating: 5, date: new Date() });
  await Review.updateOne({}, { rating: 4 });
  const after = await Product.findById(1).lean();
  equal([after.__v, after.updatedAt, after.avgRating], [before.__v, before.updatedAt, 4]);
});

check('children are written in every way', async (connection) => {
  const { Product, Review } = await shop(connection);
  const [first, second] = await Review.insertMany([
    { product: 1, rating: 1, text: 'a', date: new Date(1000) }, { product: 1, rating: 2, text: 'b', date: new Date(2000) },
  ]);
  await Review.bulkWrite([
    { insertOne: { document: { product: 1, rating: 3, text: 'c', date: new Date(3000) } } },
    { updateOne: { filter: { _id: first._id }, update: { rating: 5, date: new Date(9000) } } },
    { deleteOne: { filter: { _id: second._id } } },
  ]);
  await connection.transaction(async (session) => {
    await Review.create([{ product: 1, rating: 4, text: 'd', date: new Date(4000) }], { session });
  });
  const product = await Product.findById(1).lean();
  equal([product.reviewCount, product.avgRating, product.recent.map((it) => it.text)], [3, 4, ['a', 'd']]);
  await isTrue(connection, 'stats');
  await isTrue(connection, 'recent');
});

const uri = process.env.MONGODB_URI;
await run(
  'mongoose_pattern',
  (name) => mongoose.createConnection(uri, { dbName: name }).asPromise(),
  async (connection) => {
    await connection.dropDatabase();
    await connection.close();
  },
);
