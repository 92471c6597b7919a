// Declared patterns by mongosh: `mongosh URI --file mongosh_pattern_test.js`. One line per check, non-zero exit if one
// fails. First what people do by hand, as they write it; then the same declared, and broken on purpose.

const home = `mongosh_pattern_${process.pid}`;
load(`${__dirname}/mongosh_checks.js`);

/** Declares, and waits until it is filled. */
function declare(collection, name, declaration) {
  const { from } = Object.values(declaration)[0];
  // Patterns read from collections that are there.
  if (typeof from === 'string' && !db.getCollectionNames().includes(from)) db.createCollection(from);
  db.runCommand({ createPattern: collection, name, ...declaration });
  db.runCommand({ waitPattern: collection, name, timeoutMS: 60000 });
}

function allTrue(collection, name) {
  const { wrong, examples } = db.runCommand({ verifyPattern: collection, name });
  equal({ wrong, examples }, { wrong: 0, examples: [] });
}

const READ_ONLY = 90000001;
const CYCLE = 90000002;
const CONFLICT = 90000003;
const NOT_READY = 90000007;
const DANGLING = 90000011;
const RESTRICT = 90000012;
const INDEX_OWNED = 90000013;
const VARIANT = 90000030;

// ---------------------------------------------------------------------------------------------------- by hand

check('extended reference by hand', () => {
  const orderId = new ObjectId();
  const customerId = new ObjectId();
  db.customers.insertOne({ _id: customerId, name: 'Alice Johnson', email: 'old@example.com', tier: 'gold' });
  db.orders.insertOne({
    _id: orderId,
    customerId,
    customer: {
      name: 'Alice Johnson',
      email: 'old@example.com',
      tier: 'gold',
    },
    lineItems: [],
    total: 249.99,
    createdAt: ISODate('2024-03-01'),
  });
  // Without: two queries.
  const order = db.orders.findOne({ _id: orderId })
  const cust  = db.customers.findOne({ _id: order.customerId })  // extra round-trip
  equal(cust.name, order.customer.name);
  // When a customer changes their name → update all affected embedded snapshots
  db.orders.updateMany(
    { "customer.email": "old@example.com" },
    { $set: { "customer.name": "Alice Smith", "customer.email": "new@example.com" } }
  )
  equal(db.orders.findOne({ _id: orderId }).customer, { name: 'Alice Smith', email: 'new@example.com', tier: 'gold' });
  // And the join that the copy spares.
  db.users.insertOne({ _id: 'user1', name: 'Alice' });
  db.bills.insertOne({ _id: 'order1', userId: 'user1', total: 99.99 });
  const joined = db.bills.aggregate([
    { $lookup: { from: "users", localField: "userId", foreignField: "_id", as: "user" } }
  ]).toArray();
  equal(joined, [{ _id: 'order1', userId: 'user1', total: 99.99, user: [{ _id: 'user1', name: 'Alice' }] }]);
});

check('computed by hand', () => {
  const productId = new ObjectId();
  const postId = new ObjectId();
  db.reviews.insertMany([{ productId, rating: 4 }, { productId, rating: 5 }]);
  const reviewCount = db.reviews.countDocuments({ productId: productId })  // O(N)
  const avgRating   = db.reviews.aggregate([
    { $match: { productId: productId } },
    { $group: { _id: null, avg: { $avg: "$rating" } } }
  ])  // scans all reviews every page view
  equal([reviewCount, avgRating.toArray()[0].avg], [2, 4.5]);
  db.products.insertOne({ _id: productId, name: 'Wireless Headphones', reviewCount, avgRating: 4.5, totalRevenue: 451456.53 });
  const newRating = 3;
  // On new review submission: atomic update
  db.products.updateOne(
    { _id: productId },
    [
      {
        $set: {
          reviewCount: { $add: ["$reviewCount", 1] },
          // New avg = (oldAvg * oldCount + newRating) / (oldCount + 1)
          avgRating: {
            $divide: [
              { $add: [{ $multiply: ["$avgRating", "$reviewCount"] }, newRating] },
              { $add: ["$reviewCount", 1] }
            ]
          }
        }
      }
    ]
  )
  const { reviewCount: n, avgRating: mean } = db.products.findOne();
  equal([n, mean], [3, 4]);
  db.posts.insertOne({ _id: postId, title: 'MongoDB Schema Design', likeCount: 1247, viewCount: 58300 });
  equal(db.likes.countDocuments({ postId }), 0);
  db.posts.updateOne(
  { _id: postId },
  { $inc: { likeCount: 1 } }
  )
  equal(db.posts.findOne().likeCount, 1248);
});

