"""Rollouts: changed content reaches the objects of a watch step by step."""
