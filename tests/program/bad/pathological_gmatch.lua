-- expect: pathological_gmatch\.lua:4: stopped: more than 1 s of processor time; does a loop, a pattern .* have no end\?.*--limit time=2 allows more
-- args: --limit time=1
local s = ("a"):rep(5000)
for x in s:gmatch(("a*"):rep(40) .. "b") do end
