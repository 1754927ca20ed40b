from .. import NAME
from ..sibling import NAME as SIBLING


def deep():
    return [NAME, SIBLING, __name__]
