-- expect: gated_rows_slots\.lua:8: .*gate fp32\[6,8\] with slots int32\[4\]: a slot for each row is needed
local nn, optim = require "nn", require "optim"

local m = nn.module "M"
m.w = nn.parameter({ 3, 8 })
function m:forward(x)
  local _, slots, places = nn.route(nn.cast(nn.zeros({ 3, 2 }), "int32"), 2)
  return nn.gated_rows(nn.dispatch(x * self.w, slots, places), nn.zeros({ 6, 8 }), slots:narrow(0, 0, 4), places, nn.ones({ 3, 2 }))
end
nn.fully_shard(m)
return nn.training {
  model = m,
  batch = { x = nn.input("fp32", { 3, 8 }) },
  loss = function(net, b) return nn.mean(net(b.x)) end,
  optimizer = optim.AdamW { lr = 1e-3 },
}
