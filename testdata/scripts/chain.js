// Calls functions f0, f1 and so on, as many as it is told, each by the one before, for ever. The last one computes.
'use strict';
const n = Number(process.argv[2]);
let text = `function f${n - 1}(x) { let s = 0; for (let i = 0; i < 200; i++) s += i * x % 7; return s; }\n`;
for (let i = n - 2; i >= 0; i--) text += `function f${i}(x) { return f${i + 1}(x) + 1; }\n`;
const first = new Function(text + 'return f0;')();
process.stdout.write('ready\n');
for (let s = 0; ; ) s += first(s & 7);
