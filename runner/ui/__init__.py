"""The page that shows, on loopback alone, what the operator does: kinds, objects, queue, runs.

It only looks on: nothing in the way from event to status knows of it. `journal` notes what runs do, `past` reads
what earlier operators left of theirs, `survey` keeps the state of each object, `views` makes JSON of all that, and
`server` answers. Nothing that objects hold is shown but their conditions, and of runs no variables and no output: task,
file and line, times, and the message of what failed, masked as in the log.
"""
