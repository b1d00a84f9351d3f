-- expect: eps_module_rms\.lua:3: nn\.RMSNorm: eps must be a small number above 0, at most 1, not the number inf
local nn = require "nn"
local norm = nn.RMSNorm(4, { eps = math.huge })
