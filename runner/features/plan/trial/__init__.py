"""Planned writes of a run that changes nothing: values, patches and selectors. Pure."""
