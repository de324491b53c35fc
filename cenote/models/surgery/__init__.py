"""Edits of a backbone: finer strides, a feature pyramid, the last block, the last norm."""
