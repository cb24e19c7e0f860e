# Writes its own stack, as JSON, on standard output, and blocks in a read of standard input; for each line that it reads, it goes on to the next
# stack. The first argument says where: main, thread or fiber. With "random" it computes for ever instead, and prints {} before.
require 'json'
require 'set'
require 'monitor'
require 'stringio'

WHERE = ARGV[0]
BUSY = WHERE == 'random'

# definitions are the lines at which methods of files of this folder begin, with their names.
def definitions
  list = Hash.new { |h, k| h[k] = [] }
  note = lambda do |m, name, between|
    file, line = m.source_location
    next if m.name != m.original_name # another name for it
    next unless file&.match?(%r{/scripts/|^<internal:})
    named = name && !name.start_with?('#<')
    list[[file, m.original_name.to_s]] << [line, named ? "#{name}#{between}#{m.original_name}" : m.original_name.to_s]
  end
  ObjectSpace.each_object(Module) do |o|
    (o.instance_methods(false) + o.private_instance_methods(false)).each { |m| note.(o.instance_method(m), Module.instance_method(:name).bind_call(o), '#') } unless o.singleton_class?
    o.singleton_methods(false).each { |m| note.(o.singleton_class.instance_method(m), Module.instance_method(:name).bind_call(o), '.') }
  end
  list
end

$native = []

# with says whose native methods the stacks of a block have, beside those of report.
def with(*list)
  $native.concat(list)
  yield
ensure
  $native.pop(list.size)
end

# Since 3.4 Ruby's traces leave out that a clause (rescue, ensure) is a frame of its own: they have its line, and the label of what it is in. Of these
# the debuggers' interface tells the labels, that of profilers the lines.
if RUBY_VERSION >= '3.4'
  require 'fiddle'
  C = Hash.new do |h, name|
    h[name] = Fiddle::Function.new(Fiddle::Handle::DEFAULT[name], { 'rb_profile_frames' => [Fiddle::TYPE_INT, Fiddle::TYPE_INT, Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP],
      'rb_debug_inspector_open' => [Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP] }[name] || [Fiddle::TYPE_VOIDP, Fiddle::TYPE_LONG], Fiddle::TYPE_UINTPTR_T)
  end

  # raw_lines are the lines of the frames outside of its caller but native ones.
  def raw_lines
    code, lines = Fiddle::Pointer.malloc(8 * 2000, Fiddle::RUBY_FREE), Fiddle::Pointer.malloc(4 * 2000, Fiddle::RUBY_FREE)
    n = C['rb_profile_frames'].call(0, 2000, code, lines)
    lines[0, 4 * n].unpack('l*').reject(&:zero?).drop(2)
  end

  # raw_labels are their labels, nil of native methods, but of the outermost.
  def raw_labels(most)
    list = []
    each = Fiddle::Closure::BlockCaller.new(Fiddle::TYPE_UINTPTR_T, [Fiddle::TYPE_VOIDP, Fiddle::TYPE_VOIDP]) do |context, _|
      list = (0...most).map { |i| Fiddle.dlunwrap(C['rb_debug_inspector_frame_iseq_get'].call(context, i))&.label }
      Fiddle.dlwrap(nil)
    end
    C['rb_debug_inspector_open'].call(each, nil)
    list.drop(3)
  end
end

# places are the locations with what comes before their labels, and their lines.
def places(locations)
  return locations.map { |l| [l, '', l.lineno] } if !$! || RUBY_VERSION < '3.4' # there is no clause
  lines, labels, list = raw_lines.drop(1), raw_labels(locations.size + 4).drop(1), []
  locations.each do |l|
    loop do
      label = labels.empty? ? '' : labels.shift
      clauses = label.to_s[/\A((rescue|ensure) in )*/]
      list << [l, clauses, label ? lines.shift : l.lineno]
      break if clauses.empty?
    end
  end
  raise "#{lines} are left of #{locations}" unless lines.empty?
  list
end

def tell(locations)
  known = $known ||= definitions
  # A native method has the place of its caller. Those that were announced are met in the same order.
  native = $native.reverse
  list = [['', 'IO#gets', '', 0]]
  places(locations).each do |l, clauses, line|
    label, base = l.label, l.base_label
    inside = l.path.start_with?('<internal:') # written in Ruby, and part of it
    if [base, native.first].include?(label) && native.first&.end_with?("##{base}", ".#{base}")
      list << ['', native.shift, *(inside ? [l.path, line] : ['', 0])]
    else
      of = known[[l.path, base]].select { |first, _| first <= line }.max || known[[__FILE__, base]].first # that of eval
      label = label.delete_suffix(base) + of[1] if of && RUBY_VERSION < '3.4' # since then it has the class
      list << ['', clauses + label, l.path, line]
    end
  end
  raise "#{native} were announced, and are not in #{locations}" unless native.empty?
  JSON.dump({ tid: File.basename(File.readlink('/proc/thread-self')).to_i, stack: list }) + "\n"
