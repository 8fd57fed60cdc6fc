complete --keep-order --exclusive --command logkit --arguments "(COMPLETE=fish logkit -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
