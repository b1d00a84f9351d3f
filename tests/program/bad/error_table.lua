-- expect: error_table\.lua:2: the file raised an error that is a table
error({})