check('subset by hand', () => {
  const productId = new ObjectId();
  db.products.insertOne({ _id: productId, name: 'Wireless Headphones', avgRating: 4.3, reviewCount: 2847, recentReviews: [] });
  db.reviews.createIndex({ productId: 1, date: -1 })   // for fast pagination
  for (let day = 1; day <= 7; day += 1) {
    const newReview = { userId: new ObjectId(), rating: 5, text: 'Love it', date: new Date(2024, 2, day) };
    db.reviews.insertOne({ productId, ...newReview });
    // On new review: maintain subset with $push + $slice
    db.products.updateOne(
      { _id: productId },
      {
        $push: {
          recentReviews: {
            $each:  [newReview],
            $sort:  { date: -1 },   // most recent first
            $slice: 5               // capped at exactly 5
          }
        },
        $inc: { reviewCount: 1 }
      }
    )
  }
  const newReview = { user: 'Alice', rating: 5, text: 'Excellent sound quality', date: new Date(2024, 2, 9) };
  const newAverage = 4.4;
  db.products.updateOne(
  { _id: productId },
  {
  $push: {
  recentReviews: {
  $each: [newReview],
  $sort: { date: -1 },
  $slice: 5
  }
  },
  $inc: { reviewCount: 1 },
  $set: { avgRating: newAverage }
  }
  )
  const page = db.products.findOne({ _id: productId });
  equal([page.reviewCount, page.avgRating, page.recentReviews.map((it) => it.date.getDate())], [2855, 4.4, [9, 7, 6, 5, 4]]);
  // Load all reviews (user clicked "show all"):
  equal(db.reviews.find({ productId: productId }).sort({ date: -1 }).limit(20).toArray().length, 7);
});

// --------------------------------------------------------------------------------------------------- declared

