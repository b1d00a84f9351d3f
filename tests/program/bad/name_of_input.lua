-- expect: name_of_input\.lua:11: the input 'x\\x1b\[2J' holds a control character, or bytes that are no UTF-8; use letters
local nn, optim = require "nn", require "optim"
local model = nn.module "Net"
model.w = nn.parameter({ 8 }, { init = nn.init.ones() })
function model:forward(x)
  return x * self.w
end

return nn.training {
  model = model,
  batch = { ["x\27[2J"] = nn.input("fp32", { 4, 8 }) },
  loss = function(m, b)
    local y = m(b["x\27[2J"]):mean()
    return y
  end,
  optimizer = optim.SGD { lr = 0.1 },
}
