"""What is made once, before any run: the frameworks' `environments` and the prepared `datasets`."""