check('the shop declared', () => {
  db.customers.insertOne({ _id: 'cust1', name: 'Alice Johnson', email: 'alice@example.com', tier: 'gold', address: { city: 'Konya' } });
  db.products.insertOne({ _id: 'prod1', name: 'Wireless Headphones' });
  db.orders.insertOne({ _id: 'order1', customerId: 'cust1', items: [{ qty: 3, price: 29.99 }] });
  declare('orders', 'customerCard', {
    extendedReference: {
      from: 'customers', localField: 'customerId', foreignField: '_id', as: 'customer',
      fields: { name: 1, email: 1, tier: 1, city: '$address.city' },
      while: { status: { $ne: 'shipped' } }, onSourceDelete: 'keep', onMissing: 'null',
    },
  });
  declare('orders', 'totals', {
    computed: {
      set: {
        subtotal: { $sum: { $map: { input: '$items', in: { $multiply: ['$$this.qty', '$$this.price'] } } } },
        tax: { $multiply: ['$subtotal', 0.08] }, total: { $add: ['$subtotal', '$tax'] },
      },
    },
  });
  declare('products', 'stats', {
    computed: {
      from: 'reviews',
      pipeline: [
        { $match: { hidden: { $ne: true } } },
        { $group: { _id: '$productId', reviewCount: { $count: {} }, avgRating: { $avg: '$rating' },
                    ratingSum: { $sum: '$rating' }, best: { $max: '$rating' },
                    stars5: { $sum: { $cond: [{ $eq: ['$rating', 5] }, 1, 0] } } } },
      ],
      on: '_id', whenNotMatched: 'discard',
    },
  });
  declare('products', 'recent', {
    subset: {
      from: 'reviews', localField: '_id', foreignField: 'productId', as: 'recentReviews',
      sort: { date: -1 }, limit: 5, match: { hidden: { $ne: true } },
      fields: { userId: 1, rating: 1, text: 1, date: 1 },
    },
  });
  equal(db.runCommand({ listPatterns: 1 }).cursor.firstBatch.map((it) => [it.name, it.state]).sort(), [
    ['customerCard', 'active'], ['recent', 'active'], ['stats', 'active'], ['totals', 'active'],
  ]);

  db.customers.updateOne({ _id: 'cust1' }, { $set: { name: 'Alice Smith' } });
  const order = db.orders.findOne();
  equal(order.customer, { name: 'Alice Smith', email: 'alice@example.com', tier: 'gold', city: 'Konya' });
  equal([order.subtotal, order.tax, order.total].map((it) => it.toFixed(2)), ['89.97', '7.20', '97.17']);
  for (let n = 1; n <= 8; n += 1) {
    db.reviews.insertOne({ _id: n, productId: 'prod1', userId: n, rating: (n % 5) + 1, text: `t${n}`, date: new Date(2024, 2, n) });
  }
  db.reviews.deleteMany({ _id: { $in: [6, 7, 8] } });
  db.reviews.updateOne({ _id: 4 }, { $set: { hidden: true } });
  const page = db.products.findOne();
  equal(page.recentReviews.map((it) => it._id), [5, 3, 2, 1]);
  equal([page.reviewCount, page.avgRating, page.ratingSum, page.best, page.stars5], [4, 2.5, 10, 4, 0]);
  // Shipped: a frozen snapshot.
  db.orders.updateOne({ _id: 'order1' }, { $set: { status: 'shipped' } });
  db.customers.updateOne({ _id: 'cust1' }, { $set: { name: 'Alice Jones' } });
  equal(db.orders.findOne().customer.name, 'Alice Smith');
  for (const [collection, name] of [['orders', 'customerCard'], ['orders', 'totals'], ['products', 'stats'], ['products', 'recent']]) {
    allTrue(collection, name);
  }
});

check('arrays of references and references in arrays', () => {
  db.products.insertMany([{ _id: 'a', name: 'Loom' }, { _id: 'b', name: 'Wool' }]);
  declare('lists', 'names', { extendedReference: { from: 'products', localField: 'productIds', as: 'products', fields: { name: 1 } } });
  declare('orders', 'lines', { extendedReference: { from: 'products', localField: 'items.productId', as: 'items.product', fields: { name: 1 } } });
  db.lists.insertOne({ _id: 1, productIds: ['b'] });
  db.lists.updateOne({ _id: 1 }, { $push: { productIds: 'a' } });
  db.lists.updateOne({ _id: 1 }, { $addToSet: { productIds: 'b' } });
  db.orders.insertOne({ _id: 1, items: [{ productId: 'a', qty: 1 }] });
  db.orders.updateOne({ _id: 1 }, { $push: { items: { productId: 'b', qty: 2 } } });
  db.products.updateOne({ _id: 'a' }, { $set: { name: 'A loom' } });
  equal(db.lists.findOne().products, [{ name: 'Wool' }, { name: 'A loom' }]);
  equal(db.orders.findOne().items.map((it) => it.product.name), ['A loom', 'Wool']);
  allTrue('lists', 'names');
  allTrue('orders', 'lines');
});

// --------------------------------------------------------------------------------------------- broken on purpose

const card = { extendedReference: { from: 'customers', localField: 'customerId', as: 'customer', fields: { name: 1 } } };

