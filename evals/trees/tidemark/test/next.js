const test = require('node:test');
const assert = require('node:assert');
const { nextHighWater } = require('..');

test('a station without constants is refused', () => {
  assert.throws(() => nextHighWater({}, 0), RangeError);
});
