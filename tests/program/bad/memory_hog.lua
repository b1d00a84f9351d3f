-- expect: memory_hog\.lua:3: the file needs more than 512 MiB of Lua memory
local t = {}
for i = 1, 1e9 do t[i] = i end
