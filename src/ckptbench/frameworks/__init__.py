"""One file or folder for each framework, behind one contract. Only there its library is imported."""
