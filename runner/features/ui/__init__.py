"""The status page: kinds, objects, queue and runs of the operator, served on loopback only.

The page is read-only, and reconciling does not depend on it. `journal` records runs. `stored_runs` reads runs of
earlier operators from the run folders. `objects` caches the state of each object. `views` renders JSON. `server`
serves it. Values of objects that are secret are never shown (`objects`), and of runs only tasks, files, lines,
times and masked error messages.
"""
