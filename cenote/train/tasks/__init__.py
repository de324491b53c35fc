"""Training tasks: what is optimised, on which batches, and how it is validated."""
