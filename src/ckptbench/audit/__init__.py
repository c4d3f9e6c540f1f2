"""Whether this machine's study is to be believed: checks whose answers are known before, or that only an honest machine passes."""
