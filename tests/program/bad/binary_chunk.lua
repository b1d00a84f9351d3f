-- expect: binary_chunk\.lua:3: attempt to load a binary chunk|binary_chunk\.lua:3: .*binary
local f, message = load("\27Lua")
error(message)
