# Writes its own stack, as JSON, on standard output, and blocks in a read of standard input; for each line that it reads, it goes on to the next
# stack. The first argument says where: main or thread. With "random" it computes for ever instead, and with "churn" in code that it makes and drops.
use strict;
use warnings;
use utf8;
use List::Util qw(first reduce any sum0 max pairmap);
no warnings qw(recursion once redefine void);

our ($where, $busy);
BEGIN { $where = $ARGV[0] || 'main'; $busy = $where eq 'random' || $where eq 'churn' || $where eq 'same' }

sub quoted {
    my $text = shift;
    $text =~ s/(["\\])/\\$1/g;
    $text =~ s/([\x00-\x1f])/sprintf '\\u%04x', ord $1/ge;
    utf8::encode($text);
    return qq("$text");
}

# tell is the stack of what has called it, as Perl has it: each call's caller says the place in the frame further out.
sub tell_stack {
    my (@list, $name);
    my (undef, $file, $line) = caller 0;
    for (my $i = 1; ; $i++) {
        my ($package, $from, $at, $sub, undef, undef, undef, $require) = caller $i;
        last unless defined $sub;
        $name = $sub eq '(eval)' && $require ? '(require)' : $sub;
        push @list, '["",' . quoted($name) . ',' . quoted($file) . ",$line]";
        ($file, $line) = ($from, $at);
    }
    # Before 5.36 Perl tells the place of what it compiles now.
    $list[-1] = '["","(eval)","",0]' if ${^GLOBAL_PHASE} eq 'START' && $] < 5.036 && grep { /require/ } @list;
    push @list, '["","main program",' . quoted($file) . ",$line]" if ${^GLOBAL_PHASE} ne 'START' && ${^GLOBAL_PHASE} ne 'END' && $where ne 'thread';
    syswrite STDOUT, '{"TID":' . syscall(186) . ',"Stack":[' . join(',', @list) . "]}\n";
}

sub compute {
    my $n = 0;
    for (my $i = 0; $i < 300; $i++) {
        $n = ($n ^ $i) + 1;
    }
    return $n;
}

sub report {
    return compute() if $busy;
    tell_stack(); sysread STDIN, my $line, 1;
    return 0;
}

use FindBin;
use lib $FindBin::Bin;
use Included;

package Shop::Item {
    use overload '<=>' => \&compare, 'cmp' => sub { main::report(); 0 }, '""' => sub { my $s = shift; main::report(); "item" },
        '+' => 'add', 'bool' => sub { main::report(); 1 }, '&{}' => sub { main::report(); sub { main::report() } };
    sub new { my ($class, $price) = @_; my $self = bless { price => $price }, $class; main::report(); return $self }
    sub compare { my ($a, $b) = @_; main::report(); return $a->{price} - $b->{price} }
    sub add { main::report(); return 1 }
    sub price { my $self = shift; return $self->{price} + main::report() }
    sub AUTOLOAD { main::report(); }
    sub DESTROY { main::report() if ${^GLOBAL_PHASE} ne 'DESTRUCT' }
    sub can { main::report(); return }
}

package Shop::Sale {
    our @ISA = ('Shop::Item');
    sub price {
        my $self = shift;
        main::report();
        return $self->SUPER::price();
    }
    sub DESTROY { main::report() }
}

package Shop::Scalar {
    sub TIESCALAR { my $x = 1; main::report(); bless \$x }
    sub FETCH { main::report(); 1 }
    sub STORE { main::report() }
}

package Shop::Hash {
    sub TIEHASH { main::report(); bless {} }
    sub FETCH { main::report(); eval { main::report() }; main::report() }
    sub STORE { main::report() }
    sub EXISTS { eval { die 'x' }; main::report(); 1 }
    sub FIRSTKEY { main::report(); 'k' }
    sub NEXTKEY { main::report(); undef }
}

package main;

sub deep {
    my $n = shift;
    return report() if $n == 0;
    return deep($n - 1);
}

sub by_price { report(); return $a <=> $b }

sub tail { goto &report }

our $left;
sub wanted : lvalue { report(); $left }

sub für_alle { my $f = shift; report(); $f->() }

sub inner_eval { my $r = eval { report(); 1 }; report(); return $r }

sub dies { report(); die "x\n" }

sub after_eval {
    eval { 1 };
    report();
    eval { report() };
    return report();
}

sub lines_of {
    my $n = report();
    $n += report() +
        report();
    my @list = (
        1,
        report(),
    );
    if ($n) {
        1;
    }
    report() for 1 .. 2;
    while ($n < 1) { $n++; report() }
    do { report() } until $n;
    return;
}

sub with_prototype(&@) { my ($f, @list) = @_; return map { $f->($_) } @list }

# caller fails in a format.
open NOTHING, '>', '/dev/null' or die;
format NOTHING =
@<<<
formatted()
.
sub formatted { report(); 'x' }

sub all {
    report();
    my $anon = sub { report() };
    $anon->();
    (sub { report(); $anon->() })->();
    deep(3);
    deep(500) if !$busy || $where eq 'random';
    lines_of();
    tail();
    für_alle(sub { report() });
    wanted() = 1;
    { no strict 'refs'; *{"Shop::made"} = sub { report() }; Shop::made(); &{"report"}() }
    # Sorts and code in blocks.
    my @sorted = sort { report(); $a <=> $b } 2, 1;
    @sorted = sort by_price 2, 1;
    @sorted = sort { by_price() } 2, 1;
    @sorted = sort { inner_eval(); $a <=> $b } 2, 1;
    @sorted = sort { eval { report() }; after_eval(); $a <=> $b } 2, 1;
    @sorted = sort { first { report(); 1 } 1, 2 } 2, 1;
    my $sorter = sub { report(); $a <=> $b };
    @sorted = reverse sort $sorter 2, 1;
    my @mapped = map { report() } 1, 2;
    my @found = grep { report(); 1 } 1;
    with_prototype { report() } 1, 2;
    # Native code that calls back.
    first { report(); 0 } 1, 2;
    reduce { report(); $a + $b } 1, 2, 3;
    any { inner_eval(); 0 } 1, 2;
    first { (first { report(); 1 } 1) } 1;
    first { (sort { report(); $a <=> $b } 2, 1)[0] } 1;
    pairmap { report(); 1 } 1, 2, 3, 4;
    first \&report, 1, 2;
    # Code in regular expressions.
    'ab' =~ /a(?{ report() })b/;
    'ab' =~ /a(?{ inner_eval() })b(?{ deep(1); 1 })/;
    'ab' =~ /(??{ report(); 'a' })b/;
    (my $copy = 'abc') =~ s/b/report() . 'x'/e;
    $copy =~ s/(c)/'report()'/ee;
    # What stands behind values.
    my $item = Shop::Item->new(1);
    my $other = Shop::Sale->new(2);
    my @items = sort { $a <=> $b } $item, $other;
    my $string = "$item and $other";
    $string = $item + 1;
    $item->price;
    $other->price;
    $item->missing(1);
    $item->();
    my @keys = sort { "$a" cmp "$b" } $item, $other;
    undef $other;
    { my $gone = bless [], 'Shop::Sale'; }
    tie my $tied, 'Shop::Scalar';
    my $value = $tied;
    $tied = $value;
    tie my %hash, 'Shop::Hash';
    $value = $hash{x};
    $hash{x} = exists $hash{y};
    my @all = keys %hash;
    # Exceptions.
    eval { report(); dies() };
    eval { dies(); 1 } or report();
    eval { eval { dies() }; report(); die 'y' };
    after_eval();
    inner_eval();
    { local $@; eval { local $SIG{__DIE__} = sub { report() }; die 'z' } }
    { local $SIG{__WARN__} = sub { inner_eval(); report() }; warn 'w' }
    { local $SIG{USR2} = sub { report(); after_eval() }; kill USR2 => $$ if $where eq 'main' }
    # Code from text.
    eval 'report()';
    eval "report();\n\nreport();\nsub { report() }->()";
    eval "#line 7 \"in\\\"side;.pl\"\nreport(); eval { report() }";
    eval 'BEGIN { report() } report()';
    eval "sub made_here { report() } made_here()";
    eval q{ package Späť; sub größe { main::report() } größe() };
    eval { eval 'die 1'; report() };
    # What later versions have.
    no strict 'refs';
    for ([5.034, 'trying'], [5.036, 'deferring'], [5.038, 'classes'], [5.042, 'keywords']) { &{"$_->[1]"}() if $] >= $_->[0] }
    delete $INC{'Included.pm'};
    { local $SIG{__WARN__} = sub { }; require Included; do './' . 'missing.pl'; }
    Included->import;
    Included::Inner::inner();
    { local @INC = (sub { report(); return }, @INC); eval { require Absent } }
    # Loops and blocks.
    for my $x (1, 2) { if ($x) { unless (0) { report() } } }
    OUTER: for my $x (1, 2) { for my $y (1, 2) { report(); next OUTER } }
    { local $_ = 1; report() }
    write NOTHING if $busy;
    my $lexical = do { no strict; use feature 'lexical_subs'; no warnings; my sub private { report() } private(); 1 };
    my $state = sub { my $n = shift; $n ? __SUB__($n) : report() };
    my $recursive; $recursive = sub { my $n = shift; return $n ? $recursive->($n - 1) : report() };
    $recursive->(4);
    undef $recursive;
    return;
}