end

def compute
  n = 0
  i = 0
  while i < 3000
    n = (n ^ i) + 1
    i += 1
  end
  n
end

def report(*)
  return compute if BUSY
  STDOUT.syswrite(tell(caller_locations(0))); STDIN.gets
  0
end

module Shop
  class Item
    include Comparable
    attr_reader :price
    def initialize(price)
      @price = price
      report
    end

    def <=>(other)
      report
      price <=> other.price
    end

    def to_s
      report
      'item'
    end

    def to_str = to_s

    def hash
      report
      1
    end

    def eql?(_) = report == 0

    def coerce(n)
      report
      [1, n]
    end

    def ==(_)
      report
      false
    end

    def self.make(price)
      report
      new(price)
    end

    class << self
      def sell = report

      def each_sold
        yield 1
      end
    end

    def method_missing(name, *args)
      return super unless name == :vanish
      report
    end

    def respond_to_missing?(name, all = false) = name == :vanish

    define_method(:defined) { |x| [x].tap { report } }

    alias old_price price
    def price = (report; @price)

    protected def guarded = report
    private def hidden = report
    def open = hidden + guarded
  end

  class Sale < Item
    def initialize(price)
      super
      report
    end

    def to_s = "sale of #{super}"
  end

  module Loud
    def to_s
      report
      super.upcase
    end
  end

  class LoudSale < Sale
    prepend Loud
  end

  class Base
    def self.inherited(child)
      super
      report
    end

    def self.method_added(name) = report

    def self.const_missing(name) = report
  end

  module Mixed
    def self.included(into) = report
    def mixed = report
  end

  module Helper
    module_function def help(&b) = [1].then(&b)
  end

  refine_to = Module.new do
    refine String do
      def shout
        report
        upcase
      end
    end
  end
  using refine_to
  define_singleton_method(:refined) { 'a'.shout }
end

class List
  include Enumerable
  def initialize(*all) = @all = all

  def each
    i = 0
    while i < @all.size
      yield @all[i]
      i += 1
    end
  end
end

Point = Struct.new(:x, :y) do
  def length
    report
    x
  end

  def deconstruct
    report
    [x, y]
  end
end

def deep(n)
  return report if n == 0
  deep(n - 1)
end

def rescued
  raise ArgumentError, 'x'
rescue ArgumentError
  report
  begin
    raise 'y'
  rescue => e
    [e].each { report } if BUSY
    report
  end
ensure
  report
end

def caught
  yield
ensure
  [1].then { report }
end

def retried
  tries = 0
  begin
    tries += 1
    raise 'again' if tries < 3
    report
  rescue
    report
    retry
  end
end

def keywords(a:, b: report, **rest) = report(a, b, rest)

def optional(a = report, *b, c) = report(a, b, c)

def für_alle(ä)
  report
  yield ä
end

def nested
  [1].then { |a| [a].then { |b| [b].then { report } } }
end

def lines_of
  n = report
  n += report +
    report
  [
    1,
    report,
  ]
end

