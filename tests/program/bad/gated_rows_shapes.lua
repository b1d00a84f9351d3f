-- expect: gated_rows_shapes\.lua:8: .*gate fp32\[6,8\] and up fp32\[6,4\]: they must have one shape and dtype
local nn, optim = require "nn", require "optim"

local m = nn.module "M"
m.w = nn.parameter({ 3, 8 })
function m:forward(x)
  local _, slots, places = nn.route(nn.cast(nn.zeros({ 3, 2 }), "int32"), 2)
  return nn.gated_rows(nn.dispatch(x * self.w, slots, places), nn.zeros({ 6, 4 }), slots, places, nn.ones({ 3, 2 }))
end
nn.fully_shard(m)
return nn.training {
  model = m,
  batch = { x = nn.input("fp32", { 3, 8 }) },
  loss = function(net, b) return nn.mean(net(b.x)) end,
  optimizer = optim.AdamW { lr = 1e-3 },
}
