# encoding: utf-8
# Runs for ever in methods and classes whose names and files are made to do harm.
NAMES = ["\e[31m;two\nlines 17\r\0\a\x7f", "\u202e\u009b1m", "\xff\xfe".b, "<script>x</script>]]>&\"'`$(x)", "x" * (1 << 20), "a.rb:1;b b.rb:2 3"]
def spin = 10000.times { }
call = -> { loop { spin } }
NAMES.each do |name|
  inner, o = call, Object.new
  file = name.dup.force_encoding("UTF-8").scrub.delete("\0")
  eval("o.define_singleton_method(name) { inner.call }", binding, file, 1)
  Object.const_set("C#{name.hash.abs}", Class.new).define_method(name) { o.send(name) }
  k = Object.const_get("C#{name.hash.abs}").new
  call = -> { k.send(name) }
end
puts "ready"
$stdout.flush
call.call
