"""Files that people write settings into: how they are read, which values fields take, and the words of each error."""
