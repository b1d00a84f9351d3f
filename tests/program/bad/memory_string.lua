-- expect: memory_string\.lua:4: stopped: more than 64 MiB of memory for Lua's values and traced ops; does a table, a string .*--limit memory=128 allows more
-- args: --limit memory=64
local s = "x"
while true do s = s .. s end
