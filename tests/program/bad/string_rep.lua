-- expect: string_rep\.lua:2: .*(512 MiB|too large)
local s = ("x"):rep(1 << 40)
