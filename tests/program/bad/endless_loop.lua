-- expect: endless_loop\.lua:2: stopped after 100 million Lua instructions
while true do end
