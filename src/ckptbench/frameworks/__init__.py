"""One file for each framework, behind the contract in `contract.py`. Only that file imports the framework's library."""
