-- expect: endless_rep\.lua:2: stopped a library call that does not end
local s = (""):rep(1 << 60)
