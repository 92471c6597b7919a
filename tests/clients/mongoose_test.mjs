// Mongoose, as an application uses it, against the server of MONGODB_URI.
// What is expected here is true of mongod too: run it there first.

import { createRequire } from 'node:module';
import { check, equal, fails, run } from './checks.mjs';

const require = createRequire(process.env.KILIM_NODE_MODULES + '/');
const mongoose = require('mongoose');
const { Schema } = mongoose;

check('a model saves, validates, finds and removes', async (connection) => {
  const User = connection.model('User', new Schema({
    name: { type: String, required: true, trim: true },
    email: { type: String, lowercase: true, unique: true },
    age: { type: Number, min: 0 },
    address: { street: String, city: String },
    phones: [{ kind: String, number: String }],
  }, { timestamps: true }));
  await User.init();
  const alice = await User.create({ name: ' Alice ', email: 'A@Example.com', age: 30, address: { city: 'Konya' } });
  equal([alice.name, alice.email, alice.createdAt instanceof Date], ['Alice', 'a@example.com', true]);
  alice.phones.push({ kind: 'mobile', number: '555' });
  alice.address.street = 'Main';
  await alice.save();
  const found = await User.findOne({ 'phones.number': '555' }).lean();
  equal([found.address, found.phones.length], [{ city: 'Konya', street: 'Main' }, 1]);
  await fails(11000, User.create({ name: 'Other', email: 'a@example.com' }));
  const invalid = await User.create({ age: -1 }).catch((error) => error);
  equal(Object.keys(invalid.errors).sort(), ['age', 'name']);
  equal((await User.findByIdAndUpdate(alice._id, { $inc: { age: 1 } }, { returnDocument: 'after' })).age, 31);
  equal(await User.exists({ age: 31 }) !== null, true);
  equal((await User.deleteOne({ _id: alice._id })).deletedCount, 1);
  equal(await User.countDocuments(), 0);
});

check('arrays change by the smallest update', async (connection) => {
  const List = connection.model('List', new Schema({ items: [Number], tags: [{ name: String, n: Number }] }));
  const list = await List.create({ items: [1, 2, 3], tags: [{ name: 'a', n: 1 }, { name: 'b', n: 2 }] });
  list.items.push(4);
  list.items.pull(2);
  await list.save();
  list.items.addToSet(4, 5);
  list.tags.id(list.tags[1]._id).n = 20;
  await list.save();
  list.tags.pull(list.tags[0]._id);
  list.items.set(0, 9);
  await list.save();
  const found = await List.findById(list._id).lean();
  equal([found.items, found.tags.map((tag) => tag.n), found.__v > 0], [[9, 3, 4, 5], [20], true]);
  const stale = await List.findById(list._id);
  await List.updateOne({ _id: list._id }, { $inc: { __v: 1 } });
  stale.tags[0].set({ name: 'z' });
  stale.items = [0];
  const conflict = await stale.save().catch((error) => error);
  equal(conflict.name, 'VersionError');
});

check('queries chain, page, sort, select and populate', async (connection) => {
  const Author = connection.model('Author', new Schema({ name: String }));
  const Book = connection.model('Book', new Schema({
    title: String, pages: Number, author: { type: Schema.Types.ObjectId, ref: 'Author' }, kinds: [String],
  }));
  const authors = await Author.insertMany([{ name: 'Ada' }, { name: 'Ben' }]);
  await Book.insertMany(Array.from({ length: 20 }, (_, n) => ({
    title: `Book ${n}`, pages: n * 10, author: authors[n % 2]._id, kinds: n % 3 ? ['craft'] : ['craft', 'art'],
  })));
  const page = await Book.find().where('pages').gte(50).lt(150).sort('-pages').skip(1).limit(3).select('title pages -_id').lean();
  equal(page, [{ title: 'Book 13', pages: 130 }, { title: 'Book 12', pages: 120 }, { title: 'Book 11', pages: 110 }]);
  const populated = await Book.findOne({ title: /7$/ }).populate('author');
  equal(populated.author.name, 'Ben');
  equal(await Book.find({ kinds: { $all: ['art', 'craft'] } }).countDocuments(), 7);
  equal((await Book.distinct('kinds')).sort(), ['art', 'craft']);
  let pages = 0;
  for await (const book of Book.find().cursor({ batchSize: 3 })) pages += book.pages;
  equal(pages, 1900);
});

