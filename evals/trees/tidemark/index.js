'use strict';

const { harmonics } = require('./lib/harmonics');

const LUNAR_DAY = 24.8412;

// Hours from now until the next high water at a station.
function nextHighWater(station, now) {
  const phase = harmonics(station, now);
  return (LUNAR_DAY / 2) * (1 - phase);
}

module.exports = { nextHighWater, LUNAR_DAY };
