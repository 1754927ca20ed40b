"""Observers of the calls of runs, as functions of a call and its response.

The server calls each of them at one place. They parse content only if they need it, and share what one of them parsed
(`Call.parsed`, `Answer.object`). They change no request and no response.
"""
