-- Runs for ever in chunks whose names are made to do harm.
local function spin() for _ = 1, 10000 do end end
local g = function() while true do spin() end end
for _, name in ipairs {"\27[31m;two\nlines 17\r\0\7\127", "\xff\xfe\xe2\x80\xae\xc2\x9b1m\x9b", "<script>x</script>]]>&\"'`$(x)", ("x"):rep(1 << 20), "", "a.lua:1;b b.lua:2 3"} do
  for _, kind in ipairs {"@", "=", ""} do
    g = load("local g = ... return function() g() return 1 end", kind .. name)(g)
  end
end
io.write("ready\n")
io.flush()
g()
