-- expect: frozen_copy_apart\.lua:4: nn\.frozen_copy: 'copy\.weight' is the copy of a parameter that is not part of the model; assign
local nn, optim = require "nn", require "optim"
local m = nn.module "M"
m.up, m.copy = nn.Linear(4, 4), nn.Linear(4, 4)
nn.frozen_copy(m.copy, nn.Linear(4, 4))
function m:forward(x) return self.copy(self.up(x)) end
return nn.training {
  model = m,
  batch = { x = nn.input("fp32", { 2, 4 }) },
  loss = function(model, b) return model(b.x):mean() end,
  optimizer = optim.AdamW { lr = 1e-3 },
}