def long_one(n)
  n += 0; n -= 0; n ^= 0
  n += 1; n -= 1; n ^= 1
  report
  n += 2; n -= 2; n ^= 2
  n += 3; n -= 3; n ^= 3
  n += 4; n -= 4; n ^= 4
  n += 5; n -= 5; n ^= 5
  n += 6; n -= 6; n ^= 6
  n += 7; n -= 7; n ^= 7
  n += 8; n -= 8; n ^= 8
  n += 9; n -= 9; n ^= 9
  report
  n += 10; n -= 10; n ^= 10
  n += 11; n -= 11; n ^= 11
  n += 12; n -= 12; n ^= 12
  n += 13; n -= 13; n ^= 13
  n += 14; n -= 14; n ^= 14
  n += 15; n -= 15; n ^= 15
  n += 16; n -= 16; n ^= 16
  n += 17; n -= 17; n ^= 17
  n += 18; n -= 18; n ^= 18
  n += 19; n -= 19; n ^= 19
  n += 20; n -= 20; n ^= 20
  n += 21; n -= 21; n ^= 21
  n += 22; n -= 22; n ^= 22
  n += 23; n -= 23; n ^= 23
  n += 24; n -= 24; n ^= 24
  n += 25; n -= 25; n ^= 25
  n += 26; n -= 26; n ^= 26
  n += 27; n -= 27; n ^= 27
  n += 28; n -= 28; n ^= 28
  n += 29; n -= 29; n ^= 29
  n += 30; n -= 30; n ^= 30
  n += 31; n -= 31; n ^= 31
  n += 32; n -= 32; n ^= 32
  n += 33; n -= 33; n ^= 33
  n += 34; n -= 34; n ^= 34
  n += 35; n -= 35; n ^= 35
  n += 36; n -= 36; n ^= 36
  n += 37; n -= 37; n ^= 37
  n += 38; n -= 38; n ^= 38
  n += 39; n -= 39; n ^= 39
  n += 40; n -= 40; n ^= 40
  report
  n += 41; n -= 41; n ^= 41
  n += 42; n -= 42; n ^= 42
  n += 43; n -= 43; n ^= 43
  n += 44; n -= 44; n ^= 44
  n += 45; n -= 45; n ^= 45
  n += 46; n -= 46; n ^= 46
  n += 47; n -= 47; n ^= 47
  n += 48; n -= 48; n ^= 48
  n += 49; n -= 49; n ^= 49
  n += 50; n -= 50; n ^= 50
  n += 51; n -= 51; n ^= 51
  n += 52; n -= 52; n ^= 52
  n += 53; n -= 53; n ^= 53
  n += 54; n -= 54; n ^= 54
  n += 55; n -= 55; n ^= 55
  n += 56; n -= 56; n ^= 56
  n += 57; n -= 57; n ^= 57
  n += 58; n -= 58; n ^= 58
  n += 59; n -= 59; n ^= 59
  n += 60; n -= 60; n ^= 60
  n += 61; n -= 61; n ^= 61
  n += 62; n -= 62; n ^= 62
  n += 63; n -= 63; n ^= 63
  n += 64; n -= 64; n ^= 64
  n += 65; n -= 65; n ^= 65
  n += 66; n -= 66; n ^= 66
  n += 67; n -= 67; n ^= 67
  n += 68; n -= 68; n ^= 68
  n += 69; n -= 69; n ^= 69
  n += 70; n -= 70; n ^= 70
  n += 71; n -= 71; n ^= 71
  n += 72; n -= 72; n ^= 72
  n += 73; n -= 73; n ^= 73
  n += 74; n -= 74; n ^= 74
  n += 75; n -= 75; n ^= 75
  n += 76; n -= 76; n ^= 76
  n += 77; n -= 77; n ^= 77
  n += 78; n -= 78; n ^= 78
  n += 79; n -= 79; n ^= 79
  n += 80; n -= 80; n ^= 80
  report
  n += 81; n -= 81; n ^= 81
  n += 82; n -= 82; n ^= 82
  n += 83; n -= 83; n ^= 83
  n += 84; n -= 84; n ^= 84
  n += 85; n -= 85; n ^= 85
  n += 86; n -= 86; n ^= 86
  n += 87; n -= 87; n ^= 87
  n += 88; n -= 88; n ^= 88
  n += 89; n -= 89; n ^= 89
  n += 90; n -= 90; n ^= 90
  n += 91; n -= 91; n ^= 91
  n += 92; n -= 92; n ^= 92
  n += 93; n -= 93; n ^= 93
  n += 94; n -= 94; n ^= 94
  n += 95; n -= 95; n ^= 95
  n += 96; n -= 96; n ^= 96
  n += 97; n -= 97; n ^= 97
  n += 98; n -= 98; n ^= 98
  n += 99; n -= 99; n ^= 99
  n += 100; n -= 100; n ^= 100
  n += 101; n -= 101; n ^= 101
  n += 102; n -= 102; n ^= 102
  n += 103; n -= 103; n ^= 103
  n += 104; n -= 104; n ^= 104
  n += 105; n -= 105; n ^= 105
  n += 106; n -= 106; n ^= 106
  n += 107; n -= 107; n ^= 107
  n += 108; n -= 108; n ^= 108
  n += 109; n -= 109; n ^= 109
  n += 110; n -= 110; n ^= 110
  report
  n += 111; n -= 111; n ^= 111
  n += 112; n -= 112; n ^= 112
  n += 113; n -= 113; n ^= 113
  n += 114; n -= 114; n ^= 114
  n += 115; n -= 115; n ^= 115
  n += 116; n -= 116; n ^= 116
  n += 117; n -= 117; n ^= 117
  n += 118; n -= 118; n ^= 118
  n += 119; n -= 119; n ^= 119
  report
end

def deep_block(n, &b)
  n == 0 ? yield : deep_block(n - 1) { b.call }
end

