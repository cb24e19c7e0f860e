# Runs for ever in subs whose names, packages and files are made to do harm.
use strict;
use warnings;
use Sub::Util 'set_subname';
sub spin { for my $i (1 .. 10000) { } }
my $g = sub { spin() while 1 };
for my $name ("\e[31m;two\nlines 17\r\0\a\x7f", "\x{202e}\x{9b}1m", "\xff\xfe\x9b", "\x{d800};", "<script>x</script>]]>&\"'`\$(x)", 'x' x (1 << 20), 'a.pl:1;b b.pl:2 3') {
    no warnings;
    my $inner = $g;
    my $file = $name =~ s/["\n\r]//gr;
    my $f = eval "#line 1 \"$file\"\nsub { \$inner->() }" or die $@;
    $g = set_subname("$name\::$name", $f);
}
$| = 1;
print "ready\n";
$g->();
