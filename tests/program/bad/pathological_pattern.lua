-- expect: pathological_pattern\.lua:3: stopped a library call that does not end: a pathological pattern
local s = ("a"):rep(5000)
local x = s:find(("a*"):rep(40) .. "b")
