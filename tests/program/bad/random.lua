-- expect: random\.lua:2: math.random does not exist here
local x = math.random()
