<?php
// Writes its own stack, as JSON, on standard output, and blocks in a read of standard input; for each line that it reads, it goes on to the
// next stack. With "random" it computes for ever instead.
namespace {

$busy = ($argv[1] ?? '') === 'random';

// tell has the frames of a backtrace, innermost first, that of the function that called it at $line included.
function tell(int $line): string
{
    $at = [__FILE__, $line];
    $stack = [['', 'fgets', '', 0]];
    foreach (array_slice(debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS), 1) as $f) {
        $name = isset($f['class']) ? strtok($f['class'], "\0") . '::' . $f['function'] : $f['function'];
        $name = ['include' => '{main}', 'require_once' => '{main}', 'eval' => '{eval}'][$name] ?? $name;
        $stack[] = ['', $name, ...$at];
        $at = [$f['file'] ?? '', $f['line'] ?? 0];
    }
    $stack[] = ['', '{main}', ...$at];
    return json_encode(['tid' => getmypid(), 'stack' => $stack], JSON_UNESCAPED_SLASHES) . "\n";
}

function report(...$args)
{
    if ($GLOBALS['busy']) {
        $n = 0;
        for ($i = 0; $i < 3000; $i++) {
            $n = ($n ^ $i) + 1;
        }
        return 0;
    }
    fwrite(STDOUT, tell(__LINE__)); fgets(STDIN);
    return 0;
}

function compare($a, $b)
{
    report();
    return $a <=> $b;
}

function deep($n)
{
    return $n ? deep($n - 1) : report();
}

function &by_ref(array &$list)
{
    report();
    return $list;
}

function gen($n)
{
    for ($i = 0; $i < $n; $i++) {
        report();
        yield $i => $i;
    }
    return report();
}

function outer_gen()
{
    yield 1;
    $x = yield from gen(1);
    yield from new ArrayIterator([2]);
    yield from middle_gen();
}

function middle_gen()
{
    yield from gen(1);
}

function endless()
{
    report();
    try {
        while (true) {
            $x = yield;
            report($x);
        }
    } finally {
        report();
    }
}

function umlaut_äöü_日本()
{
    report();
}

function defaults($x = new Made(1))
{
    return $x;
}

trait Shared
{
    public function shared()
    {
        return report();
    }

    public static function counted()
    {
        static $n = 0;
        return report($n++);
    }
}

abstract class Base
{
    public function __construct(protected $x = 0)
    {
        report();
    }

    abstract public function run();

    public function parents()
    {
        return $this->run();
    }
}

class Made extends Base implements ArrayAccess, IteratorAggregate, Countable, JsonSerializable
{
    use Shared {
        shared as renamed;
    }

    public function run() { return report(); }
    public function parents() { return parent::parents(); }
    public static function fixed() { return report(); }
    public static function late() { return static::fixed(); }
    public function __get($name) { report(); return $name; }
    public function __set($name, $v) { report(); }
    public function __isset($name) { report(); return true; }
    public function __unset($name) { report(); }
    public function __call($name, $args) { return report(); }
    public static function __callStatic($name, $args) { return report(); }
    public function __toString() { report(); return 'made'; }
    public function __invoke($x) { report(); return $x; }
    public function __clone() { report(); }
    public function __destruct() { report(); }
    public function offsetExists($o): bool { report(); return true; }
    public function offsetGet($o): mixed { report(); return $o; }
    public function offsetSet($o, $v): void { report(); }
    public function offsetUnset($o): void { report(); }
    public function getIterator(): Iterator { report(); return new ArrayIterator([1]); }
    public function count(): int { report(); return 1; }
    public function jsonSerialize(): mixed { report(); return 1; }
    public function __serialize(): array { report(); return []; }
    public function __unserialize(array $a): void { report(); }
    public function closure() { return function () { return report($this); }; }
    public static function closed() { return static fn () => report(); }
}

enum Suit: string
{
    case Hearts = 'h';

    public function label() { return report(); }
}

function throws()
{
    $m = new Made();
    throw new RuntimeException('gone');
}

