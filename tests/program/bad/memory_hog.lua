-- expect: memory_hog\.lua:4: stopped: more than 64 MiB of memory for Lua's values and traced ops; does a table, a string .*--limit memory=128 allows more
-- args: --limit memory=64
local t = {}
for i = 1, 1e9 do t[i] = i end