check('a maintained path cannot be written by name', () => {
  db.customers.insertOne({ _id: 1, name: 'Ann' });
  db.orders.insertOne({ _id: 1, customerId: 1 });
  declare('orders', 'customerCard', card);
  const error = fails(READ_ONLY, () => db.orders.updateOne({ _id: 1 }, { $set: { 'customer.name': 'Eve' } }));
  assert.match(error.message, /Path 'customer.name' of .*orders is maintained by extendedReference 'customerCard' from/);
  assert.match(error.message, /Change the source, or dropPattern/);
  fails(READ_ONLY, () => db.orders.findOneAndUpdate({ _id: 1 }, { $unset: { customer: 1 } }));
  // A whole document is another matter: its stale copy is put right.
  const whole = db.orders.findOne();
  whole.customer.name = 'Eve';
  db.orders.replaceOne({ _id: 1 }, whole);
  equal(db.orders.findOne(), { _id: 1, customerId: 1, customer: { name: 'Ann' } });
});

check('a circle is printed in full', () => {
  declare('a', 'fromB', { extendedReference: { from: 'b', localField: 'bId', as: 'b', fields: { label: 1 } } });
  const error = fails(CYCLE, () => declare('b', 'fromA', {
    computed: { from: 'a', pipeline: [{ $group: { _id: '$bId', label: { $max: '$b.label' } } }] },
  }));
  assert.match(error.message, /fromA/);
  assert.match(error.message, /fromB/);
});

check('dangling references', () => {
  declare('orders', 'strict', { extendedReference: { ...card.extendedReference, onMissing: 'reject', onSourceDelete: 'restrict' } });
  fails(DANGLING, () => db.orders.insertOne({ _id: 1, customerId: 1 }));
  db.customers.insertOne({ _id: 1, name: 'Ann' });
  db.orders.insertOne({ _id: 1, customerId: 1 });
  fails(RESTRICT, () => db.customers.deleteOne({ _id: 1 }));
  equal(db.customers.countDocuments({}), 1);
});

check('indexes that patterns need, and indexes that they cannot keep', () => {
  declare('orders', 'customerCard', card);
  const error = fails(INDEX_OWNED, () => db.orders.dropIndex('kilim_customerCard_1'));
  assert.match(error.message, /dropPattern first/);
  assert.match(fails(CONFLICT, () => db.orders.createIndex({ 'customer.name': 1 }, { unique: true })).message, /customerCard/);
  db.orders.createIndex({ 'customer.name': 1 });
  db.customers.insertOne({ _id: 1, name: 'Ann' });
  db.orders.insertOne({ _id: 1, customerId: 1 });
  db.customers.updateOne({ _id: 1 }, { $set: { name: 'Anna' } });
  equal(db.orders.find({ 'customer.name': 'Anna' }).hint({ 'customer.name': 1 }).count(), 1);
  equal(db.orders.find({ 'customer.name': 'Ann' }).hint({ 'customer.name': 1 }).count(), 0);
});

check('paused, verified, resumed, dropped', () => {
  db.customers.insertOne({ _id: 1, name: 'Ann' });
  db.orders.insertOne({ _id: 1, customerId: 1 });
  declare('orders', 'customerCard', card);
  db.runCommand({ pausePattern: 'orders', name: 'customerCard' });
  db.customers.updateOne({ _id: 1 }, { $set: { name: 'Bea' } });
  const found = db.runCommand({ verifyPattern: 'orders', name: 'customerCard' });
  equal(found.examples, [{ _id: 1, path: 'customer', stored: { name: 'Ann' }, expected: { name: 'Bea' } }]);
  fails(NOT_READY, () => db.runCommand({ repairPattern: 'orders', name: 'customerCard' }));
  db.runCommand({ resumePattern: 'orders', name: 'customerCard' });
  equal(db.runCommand({ waitPattern: 'orders', name: 'customerCard', timeoutMS: 60000 }).state, 'active');
  allTrue('orders', 'customerCard');
  db.runCommand({ dropPattern: 'orders', name: 'customerCard' });
  db.orders.updateOne({ _id: 1 }, { $set: { 'customer.name': 'mine' } });
  equal(db.orders.findOne().customer, { name: 'mine' });
});

