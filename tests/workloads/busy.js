// SPDX-License-Identifier: MIT OR Apache-2.0
// busy.js SECONDS: functions that call each other, for a runtime that makes code of them.
'use strict';

function innerWork(count) {
  let sum = 0;
  for (let i = 0; i < count; i++) sum = (sum * 31 + i) % 1000003;
  return sum;
}

function middleStep(count) {
  let total = 0;
  for (let i = 0; i < 50; i++) total += innerWork(count + i);
  return total;
}

function outerLoop(seconds) {
  const end = Date.now() + seconds * 1000;
  let total = 0;
  while (Date.now() < end) total += middleStep(2000);
  return total;
}

console.log('total', outerLoop(Number(process.argv[2])));
