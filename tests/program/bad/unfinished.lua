-- expect: :4: 'end' expected \(to close 'function' at line 2\) near <eof>
local function f()
  return 1
