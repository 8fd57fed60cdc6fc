complete --keep-order --exclusive --command llmsrv --arguments "(COMPLETE=fish llmsrv -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
