"""The mutants, a file for each part of the product."""