sub __SUB__ { report() }

eval q{
    use feature 'try'; no warnings;
    sub trying {
        try { report(); die 1 } catch ($e) { report(); try { deep(2) } catch ($f) { } }
        my $r = first { try { report(); return 1 } catch ($e) { } } 1, 2;
        for my $x (1, 2) { try { next if $x == 1; report() } catch ($e) { } }
        report();
    }
    1 } or die $@ if $] >= 5.034;
eval q{
    use feature qw(try defer); no warnings;
    sub deferring {
        { defer { report(); eval { report() }; deep(1) } report() }
        eval { defer { report(); inner_eval() } die 1 };
        try { report() } catch ($e) { } finally { report(); my @s = sort { report(); $a <=> $b } 2, 1 }
        my $r = first { { defer { report() } } 1 } 1, 2;
        eval { try { die 1 } catch ($e) { dies() } finally { report() } };
        report();
    }
    1 } or die $@ if $] >= 5.036;
eval q{
    use feature 'class'; no warnings;
    class Shop::Point { field $x = main::report(); field @list = (main::report(), 1); field $y :param = do { main::report(); 2 }; ADJUST { main::report(); $x++ } ADJUST { eval { main::report() } }
        method m { main::report(); $self->n(sub { main::report() }) } method n($f) { $f->(); main::report(); $x } }
    class Shop::Point3 :isa(Shop::Point) { field $z = main::report(); ADJUST { main::report() } method m { main::report(); $self->SUPER::m() } }
    sub classes { Shop::Point3->new->m; my $p = Shop::Point->new(y => 1); first { $p->m; 1 } 1; report() }
    1 } or die $@ if $] >= 5.038;
eval q{
    use feature qw(keyword_any keyword_all); no warnings;
    sub keywords { my $r = any { report(); 0 } 1, 2; $r = all { report(); inner_eval(); 1 } 1, 2; report() }
    1 } or die $@ if $] >= 5.042;

# made makes code and drops it.
sub made {
    my $n = shift;
    eval "package Made$n; sub made_$n { my \$f = sub { main::report() for 1 .. (\$main::busy ? 1000 : 1) }; \$f->() }\n" . ("\n" x ($n % 7)) . "made_$n(); 1" or die $@;
    my @list = map { my $x = $_; sub { report() + $x } } 1 .. 3;
    $_->() for @list;
    no strict 'refs';
    undef &{"Made${n}::made_$n"};
    undef %{"Made${n}::"};
}

sub run {
    if ($where eq 'churn') { for (my $n = 0; ; $n++) { made($n % 1000) } }
    if ($where eq 'random') { all() while 1 }
    if ($where eq 'same') { while (1) { my @sorted = sort by_price 2, 1; deep(20) } }
    made($_) for 0 .. 6;
    all();
}

END { report() unless $busy || $where eq 'thread' }

if ($where eq 'thread') { require threads; threads->create(\&run)->join }
else { run() }
