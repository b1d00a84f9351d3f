-- expect: batch_norm_momentum\.lua:3: nn\.BatchNorm: momentum must be a number from 0 to 1, not the number 1\.5
local nn = require "nn"
local norm = nn.BatchNorm(4, { momentum = 1.5 })
