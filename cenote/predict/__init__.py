"""Inference: embed a data set, predict maps and boxes, discover objects, cache features."""
