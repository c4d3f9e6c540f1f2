"""One file or folder per framework, behind one contract. Its library is imported only there."""
