"""Protocols: how a pool, a model or an index is evaluated."""
