-- expect: string_rep\.lua:2: .*(1024 MiB|too large)
local s = ("x"):rep(1 << 40)
