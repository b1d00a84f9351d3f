-- expect: bad_argument\.lua:2: bad argument #2 to 'format' \(number expected, got string\)
local s = string.format("%d", "x")
