"""Wrong configs, as the text of one file, and what the error must say of each: field, value and remedy."""