function fibers($depth)
{
    $f = new Fiber(function () use ($depth) {
        report();
        if ($depth) {
            fibers($depth - 1);
        }
        Fiber::suspend(1);
        deep(3);
        Fiber::suspend(2);
        usort($GLOBALS['two'], 'compare');
    });
    $f->start();
    $f->resume();
    array_map([$f, 'resume'], [1]);
}

$two = [2, 1];

function classes()
{
    $m = new Made(1);
    $m->run();
    $m->parents();
    $m->renamed();
    $m->nothing;
    $m->nothing = 1;
    isset($m->nothing);
    unset($m->nothing);
    $m->absent();
    Made::absent();
    Made::late();
    Made::counted();
    "$m";
    $m(1);
    $c = clone $m;
    isset($m[1]);
    $m[1];
    $m[1] = 1;
    unset($m[1]);
    foreach ($m as $x) {
        report();
    }
    count($m);
    json_encode($m);
    unserialize(serialize($m));
    $c = null;
    $m->closure()();
    (Made::closed())();
    Closure::bind(function () { return report(); }, $m, Made::class)();
    (new class extends Base {
        public function run() { return report(); }
    })->run();
    Suit::Hearts->label();
    defaults();
    try {
        throws();
    } catch (RuntimeException $e) {
        report();
    }
}

function callbacks()
{
    global $two;
    usort($two, 'compare');
    array_map('compare', [1], [2]);
    array_map(fn ($x) => report($x), [1]);
    array_filter([1], function ($x) { return report(); });
    array_walk($two, function (&$v, $k) { report(); });
    array_reduce([1], fn ($c, $x) => report());
    preg_replace_callback('/a/', fn ($m) => (string) report(), 'a');
    call_user_func('report');
    call_user_func_array(['Made', 'fixed'], []);
    call_user_func('call_user_func', 'call_user_func', 'report');
    array_map('array_map', ['compare'], [[1]], [[2]]);
    iterator_to_array(new CallbackFilterIterator(new ArrayIterator([1]), fn () => report()));
    iterator_apply($it = new ArrayIterator([1]), fn () => report());
    ob_start(function ($text) { report(); return ''; });
    ob_end_clean();
    set_error_handler(function () { report(); return true; });
    trigger_error('told');
    $undefined[1]['x'] ?? $none;
    echo $none;
    restore_error_handler();
    (new ReflectionFunction('report'))->invoke();
    (new ReflectionMethod('Made', 'fixed'))->invoke(null);
    (new ReflectionClass('Made'))->newInstance(2);
    $report = report(...);
    $report();
    $fixed = Made::fixed(...);
    $fixed();
    Closure::fromCallable('compare')(1, 2);
    by_ref($two);
    report(...[1, 2], named: 3);
}

function generators()
{
    foreach (gen(1) as $x) {
        report();
    }
    foreach (outer_gen() as $x) {
        report();
    }
    iterator_to_array(outer_gen(), false);
    $e = endless();
    $e->current();
    $e->send(1);
    unset($e);
    (function () { yield report(); })()->current();
}

function code($i)
{
    eval("report();\n\nfunction made_$i() {\n return report();\n}\n made_$i();");
    eval('(function () { report(); })();');
    eval('namespace Other; (fn () => \report())();');
    $f = include __DIR__ . '/included.php';
    $f();
    spl_autoload_register($load = function ($name) { report(); });
    call_user_func('class_exists', 'Absent');
    new ReflectionClass(stdClass::class);
    spl_autoload_unregister($load);
}

function one($i)
{
    report();
    classes();
    callbacks();
    generators();
    fibers(2);
    code($i);
    \Space\named();
    umlaut_äöü_日本();
    deep(40);
    deep($GLOBALS['busy'] ? 100 : 2000);
}

}

namespace Space {

function named()
{
    (function () { return \report(); })();
    array_map(__NAMESPACE__ . '\inner', [1]);
}

function inner($x)
{
    return \report();
}

}

namespace {

for ($i = 0; $busy || $i < 1; $i++) {
    one($i);
}

}
