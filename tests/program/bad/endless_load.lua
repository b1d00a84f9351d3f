-- expect: endless_load\.lua:4: stopped: more than 1 s of processor time; does a loop, a pattern .* have no end\?.*--limit time=2 allows more
-- args: --limit time=1
local text = ("x = 1 "):rep(1e5)
while true do load(text) end
