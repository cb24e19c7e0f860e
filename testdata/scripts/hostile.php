<?php
// Runs for ever in functions whose names and files are made to do harm. The argument is a folder for these.
function spin() { for ($i = 0; $i < 10000; $i++); }
$g = function () { while (true) spin(); };
foreach (["\e[31m;two\nlines 17\r\x07\x7f", "\xff\xfe\u{202e}\u{9b}1m", "<script>x&\"'`\$(x)", str_repeat('x', 200), "a.php:1;b b.php:2 3"] as $name) {
    $file = "$argv[1]/$name.php";
    file_put_contents($file, '<?php return function () use ($g) { $g(); };');
    $g = include $file;
    $odd = preg_replace('/[^\x80-\xff]/', '', $name) . 'f' . strlen($name);
    $h = $g;
    eval("function $odd(\$h) { \$h(); } \$g = fn() => $odd(\$h);");
}
eval('function ' . str_repeat('y', 1 << 20) . '($h) { $h(); } $h = $g; $g = fn() => ' . str_repeat('y', 1 << 20) . '($h);');
echo "ready\n";
$g();
