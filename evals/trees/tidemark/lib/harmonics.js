'use strict';

const CONSTITUENTS = ['M2', 'S2', 'N2', 'K1'];

function harmonics(station, now) {
  if (!station.constants) {
    throw new RangeError('station has no constants');
  }
  return CONSTITUENTS.reduce((sum, name) => sum + (station.constants[name] || 0), 0) % 1;
}

module.exports = { harmonics };
