-- expect: frozen_copy_shape\.lua:5: nn\.frozen_copy: the copy has no parameter 0\.weight \[4,4\]; make both by one function
local nn = require "nn"
local a = nn.sequential { nn.Linear(4, 8, { bias = false }) }
local b = nn.sequential { nn.Linear(4, 4, { bias = false }) }
nn.frozen_copy(a, b)