check('attributes as names and values, by the recipe and by their fields', () => {
  db.products.insertMany([
    { _id: 'product1', name: 'Gaming Chair', specs: { color: 'black', weight_kg: 15, max_load_kg: 120, material: 'leather' } },
    { _id: 'product2', name: 'Lamp', specs: { color: 'black', watts: 40 } },
  ]);
  declare('products', 'specs', { attribute: { paths: ['specs.*'], as: 'kv', store: 'kv' } });
  equal(db.products.findOne({ 'specs.watts': { $gt: 30 } }).kv, [{ k: 'color', v: 'black' }, { k: 'watts', v: 40 }]);
  equal(db.products.find({ kv: { $elemMatch: { k: 'color', v: 'black' } } }).count(), 2);
  equal(db.products.countDocuments({ 'specs.color': 'black', 'specs.max_load_kg': { $gte: 100 } }), 1);
  assert.match(fails(READ_ONLY, () => db.products.updateOne({ _id: 'product2' }, { $set: { 'specs.color': 'red' } })).message, /stored in 'kv'/);
  db.products.updateOne({ _id: 'product2', 'kv.k': 'color' }, { $set: { 'kv.$.v': 'red' } });
  equal(db.products.findOne({ 'specs.color': 'red' })._id, 'product2');
  allTrue('products', 'specs');
  db.runCommand({ dropPattern: 'products', name: 'specs', keepFields: false });
  equal(db.products.findOne({ 'specs.color': 'red' }).specs, { color: 'red', watts: 40 });
});

check('a collection tells of its patterns', () => {
  declare('orders', 'customerCard', card);
  const [info] = db.getCollectionInfos({ name: 'orders' });
  equal(info.info.patterns, [{ name: 'customerCard', kind: 'extendedReference', state: 'active', fields: ['customer'] }]);
});

check('a tree is built, moved, broken and verified', () => {
  declare('categories', 'tree', {
    tree: { parent: 'parent', ancestors: 'ancestors', path: 'path', nestedSets: ['lft', 'rgt'], order: 'order' },
  });
  db.categories.insertMany([
    { _id: 'mongodb', parent: 'databases', name: 'MongoDB' },
    { _id: 'databases', parent: 'tech', name: 'Databases' },
    { _id: 'tech', parent: null, name: 'Technology' },
  ]);
  // As people write them for trees that they keep by hand.
  equal(db.categories.find({ parent: 'databases' }).toArray().map((node) => node._id), ['mongodb']);
  equal(db.categories.find({ ancestors: 'tech' }).toArray().map((node) => node._id).sort(), ['databases', 'mongodb']);
  equal(db.categories.find({ path: /,databases,/ }).toArray().map((node) => node._id).sort(), ['databases', 'mongodb']);
  equal(db.categories.find({ path: /^,tech,/ }).count(), 3);
  const { lft, rgt } = db.categories.findOne({ _id: 'mongodb' });
  equal(db.categories.find({ lft: { $lt: lft }, rgt: { $gt: rgt } }).sort({ lft: 1 }).toArray().map((node) => node._id), ['tech', 'databases']);
  fails(90000020, () => db.categories.updateOne({ _id: 'tech' }, { $set: { parent: 'mongodb' } }));
  fails(90000022, () => db.categories.deleteOne({ _id: 'tech' }));
  fails(READ_ONLY, () => db.categories.updateOne({ _id: 'tech' }, { $set: { lft: 1 } }));
  db.runCommand({ moveNode: 'categories', _id: 'mongodb', to: 'tech', position: { before: 'databases' } });
  equal(db.categories.aggregate([{ $tree: { of: 'tech', what: 'descendants' } }]).toArray().map((node) => node._id), ['mongodb', 'databases']);
  allTrue('categories', 'tree');
});

