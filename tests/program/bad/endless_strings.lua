-- expect: endless_strings\.lua:3: stopped: more than 1 s of processor time; does a loop, a pattern .* have no end\?.*--limit time=2 allows more
-- args: --limit time=1
while true do local s = ("x"):rep(1e8) end
