-- expect: endless_recursion\.lua:2: stack overflow: a function calls itself without end
local function f() return f() end
f()
