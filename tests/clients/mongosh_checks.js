// What the scripts for mongosh have in common: checks that print a line each and have a database to themselves. Each
// script loads it, having said in `home` how its databases are called.

const assert = require('node:assert/strict');
let failed = 0;

// EJSON makes shell values comparable: numbers, dates and identifiers by what they say.
const plain = (value) => EJSON.stringify(value, { relaxed: true });
const equal = (actual, expected) => assert.equal(plain(actual), plain(expected));

function fails(code, work) {
  try {
    work();
  } catch (error) {
    assert.equal(error.code, code, `${error}`);
    return error;
  }
  assert.fail(`no error, although ${code} was expected`);
}

function check(name, work) {
  try {
    db = db.getSiblingDB(`${home}_${name.replace(/[^a-z]+/g, '_').slice(0, 25)}`);
    work();
    print(`ok     ${name}`);
  } catch (error) {
    failed += 1;
    print(`FAILED ${name}\n${error.stack ?? error}`);
  } finally {
    db.dropDatabase();
  }
}
