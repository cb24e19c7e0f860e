// Writes its own stack, as JSON, on standard output, and blocks in a read of standard input; for each line that it reads, it goes on to
// the next stack. With "random" it computes for ever instead, with "worker" it does so in a worker thread.
'use strict';
const fs = require('fs');
const { Worker, isMainThread, workerData } = require('worker_threads');
const where = isMainThread ? process.argv[2] || 'main' : workerData;
const busy = where.startsWith('random');
const byte = Buffer.alloc(1);
let rounds = 0;

function stack(_, list) {
  return list.filter((f) => !f.isAsync() && f.getFileName() && f.getLineNumber()).map((f) => ['', f.getFunctionName() || '(anonymous)', f.getFileName().replace('file://', ''), f.getLineNumber()]);
}

function report(x) {
  if (busy) {
    let n = 0;
    for (let i = 0; i < 300; i++) n += i * i % 7;
    return n & 1 ? x : x;
  }
  if (rounds < 0) return x;
  const saved = Error.prepareStackTrace;
  Error.stackTraceLimit = Infinity;
  Error.prepareStackTrace = stack;
  const told = new Error().stack; Error.prepareStackTrace = saved; fs.writeSync(1, JSON.stringify({ tid: 0, stack: told }) + '\n'); fs.readSync(0, byte, 0, 1, null);
  return x;
}

const key = (x) => report(x);
const recurse = (n) => n === 0 ? report(n) : 1 + recurse(n - 1);
function add(a, b) { return plus(a, b); }
function plus(a, b) { return a + b + hidden(a); }
function hidden(a) { return a < 0 ? report(a) : 1; }
function* numbers(n) {
  for (let i = 0; i < n; i++) {
    report(i);
    yield i;
  }
}
function* outer(n) { yield* numbers(n); }
function number(s) { s.x; return +s; }
function numbers2(s) {
  return number(s) +
    number(s);
}

class Shape {
  #secret = 1;
  static count = report(0);
  constructor(x) {
    this.x = x;
    report(x);
  }
  area() { return this.#hide() + report(this.x); }
  #hide() { return report(this.#secret); }
  get size() { return report(this.x); }
  set size(v) { this.x = report(v); }
  static make(x) { return new Shape(x); }
  toString() { return String(report(this.x)); }
  valueOf() { return report(this.x); }
}
class Circle extends Shape {
  constructor(x) {
    super(x);
    report(x);
  }
  area() { return super.area() + report(2); }
}

const object = {
  method(x) { return report(x); },
  arrow: (x) => report(x),
};

function closures(n) {
  const list = [];
  for (let i = 0; i < n; i++) list.push((x) => report(x + i));
  return list;
}

function optional(f) {
  try {
    return f();
  } catch (e) {
    report(e);
  } finally {
    report(1);
  }
}

const proxy = new Proxy({}, { get(_, name) { return report(1); }, has() { return !!report(1); } });

function plain(i) {
  report(i);
  key(i);
  recurse(i % 7);
  [3, 1, 2].sort((a, b) => { report(a); return a - b; });
  [1, 2].map(key);
  [1, 2].forEach((x) => key(x));
  [1, 2].reduce((a, x) => a + report(x), 0);
  'abab'.replace(/b/g, (m) => report(m));
  JSON.parse('[1]', function reviver(k, v) { return report(v); });
  JSON.stringify({ toJSON() { return report(1); } });
  for (const x of numbers(2)) report(x);
  for (const x of outer(1)) report(x);
  const s = Shape.make(i);
  s.area();
  s.size = s.size + 1;
  `${s}`;
  +s;
  new Circle(i).area();
  object.method(i); object.arrow(i);
  for (const f of closures(2)) f(i);
  optional(() => report(i));
  optional(() => { throw new Error('x'); });
  proxy.some; 'x' in proxy;
  Reflect.apply(report, null, [i]);
  report.call(null, i);
  report.apply(null, [i]);
  report.bind(null, i)();
  new Function('report', 'return report(1);')(report);
  eval('report(2)');
  (function named() { report(i); })();
  (function () { report(i); })();
  new Map([[1, 2]]).forEach((v) => report(v));
  Array.from([1], (x) => report(x));
  add(i % 2 ? -1 : 1, i);
}

// What is compiled by now, with what it calls inlined.
function warm(f) {
  const was = rounds;
  rounds = -1;
  for (let i = 0; i < (busy ? 10 : 30000); i++) f(i & 1);
  rounds = was;
}

function loop(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += add(i, 1); // until it is replaced while it runs
  return sum + add(-1, n);
}

async function later(i) {
  report(i);
  await null;
  report(i);
  await Promise.resolve().then(() => report(i));
}

const shape = new Shape(1);
async function main() {
  do {
    plain(rounds++);
    for (const f of [key, add, recurse, (i) => object.method(i), (i) => new Circle(i).area(), (i) => [1, 2].map(key), () => numbers2(shape)]) warm(f);
    for (const f of [key, recurse, object.method, object.arrow]) f(3);
    add(-1, 2);
    numbers2(shape);
    new Circle(1).area();
    [1, 2].map(key);
    loop(busy ? 100 : 200000);
    plain(rounds++);
    await later(rounds);
    await new Promise((done) => setImmediate(() => { report(1); done(); }));
  } while (busy || rounds < 4);
}

if (isMainThread && where.includes('worker')) new Worker(__filename, { workerData: where.replace('worker', '') });
else main();
