-- expect: next_key\.lua:2: next: no such key
local k = next({ a = 1 }, "b")
