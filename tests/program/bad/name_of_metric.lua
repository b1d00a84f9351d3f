-- expect: name_of_metric\.lua:14: the metric .a\n. holds a control character
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.w = nn.parameter({ 8 }, { init = nn.init.ones() })
function model:forward(x)
  return x * self.w
end

return nn.training {
  model = model,
  batch = { x = nn.input("fp32", { 4, 8 }) },
  loss = function(m, b)
    local y = m(b["x"]):mean()
    nn.log_metric("a\n", y)
    return y
  end,
  optimizer = optim.SGD { lr = 0.1 },
}
