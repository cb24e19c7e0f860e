<?php
// Resumes generators for ever, from callers in turn that lie elsewhere, and has them delegate to others. Each line that calls names what
// it calls.
function short($g) { $g->next(); }
function long($g, ...$pad) { longer($g, ...$pad); }
function longer($g, ...$pad) { $g->next(); }
function over($g) { foreach ($g as $x) { if ($x % 2) return; } }
function plain() { while (true) yield 2; }
function leaf() { yield from root(); }
function root() { yield 1; yield from twig(); yield 1; }
function twig() { yield 1; yield 1; }

$g = plain();
fwrite(STDOUT, "ready\n");
while (true) {
    for ($i = 0; $i < 100; $i++) {
        short($g);
        long($g, 1, 2, 3, 4, 5, 6, 7, 8);
    }
    for ($i = 0; $i < 30; $i++) {
        $d = leaf();
        over($d);
        short($d);
        long($d, 1, 2, 3, 4, 5, 6, 7, 8);
        short($d);
        short($d);
    }
}
