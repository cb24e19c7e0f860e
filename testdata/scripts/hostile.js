// Runs for ever in functions whose names and scripts are made to do harm.
const vm = require('vm');
function spin() { for (let i = 0; i < 10000; i++); }
let g = () => { for (;;) spin(); };
for (const name of ['\x1b[31m;two\nlines 17\r\0\x07\x7f', '\ud800;\udfff\u202e\x9b1m', '<script>x</script>]]>&"\'`$(x)', 'x'.repeat(1 << 20), '', 'a.js:1;b b.js:2 3']) {
  g = vm.runInThisContext(`(g => ({${JSON.stringify(name)}: function() { g(); }})[${JSON.stringify(name)}])`, {filename: name})(g);
}
process.stdout.write('ready\n');
g();