check('variants keep their rules', () => {
  declare('items', 'variants', { polymorphic: {
    discriminator: 'type', base: { required: ['title'] },
    variants: {
      book: { required: ['isbn'], indexes: [{ key: { isbn: 1 }, unique: true }] },
      ebook: { extends: 'book' },
      dvd: { required: ['minutes'] },
    },
  } });
  db.items.insertOne({ _id: 1, type: 'book', title: 't', isbn: 'a' });
  const error = fails(VARIANT, () => db.items.insertOne({ _id: 2, type: 'ebook', title: 't' }));
  assert.match(error.message, /'isbn' breaks the rule 'required' of 'book', which it extends/);
  fails(VARIANT, () => db.items.updateOne({ _id: 1 }, { $unset: { type: 1 } }));
  fails(VARIANT, () => db.items.updateOne({ _id: 1 }, { $set: { type: 'dvd' } }));
  db.items.updateOne({ _id: 1 }, { $set: { type: 'dvd', minutes: 90 } });
  db.items.insertOne({ _id: 2, type: 'ebook', title: 't', isbn: 'a' });
  fails(11000, () => db.items.updateOne({ _id: 1 }, { $set: { type: 'book' } }));
  allTrue('items', 'variants');
});

check('a celebrity has pages, and is found by every follower', () => {
  db.users.insertMany([{ _id: 'celebrity', followers: [...Array(60).keys()].map((n) => `f${n}`) }, { _id: 'bob', followers: ['f1'] }]);
  declare('users', 'fans', { outlier: { field: 'followers', limit: 10, pageSize: 20, count: 'followerCount' } });
  const seen = db.users.findOne({ followers: 'f59' });
  equal([seen._id, seen.followers.length, seen.hasOverflow, seen.followerCount], ['celebrity', 10, true, 60]);
  equal(db.users.findOne({ _id: 'celebrity' }, { followers: { $slice: [57, 5] } }).followers, ['f57', 'f58', 'f59']);
  equal(db.users.updateOne({ _id: 'celebrity' }, { $addToSet: { followers: 'f40' } }).modifiedCount, 0);
  equal(db.users.overflow.countDocuments(), 3);
  const told = db.users.explain().update({ _id: 'celebrity' }, { $push: { followers: 'f60' } }).maintenance;
  equal(told.map((one) => [one.ns, one.estimated]), [[`${db.getName()}.users.overflow`, 1]]);
  fails(READ_ONLY, () => db.users.updateOne({ _id: 'bob' }, { $set: { followerCount: 5 } }));
  allTrue('users', 'fans');
});

check('readings in buckets are single documents', () => {
  declare('readings', 'b', { bucket: { timeField: 'ts', metaField: 's', granularity: 'minutes', stats: { temp: ['min', 'avg'] } } });
  const at = (n) => new Date(Date.UTC(2024, 2, 1, 10, n));
  db.readings.insertMany([...Array(30).keys()].map((n) => ({ _id: n, s: 'S1', ts: at(n), temp: n })));
  db.readings.updateOne({ _id: 0 }, { $set: { temp: 31 } });
  db.readings.deleteOne({ ts: at(1) });
  const [bucket] = db.readings.buckets.find({ meta: 'S1' }).toArray();
  equal([bucket.count, bucket.stats], [29, { temp: { min: 2, avg: 465 / 29 } }]);
  equal(db.getCollectionNames(), ['readings', 'kilim.patterns'].sort());
  allTrue('readings', 'b');
});

check('documents have two versions', () => {
  db.users.insertOne({ _id: 'u1', schemaVersion: 1, name: 'Alice Johnson', phone: '555-1234' });
  declare('users', 'phones', { schemaVersion: {
    field: 'schemaVersion', from: 1, to: 2,
    up: [{ $set: { phone: { countryCode: '+1', number: '$phone' } } }], down: [{ $set: { phone: '$phone.number' } }],
  } });
  db.users.insertOne({ _id: 'u2', schemaVersion: 2, name: 'Bob Smith', phone: { countryCode: '+1', number: '555-5678' } });
  const old = db.getCollection('users@1');
  equal(old.find().sort({ _id: 1 }).toArray().map((user) => user.phone), ['555-1234', '555-5678']);
  old.updateOne({ _id: 'u2' }, { $set: { phone: '555-0000' } });
  equal(db.users.find({ 'phone.number': { $in: ['555-1234', '555-0000'] } }).count(), 2);
  db.runCommand({ completeVersion: 'users', name: 'phones' });
  equal(old.countDocuments(), 0);
});

if (failed) quit(1);
