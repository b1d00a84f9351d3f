-- expect: syntax\.lua:2: unexpected symbol near|syntax\.lua:2: '=' expected near
local x == 3
