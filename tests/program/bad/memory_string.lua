-- expect: memory_string\.lua:3: the file needs more than 512 MiB of Lua memory
local s = "x"
while true do s = s .. s end
