-- Tells its own stack in many ways of calling, and blocks after each. "main": a line of JSON each, until one is read. "random": computes there.
local mode = ...
local above = {} -- the coroutine that has resumed each
local pid = io.open("/proc/thread-self/stat"):read("n")

local function quote(s)
  return '"' .. s:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function tell()
  local list, co, level = {}, coroutine.running(), 2
  while co do
    local info = debug.getinfo(co, level, "Sl")
    while info do
      if info.what ~= "C" then
        local file = info.source:match("^[@=](.*)") or info.short_src
        local name = info.what == "main" and "main chunk <" .. file .. ">" or ("function <%s:%d>"):format(file, info.linedefined)
        list[#list + 1] = ('["",%s,%s,%d]'):format(quote(name), quote(file), math.max(info.currentline, 0))
      end
      level = level + 1
      info = debug.getinfo(co, level, "Sl")
    end
    co, level = above[co], 0
  end
  return ('{"TID":%d,"Stack":[%s]}\n'):format(pid, table.concat(list, ","))
end

local rounds = 3000
local function report()
  if mode == "main" then
    io.stdout:write(tell()):flush() io.stdin:read("l")
    return 0
  end
  local x = 0
  for i = 1, rounds do
    x = x + i % 7
    x = x - 1
  end
  return 0
end

local resume, create, wrap = coroutine.resume, coroutine.create, coroutine.wrap
local function go(co, ...)
  above[co] = coroutine.running()
  return resume(co, ...)
end
local function wrapped(f)
  local co
  local g = wrap(function(...) co = coroutine.running() return f(...) end)
  return function(...)
    if co then above[co] = coroutine.running() end
    return g(...)
  end
end
local function born() -- in the coroutine itself
  return coroutine.running()
end

local function deep(n, f) if n == 0 then f() else deep(n - 1, f) end return 0 end
local function even(n, f) if n == 0 then return f() end return even(n - 1, f) end
local kinds = {}
local function kind(f) kinds[#kinds + 1] = f end

kind(function() report() end)
kind(function() return report() end)
kind(function() local x = report() + report() return x end)
for _, n in ipairs { 1, 2, 3, 5, 8, 20, 60 } do kind(function() deep(n, report) end) end
for _, n in ipairs { 1, 4, 100 } do kind(function() even(n, report) report() end) end
kind(function() pcall(report) end)
kind(function() pcall(pcall, report) end)
kind(function() xpcall(report, print) end)
kind(function() xpcall(error, function() report() end) end)
kind(function() pcall(function() report() error("x") end) report() end)
kind(function() deep(2, function() pcall(deep, 2, function() pcall(deep, 2, report) end) end) end)
kind(function() table.sort({ 3, 1, 2 }, function(a, b) report() return a < b end) end)
kind(function() ("abc"):gsub(".", function() report() end) end)
kind(function() ("abc"):gsub("b", function(c) deep(2, report) return c end) end)
kind(function() for _ in (function() report() end) do end end)
kind(function() for _ in pairs(setmetatable({}, { __pairs = function(t) report() return next, t end })) do end end)
kind(function() load(function() report() return nil end) end)
kind(function() require "told" end)
package.preload.told = function() report() package.loaded.told = nil end
local object = setmetatable({}, {
  __index = function(_, k) report() return k end,
  __newindex = function() report() end,
  __call = function(_, f) f() end,
  __add = function() report() return 1 end,
  __concat = function() report() return "" end,
  __len = function() report() return 1 end,
  __eq = function() report() return true end,
  __lt = function() report() return true end,
  __le = function() report() return true end,
  __unm = function() report() return 1 end,
  __idiv = function() report() return 1 end,
  __shl = function() report() return 1 end,
  __tostring = function() report() return "" end,
})
local other = setmetatable({}, getmetatable(object))
kind(function() return object.x, 1 end)
kind(function() object.x = 1 end)
kind(function() object(report) end)
kind(function() return object + 1, 1 end)
kind(function() return object .. "x", 1 end)
kind(function() return #object, 1 end)
kind(function() return object == other, 1 end)
kind(function() return object < other, 1 end)
kind(function() return object <= other, 1 end)
kind(function() return -object, 1 end)
kind(function() return object // 1, 1 end)
kind(function() return object << 1, 1 end)
kind(function() return tostring(object), 1 end)
kind(function() return pcall(function() return object.x + #object, 1 end) end)
kind(function() setmetatable({}, { __gc = function() report() end }) collectgarbage() end)
kind(function() load("local f = ... f()\n")(report) end)
kind(function() load("local f = ...\nlocal g = function() f() end\ng()", "=named")(report) end)
kind(function() load("local f = ... f()", "a chunk whose name is longer than what a name of a chunk may be, so it is cut")(report) end)
kind(function() load(string.dump(load("local f = ... f() return 1", "=kept")))(report) end)
kind(function() load(string.dump(load("local f = ... f() return 1", "=kept"), true))(report) end)
kind(function() load(("\n"):rep(500) .. "local f = ... f()" .. ("\n"):rep(300) .. "f()", "@lines")(report) end)
kind(function() load("local f, x = ... " .. ("x = x and x\n"):rep(400) .. "f()", "@many")(report) end)
kind(function(...) (function(...) report(...) end)(...) end)
kind(function() go(create(report)) end)
kind(function() go(create(function() deep(3, report) end)) end)
kind(function() deep(2, function() go(create(function() go(create(function() go(create(report)) end)) end)) end) end)
kind(function()
  local co = create(function() report() coroutine.yield() deep(2, report) coroutine.yield() report() end)
  for _ = 1, 3 do go(co) end
end)
kind(function() -- yields across pcall: what was left is resumed by other C code
  local co = create(function() pcall(function() report() coroutine.yield() deep(2, report) end) report() end)
  go(co) go(co)
end)
kind(function() -- across metamethods and iterators
  local t = setmetatable({}, { __index = function(_, k) coroutine.yield() report() return k end })
  local co = create(function() local x = t.x for _ in function() coroutine.yield() report() end do end return x end)
  go(co) go(co) go(co)
end)
kind(function() -- two of them
  local co = create(function() pcall(pcall, function() coroutine.yield() pcall(report) coroutine.yield() pcall(deep, 2, report) end) end)
  go(co) go(co) go(co)
end)
kind(function()
  local f = wrapped(function() coroutine.yield() report() coroutine.yield() deep(2, report) end)
  f() f() f()
end)
kind(function()
  local f = wrapped(function() coroutine.yield() local g = wrapped(function() coroutine.yield() pcall(report) end) g() g() end)
  f() f()
end)
kind(function() go(create(function() error("x") end)) report() end)
kind(function() local co = create(function() coroutine.yield() end) go(co) report() end)
kind(function() go(create(function() table.sort({ 3, 1, 2 }, function(a, b) report() return a < b end) end)) end)
kind(function() pcall(go, create(function() pcall(report) end)) end)
kind(function() deep(190, function() pcall(deep, 10, report) end) end)
kind(function() local function nest(n) if n == 0 then report() else pcall(nest, n - 1) end end nest(12) nest(40) end)
if _VERSION == "Lua 5.4" then
  kind(load("local report = ... return function() local x <close> = setmetatable({}, { __close = function() report() end }) report() end", "=close")(report))
  kind(load([[local report, create, above = ... return function() -- closes a coroutine that waits
    local co = create(function() local x <close> = setmetatable({}, { __close = function() report() end }) coroutine.yield() end)
    coroutine.resume(co) above[co] = coroutine.running() coroutine.close(co)
  end]], "=closing")(report, create, above))
end
if call then -- C function of a program that embeds Lua
  kind(function() call(report) end)
  kind(function() call(call, report) end)
  kind(function() call(pcall, function() call(deep, 3, report) end) end)
  kind(function() go(create(call), function() pcall(call, report) end) end)
end

local function churn() -- functions and code that are gone at once
  local f = load(("local report, n = ... local function made() return report() end made() return n"):rep(1), "=chunk" .. math.random(1000000))
  f(report)
end
repeat
  for _, f in ipairs(kinds) do f() end
  if mode == "churn" then for _ = 1, 100 do churn() end end
until mode == "main"
