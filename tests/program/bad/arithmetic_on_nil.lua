-- expect: arithmetic_on_nil\.lua:3: attempt to perform arithmetic on a nil value \(local 'x'\)
local x
local y = x + 1