check('discriminators share one collection', async (connection) => {
  const Product = connection.model('Product', new Schema({ title: String }, { discriminatorKey: 'kind' }));
  const Book = Product.discriminator('BookProduct', new Schema({ isbn: String }));
  const Film = Product.discriminator('FilmProduct', new Schema({ minutes: Number }));
  await Book.create({ title: 'Weaving', isbn: '1' });
  await Film.create({ title: 'Weaving, the film', minutes: 90 });
  equal(await Product.countDocuments({ title: /^Weaving/ }), 2);
  equal((await Film.find().lean()).map((it) => [it.kind, it.minutes]), [['FilmProduct', 90]]);
});

check('indexes of a schema are made and kept in step', async (connection) => {
  const schema = new Schema({ isbn: String, kind: String, made: Date });
  schema.index({ isbn: 1 }, { unique: true, partialFilterExpression: { kind: 'book' } });
  schema.index({ kind: 1, made: -1 });
  const Thing = connection.model('Thing', schema);
  await Thing.syncIndexes();
  equal((await Thing.listIndexes()).map((it) => it.name).sort(), ['_id_', 'isbn_1', 'kind_1_made_-1']);
  await Thing.create([{ isbn: '1', kind: 'book' }, { isbn: '1', kind: 'film' }]);
  await fails(11000, Thing.create({ isbn: '1', kind: 'book' }));
});

check('a transaction saves several models or none', async (connection) => {
  const Order = connection.model('Order', new Schema({ total: Number }));
  const Stock = connection.model('Stock', new Schema({ _id: String, left: Number }));
  await Order.createCollection();
  await Stock.create({ _id: 'rug', left: 1 });
  const buy = () => connection.transaction(async (session) => {
    const stock = await Stock.findOneAndUpdate({ _id: 'rug' }, { $inc: { left: -1 } }, { session, returnDocument: 'after' });
    if (stock.left < 0) throw new Error('sold out');
    await Order.create([{ total: 10 }], { session });
  });
  await buy();
  equal((await buy().catch((error) => error)).message, 'sold out');
  equal([(await Stock.findById('rug')).left, await Order.countDocuments()], [0, 1]);
});

check('bulk saves and updates with filters work', async (connection) => {
  const Item = connection.model('Item', new Schema({ n: Number, grades: [Number], seen: Boolean }, { versionKey: false }));
  const items = [1, 2, 3].map((n) => new Item({ n, grades: [n, n * 10] }));
  await Item.bulkSave(items);
  items.forEach((item) => { item.seen = true; });
  await Item.bulkSave(items);
  equal(await Item.countDocuments({ seen: true }), 3);
  await Item.updateMany({}, { $set: { 'grades.$[big]': 0 } }, { arrayFilters: [{ big: { $gte: 20 } }] });
  equal((await Item.find().sort('n').lean()).map((it) => it.grades), [[1, 10], [2, 0], [3, 0]]);
  const result = await Item.bulkWrite([
    { updateOne: { filter: { n: 1 }, update: { $set: { seen: false } } } },
    { insertOne: { document: { n: 4 } } },
  ]);
  equal([result.modifiedCount, result.insertedCount], [1, 1]);
  equal((await Item.findOneAndDelete({ n: 4 })).n, 4);
});

check('old documents are migrated as they are read', async (connection) => {
  const Person = connection.model('Person', new Schema({ version: Number, phone: Schema.Types.Mixed }));
  await Person.insertMany([{ version: 1, phone: '555-1' }, { version: 1, phone: '555-2' }, { version: 2, phone: { number: '3' } }]);
  for await (const person of Person.find({ version: { $lt: 2 } })) {
    person.set({ phone: { country: '+1', number: person.phone }, version: 2 });
    await person.save();
  }
  equal(await Person.countDocuments({ version: 2 }), 3);
  equal(await Person.countDocuments({ 'phone.country': '+1' }), 2);
});

const uri = process.env.MONGODB_URI;
await run(
  'mongoose',
  (name) => mongoose.createConnection(uri, { dbName: name }).asPromise(),
  async (connection) => {
    await connection.dropDatabase();
    await connection.close();
  },
);
