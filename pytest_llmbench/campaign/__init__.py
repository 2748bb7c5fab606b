"""Measuring nodes, one after the other, in an order that can be cut anywhere."""
