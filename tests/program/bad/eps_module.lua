-- expect: eps_module\.lua:3: nn\.LayerNorm: eps must be a small number above 0, at most 1, not the number 0
local nn = require "nn"
local norm = nn.LayerNorm(4, { eps = 0 })
