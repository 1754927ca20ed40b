"""The status page: kinds, objects, queue and runs of the operator, served on loopback only.

The page is read-only, and reconciling does not depend on it. `journal` records runs. `stored_runs` reads runs of
earlier operators from the run folders. `object_states` caches the state of each object. `views` renders JSON. `server`
serves it. Of objects it shows only the conditions; of runs only tasks, files, lines, times and masked error messages.
"""
