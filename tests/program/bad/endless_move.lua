-- expect: endless_move\.lua:2: stopped a library call that does not end
table.move({}, 1, 1 << 60, 2)
