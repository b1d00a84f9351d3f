-- expect: training_mode_outside\.lua:3: nn.training_mode\(\) is known only while
local nn, optim = require "nn", require "optim"
local t = nn.training_mode()
