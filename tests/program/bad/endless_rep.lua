-- expect: endless_rep\.lua:3: stopped: more than 1 s of processor time; does a loop, a pattern .* have no end\?.*--limit time=2 allows more
-- args: --limit time=1
local s = (""):rep(1 << 60)
