WHO = "the project's"
_count = []


def count():
    """Say how often this was asked in this process: once, always."""
    _count.append(1)
    return len(_count)
