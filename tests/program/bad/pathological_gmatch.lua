-- expect: pathological_gmatch\.lua:3: stopped a library call that does not end
local s = ("a"):rep(5000)
for x in s:gmatch(("a*"):rep(40) .. "b") do end