def all
  report
  Shop::Item.sell
  with('Array#each') { [1].each { report } }
  with('Array#map') { [1].map { |x| x + report } }
  with('Array#each', 'Array#each') { [[1]].each { |l| l.each { report } } }
  with('Integer#times') { 1.times { report } }
  with('Integer#upto') { 1.upto(2) { report } }
  with('Kernel#tap') { 1.tap { report } }
  with('Kernel#then') { 1.then { report } }
  with('Class#new') { Shop::Item.new(1) }
  with('Class#new') { $item = Shop::Item.new(1); $other = Shop::Item.new(2); $list = [$item, $other] }
  with('Array#sort') { [$item, $other].sort }
  with('Comparable#>') { $item > $other }
  with('Comparable#clamp') { $item.clamp($other, $other) }
  with('Array#max') { $list.max }
  report && Shop::Item.each_sold { report }
  "#{$item}"
  $item.vanish
  with('Kernel#public_send') { $item.public_send(:to_s) }
  $item.__send__(:hidden)
  with('Method#call') { $item.method(:to_s).call }
  with('UnboundMethod#bind_call') { Shop::Item.instance_method(:to_s).bind_call($item) }
  $item.send(:hidden)
  $item.open
  $item.price
  $item.to_str
  with('Array#uniq') { [$item, $other].uniq }
  with('Array#include?') { $list.include?(1) }
  with('Class#new') { $sale = Shop::Sale.new(1) }
  $sale.to_s
  with('Class#new') { $loud = Shop::LoudSale.new(1) }
  $loud.to_s
  with('Enumerable#inject') { List.new(1, 2).inject { |a, b| a + report } }
  with('Enumerable#each_with_index') { List.new(1).each_with_index { report } }
  with('Enumerable#sort_by') { List.new(1, 2).sort_by { report } }
  with('Enumerable#each_slice') { List.new(1, 2).each_slice(2) { report } }
  with('Enumerable#group_by') { List.new(1).group_by { report } }
  List.new(1).each { report }
  with('Hash#each') { { a: 1 }.each { report } }
  with('Hash#transform_values') { { a: 1 }.transform_values { report } }
  with('Hash#fetch') { {}.fetch(1) { report } }
  with('String#gsub') { 'abc'.gsub(/b/) { report.to_s } }
  with('String#each_char') { 'a'.each_char { report } }
  with('String#scan') { 'a'.scan(/a/) { report } }
  with('Kernel#catch') { catch(:done) { report; throw :done } }
  with('Range#each') { (1..1).each { report } }
  with('Array#zip') { [1].zip([2]) { report } }
  with('Thread::Mutex#synchronize') { Mutex.new.synchronize { report } }
  with('Monitor#synchronize') { Monitor.new.synchronize { report } }
  with('StringIO#each_line') { StringIO.new("a\n").each_line { report } }
  with('BasicObject#instance_eval') { $item.instance_eval { report } }
  with('BasicObject#instance_exec') { $item.instance_exec(1) { |x| report(x) } }
  with('Module#class_eval') { Shop::Item.class_eval { report } }
  with('Kernel#eval') { eval('report') }
  with('Kernel#eval') { eval("report\n\nreport", binding, 'made_up.erb', 7) }
  with('BasicObject#instance_eval') { $item.instance_eval("report + 1", 'in"side;.rb', 3) }
  with('Kernel#load') { load "#{__dir__}/included.rb" }
  $known = nil
  from_included
  with('Kernel#loop') { loop { report; break } }
  pr = proc { report }
  pr.call
  pr.()
  lambda { |x| report(x) }.call(1)
  ->(x) { report }[1]
  with('Array#map') { [1].map(&pr) }
  deep(3)
  deep(300)
  rescued
  caught { report }
  (caught { raise 'x' } rescue report)
  retried
  keywords(a: 1)
  optional(1)
  für_alle(1) { report }
  nested
  lines_of
  long_one(1)
  deep_block(5) { report }
  with('Struct#each') { Point.new(1).each { report } }
  Point.new(1, 2).length
  (Point.new(1, 2) in [x, y])
  Shop.refined
  Shop::Helper.help { report }
  $item.defined(1)
  with('Module#include') { Class.new.include(Shop::Mixed) }
  with('Array#each') { [1].each { |x| caught { report } } }
  anonymous = Class.new { def quiet = report }
  anonymous.new.quiet
  o = Object.new
  def o.single = report
  o.single
  class << o
    report
    attr_accessor :x
  end
  Shop::Base.absent rescue report
  Shop::Base::Absent
  e = with('Enumerator#each') { [1, 2].each_with_index.each { break 1 } }
  f = Fiber.new { report; Fiber.yield 1; report; with('Array#each') { [1].each { report } } }
  hide { f.resume; f.resume }
end

# hide has a block that runs a fiber, whose stack is its own.
def hide
  before, $native = $native, []
  yield
ensure
  $native = before
end

class Report
  report
  def self.body = report
  $known = nil
  body
  module Inside
    report
  end
end

def run
  $known = nil
  case WHERE
  when 'fiber' then Fiber.new { all }.resume
  when 'thread' then Thread.new { all }.join
  when 'random'
    all
    puts '{}' # what it needs is loaded
    $stdout.flush
    Thread.new { all while true }
    all while true
  else all
  end
end

run
