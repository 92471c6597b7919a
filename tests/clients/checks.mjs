// The frame of the Node scripts: named checks, each with a database of its own, one line per check.

import assert from 'node:assert/strict';

const checks = [];

export const equal = assert.deepStrictEqual;

export function check(name, work) {
  checks.push({ name, work });
}

/** Expects the promise to fail with that code, and gives the error. */
export async function fails(code, promise) {
  try {
    await promise;
  } catch (error) {
    assert.equal(error.code, code, `${error}`);
    return error;
  }
  assert.fail(`no error, although ${code} was expected`);
}

/** Runs the checks; `open` makes what a check works with, `close` takes it away. */
export async function run(prefix, open, close) {
  const chosen = process.argv.slice(2);
  let failed = 0;
  for (const [number, { name, work }] of checks.entries()) {
    if (chosen.length && !chosen.some((part) => name.includes(part))) continue;
    const subject = await open(`${prefix}_${process.pid}_${number}`);
    try {
      await work(subject);
      console.log(`ok     ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n${error.stack ?? error}`);
    } finally {
      await close(subject);
    }
  }
  process.exitCode = failed ? 1 : 0;
}

/** Stage names of a winning plan, outermost first. */
export function planStages(explain) {
  const stages = [];
  for (let stage = explain.queryPlanner.winningPlan; stage; stage = stage.inputStage) stages.push(stage.stage);
  return stages;
}
