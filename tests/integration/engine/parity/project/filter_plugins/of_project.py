import os
from datetime import datetime

_calls = []


def counted(value):
    """Say how often it was called in this process, which for one process a task is once."""
    _calls.append(value)
    return len(_calls)


def failing(value):
    raise RuntimeError(f"the filter does not like {value}")


def ends_the_process(value):
    os._exit(9)


def prints(value):
    print("printed by a filter")
    return value


class FilterModule:
    def filters(self):
        return {
            "of_project_filter": lambda value, *args, **kwargs: f"<{value} {args} {sorted(kwargs)}>",
            "counted": counted,
            "failing": failing,
            "ends_the_process": ends_the_process,
            "prints": prints,
            "moment": lambda value: datetime(2020, 1, 2, 3, 4, 5),
            "bytes": lambda value: value.encode(),
            "tuple": tuple,
            "set": lambda value: sorted(set(value)),
            "generator": lambda value: (item for item in value),
        }
