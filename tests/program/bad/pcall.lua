-- expect: pcall\.lua:2: 'pcall' does not exist here
pcall(print, 1)
