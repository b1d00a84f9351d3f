-- expect: os_execute\.lua:2: 'os' does not exist here: a model file runs in a sandbox
os.execute "id"
