from ..helpers import help_out

DEEP = help_out("deep")
